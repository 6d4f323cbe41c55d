"""Makes voices in the folder named as its argument until it is killed, and tells each once the store has it."""

from __future__ import annotations

import itertools
import sys

from voicelab.schema import VoiceCreate
from voicelab.voices.store import Sample, VoiceStore

store = VoiceStore(sys.argv[1])
for number in itertools.count():
    sample = Sample(f"{number}".encode() * 50_000, "text", "title")
    voice = store.begin(VoiceCreate(title=f"{number}", voices=(b"a",), visibility="private"), (sample,), "ann")
    store.train(voice)
    store.finish(voice, "weights", f"{number}".encode())
    sys.stdout.write(f"{voice} {number}\n")
    sys.stdout.flush()
