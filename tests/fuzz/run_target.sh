#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run_target.sh TARGET WORK SECONDS MAX_LEN DICT SEED...
# Runs a libFuzzer target on each file of the SEEDs (files or folders), then looks for new inputs
# that crash it for SECONDS, always in the same order. What it finds lies in WORK/found.
set -euo pipefail

target=$1 work=$2 seconds=$3 max_len=$4 dict=$5
shift 5
name=$(basename "$target")
name=${name#fuzz_}

rm -rf "$work"
mkdir -p "$work/corpus" "$work/found"
files=()
for seed in "$@"; do
  [ -e "$seed" ] || continue  # no crashers yet
  while IFS= read -r -d '' file; do files+=("$file"); done < <(
    find "$seed" -type f ! -name '*.md' ! -name LICENSE -print0 | sort -z)
done
[ "${#files[@]}" -gt 0 ] || { echo "run_target.sh: $name has no seeds" >&2; exit 1; }

# A limit of memory, so that what allocates without bound is found; a small quarantine, so that it is
# what the target holds that is counted.
export ASAN_OPTIONS="quarantine_size_mb=16:${ASAN_OPTIONS:-}"
common=(-rss_limit_mb=1024 -artifact_prefix="$work/found/")

give_up() {
  echo "fuzz_$name failed. If a file stands under \"Test unit written to\", run it again with"
  echo "  $target FILE"
  echo "mend what it shows, and keep it as tests/fuzz/crashers/$name/<what it was>."
  exit 1
}

# Whole models take seconds under the sanitizers; inputs of the fuzzer's own size must not.
"$target" "${common[@]}" -timeout=60 "${files[@]}" >"$work/seeds.log" 2>&1 ||
  { tail -n 60 "$work/seeds.log"; give_up; }
echo "fuzz_$name: ${#files[@]} seeds and crashers passed"

number=0
for file in "${files[@]}"; do
  if [ "$(stat -c %s "$file")" -le "$max_len" ]; then
    number=$((number + 1))
    cp "$file" "$work/corpus/$(printf '%04d' "$number")"
  fi
done
# Choosing inputs by entropy costs more than running them, where a target has very many edges.
words=(-entropic=0)
[ -z "$dict" ] || words+=(-dict="$dict")
"$target" "${common[@]}" -timeout=5 -seed=1 -max_len="$max_len" -max_total_time="$seconds" \
  "${words[@]}" -print_final_stats=1 "$work/corpus" >"$work/fuzz.log" 2>&1 ||
  { tail -n 60 "$work/fuzz.log"; give_up; }
grep -E '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "$work/fuzz.log"
grep -E '^#[0-9]+[[:space:]]+DONE' "$work/fuzz.log"
