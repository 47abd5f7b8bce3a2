# SPDX-License-Identifier: Apache-2.0
"""The systemd units are understood word for word, and stay as locked up as they are.

`systemd-analyze verify` exits 0 on a key it does not know, so what counts is that it prints nothing.
It also wants the executable to exist: a copy that starts /bin/true is verified.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import lintlib

# Of 100, as `systemd-analyze security` counts exposure: "1.8 OK" is 18.
EXPOSURE = 30


def judge(name, text):
    """Problems of the unit file `name` with the content `text`."""
    # Everyone but root would be "nobody" to SO_PEERCRED, and tenants are told apart by it.
    problems = [f"{name}:1: PrivateUsers must stay off"
                for _ in re.finditer(r"^PrivateUsers\s*=\s*(?!no|false|0)", text, re.MULTILINE)]
    text = re.sub(r"^(Exec\w+=[-+!@:]*)\S+", r"\1/bin/true", text, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / name
        copy.write_text(text)
        verify = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        said = verify.stdout.replace(scratch + "/", "").strip()
        problems += [f"{name}:1: {line}" for line in said.splitlines()]
        if verify.returncode != 0 and not said:
            problems.append(f"{name}:1: systemd-analyze verify exits {verify.returncode}")
        if name.endswith(".service"):
            security = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}",
                 "--no-pager", str(copy)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if security.returncode != 0:
                last = (security.stdout.strip().splitlines() or ["no output"])[-1]
                problems.append(f"{name}:1: exposed beyond {EXPOSURE / 10}: {last}")
    return problems


def check(root):
    units = [f for f in lintlib.all_files(root)
             if f.startswith("deploy/") and f.endswith((".service", ".socket"))]
    return [p for unit in units for p in judge(Path(unit).name, lintlib.read(root, unit))]


if __name__ == "__main__":
    lintlib.run(check)
