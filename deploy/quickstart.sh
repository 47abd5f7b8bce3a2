#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh Debian 12 to a real model and a real trace served: installs what is missing, builds,
# starts a private hmmd with tiers of a few KiB in which a small language model writes a story, its
# KV cache in all three; then one with small emulated tiers that replays the first 1,000 requests of a
# chat service's trace and checks every byte; and stops it all again. Touches no system service and
# leaves no process and no file behind but build/release.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: quickstart.sh [--keep] [--no-build]

  --keep      leave the trace's daemon running at the end and say how to talk to it
  --no-build  use build/release as it is
EOF
}

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'quickstart: %s\n' "$*" >&2
  exit 1
}

keep=no
build=yes
for argument in "$@"; do
  case $argument in
    --keep) keep=yes ;;
    --no-build) build=no ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

root=$(cd "$(dirname "$(realpath "$0")")/.." && pwd)
bin=$root/build/release
trace=$root/tests/data/traces/mooncake_conversation.jsonl.gz
model=$root/tests/data/llm
thp=/sys/kernel/mm/transparent_hugepage/shmem_enabled
work=
daemon=
sampler=
thp_was=
finished=no

# On any exit: the daemon, its directory and the kernel's setting go back to how they were.
clean_up() {
  local code=$?
  trap - EXIT
  if [ "$keep" = yes ] && [ "$finished" = yes ]; then exit "$code"; fi
  if [ -n "$sampler" ]; then kill "$sampler" 2>/dev/null || true; fi
  if [ -n "$daemon" ]; then
    kill -TERM "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  if [ -n "$thp_was" ]; then
    printf '%s' "$thp_was" 2>/dev/null >"$thp" && say "$thp is $thp_was again"
  fi
  if [ -n "$work" ]; then
    if [ "$code" -ne 0 ] && [ -s "$work/hmmd.log" ]; then
      printf '\nThe last words of hmmd:\n' >&2
      tail -n 20 "$work/hmmd.log" >&2
    fi
    rm -rf "$work"
  fi
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ "$build" = yes ]; then
  say 'Installing what is missing'
  "$root/deploy/install-deps.sh"
  say "Building into $bin"
  (cd "$root" && cmake --preset release >/dev/null &&
    cmake --build --preset release --target hmmd hmmctl hmm_client_shared hmm-llm)
fi
hmmd=$bin/daemon/hmmd
hmmctl=$bin/client/ctl/hmmctl
llm=$bin/client/examples/llm/hmm-llm
if [ ! -x "$hmmd" ] || [ ! -x "$hmmctl" ] || [ ! -x "$llm" ]; then
  fail "$bin has no hmmd, hmmctl and hmm-llm; run without --no-build"
fi

# Huge pages make the copies faster; everything works without them too.
if [ "$(id -u)" -eq 0 ] && grep -qs '\[never\]' "$thp"; then
  if printf advise 2>/dev/null >"$thp"; then
    thp_was=never
    say "$thp was never; advise while the daemon runs"
  else
    say "$thp is never and may not be changed here; going on with small pages"
  fi
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/hmm-quickstart.XXXXXX")

# start_daemon CONFIG DIR: as $daemon, which answers on DIR.
start_daemon() {
  export HMM_DIR=$2
  "$hmmd" --config "$1" --dir "$HMM_DIR" 2>"$work/hmmd.log" &
  daemon=$!
  for _ in $(seq 300); do
    if "$hmmctl" status >/dev/null 2>&1; then break; fi
    kill -0 "$daemon" 2>/dev/null || fail 'hmmd ended while it started'
    sleep 0.1
  done
  "$hmmctl" status >/dev/null || fail 'hmmd does not answer'
  printf 'hmmd, process %s, in %s\n' "$daemon" "$HMM_DIR"
}

