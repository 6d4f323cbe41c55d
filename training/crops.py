"""What the codec learns from: crops of the teacher's speech and what WORLD measured of them, by code frames and steps.

Above 12 kHz the teacher says nothing, so the codec learns silence there. Some of what the encoder hears is spoiled,
differently every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from training import common, world
from training.ipa import arpabet, initials_and_finals
from training.kokoro import RATE as TEACHERS_RATE
from training.kokoro import Phone
from training.render import Rendering, load_shard
from training.spoil import spoil
from voicelab.engine.pointer.codec import SILENCE, STEP, EncoderSpectrum
from voicelab.engine.pointer.config import CodecConfig
from voicelab.engine.pointer.phones import ALL_PHONES

CONFIG = CodecConfig(phones=len(ALL_PHONES))
RATE = CONFIG.sample_rate
STEPS = CONFIG.hop // STEP
FRAMES = 40
SHARDS = 32
"""Most that are held in memory at once, about four hours; others take their places as training goes on."""
_TURN = 200
"""Batches after which one shard is exchanged, where there are more."""
_NOISE = 0.999
"""Amplitude of the noise's share where there is no voice."""
EDGE = 3
"""Frames at the beginning of a crop that are not judged unless speech begins there: the decoder lacks its past."""
SPOILED = 0.4
"""Share of the crops that the encoder hears spoiled."""


@dataclass(frozen=True)
class Speech:
    """One utterance, trimmed and at one level."""

    samples: NDArray[np.int16]
    """(frames * hop,) at the codec's rate, silence at the end."""
    measured: world.Measured
    phones: list[Phone]
    """By the inventory's names."""

    @property
    def frames(self) -> int:
        """Code frames."""
        return self.samples.size // CONFIG.hop


@dataclass(frozen=True)
class Said:
    """One utterance, trimmed and at one level, not measured."""

    samples: NDArray[np.int16]
    phones: list[Phone]


def speech_of(rendering: Rendering, measured: world.Measured) -> Speech:
    """An utterance with its measures."""
    said = said_by(rendering)
    return Speech(said.samples, measured, said.phones)


def said_by(rendering: Rendering) -> Said:
    """An utterance as the codec and the language models know it."""
    audio, phones = world.trimmed(rendering)
    samples = np.clip(np.round(soxr.resample(audio, TEACHERS_RATE, RATE) * 32768), -32768, 32767).astype(np.int16)
    samples = np.pad(samples, (0, -samples.size % CONFIG.hop))
    sounds = initials_and_finals(phones) if rendering.request.language == "zh" else phones
    return Said(samples, arpabet(sounds))


def load_speech(folder: Path, name: str) -> list[Speech]:
    """The measured utterances of a shard."""
    said = {r.request.number: r for r in load_shard(folder / "speech" / name)}
    return [speech_of(said[row.meta["number"]], row) for row in world.load(folder / "world" / name)]


def shards(folder: Path) -> list[str]:
    """Names of the shards that were measured."""
    return sorted(p.name for p in (folder / "world").glob("?????.npz"))


class Pool:
    """Utterances drawn by their lengths; of many shards some at a time."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self._names: Iterator[str] = self._around(shards(folder))
        held = min(len(shards(folder)), SHARDS)
        self._held = [load_speech(folder, next(self._names)) for _ in range(held)]
        self._more = held < len(shards(folder))
        self._drawn = 0
        self._count()

    def _around(self, names: list[str]) -> Iterator[str]:
        while True:
            yield from (names[i] for i in self.rng.permutation(len(names)))

    def _count(self) -> None:
        self.all = [s for held in self._held for s in held]
        lengths = np.array([s.frames for s in self.all], dtype=float)
        self._share = lengths / lengths.sum()

    def draw(self, size: int) -> list[Speech]:
        """`size` utterances."""
        self._drawn += 1
        if self._more and self._drawn % _TURN == 0:
            self._held = [*self._held[1:], load_speech(self.folder, next(self._names))]
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
        # The vocoder's bands and the measured ones are evenly spaced in mel, up to half of either rate.
        top, measured = (2595 * np.log10(1 + rate / 2 / 700) for rate in (RATE, TEACHERS_RATE))
        mel = np.linspace(0, top, CONFIG.filter_bands)
        self._inside = mel <= measured
        self._bands = Places.of(np.where(self._inside, mel / measured * (world.BANDS - 1), 0), world.BANDS)
        hz = 700 * (10 ** (mel / 2595) - 1)
        # As WORLD reads it: -60 dB at 0 Hz, a value every 3 kHz, 0 dB from the top of the teacher's band on.
        self._noise = Places.of(np.minimum(hz, TEACHERS_RATE / 2) / 3000, 5)

    def __call__(self, speech: Speech, first: int, frames: int) -> tuple[Tensor, Tensor, Tensor]:
        """(steps, bands) nepers, (steps, bands) the voice's share of the power, (steps,) Hz, of the frames from `first`.

        The window of step j ends with it, so its centre is WORLD's frame j - 1; F0 is told at the step's end, which is
        frame j + 1.
        """
        m = speech.measured
        steps, last = np.arange(first * STEPS, (first + frames) * STEPS), m.f0.size - 1
        at = np.clip(steps - 1, 0, last)
        measured, voiced = world.nepers(m.envelope[at]), m.f0[at, None] > 0
        envelope = np.where(self._inside, self._bands(measured), world.FAINTEST)
        # The vocoder takes a floor away, which this corpus does not have.
        envelope = (0.5 * np.logaddexp(2 * envelope, 2 * SILENCE)).astype(np.float32)
        noise = np.pad(world.decibels(m.aperiodicity[at]), ((0, 0), (1, 1)))
        noise[:, 0] = -60
        amplitude = np.where(voiced, np.clip(10 ** (self._noise(noise) / 20), 0.001, _NOISE), _NOISE).astype(np.float32)
        f0 = m.f0[np.minimum(steps + 1, last)]
        return torch.from_numpy(envelope), torch.from_numpy(1 - amplitude**2), torch.from_numpy(f0)


@dataclass(frozen=True)
class Places:
    """Linear interpolation along the last axis, at places that are always the same."""

    low: NDArray[np.int64]
    part: NDArray[np.float32]

    @classmethod
    def of(cls, places: NDArray[np.float64], size: int) -> Places:
        """Of an axis of `size` values."""
        low = np.minimum(places.astype(np.int64), size - 2)
        return cls(low, (places - low).astype(np.float32))

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """(…, size) → (…, places)."""
        return values[..., self.low] * (1 - self.part) + values[..., self.low + 1] * self.part


@dataclass(frozen=True)
class Batch:
    """Crops of FRAMES code frames, each of STEPS vocoder steps."""

    seen: Tensor
    """(batch, FRAMES, features) what the encoder sees: clean or spoiled."""
    envelope: Tensor
    """(batch, steps, bands) nepers, always of the clean audio."""
    voicing: Tensor
    """(batch, steps, bands) the voice's share of the power."""
    f0: Tensor
    """(batch, steps) Hz, 0 where unvoiced."""
    phones: Tensor
    """(batch, FRAMES)."""
    weight: Tensor
    """(batch, steps, bands) how much each target counts."""


class Crops:
    """Random crops of measured utterances."""

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
