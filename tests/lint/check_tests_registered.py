# SPDX-License-Identifier: Apache-2.0
"""Every test in the tree is run, and none is switched off.

A tests/**/*_test.cc counts as run when an executable built from it is what a CTest test starts; a
*_test.sh, *_test.py or *_test.mjs when a CTest command names it. What CTest really has is asked of the build
tree: tests/CMakeLists.txt writes "executable<TAB>source" lines to test_sources.txt there.
"""

import os
import re
from pathlib import Path

import lintlib

_OFF = (
    (re.compile(r'\b\w*(?:TEST_CASE\w*|SCENARIO)\s*\([^;{]*?'
                r'"[^"\n]*\[(?:\.[^\]\n]*|!hide|!mayfail|!shouldfail)\]'),
     "a test that is hidden or may fail"),
    (re.compile(r"^\s*#\s*if\s+0\b", re.MULTILINE), "#if 0"),
)
_COMMENTED = re.compile(
    r"^\s*(?://|/?\*|#)\s*(?:TEST_CASE\w*|SCENARIO|SECTION|TEMPLATE_TEST_CASE\w*|add_test|"
    r"hmm_add_test|add_subdirectory)\s*\((?!name\b)", re.MULTILINE)
_DISABLED = re.compile(r"\bDISABLED\s+(?:TRUE|ON|YES|1)\b|\bWILL_FAIL\s+(?:TRUE|ON|YES|1)\b")
_SLEEP = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep)\s*\(")
_DETERMINISTIC = tuple(f"tests/{d}/" for d in ("unit", "conformance", "property", "rpc", "support"))


def _line(text, match):
    said = match.group(0)
    return text.count("\n", 0, match.start() + len(said) - len(said.lstrip())) + 1


def switched_off(path, text):
    """Problems of one test source or CMakeLists.txt."""
    found = [(m, "a test is commented out") for m in _COMMENTED.finditer(text)]
    if path.endswith(lintlib.CPP):
        code = lintlib.blank(text, keep_text=True)
        found += [(m, what) for pattern, what in _OFF for m in pattern.finditer(code)]
        if path.startswith(_DETERMINISTIC):
            found += [(m, "a test sleeps: let it advance a manual clock or wait for an event")
                      for m in _SLEEP.finditer(lintlib.blank(text))]
    else:
        found += [(m, "a test is disabled or expected to fail") for m in _DISABLED.finditer(text)]
    return [f"{path}:{_line(text, m)}: {what}" for m, what in found]


def unregistered(root, names, executables, commands):
    """Those of `names` that no command runs. `executables`: {executable: set of sources}."""
    words = {os.path.realpath(w) for command in commands for w in command if "/" in w}
    run = {s for exe, sources in executables.items() if os.path.realpath(exe) in words
           for s in sources}
    run |= words
    return [f"{n}:1: no CTest test runs it" for n in names
            if os.path.realpath(Path(root) / n) not in run]


def ctest_tests(folder):
    """(name, words) of every add_test of a build tree, from the files CTest itself reads. (Its own
    --show-only leaves out the commands of what is not built yet.)"""
    path = Path(folder) / "CTestTestfile.cmake"
    text = path.read_text() if path.exists() else ""  # a folder entered before enable_testing()
    tests = [(name or plain, re.findall(r'"((?:\\.|[^"\\])*)"', words)) for name, plain, words in
             re.findall(r"^add_test\((?:\[=*\[(.*?)\]=*\]|(\S+)) (.*)", text, re.MULTILINE)]
    for below in re.findall(r'^subdirs\("([^"]*)"\)', text, re.MULTILINE):
        tests += ctest_tests(Path(folder) / below)
    return tests


def sources_of(build):
    """{executable: set of sources} of the tests of a build tree."""
    executables = {}
    for line in (Path(build) / "test_sources.txt").read_text().splitlines():
        exe, source = line.split("\t")
        executables.setdefault(exe, set()).add(os.path.realpath(source))
    return executables


def check(root, build):
    files = [f for f in lintlib.all_files(root)
             if f.startswith("tests/") and not f.startswith(("tests/data/", "tests/install/consumer"))]
    names = [f for f in files if re.search(r"_test\.(cc|sh|py|mjs)$", f)]
    problems = unregistered(root, names, sources_of(build), [words for _, words in ctest_tests(build)])
    for path in files:
        if path.endswith(lintlib.CPP) or path.endswith("CMakeLists.txt"):
            problems += switched_off(path, lintlib.read(root, path))
    return problems


if __name__ == "__main__":
    lintlib.run(check, [("--build", "the build tree whose CTest is asked")])
