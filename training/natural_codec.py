"""Trains the natural voice's codec: crops of the teacher's speech, and what WORLD measured of them, for `codec.fit`.

Everything lies in code frames of 50 ms, five vocoder steps each, at the teacher's 24 kHz. The codec made of it works at
44.1 kHz with the same weights (see `at_the_door`): a frame is 2,205 samples there, a step 441, and spectra have their bins at
the same frequencies. Half of what the encoder hears is spoiled, differently every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training import common, world
from training.codec import EDGE, SPOILED, Batch, fit
from training.features import band_centres
from training.ipa import arpabet, initials_and_finals
from training.kokoro import RATE, Phone
from training.natural import Rendering, load_shard
from training.spoil import spoil
from voicelab.engine.pointer.codec import EncoderSpectrum, Vocoder
from voicelab.engine.pointer.config import CodecConfig
from voicelab.engine.pointer.phones import ALL_PHONES

CONFIG = CodecConfig(
    sample_rate=RATE,
    hop=1200,
    step=world.STEP,
    codebooks=(1024,) * 8,
    latent=96,
    mel_bands=100,
    mel_top=RATE / 2,
    filter_bands=world.BANDS,
    silence=-20.0,
    phones=len(ALL_PHONES),
)
STEPS = CONFIG.hop // CONFIG.step
FRAMES = 40
SHARDS = 64
"""Most that are held in memory at once, about seven hours; others take their places as training goes on."""
_TURN = 200
"""Batches after which one shard is exchanged, where there are more."""
_NOISE = 0.999
"""Amplitude of the noise's share where there is no voice."""


def at_the_door(config: CodecConfig, rate: int = 44_100) -> CodecConfig:
    """The same weights' configuration for audio at another rate."""
    return replace(
        config,
        sample_rate=rate,
        hop=config.hop * rate // config.sample_rate,
        step=config.step * rate // config.sample_rate,
        top=config.sample_rate / 2,
    )


@dataclass(frozen=True)
class Speech:
    """One utterance, trimmed and at one level."""

    samples: NDArray[np.int16]
    """(frames * hop,) at the teacher's rate, silence at the end."""
    measured: world.Measured
    phones: list[Phone]
    """By the inventory's names."""
    cycles: NDArray[np.float64]
    """(values,) phase of the teacher's own source at its 80 Hz, in cycles."""
    hz: NDArray[np.float32]
    """(values,) the teacher's own F0 there, 3–40 where it is unvoiced."""
    begin: int
    """Samples that were trimmed from the beginning."""

    @property
    def frames(self) -> int:
        """Code frames."""
        return self.samples.size // CONFIG.hop


def speech_of(rendering: Rendering, measured: world.Measured) -> Speech:
    """An utterance with its measures."""
    audio, phones = world.trimmed(rendering)
    samples = np.clip(np.round(audio * 32768), -32768, 32767).astype(np.int16)
    samples = np.pad(samples, (0, -samples.size % CONFIG.hop))
    begin = round((rendering.phones[0].start - phones[0].start) * RATE)
    cycles = np.cumsum(rendering.f0.astype(np.float64) * 300 / RATE)
    sounds = initials_and_finals(phones) if rendering.request.language == "zh" else phones
    return Speech(samples, measured, arpabet(sounds), cycles, rendering.f0, begin)


def load(folder: Path, name: str) -> list[Speech]:
    """The measured utterances of a shard."""
    said = {r.request.number: r for r in load_shard(folder / "natural" / name)}
    return [speech_of(said[row.meta["number"]], row) for row in world.load(folder / "world" / name)]


def shards(folder: Path) -> list[str]:
    """Names of the shards that were measured."""
    return sorted(p.name for p in (folder / "world").glob("?????.npz"))


class Pool:
    """Utterances drawn by their lengths; of many shards some at a time."""

    def __init__(self, folder: Path, seed: int, shortest: int = 1) -> None:
        """`shortest` is in code frames."""
        self.folder, self.shortest = folder, shortest
        self.rng = np.random.default_rng(seed)
        self._names: Iterator[str] = self._around(shards(folder))
        held = min(len(shards(folder)), SHARDS)
        self._held = [self._load(next(self._names)) for _ in range(held)]
        self._more = held < len(shards(folder))
        self._drawn = 0
        self._count()

    def _around(self, names: list[str]) -> Iterator[str]:
        while True:
            yield from (names[i] for i in self.rng.permutation(len(names)))

    def _load(self, name: str) -> list[Speech]:
        return [s for s in load(self.folder, name) if s.frames >= self.shortest]

    def _count(self) -> None:
        self.all = [s for held in self._held for s in held]
        lengths = np.array([s.frames for s in self.all], dtype=float)
        self._share = lengths / lengths.sum()

    def draw(self, size: int) -> list[Speech]:
        """`size` utterances."""
        self._drawn += 1
        if self._more and self._drawn % _TURN == 0:
            self._held = [*self._held[1:], self._load(next(self._names))]
            self._count()
        return [self.all[i] for i in self.rng.choice(len(self.all), size=size, p=self._share)]


