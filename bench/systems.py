"""The systems that bench/ compares, each a function from text to (mono float32 samples, rate in Hz).

kokoro:VOICE           a stock voice of Kokoro-82M, the teacher (its packages: training/README.md), trimmed: kokoro:am_michael
codec, codec:VOICE     the teacher of the default preset, or another of its voices, through the engine's codec
voice, voice:PRESET    the embedded voice's default preset, or another
s1, s1:PRESET         the same by the small model
old:SYSTEM             any of these three by the weights that --against names, such as old:voice:clara
flite:VOICE            a voice of the program `flite` (Debian's flite): rms, awb, kal16, slt
lab:ADDRESS            the default voice of a backend, by the string that voicelab opens it with, such as lab:kokoro:

What the teacher says is kept in data/bench/kokoro, since a second of it takes .6 s of a core.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import wave
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soxr
from numpy.typing import NDArray

if TYPE_CHECKING:
    from voicelab.lab import Lab

__all__ = ["NAMES", "sentences", "speak", "taught_by"]

NAMES = (
    *("kokoro:VOICE", "codec", "codec:VOICE", "voice", "voice:PRESET", "s1", "s1:PRESET"),
    *("old:SYSTEM", "flite:VOICE", "lab:ADDRESS"),
)
ROOT = Path(__file__).resolve().parent.parent
WEIGHTS, OLD = "VOICELAB_BENCH_WEIGHTS", "VOICELAB_BENCH_OLD_WEIGHTS"
KOKORO = "VOICELAB_BENCH_KOKORO"
"""Where the teacher's voices are, if not where training puts them."""
_RENDERED = ROOT / "data" / "bench" / "kokoro"
_HELD_OUT = {"en": "heldout.txt", "zh": "heldout_zh.txt"}
SEED = 0
Samples = NDArray[np.float32]
Sound = tuple[Samples, int]


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


def language_of(text: str) -> str:
    """Return "zh" for what has a Chinese character in it, or else "en"."""
    return "zh" if re.search("[\u4e00-\u9fff]", text) else "en"


def sentences(count: int, language: str = "en") -> list[str]:
    """Return the first `count` sentences that were kept out of training."""
    text = (ROOT / "training" / "data" / _HELD_OUT[language]).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip()][:count]


def training(module: str) -> Any:
    """Import a module of the training, which only the repository has."""
    if str(ROOT) not in sys.path:  # training is a package of the repository, not an installed one
        sys.path.insert(0, str(ROOT))
    return import_module(f"training.{module}")


# ---- the teacher


@cache
def teachers() -> dict[str, str]:
    """Return the teacher's voice of each preset, the default one first."""
    return {preset.id: preset.teacher for preset in training("export").PRESETS}


def taught_by(name: str) -> str | None:
    """Return the teacher's voice that a system repeats, or is; None where there is none, or that is not known."""
    kind, _, which = name.partition(":")
    if kind in ("voice", "s1"):
        return teachers()[which or next(iter(teachers()))]
    if kind == "codec" and not which:
        return next(iter(teachers().values()))
    return which if kind in ("kokoro", "codec") else None


@lru_cache(maxsize=1)
def kokoro() -> Any:
    """Return Kokoro, with its voices."""
    folder = os.environ.get(KOKORO, ROOT / "build" / "voice" / "kokoro-js" / "package")
    return training("kokoro").Kokoro(Path(folder))


@lru_cache(maxsize=64)
def rendered(recipe: tuple[tuple[str, float], ...], text: str) -> Any:
    """Return the teacher's `Rendering` of a text, at its own pace and in its own style; `recipe` are voices and weights."""
    natural, language = training("render"), language_of(text)
    written = text[0].upper() + text[1:]  # the test sentences begin with small letters
    symbols = training("kokoro").phonemes(written, language)
    key = hashlib.sha256(json.dumps([recipe, symbols]).encode()).hexdigest()[:24]
    path = _RENDERED / f"{key}.npz"
    if not path.exists():
        request = training("plan").Request(0, "bench", "bench", recipe, language, written, 1.0, 0)
        said = natural.render_one(kokoro(), request)
        if isinstance(said, str):
            raise SystemExit(f"the teacher cannot say {text!r}: {said}")
        _RENDERED.mkdir(parents=True, exist_ok=True)
        mine = path.with_stem(f"{key}-{os.getpid()}")
        natural.save_shard(mine, [said])
        mine.rename(path)
    return natural.load_shard(path)[0]


def blend(recipe: tuple[tuple[str, float], ...], text: str) -> Sound:
    """Speak as a blend of the teacher's voices: trimmed, without rumble, at one level."""
    audio, _ = training("trim").trimmed(rendered(recipe, text))
    return audio.astype(np.float32), training("kokoro").RATE


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


def through_codec(samples: Samples, rate: int, variable: str = WEIGHTS) -> Sound:
    """What the codec leaves of audio that is at the level of its training: before the language model does anything."""
    import torch

    model = _codec(variable)
    wide = soxr.resample(samples, rate, model.config.sample_rate).astype(np.float32)
    wide = np.pad(wide, (0, -wide.size % model.config.hop))
    with torch.inference_mode():
        decoded = model.decode(model.encode(torch.from_numpy(wide)[None]))
    return decoded.reshape(-1).numpy(), model.config.sample_rate


def _ours(kind: str, which: str, text: str, variable: str) -> Sound:
    if kind == "codec":
        return through_codec(*blend(((which or taught_by("codec") or "", 1.0),), text), variable)
    model: dict[str, Any] = {"model": "s1"} if kind == "s1" else {}
    clip = lab(variable=variable).speak(text, voice=which or None, seed=SEED, **model)
    return clip.samples, clip.rate


# ---- others


def _program(command: Sequence[str]) -> Sound:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        subprocess.run([*command, str(path)], check=True, capture_output=True)
        data = path.read_bytes()
    with wave.open(io.BytesIO(data)) as file:
        rate, frames = file.getframerate(), file.readframes(file.getnframes())
    return np.frombuffer(frames, "<i2").astype(np.float32) / np.float32(32768), rate


def speak(name: str, text: str) -> Sound:
    """Speak `text` with the system of that name."""
    kind, _, which = name.partition(":")
    variable = WEIGHTS
    if kind == "old":
        variable, (kind, _, which) = OLD, which.partition(":")
    if kind in ("codec", "voice", "s1"):
        return _ours(kind, which, text, variable)
    if kind == "kokoro" and which:
        return blend(((which, 1.0),), text)
    if kind == "flite" and which:
        return _program(("flite", "-voice", which, "-t", text, "-o"))
    if kind == "lab" and which:
        clip = _opened(which).speak(text[0].upper() + text[1:])
        return clip.samples, clip.rate
    raise SystemExit(f"unknown system {name!r}; the systems are {', '.join(NAMES)}")
