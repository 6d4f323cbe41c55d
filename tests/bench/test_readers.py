from __future__ import annotations

import readers
from readers import canonical, texts


def test_texts_are_read_as_expected() -> None:
    counts = texts()["here"]
    assert counts["all"] == "366/367", counts  # 两对 or 二对


def test_spelling_of_readings_does_not_matter() -> None:
    assert canonical("U S A one hundred and five, negative ay") == canonical("USA one hundred five minus A")
    assert canonical("三 点一") == canonical("三点一")


def test_ipa_of_readers_is_comparable() -> None:
    assert readers._plain_ipa("ɹᵻˈkɔːɹd") == readers._plain_ipa("ɹɪkˈɔɹd") == readers._ipa_of("r ih0 k ao1 r d")
    assert readers._distance("ɪkˈɔɹ", "ɹɪkˈɔɹd") == 0
