from __future__ import annotations

import os
import sys
import time
import types
from dataclasses import replace

import numpy as np
import pytest

from tests.noises import noisy
from tests.speechlike import RATE, speechlike
from tests.voices.conftest import SENTENCES, Spoken
from voicelab.asr.transcripts import (
    Aligner,
    PocketRecognizer,
    Recognizer,
    WhisperRecognizer,
    align_words,
    default_aligner,
    default_recognizer,
)
from voicelab.audio.words import Words
from voicelab.errors import ArgumentError, MissingExtra
from voicelab.lab import connect
from voicelab.metrics import Tools, measure
from voicelab.views.bundles import words_bundle

LIMIT = 0.7
OTHER = (
    "We were sweltering at the beach all day.",
    "Der Mann hat das Haus in der Stadt gesehen, und die Frau war nicht da.",
    "No me gusta la comida que hay en la mesa.",
)


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner()


def test_it_matches_in_noise(aligner: Aligner, spoken: tuple[Spoken, ...]) -> None:
    for one in spoken:
        sound = noisy(one.samples, one.rate, "pink", 15)
        assert (aligner.match(sound, one.rate, one.text) or 0) > LIMIT, one


def test_words_are_timed_as_the_voice_itself_says(spoken: tuple[Spoken, ...]) -> None:
    lab = connect(seed=1)
    clip = lab.speak("Glue the sheet to the dark blue background, please.")
    timed = align_words(replace(clip, words=Words()))
    assert [word.text for word in timed.words] == [word.text for word in clip.words]
    assert clip.words.likelihood is None
    assert -2 < (timed.words.likelihood or 0) < -0.2
    assert "By forced alignment" in words_bundle(timed.words)["text/html"]
    for ours, theirs in zip(timed.words, clip.words, strict=True):
        assert abs(ours.end - theirs.end) < 0.12, (ours, theirs)
    unlisted = align_words(clip, "Glue the Xylqzt sheet to the dark blue background, please.")
    assert [word.text for word in unlisted.words][:4] == ["Glue", "the", "Xylqzt", "sheet"]
    for text in ("", *OTHER):
        with pytest.raises(ArgumentError, match="text"):
            align_words(replace(clip, take=None), text)


def test_words_are_timed_in_noise_that_hides_some() -> None:
    clip = connect().speak("The train from the north is twelve minutes late.", voice="clara", seed=1)
    noise = np.random.default_rng(12).standard_normal(len(clip)) * 10 ** ((clip.level - 12) / 20)
    timed = align_words(replace(clip, samples=(clip.samples + noise).astype(np.float32), words=Words()))
    for word, clean in zip(timed.words, align_words(replace(clip, words=Words())).words, strict=True):
        assert word.text == clean.text
        assert abs(word.start - clean.start) < 0.08


def test_how_it_is_written_does_not_matter(aligner: Aligner, spoken: tuple[Spoken, ...]) -> None:
    one = spoken[0]
    for text in (one.text.upper(), one.text.replace(" ", ",\n"), f"\u201c{one.text}\u201d", f"{one.text} (Xylqzt)"):
        assert (aligner.match(one.samples, one.rate, text) or 0) > LIMIT, text


def test_other_words_do_not_match(aligner: Aligner, spoken: tuple[Spoken, ...]) -> None:
    for one in spoken:
        others = [*OTHER, *(text for text in SENTENCES if text != one.text)]
        for text in others:
            assert (aligner.match(one.samples, one.rate, text) or 0) < LIMIT, (one, text)


