"""What people write in English and what is said, row by row, beyond the rules' own examples (test_normalize.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from voicelab.engine.pointer.english import Lexicon
from voicelab.text import as_written, normalize
from voicelab.text.english import RULES

ROWS = [
    (kind, written.replace("\\n", "\n").replace("\\x07", "\x07"), said)
    for line in Path(__file__).with_name("english.tsv").read_text("utf-8").split("\n")
    if line and not line.startswith("# ")
    for kind, written, said in [line.split("\t")]
]


@pytest.mark.parametrize(
    ("written", "said"),
    [pytest.param(written, said, id=f"{kind}-{written[:24]!a}") for kind, written, said in ROWS],
)
def test_normalized_text(written: str, said: str) -> None:
    assert normalize(written).text == said
    assert normalize(said).text == said, "what is said is its own normal form"


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z']+", re.sub(r"'s\b", "", text.lower())) if len(word) > 1}


def test_verbalized_words_are_in_the_lexicon() -> None:
    lexicon = Lexicon(lambda _: ())
    examples = {rule.example: rule.normalized for rule in RULES}
    for written, said in (*examples.items(), *(row[1:] for row in ROWS)):
        added = _words(said) - _words(as_written(written).text) - set(re.findall("[a-z]+", written.lower()))
        for word in added:
            assert lexicon.pronounce(word), (written, word)
