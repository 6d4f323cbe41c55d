"""From reference audio to a speaker: decode, level, encode, and keep the statistics of the codec's latents."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voicelab.audio.samples import resample
from voicelab.audio.sandbox import decode_apart
from voicelab.engine.channel import Band, telephone
from voicelab.engine.codec import Codec
from voicelab.engine.latest import Latest
from voicelab.engine.likeness import doubts, kept
from voicelab.engine.lm import speaker_statistics
from voicelab.errors import AudioError, RequestInvalid
from voicelab.schema import ReferenceAudio

LEVEL = 0.07
"""RMS of the speech that the codec was trained on."""
SHORTEST = 0.5
"""Seconds of sound below which a reference says nothing about a speaker."""
_SILENT = 0.01
_MARGIN = 0.15
_REMEMBERED = 32


@dataclass(frozen=True)
class Speaker:
    """Who is to speak, as recordings tell it."""

    statistics: Tensor
    """(STATISTICS * latent,), on the CPU: see lm.speaker_statistics."""
    band: Band | None = None
    """What was left of the speech, where all of it came over a telephone."""


@dataclass(frozen=True)
class Heard:
    """What the codec made of a reference."""

    latents: Tensor
    """(n, latent), quantized."""
    band: Band | None
    """See channel.telephone."""
    doubts: tuple[str, ...]
    """See likeness.doubts."""


class References:
    """Makes speakers of references, and remembers the latest: a voice used again costs no encoding."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._heard: Latest[Heard] = Latest(_REMEMBERED)

    def speaker(self, references: Sequence[ReferenceAudio]) -> Speaker:
        """Who speaks in all references together, in whatever order.

        Raises:
            RequestInvalid: a reference is no audio, or holds no sound; the field is named with its position.
        """
        every = zip(references, self._all(references), strict=True)
        ordered = sorted(every, key=lambda pair: hashlib.sha256(pair[0].audio).digest())
        statistics = speaker_statistics(torch.cat([heard.latents for _, heard in ordered]))
        bands = [heard.band for _, heard in ordered]
        narrow = [band for band in bands if band is not None]
        if len(narrow) < len(bands):
            return Speaker(statistics)
        return Speaker(statistics, Band(min(band.low for band in narrow), max(band.high for band in narrow)))

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """What a listener should know of references that the voice cannot follow well, in sentences. Raises as `speaker`."""
        return tuple(
            f"reference {i + 1}: {doubt}" for i, heard in enumerate(self._all(references)) for doubt in heard.doubts
        )

    def _all(self, references: Sequence[ReferenceAudio]) -> list[Heard]:
        found = []
        for i, reference in enumerate(references):
            try:
                found.append(self._of(reference.audio))
            except AudioError as error:
                raise RequestInvalid.of(f"references.{i}.audio", str(error)) from error
        return found

    def _of(self, audio: bytes) -> Heard:
        return self._heard.get(hashlib.sha256(audio).hexdigest(), lambda: self._encode(audio))

    def _encode(self, audio: bytes) -> Heard:
        rate = self._codec.config.sample_rate
        samples = level(resample(*decode_apart(audio), rate), rate)  # it may come from anybody
        latents, held = hear(self._codec, samples)
        band = telephone(samples, rate)
        return Heard(held, band, doubts(samples.size / rate, kept(latents, held), narrow=band is not None))


def hear(codec: Codec, samples: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
    """Speech at the codec's rate and `LEVEL` → its latents (n, latent) and what the codes hold of them, on the CPU."""
    device = codec.decoder.leave.weight.device
    latents = codec.latents(torch.from_numpy(samples).to(device)[None])
    held = codec.quantizer.decode(codec.quantizer.encode(latents))
    return latents[0].cpu(), held[0].cpu()


def level(samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Speech without the silence around it, at the level the codec knows.

    Raises:
        AudioError: there is no sound in it, or less than `SHORTEST` seconds.
    """
    samples = samples - samples.mean(dtype=np.float64).astype(np.float32) if samples.size else samples
    peak = float(np.abs(samples).max(initial=0.0))
    if peak < 1e-3:
        raise AudioError("the reference is silent")
    loud = np.flatnonzero(np.abs(samples) > peak * 0.05)
    if loud[-1] + 1 - loud[0] < int(SHORTEST * rate):
        raise AudioError(f"the reference has less than {SHORTEST} s of sound")
    margin = int(_MARGIN * rate)
    samples = samples[max(0, loud[0] - margin) : loud[-1] + margin]
    active = samples[np.abs(samples) > max(_SILENT * peak, 1e-4)]
    rms = float(np.sqrt(np.mean(np.square(active))))
    levelled: NDArray[np.float32] = np.clip(samples * (LEVEL / rms), -1.0, 1.0).astype(np.float32)
    return levelled
