"""chunk_length and min_chunk_length: where a text is cut, heard in the audio.

With max_new_tokens=N every segment is cut off after N frames: the audio tells how many segments there are, and the words
heard are those that segments begin with.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import strategies as st

from tests.effects.measure import HOP, Voice, said

N = 16
STORY = (
    "Dr. Ada Smith paid $1,250.75 for 3.5 tons of rice on Jan. 5, 2024, at 10:30 a.m., and went home. "
    "Mr. Brown, who lives at 221 Elm St. in St. Louis, had seen it all; he said nothing, e.g. to his wife. "
    "It rained. The U.S. office closed at 5 p.m. that day, no. 7 of them all, but why? "
    "Nobody on the shore had seen the birch canoe go, and the smooth planks, wet and cold, lay where they had lain."
)
# How the segments of STORY may begin: after the end of a sentence or of a clause.
_STARTS = re.compile(r"(?:^|(?<=[.;,?]) )(\w+)")


def starts(voice: Voice, chunk_length: int, min_chunk_length: int) -> tuple[int, list[str]]:
    """How many segments there are, and the words they begin with."""
    clip = voice.say(
        STORY,
        chunk_length=chunk_length,
        min_chunk_length=min_chunk_length,
        max_new_tokens=N,
        normalize=False,
        condition_on_previous_chunks=False,
        temperature=0.0,
    )
    count, rest = divmod(len(clip), N * HOP)
    assert rest == 0
    step = N * HOP / clip.rate
    return count, [next(w.text for w in clip.words if w.start >= i * step - 1e-6) for i in range(count)]


@pytest.mark.parametrize(("chunk_length", "min_chunk_length"), [(100, 0), (100, 50), (300, 0)])
def test_segments_begin_where_a_sentence_or_a_clause_does(
    voice: Voice, chunk_length: int, min_chunk_length: int
) -> None:
    _, found = starts(voice, chunk_length, min_chunk_length)
    assert found[0] == "Dr"
    assert set(found) <= set(_STARTS.findall(STORY))
    # Behind the points of abbreviations and numbers nothing begins.
    assert not set(found) & {"Ada", "Brown", "Louis", "Smith", "S", "75", "5", "2024", "30", "a", "m", "7", "in", "g"}


def test_a_border_between_segments_is_a_pause(voice: Voice) -> None:
    """Words of neighbouring segments lie further apart than words inside one."""
    text = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background, then press it down."
    clip = voice.say(text, chunk_length=100, min_chunk_length=0, temperature=0.0)
    words = said(clip)
    border = words.index("Glue")
    gaps = [after.start - before.end for before, after in zip(clip.words, clip.words[1:], strict=False)]
    inside = [gap for i, gap in enumerate(gaps) if i + 1 not in (border, words.index("then"))]
    assert gaps[border - 1] > max(inside) + 0.05


_ONE = ("Dr. Smith", "Mr. Brown", "$5.20", "3.14", "1,250.75", "10:30 a.m.", "Jan. 5", "e.g.", "U.S.", "no. 7", "5 km")
_TOKENS = st.lists(
    st.sampled_from((*_ONE, "word", "and", "canoe,", "planks.", "why?", "go;")),
    min_size=1,
    max_size=80,
).map(" ".join)
