"""What the codec learns to say: WORLD's analysis of every utterance that was understood, by vocoder steps.

F0 is the teacher's own, mended by StoneMask; the envelope is CheapTrick's, aperiodicity D4C's (Morise et al., 2016): through
them and a vocoder the teacher keeps DistillMOS 4.1 of its 4.5. Audio is trimmed, freed of rumble and levelled first; phones'
times follow. Each shard makes one file, written whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.kokoro import F0_STEP, RATE, Phone
from training.render import Rendering
from training.understood import understood, verdicts_of
from voicelab.experiments.metrics.programs import pyworld

STEP = 256 / 44_100
"""Seconds between frames: the embedded voice's vocoder step."""
BANDS = 100
"""Of the envelope, evenly spaced in mel from 0 to 12 kHz."""
LEVEL = 0.07
"""Root mean square of what is not silence, after levelling: about -23 dBFS."""
LOWEST_F0 = 60.0
"""Hz: in unvoiced stretches the teacher's F0 glides down to 3–40."""
RUMBLE = 50.0
"""Hz below which everything is taken away."""
LEAD = TAIL = 0.15
"""Seconds kept before the first phone and after the last sound."""
_ENVELOPE, _APERIODICITY = (-9.0, 0.04), (-60.0, 0.25)
"""Least value and step of what is kept in a byte: envelope in nepers, aperiodicity in dB."""


@dataclass(frozen=True)
class Measured:
    """Of one utterance; frame j is centred j * `STEP` into the trimmed audio."""

    meta: dict[str, Any]
    """The request's fields and ``phones``, whose times are those of the trimmed audio."""
    envelope: NDArray[np.uint8]
    """(frames, BANDS) log amplitude density, packed: see `nepers`."""
    aperiodicity: NDArray[np.uint8]
    """(frames, 3) of D4C's bands, packed: see `decibels`."""
    f0: NDArray[np.float32]
    """(frames,) Hz, 0 where unvoiced."""


FAINTEST = _ENVELOPE[0]
"""Nepers: what there is above the teacher's band."""


def _pack(values: NDArray[np.float64], scale: tuple[float, float]) -> NDArray[np.uint8]:
    return np.clip(np.round((values - scale[0]) / scale[1]), 0, 255).astype(np.uint8)


