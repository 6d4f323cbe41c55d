"""The systems that bench/ compares, each a function from text to (mono float32 samples, rate in Hz).

rms, awb, kal16, slt   the teachers: flite's voices, run as the program `flite`
espeak-ng, festival, festival-hts
                       what one could install instead (Debian: espeak-ng, festival, festvox-kallpc16k,
                       festvox-us-slt-hts)
world                  the default teacher's audio analysed and made again by WORLD (Morise et al., 2016; needs pyworld)
codec                  the default teacher's audio through the engine's codec, encoded and decoded
voice                  the embedded voice's default speaker
voice:PRESET           one of its presets
teacher:PRESET         the speaker whom that preset was taught by: a voice of flite or espeak-ng, warped (see training/)
s1                     the default speaker by the small model
kokoro:VOICE           a stock voice of Kokoro-82M, the natural teacher (its packages: training/README.md), such as am_michael
lab:ADDRESS            the default voice of a backend, by the string that voicelab opens it with, such as lab:kokoro:
copy:ROW:VOICE         what a stage of the natural voice's codec leaves of such a voice: see copies.py
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
import wave
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from voicelab.lab import Lab

__all__ = ["NAMES", "TEACHER", "sentences", "speak"]

TEACHERS = ("rms", "awb", "kal16", "slt")
TEACHER = "rms"
"""The default speaker's teacher."""
OTHERS = {
    "espeak-ng": ("espeak-ng", "-v", "en-us", "--stdin", "-w", "{out}"),
    "festival": ("text2wave", "-eval", "(ofkal_diphone)", "-o", "{out}"),
    "festival-hts": ("text2wave", "-eval", "(ofcmu_us_slt_arctic_hts)", "-o", "{out}"),
}
"""Other programs, each with how it is told to read from its input and where to write."""
OURS = ("world", "codec", "voice", "voice:PRESET", "teacher:PRESET", "s1")
OURS = ("world", "codec", "voice", "voice:PRESET", "teacher:PRESET", "s1")
NAMES = (*TEACHERS, *OTHERS, *OURS, "kokoro:VOICE", "lab:ADDRESS", "copy:ROW:VOICE")
ROOT = Path(__file__).resolve().parent.parent
WEIGHTS, RUN = "VOICELAB_BENCH_WEIGHTS", "VOICELAB_BENCH_CODEC_RUN"
KOKORO = "VOICELAB_BENCH_KOKORO"
"""Where the natural teacher's voices are, if not where training puts them."""
HELDOUT = ROOT / "training" / "data" / "heldout.txt"
SEED = 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a command measure other weights than those in the package."""
    parser.add_argument("--weights", type=Path, help="a checkpoint to measure instead of the one in the package")
    parser.add_argument("--codec-run", type=Path, help="a codec still in training, for the system `codec`")


def use(options: argparse.Namespace) -> None:
    """Take what `add_options` read, for this process and those that it starts."""
    for variable, path in ((WEIGHTS, options.weights), (RUN, options.codec_run)):
        if path is not None:
            os.environ[variable] = str(path.resolve())


def sentences(count: int) -> list[str]:
    """Return the first `count` sentences that were kept out of training."""
    lines = [line.strip() for line in HELDOUT.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line][:count]


def teacher(name: str, text: str) -> tuple[NDArray[np.float32], int]:
    """Speak with a voice of flite (must be installed)."""
    return _program(("flite", "-voice", name, "-t", text, "-o", "{out}"))


def _program(command: Sequence[str], said: str = "") -> tuple[NDArray[np.float32], int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        told = [word.format(out=path) if word == "{out}" else word for word in command]
        subprocess.run(told, check=True, capture_output=True, input=said.encode())
        data = path.read_bytes()
    with wave.open(io.BytesIO(data)) as file:
        rate, frames = file.getframerate(), file.readframes(file.getnframes())
    return np.frombuffer(frames, "<i2").astype(np.float32) / np.float32(32768), rate


@lru_cache(maxsize=1)
def lab(device: str | None = None) -> Lab:
    """The embedded voice, or the checkpoint that `use` named; loaded once a process."""
    import voicelab

    if WEIGHTS not in os.environ:
        return voicelab.connect(device=device)
    from voicelab.engine.local import LocalBackend
    from voicelab.lab import Lab

    return Lab(LocalBackend(device, weights=Path(os.environ[WEIGHTS])))


@lru_cache(maxsize=4)
def opened(address: str) -> Lab:
    """A backend by its address; opened once a process."""
    import voicelab

    return voicelab.connect(address)


def voice(text: str, preset: str | None = None, **fields: Any) -> tuple[NDArray[np.float32], int]:
    """Speak with the embedded voice, its defaults untouched except by `fields`."""
    clip = lab().speak(text, voice=preset, seed=SEED, **fields)
    return clip.samples, clip.rate


@lru_cache(maxsize=1)
def the_codec() -> Any:
    """The codec to measure."""
    if RUN in os.environ:
        return training("codec").load(Path(os.environ[RUN]))
    from voicelab.engine.pointer.checkpoint import load

    return load(Path(os.environ[WEIGHTS]) if WEIGHTS in os.environ else None).codec


def training(module: str) -> Any:
    """Import a module of the training, which only the repository has."""
    if str(ROOT) not in sys.path:  # training is a package of the repository, not an installed one
        sys.path.insert(0, str(ROOT))
    return import_module(f"training.{module}")


def taught_by(name: str, otherwise: str = TEACHER) -> str:
    """Return the system of a preset's own teacher, for `voice:PRESET`, and `otherwise` for every other system."""
    kind, _, preset = name.partition(":")
    if kind != "voice" or not preset:
        return otherwise
    speaker = training("export").speaker_of(preset)
    return speaker.teacher if speaker.id < len(TEACHERS) else f"teacher:{preset}"