def test_half_of_the_words_or_half_of_the_sound_match_less(aligner: Aligner, spoken: tuple[Spoken, ...]) -> None:
    """A half may last longer than the other, so that most of the sound is in it: less than the whole, by a margin."""
    for one in spoken:
        less = (aligner.match(one.samples, one.rate, one.text) or 0) - 0.15
        words = one.text.split()
        for half in (words[: len(words) // 2], words[len(words) // 2 :]):
            assert (aligner.match(one.samples, one.rate, " ".join(half)) or 0) < less, (one, half)
        assert (aligner.match(one.samples[: one.samples.size // 2], one.rate, one.text) or 0) < less, one


@pytest.mark.parametrize("text", ["", "...", "猫が好きです", "qwrtz pflmx", "1984", "💥"], ids=ascii)
def test_what_the_dictionary_lacks_is_not_compared(aligner: Aligner, spoken: tuple[Spoken, ...], text: str) -> None:
    assert aligner.match(spoken[0].samples, spoken[0].rate, text) is None


def test_a_long_text_takes_no_long_time(aligner: Aligner) -> None:
    began = time.process_time()
    assert aligner.match(speechlike(2), RATE, "the quick brown fox " * 1000) == 0
    assert time.process_time() - began < 10


def test_the_order_of_alignments_does_not_matter(aligner: Aligner, spoken: tuple[Spoken, ...]) -> None:
    one, other = spoken[0], spoken[-1]
    first = aligner.match(one.samples, one.rate, one.text)
    aligner.match(other.samples, other.rate, one.text)
    assert aligner.match(one.samples, one.rate, one.text) == first


def test_no_word_matches_silence(aligner: Aligner) -> None:
    assert aligner.match(np.zeros(RATE, np.float32), RATE, "a word") == 0


def test_without_pocketsphinx_there_is_no_aligner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    default_aligner.cache_clear()
    assert default_aligner() is None
    default_aligner.cache_clear()


@pytest.fixture(scope="module")
def recognizer() -> PocketRecognizer:
    return PocketRecognizer()


def test_pocketsphinx_is_the_default(recognizer: PocketRecognizer) -> None:
    assert isinstance(recognizer, Recognizer)
    assert isinstance(default_recognizer(), PocketRecognizer)


def test_the_order_of_recordings_does_not_matter(recognizer: PocketRecognizer) -> None:
    """Nor whether it is the first: of this one, the last word was another where nothing was forgotten."""
    with connect() as lab:
        clip = lab.speak("The birch canoe slid on the smooth planks.", seed=0)
    recognizer.recognise(speechlike(2, 220), RATE)
    assert recognizer.recognise(clip.samples, clip.rate) == PocketRecognizer().recognise(clip.samples, clip.rate)


def test_nothing_is_recognised_in_silence(recognizer: PocketRecognizer) -> None:
    assert recognizer.recognise(np.zeros(RATE, np.float32), RATE) == ""
    assert recognizer.recognise(np.zeros(0, np.float32), RATE) == ""


def test_without_pocketsphinx_there_is_no_recognizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    assert default_recognizer() is None


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "pocketsphinx")
    assert isinstance(default_recognizer(), PocketRecognizer)
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")
    assert default_recognizer() is None
    for wrong in ("whisper", "pocketsphinx:small", ":base"):
        monkeypatch.setenv("VOICELAB_RECOGNIZER", wrong)
        with pytest.raises(ArgumentError, match="VOICELAB_RECOGNIZER"):
            default_recognizer()


def test_whisper_that_is_not_installed_is_left_out_or_an_error_where_it_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(ImportError):
        WhisperRecognizer()
    assert isinstance(default_recognizer(), PocketRecognizer)
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "faster-whisper:base.en")
    with pytest.raises(MissingExtra, match="whisper"):
        default_recognizer()


def test_whisper_without_weights_is_a_clear_error_and_only_a_named_model_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Weights cannot be had here: this stands for the library as it is without them, or with those of one folder.
    asked: list[tuple[str, object]] = []

    class WhisperModel:
        def __init__(self, model: str, **options: object) -> None:
            asked.append((model, options["local_files_only"]))
            if model == "/our/base":
                return
            raise OSError("an appropriate snapshot folder was not found on the local disk")

    module = types.ModuleType("faster_whisper")
    module.WhisperModel = WhisperModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", module)
    assert isinstance(default_recognizer(), PocketRecognizer)
    assert {local for _, local in asked} == {True}
    for model, local in (("/my/weights", True), ("base.en", False)):
        asked.clear()
        monkeypatch.setenv("VOICELAB_RECOGNIZER", f"faster-whisper:{model}")
        with pytest.raises(ArgumentError, match=r"name a folder that holds them, faster-whisper:PATH.*snapshot folder"):
            default_recognizer()
        assert asked == [(model, local)]
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "faster-whisper:/our/base")
    whisper = default_recognizer()
    assert isinstance(whisper, WhisperRecognizer)
    # As a table of word errors names it: its folder is nobody's business.
    assert whisper.name == "faster-whisper:base"


@pytest.mark.skipif("VOICELAB_TEST_WHISPER" not in os.environ, reason="names a folder with weights of faster-whisper")
def test_whisper_hears_better_than_pocketsphinx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", f"faster-whisper:{os.environ['VOICELAB_TEST_WHISPER']}")
    whisper = default_recognizer()
    assert isinstance(whisper, WhisperRecognizer)
    with connect() as lab:
        clips = [lab.speak(text, seed=1) for text in SENTENCES[:3]]
    errors = [
        measure(clips, "wer", tools=Tools(recognizer=ears))["wer"].mean() for ears in (whisper, PocketRecognizer())
    ]
    assert errors[0] < errors[1] - 0.1
