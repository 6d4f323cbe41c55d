from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.lm import pointer_path


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(2, 5))
def test_the_pointer_follows_the_alignment_and_moves_by_less_than_advances(steps: list[int], advances: int) -> None:
    at = np.cumsum([0, *steps])
    phones = int(at[-1]) + 1
    pointer, advance = pointer_path(at, phones, advances)
    assert pointer[0] == 0
    assert np.all(advance >= 0)
    assert np.all(advance < advances)
    np.testing.assert_array_equal(pointer[1:], pointer[:-1] + advance[:-1])
    assert np.all(pointer <= at)  # it may lag where phones are shorter than a frame, it never runs ahead


def test_the_pointer_leaves_the_text_with_the_last_frame() -> None:
    pointer, advance = pointer_path(np.array([0, 0, 1, 2, 2]), 3, 4)
    assert pointer[-1] + advance[-1] == 3


def test_the_pointer_catches_up_after_phones_too_short_for_a_frame() -> None:
    pointer, _ = pointer_path(np.array([0, 6, 6, 6, 7]), 8, 4)
    assert pointer.tolist() == [0, 3, 6, 6, 7]
