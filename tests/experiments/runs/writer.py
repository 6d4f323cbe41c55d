"""Processes that write to a cache at once, or until they are killed. A fork is quicker than an interpreter.

    writer.py same FOLDER WRITERS        20 times, all at once write a take of the same key, each of other audio
    writer.py kill FOLDER ROUNDS SEED    one after another writes takes into FOLDER/<round> until it is killed

Prints a line for every take once it is kept: its round (or process), repeat and digest.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from voicelab.call import Call
from voicelab.clip import Take, Timing
from voicelab.experiments.runs.cache import Cache
from voicelab.schema import TTSRequest

REQUEST = TTSRequest(text="Hello", format="pcm")


def put(cache: Cache, name: int, number: int, repeat: int, size: int = 16_000) -> None:
    # Random, and the same for nobody else.
    audio = random.Random(f"{os.getpid()} {number}").randbytes(size)
    timing = Timing(0.1, 0.2, ((0.1, len(audio)),))
    take = cache.put(Take(Call(REQUEST, "s1"), audio, timing, "writer", "f", repeat=repeat))
    # One call of write(2): lines of several processes never mix.
    os.write(1, f"{name} {repeat} {take.digest}\n".encode())


def same(folder: Path, writers: int) -> int:
    begin, go = os.pipe()
    children = []
    for name in range(writers):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(begin, 1)  # until the parent closes it for all
            for number in range(20):
                time.sleep(0.02 - time.time() % 0.02)  # all of them at the same tick
                put(Cache(folder), name, number, number)
            os._exit(0)
        children.append(child)
    os.close(go)
    return sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


def kill(folder: Path, rounds: int, seed: int) -> int:
    rng = random.Random(seed)
    for name in range(rounds):
        heard, tell = os.pipe()
        child = os.fork()
        if child == 0:
            for number in itertools.count():
                # Large enough for a kill to come in the middle of writing it.
                put(Cache(folder / str(name)), name, number, number, 2_000_000)
                os.write(tell, b".")
        if rng.random() < 0.8:
            os.read(heard, 1)  # on a busy machine the first take may be long in coming
        for end in (heard, tell):
            os.close(end)
        time.sleep(rng.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return 0


if __name__ == "__main__":
    command, where, *numbers = sys.argv[1:]
    called: Callable[..., int] = same if command == "same" else kill
    sys.exit(called(Path(where), *map(int, numbers)))
