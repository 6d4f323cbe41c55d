"""What is said in a recording, when nobody has written it down.

``VOICELAB_RECOGNIZER`` chooses who listens: ``pocketsphinx``, ``faster-whisper`` or ``faster-whisper:MODEL`` (a name
such as ``small.en``, whose weights must be on this machine already, or a folder that holds them), ``none``; without it
the best that is there.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from voicelab.audio.samples import Samples, resample
from voicelab.errors import RequestInvalid, install_command

__all__ = ["PRONOUNCED", "PocketRecognizer", "Recognizer", "WhisperRecognizer", "as_heard", "default_recognizer"]

PRONOUNCED: Final = 16_000
"""Sample rate in Hz that recognizers listen at."""

_LOG = logging.getLogger("voicelab.voices")
_PAD = 0.2
_VARIABLE = "VOICELAB_RECOGNIZER"
_WHISPER = "base.en"


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
        self._decoder: Any = Decoder(samprate=PRONOUNCED, cmn="batch", loglevel="FATAL")
        self._lock = threading.Lock()

    def recognise(self, samples: Samples, rate: int) -> str:
        """Return what is heard, in lower case and without punctuation."""
        if not samples.any():
            return ""
        sound = as_heard(samples, rate)
        with self._lock:
            self._decoder.start_utt()
            self._decoder.process_raw(sound.tobytes(), full_utt=True)
            self._decoder.end_utt()
            found = self._decoder.hyp()
        return str(found.hypstr) if found is not None else ""


class WhisperRecognizer:
    """faster-whisper (the extra ``whisper``) with weights that are on this machine; it downloads none.

    Args:
        model: a name, or a folder with weights for CTranslate2.
    """

    def __init__(self, model: str = _WHISPER) -> None:
        """Load the weights. Raises ImportError when faster-whisper is not installed; without weights what it raises."""
        from faster_whisper import WhisperModel

        self._model: Any = WhisperModel(model, device="cpu", compute_type="int8", local_files_only=True)

    def recognise(self, samples: Samples, rate: int) -> str:
        """Return what is heard, with punctuation."""
        segments, _ = self._model.transcribe(resample(samples, rate, PRONOUNCED), beam_size=5)
        return " ".join(str(segment.text).strip() for segment in segments)


def default_recognizer() -> Recognizer | None:
    """Return who listens by ``VOICELAB_RECOGNIZER``, None when nobody does.

    Who cannot be had is left out for the next, and the log says why. Raises RequestInvalid for another word.
    """
    chosen = os.environ.get(_VARIABLE, "")
    name, _, model = chosen.partition(":")
    if name not in {"", "pocketsphinx", "faster-whisper", "none"} or (model and name != "faster-whisper"):
        message = f"{_VARIABLE} should be pocketsphinx, faster-whisper, faster-whisper:MODEL or none, not {chosen!r}"
        raise RequestInvalid.of("recognizer", message)
    if name == "none":
        return None
    if name != "pocketsphinx":
        try:
            return WhisperRecognizer(model or _WHISPER)
        except Exception as error:  # noqa: BLE001 - what it raises for missing or broken weights is its own affair
            missing = isinstance(error, ImportError)
            # One who did not ask for it need not know that it is not there.
            level = logging.WARNING if name else logging.DEBUG if missing else logging.INFO
            why = f"it is not installed ({install_command('whisper')})" if missing else str(error)
            _LOG.log(level, "faster-whisper is not used, but pocketsphinx: %s", why)
    try:
        return PocketRecognizer()
    except ImportError:
        return None


def as_heard(
    samples: Samples, rate: int, change: Callable[[Samples, int], Samples] | None = None
) -> npt.NDArray[np.int16]:
    """Return 16-bit samples at ``PRONOUNCED`` Hz as pocketsphinx likes them, at one level, with quiet around them."""
    sound = resample(samples, rate, PRONOUNCED)
    if change is not None:
        sound = change(sound, PRONOUNCED)
    peak = float(np.abs(sound).max(initial=0.0))
    # It loses words at a hard edge, and digital silence has no logarithm.
    quiet = np.zeros(int(_PAD * PRONOUNCED), np.float32)
    sound = np.concatenate([quiet, sound * np.float32(0.5 / max(peak, 1e-9)), quiet])
    sound += (np.random.default_rng(0).uniform(-2, 2, sound.size) / 32768).astype(np.float32)
    return (np.clip(sound, -1, 1) * 32767).astype("<i2")
