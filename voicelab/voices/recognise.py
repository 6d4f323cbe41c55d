"""What is said in a recording, when nobody has written it down."""

from __future__ import annotations

import threading
from typing import Any, Protocol, runtime_checkable

import numpy as np

from voicelab.audio.samples import Samples, resample

__all__ = ["PocketRecognizer", "Recognizer", "default_recognizer"]

_RATE = 16_000
_PAD = 0.2


@runtime_checkable
class Recognizer(Protocol):
    """Hears words in speech."""

    def recognise(self, samples: Samples, rate: int) -> str:
        """Return what is said in mono ``samples`` in [-1, 1] at ``rate`` Hz; empty when no word is heard."""
        ...


class PocketRecognizer:
    """pocketsphinx with the US English model inside its wheel: small, quick, and often wrong.

    Safe to use from several threads, which take turns.
    """

    def __init__(self) -> None:
        """Load the model. Raises ImportError when pocketsphinx is not installed."""
        from pocketsphinx import Decoder

        # cmn=batch: each recording is normalised by itself, so that their order cannot matter.
        self._decoder: Any = Decoder(samprate=_RATE, cmn="batch", loglevel="FATAL")
        self._lock = threading.Lock()

    def recognise(self, samples: Samples, rate: int) -> str:
        """Return what is heard, in lower case and without punctuation."""
        sound = resample(samples, rate, _RATE)
        peak = float(np.abs(sound).max(initial=0.0))
        if peak == 0.0:
            return ""
        # The recognizer loses words at a hard edge, and digital silence has no logarithm.
        quiet = np.zeros(int(_PAD * _RATE), np.float32)
        sound = np.concatenate([quiet, sound * np.float32(0.5 / peak), quiet])
        sound += (np.random.default_rng(0).uniform(-2, 2, sound.size) / 32768).astype(np.float32)
        with self._lock:
            self._decoder.start_utt()
            self._decoder.process_raw((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True)
            self._decoder.end_utt()
            found = self._decoder.hyp()
        return str(found.hypstr) if found is not None else ""


def default_recognizer() -> Recognizer | None:
    """Return the recognizer that is installed (the extra ``recognition``), or None."""
    try:
        return PocketRecognizer()
    except ImportError:
        return None