def at_home_in_english(name: str) -> bool:
    """Whether who taught a preset, `voice:PRESET`, spoke mostly English; the default speaker's teacher did."""
    preset = name.partition(":")[2]
    return not preset or training("export").speaker_of(preset).id < training("mandarin").FIRST_ID


def teacher_of(preset: str, text: str) -> tuple[NDArray[np.float32], int]:
    """Speak as the one whom a preset was taught by (flite's or espeak-ng's library must be installed)."""
    mandarin, render = training("mandarin"), training("render")
    speaker = training("export").speaker_of(preset)
    if speaker.id >= mandarin.FIRST_ID:
        return training("mixed").english(text, speaker).audio(speaker, render.RATE), render.RATE
    program = render.build_teacher(ROOT / "data" / "bench")
    (said,) = render.speak(program, [(text, speaker)])
    return said.audio(speaker, render.RATE), render.RATE


def world(text: str) -> tuple[NDArray[np.float32], int]:
    """The teacher's audio analysed and made again by WORLD, unquantized: what a good classical vocoder loses."""
    import pyworld

    samples, rate = teacher(TEACHER, text)
    double = samples.astype(np.float64)
    f0, at = pyworld.harvest(double, rate)
    envelope = pyworld.cheaptrick(double, f0, at, rate)
    made: NDArray[np.float32] = pyworld.synthesize(f0, envelope, pyworld.d4c(double, f0, at, rate), rate)
    return made.astype(np.float32), rate


def codec(text: str) -> tuple[NDArray[np.float32], int]:
    """The teacher's audio through the codec: what is lost before the language model does anything."""
    import soxr
    import torch

    from voicelab.engine.pointer.speakers import LEVEL

    samples, rate = teacher(TEACHER, text)
    model = the_codec()
    # The engine levels what it encodes to what the codec was trained on.
    active = samples[np.abs(samples) > 0.01]
    samples = samples * np.float32(LEVEL / np.sqrt(np.mean(np.square(active))))
    wide = soxr.resample(samples, rate, model.config.sample_rate).astype(np.float32)
    with torch.inference_mode():
        decoded = model.decode(model.encode(torch.from_numpy(wide)[None]))
    return decoded.reshape(-1).numpy(), model.config.sample_rate


@lru_cache(maxsize=1)
def natural_teacher() -> Any:
    """Return Kokoro, with its voices."""
    folder = os.environ.get(KOKORO, ROOT / "build" / "natural" / "kokoro-js" / "package")
    return training("kokoro").Kokoro(Path(folder))


def kokoro(voice: str, text: str) -> tuple[NDArray[np.float32], int]:
    """Speak with a stock voice of the natural teacher, in its own style and at its own pace."""
    module = training("kokoro")
    # As a sentence is written: the test sentences begin with small letters.
    symbols = module.phonemes(text[0].upper() + text[1:], "en")
    return natural_teacher().speak(symbols, [(voice, 1.0)]).audio, module.RATE


def speak(name: str, text: str) -> tuple[NDArray[np.float32], int]:
    """Speak `text` with the system of that name."""
    if name in TEACHERS:
        return teacher(name, text)
    if name in OTHERS:
        return _program(OTHERS[name], text)
    if name == "world":
        return world(text)
    if name == "codec":
        return codec(text)
    if name == "voice":
        return voice(text)
    if name == "s1":
        return voice(text, model="s1")
    kind, _, preset = name.partition(":")
    if kind == "voice" and preset:
        return voice(text, preset)
    if kind == "teacher" and preset:
        return teacher_of(preset, text)
    if kind == "kokoro" and preset:
        return kokoro(preset, text)
    if kind == "lab" and preset:
        clip = opened(preset).speak(text[0].upper() + text[1:])
        return clip.samples, clip.rate
    if kind == "copy" and preset:
        row, _, of = preset.partition(":")
        copied: tuple[NDArray[np.float32], int] = import_module("copies").copy(row, of, text)
        return copied
    raise SystemExit(f"unknown system {name!r}; the systems are {', '.join(NAMES)}")
