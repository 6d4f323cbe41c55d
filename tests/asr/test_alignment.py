from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.noises import noisy
from tests.speechlike import RATE, speechlike
from tests.utterances import SENTENCES, Utterance
from voicelab.asr.alignment import MATCHING, Aligner, align_words, default_aligner
from voicelab.audio.words import Words
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
