"""Copies of the natural teacher: what each stage of the natural voice's codec leaves of an utterance (`copy:ROW:VOICE`).

teacher     the teacher, trimmed and at one level
vocoder     WORLD's measures through the engine's vocoder
head        the same, refined by the trained head
codec       the trained codec without quantization (`codec+head`: and the head)
codes       through codes (`codes+head`)

The codec and the head are the runs in the folder that VOICELAB_BENCH_NATURAL names: `python -m training`, stages codec
and head.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import systems
from numpy.typing import NDArray

__all__ = ["ROWS", "copy"]

ROWS = ("teacher", "vocoder", "head", "codec", "codec+head", "codes", "codes+head")
FOLDER = "VOICELAB_BENCH_NATURAL"


@lru_cache(maxsize=512)
def _speech(voice: str, text: str) -> Any:
    """The teacher's utterance, measured."""
    natural, world = systems.training("natural"), systems.training("world")
    written = text[0].upper() + text[1:]
    written = text[0].upper() + text[1:]
    request = systems.training("natural_corpus").Request(0, "copy", voice, ((voice, 1.0),), "en", written, 1.0, 0)
    rendering = natural.render_one(systems.natural_teacher(), request)
    return systems.training("natural_codec").speech_of(rendering, world.measure(rendering))


@lru_cache(maxsize=1)
def _codec() -> Any:
    """The codec in training, with its head if there is one."""
    folder = Path(os.environ[FOLDER])
    codec = systems.training("codec").load(folder / "codec-run.safetensors")
    head = folder / "head-run.safetensors"
    return systems.training("source_filter").with_head(codec, head) if head.exists() else codec


def copy(row: str, voice: str, text: str) -> tuple[NDArray[np.float32], int]:
    """Speak as the stage `row` leaves `voice`."""
    import torch

    speech, rate = _speech(voice, text), systems.training("kokoro").RATE
    clean = speech.samples.astype(np.float32) / 32768
    if row == "teacher":
        return clean, rate
    stage, _, refined = row.partition("+")
    with torch.inference_mode():
        if stage in ("vocoder", "head"):
            source_filter, targets = systems.training("source_filter"), systems.training("natural_codec").Targets()
            filters = source_filter.told(*(x[None] for x in targets(speech, 0, speech.frames)))
            extra = _codec().decoder.head(filters)[0] if stage == "head" else None
            made = targets.vocoder(filters.f0, filters.harmonic, filters.noise, refined=extra)[0]
            return made[0, targets.vocoder.lag :].numpy(), rate
        codec = _codec()
        head, codec.decoder.head = codec.decoder.head, codec.decoder.head if refined else None
        latents = codec.latents(torch.from_numpy(clean)[None])
        if stage == "codes":
            latents = codec.quantizer.decode(codec.quantizer.encode(latents))
        made = codec.decoder(latents)[0]
        codec.decoder.head = head
        return made[0, codec.decoder.vocoder.lag :].numpy(), rate
