"""Teaches the encoder alone to hear through what it was not trained with: telephones that cut steeply below 200 to 400 Hz.

What the trained encoder makes of the clean audio is what it is to make of the spoiled, and of the clean, which it shall not
forget. So codes, decoder and language models stay what they are; only references are heard better. It hears the seconds
of every speaker that are kept beside the codes (`kept.clips`).
"""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from training import common, kept
from training.spoil import spoil, telephone
from training.trim import LEVEL
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import CodecConfig

BATCH = 8
FRAMES = 40
"""Code frames of a crop; the audio has one more at either end, for the spectrum's long windows."""
_CLEAN, _TELEPHONE = 0.3, 0.4
"""Shares of the crops that are left as they are, and that come over a steep telephone; the rest is spoiled as by `spoil`."""


def from_opus(data: bytes, rate: int) -> NDArray[np.float32]:
    """(samples,) at `rate` of one clip."""
    with av.open(io.BytesIO(data), "r", format="ogg") as file:
        own = file.streams.audio[0].rate
        parts = [frame.to_ndarray()[0] for frame in file.decode(audio=0)]
    audio: NDArray[np.float32] = soxr.resample(np.concatenate(parts).astype(np.float32), own, rate)
    return audio


class Crops:
    """Clean and spoiled audio beside each other."""

    def __init__(self, clips: Sequence[bytes], config: CodecConfig, seed: int) -> None:
        self.clips, self.config = clips, config
        self.rng = np.random.default_rng(seed)

    def batch(self) -> tuple[Tensor, Tensor]:
        """(clean, spoiled), each (BATCH, samples)."""
        pairs = [self._pair() for _ in range(BATCH)]
        clean, rough = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
        return clean.to(common.DEVICE), rough.to(common.DEVICE)

    def _clean(self) -> NDArray[np.float32]:
        """(samples,) of a crop; silence follows a clip that is too short."""
        rate, size = self.config.sample_rate, (FRAMES + 2) * self.config.hop
        audio = from_opus(self.clips[int(self.rng.integers(len(self.clips)))], rate)
        first = int(self.rng.integers(0, max(1, audio.size - size + 1)))
        cut = audio[first : first + size]
        return np.pad(cut, (0, size - cut.size))

    def _pair(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        rate, clean = self.config.sample_rate, self._clean()
        kind, rough = self.rng.random(), clean
        if kind > 1 - _TELEPHONE:
            rough = telephone(clean, rate, low=float(self.rng.uniform(180, 400)))
            active = rough[np.abs(rough) > 0.01]
            level = np.sqrt(np.mean(np.square(active if active.size > 100 else rough)) + 1e-12)
            rough = np.clip(rough * (LEVEL / level), -1, 1).astype(np.float32)
        elif kind > _CLEAN:
            rough = spoil(clean, rate, seed=int(self.rng.integers(1 << 31)))
        return clean, rough


def train(folder: Path, corpus: Path, codec: Codec, steps: int, minutes: float | None = None, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is in `folder`, for so many `minutes` now; returns the checkpoint.

    It hears the clips of the kept files in `corpus`. `with_encoder` reads what it made.
    """
    torch.manual_seed(seed)
    teacher = copy.deepcopy(codec).to(common.DEVICE).requires_grad_(False)
    encoder = copy.deepcopy(teacher.encoder).requires_grad_(True)
    optimizers = [torch.optim.AdamW(encoder.parameters(), lr=3e-4, betas=(0.9, 0.98))]
    path, about = folder / "listen-run.safetensors", {"seed": seed}
    run = common.Run(path, steps, encoder, optimizers, decay=0.995, warm=50, hold=0.4, about=about, minutes=minutes)
    clips = [clip for _, clip in kept.all_clips(corpus)]
    crops = Crops(clips, codec.config, seed + run.step)
    for _ in run:
        clean, rough = crops.batch()
        with torch.no_grad():
            wanted, seen = teacher.encoder(teacher.spectrum(clean)), teacher.spectrum(rough)
        run.descend((encoder(seen) - wanted).square().mean() / wanted.square().mean())
    return path


def with_encoder(folder: Path, codec: Codec) -> Codec:
    """The codec with the averaged encoder of the run in `folder`, where there is one."""
    path, listening = folder / "listen-run.safetensors", copy.deepcopy(codec)
    if path.exists():
        prefix = "average."
        listening.encoder.load_state_dict(
            {k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)}
        )
    return listening
