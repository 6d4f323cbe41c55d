from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.speechlike import RATE, speechlike
from tests.utterances import SENTENCES
from tests.whisper import save_whisper
from voicelab.asr.alignment import align_words
from voicelab.asr.recognizers import (
    PocketRecognizer,
    Recognizer,
    WhisperRecognizer,
    default_recognizer,
    full_name,
    transcribing_recognizer,
)
from voicelab.audio.words import WordTime
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.lab import connect
from voicelab.metrics import Tools, measure


@pytest.fixture(scope="module")
def recognizer() -> PocketRecognizer:
    return PocketRecognizer()


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whisper without weights and network."""
    monkeypatch.delenv("VOICELAB_RECOGNIZER")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


def test_recognition_keeps_no_state(recognizer: PocketRecognizer) -> None:
    """Without a reset of the front end, the last word of this recording changes."""
    with connect() as lab:
        clip = lab.speak("The birch canoe slid on the smooth planks.", seed=0)
    recognizer.recognise(speechlike(2, 220), RATE)
    assert recognizer.recognise(clip.samples, clip.rate) == PocketRecognizer().recognise(clip.samples, clip.rate)


def test_transcript_of_silence_is_empty(recognizer: PocketRecognizer) -> None:
    assert recognizer.recognise(np.zeros(RATE, np.float32), RATE) == ""
    assert recognizer.recognise(np.zeros(0, np.float32), RATE) == ""


@pytest.mark.usefixtures("_offline")
def test_wer_without_weights_is_an_error_with_the_command_that_fetches_them(recognizer: PocketRecognizer) -> None:
    assert isinstance(recognizer, Recognizer)
    clip = Clip(speechlike(1, 120), RATE)
    with pytest.raises(ArgumentError) as caught:
        measure([clip], "wer", text="one")
    for words in ("'base' are not on this machine", "HF_HUB_OFFLINE=0 python -c", 'recognizer="pocketsphinx"'):
        assert words in str(caught.value)
    assert measure([clip], "wer", text="one", tools=Tools(recognizer="pocketsphinx")).recognizer[0] == "pocketsphinx"
    # Transcripts of a new voice use what is there.
    assert isinstance(transcribing_recognizer(), PocketRecognizer)


def test_environment_variable_selects_the_recognizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "pocketsphinx")
    assert isinstance(default_recognizer(), PocketRecognizer)
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")
    assert default_recognizer() is None
    assert transcribing_recognizer() is None
    for wrong in ("whisper", "pocketsphinx:small", ":base", "faster-whisper:no-model", f"faster-whisper:{tmp_path}"):
        monkeypatch.setenv("VOICELAB_RECOGNIZER", wrong)
        with pytest.raises(ArgumentError, match=r"VOICELAB_RECOGNIZER: recognizer: (must be|the weights of|/)"):
            default_recognizer()
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "paraformer")
    with pytest.raises(MissingExtra, match=r"pip install modelscope .* librosa onnxruntime .* --no-deps funasr-onnx"):
        default_recognizer()


@pytest.mark.usefixtures("_offline")
def test_recognizers_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(MissingExtra, match=r'\[whisper\].*recognizer="pocketsphinx"'):
        default_recognizer()
    assert isinstance(transcribing_recognizer(), PocketRecognizer)
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    assert transcribing_recognizer() is None


@pytest.mark.usefixtures("_offline")
def test_whisper_by_its_own_library_with_random_weights(tmp_path: Path) -> None:
    cached = tmp_path / "models--Systran--faster-whisper-base"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    (cached / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_whisper(cached / "snapshots" / ("0" * 40))
    recognizer = default_recognizer(fetch=False)
    assert isinstance(recognizer, WhisperRecognizer)
    words: list[WordTime] = []
    for pitch in (120, 220):  # random weights may recognize nothing in one clip
        if not words:
            clip = Clip(speechlike(2, pitch), RATE)
            transcript, words = recognizer.recognise(clip.samples, RATE), recognizer.words(clip.samples, RATE)
    assert transcript == recognizer.recognise(clip.samples, RATE) != ""
    assert all(0 <= word.start <= word.end <= 30 for word in words)
    row = measure([clip], "wer", text=transcript, tools=Tools(recognizer=recognizer)).iloc[0]
    assert (row.wer, row.recognizer) == (0.0, "faster-whisper:base")
    aligned = align_words(clip, " ".join(word.text for word in words), by=recognizer)
    assert aligned.words.source == "word times of faster-whisper:base"


@pytest.mark.skipif("VOICELAB_TEST_WHISPER" not in os.environ, reason="names a folder with weights of faster-whisper")
def test_whisper_has_a_lower_wer_than_pocketsphinx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", f"faster-whisper:{os.environ['VOICELAB_TEST_WHISPER']}")
    whisper = default_recognizer()
    assert isinstance(whisper, WhisperRecognizer)
    # Tables show the name without the folder.
    assert whisper.name == full_name(os.environ["VOICELAB_RECOGNIZER"]) == "faster-whisper:base"
    with connect() as lab:
        clips = [lab.speak(text, seed=1) for text in SENTENCES[:3]]
    errors = [
        measure(clips, "wer", tools=Tools(recognizer=recognizer))["wer"].mean()
        for recognizer in (whisper, PocketRecognizer())
    ]
    assert errors[0] < errors[1]
