"""Homographs in sentences: the share of readings that a person would give."""

from __future__ import annotations

import re
from pathlib import Path

from voicelab.engine.pointer.config import PHONES
from voicelab.engine.pointer.english import load_lexicon
from voicelab.engine.pointer.homographs import _SENSES, _TABLE, homograph


def test_homographs_by_part_of_speech() -> None:
    wrong = []
    rows = [row.split("|") for row in Path(__file__).with_name("homographs.txt").read_text("utf-8").splitlines()]
    for key, sentence in rows:
        word, sense = key.split()
        tokens = re.findall(r"[A-Za-z']+|[.,;:?!]", sentence)
        words = [token.lower() if token[0].isalpha() else "" for token in tokens]
        sound = homograph(words, words.index(word), tokens[words.index(word)])
        expected = (_SENSES.get(word) or _TABLE[word])[int(sense)]
        if (" ".join(sound) if sound else load_lexicon()[word]) != expected:
            wrong.append(sentence)
    assert len(wrong) <= 0.04 * len(rows), wrong


def test_phones_are_in_the_inventory() -> None:
    readings = (sound for table in (_TABLE, _SENSES) for pair in table.values() for sound in pair)
    assert {phone for sound in readings for phone in sound.split(" ")} <= set(PHONES)
    assert homograph(["the", "dog", "barks"], 1, "dog") is None
