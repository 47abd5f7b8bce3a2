#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four engines of two models replay sessions of coding agents: with a private cache in each process,
and with one memory for all. Same binary, same bytes, same requests.

Printed before the run: what `hmmctl replay --forecast` and a short calibration expect. After it:
requests a minute, time to first token, forecast error, SHA-256 of all outputs. Half-way one engine is
killed with SIGKILL and restarted; at the end each engine puts a session to sleep and goes on with it.

    fleet.py --build build/release --bar 1.5

Exit status: 0 all as it should be, 1 not (outputs differ, the forecast is off by more than 10%,
weights were loaded twice, something leaked, or --bar is missed).
"""

import argparse
import hashlib
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import engines
import workload

ROOT = Path(__file__).resolve().parents[3]
FORECAST_BAR = 0.10
NAP_TOKENS = 4

# The parts of the KV memory of the whole fleet.
TIER_SHARES = {"hbm": 0.15, "ddr": 0.45, "flash": 0.4}
HIGH, LOW = 0.95, 0.92
KV_MIN = 16 * 2**20  # of which the smallest part is the 2 MiB that a tier has at least

PROGRAMS = {"hmmd": "daemon/hmmd", "hmmctl": "client/ctl/hmmctl",
            "hmm-llm": "client/examples/llm/hmm-llm"}


def positive(text):
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def share(text):
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 100:  # nor NaN
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0, 100 at most")
    return number


def ratio(text):
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < math.inf:  # nor NaN
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0")
    return number


def shape_of(text):
    names = ("layers", "dim", "heads", "kv_heads", "vocab", "context")
    words = text.split(",")
    if len(words) != len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not {','.join(names)}")
    shape = dict(zip(names, map(positive, words)))
    if shape["vocab"] < 4:
        raise argparse.ArgumentTypeError(f"vocab is {shape['vocab']}: 0 to 2 are no words")
    return shape


def existing(text):
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"no such file or directory: {text}")
    return Path(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=existing, default=ROOT / "build/release")
    parser.add_argument("--trace", type=existing,
                        default=ROOT / "tests/data/traces/agentic_739_rle.jsonl.gz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=shape_of, default="12,512,8,4,32000,2048",
                        help="layers,dim,heads,kv_heads,vocab,context of both (51 million parameters)")
    parser.add_argument("--engines", type=positive, default=2, help="of each model")
    parser.add_argument("--sessions", type=positive, default=10, help="of each model")
    parser.add_argument("--requests", type=positive, default=14, help="of each session")
    parser.add_argument("--stride", type=positive, default=40, help="one of so many blocks of the trace")
    parser.add_argument("--kv-share", type=share, default=1.6,
                        help="KV memory of the whole fleet, as a share of what all blocks would take")
    parser.add_argument("--bar", type=ratio, default=0.0,
                        help="least ratio of requests a minute to the baseline's")
    args = parser.parse_args()
    for program in PROGRAMS.values():
        if not (args.build / program).exists():
            parser.error(f"argument --build: no {args.build / program}; build hmmd, hmmctl and hmm-llm")
    return args


class BadArguments(Exception):
    """Found only when they are used."""


class Fleet:
    """What both runs need: binaries, models, requests, sizes."""

    def __init__(self, args, work):
        self.args, self.work = args, work
        self.hmmd, self.hmmctl, self.llm = (args.build / program for program in PROGRAMS.values())
        shape = args.model
        token = 2 * 4 * (shape["dim"] // shape["heads"]) * shape["kv_heads"] * shape["layers"]
        self.block_bytes = token * workload.BLOCK_TOKENS
        try:
            self.requests = workload.make(args.trace, args.seed, 2, args.sessions, args.requests,
                                          shape["vocab"], shape["context"], args.stride)
        except (OSError, ValueError, KeyError) as error:
            raise BadArguments(f"--trace {args.trace}: {error}") from error
        self.accesses = sum(len(r.blocks) for r in self.requests)
        unique = len({b for r in self.requests for b in r.blocks})
        self.kv_bytes = max(int(unique * args.kv_share) * self.block_bytes, KV_MIN)
        self.models = [work / f"model{n}.bin" for n in (1, 2)]
        self.unique = unique

    def make_models(self):
        spec = ",".join(map(str, self.args.model.values()))
        for number, path in enumerate(self.models, 1):
            made = subprocess.run([self.llm, path, "--make-model", spec, "--seed", str(number)],
                                  check=False, stderr=subprocess.PIPE)
            if made.returncode != 0:
                raise BadArguments(made.stderr.decode(errors="replace").strip())

    def commands(self, options):
        return {(model, n): [str(self.llm), str(path), "--serve", "--stats", "none", *options]
                for model, path in enumerate(self.models) for n in range(self.args.engines)}

    def tiers(self):
        """{kind: bytes}. As many in all as the private caches have; the weights, which those map from
        their files, lie in DDR."""
        sizes = {kind: int(self.kv_bytes * share) for kind, share in TIER_SHARES.items()}
        sizes["ddr"] += sum(path.stat().st_size for path in self.models)
        return sizes

    def kv_blocks(self):
        """Blocks that stay in each tier: up to its low mark, less what it keeps free to exchange its
        largest tensor (at most an eighth), less the weights."""
        shape, sizes = self.args.model, self.tiers()
        largest = (shape["vocab"] + 1) * shape["dim"] * 4
        free = {"hbm": 0, "ddr": min(largest, sizes["ddr"] // 8), "flash": 0}
        taken = {"hbm": 0, "ddr": sum(path.stat().st_size for path in self.models), "flash": 0}
        return [max(1, int(min(size * LOW, size - free[kind]) - taken[kind]) // self.block_bytes)
                for kind, size in sizes.items()]

    def forecast(self):
        trace = self.work / "fleet.jsonl"
        workload.write_trace(self.requests, trace)
        out = subprocess.run(
            [self.hmmctl, "replay", trace, "--forecast", ",".join(map(str, self.kv_blocks())),
             "-o", "json"], check=True, stdout=subprocess.PIPE)
        return json.loads(out.stdout)


class Daemon:
    def __init__(self, fleet):
        config = fleet.work / "hmmd.toml"
        with open(config, "w", encoding="utf-8") as out:
            for kind, size in fleet.tiers().items():
                out.write(f'[[tier]]\nname = "{kind}0"\nkind = "{kind}"\n'
                          f'capacity = "{size // 1024}KiB"\nhigh = {HIGH}\nlow = {LOW}\n')
                if kind == "hbm":
                    out.write("emulated = true\n")
        self.dir, self.fleet = fleet.work / "run", fleet
        self.log = open(fleet.work / "hmmd.log", "wb")
        self.process = subprocess.Popen([fleet.hmmd, "--config", config, "--dir", self.dir],
                                        stderr=self.log)
        try:
            for _ in range(600):
                if self.ctl("status", "-o", "json", check=False).returncode == 0:
                    return
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise
        self.stop()
        raise engines.Failed("hmmd did not start:\n" + (fleet.work / "hmmd.log").read_text())

    def ctl(self, *words, check=True):
        return subprocess.run([self.fleet.hmmctl, "--dir", self.dir, *words], check=check,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def leaks(self):
        """What is left of the engines once all have ended: but for sealed tensors, nothing may be."""
        for _ in range(100):
            status = json.loads(self.ctl("status", "-o", "json").stdout)
            left = {name: int(status[name]) for name in ("sessions", "pins") if int(status[name])}
            for tier in status["tiers"]:
                left.update({f"{tier['name']}.{state}": int(tier[state])
                             for state in ("creating_bytes", "moving_bytes", "reserved_bytes")
                             if int(tier[state])})
            if not left:
                return {}
            time.sleep(0.1)
        return left

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.log.close()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def digest(result):
    text = json.dumps([[key, result.answers[key]["tokens"]] for key in sorted(result.answers)])
    return hashlib.sha256(text.encode()).hexdigest()


def hit_rate(result, accesses):
    blocks = sum(a["skipped"] // workload.BLOCK_TOKENS for a in result.answers.values())
    return blocks / accesses


def mean(values):
    return sum(values) / len(values)


def forecast_verdict(expected, found):
    """(what came of the forecast in words, whether that is good), of shares of blocks found."""
    if expected == 0:
        error = 0 if found == 0 else 1
        words = f"forecast of no blocks found off by {error:.0%}: {found:.1%} were"
    else:
        error = abs(found - expected) / expected
        words = f"forecast off by {error:.1%} in blocks found"
    return words, error <= FORECAST_BAR


def loaded_twice(result):
    """Starts that loaded weights although somebody had: only the first of each model may."""
    seen, again = set(), []
    for name, _, loaded in result.starts:
        model = name.split()[-1]
        if loaded and model in seen:
            again.append(name)
        seen.add(model)
    return again


def show(title, result, fleet):
    answers = list(result.answers.values())
    ttft = [a["ttft_ms"] for a in answers]
    rate = len(answers) / result.seconds * 60
    computed = sum(a["prompt"] - a["skipped"] for a in answers)
    print(f"{title:10} {rate:7.1f} requests/min   first token p50 {percentile(ttft, 0.5):7.0f} ms  "
          f"p99 {percentile(ttft, 0.99):7.0f} ms   mean {mean(ttft):7.0f} ms   "
          f"blocks found {hit_rate(result, fleet.accesses):5.1%}")
    print(f"           {result.seconds:.1f} s; {computed} prompt tokens computed; waited for tiers "
          f"{mean([a['exposed_wait_ms'] for a in answers]):.1f} ms a request; "
          f"computed again {sum(a['recomputed'] for a in answers)}")
    print(f"           killed in mid-run: {result.killed}; outputs {digest(result)}")
    for name, start_ms, loaded in result.starts:
        how = f"loaded {loaded / 2**20:.0f} MiB" if loaded else "loaded nothing"
        print(f"           {name}: ready after {start_ms:.0f} ms, {how}")
    for nap in result.naps:
        print(f"           sleep: {nap.slept} tokens to flash in {nap.suspend_ms:.1f} ms, {nap.woke} back "
              f"in HBM in {nap.resume_ms:.1f} ms")
    for name in result.awake:
        print(f"           no sleep: {name} served no request since it was started; --requests or "
              "--sessions are too few")
    sys.stdout.flush()
    return rate


def main():
    args = parse()
    # As Ctrl-C: what was started is stopped, and what was written removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    work = Path(tempfile.mkdtemp(prefix="hmm-fleet."))
    try:
        sys.exit(run(Fleet(args, work)))
    except KeyboardInterrupt:
        sys.exit("fleet.py: interrupted")
    except engines.Failed as error:
        sys.exit(f"fleet.py: {error}")
    except BadArguments as error:
        print(f"fleet.py: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def announce(fleet):
    mib = {kind: size / 2**20 for kind, size in fleet.tiers().items()}
    weights = sum(path.stat().st_size for path in fleet.models) / 2**20
    kv, count = fleet.kv_bytes / 2**20, 2 * fleet.args.engines
    print(f"{len(fleet.requests)} requests of {2 * fleet.args.sessions} sessions, "
          f"{fleet.accesses} prompt blocks of {workload.BLOCK_TOKENS} tokens, {fleet.unique} unique "
          f"({fleet.unique * fleet.block_bytes / 2**20:.0f} MiB of KV)")
    print(f"KV memory in all {kv:.0f} MiB: {count} x {kv / count:.0f} private; hmmd has HBM "
          f"{mib['hbm']:.0f}, DDR {mib['ddr']:.0f} with {weights:.0f} of weights, flash {mib['flash']:.0f}")


def run(fleet):
    fleet.make_models()
    private = fleet.commands(["--kv", "local", "--kv-budget",
                              str(fleet.kv_bytes // (2 * fleet.args.engines))])
    announce(fleet)

    # 1. Before: what is to be expected. A request computes what of its prompt is not found, and the
    #    last token.
    forecast = fleet.forecast()
    expected = sum(forecast["hits"]) / forecast["accesses"]
    computed = (fleet.accesses * (1 - expected) * workload.BLOCK_TOKENS) / len(fleet.requests) + 1
    usual = int(mean([len(r.prompt) for r in fleet.requests]))
    costs = engines.run_to_end(engines.calibrate(private, usual, fleet.args.model["vocab"],
                                                 workload.BLOCK_TOKENS))
    ttft_expected = costs.first_token_ms(computed)
    print(f"forecast   blocks found {expected:.1%}; mean time to first token {ttft_expected:.0f} ms, for "
          f"{computed:.0f} tokens computed (calibrated: {costs.warm_tokens} take {costs.warm_ms:.0f} ms, "
          f"{costs.cold_tokens} take {costs.cold_ms:.0f}; a token generated {costs.decode_ms:.1f})")
    sys.stdout.flush()

    # 2. A private cache in each process.
    baseline = engines.run_to_end(engines.run(private, fleet.requests))
    base_rate = show("private", baseline, fleet)

    # 3. One memory for all.
    daemon = Daemon(fleet)
    try:
        shared = engines.run_to_end(engines.run(
            fleet.commands(["--dir", str(daemon.dir), "--offload-weights", "--weight-tier", "ddr0",
                            "--suspend-to", "flash0"]),
            fleet.requests, nap_tokens=NAP_TOKENS))
        rate = show("hmmd", shared, fleet)
        leaks = daemon.leaks()
    finally:
        daemon.stop()

    # 4. After: was it so?
    forecast_words, forecast_good = forecast_verdict(expected, hit_rate(shared, fleet.accesses))
    ttft = mean([a["ttft_ms"] for a in shared.answers.values()])
    verdicts = {
        "outputs identical": digest(baseline) == digest(shared),
        "texts after sleep too" if shared.naps else "texts after sleep too (no engine slept)":
            engines.run_to_end(engines.undisturbed(private, shared.naps)),
        "weights loaded once": not loaded_twice(shared),
        "nothing leaked" if not leaks else f"nothing leaked ({leaks})": not leaks,
        forecast_words: forecast_good,
        f"{rate / base_rate:.2f} times the requests a minute": rate / base_rate >= fleet.args.bar,
    }
    print(f"time to first token was {ttft:.0f} ms in the mean, forecast {ttft_expected:.0f} "
          f"({(ttft_expected - ttft) / ttft:+.0%})")
    for what, good in verdicts.items():
        print(f"{'ok    ' if good else 'MISSED'}     {what}")
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    main()
