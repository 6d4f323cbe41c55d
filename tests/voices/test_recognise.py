from __future__ import annotations

import logging
import sys
import types

import numpy as np
import pytest

from tests.speechlike import RATE, speechlike
from voicelab.errors import RequestInvalid
from voicelab.voices.recognise import PocketRecognizer, Recognizer, WhisperRecognizer, default_recognizer


@pytest.fixture(scope="module")
def recognizer() -> PocketRecognizer:
    return PocketRecognizer()


def test_pocketsphinx_is_the_default(recognizer: PocketRecognizer) -> None:
    assert isinstance(recognizer, Recognizer)
    assert isinstance(default_recognizer(), PocketRecognizer)


def test_order_does_not_matter(recognizer: PocketRecognizer) -> None:
    one, two = speechlike(2, 100), speechlike(2, 220)
    first = recognizer.recognise(one, RATE)
    recognizer.recognise(two, RATE)
    assert recognizer.recognise(one, RATE) == first


def test_silence_says_nothing(recognizer: PocketRecognizer) -> None:
    assert recognizer.recognise(np.zeros(RATE, np.float32), RATE) == ""
    assert recognizer.recognise(np.zeros(0, np.float32), RATE) == ""


def test_without_it_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    assert default_recognizer() is None


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "pocketsphinx")
    assert isinstance(default_recognizer(), PocketRecognizer)
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")
    assert default_recognizer() is None
    for wrong in ("whisper", "pocketsphinx:small", ":base"):
        monkeypatch.setenv("VOICELAB_RECOGNIZER", wrong)
        with pytest.raises(RequestInvalid, match="VOICELAB_RECOGNIZER"):
            default_recognizer()


def test_whisper_that_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(ImportError):
        WhisperRecognizer()
    assert isinstance(default_recognizer(), PocketRecognizer)
    assert caplog.text == ""
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "faster-whisper")
    assert isinstance(default_recognizer(), PocketRecognizer)
    assert "jupyter-voicelab[whisper]" in caplog.text


def test_whisper_without_weights_is_left_out_and_nothing_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Weights cannot be had here: this stands for the library as it is without them.
    asked: list[dict[str, object]] = []

    class WhisperModel:
        def __init__(self, model: str, **options: object) -> None:
            asked.append({"model": model, **options})
            raise OSError("an appropriate snapshot folder was not found on the local disk")

    module = types.ModuleType("faster_whisper")
    module.WhisperModel = WhisperModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", module)
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "faster-whisper:/my/weights")
    assert isinstance(default_recognizer(), PocketRecognizer)
    assert asked == [{"model": "/my/weights", "device": "cpu", "compute_type": "int8", "local_files_only": True}]
    assert "snapshot folder was not found" in caplog.text
