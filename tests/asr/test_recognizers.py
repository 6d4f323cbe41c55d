from __future__ import annotations

import os
import sys
import types

import numpy as np
import pytest

from tests.speechlike import RATE, speechlike
from tests.utterances import SENTENCES
from voicelab.asr.recognizers import PocketRecognizer, Recognizer, WhisperRecognizer, default_recognizer
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.lab import connect
from voicelab.metrics import Tools, measure


@pytest.fixture(scope="module")
def recognizer() -> PocketRecognizer:
    return PocketRecognizer()


def test_pocketsphinx_is_the_default(recognizer: PocketRecognizer) -> None:
    assert isinstance(recognizer, Recognizer)
    assert isinstance(default_recognizer(), PocketRecognizer)


def test_recognition_keeps_no_state(recognizer: PocketRecognizer) -> None:
    """Without a reset of the front end, the last word of this recording changes."""
    with connect() as lab:
        clip = lab.speak("The birch canoe slid on the smooth planks.", seed=0)
    recognizer.recognise(speechlike(2, 220), RATE)
    assert recognizer.recognise(clip.samples, clip.rate) == PocketRecognizer().recognise(clip.samples, clip.rate)


def test_transcript_of_silence_is_empty(recognizer: PocketRecognizer) -> None:
    assert recognizer.recognise(np.zeros(RATE, np.float32), RATE) == ""
    assert recognizer.recognise(np.zeros(0, np.float32), RATE) == ""


def test_default_recognizer_without_pocketsphinx_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    assert default_recognizer() is None


def test_environment_variable_selects_the_recognizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "pocketsphinx")
    assert isinstance(default_recognizer(), PocketRecognizer)
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")
    assert default_recognizer() is None
    for wrong in ("whisper", "pocketsphinx:small", ":base"):
        monkeypatch.setenv("VOICELAB_RECOGNIZER", wrong)
        with pytest.raises(ArgumentError, match="VOICELAB_RECOGNIZER"):
            default_recognizer()


def test_whisper_not_installed_is_skipped_unless_selected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(ImportError):
        WhisperRecognizer()
    assert isinstance(default_recognizer(), PocketRecognizer)
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "faster-whisper:base.en")
    with pytest.raises(MissingExtra, match="whisper"):
        default_recognizer()


def test_whisper_without_weights_is_an_error_and_only_a_model_name_is_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No network in tests: a stub of the library without weights, or with those of one folder.
    requests: list[tuple[str, object]] = []

    class WhisperModel:
        def __init__(self, model: str, **options: object) -> None:
            requests.append((model, options["local_files_only"]))
            if model == "/our/base":
                return
            raise OSError("an appropriate snapshot folder was not found on the local disk")

    module = types.ModuleType("faster_whisper")
    module.WhisperModel = WhisperModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", module)
    assert isinstance(default_recognizer(), PocketRecognizer)
    assert {local for _, local in requests} == {True}
    for model, local in (("/my/weights", True), ("base.en", False)):
        requests.clear()
        monkeypatch.setenv("VOICELAB_RECOGNIZER", f"faster-whisper:{model}")
        with pytest.raises(ArgumentError, match=r"name a folder that holds them, faster-whisper:PATH.*snapshot folder"):
            default_recognizer()
        assert requests == [(model, local)]
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "faster-whisper:/our/base")
    whisper = default_recognizer()
    assert isinstance(whisper, WhisperRecognizer)
    # Tables with WER show the name, without the path.
    assert whisper.name == "faster-whisper:base"


@pytest.mark.skipif("VOICELAB_TEST_WHISPER" not in os.environ, reason="names a folder with weights of faster-whisper")
def test_whisper_has_a_lower_wer_than_pocketsphinx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", f"faster-whisper:{os.environ['VOICELAB_TEST_WHISPER']}")
    whisper = default_recognizer()
    assert isinstance(whisper, WhisperRecognizer)
    with connect() as lab:
        clips = [lab.speak(text, seed=1) for text in SENTENCES[:3]]
    errors = [
        measure(clips, "wer", tools=Tools(recognizer=recognizer))["wer"].mean()
        for recognizer in (whisper, PocketRecognizer())
    ]
    assert errors[0] < errors[1] - 0.1
