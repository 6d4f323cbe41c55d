"""Forks makers of voices and kills each after a moment: FOLDER TIMES. Says which voices the store had acknowledged."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time

from voicelab.schema import VoiceCreate
from voicelab.voices.store import Sample, VoiceStore

folder, times = sys.argv[1], int(sys.argv[2])
wait = random.Random(3)


def make(turn: int, told: int) -> None:
    store = VoiceStore(folder, busy_s=30)
    for number in itertools.count():
        name = f"{turn}-{number}"
        voice = store.begin(
            VoiceCreate(title=name, voices=(b"a",), visibility="private"),
            (Sample(name.encode() * 5000, "", ""),),
            "ann",
        )
        store.train(voice)
        store.finish(voice, "weights", name.encode())
        os.write(told, f"{voice} {name}\n".encode())


for turn in range(times):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        make(turn, told)
    os.close(told)
    time.sleep(wait.uniform(0.002, 0.08))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(heard, "rb") as lines:
        sys.stdout.write("".join(line.decode() for line in lines if line.endswith(b"\n")))
