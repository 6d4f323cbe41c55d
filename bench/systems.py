"""The systems that bench/ compares, each a function from text to (mono float32 samples, rate in Hz).

kokoro:VOICE           a stock voice of Kokoro-82M, the teacher (its packages: training/README.md), trimmed: kokoro:am_michael
codec, codec:VOICE     the teacher of the default preset, or another of its voices, through the engine's codec
voice, voice:PRESET    the embedded voice's default preset, or another
s1, s1:PRESET         the same by the small model
old:SYSTEM             any of these three by the weights that --against names, such as old:voice:clara
flite:VOICE            a voice of the program `flite` (Debian's flite): rms, awb, kal16, slt
lab:ADDRESS            the default voice of a backend, by the string that voicelab opens it with, such as lab:kokoro:
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import tempfile
import wave
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soxr
import teaching

if TYPE_CHECKING:
    from voicelab.lab import Lab

__all__ = ["NAMES", "sentences", "speak", "taught_by"]

NAMES = (
    *("kokoro:VOICE", "codec", "codec:VOICE", "voice", "voice:PRESET", "s1", "s1:PRESET"),
    *("old:SYSTEM", "flite:VOICE", "lab:ADDRESS"),
)
WEIGHTS, OLD = "VOICELAB_BENCH_WEIGHTS", "VOICELAB_BENCH_OLD_WEIGHTS"
_HELD_OUT = {"en": "heldout.txt", "zh": "heldout_zh.txt"}
SEED = 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a command measure other weights than those in the package."""
    parser.add_argument("--weights", type=Path, help="a checkpoint to measure instead of the one in the package")


def add_old(parser: argparse.ArgumentParser) -> None:
    """Let a command measure older weights in the same run."""
    parser.add_argument("--against", type=Path, metavar="WEIGHTS", help="a checkpoint to measure beside it")


def use(options: argparse.Namespace) -> None:
    """Take what `add_options` and `add_old` read, for this process and those that it starts."""
    for variable, path in ((WEIGHTS, options.weights), (OLD, getattr(options, "against", None))):
        if path is not None:
            os.environ[variable] = str(path.resolve())


def sentences(count: int, language: str = "en", path: Path | None = None) -> list[str]:
    """Return the first `count` lines of a file; without one, of the sentences that were kept out of training."""
    path = path or teaching.ROOT / "training" / "data" / _HELD_OUT[language]
    text = path.read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip()][:count]


def taught_by(name: str) -> str | None:
    """Return the teacher's voice that a system repeats, or is; None where there is none, or that is not known."""
    kind, _, which = name.removeprefix("old:").partition(":")
    if kind in ("voice", "s1"):
        return teaching.teachers()[which or next(iter(teaching.teachers()))]
    if kind == "codec" and not which:
        return next(iter(teaching.teachers().values()))
    return which if kind in ("kokoro", "codec") else None


# ---- ours


def lab(device: str | None = None, variable: str = WEIGHTS) -> Lab:
    """The embedded voice, or the checkpoint that `use` named, or with `OLD` the other one; loaded once a process."""
    return _loaded(device, variable)


@lru_cache(maxsize=2)
def _loaded(device: str | None, variable: str) -> Lab:
    import voicelab

    if variable not in os.environ:
        if variable == OLD:
            raise SystemExit("--against names the weights of old:…")
        return voicelab.connect(device=device)
    from voicelab.engine.local import LocalBackend
    from voicelab.lab import Lab

    return Lab(LocalBackend(device, weights=Path(os.environ[variable])))


@lru_cache(maxsize=4)
def _opened(address: str) -> Lab:
    import voicelab

    return voicelab.connect(address)


@lru_cache(maxsize=2)
def _codec(variable: str) -> Any:
    from voicelab.engine.pointer.checkpoint import load

    return load(Path(os.environ[variable]) if variable in os.environ else None).codec


def through_codec(samples: teaching.Samples, rate: int, variable: str = WEIGHTS) -> teaching.Sound:
    """What the codec leaves of audio that is at the level of its training: before the language model does anything."""
    import torch

    model = _codec(variable)
    wide = soxr.resample(samples, rate, model.config.sample_rate).astype(np.float32)
    wide = np.pad(wide, (0, -wide.size % model.config.hop))
    with torch.inference_mode():
        decoded = model.decode(model.encode(torch.from_numpy(wide)[None]))
    return decoded.reshape(-1).numpy(), model.config.sample_rate


def _ours(kind: str, which: str, text: str, variable: str) -> teaching.Sound:
    if kind == "codec":
        return through_codec(*teaching.blend(((which or taught_by("codec") or "", 1.0),), text), variable)
    model: dict[str, Any] = {"model": "s1"} if kind == "s1" else {}
    clip = lab(variable=variable).speak(text, voice=which or None, seed=SEED, **model)
    return clip.samples, clip.rate


# ---- others


def _program(command: Sequence[str]) -> teaching.Sound:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        subprocess.run([*command, str(path)], check=True, capture_output=True)
        data = path.read_bytes()
    with wave.open(io.BytesIO(data)) as file:
        rate, frames = file.getframerate(), file.readframes(file.getnframes())
    return np.frombuffer(frames, "<i2").astype(np.float32) / np.float32(32768), rate


def speak(name: str, text: str) -> teaching.Sound:
    """Speak `text` with the system of that name."""
    kind, _, which = name.partition(":")
    variable = WEIGHTS
    if kind == "old":
        variable, (kind, _, which) = OLD, which.partition(":")
    if kind in ("codec", "voice", "s1"):
        return _ours(kind, which, text, variable)
    if kind == "kokoro" and which:
        return teaching.blend(((which, 1.0),), text)
    if kind == "flite" and which:
        return _program(("flite", "-voice", which, "-t", text, "-o"))
    if kind == "lab" and which:
        clip = _opened(which).speak(text[0].upper() + text[1:])
        return clip.samples, clip.rate
    raise SystemExit(f"unknown system {name!r}; the systems are {', '.join(NAMES)}")
