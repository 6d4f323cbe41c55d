"""Speech recognizers by name.

``VOICELAB_RECOGNIZER`` selects the recognizer for WER, CER and transcripts: ``faster-whisper`` (multilingual Whisper base,
the default), ``faster-whisper:MODEL`` (a model name such as ``large-v3``, or a folder with weights), ``paraformer``
(Mandarin), ``pocketsphinx`` or ``none``. Their libraries fetch missing weights at first use, unless ``HF_HUB_OFFLINE`` is
set.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from voicelab.audio.samples import Samples, resample
from voicelab.audio.words import WordTime
from voicelab.distribution import install_command
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.storage import read_published

_RATE: Final = 16_000
"""Input sample rate of the recognizers in Hz."""

PADDING_S: Final = 0.2
"""Silence at both ends of a pocketsphinx input, in seconds."""

_VARIABLE = "VOICELAB_RECOGNIZER"
_WHISPER: Final = "faster-whisper"
_NAMES: Final = (_WHISPER, "paraformer", "pocketsphinx")
DEFAULT_WHISPER: Final = "base"
"""Default Whisper model: multilingual, 145 MB, real time on one core of a laptop."""

_POCKETSPHINX_SHA256 = (  # of the model in version 5.1.1, and in 5.0.4
    "2deaa14d2364b2046ea1626413168f2256302e3efd5ae3e16e1fe4db0d285e9c",
    "536777c2f92f9934b3e6a68557e26a7eb0c08e25887009594329cc9ae8511f3a",
)


@runtime_checkable
class Recognizer(Protocol):
    """Protocol for speech recognizers."""

    def recognise(self, samples: Samples, rate: int) -> str:
        """Transcribe mono ``samples`` in [-1, 1] at ``rate`` Hz; return "" if no word is recognized."""
        ...


@runtime_checkable
class WordRecognizer(Protocol):
    """Protocol for speech recognizers that return word timestamps."""

    def words(self, samples: Samples, rate: int) -> list[WordTime]:
        """Transcribe into words with their times."""
        ...


class PocketRecognizer:
    """pocketsphinx with the US English model from its wheel, which is small, fast, and inaccurate.

    Thread-safe; calls are serialized. ``name`` is the value of ``VOICELAB_RECOGNIZER`` that selects it.
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
    """faster-whisper (the extra ``whisper``), the default recognizer: 99 languages, detected in the audio.

    ``name`` is the value of ``VOICELAB_RECOGNIZER`` that selects it; if this is a folder, only the last component of
    its path.

    Args:
        model: model name, or folder with CTranslate2 weights.
        fetch: fetch missing weights by name from the Hugging Face Hub, with a progress bar.
    """

    def __init__(self, model: str = DEFAULT_WHISPER, *, fetch: bool = False) -> None:
        """Load the weights. Raises ImportError if faster-whisper is missing, and its own errors for missing weights."""
        from faster_whisper import WhisperModel
        from faster_whisper.utils import _MODELS

        # Tables may be published, so they must not contain paths of this machine.
        self.name = full_name(f"{_WHISPER}:{model}")
        options: dict[str, Any] = {"device": "cpu", "compute_type": "int8"}
        try:
            self._model: Any = WhisperModel(model, local_files_only=True, **options)
        except Exception:  # the package's exceptions for missing weights are undocumented
            if not fetch:
                raise
            from huggingface_hub import snapshot_download  # faster-whisper's own download shows no progress bar

            self._model = WhisperModel(snapshot_download(_MODELS.get(model, model)), **options)

    def recognise(self, samples: Samples, rate: int) -> str:
        """Transcribe with punctuation, deterministically."""
        return " ".join(str(segment.text).strip() for segment in self._segments(samples, rate))

    def words(self, samples: Samples, rate: int) -> list[WordTime]:
        """Transcribe into words with their times, by Whisper's cross-attention."""
        segments = self._segments(samples, rate, word_timestamps=True)
        words = [word for segment in segments for word in segment.words or ()]
        return [WordTime(word.word.strip(), float(word.start), float(max(word.start, word.end))) for word in words]

    def _segments(self, samples: Samples, rate: int, **options: Any) -> Iterable[Any]:
        # Temperature fallback would sample at random, and conditioning on earlier text would propagate errors.
        options |= {"beam_size": 5, "temperature": 0.0, "condition_on_previous_text": False}
        segments: Iterable[Any] = self._model.transcribe(resample(samples, rate, _RATE), **options)[0]
        return segments


class ParaformerRecognizer:
    """Paraformer-large by funasr-onnx: Mandarin, as in the evaluation of Seed-TTS. Its library fetches the weights.

    Z. Gao et al., "Paraformer: Fast and accurate parallel transformer for non-autoregressive end-to-end speech recognition",
    Interspeech (2022). Raises ImportError without ``funasr-onnx``, and RuntimeError if the weights cannot be fetched.
    """

    name: Final = "paraformer"
    repository: Final = "iic/speech_paraformer-large_asr_nat-zh-cn-16k-common-vocab8404-onnx"
    # funasr-onnx requires NumPy 1, but runs with NumPy 2.
    install: Final = (
        "pip install modelscope kaldi-native-fbank jieba librosa onnxruntime sentencepiece && "
        "pip install --no-deps funasr-onnx"
    )

    def __init__(self) -> None:
        from funasr_onnx import Paraformer

        self._model: Any = Paraformer(self.repository, batch_size=1, quantize=True)

    def recognise(self, samples: Samples, rate: int) -> str:
        """Transcribe in Chinese characters, without punctuation."""
        results = self._model(resample(samples, rate, _RATE)) if samples.any() else []
        predictions = (result["preds"] for result in results)  # of some models, with a list of characters
        return " ".join(text if isinstance(text, str) else str(text[0]) for text in predictions)


