# SPDX-License-Identifier: Apache-2.0
"""Agentic sessions for small models: the sharing of a real trace, at a size that two cores can bear.

A session of the trace is a row of requests, each a longer prompt of which the most was there before.
Prompts are scaled by taking every `stride`-th of their blocks: what two prompts share, they share
still. A block becomes as many tokens as a KV block of the engine, drawn from its number. Outputs are
scaled as prompts are, to one token at least.
"""

import gzip
import json
import random
from dataclasses import dataclass

BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Request:
    id: str
    model: int
    session: int        # of all models, so that block ids are unique
    index: int          # in the session; the one before must be done
    blocks: tuple       # ids of the prompt's blocks, in prefix order
    prompt: tuple       # tokens: those of the blocks, and one more that is always computed
    output: int         # tokens to generate


def _expand(runs):
    return [block for first, count in runs for block in range(first, first + count)]


def _tokens(block, vocab):
    draw = random.Random(block)
    return [draw.randrange(3, vocab) for _ in range(BLOCK_TOKENS)]


def _session(record, number, stride, most_blocks, requests):
    """The first requests of a session as (blocks, output tokens); None if it has too few."""
    out = []
    for _, _, output, runs, thread, _ in record["requests"]:
        if thread != 0:
            continue
        blocks = _expand(runs)[::stride]
        if not 2 <= len(blocks) <= most_blocks:
            return None
        scale = record["block_size"] * stride / BLOCK_TOKENS
        out.append((tuple(number * 1_000_000 + b for b in blocks), max(1, round(output / scale))))
        if len(out) == requests:
            return out
    return None


def make(trace, seed, models, sessions, requests, vocab, context, stride):
    """Requests in the order of a round robin over sessions: [Request]. ValueError: the trace has too few."""
    most_blocks = (context - 16) // BLOCK_TOKENS
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    random.Random(seed).shuffle(records)
    rows = []
    for record in records:
        if len(rows) == models * sessions:
            break
        row = _session(record, len(rows) + 1, stride, most_blocks, requests)
        if row is not None:
            rows.append(row)
    if len(rows) < models * sessions:
        raise ValueError(f"only {len(rows)} sessions of {requests} requests fit a context of {context} "
                         "tokens; take a larger --stride")
    out = []
    for index in range(requests):
        for session, row in enumerate(rows):
            blocks, output = row[index]
            prompt = [token for block in blocks for token in _tokens(block, vocab)]
            prompt.append(3 + (session * 7 + index) % (vocab - 3))
            out.append(Request(f"{session}.{index}", session % models, session, index, blocks,
                               tuple(prompt), output))
    return out


def write_trace(requests, path):
    """The same as a trace that `hmmctl replay` reads."""
    with open(path, "w", encoding="utf-8") as out:
        for at, request in enumerate(requests):
            out.write(json.dumps({"timestamp": at, "input_length": len(request.prompt),
                                  "output_length": request.output,
                                  "hash_ids": list(request.blocks)}) + "\n")
