"""Speech recognizers and the choice of a default one.

``VOICELAB_RECOGNIZER`` selects it: ``faster-whisper:MODEL`` (a folder with weights, or a model name such as ``small.en``,
downloaded once by its library), ``faster-whisper`` (the most accurate weights on this machine), ``pocketsphinx`` or
``none``. A selected recognizer that is unavailable is an error; by default the most accurate available one is used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from voicelab.audio.samples import Samples, resample
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.storage import read_published

_RATE: Final = 16_000
"""Input sample rate of the recognizers in Hz."""

PADDING_S: Final = 0.2
"""Silence at both ends of a pocketsphinx input, in seconds."""

_VARIABLE = "VOICELAB_RECOGNIZER"
# By accuracy; the most accurate runs in real time on one core of a laptop.
_WHISPER_MODELS = ("small.en", "small", "base.en", "base", "tiny.en", "tiny")

_POCKETSPHINX_SHA256 = (  # of the model in 5.1.1, and in 5.0.4
    "2deaa14d2364b2046ea1626413168f2256302e3efd5ae3e16e1fe4db0d285e9c",
    "536777c2f92f9934b3e6a68557e26a7eb0c08e25887009594329cc9ae8511f3a",
)


@runtime_checkable
class Recognizer(Protocol):
    """Protocol for speech recognizers."""

    def recognise(self, samples: Samples, rate: int) -> str:
        """Transcribe mono ``samples`` in [-1, 1] at ``rate`` Hz; "" when no word is recognized."""
        ...


class PocketRecognizer:
    """pocketsphinx with the US English model inside its wheel: small, fast, and inaccurate.

    Thread-safe; calls are serialized. ``name`` is its value of ``VOICELAB_RECOGNIZER``.
    """

    name: Final = "pocketsphinx"
    worth: Final = (
        "It often misrecognizes clear speech, natural voices most: WER 31 % for Kokoro's bf_emma and 10 % for flite's rms, "
        "by Whisper base 1 % and 2 %. So do not rank systems by it; faster-whisper is more accurate (the extra whisper)."
    )

    def __init__(self) -> None:
        """Load the model. Raises ImportError when pocketsphinx is not installed."""
        self._decoder = pocketsphinx_decoder()
        self._lock = threading.Lock()

    def recognise(self, samples: Samples, rate: int) -> str:
        """Transcribe in lower case, without punctuation."""
        if not samples.any():
            return ""
        audio = pocketsphinx_input(samples, rate)
        with self._lock:
            decode(self._decoder, audio)
            hypothesis = self._decoder.hyp()
        return str(hypothesis.hypstr) if hypothesis is not None else ""


class WhisperRecognizer:
    """faster-whisper (the extra ``whisper``), the recommended recognizer.

    ``name`` is its value of ``VOICELAB_RECOGNIZER``, with the last component of a folder's path only.

    Args:
        model: model name, or folder with CTranslate2 weights.
        fetch: let the library download missing weights by name into its cache; ``HF_HUB_OFFLINE=1`` prevents it.
    """

    def __init__(self, model: str = "base.en", *, fetch: bool = False) -> None:
        """Load the weights. Raises ImportError without faster-whisper, and its errors for missing weights."""
        from faster_whisper import WhisperModel

        # Published tables must not contain paths of this machine.
        self.name = f"faster-whisper:{Path(model).name}"
        self._model: Any = WhisperModel(model, device="cpu", compute_type="int8", local_files_only=not fetch)

    def recognise(self, samples: Samples, rate: int) -> str:
        """Transcribe with punctuation, deterministically."""
        # Temperature fallback samples at random, and conditioning on earlier text spreads errors.
        options: dict[str, Any] = {"beam_size": 5, "temperature": 0.0, "condition_on_previous_text": False}
        segments, _ = self._model.transcribe(resample(samples, rate, _RATE), **options)
        return " ".join(str(segment.text).strip() for segment in segments)


def default_recognizer() -> PocketRecognizer | WhisperRecognizer | None:
    """Load the recognizer of ``VOICELAB_RECOGNIZER`` (None for ``none``), by default the most accurate available.

    Raises ArgumentError for an invalid value and unavailable weights, MissingExtra for a package that is not installed.
    """
    choice = os.environ.get(_VARIABLE, "")
    name, _, model = choice.partition(":")
    if name not in {"", "pocketsphinx", "faster-whisper", "none"} or (model and name != "faster-whisper"):
        message = f"{_VARIABLE} must be pocketsphinx, faster-whisper, faster-whisper:MODEL or none, got {choice!r}"
        raise ArgumentError(message, argument=_VARIABLE)
    if name == "none":
        return None
    if name != "pocketsphinx":
        try:
            if not model:
                return _local_whisper()
            is_folder = Path(model).is_dir() or len(Path(model).parts) > 2  # hub models are ACCOUNT/MODEL
            return WhisperRecognizer(model, fetch=not is_folder)
        except Exception as error:  # its exceptions for missing or damaged weights are undocumented
            if name:
                raise _whisper_error(model, error) from error
    try:
        return PocketRecognizer()
    except ImportError as error:
        if name:
            raise MissingExtra.of("recognition", f"{_VARIABLE}={name}") from error
        return None


def _local_whisper() -> WhisperRecognizer:
    for model in _WHISPER_MODELS[:-1]:
        with suppress(OSError, RuntimeError, ValueError):  # missing or damaged weights
            return WhisperRecognizer(model)
    return WhisperRecognizer(_WHISPER_MODELS[-1])


def _whisper_error(model: str, error: Exception) -> MissingExtra | ArgumentError:
    if isinstance(error, ImportError):
        return MissingExtra.of("whisper", f"{_VARIABLE}=faster-whisper")
    weights = f"the weights {model!r}" if model else f"weights of {', '.join(_WHISPER_MODELS)}"
    message = (
        f"{_VARIABLE}: {weights} are not on this machine, and could not be fetched: name a folder that holds them, "
        f"faster-whisper:PATH, or pocketsphinx ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    )
    return ArgumentError(message, argument=_VARIABLE)


def pocketsphinx_decoder(**options: Any) -> Any:
    """Load a decoder after verifying its model's checksum. Raises ImportError, WeightsError."""
    from pocketsphinx import Decoder, get_model_path

    model = Path(get_model_path()) / "en-us"
    files = sorted(path for path in model.rglob("*") if path.is_file() and path.name != "README")
    read_published("pocketsphinx", files, *_POCKETSPHINX_SHA256)
    return Decoder(samprate=_RATE, cmn="batch", loglevel="FATAL", **options)