def recognizer_by_name(name: str, *, fetch: bool = True) -> Recognizer:
    """Load the recognizer with a name as in ``VOICELAB_RECOGNIZER``; ``fetch`` permits Whisper to fetch weights.

    Raises ArgumentError for an unknown name or unavailable weights, MissingExtra for a package that is not installed.
    """
    kind, _, model = name.partition(":")
    if kind not in _NAMES or (model and kind != _WHISPER):
        raise ArgumentError.of("recognizer", f"must be {', '.join(_NAMES)} or {_WHISPER}:MODEL, got {name!r}")
    try:
        if kind == PocketRecognizer.name:
            return PocketRecognizer()
        if kind == ParaformerRecognizer.name:
            return _paraformer()
        return _whisper(model or DEFAULT_WHISPER, fetch)
    except ImportError as error:
        if kind == ParaformerRecognizer.name:
            raise MissingExtra(
                f"the recognizer paraformer requires {ParaformerRecognizer.install} ({error})"
            ) from error
        extra = "whisper" if kind == _WHISPER else "recognition"
        alternative = (
            f'; or name another: voicelab.metrics.Tools(recognizer="{PocketRecognizer.name}") (English, inaccurate)'
            * (kind == _WHISPER)
        )
        raise MissingExtra(
            f"the recognizer {name} requires {install_command(extra)}{alternative}", extra=extra
        ) from error


def _paraformer() -> ParaformerRecognizer:
    try:
        return ParaformerRecognizer()
    except RuntimeError as error:  # raised by the package if its library cannot fetch the weights
        command = f"modelscope download --model {ParaformerRecognizer.repository}"
        message = f"the weights of paraformer are not on this machine: with a network connection, run {command}"
        raise ArgumentError.of("recognizer", message) from error


def _whisper(model: str, fetch: bool) -> WhisperRecognizer:
    is_folder = not fetch_command(f"{_WHISPER}:{model}")
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "TRUE", "YES", "ON"}
    try:
        return WhisperRecognizer(model, fetch=fetch and not is_folder and not offline)
    except ImportError:
        raise
    except Exception as error:  # the packages' exceptions for missing or damaged weights are undocumented
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if is_folder:
            raise ArgumentError.of("recognizer", f"{model} must hold weights of faster-whisper ({reason})") from error
        state = "HF_HUB_OFFLINE is set" if offline else "could not be fetched" if fetch else "are fetched at first use"
        command = fetch_command(f"{_WHISPER}:{model}")
        message = (
            f"the weights of Whisper {model!r} are not on this machine, and {state}: with a network connection, run"
            f"{' HF_HUB_OFFLINE=0' * offline} {command}; or name a folder with them, {_WHISPER}:PATH, or "
            f"use {PocketRecognizer.name} (English, inaccurate): {_VARIABLE}={PocketRecognizer.name}, or "
            f'voicelab.metrics.Tools(recognizer="{PocketRecognizer.name}") ({reason})'
        )
        raise ArgumentError.of("recognizer", message) from error


def fetch_command(name: str) -> str:
    """Return the command that fetches the weights of a Whisper recognizer; "" for other recognizers and for folders."""
    kind, _, model = (name or _WHISPER).partition(":")
    model = model or DEFAULT_WHISPER
    if kind != _WHISPER or Path(model).is_dir() or len(Path(model).parts) > 2:  # hub models are ACCOUNT/MODEL
        return ""
    return f"python -c \"import faster_whisper as f; f.download_model('{model}')\""


def full_name(name: str) -> str:
    """Return the name of a recognizer for tables, with its model but without folders; "" selects the default."""
    kind, _, model = (name or _WHISPER).partition(":")
    return f"{kind}:{Path(model or DEFAULT_WHISPER).name}" if kind == _WHISPER else kind


def default_recognizer(*, fetch: bool = True) -> Recognizer | None:
    """Load the recognizer of ``VOICELAB_RECOGNIZER``, by default Whisper base; return None for ``none``.

    Raises the same errors as ``recognizer_by_name``.
    """
    name = os.environ.get(_VARIABLE) or _WHISPER
    try:
        return None if name == "none" else recognizer_by_name(name, fetch=fetch)
    except ArgumentError as error:
        raise ArgumentError(
            f"{_VARIABLE}: {error}" if _VARIABLE in os.environ else str(error), argument=_VARIABLE
        ) from error


def transcribing_recognizer() -> Recognizer | None:
    """Load a recognizer for missing transcripts: ``default_recognizer``, or if no name is set, any installed recognizer.

    Never fetches weights; returns None if no recognizer is available.
    """
    if os.environ.get(_VARIABLE):
        return default_recognizer()
    with suppress(Exception):  # missing weights
        return WhisperRecognizer()
    try:
        return PocketRecognizer()
    except ImportError:
        return None


def pocketsphinx_decoder(**options: Any) -> Any:
    """Load a decoder if its model has the right checksum. Raises WeightsError for another checksum, and ImportError."""
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
    """Convert samples to 16 bits at 16 kHz, with a fixed peak and ``PADDING_S`` seconds of dithered silence at both ends."""
    audio = resample(samples, rate, _RATE)
    if preprocess is not None:
        audio = preprocess(audio, _RATE)
    peak = float(np.abs(audio).max(initial=0.0))
    # pocketsphinx skips words at abrupt edges, and the logarithm of digital silence is infinite.
    silence = np.zeros(int(PADDING_S * _RATE), np.float32)
    audio = np.concatenate([silence, audio * np.float32(0.5 / max(peak, 1e-9)), silence])
    audio += (np.random.default_rng(0).uniform(-2, 2, audio.size) / 32768).astype(np.float32)
    return (np.clip(audio, -1, 1) * 32767).astype("<i2")
