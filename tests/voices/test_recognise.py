from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.speechlike import RATE, speechlike
from voicelab.voices.recognise import PocketRecognizer, Recognizer, default_recognizer


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