# --- the story ------------------------------------------------------------------------------------
# The model's KV cache is 440 KiB by the end: 22 blocks of 16 tokens in 5 layers, of 4 KiB each.
cat >"$work/story.toml" <<EOF
[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "128KiB"
commit_chunk = "64KiB"

[[tier]]
name = "ddr0"
kind = "ddr"
capacity = "192KiB"
commit_chunk = "64KiB"

[[tier]]
name = "flash0"
kind = "flash"
capacity = "16MiB"
EOF
say 'Starting a private daemon: 128 KiB of HBM (emulated), 192 KiB of DDR, 16 MiB of flash'
start_daemon "$work/story.toml" "$work/story"

say 'A model of 260,000 parameters writes a story, its KV cache in all three'
"$hmmctl" events --type occupancy --occupancy 50 -o json >"$work/occupancy.jsonl" 2>/dev/null &
sampler=$!
for _ in $(seq 100); do # its first look
  if [ -s "$work/occupancy.jsonl" ]; then break; fi
  sleep 0.1
done
"$llm" "$model/stories260K.bin" -t "$model/tok512.bin" -p 'Once upon a time' --window 32KiB \
  --stats json 2>"$work/story.json" | tee "$work/story.txt" ||
  fail "the model failed: $(cat "$work/story.json")"
sleep 0.2 # the sampler's last look
kill "$sampler" 2>/dev/null || true
wait "$sampler" 2>/dev/null || true
sampler=
say 'Bytes in each tier, meanwhile'
python3 "$root/client/examples/llm/occupancy.py" "$work/occupancy.jsonl"
"$llm" "$model/stories260K.bin" -t "$model/tok512.bin" -p 'Once upon a time' --kv local \
  --stats none >"$work/plain.txt" || fail 'the model failed without a daemon'
cmp -s "$work/story.txt" "$work/plain.txt" || fail 'the story is not the one of plain memory'
kill -TERM "$daemon"
wait "$daemon" || fail 'hmmd did not stop as it should'
daemon=

# --- the trace ------------------------------------------------------------------------------------
# Room for 1,024, 4,000 and 16,000 blocks of 64 KiB.
cat >"$work/hmmd.toml" <<EOF
[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "64MiB"
commit_chunk = "2MiB"

[[tier]]
name = "ddr0"
kind = "ddr"
capacity = "250MiB"
commit_chunk = "2MiB"

[[tier]]
name = "flash0"
kind = "flash"
capacity = "1000MiB"
EOF

say 'Starting a private daemon'
start_daemon "$work/hmmd.toml" "$work/run"

say 'hmmctl status, before'
"$hmmctl" status
say 'hmmctl tier list, before'
"$hmmctl" tier list

say "hmmctl replay $(basename "$trace") --requests 1000"
"$hmmctl" replay "$trace" --requests 1000 --report "$work/replay.json" || fail 'the replay failed'

say 'hmmctl status, after'
"$hmmctl" status
say 'hmmctl tier list, after'
"$hmmctl" tier list

say 'What they show'
python3 - "$work/replay.json" "$work/story.json" <<'EOF' || fail 'the runs are not as they should be'
import json, sys

story = json.load(open(sys.argv[2]))
hits = story["hits"]
print(f"the story: {story['tokens']} tokens, {story['tokens_per_s']:.0f} a second, to the byte those of "
      f"plain memory;\n  KV tensors read from HBM {hits['hbm']}, DDR {hits['ddr']}, flash "
      f"{hits['flash']}; {story['moved_bytes'] / 2**20:.1f} MiB brought up")
if not all(hits.values()):
    sys.exit("a tier served nothing to the model")
print("the trace:")
report = json.load(open(sys.argv[1]))
accesses, hits = report["accesses"], report["hits"]
good = report["wrong_bytes"] == 0 and report["errors"] == 0
for tier, name in (("hbm", "emulated HBM"), ("ddr", "DDR"), ("flash", "flash")):
    share = hits[tier] / accesses
    good = good and share >= 0.01
    print(f"{name:13} served {hits[tier]:5} of {accesses} blocks ({share:.1%})"
          + ("" if share >= 0.01 else "  <- less than 1%"))
print(f"{report['verified_bytes'] / 2**20:.0f} MiB read back and compared, "
      f"{report['wrong_bytes']} bytes wrong, {report['errors']} errors, "
      f"{report['seconds']:.1f} s")
sys.exit(0 if good else 1)
EOF

finished=yes
if [ "$keep" = yes ]; then
  disown "$daemon"
  say 'The daemon keeps running'
  cat <<EOF
talk to it   export HMM_DIR=$HMM_DIR
             $hmmctl status
             $hmmctl stat 1
stop it      kill $daemon && rm -rf $work
its log      $work/hmmd.log
EOF
  if [ -n "$thp_was" ]; then echo "undo         echo $thp_was >$thp"; fi
fi
