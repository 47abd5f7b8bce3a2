# SPDX-License-Identifier: Apache-2.0
"""docs/planning.md shows what its commands print, to the byte: plan_doc_test.py HMMCTL."""

import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/planning.md"
_BLOCK = re.compile(r"^```\n(\$ hmmctl .*?)^```$", re.MULTILINE | re.DOTALL)


def printed(block, hmmctl, folder):
    """The block with what its commands print now, run one after the other in `folder`."""
    text = ""
    for command in re.findall(r"^\$ (hmmctl .*)$", block, re.MULTILINE):
        run = subprocess.run(
            ["sh", "-c", f'hmmctl() {{ "{hmmctl}" "$@"; }}; {command}'], cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300)
        text += f"$ {command}\n{run.stdout}"
    return text


def main():
    hmmctl = os.path.abspath(sys.argv[1])
    blocks = _BLOCK.findall((ROOT / PAGE).read_text())
    if not blocks:
        sys.exit(f"{PAGE}: no commands")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "tests", Path(folder) / "tests")  # what commands name from the root
        fresh = [printed(block, hmmctl, folder) for block in blocks]
    wrong = [line for shown, now in zip(blocks, fresh)
             for line in difflib.unified_diff(shown.splitlines(), now.splitlines(), PAGE,
                                              "what is printed", lineterm="")]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
