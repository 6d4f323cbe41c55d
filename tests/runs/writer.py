"""Processes that write to a cache at once: FOLDER WRITERS. A fork is quicker than an interpreter.

20 times, all at once write a take of the same key, each of other audio. Prints a line for every take once it is kept: its
repeat and digest.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from voicelab.call import Call
from voicelab.clip import Take, Timing
from voicelab.runs.cache import Cache
from voicelab.schema import TTSRequest

REQUEST = TTSRequest(text="Hello", format="pcm")


def put(cache: Cache, number: int) -> None:
    # Random, and the same for nobody else.
    audio = random.Random(f"{os.getpid()} {number}").randbytes(16_000)
    timing = Timing(0.1, 0.2, ((0.1, len(audio)),))
    take = cache.put(Take(Call(REQUEST, "s1"), audio, timing, "writer", "f", repeat=number))
    # One call of write(2): lines of several processes never mix.
    os.write(1, f"{number} {take.digest}\n".encode())


def same(folder: Path, writers: int) -> int:
    begin, go = os.pipe()
    children = []
    for _ in range(writers):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(begin, 1)  # until the parent closes it for all
            for number in range(20):
                time.sleep(0.02 - time.time() % 0.02)  # all of them at the same tick
                put(Cache(folder), number)
            os._exit(0)
        children.append(child)
    os.close(go)
    return sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(same(Path(sys.argv[1]), int(sys.argv[2])))
