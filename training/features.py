"""What the codec learns from, measured once: what its encoder will see, clean and spoiled, and what its decoder ought to say.

The envelopes are measured on the audio at the teacher's own F0; how much of the power is voice and how much noise is read
between the harmonics, after time has been warped until F0 is constant.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from training.render import RATE, Utterance, load_shard
from training.speakers import Speaker, all_speakers
from training.spoil import spoil
from voicelab.engine.pointer.codec import LAG, STEP, WINDOW, EncoderSpectrum, Vocoder, mel_of
from voicelab.engine.pointer.config import CodecConfig
from voicelab.engine.pointer.phones import PHONES

FLOOR = 1e-7
"""Power density below which nothing is heard (-70 dBFS of white noise)."""
VOICING_BANDS = 20
VOICING_TOP = 8000.0
_PERIOD, _PERIODS = 256, 4
"""Samples of a period after warping, and periods in a window."""
_ENVELOPE, _SEEN, _SHARE = (-8.2, 0.04), (-1.1, 0.0125), (0.0, 1 / 255)
"""Least value and step of what is kept in a byte: envelope, encoder's spectrum, share of the voice."""


@dataclass(frozen=True)
class Features:
    """Of one utterance or of many in a row; (frames, …) or (steps, …), a frame being `hop / STEP` steps."""

    seen: NDArray[np.uint8]
    """(frames, features) what the encoder sees of the clean audio."""
    spoiled: NDArray[np.uint8]
    """(frames, features) what it sees of the audio with noise, a room, a telephone."""
    envelope: NDArray[np.uint8]
    """(steps, bands)."""
    voicing: NDArray[np.uint8]
    """(steps, VOICING_BANDS)."""
    f0: NDArray[np.float32]
    """(steps,) Hz, 0 where unvoiced."""
    phones: NDArray[np.uint8]
    """(frames,)."""
    ends: NDArray[np.int64]
    """(utterances,) frames up to the end of each."""
    tops: NDArray[np.float32]
    """(utterances,) Hz up to which each has sound to learn from."""


def pack(values: Tensor, scale: tuple[float, float]) -> NDArray[np.uint8]:
    """A byte a value."""
    return ((values - scale[0]) / scale[1]).round().clamp(0, 255).to(torch.uint8).numpy()


def unpack(values: Tensor, scale: tuple[float, float]) -> Tensor:
    """The inverse of `pack`."""
    return values.float() * scale[1] + scale[0]


def unpack_envelope(values: Tensor) -> Tensor:
    """Nepers."""
    return unpack(values, _ENVELOPE)


def unpack_seen(values: Tensor) -> Tensor:
    """The encoder's spectrum."""
    return unpack(values, _SEEN)


def unpack_voicing(values: Tensor, spread: Tensor) -> Tensor:
    """Shares of the voice, spread (see `voicing_spread`) over the vocoder's bands."""
    return unpack(values, _SHARE) @ spread


