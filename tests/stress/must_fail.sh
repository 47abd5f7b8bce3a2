#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a deliberately broken stress test: passes when it found wrong bytes and said so, and only then
# (a crash, a time limit or a clean run fail). Usage: must_fail.sh PROGRAM [ARGS...]
set -euo pipefail

rc=0
out=$("$@" 2>&1) || rc=$?
echo "$out"
if ((rc == 77)); then exit 77; fi
if ((rc == 1)) && grep -q '^WRONG BYTES FOUND' <<< "$out"; then exit 0; fi
echo "must_fail.sh: expected wrong bytes and exit status 1, got status $rc"
exit 1
