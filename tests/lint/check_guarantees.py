# SPDX-License-Identifier: Apache-2.0
"""docs/guarantees.md names tests that there are.

In its tables whose last column is "test", each `word` there is a test that CTest knows (a * stands for any
text; fuzz targets, which not every build has, by their sources) or a path of the tree; `word` "text" is a
TEST_CASE of that program with this text in its name. A row of the table of cases and the tag [case N] of the
TEST_CASEs go together: each program of the row has one, and each that has one stands in the row.
"""

import fnmatch
import re
from collections import defaultdict
from pathlib import Path

import check_tests_registered
import lintlib

DOC = "docs/guarantees.md"
_CASE = re.compile(r'\bTEST_CASE\w*\s*\(((?:\s*"(?:\\.|[^"\\])*"\s*,?)+)\)')
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_TAG = re.compile(r"\[case (\d+)\]")
_NAMED = re.compile(r'`([^`]+)`(?:\s+"([^"]+)")?')
_MENTION = re.compile(r"\bcases? (\d+(?:(?:, | and )\d+)*)")


def test_cases(code):
    """[(name, tags)] of a source."""
    found = []
    for match in _CASE.finditer(lintlib.blank(code, keep_text=True)):
        strings = _STRING.findall(match.group(1))
        tags = strings.pop() if len(strings) > 1 and strings[-1].startswith("[") else ""
        found.append(("".join(strings), tags))
    return found


def rows(text):
    """(line, cells) of each row of the tables whose last column is headed "test"."""
    heading = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            heading = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if heading is None:
            heading = cells[-1]
        elif heading == "test" and not set(cells[-1]) <= set("-: "):
            yield number, cells


def judge(root, text, programs):
    """`programs`: {CTest name: [(name, tags)] of its TEST_CASEs}."""
    problems = []
    tagged = defaultdict(set)  # case -> programs with such a TEST_CASE
    for program, cases in programs.items():
        for _, tags in cases:
            for number in _TAG.findall(tags):
                tagged[number].add(program)

    def known(word):
        return (fnmatch.filter(programs, word) or (Path(root) / f"tests/fuzz/{word}.cc").is_file()
                or "/" in word and (Path(root) / word).exists())

    listed = {}
    mentioned = []
    for line, cells in rows(text):
        named = _NAMED.findall(cells[-1])
        if not named and not _MENTION.search(cells[-1]):
            problems.append(f"{DOC}:{line}: names no test")
        for word, case in named:
            if not known(word):
                problems.append(f"{DOC}:{line}: {word}: CTest knows no such test")
            elif case and not any(case in name for name, _ in programs.get(word, ())):
                problems.append(f'{DOC}:{line}: {word} has no TEST_CASE "{case}"')
        if cells[0].isdigit():
            listed[cells[0]] = line
            row = {word for word, _ in named if not word.startswith("lint_")}
            problems += [f"{DOC}:{line}: {program} has no TEST_CASE tagged [case {cells[0]}]"
                         for program in sorted(row - tagged[cells[0]])]
            problems += [f"{DOC}:{line}: {program}, which is tagged so, is not named"
                         for program in sorted(tagged[cells[0]] - row)]
        else:
            mentioned += [(line, n) for m in _MENTION.findall(" ".join(cells[1:]))
                          for n in re.findall(r"\d+", m)]
    problems += [f"{DOC}:1: [case {number}] of {', '.join(sorted(named))} is no row"
                 for number, named in sorted(tagged.items()) if named and number not in listed]
    return problems + [f"{DOC}:{line}: case {number} is no row"
                       for line, number in mentioned if number not in listed]


def check(root, build):
    sources = check_tests_registered.sources_of(build)
    programs = {}
    for name, words in check_tests_registered.ctest_tests(build):
        programs[name] = [case for word in words for source in sorted(sources.get(word, ()))
                          for case in test_cases(Path(source).read_text())]
    return judge(root, lintlib.read(root, DOC), programs)


if __name__ == "__main__":
    lintlib.run(check, [("--build", "the build tree whose CTest is asked")])
