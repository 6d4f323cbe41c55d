from __future__ import annotations

from training.corpus import HELDOUT, recognisable_words


def test_every_heldout_word_can_be_recognised() -> None:
    words = recognisable_words()
    sentences = HELDOUT.read_text(encoding="utf-8").splitlines()
    assert len(sentences) == len(set(sentences)) == 300
    said = {w.strip(".,?!;").lower() for s in sentences for w in s.split()}
    assert not {w for w in said if w and w not in words}
