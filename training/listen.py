"""Train the encoder to be robust to telephone channels with a steep cutoff at 200 to 400 Hz.

The target is the output of the initial encoder for clean audio, for degraded and for clean inputs. Codes, decoder and
language models are unchanged; only references are encoded more robustly. Training data are the audio clips of the encoded
corpus (`kept.clips`).
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
"""Codec frames per crop; the audio has one more at either end, for the long analysis windows."""
_CLEAN_SHARE, _TELEPHONE_SHARE = 0.3, 0.4
"""Fractions of clean and of telephone crops; the others are degraded by `spoil`."""


def from_opus(data: bytes, rate: int) -> NDArray[np.float32]:
    """Decode a clip to `rate`, shape (samples,)."""
    with av.open(io.BytesIO(data), "r", format="ogg") as file:
        source_rate = file.streams.audio[0].rate
        parts = [frame.to_ndarray()[0] for frame in file.decode(audio=0)]
    audio: NDArray[np.float32] = soxr.resample(np.concatenate(parts).astype(np.float32), source_rate, rate)
    return audio


class Crops:
    """Random pairs of clean and degraded crops."""

    def __init__(self, clips: Sequence[bytes], config: CodecConfig, seed: int) -> None:
        self.clips, self.config = clips, config
        self.rng = np.random.default_rng(seed)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Draw a batch (clean, degraded), each of shape (BATCH, samples)."""
        pairs = [self._pair() for _ in range(BATCH)]
        clean, rough = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
        return clean.to(common.DEVICE), rough.to(common.DEVICE)

    def _clean(self) -> NDArray[np.float32]:
        """Draw a crop, zero-padded if the clip is short, shape (samples,)."""
        rate, size = self.config.sample_rate, (FRAMES + 2) * self.config.hop
        audio = from_opus(self.clips[int(self.rng.integers(len(self.clips)))], rate)
        start = int(self.rng.integers(0, max(1, audio.size - size + 1)))
        cut = audio[start : start + size]
        return np.pad(cut, (0, size - cut.size))

    def _pair(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        rate, clean = self.config.sample_rate, self._clean()
        kind, rough = self.rng.random(), clean
        if kind > 1 - _TELEPHONE_SHARE:
            rough = telephone(clean, rate, low=float(self.rng.uniform(180, 400)))
            active = rough[np.abs(rough) > 0.01]
            level = np.sqrt(np.mean(np.square(active if active.size > 100 else rough)) + 1e-12)
            rough = np.clip(rough * (LEVEL / level), -1, 1).astype(np.float32)
        elif kind > _CLEAN_SHARE:
            rough = spoil(clean, rate, seed=int(self.rng.integers(1 << 31)))
        return clean, rough


def train(folder: Path, corpus: Path, codec: Codec, steps: int, minutes: float | None = None, seed: int = 0) -> Path:
    """Train on the clips of `corpus` for `steps`, resuming the run in `folder`, for at most `minutes` now.

    Returns:
        The path of the checkpoint, which `with_encoder` loads.
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
            target, spectrum = teacher.encoder(teacher.spectrum(clean)), teacher.spectrum(rough)
        run.descend((encoder(spectrum) - target).square().mean() / target.square().mean())
    return path


def with_encoder(folder: Path, codec: Codec) -> Codec:
    """Return the codec with the averaged encoder of the run in `folder`, if there is one."""
    path, result = folder / "listen-run.safetensors", copy.deepcopy(codec)
    if path.exists():
        prefix = "average."
        result.encoder.load_state_dict(
            {k[len(prefix) :]: v for k, v in load_file(path).items() if k.startswith(prefix)}
        )
    return result
