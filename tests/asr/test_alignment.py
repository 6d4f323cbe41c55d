from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.noises import noisy
from tests.speechlike import RATE, speechlike
from tests.utterances import SENTENCES, Utterance
from voicelab.asr.alignment import MATCHING, Aligner, align_words, default_aligner
from voicelab.audio.samples import Samples
from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip
from voicelab.errors import ArgumentError
from voicelab.lab import connect
from voicelab.views.bundles import words_bundle

OTHER = (
    "We were sweltering at the beach all day.",
    "Der Mann hat das Haus in der Stadt gesehen, und die Frau war nicht da.",
    "No me gusta la comida que hay en la mesa.",
)


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner()


def test_transcripts_match_in_noise(aligner: Aligner, utterances: tuple[Utterance, ...]) -> None:
    for recording in utterances:
        sound = noisy(recording.samples, recording.rate, "pink", 15)
        assert (aligner.match(sound, recording.rate, recording.text) or 0) > MATCHING, recording


def test_alignment_agrees_with_the_times_of_the_embedded_voice(utterances: tuple[Utterance, ...]) -> None:
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


def test_alignment_is_robust_to_noise() -> None:
    clip = connect().speak("The train from the north is twelve minutes late.", voice="clara", seed=1)
    noise = np.random.default_rng(12).standard_normal(len(clip)) * 10 ** ((clip.level - 12) / 20)
    timed = align_words(replace(clip, samples=(clip.samples + noise).astype(np.float32), words=Words()))
    for word, clean in zip(timed.words, align_words(replace(clip, words=Words())).words, strict=True):
        assert word.text == clean.text
        assert abs(word.start - clean.start) < 0.08


def test_match_ignores_case_and_punctuation(aligner: Aligner, utterances: tuple[Utterance, ...]) -> None:
    recording = utterances[0]
    text = recording.text
    for variant in (text.upper(), text.replace(" ", ",\n"), f"\u201c{text}\u201d", f"{text} (Xylqzt)"):
        assert (aligner.match(recording.samples, recording.rate, variant) or 0) > MATCHING, variant


def test_wrong_transcripts_do_not_match(aligner: Aligner, utterances: tuple[Utterance, ...]) -> None:
    for recording in utterances:
        others = [*OTHER, *(text for text in SENTENCES if text != recording.text)]
        for text in others:
            assert (aligner.match(recording.samples, recording.rate, text) or 0) < MATCHING, (recording, text)


def test_partial_transcripts_and_audio_match_less(aligner: Aligner, utterances: tuple[Utterance, ...]) -> None:
    """Halves may differ in duration, so the match drops by a margin rather than to one half."""
    for recording in utterances:
        less = (aligner.match(recording.samples, recording.rate, recording.text) or 0) - 0.15
        words = recording.text.split()
        for half in (words[: len(words) // 2], words[len(words) // 2 :]):
            assert (aligner.match(recording.samples, recording.rate, " ".join(half)) or 0) < less, (recording, half)
        beginning = recording.samples[: recording.samples.size // 2]
        assert (aligner.match(beginning, recording.rate, recording.text) or 0) < less, recording


@pytest.mark.parametrize("text", ["", "...", "猫が好きです", "qwrtz pflmx", "1984", "💥"], ids=ascii)
def test_match_is_none_for_words_missing_from_the_dictionary(
    aligner: Aligner, utterances: tuple[Utterance, ...], text: str
) -> None:
    assert aligner.match(utterances[0].samples, utterances[0].rate, text) is None


def test_long_text_is_aligned_in_seconds(aligner: Aligner) -> None:
    began = time.process_time()
    assert aligner.match(speechlike(2), RATE, "the quick brown fox " * 1000) == 0
    assert time.process_time() - began < 10


def test_alignment_keeps_no_state(aligner: Aligner, utterances: tuple[Utterance, ...]) -> None:
    recording, other = utterances[0], utterances[-1]
    first = aligner.match(recording.samples, recording.rate, recording.text)
    aligner.match(other.samples, other.rate, recording.text)
    assert aligner.match(recording.samples, recording.rate, recording.text) == first


def test_silence_matches_no_word(aligner: Aligner) -> None:
    assert aligner.match(np.zeros(RATE, np.float32), RATE, "a word") == 0


def test_default_aligner_without_pocketsphinx_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    default_aligner.cache_clear()
    assert default_aligner() is None
    default_aligner.cache_clear()


class Timed:
    """A recognizer with word times of half a second each."""

    name = "timed"

    def __init__(self, *words: str) -> None:
        self.heard = [WordTime(word, index / 2, index / 2 + 0.5) for index, word in enumerate(words)]

    def words(self, samples: Samples, rate: int) -> list[WordTime]:
        return self.heard


@pytest.mark.parametrize(
    ("text", "heard", "times"),
    [
        ("Das ist schön.", "das ist schön", [0, 0.5, 1]),
        ("Das ist sehr schön.", "Das ist schön!", [0, 0.5, 1, 1]),  # a word that was not recognized
        ("Das ist sehr schön.", "das ist Meer schön", [0, 0.5, 1, 1.5]),  # a word that was misrecognized
        ("Well-known Häuser", "well known häuser", [0, 1]),
        ("我有苹果。", "我有 蘋果", [0, 0.25, 0.5, 0.75]),  # traditional characters, two in a word
    ],
)
def test_word_times_of_a_recognizer(text: str, heard: str, times: list[float]) -> None:
    aligned = align_words(Clip(np.zeros(3 * RATE, np.float32), RATE), text, by=Timed(*heard.split()))
    assert [word.start for word in aligned.words] == times
    assert " ".join(word.text for word in aligned.words).replace(" ", "") == re.sub(r"[.\s。]", "", text)
    assert aligned.words.source == "word times of timed"


def test_word_times_of_another_text_are_an_error() -> None:
    clip = Clip(np.zeros(RATE, np.float32), RATE)
    with pytest.raises(ArgumentError, match="does not match the speech"):
        align_words(clip, "Guten Tag, Welt.", by=Timed("eins", "zwei", "drei"))
    for german in ("Glück auf, meine lieben Kinder, heute abend.", "an all so war in die hand"):
        with pytest.raises(
            ArgumentError, match=r'text: .*; for a language other than English, pass by="faster-whisper"'
        ):
            align_words(clip, german, by="pocketsphinx")
    with pytest.raises(ArgumentError, match=r"recognizer: must be faster-whisper, .* got 'siri'"):
        align_words(clip, "Guten Tag.", by="siri")


@pytest.mark.skipif("VOICELAB_TEST_WHISPER" not in os.environ, reason="names a folder with weights of faster-whisper")
@pytest.mark.parametrize("text", ["今天天气很好，我们去公园。", "The birch canoe slid on the smooth planks."])
def test_word_times_of_whisper_are_near_those_of_the_voice(text: str) -> None:
    with connect() as lab:
        clip = lab.speak(text, seed=1)
    aligned = align_words(replace(clip, words=Words()), by=f"faster-whisper:{os.environ['VOICELAB_TEST_WHISPER']}")
    assert aligned.words.source == "word times of faster-whisper:base"
    assert len(aligned.words) == len(clip.words)
    errors = [abs(ours.end - theirs.end) for ours, theirs in zip(aligned.words, clip.words, strict=True)]
    assert np.median(errors) < 0.12, errors