def f0_at(utterance: Utterance, seconds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The teacher's F0 at these times: see `between`."""
    return between(utterance.f0, utterance.f0_step, seconds)


def between(f0: NDArray[np.float32], step: float, seconds: NDArray[np.float64]) -> NDArray[np.float32]:
    """F0 given every `step` seconds, at other times: linear within voiced stretches, 0 outside them."""
    place = seconds / step
    low = np.clip(place.astype(int), 0, f0.size - 1)
    high = np.clip(low + 1, 0, f0.size - 1)
    a, b = f0[low], f0[high]
    mixed = a + (b - a) * (place - low)
    return np.where((a > 0) & (b > 0) & (place < f0.size), mixed, 0).astype(np.float32)


def phones_at(utterance: Utterance, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The phone spoken at these times (ids of the inventory)."""
    ends = np.array([p.end for p in utterance.phones])
    ids = np.array([PHONES.index(p.name) for p in utterance.phones])
    return ids[np.minimum(np.searchsorted(ends, seconds), ids.size - 1)]


def envelopes(audio: Tensor, f0: Tensor, vocoder: Vocoder) -> Tensor:
    """What the vocoder's filters ought to add up to, measured on the true audio.

    Args:
        audio: (batch, steps * STEP).
        f0: (batch, steps) Hz, 0 where unvoiced.
        vocoder: whose windows and bands these are.

    Returns:
        (batch, steps, bands) log amplitude densities: the power spectrum is averaged over one F0 around each band, so that
        harmonics do not show (as Morise's CheapTrick does, 2015), and over the band where that is wider.
    """
    frames = F.pad(audio, (LAG, 0)).unfold(1, WINDOW, STEP) * vocoder.window
    power = torch.fft.rfft(frames).abs().square() / vocoder.window.square().sum()
    bins, per_bin = power.shape[-1], vocoder.sample_rate / WINDOW
    total = F.pad(power.double().cumsum(-1), (1, 0))
    centres = band_centres(vocoder)
    widths = torch.gradient(centres)[0]
    width = torch.maximum(torch.where(f0 > 0, f0, 150.0)[..., None], widths) / per_bin
    low = (centres / per_bin + 0.5 - width / 2).clamp(0, bins - 1.001)
    high = (centres / per_bin + 0.5 + width / 2).clamp(1, bins - 0.001)
    mean = (_between(total, high) - _between(total, low)) / (high - low)
    return 0.5 * torch.log(mean.float() + FLOOR)


def band_centres(vocoder: Vocoder) -> Tensor:
    """Centres of the vocoder's bands in Hz."""
    top = mel_of(torch.tensor(vocoder.sample_rate / 2))
    mels = torch.arange(vocoder.spread.shape[0]) / (vocoder.spread.shape[0] - 1) * top
    return 700 * (10 ** (mels / 2595) - 1)


def _between(values: Tensor, place: Tensor) -> Tensor:
    """Linear interpolation of (batch, steps, n) at places (batch, steps, m)."""
    low = place.floor().long()
    share = place - low
    return values.gather(-1, low) * (1 - share) + values.gather(-1, low + 1) * share


def voicing(audio: NDArray[np.float32], f0: NDArray[np.float32]) -> Tensor:
    """How much of the power is periodic.

    Time is warped until every period has as many samples. Four periods under a Hann window then have their harmonics in
    every fourth bin, and a voice without noise leaves nothing in the bins half way between.

    Args:
        audio: (steps * STEP,) at RATE.
        f0: (steps,) Hz at the end of each step, 0 where unvoiced.

    Returns:
        (steps, VOICING_BANDS) 0 (noise) to 1 (voice) in mel-spaced bands up to `VOICING_TOP`; 0 where unvoiced.
    """
    steps, voiced = f0.size, f0 > 0
    out = torch.zeros(steps, VOICING_BANDS)
    if voiced.sum() < 4:
        return out
    ends = STEP * np.arange(1, steps + 1)
    hz = np.interp(np.arange(audio.size) + 1.0, ends[voiced], f0[voiced])
    cycles = np.concatenate([[0.0], np.cumsum(hz / RATE)])[:-1] * _PERIOD
    warped = np.interp(np.arange(int(cycles[-1])), cycles, audio).astype(np.float32)
    half = _PERIOD * _PERIODS // 2
    warped = np.pad(warped, half)
    middles = np.clip(ends[voiced] - WINDOW // 2, 0, audio.size - 1)
    starts = np.minimum(cycles[middles].astype(int), warped.size - 2 * half)
    frames = torch.from_numpy(warped[starts[:, None] + np.arange(2 * half)]) * torch.hann_window(2 * half)
    power = torch.fft.rfft(frames).abs().square()
    around = F.avg_pool1d(power[:, None], _PERIODS, stride=_PERIODS)[:, 0]  # one F0 from each harmonic on
    between = power[:, _PERIODS // 2 :: _PERIODS][:, : around.shape[1]]
    harmonics = (torch.arange(around.shape[1]) + 0.5) * torch.from_numpy(hz[middles].astype(np.float32))[:, None]
    edges = torch.linspace(0, float(mel_of(torch.tensor(VOICING_TOP))), VOICING_BANDS)
    near = torch.clamp(1 - (mel_of(harmonics)[..., None] - edges).abs() / (1.5 * edges[1]), min=0)
    noise, whole = (torch.einsum("sh,shb->sb", x, near) for x in (between, around))
    noise, whole = (F.avg_pool1d(x.t()[None], 5, 1, 2, count_include_pad=False)[0].t() for x in (noise, whole))
    share = (noise / (whole + 1e-9)).clamp(0, 1)
    out[torch.from_numpy(voiced)] = 1 - ((share - 0.03) / 0.9).clamp(0, 1)
    return out


def voicing_spread(vocoder: Vocoder) -> Tensor:
    """(VOICING_BANDS, bands): from the bands of `voicing` to the vocoder's; above `VOICING_TOP` everything is noise."""
    place = mel_of(band_centres(vocoder)) / mel_of(torch.tensor(VOICING_TOP)) * (VOICING_BANDS - 1)
    return torch.clamp(1 - (place[None, :] - torch.arange(VOICING_BANDS)[:, None]).abs(), min=0)


def of_utterance(
    utterance: Utterance, speaker: Speaker, spectrum: EncoderSpectrum, vocoder: Vocoder, seed: int
) -> dict[str, NDArray[np.generic]]:
    """The arrays of `Features` for one utterance."""
    hop = spectrum.hop
    audio = utterance.audio(speaker)
    audio = np.pad(audio, (0, -audio.size % hop))
    f0 = f0_at(utterance, STEP * np.arange(1, audio.size // STEP + 1) / RATE)
    wave = torch.from_numpy(audio)[None]
    return {
        "seen": pack(spectrum(wave)[0], _SEEN),
        "spoiled": pack(spectrum(torch.from_numpy(spoil(audio, RATE, seed))[None])[0], _SEEN),
        "envelope": pack(envelopes(wave, torch.from_numpy(f0)[None], vocoder)[0], _ENVELOPE),
        "voicing": pack(voicing(audio, f0), _SHARE),
        "f0": f0,
        "phones": phones_at(utterance, (np.arange(audio.size // hop) + 0.5) * hop / RATE).astype(np.uint8),
    }


def _measure(shard: Path, path: Path, config: CodecConfig) -> str:
    torch.set_num_threads(1)
    speakers, spectrum, vocoder = (
        all_speakers(),
        EncoderSpectrum(config),
        Vocoder(config.sample_rate, config.filter_bands),
    )
    utterances = load_shard(shard)
    rows = [
        of_utterance(u, speakers[u.speaker], spectrum, vocoder, seed=int(shard.stem) * 1000 + i)
        for i, u in enumerate(utterances)
    ]
    part = path.with_suffix(".part.npz")
    columns: dict[str, Any] = {k: np.concatenate([r[k] for r in rows]) for k in rows[0]}
    np.savez(
        part,
        ends=np.cumsum([r["phones"].shape[0] for r in rows]),
        tops=np.array([0.485 * u.raw_rate * speakers[u.speaker].formants for u in utterances], dtype=np.float32),
        **columns,
    )
    part.rename(path)
    return path.name


def measure(folder: Path, shards: int, jobs: int = 2) -> None:
    """Writes ``folder/features`` of the first `shards`; what is there is kept."""
    (folder / "features").mkdir(exist_ok=True)
    config = CodecConfig(phones=len(PHONES))
    work = [(p, folder / "features" / p.name) for p in sorted((folder / "shards").glob("????.npz"))[:shards]]
    with ProcessPoolExecutor(jobs) as pool:
        runs = [pool.submit(_measure, p, out, config) for p, out in work if not out.exists()]
        for run in runs:
            print(run.result(), flush=True)


def load(paths: list[Path]) -> Features:
    """Shards in a row."""
    files = [dict(np.load(p)) for p in paths]
    offsets = np.cumsum([0] + [f["ends"][-1] for f in files[:-1]])
    joined = {k: np.concatenate([f[k] for f in files]) for k in files[0] if k != "ends"}
    return Features(ends=np.concatenate([f["ends"] + o for f, o in zip(files, offsets, strict=True)]), **joined)