def heard(speech: Speech, first: int, frames: int) -> NDArray[np.float32]:
    """Audio of code frames `first - 1` to `first + frames`: one more at either end, for the spectrum's long windows."""
    hop = CONFIG.hop
    low, high = (first - 1) * hop, (first + frames + 1) * hop
    cut = speech.samples[max(0, low) : high]
    left = max(0, -low)
    padded: NDArray[np.float32] = np.pad(cut, (left, high - low - left - cut.size)).astype(np.float32) / np.float32(
        32768
    )
    return padded


class Targets:
    """What WORLD measured, as the decoder's `Filters` have it."""

    def __init__(self) -> None:
        self.vocoder = Vocoder(CONFIG.sample_rate, CONFIG.filter_bands, CONFIG.step)
        centres = band_centres(self.vocoder)
        place = centres.numpy() / 3000
        # As WORLD reads it: -60 dB at 0 Hz, three bands, 0 dB at the top.
        self._low = np.minimum(place.astype(int), 3)
        self._part = (place - self._low).astype(np.float32)

    def __call__(self, speech: Speech, first: int, frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """(steps, bands) nepers, (steps, bands) the voice's share of the power, (steps,) Hz, of the frames from `first`.

        The window of step j ends with it, so its centre is WORLD's frame j - 1; F0 is told at the step's end, which is
        frame j + 1.
        """
        m = speech.measured
        steps, last = np.arange(first * STEPS, (first + frames) * STEPS), m.f0.size - 1
        at = np.clip(steps - 1, 0, last)
        envelope, voiced = world.nepers(m.envelope[at]), m.f0[at, None] > 0
        noise = np.pad(world.decibels(m.aperiodicity[at]), ((0, 0), (1, 1)))
        noise[:, 0] = -60
        coded = noise[:, self._low] * (1 - self._part) + noise[:, self._low + 1] * self._part
        amplitude = np.where(voiced, np.clip(10 ** (coded / 20), 0.001, _NOISE), _NOISE).astype(np.float32)
        f0 = m.f0[np.minimum(steps + 1, last)]
        return torch.from_numpy(envelope), torch.from_numpy(1 - amplitude**2), torch.from_numpy(f0)


class Crops:
    """Crops for `codec.fit`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.pool = Pool(folder, seed)
        self.spectrum = EncoderSpectrum(CONFIG).to(common.DEVICE)
        self.targets = Targets()

    @property
    def rng(self) -> np.random.Generator:
        """What draws."""
        return self.pool.rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self.pool.rng = rng

    def batch(self, size: int) -> Batch:
        """`size` crops; silence follows an utterance that is too short."""
        rows = [self._row(speech) for speech in self.pool.draw(size)]
        audio, envelope, voicing, f0, phones, cut = (
            torch.stack(part).to(common.DEVICE) for part in zip(*rows, strict=True)
        )
        weight = ((envelope + 8.5) / 3).clamp(0.2, 1)
        weight[cut, : EDGE * STEPS] = 0
        seen = self.spectrum(audio)[:, 1:-1]
        return Batch(seen, envelope, voicing, f0, phones, weight)

    def _row(self, speech: Speech) -> tuple[Tensor, ...]:
        first = 0
        if self.rng.random() > 0.15:
            first = int(self.rng.integers(0, max(1, speech.frames - FRAMES + 1)))
        audio = heard(speech, first, FRAMES)
        if self.rng.random() < SPOILED:
            audio = spoil(audio, RATE, int(self.rng.integers(1 << 31)))
        at = (np.arange(first, first + FRAMES) + 0.5) * CONFIG.hop / RATE
        ends = np.array([p.end for p in speech.phones])
        ids = np.array([ALL_PHONES.index(p.name) for p in speech.phones])
        phones = torch.from_numpy(ids[np.minimum(np.searchsorted(ends, at), ids.size - 1)])
        return torch.from_numpy(audio), *self.targets(speech, first, FRAMES), phones, torch.tensor(first > 0)


def train(folder: Path, steps: int, minutes: float | None = None, seed: int = 0) -> Path:
    """Trains for `steps`, resuming what is there, for so many `minutes` now; returns the checkpoint."""
    return fit(folder, CONFIG, lambda: Crops(folder, seed), steps, seed=seed, minutes=minutes)
