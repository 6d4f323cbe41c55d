"""The teacher model, Kokoro-82M with its packages (training/README.md): renderings, and blends of its voices.

Renderings are cached in data/bench/kokoro, since one second of audio takes 0.6 s of a core.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["blend", "kokoro", "language_of", "rendered", "teachers", "training"]

ROOT = Path(__file__).resolve().parent.parent
KOKORO = "VOICELAB_BENCH_KOKORO"
"""Environment variable for the folder of the teacher's voices, if not that of training."""
_RENDERED = ROOT / "data" / "bench" / "kokoro"
Samples = NDArray[np.float32]
Sound = tuple[Samples, int]


def language_of(text: str) -> str:
    """Return "zh" for a text with Chinese characters, else "en"."""
    return "zh" if re.search("[\u4e00-\u9fff]", text) else "en"


def training(module: str) -> Any:
    """Import a module of the training package, which is only in the repository."""
    if str(ROOT) not in sys.path:  # training is not an installed package
        sys.path.insert(0, str(ROOT))
    return import_module(f"training.{module}")


@cache
def teachers() -> dict[str, str]:
    """Return the teacher's voice of each preset, default first."""
    return {preset.id: preset.teacher for preset in training("export").PRESETS}


@lru_cache(maxsize=1)
def kokoro() -> Any:
    """Load Kokoro with its voices."""
    folder = os.environ.get(KOKORO, ROOT / "build" / "voice" / "kokoro-js" / "package")
    return training("kokoro").Kokoro(Path(folder))


@lru_cache(maxsize=64)
def rendered(recipe: tuple[tuple[str, float], ...], text: str) -> Any:
    """Return the teacher's `Rendering` of a text at its natural rate and style; `recipe` are voices and weights."""
    natural, language = training("render"), language_of(text)
    capitalized = text[0].upper() + text[1:]  # the test sentences begin with lower-case letters
    symbols = training("kokoro").phonemes(capitalized, language)
    key = hashlib.sha256(json.dumps([recipe, symbols]).encode()).hexdigest()[:24]
    path = _RENDERED / f"{key}.npz"
    if not path.exists():
        request = training("plan").Request(0, "bench", "bench", recipe, language, capitalized, 1.0, 0)
        rendering = natural.render_one(kokoro(), request)
        if isinstance(rendering, str):
            raise SystemExit(f"the teacher cannot synthesize {text!r}: {rendering}")
        _RENDERED.mkdir(parents=True, exist_ok=True)
        partial = path.with_stem(f"{key}-{os.getpid()}")
        natural.save_shard(partial, [rendering])
        partial.rename(path)
    return natural.load_shard(path)[0]


def blend(recipe: tuple[tuple[str, float], ...], text: str) -> Sound:
    """Synthesize with a blend of the teacher's voices: trimmed, high-pass filtered, level-normalized."""
    audio, _ = training("trim").trimmed(rendered(recipe, text))
    return audio.astype(np.float32), training("kokoro").RATE
