# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md is what gen_errors_doc.py makes of the reasons in src/base/status.h."""

from pathlib import Path

import gen_errors_doc
import lintlib

_AGAIN = f"python3 tests/lint/gen_errors_doc.py >{gen_errors_doc.PAGE}"


def check(root):
    try:
        wanted = gen_errors_doc.page(lintlib.read(root, gen_errors_doc.SOURCE))
    except (OSError, ValueError) as error:
        return [f"{gen_errors_doc.SOURCE}:1: {error}"]
    if not (Path(root) / gen_errors_doc.PAGE).is_file():
        return [f"{gen_errors_doc.PAGE}:1: missing; {_AGAIN}"]
    wanted = wanted.splitlines()
    found = lintlib.read(root, gen_errors_doc.PAGE).splitlines()
    if found == wanted:
        return []
    line = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b),
                min(len(found), len(wanted)))
    return [f"{gen_errors_doc.PAGE}:{line + 1}: not what {gen_errors_doc.SOURCE} says; {_AGAIN}"]


if __name__ == "__main__":
    lintlib.run(check)
