#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# npm_install.sh FROM FOLDER TOOL...: puts the npm packages of FROM/package-lock.json into
# FOLDER/node_modules. Runs no script of theirs, and does nothing, and asks the network nothing, when
# they are there. The TOOLs must be installed.
set -euo pipefail
from=$1
folder=$2

for tool in "${@:3}"; do
  command -v "$tool" >/dev/null || {
    echo "$from: no $tool; deploy/install-deps.sh --pages brings it" >&2
    exit 1
  }
done
if cmp -s "$from/package-lock.json" "$folder/installed.json"; then exit 0; fi
mkdir -p "$folder"
cp "$from/package.json" "$from/package-lock.json" "$folder"
(cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier)
cp "$from/package-lock.json" "$folder/installed.json"
