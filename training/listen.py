"""Teaches the encoder alone to hear through what it was not trained with: telephones that cut steeply below 200 to 400 Hz.

What the trained encoder makes of the clean audio is what it is to make of the spoiled, and of the clean, which it shall not
forget. So the codes, the decoder and the language models stay what they are; only references are heard better.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from training import codec as codec_training
from training import common
from training.crops import FRAMES, RATE, Pool, heard
from training.spoil import spoil, telephone
from training.world import LEVEL
from voicelab.engine.pointer.codec import Codec

BATCH = 8
_CLEAN, _TELEPHONE = 0.3, 0.4
"""Shares of the crops that are left as they are, and that come over a steep telephone; the rest is spoiled as in `crops`."""


class Crops:
    """Clean and spoiled audio beside each other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.pool = Pool(folder, seed)

    def batch(self) -> tuple[Tensor, Tensor]:
        """(clean, spoiled), each (BATCH, samples)."""
        pairs = [self._pair() for _ in range(BATCH)]
        clean, rough = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
        return clean.to(common.DEVICE), rough.to(common.DEVICE)

    def _pair(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        rng = self.pool.rng
        (speech,) = self.pool.draw(1)
        clean = heard(speech, int(rng.integers(0, max(1, speech.frames - FRAMES + 1))), FRAMES)
        kind, rough = rng.random(), clean
        if kind > 1 - _TELEPHONE:
            rough = telephone(clean, RATE, low=float(rng.uniform(180, 400)))
            active = rough[np.abs(rough) > 0.01]
            level = np.sqrt(np.mean(np.square(active if active.size > 100 else rough)) + 1e-12)
            rough = np.clip(rough * (LEVEL / level), -1, 1).astype(np.float32)
        elif kind > _CLEAN:
            rough = spoil(clean, RATE, seed=int(rng.integers(1 << 31)))
        return clean, rough


def train(folder: Path, steps: int, minutes: float | None = None, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is there, for so many `minutes` now; returns the checkpoint, for `codec_of`."""
    torch.manual_seed(seed)
    codec = codec_training.load(folder / "codec-run.safetensors").to(common.DEVICE).requires_grad_(False)
    encoder = copy.deepcopy(codec.encoder).requires_grad_(True)
    optimizers = [torch.optim.AdamW(encoder.parameters(), lr=3e-4, betas=(0.9, 0.98))]
    path, about = folder / "listen-run.safetensors", {"seed": seed}
    run = common.Run(path, steps, encoder, optimizers, decay=0.995, warm=50, hold=0.4, about=about, minutes=minutes)
    crops = Crops(folder, seed + run.step)
    for _ in run:
        clean, rough = crops.batch()
        with torch.no_grad():
            wanted, seen = codec.encoder(codec.spectrum(clean)), codec.spectrum(rough)
        run.descend((encoder(seen) - wanted).square().mean() / wanted.square().mean())
    return path


def codec_of(folder: Path) -> Codec:
    """The codec of the runs in `folder`, with the encoder that has listened, where there is one."""
    codec = codec_training.load(folder / "codec-run.safetensors")
    path = folder / "listen-run.safetensors"
    if path.exists():
        prefix = "average."
        codec.encoder.load_state_dict({k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)})
    return codec
