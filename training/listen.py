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
from training.render import LEVEL, load_shard
from training.speakers import all_speakers
from training.spoil import spoil, telephone
from voicelab.engine.pointer.codec import Codec

FRAMES = 48
BATCH = 8
_CLEAN, _TELEPHONE = 0.3, 0.4
"""Shares of the crops that are left as they are, and that come over a steep telephone; the rest is spoiled as before."""


class Crops:
    """Clean and spoiled audio of some shards, beside each other."""

    def __init__(self, folder: Path, shards: int, codec: Codec, seed: int) -> None:
        self.said = [u for p in sorted((folder / "shards").glob("????.npz"))[:shards] for u in load_shard(p)]
        self.speakers, self.rng = all_speakers(), np.random.default_rng(seed)
        self.size, self.rate = FRAMES * codec.config.hop, codec.config.sample_rate

    def batch(self) -> tuple[Tensor, Tensor]:
        """(clean, spoiled), each (BATCH, samples)."""
        pairs = [self._pair() for _ in range(BATCH)]
        clean, rough = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
        return clean, rough

    def _pair(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        u = self.said[int(self.rng.integers(len(self.said)))]
        samples = u.audio(self.speakers[u.speaker], self.rate)
        kind, rough = self.rng.random(), samples
        if kind > 1 - _TELEPHONE:
            rough = telephone(samples, self.rate, low=float(self.rng.uniform(180, 400)))
            active = rough[np.abs(rough) > 0.01]
            rough = np.clip(
                rough * (LEVEL / np.sqrt(np.mean(np.square(active if active.size > 100 else rough)))), -1, 1
            )
        elif kind > _CLEAN:
            rough = spoil(samples, self.rate, seed=int(self.rng.integers(1 << 31)))
        start = int(self.rng.integers(max(1, samples.size - self.size)))
        clean, rough = (np.pad(x, (0, self.size))[start : start + self.size] for x in (samples, rough))
        return clean.astype(np.float32), rough.astype(np.float32)


def train(folder: Path, steps: int, shards: int = 24, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is there; returns the checkpoint, for `codec_of`."""
    torch.manual_seed(seed)
    codec = codec_training.load(folder / "codec-run.safetensors").requires_grad_(False)
    encoder = copy.deepcopy(codec.encoder).requires_grad_(True)
    optimizers = [torch.optim.AdamW(encoder.parameters(), lr=3e-4, betas=(0.9, 0.98))]
    path = folder / "listen-run.safetensors"
    run = common.Run(path, steps, encoder, optimizers, decay=0.995, warm=50, hold=0.4, about={"seed": seed})
    crops = Crops(folder, shards, codec, seed + run.step)
    for _ in run:
        clean, rough = crops.batch()
        with torch.no_grad():
            wanted, seen = codec.encoder(codec.spectrum(clean)), codec.spectrum(rough)
        loss = (encoder(seen) - wanted).square().mean() / wanted.square().mean()
        run.descend(loss)
    return path


def codec_of(folder: Path) -> Codec:
    """The codec of the runs in `folder`, with the encoder that has listened, where there is one."""
    codec = codec_training.load(folder / "codec-run.safetensors")
    path = folder / "listen-run.safetensors"
    if path.exists():
        prefix = "average."
        codec.encoder.load_state_dict({k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)})
    return codec
