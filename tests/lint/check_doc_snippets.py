# SPDX-License-Identifier: Apache-2.0
"""The C++ snippets of each page, in order, are one file that compiles without a warning."""

import re
import subprocess
import tempfile
from pathlib import Path

import lintlib

PAGES = ("docs/client.md", "README.md")
_SNIPPET = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program(page, text):
    """The snippets as one source, each with a #line so that the compiler names the page's lines."""
    parts = []
    for found in _SNIPPET.finditer(text):
        line = text.count("\n", 0, found.start(1)) + 1
        parts.append(f'#line {line} "{page}"\n{found.group(1)}')
    return "".join(parts)


def check_page(root, page, compiler):
    source_text = program(page, (Path(root) / page).read_text())
    if not source_text:
        return [f"{page}:1: no snippets"]
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "snippets.cc"
        source.write_text(source_text)
        result = subprocess.run(
            [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
             "-I", str(Path(root) / "client/include"), str(source)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode == 0:
        return []
    errors = [line for line in result.stderr.splitlines() if "error: " in line]
    return errors or [f"{page}:1: {result.stderr.strip().splitlines()[0]}"]


def check(root, compiler):
    return [problem for page in PAGES for problem in check_page(root, page, compiler)]


if __name__ == "__main__":
    lintlib.run(check, [("--compiler", "the C++ compiler")])
