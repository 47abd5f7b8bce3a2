#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks the Spin models beside this file: the protocol as it is must have no error in its whole
# state space, and each variant that drops one rule must be found wrong. One line a variant:
#   model, variant, what was expected, what was found, states, seconds.
# Usage: run_models.sh [-j JOBS]      (default 2; one pan needs up to 500 MB)
# Exit: 0 all as expected, 1 not, 2 usage, 77 no spin or no C compiler here (a skip for CTest).
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly depth=10000           # of the search; longest path seen: 234
readonly hash_bits=24          # of the state table's size
readonly memory_mb=3000
readonly limit_s=240           # a variant; the largest needs 20 s

# model, variant; "-" is the protocol as it is.
readonly variants=(
  "pin -"
  "release -"
  "fence -"
  "pin BREAK_CLIENT_ORDER"
  "pin BREAK_DAEMON_ORDER"
  "pin BREAK_GENERATION"
  "pin BREAK_QUARANTINE"
  "pin BREAK_CLOSING_SCAN"
  "pin BREAK_DOOMED_SCAN"
  "release BREAK_TOMBSTONE"
  "release BREAK_IDEMPOTENCE"
  "release BREAK_WAITING"
  "release BREAK_PIN_FIRST"
  "release BREAK_OLDEST"
  "release BREAK_SETTLED"
  "fence BREAK_ONCE"
  "fence BREAK_SEQUENCE"
  "fence BREAK_ARM_ORDER"
  "fence BREAK_SIGNAL_ORDER"
  "fence BREAK_LOOK_AGAIN"
)

# What pan's output says: "right", "wrong: <assertion>" or "broken: <why>" (says nothing about the
# model). A search that was cut short is never "right", nor one in which some statement never ran.
verdict() {  # output
  local out=$1 errors
  errors=$(sed -n 's/.*errors: \([0-9]\+\).*/\1/p' "$out" | tail -1)
  if [[ -z $errors ]]; then
    echo "broken: pan gave no count of errors: $(tail -1 "$out")"
  elif ((errors > 0)); then
    if grep -q 'assertion violated' "$out"; then
      echo "wrong: $(sed -n 's/^pan:1: assertion violated *\(.*\) (at depth.*/\1/p' "$out" | head -1)"
    else
      echo "broken: $(grep -m1 '^pan:1:' "$out")"
    fi
  elif grep -qiE 'search depth too small|out of memory|search not completed|truncated' "$out"; then
    echo "broken: the search was cut short"
  elif grep -E '\.pml:[0-9]+, state [0-9]+, ' "$out" | grep -qv -- '"-end-"'; then
    echo "broken: never ran: $(grep -E '\.pml:[0-9]+, state' "$out" | grep -v -- '"-end-"' | head -1)"
  else
    echo "right"
  fi
}

# Runs one variant in a directory of its own; writes its line to $dir/line and "ok" to $dir/ok.
check() {  # dir model variant
  local dir=$1 model=$2 variant=$3 define=() expected=wrong found states start=$SECONDS optimise=-O0
  mkdir "$dir"
  cd "$dir"
  if [[ $variant == - ]]; then expected=right optimise=-O2; else define=("-D$variant"); fi
  if ! spin -a "${define[@]}" "$here/$model.pml" > build.txt 2>&1 ||
     ! cc -w "$optimise" -DSAFETY -DCOLLAPSE "-DMEMLIM=$memory_mb" -o pan pan.c >> build.txt 2>&1; then
    found="broken: does not build: $(head -1 build.txt)"
  else
    local rc=0
    timeout "$limit_s" ./pan "-m$depth" "-w$hash_bits" > out.txt 2>&1 || rc=$?
    if ((rc == 124)); then found="broken: not done in $limit_s s"; else found=$(verdict out.txt); fi
  fi
  states=$(sed -n 's/^ *\([0-9.e+]\+\) states, stored.*/\1/p' out.txt 2> /dev/null | tail -1 || true)
  printf '%-8s %-19s expected %-6s found %s, %s states, %d s\n' "$model" "$variant" "$expected" \
    "$found" "${states:-0}" "$((SECONDS - start))" > line
  if [[ $found == "$expected"* ]]; then touch ok; fi
}

main() {
  local jobs=2 option
  while getopts j: option; do
    case $option in
      j) jobs=$OPTARG ;;
      *) echo "usage: run_models.sh [-j JOBS]" >&2; exit 2 ;;
    esac
  done
  if [[ ! $jobs =~ ^[1-9][0-9]*$ ]]; then
    echo "run_models.sh: -j takes a number above 0" >&2
    exit 2
  fi
  local tool
  for tool in spin cc; do
    if ! command -v "$tool" > /dev/null; then
      echo "run_models.sh: $tool is not installed; the models are not checked"
      exit 77
    fi
  done

  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  local i running=0
  for i in "${!variants[@]}"; do
    if ((running == jobs)); then
      wait -n
      running=$((running - 1))
    fi
    # shellcheck disable=SC2086  # two words
    check "$work/$i" ${variants[$i]} &
    running=$((running + 1))
  done
  wait

  local failed=0
  for i in "${!variants[@]}"; do
    cat "$work/$i/line" || echo "${variants[$i]}: did not run"
    if [[ ! -e $work/$i/ok ]]; then failed=$((failed + 1)); fi
  done
  if ((failed > 0)); then
    echo "$failed of ${#variants[@]} variants are not as expected"
    exit 1
  fi
  echo "all ${#variants[@]} variants as expected"
}

main "$@"
