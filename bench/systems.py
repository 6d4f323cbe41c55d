"""Systems compared by bench/, each a function from text to (mono float32 samples, rate in Hz).

kokoro:VOICE           a stock voice of Kokoro-82M, the teacher (packages: training/README.md), trimmed: kokoro:am_michael
codec, codec:VOICE     the default preset's teacher, or another of its voices, through the engine's codec
voice, voice:PRESET    the embedded voice's default preset, or another
s1, s1:PRESET          the same with the small model
old:SYSTEM             any of these three with the weights of --against, such as old:voice:clara
flite:VOICE            a voice of the program `flite` (Debian's flite): rms, awb, kal16, slt
lab:ADDRESS            the default voice of a backend, by its address, such as lab:kokoro:
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
    """Add the option for other weights than those of the package."""
    parser.add_argument("--weights", type=Path, help="checkpoint to measure instead of the packaged one")


def add_old(parser: argparse.ArgumentParser) -> None:
    """Add the option for older weights in the same run."""
    parser.add_argument("--against", type=Path, metavar="WEIGHTS", help="checkpoint to compare with")


def use(options: argparse.Namespace) -> None:
    """Apply the options of `add_options` and `add_old` to this process and its children."""
    for variable, path in ((WEIGHTS, options.weights), (OLD, getattr(options, "against", None))):
        if path is not None:
            os.environ[variable] = str(path.resolve())


def sentences(count: int, language: str = "en", path: Path | None = None) -> list[str]:
    """Return the first `count` lines of a file, by default of the held-out sentences."""
    path = path or teaching.ROOT / "training" / "data" / _HELD_OUT[language]
    text = path.read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip()][:count]


def taught_by(name: str) -> str | None:
    """Return the teacher's voice of a system; None if it has none."""
    kind, _, voice = name.removeprefix("old:").partition(":")
    if kind in ("voice", "s1"):
        return teaching.teachers()[voice or next(iter(teaching.teachers()))]
    if kind == "codec" and not voice:
        return next(iter(teaching.teachers().values()))
    return voice if kind in ("kokoro", "codec") else None


# ---- voicelab


def lab(device: str | None = None, variable: str = WEIGHTS) -> Lab:
    """Return the lab of the embedded voice or of the weights selected by `use`; loaded once per process."""
    return _loaded(device, variable)


@lru_cache(maxsize=2)
def _loaded(device: str | None, variable: str) -> Lab:
    import voicelab

    if variable not in os.environ:
        if variable == OLD:
            raise SystemExit("old:… requires --against")
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
    """Encode and decode audio with the codec, at the level of its training data."""
    model = _codec(variable)
    wide = soxr.resample(samples, rate, model.config.sample_rate).astype(np.float32)
    wide = np.pad(wide, (0, -wide.size % model.config.hop))
    decoded = model.open().feed(model.quantize(model.latents(wide)), final=True)
    return decoded, model.config.sample_rate


def _voicelab(kind: str, voice: str, text: str, variable: str) -> teaching.Sound:
    if kind == "codec":
        return through_codec(*teaching.blend(((voice or taught_by("codec") or "", 1.0),), text), variable)
    model: dict[str, Any] = {"model": "s1"} if kind == "s1" else {}
    clip = lab(variable=variable).speak(text, voice=voice or None, seed=SEED, **model)
    return clip.samples, clip.rate


# ---- other systems


def _program(command: Sequence[str]) -> teaching.Sound:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "output.wav"
        subprocess.run([*command, str(path)], check=True, capture_output=True)
        data = path.read_bytes()
    with wave.open(io.BytesIO(data)) as file:
        rate, frames = file.getframerate(), file.readframes(file.getnframes())
    return np.frombuffer(frames, "<i2").astype(np.float32) / np.float32(32768), rate


def speak(name: str, text: str) -> teaching.Sound:
    """Synthesize `text` with a system, by name."""
    kind, _, voice = name.partition(":")
    variable = WEIGHTS
    if kind == "old":
        variable, (kind, _, voice) = OLD, voice.partition(":")
    if kind in ("codec", "voice", "s1"):
        return _voicelab(kind, voice, text, variable)
    if kind == "kokoro" and voice:
        return teaching.blend(((voice, 1.0),), text)
    if kind == "flite" and voice:
        return _program(("flite", "-voice", voice, "-t", text, "-o"))
    if kind == "lab" and voice:
        clip = _opened(voice).speak(text[0].upper() + text[1:])
        return clip.samples, clip.rate
    raise SystemExit(f"the system must be one of {', '.join(NAMES)}, got {name!r}")
