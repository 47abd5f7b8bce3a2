# SPDX-License-Identifier: Apache-2.0
"""Includes go only where the table of src/README.md lets them, and gRPC stays at the edges.

The table is the contract; this file knows only how a folder of the table maps to the tree and how
an include is found. tests/ may include anything and may be included by nobody else.
"""

import os
import re
from pathlib import Path

import lintlib

TABLE = "src/README.md"
_ROW = re.compile(r"^\|([^|]*)\|([^|]*)\|([^|]*)\|\s*$")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)
_GRPC = re.compile(r"^(grpc|grpcpp|grpc\+\+)(/|$)|\.grpc\.pb\.h$")
# Folders an include path may start from, besides that of the including file.
_SEARCHED = ("src", ".", "client/include", "client", "client/lib", "client/ctl", "daemon", "tests")


def read_table(text):
    """The rows as {folder: set of folders it may include}, and what is wrong with the table."""
    rows, problems = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        match = _ROW.match(line)
        if not match:
            continue
        folder, allowed, _ = (cell.strip() for cell in match.groups())
        if folder == "folder" or set(folder) <= set("-: "):
            continue
        if folder in rows:
            problems.append(f"{TABLE}:{number}: {folder} has two rows")
        rows[folder] = {a.strip() for a in allowed.split(",") if a.strip()}
    if not rows:
        problems.append(f"{TABLE}:1: no include table")
    for folder, allowed in rows.items():
        for other in sorted(allowed - set(rows)):
            problems.append(f"{TABLE}:1: {folder} may include {other}, which has no row")
    problems += [f"{TABLE}:1: the table goes in a circle: {c}" for c in _circles(rows)]
    return rows, problems


def _circles(rows):
    done = set()

    def visit(folder, way):
        if folder in way:
            return [" -> ".join(way[way.index(folder):] + [folder])]
        if folder in done:
            return []
        found = [c for o in sorted(rows.get(folder, ())) for c in visit(o, way + [folder])]
        done.add(folder)
        return found

    return [c for folder in rows for c in visit(folder, [])]


def folder_of(path, rows):
    """The table's folder that `path` (from the root) lies in; None if no row names it."""
    inner = path[len("src/"):] if path.startswith("src/") else path
    owners = [f for f in rows if inner.startswith(f + "/")]
    return max(owners, key=len, default=None)


def _targets(root, path, quote, name):
    """The files of ours that `name`, included from `path`, may mean; the compiler's first alone if
    it lies beside the including file."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if quote == '"' and (Path(root) / beside).is_file():
        return [beside]
    found = {os.path.normpath(os.path.join(f, name)) for f in _SEARCHED}
    return sorted(f for f in found if not f.startswith("..") and (Path(root) / f).is_file())


def _judge(root, path, rows, quote, name):
    """What is wrong with one include of `path`, or None."""
    if _GRPC.search(name) and not (
            path.startswith(("daemon/", "tests/"))
            or (path.endswith(".cc") and path.startswith(("client/lib/", "client/ctl/")))):
        return f"includes {name}: gRPC stays in daemon/ and the client's .cc files"
    if path.startswith("tests/"):
        return None
    if ".." in name.split("/"):
        return f"includes {name}: name it from its root, not by .."
    if name.endswith(".pb.h"):
        to = "proto"
    else:
        files = _targets(root, path, quote, name)
        if len(files) > 1:
            return f"includes {name}, which may be any of {', '.join(files)}: rename one"
        if files:
            to = folder_of(files[0], rows) or files[0].split("/")[0]
        elif quote == '"' and name.split("/")[0] in rows:
            to = name.split("/")[0]
        else:
            return None  # an external library
    here = folder_of(path, rows)
    if to == here or to in rows[here]:
        return None
    return f"includes {name}: {here} may not include {to} ({TABLE})"


def check(root):
    table = Path(root) / TABLE
    rows, problems = read_table(table.read_text() if table.is_file() else "")
    for path in lintlib.cpp_files(root):
        if not path.startswith("tests/") and folder_of(path, rows) is None:
            problems.append(f"{path}:1: its folder has no row in {TABLE}")
            continue
        code = lintlib.blank(lintlib.read(root, path), keep_text=True)
        for match in _INCLUDE.finditer(code):
            wrong = _judge(root, path, rows, match.group(1), match.group(2))
            if wrong:
                problems.append(f"{path}:{code.count(chr(10), 0, match.start(1)) + 1}: {wrong}")
    return problems


if __name__ == "__main__":
    lintlib.run(check)
