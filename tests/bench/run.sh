#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and runs every bench on the release preset, one after the other, and prints their rows.
#   tests/bench/run.sh [BUILD_DIR] [NAME...]     default: build/release, all of them
# A row: name, ours, limit, unit, ratio, bar, met or MISSED. Nothing fails here: read the rows.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- bench_pin bench_rpc bench_put bench_memory bench_evict bench_regions bench_move bench_list bench_deaths bench_llm \
  planner_scale_bench
case " $* " in *" bench_move "*)
  command -v fio >/dev/null || echo "no fio here: the flash rows of bench_move are left out; apt-get install fio" >&2
  ;;
esac
[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
cmake -B "$build" -DHMM_BUILD_BENCH=ON >/dev/null
for name in "$@"; do
  cmake --build "$build" --target "$name" >/dev/null
done
for name in "$@"; do
  echo "== $name"
  "$build/tests/bench/$name" || echo "$name: exit status $?"
done
