"""Trains the natural voice's head: what a network adds to the vocoder's filters, by spectra of the teacher's audio.

It begins as the vocoder with WORLD's own measures and hears those for the first part of its steps; then what the trained
codec makes of its codes, which is what it will be told. The pulses run in the teacher's own phase, which is known, so that
phases can be learned; the engine's run in any.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from training import codec as codec_training
from training import common
from training.kokoro import F0_STEP, RATE
from training.natural_codec import CONFIG, Pool, Speech, Targets, heard
from voicelab.engine.pointer.codec import Codec, Filters, Head, Vocoder, VocoderState, mel_triangles

WITH_HEAD = replace(CONFIG, head_width=256, head_depth=8)
FRAMES, EDGE, BATCH = 20, 5, 6
"""Code frames of a crop, of which the first EDGE lack the past and are not judged; crops of a step."""
TRUE = 0.5
"""Share of the steps in which the head is told what was measured; of the rest, what the codec makes of it."""
_SIZES = (2048, 1024, 512, 256)
_VOICED = 50.0
"""Hz below which the teacher's own F0 means that there is no voice."""
_FAINT = 5e-4


def source(speech: Speech, first: int, frames: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """F0 and its phase in cycles at every sample of the code frames from `first`, as the teacher's own source had them.

    Where there is no voice F0 goes straight from the one before to the one behind, in a phase of its own.
    """
    count = frames * CONFIG.hop
    place = (speech.begin + first * CONFIG.hop + np.arange(count) - F0_STEP / 2) / F0_STEP
    every, voiced = np.arange(speech.hz.size), speech.hz >= _VOICED
    bridged = np.interp(every, every[voiced], speech.hz[voiced]) if voiced.any() else np.full(every.size, 120.0)
    hz = np.interp(place, every, bridged)
    inside = voiced[np.clip(np.round(place).astype(int), 0, every.size - 1)]
    cycles = np.where(inside, np.interp(place, every, speech.cycles), np.cumsum(hz / RATE))
    return hz.astype(np.float32), cycles


def told(envelope: Tensor, voicing: Tensor, f0: Tensor) -> Filters:
    """What was measured, (batch, steps, …), as the decoder would say it."""
    return Filters(codec_training.bridged(f0), envelope, torch.logit(voicing.clamp(1e-5, 1 - 1e-5)), CONFIG.silence)


class Crops:
    """Crops of utterances: what is told to the head, its source, and the audio."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.pool = Pool(folder, seed, FRAMES)
        self.targets = Targets()

    def batch(self, size: int = BATCH) -> tuple[Filters, Tensor, Tensor, Tensor]:
        """(measured filters, hz (size, samples), cycles alike, audio with one more code frame at either end)."""
        rows = []
        for speech in self.pool.draw(size):
            first = int(self.pool.rng.integers(0, speech.frames - FRAMES + 1))
            hz, cycles = (torch.from_numpy(x) for x in source(speech, first, FRAMES))
            audio = torch.from_numpy(heard(speech, first, FRAMES))
            rows.append((*self.targets(speech, first, FRAMES), hz, cycles, audio))
        envelope, voicing, f0, hz, cycles, audio = (torch.stack(x).to(common.DEVICE) for x in zip(*rows, strict=True))
        return told(envelope, voicing, f0), hz, cycles, audio


def rendered(head: Head | None, vocoder: Vocoder, filters: Filters, hz: Tensor, cycles: Tensor, place: int) -> Tensor:
    """(batch, samples) in time with the audio, `lag` fewer, from a source given at every sample; `place` is the noise's."""
    pulses = vocoder.pulse_train(hz, cycles)
    refined = None
    if head is not None:
        with torch.autocast(pulses.device.type, dtype=torch.bfloat16):
            refined, _ = head(filters)
    nothing = pulses.new_zeros(pulses.shape[0], vocoder.lag)
    state = VocoderState(cycles[:, -1], hz[:, -1], nothing, nothing, place)
    return vocoder.filtered(pulses, filters.harmonic, filters.noise, state, refined)[0][:, vocoder.lag :]


class Distance(nn.Module):
    """Between two pieces of audio: log and square-root spectra, mel bands, and phases."""

    def __init__(self) -> None:
        super().__init__()
        for size in _SIZES:
            self.register_buffer(f"window{size}", torch.hann_window(size), persistent=False)
        self.mel: Tensor
        self.register_buffer("mel", mel_triangles(RATE, 1024, 100, RATE / 2), persistent=False)

    def forward(self, made: Tensor, true: Tensor) -> dict[str, Tensor]:
        """(batch, samples) twice → parts of the loss."""
        log, root, phase = (made.new_zeros(()) for _ in range(3))
        for size in _SIZES:
            window = getattr(self, f"window{size}")
            a, b = (
                torch.stft(x, size, size // 4, window=window, return_complex=True, center=False) / size**0.5
                for x in (made, true)
            )
            x, y = a.abs(), b.abs()
            log = log + F.l1_loss(torch.log(x + _FAINT), torch.log(y + _FAINT)) / len(_SIZES)
            root = root + F.l1_loss(torch.sqrt(x + 1e-6), torch.sqrt(y + 1e-6)) / len(_SIZES)
            if size >= 512:
                phase = phase + (a - b).abs().mean() / y.mean() / 3
            if size == 1024:
                low, high = (torch.log(z.transpose(1, 2) @ self.mel + _FAINT) for z in (x, y))
                mel = F.l1_loss(low, high)
        return {"log": log, "root": root, "mel": mel, "phase": phase}


WEIGHTS = {"log": 1.0, "root": 4.0, "mel": 1.0, "phase": 0.4}


@torch.no_grad()
def coded(codec: Codec, audio: Tensor) -> Filters:
    """What the codec's decoder says of audio that went through codes; one more code frame at either end is only context."""
    latents = codec.encoder(codec.spectrum(audio))
    return codec.decoder.filters(codec.quantizer.decode(codec.quantizer.encode(latents))[:, 1:-1])[0]


def train(folder: Path, steps: int, minutes: float | None = None, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is there, for so many `minutes` now; returns the checkpoint.

    Where the folder has no codec yet, it goes on being told what was measured.
    """
    torch.manual_seed(seed)
    head = Head(WITH_HEAD).to(common.DEVICE)
    vocoder = Vocoder(CONFIG.sample_rate, CONFIG.filter_bands, CONFIG.step).to(common.DEVICE)
    distance = Distance().to(common.DEVICE)
    optimizers = [torch.optim.AdamW(head.parameters(), lr=1e-3, betas=(0.8, 0.98), weight_decay=1e-3)]
    about = {"seed": seed, "config": WITH_HEAD.to_dict()}
    path = folder / "head-run.safetensors"
    run = common.Run(path, steps, head, optimizers, decay=0.998, warm=100, hold=0.4, about=about, minutes=minutes)
    crops = Crops(folder, seed + run.step)
    trained = folder / "codec-run.safetensors"
    codec = codec_training.load(trained).to(common.DEVICE) if trained.exists() else None
    for step in run:
        filters, hz, cycles, audio = crops.batch()
        if codec is not None and step >= TRUE * steps:
            filters = coded(codec, audio)
        place = int(crops.pool.rng.integers(1 << 20))
        made = rendered(head, vocoder, filters, hz, cycles, place)
        true = audio[:, CONFIG.hop : -CONFIG.hop - vocoder.lag]
        skip = EDGE * CONFIG.hop
        parts = distance(made[:, skip:], true[:, skip:])
        run.descend(torch.stack([WEIGHTS[name] * part for name, part in parts.items()]).sum(), **parts)
    return path


def with_head(codec: Codec, path: Path) -> Codec:
    """The codec with the averaged head of a run."""
    whole = Codec(replace(codec.config, head_width=WITH_HEAD.head_width, head_depth=WITH_HEAD.head_depth))
    head = {f"decoder.head.{k[8:]}": v for k, v in load_file(path).items() if k.startswith("average.")}
    whole.load_state_dict(codec.state_dict() | head)
    return whole.eval()
