"""Makes two voices in the folder named as its argument, and says in the file beside it when the store has each."""

from __future__ import annotations

import sys
from pathlib import Path

from voicelab.schema import VoiceCreate
from voicelab.voices.store import Sample, VoiceStore

root = Path(sys.argv[1])
with VoiceStore(root / "home" / "voices") as store, (root / "told").open("w", buffering=1) as told:
    for title in ("first", "second"):
        samples = (Sample(title.encode() * 3000, "text", "title"), Sample(b"shared" * 1000, "", "title"))
        request = VoiceCreate(title=title, voices=(b"a", b"b"), visibility="private", cover_image=title.encode() * 50)
        voice = store.begin(request, samples, "ann")
        store.train(voice)
        store.finish(voice, "weights", title.encode())
        told.write(f"{title} {voice}\n")
