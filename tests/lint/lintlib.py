# SPDX-License-Identifier: Apache-2.0
"""What the lint checks share: the list of our files, C++ without comments, and the way to report.

A check is a module with `check(root) -> list of problems`, each problem one line that begins with
"path:line:" where there is one. `run(check)` prints them and makes the exit status.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

CPP = (".cc", ".h")
# Where C++ of ours lies. tests/data holds inputs of tests, not code of ours.
CPP_ROOTS = ("src/", "daemon/", "client/", "tests/")

_PIECE = re.compile(
    r"""(?P<raw>R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
      | (?P<comment>//(?:[^\n\\]|\\.|\\\n)* | /\*.*?\*/)
      | (?P<text>"(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL,
)


def blank(code, keep_text=False):
    """`code` with comments, raw strings and (unless keep_text) strings emptied; lines stay put."""

    def replace(match):
        if keep_text and match.group("text") is not None:
            return match.group(0)
        quote = match.group(0)[0] if match.group("text") is not None else ""
        return quote + "\n" * match.group(0).count("\n") + quote

    return _PIECE.sub(replace, code)


def all_files(root):
    """Tracked and untracked, unignored files, relative to root; without git, all but build trees."""
    git = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if git.returncode == 0 and (Path(root) / ".git").exists():
        names = [n for n in git.stdout.decode().split("\0") if n]
    else:
        names = []
        for folder, folders, files in os.walk(root):
            at = os.path.relpath(folder, root)
            folders[:] = [f for f in folders if f not in (".git", "__pycache__")
                          and not (at == "." and f.startswith("build"))]
            names += [os.path.normpath(os.path.join(at, f)) for f in files]
    return sorted({n for n in names if (Path(root) / n).is_file()})


def cpp_files(root, roots=CPP_ROOTS):
    return [f for f in all_files(root)
            if f.endswith(CPP) and f.startswith(roots) and not f.startswith("tests/data/")]


def read(root, name):
    return (Path(root) / name).read_text(encoding="utf-8", errors="replace")


def run(check, extra=()):
    """Parses --root (and `extra`, pairs of option and help), runs, prints, exits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=str(Path(__file__).resolve().parents[2]))
    for option, text in extra:
        parser.add_argument(option, required=True, help=text)
    options = vars(parser.parse_args())
    root = options.pop("root")
    problems = check(root, **options)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
