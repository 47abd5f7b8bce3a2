# SPDX-License-Identifier: Apache-2.0
"""Every C++ file is as clang-format (.clang-format in the root) would write it."""

import re
import shutil
import subprocess

import lintlib


def check(root):
    tool = shutil.which("clang-format")
    if tool is None:
        return ["clang-format is not installed; deploy/install-deps.sh brings it"]
    files = lintlib.cpp_files(root)
    if not files:
        return []
    result = subprocess.run(
        [tool, "--dry-run", "-Werror", "--ferror-limit=0", *files], cwd=root,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    wrong = {}
    for line in result.stdout.splitlines():
        match = re.match(r"(\S+?):\d+:\d+: error: ", line)
        if match:
            wrong.setdefault(match.group(1), line)
    if result.returncode != 0 and not wrong:
        return result.stdout.splitlines() or ["clang-format fails and says nothing"]
    return [f"{line} (clang-format -i {path})" for path, line in wrong.items()]


if __name__ == "__main__":
    lintlib.run(check)
