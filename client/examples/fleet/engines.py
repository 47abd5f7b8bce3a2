# SPDX-License-Identifier: Apache-2.0
"""hmm-llm processes, and a driver that gives each the next request of its model.

Engines of one model take turns as they come free; a session's next request waits for the one before.
Half-way one engine is killed with SIGKILL: its request goes back, and it is started again.
"""

import asyncio
import json
import signal
import time
from dataclasses import dataclass, field

LINE_MAX = 1 << 22


class Failed(Exception):
    """An engine or the daemon did not do as it was asked."""


def run_to_end(work):
    """asyncio.run, but that SIGTERM too cancels `work`, which then ends its engines; KeyboardInterrupt
    after that. Raised wherever the signal comes in, it would leave the loop with engines still in it."""
    async def guarded():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def interrupt(*_):
            loop.call_soon_threadsafe(task.cancel)

        before = {number: signal.signal(number, interrupt)
                  for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return True, await work
        except asyncio.CancelledError:
            return False, None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    whole, value = asyncio.run(guarded())
    if not whole:
        raise KeyboardInterrupt
    return value


async def _together(work):
    """What each of `work` gives. When one fails or all are cancelled, none is left running."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Nap:
    """A whole session put to sleep, woken, and its text gone on with."""
    request: object       # whose text it was
    suspend_ms: float
    resume_ms: float
    slept: int            # tokens whose KV went,
    woke: int             # and came: fewer where the lowest tier was full, the rest is computed again
    tokens: list          # written afterwards


@dataclass
class Result:
    seconds: float = 0.0
    answers: dict = field(default_factory=dict)   # by request id
    starts: list = field(default_factory=list)    # [(engine, start_ms, loaded_bytes)]
    killed: str = ""
    naps: list = field(default_factory=list)      # [Nap]
    awake: list = field(default_factory=list)     # engines that had no session to put to sleep


class Engine:
    """One process."""

    def __init__(self, name, command):
        self.name, self.command, self.process = name, command, None
        self.last, self.killed = None, False

    async def start(self):
        self.last, self.killed = None, False  # no text is open in a new process
        self.process = await asyncio.create_subprocess_exec(
            *self.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=LINE_MAX)
        return await self.answer()

    async def answer(self):
        """The next line; None when the process has ended."""
        line = await self.process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    async def ask(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return None
        return await self.answer()

    async def generate(self, request, more=0):
        words = " ".join(map(str, request.prompt))
        self.last = request
        return await self.ask(f"generate {request.id} {request.output + more} {words}")

    async def nap(self, more):
        """Sleep and waking of the session that is open here."""
        away, back = await self.ask("suspend"), await self.ask("resume")
        on = await self.ask(f"continue {more}")
        for answer in (away, back, on):
            if answer is None or "error" in answer:
                raise Failed(f"{self.name}: asleep and awake again: {answer}")
        return Nap(self.last, away["ms"], back["ms"], away["length"], back["length"], on["tokens"])

    async def stop(self):
        if self.process is None:
            return
        self.process.stdin.close()
        # To its end, so that the pipe is closed when the loop is.
        await self.process.stdout.read()
        await self.process.wait()


class Queue:
    """Requests of one model that may be taken, oldest first."""

    def __init__(self, requests):
        self.left, self.done, self.changed = list(requests), set(), asyncio.Condition()

    async def take(self):
        async with self.changed:
            while self.left:
                for request in self.left:
                    if request.index == 0 or (request.session, request.index - 1) in self.done:
                        self.left.remove(request)
                        return request
                await self.changed.wait()
            return None

    async def settle(self, request, finished):
        async with self.changed:
            if finished:
                self.done.add((request.session, request.index))
            else:
                self.left.insert(0, request)
            self.changed.notify_all()


async def _start(engine, result):
    ready = await engine.start()
    if ready is None:
        raise Failed(f"{engine.name} did not start")
    result.starts.append((engine.name, ready["start_ms"], ready["loaded_bytes"]))


async def _restart(engine, result):
    await engine.process.wait()
    await _start(engine, result)


async def _serve(engine, queue, result, on_done):
    while (request := await queue.take()) is not None:
        answer = await engine.generate(request)
        if answer is None:  # it was killed
            await queue.settle(request, finished=False)
            await _restart(engine, result)
            continue
        if "error" in answer:
            raise Failed(f"{engine.name}: request {request.id}: {answer['error']}")
        result.answers[request.id] = answer
        await queue.settle(request, finished=True)
        on_done()


async def run(commands, requests, nap_tokens=0):
    """commands: {(model, number): command line}. All engines start one after the other. At the end
    each puts its last session to sleep and goes on with it, if it is to write `nap_tokens` then and has
    one: a run with few requests may have none left for an engine once it is started again."""
    result = Result()
    engines = {key: Engine(f"engine {key[1] + 1} of model {key[0] + 1}", command)
               for key, command in commands.items()}
    try:
        for engine in engines.values():
            await _start(engine, result)
        queues = {model: Queue(r for r in requests if r.model == model)
                  for model in {key[0] for key in engines}}
        victim = engines[min(engines)]

        def on_done():
            if not result.killed and len(result.answers) * 2 >= len(requests):
                result.killed, victim.killed = victim.name, True
                victim.process.send_signal(signal.SIGKILL)

        begin = time.monotonic()
        await _together(_serve(engine, queues[key[0]], result, on_done)
                        for key, engine in engines.items())
        result.seconds = time.monotonic() - begin
        if victim.killed:  # when it was idle, and no request came that would have found out
            await _restart(victim, result)
        for engine in engines.values() if nap_tokens else ():
            if engine.last is not None:
                result.naps.append(await engine.nap(nap_tokens))
            else:
                result.awake.append(engine.name)
    finally:
        for engine in engines.values():
            await engine.stop()
    return result


async def undisturbed(commands, naps):
    """True if naps' texts go on as they do in engines that never slept."""
    for key, command in commands.items():
        if key[1] != 0:
            continue
        engine = Engine(f"check of model {key[0] + 1}", command)
        try:
            await engine.start()
            for nap in (n for n in naps if n.request.model == key[0]):
                answer = await engine.generate(nap.request, more=len(nap.tokens))
                if answer["tokens"][nap.request.output:] != nap.tokens:
                    return False
        finally:
            await engine.stop()
    return True


@dataclass
class Costs:
    """Of a request with a prompt of the usual length, all engines at work; medians."""
    cold_tokens: int      # computed when nothing is found
    cold_ms: float
    warm_tokens: int      # when all but the end is found
    warm_ms: float
    decode_ms: float      # a token generated

    def first_token_ms(self, computed):
        """Between the two, on a straight line."""
        slope = (self.cold_ms - self.warm_ms) / (self.cold_tokens - self.warm_tokens)
        return self.warm_ms + (computed - self.warm_tokens) * slope


async def calibrate(commands, prompt_tokens, vocab, block, rounds=2):
    """prompt_tokens: a usual prompt's; several blocks."""
    engines = [Engine(f"calibration {key}", command) for key, command in commands.items()]
    length = prompt_tokens // block * block
    outputs = 5

    async def measure(number, engine):
        try:
            return await measured(number, engine)
        finally:
            await engine.stop()

    async def measured(number, engine):
        rows = []
        await engine.start()
        for at in range(rounds + 1):
            first = 7 * (number * (rounds + 1) + at)
            prompt = [3 + (first + i * 5) % (vocab - 3) for i in range(length + block + 1)]
            cold = await engine.ask(f"generate c {outputs} " + " ".join(map(str, prompt[:length])))
            warm = await engine.ask(f"generate w {outputs} " + " ".join(map(str, prompt)))
            if at > 0:  # the first one is there to read the model
                rows.append((len(prompt[:length]) - cold["skipped"], cold["ttft_ms"],
                             len(prompt) - warm["skipped"], warm["ttft_ms"],
                             (warm["ms"] - warm["ttft_ms"]) / (outputs - 1)))
        return rows

    rows = [row for part in await _together(measure(*item) for item in enumerate(engines))
            for row in part]
    return Costs(*(sorted(column)[len(rows) // 2] for column in zip(*rows)))