def decode(decoder: Any, audio: npt.NDArray[np.int16]) -> None:
    """Decode a recording, independently of earlier recordings."""
    # cmn=batch normalizes each recording by itself, but the front end keeps state between recordings.
    decoder.reinit_feat()
    decoder.start_utt()
    decoder.process_raw(audio.tobytes(), full_utt=True)
    decoder.end_utt()


def pocketsphinx_input(
    samples: Samples, rate: int, preprocess: Callable[[Samples, int], Samples] | None = None
) -> npt.NDArray[np.int16]:
    """Convert to 16-bit samples at 16 kHz with a fixed peak and ``PADDING_S`` of dithered silence at both ends."""
    audio = resample(samples, rate, _RATE)
    if preprocess is not None:
        audio = preprocess(audio, _RATE)
    peak = float(np.abs(audio).max(initial=0.0))
    # It skips words at a hard edge, and the logarithm of digital silence is infinite.
    silence = np.zeros(int(PADDING_S * _RATE), np.float32)
    audio = np.concatenate([silence, audio * np.float32(0.5 / max(peak, 1e-9)), silence])
    audio += (np.random.default_rng(0).uniform(-2, 2, audio.size) / 32768).astype(np.float32)
    return (np.clip(audio, -1, 1) * 32767).astype("<i2")
