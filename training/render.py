"""Asks the teachers: audio, phones with exact times, and F0, into shards on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np
import soxr
from numpy.typing import NDArray

from training import corpus
from training.speakers import Speaker, all_speakers, draw, mood

SOURCE = Path(__file__).parent / "teachers" / "flite_teacher.c"
RATE = 44_100
LEVEL = 0.07
"""RMS of every utterance after rendering (about -23 dBFS)."""
PER_SHARD = 250


@dataclass(frozen=True)
class Phone:
    """A phone as the teacher spoke it."""

    name: str
    """flite's phone, with its syllable's stress (0 or 1) after a vowel; a pause is its punctuation, one of ``^ , . ? !``."""
    end: float
    """Seconds from the beginning of the audio."""
    word: str
    first: bool
    """Whether a word begins here."""


@dataclass(frozen=True)
class Utterance:
    """One rendering; times and F0 are those of the audio that `audio()` gives."""

    text: str
    speaker: int
    phones: tuple[Phone, ...]
    raw: NDArray[np.int16]
    """What the teacher said, at `raw_rate` before the speaker's formant warp."""
    raw_rate: int
    f0: NDArray[np.float32]
    """Hz, 0 where unvoiced, one value every `f0_step` seconds."""
    f0_step: float

    def audio(self, speaker: Speaker, rate: int = RATE) -> NDArray[np.float32]:
        """Samples at `rate` Hz: tilted, warped by resampling, levelled."""
        samples = self.raw.astype(np.float32) / 32768
        samples = np.append(samples[:1], samples[1:] - speaker.tilt * samples[:-1])
        samples = soxr.resample(samples, self.raw_rate * speaker.formants, rate, quality="HQ")
        active = samples[np.abs(samples) > 0.01]
        rms = float(np.sqrt(np.mean(np.square(active if active.size > 100 else samples)))) or 1.0
        levelled: NDArray[np.float32] = np.clip(samples * (LEVEL / rms), -1, 1).astype(np.float32)
        return levelled


def build_teacher(folder: Path) -> Path:
    """Compiles the teacher against Debian's libflite; returns the program."""
    program = folder / "flite_teacher"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        voices = [f"-lflite_cmu_us_{v}" for v in ("rms", "awb", "slt", "kal16")]
        subprocess.run(
            [
                "cc",
                "-O2",
                str(SOURCE),
                "-o",
                str(program),
                *voices,
                "-lflite_usenglish",
                "-lflite_cmulex",
                "-lflite",
                "-lm",
            ],
            check=True,
        )
    return program


VOWELS = {"aa", "ae", "ah", "ao", "aw", "ax", "ay", "eh", "er", "ey", "ih", "iy", "ow", "oy", "uh", "uw"}


def _pause_name(punctuation: str, at: int, count: int) -> str:
    if at == 0:
        return "^"
    for mark in "?!":
        if mark in punctuation:
            return mark
    return "." if at == count - 1 or "." in punctuation else ","


def _read(out: IO[bytes], text: str, speaker: Speaker) -> Utterance:
    n_samples, rate, n_phones, n_f0, step = out.readline().split()
    rows = [out.readline().decode().rstrip("\n").split("\t") for _ in range(int(n_phones))]
    raw = np.frombuffer(out.read(2 * int(n_samples)), dtype=np.int16)
    f0 = np.frombuffer(out.read(4 * int(n_f0)), dtype=np.float32) * speaker.formants
    phones = []
    for at, (name, end, stress, first, word, punctuation) in enumerate(rows):
        said = name + stress if name in VOWELS else name
        if name == "pau":
            said = _pause_name(punctuation, at, len(rows))
        phones.append(Phone(said, float(end) / speaker.formants, word, first == "1"))
    return Utterance(text, speaker.id, tuple(phones), raw, int(rate), f0, float(step) / speaker.formants)


def speak(program: Path, requests: Iterable[tuple[str, Speaker]]) -> Iterator[Utterance]:
    """One utterance a (text, speaker)."""
    with subprocess.Popen([str(program), "speak"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        if run.stdin is None or run.stdout is None:
            sys.exit("the teacher's pipes did not open")
        for text, speaker in requests:
            numbers = (speaker.stretch * speaker.formants, speaker.f0_ratio, speaker.f0_spread, speaker.tune)
            asked = "\t".join([speaker.teacher, *(f"{n:.4f}" for n in numbers), text])
            run.stdin.write(f"{asked}\n".encode())
            run.stdin.flush()
            yield _read(run.stdout, text, speaker)
        run.stdin.close()


def save_shard(path: Path, utterances: list[Utterance]) -> None:
    """Writes a shard whole or not at all."""
    meta = [
        {
            "text": u.text,
            "speaker": u.speaker,
            "phones": [list(asdict(p).values()) for p in u.phones],
            "raw_rate": u.raw_rate,
            "f0_step": u.f0_step,
        }
        for u in utterances
    ]
    part = path.with_suffix(".part.npz")
    np.savez(
        part,
        meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
        raw=np.concatenate([u.raw for u in utterances]),
        raw_ends=np.cumsum([u.raw.size for u in utterances]),
        f0=np.concatenate([u.f0 for u in utterances]).astype(np.float32),
        f0_ends=np.cumsum([u.f0.size for u in utterances]),
    )
    part.rename(path)


def load_shard(path: Path) -> list[Utterance]:
    """The utterances of a shard."""
    with np.load(path) as z:
        meta = json.loads(z["meta"].tobytes())
        raw = np.split(z["raw"], z["raw_ends"][:-1])
        f0 = np.split(z["f0"], z["f0_ends"][:-1])
    return [
        Utterance(m["text"], m["speaker"], tuple(Phone(*p) for p in m["phones"]), r, m["raw_rate"], f, m["f0_step"])
        for m, r, f in zip(meta, raw, f0, strict=True)
    ]


def _render_shard(path: Path, program: Path, requests: list[tuple[str, Speaker]]) -> float:
    utterances = list(speak(program, requests))
    save_shard(path, utterances)
    return sum(u.phones[-1].end for u in utterances)


def render(folder: Path, count: int, jobs: int = 2) -> None:
    """Renders `count` utterances into ``folder/shards``; shards that are there are kept."""
    program = build_teacher(folder)
    shards = folder / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    speakers = all_speakers()
    rng = np.random.default_rng(6)
    requests = [(t, mood(speakers[int(s)], rng)) for t, s in zip(corpus.sentences(count), draw(count), strict=True)]
    work = [(shards / f"{i // PER_SHARD:04d}.npz", requests[i : i + PER_SHARD]) for i in range(0, count, PER_SHARD)]
    with ProcessPoolExecutor(jobs) as pool:
        runs = [pool.submit(_render_shard, path, program, part) for path, part in work if not path.exists()]
        for run in runs:
            print(f"shard of {run.result():.0f} s", flush=True)
