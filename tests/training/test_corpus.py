from __future__ import annotations

from training.corpus import HELDOUT, recognisable_words
from training.speakers import HELD_OUT, all_speakers, draw


def test_every_heldout_word_can_be_recognised() -> None:
    words = recognisable_words()
    sentences = HELDOUT.read_text(encoding="utf-8").splitlines()
    assert len(sentences) == len(set(sentences)) == 300
    said = {w.strip(".,?!;").lower() for s in sentences for w in s.split()}
    assert not {w for w in said if w and w not in words}


def test_held_out_speakers_are_never_drawn_and_all_others_are() -> None:
    speakers = all_speakers()
    drawn = set(draw(20_000).tolist())
    assert drawn == set(range(len(speakers) - HELD_OUT))
    assert speakers == all_speakers()
