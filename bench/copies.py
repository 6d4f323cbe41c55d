"""Copies of the teacher: what each stage of a codec in training leaves of an utterance (`copy:ROW:VOICE`).

teacher     the teacher, trimmed and at one level
vocoder     WORLD's measures through the engine's vocoder
codec       the trained codec without quantization
codes       through codes

The codec is the run in the folder that VOICELAB_BENCH_NATURAL names (`python -m training`, stage codec), its decoder the
polished one where there is one.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import teaching
from numpy.typing import NDArray

__all__ = ["ROWS", "copy"]

ROWS = ("teacher", "vocoder", "codec", "codes")
FOLDER = "VOICELAB_BENCH_NATURAL"


@lru_cache(maxsize=64)
def _speech(voice: str, text: str) -> Any:
    """The teacher's utterance, measured."""
    rendering = teaching.rendered(((voice, 1.0),), text)
    return teaching.training("crops").speech_of(rendering, teaching.training("world").measure(rendering))


@lru_cache(maxsize=1)
def _codec() -> Any:
    folder = Path(os.environ[FOLDER])
    return teaching.training("polish").polished(
        folder, teaching.training("codec").load(folder / "codec-run.safetensors")
    )


def _vocoded(speech: Any) -> Any:
    """(1, samples) of what WORLD measured."""
    import torch

    from voicelab.engine.pointer.codec import LAG, Filters, Vocoder

    crops = teaching.training("crops")
    envelope, voicing, f0 = (part[None] for part in crops.Targets()(speech, 0, speech.frames))
    odds = torch.logit(voicing.clamp(1e-5, 1 - 1e-5))
    filters = Filters(teaching.training("codec").bridged(f0), envelope, odds)
    vocoder = Vocoder(crops.RATE, crops.CONFIG.filter_bands)
    return vocoder(filters.f0, filters.harmonic, filters.noise)[0][:, LAG:]


def copy(row: str, voice: str, text: str) -> tuple[NDArray[np.float32], int]:
    """Speak as the stage `row` leaves `voice`."""
    import torch

    from voicelab.engine.pointer.codec import LAG

    speech, rate = _speech(voice, text), teaching.training("crops").CONFIG.sample_rate
    clean = speech.samples.astype(np.float32) / 32768
    if row == "teacher":
        return clean, rate
    if row not in ROWS:
        raise SystemExit(f"unknown copy {row!r}; the rows are {', '.join(ROWS)}")
    with torch.inference_mode():
        if row == "vocoder":
            return _vocoded(speech)[0].numpy(), rate
        codec = _codec()
        latents = codec.latents(torch.from_numpy(clean)[None])
        if row == "codes":
            latents = codec.quantizer.decode(codec.quantizer.encode(latents))
        return codec.decoder(latents)[0][0, LAG:].numpy(), rate
