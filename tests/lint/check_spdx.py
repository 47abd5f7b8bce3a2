# SPDX-License-Identifier: Apache-2.0
"""Every source file says its licence in its first line (the second after a #! line)."""

import re

import lintlib

LINE = "SPDX-License-Identifier: Apache-2.0"
_SUFFIXES = lintlib.CPP + (".py", ".sh", ".proto", ".cmake", ".pml", ".toml", ".service", ".socket",
                           ".in", ".conf", ".c", ".pyi", ".js", ".mjs", ".css", ".html")
_NAMES = ("CMakeLists.txt", "Dockerfile", "Containerfile")
# Files of others, under the same licence, that keep their own notice.
_FOREIGN = ("proto/google/",)
# Files of others under a licence of their own, which lies beside them.
_LICENSED = ("client/ctl/report/third_party/",)


def _wants(path, text):
    name = path.rsplit("/", 1)[-1]
    return path.endswith(_SUFFIXES) or name in _NAMES or text.startswith("#!")


def check(root):
    problems = []
    for path in lintlib.all_files(root):
        if path.startswith(("tests/data/",) + _LICENSED):
            continue
        text = lintlib.read(root, path)
        if not _wants(path, text):
            continue
        lines = text.splitlines()
        lines = lines[1:] if text.startswith("#!") else lines
        said = bool(lines) and LINE in lines[0]
        if not said and path.startswith(_FOREIGN):
            said = re.search(r"Licensed under the Apache License, Version 2\.0", text) is not None
        if not said:
            problems.append(f"{path}:1: the first line does not say {LINE}")
    return problems


if __name__ == "__main__":
    lintlib.run(check)
