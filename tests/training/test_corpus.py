from __future__ import annotations

from training.corpus import HELDOUT, recognizable_words


def test_heldout_words_are_in_the_recognizer_dictionary() -> None:
    words = recognizable_words()
    sentences = HELDOUT.read_text(encoding="utf-8").splitlines()
    assert len(sentences) == len(set(sentences)) == 300
    heldout_words = {w.strip(".,?!;").lower() for s in sentences for w in s.split()}
    assert not {w for w in heldout_words if w and w not in words}
