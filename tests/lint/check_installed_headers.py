# SPDX-License-Identifier: Apache-2.0
"""The installed headers stand alone: nothing of ours but client/include, no gRPC, no protobuf."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import lintlib

_FORBIDDEN = re.compile(r"/(?:grpc|grpcpp|grpc\+\+|google/protobuf)/|\.pb\.h$")
INCLUDE = "client/include"


def check(root, compiler):
    headers = [f for f in lintlib.all_files(root)
               if f.startswith(INCLUDE + "/") and f.endswith(".h")]
    inside = os.path.realpath(Path(root) / INCLUDE) + "/"
    tree = os.path.realpath(root) + "/"
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "one.cc"
        for header in headers:
            source.write_text(f'#include "{header[len(INCLUDE) + 1:]}"\n')
            result = subprocess.run(
                [compiler, "-std=c++20", "-M", "-I", inside, str(source)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            if result.returncode != 0:
                problems.append(f"{header}:1: {result.stderr.strip().splitlines()[0]}")
                continue
            names = result.stdout.replace("\\\n", " ").split()[1:]
            for name in sorted({os.path.realpath(n) for n in names} - {str(source)}):
                if _FORBIDDEN.search(name):
                    problems.append(f"{header}:1: pulls in {name}")
                elif name.startswith(tree) and not name.startswith(inside):
                    problems.append(f"{header}:1: pulls in {name[len(tree):]}, not installed")
    return problems


if __name__ == "__main__":
    lintlib.run(check, [("--compiler", "the C++ compiler")])
