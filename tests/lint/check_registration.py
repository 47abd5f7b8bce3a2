# SPDX-License-Identifier: Apache-2.0
"""No source registers memory with the kernel or a device (case 32 of docs/guarantees.md).

An arena's chunks are punched out and filled again. A registration pins the pages of before, and I/O
through it then goes silently to bytes that nobody maps.
"""

import re

import lintlib

_CALLS = re.compile(
    r"\b(io_uring_register_buf\w*|io_uring_prep_(?:read|write)_fixed|IORING_REGISTER_BUF\w*"
    r"|IORING_OP_(?:READ|WRITE)_FIXED|cu(?:da)?(?:Mem)?HostRegister|ibv_reg_mr\w*)\b")


def judge(path, text):
    return [f"{path}:{number}: {m.group(1)}: arena memory is never registered"
            for number, line in enumerate(lintlib.blank(text).splitlines(), 1)
            for m in _CALLS.finditer(line)]


def check(root):
    return [p for path in lintlib.all_files(root)
            if path.startswith(("src/", "daemon/", "client/")) and path.endswith(lintlib.CPP)
            for p in judge(path, lintlib.read(root, path))]


if __name__ == "__main__":
    lintlib.run(check)
