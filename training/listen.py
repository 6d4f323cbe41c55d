"""Teaches the encoder alone to hear through what it was not trained with: telephones that cut steeply below 200 to 400 Hz.

What the trained encoder makes of the clean audio is what it is to make of the spoiled, and of the clean, which it shall not
forget. So the codes, the decoder and the language models stay what they are; only references are heard better.
"""

from __future__ import annotations

import copy
import time
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
from voicelab.engine.codec import Codec

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


def train(folder: Path, minutes: float, shards: int = 24, seed: int = 0) -> Path:
    """Trains for `minutes` of clock time, resuming what is there; returns the checkpoint, for `codec_of`."""
    torch.manual_seed(seed)
    codec = codec_training.load(folder / "codec-run.safetensors").requires_grad_(False)
    encoder = copy.deepcopy(codec.encoder).requires_grad_(True)
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(encoder.parameters(), lr=3e-4, betas=(0.9, 0.98))]
    average = common.Average(encoder, 0.995)
    path, step, spent = folder / "listen-run.safetensors", 0, 0.0
    if path.exists():
        meta = common.load_run(path, encoder, average, optimizers)
        step, spent = meta["step"], meta["spent"]
    crops = Crops(folder, shards, codec, seed + step)
    clock, saved, mean = common.Clock(minutes, spent), time.monotonic(), 0.0
    while clock.done < 1:
        common.set_rate(optimizers, clock.rate(1.0, step, warm=50, hold=0.4))
        clean, rough = crops.batch()
        with torch.no_grad():
            wanted, seen = codec.encoder(codec.spectrum(clean)), codec.spectrum(rough)
        loss = (encoder(seen) - wanted).square().mean() / wanted.square().mean()
        common.descend(loss, encoder, optimizers, average)
        step, mean = step + 1, (mean or float(loss.detach())) * 0.98 + float(loss.detach()) * 0.02
        if step % 50 == 0:
            print(step, f"{clock.spent:.0f}s", round(mean, 4), flush=True)
        if time.monotonic() - saved > 120 or clock.done >= 1:
            common.save_run(path, encoder, average, optimizers, {"step": step, "spent": clock.spent, "seed": seed})
            saved = time.monotonic()
    return path


def codec_of(folder: Path) -> Codec:
    """The codec of the runs in `folder`, with the encoder that has listened, where there is one."""
    codec = codec_training.load(folder / "codec-run.safetensors")
    path = folder / "listen-run.safetensors"
    if path.exists():
        prefix = "average."
        codec.encoder.load_state_dict({k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)})
    return codec