def nepers(envelope: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The envelope's log amplitude density: white noise of root mean square a has ln a everywhere."""
    return (envelope * np.float32(_ENVELOPE[1]) + np.float32(_ENVELOPE[0])).astype(np.float32)


def decibels(aperiodicity: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Share of noise in the amplitude, as WORLD codes it: 0 dB is all noise."""
    return (aperiodicity * np.float32(_APERIODICITY[1]) + np.float32(_APERIODICITY[0])).astype(np.float32)


def levelled(audio: NDArray[np.float32]) -> NDArray[np.float64]:
    """The audio without rumble, what is not silence at `LEVEL`."""
    from scipy.signal import butter, sosfiltfilt

    clean: NDArray[np.float64] = sosfiltfilt(butter(2, RUMBLE, "highpass", fs=RATE, output="sos"), audio)
    step = RATE // 50
    power = np.square(clean[: clean.size // step * step].reshape(-1, step)).mean(1)
    loud = float(np.mean(power[power > np.quantile(power, 0.95) / 1000]))
    even: NDArray[np.float64] = clean * (LEVEL / float(np.sqrt(loud)))
    return even


def trimmed(rendering: Rendering) -> tuple[NDArray[np.float64], list[Phone]]:
    """Levelled audio with little silence at its ends, and the phones by its times."""
    phones, audio = rendering.phones, levelled(rendering.audio())
    last = phones[-2].end if len(phones) > 1 else phones[-1].end
    begin = max(0, round((phones[0].start - LEAD) * RATE))
    end = min(audio.size, round((last + TAIL) * RATE))
    shift, length = begin / RATE, (end - begin) / RATE
    moved = [Phone(p.name, p.start - shift, min(p.end - shift, length), p.first) for p in phones]
    return audio[begin:end], [p for p in moved if p.start < length]


@cache
def _spread(bins: int) -> NDArray[np.float64]:
    """(bins, BANDS) mean over triangles around mel-spaced centres."""
    hz = np.linspace(0, RATE / 2, bins)
    mel = 2595 * np.log10(1 + hz / 700)
    centres = np.linspace(0, mel[-1], BANDS)
    # A triangle narrower than a bin would miss all of them.
    width = np.maximum(centres[1], np.interp(centres, mel, np.gradient(mel)))
    near = np.maximum(0, 1 - np.abs(mel[:, None] - centres) / width)
    spread: NDArray[np.float64] = near / near.sum(0)
    return spread


def teachers_f0(rendering: Rendering, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """The teacher's own F0 at these seconds of its audio, in Hz: linear in its logarithm, 0 where unvoiced."""
    hz = rendering.f0.astype(np.float64)
    centres = (np.arange(hz.size) + 0.5) * F0_STEP / RATE
    between = np.exp(np.interp(at, centres, np.log(np.maximum(hz, LOWEST_F0))))
    nearest = np.clip(np.round(at * RATE / F0_STEP - 0.5).astype(int), 0, hz.size - 1)
    found: NDArray[np.float64] = np.where(hz[nearest] > LOWEST_F0, between, 0.0)
    return found


def measure(rendering: Rendering) -> Measured:
    """WORLD's analysis of an utterance."""
    world = pyworld()
    audio, phones = trimmed(rendering)
    at = np.arange(int(audio.size / RATE / STEP) + 1, dtype=np.float64) * STEP
    begin = rendering.phones[0].start - phones[0].start
    f0 = world.stonemask(audio, teachers_f0(rendering, begin + at), at, RATE)
    power = world.cheaptrick(audio, f0, at, RATE)
    noise = world.code_aperiodicity(world.d4c(audio, f0, at, RATE), RATE)
    envelope = 0.5 * np.log(np.maximum(power, 1e-16)) @ _spread(power.shape[1])
    asked = rendering.request
    meta = {
        "number": asked.number,
        "part": asked.part,
        "speaker": asked.speaker,
        "recipe": asked.recipe,
        "language": asked.language,
        "text": asked.text,
        "phones": [[p.name, round(p.start, 4), round(p.end, 4), p.first] for p in phones],
    }
    return Measured(meta, _pack(envelope, _ENVELOPE), _pack(noise, _APERIODICITY), f0.astype(np.float32))


def save(path: Path, rows: Sequence[Measured]) -> None:
    """Writes a shard's features whole or not at all."""
    part = path.with_suffix(".part.npz")
    np.savez_compressed(
        part,
        meta=np.frombuffer(json.dumps([r.meta for r in rows]).encode(), dtype=np.uint8),
        ends=np.cumsum([r.f0.size for r in rows]),
        envelope=np.concatenate([r.envelope for r in rows]),
        aperiodicity=np.concatenate([r.aperiodicity for r in rows]),
        f0=np.concatenate([r.f0 for r in rows]),
    )
    part.rename(path)


def load(path: Path) -> list[Measured]:
    """The utterances of a file."""
    with np.load(path) as z:
        columns = [np.split(z[name], z["ends"][:-1]) for name in ("envelope", "aperiodicity", "f0")]
        meta = json.loads(z["meta"].tobytes())
    return [Measured(*row) for row in zip(meta, *columns, strict=True)]


def _measure_shard(shard: Path, path: Path) -> str:
    rows = [measure(rendering) for rendering in understood(shard)]
    save(path, rows)
    return f"{path.stem}: {sum(r.f0.size for r in rows) * STEP:.0f} s"


def measure_all(folder: Path, jobs: int = 1, most: int | None = None) -> str:
    """Writes ``folder/world`` of every shard that was listened to; what is there is kept, `most` shards are done now."""
    (folder / "world").mkdir(exist_ok=True)
    heard = [p for p in sorted((folder / "speech").glob("?????.npz")) if verdicts_of(p).exists()]
    work = [(p, folder / "world" / p.name) for p in heard if not (folder / "world" / p.name).exists()][:most]
    if jobs == 1:
        for shard, path in work:
            print(_measure_shard(shard, path), flush=True)
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for run in [pool.submit(_measure_shard, shard, path) for shard, path in work]:
                print(run.result(), flush=True)
    return f"{len(list((folder / 'world').glob('?????.npz')))} shards"
