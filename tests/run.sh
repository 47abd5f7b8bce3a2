#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and tests everything: tests/run.sh, or only the stages named: tests/run.sh lint dev.
# Stages: lint, dev, asan, tsan, release; and, only when named, fuzz. Build trees lie in
# build/<preset>; BUILD_ROOT puts them elsewhere. The first failure ends the run. Last line: "N passed,
# N failed", over all CTest runs (a stage that fails without CTest counts as one failure).
set -euo pipefail
cd "$(dirname "$0")/.."

build_root=${BUILD_ROOT:-build}
jobs=$(nproc)
results=$(mktemp -d)
stage=setup

say() { printf '\n== %s\n' "$*"; }

# Sums the JUnit files that CTest wrote: "passed failed". A test that CTest could not run is an error
# of the suite and counts as failed.
count() {
  /usr/bin/python3 -B - "$results" <<'PY'
import pathlib, sys, xml.etree.ElementTree as xml
passed = failed = 0
for path in pathlib.Path(sys.argv[1]).glob("*.xml"):
    for case in xml.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        passed += status == "run"
        failed += status not in ("run", "disabled", "notrun") or (
            status == "notrun" and case.find("skipped") is None)
print(passed, failed)
PY
}

finish() {
  local status=$? passed=0 failed=0
  read -r passed failed < <(count || echo 0 0)
  if [ "$status" -ne 0 ]; then
    if [ "$failed" -eq 0 ]; then failed=1; fi
    say "stage $stage failed"
  fi
  rm -rf "$results"
  printf '%d passed, %d failed\n' "$passed" "$failed"
}
trap finish EXIT

configure() {  # preset
  cmake --preset "$1" -B "$build_root/$1" >"$results/configure.log" 2>&1 ||
    { cat "$results/configure.log"; return 1; }
}

build() {  # preset target...
  cmake --build "$build_root/$1" -j "$jobs" --target "${@:2}"
}

run_tests() {  # preset, then how ctest is to choose
  local preset=$1 runner=()
  shift
  # ThreadSanitizer wants a memory layout that a kernel may randomise too far for it.
  if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
    runner=(setarch "$(uname -m)" -R)
  fi
  "${runner[@]}" ctest --test-dir "$build_root/$preset" -j "$jobs" --timeout 300 \
    --output-on-failure --no-tests=error --output-junit "$results/$stage-$RANDOM.xml" "$@"
}

# The tree's shape, before anything dear is built. lint_headers compiles in the dev tree.
stage_lint() {
  configure dev
  run_tests dev -L '^lint$'
}

stage_dev() {
  configure dev
  build dev all
  run_tests dev -LE '^lint$'
}

# Under the sanitizers the core, the daemon's services and process, and the client library, the last
# against a daemon that is sanitized too. Not there: models, hmmctl's verbs and the planner's processes,
# whose code the unit tests run, and what is made of kills and floods (cases, torture), whose victims
# would spend their time in the sanitizer.
client_tests=(client_test client_failure_test client_later_test daemon_process_test kv_batch_test
              kv_cache_test regions_property_test regions_test)
client_peers=(client_holder daemon_peer region_holder)
client_tests_regex="^($(IFS='|'; echo "${client_tests[*]}"))\$"

stage_asan() {
  configure asan
  build asan hmm_tests_core hmmd "${client_peers[@]}" "${client_tests[@]}"
  run_tests asan -L '^(unit|conformance|property|rpc|fuzz)$'
  run_tests asan -R "$client_tests_regex"
}

stage_tsan() {
  configure tsan
  build tsan hmm_tests_core hmmd "${client_peers[@]}" "${client_tests[@]}"
  run_tests tsan -L '^(unit|conformance|property|rpc)$'
  run_tests tsan -R "$client_tests_regex"
}

# Whatever reads what comes from outside: its seeds, what once broke it, and some seconds of new inputs.
# (The asan stage runs the same targets on seeds, crashers and a fixed number of inputs made of them.)
stage_fuzz() {
  command -v clang++-14 >/dev/null || {
    echo "run.sh: fuzz needs clang: apt-get install clang-14 libclang-rt-14-dev" >&2
    return 1
  }
  configure fuzz
  build fuzz hmm_tests_fuzz
  run_tests fuzz -L '^fuzz$'
}

# What users get: built as they would, installed, and run as a daemon.
stage_release() {
  configure release
  build release hmm_tests_install hmm_tests_e2e
  run_tests release -L '^(install|e2e)$'
}

stages=("$@")
[ "${#stages[@]}" -gt 0 ] || stages=(lint dev asan tsan release)
for stage in "${stages[@]}"; do
  case $stage in
    lint | dev | asan | tsan | fuzz | release) ;;
    *) echo "run.sh: no stage $stage (lint, dev, asan, tsan, fuzz, release)" >&2; exit 2 ;;
  esac
done

stage=dependencies
if command -v dpkg-query >/dev/null; then deploy/install-deps.sh --pages; fi

times=()
for stage in "${stages[@]}"; do
  say "stage $stage"
  SECONDS=0
  "stage_$stage"
  times+=("$stage ${SECONDS}s")
  say "stage $stage passed in $SECONDS s"
done
stage=end
printf '\nstages: %s\n' "$(IFS=,; echo "${times[*]}")"
