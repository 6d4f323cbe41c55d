from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.tiny import LANGUAGE as TINY
from training.codes import Encoded
from training.lm import FRAMES, Rows, Streams, Work, bring_to_scale, leave_out, losses, pointer_path, unscaled
from voicelab.engine.pointer.lm import LM, STATISTICS


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


def _encoded(speaker: int) -> Encoded:
    """A hundred frames of a speaker's own code, and statistics that are the speaker's number too."""
    said = np.full((100, len(TINY.codebooks)), speaker, np.int16)
    at = np.arange(100, dtype=np.int16) // 10
    told = np.full(STATISTICS * TINY.latent, speaker, np.float32)
    return Encoded(speaker, np.ones(10, np.int16), np.zeros(10, np.int16), said, at, told)


def test_a_row_goes_on_with_others_who_have_not_spoken_and_tells_who_does() -> None:
    rows = Streams([_encoded(speaker) for speaker in range(7)], TINY, seed=0).batch(20)
    assert rows.speaker.shape == (20, FRAMES, STATISTICS * TINY.latent)
    for said, told in zip(rows.codes[..., 0], rows.speaker, strict=True):
        spoke = said[np.flatnonzero(np.diff(said, prepend=-1))].tolist()
        assert len(spoke) == len(set(spoke)) >= 4
        # The mean is the speaker's; the deviation of one who always says the same is not.
        assert torch.equal(told[:, 0], said.float())


def test_statistics_brought_to_scale_change_nothing_once_undone() -> None:
    model, plain = LM(TINY), LM(TINY)
    statistics = torch.randn(50, STATISTICS * TINY.latent) * 0.1 + 0.5
    bring_to_scale(model, statistics, fresh=True)
    entered = model.speaker[0](statistics)
    assert entered.mean(0).abs().max() < 1e-4
    assert 0.3 < entered.std() < 1.2, (
        "as large as the weights are made for, though the statistics are ten times smaller"
    )
    plain.load_state_dict(unscaled(model.state_dict()))
    torch.testing.assert_close(plain.encode_speaker(statistics), model.encode_speaker(statistics))
    assert unscaled(plain.state_dict()).keys() == plain.state_dict().keys()


def test_a_model_that_goes_on_says_what_it_said_before_it_was_brought_to_scale() -> None:
    model, statistics = LM(TINY), torch.randn(50, STATISTICS * TINY.latent) * 0.1 + 0.5
    before = model.encode_speaker(statistics)
    bring_to_scale(model, statistics, fresh=False)
    torch.testing.assert_close(model.encode_speaker(statistics), before)
    plain = unscaled(model.state_dict())["speaker.0.weight"]
    assert model.state_dict()["speaker.0.parametrizations.weight.original"].abs().mean() < plain.abs().mean()


def test_layers_leave_something_out_while_the_model_trains_and_nothing_when_it_speaks() -> None:
    model, given = LM(TINY), torch.randn(2, 5, TINY.slow.width)
    whole, before = model.slow(given), list(model.state_dict())
    leave_out(model, 0.5)
    assert not torch.allclose(model.slow(given), model.slow(given))
    assert torch.equal(model.eval().slow(given), whole)
    assert list(model.state_dict()) == before


def test_a_step_teaches_every_weight_and_forgets_no_codebook() -> None:
    torch.manual_seed(0)
    model = LM(TINY)
    text, time = 12, 40
    codes = torch.stack([torch.randint(size, (2, time)) for size in TINY.codebooks], dim=-1)
    pointer = torch.arange(time).expand(2, -1) * text // time
    rows = Rows(
        phones=torch.randint(TINY.phones, (2, text)),
        flags=torch.randint(TINY.flags, (2, text)),
        valid=torch.ones(2, text, dtype=torch.bool),
        codes=codes,
        pointer=pointer,
        dwell=torch.randint(24, (2, time)),
        advance=torch.randint(TINY.advances, (2, time)),
        begins=torch.tensor([True, False]),
        before=codes[:, 0],
        speaker=torch.randn(2, time, STATISTICS * TINY.latent),
    )
    loss, parts = losses(model, rows, torch.Generator().manual_seed(0), Work())
    assert loss.item() == pytest.approx(parts["first"] + parts["depth"])
    # Nothing is known yet: each symbol is as likely as any other, or thereabouts.
    assert parts["first"] == pytest.approx(np.log(TINY.codebooks[0] * TINY.advances), rel=0.5)
    assert parts["depth"] == pytest.approx(sum(np.log(size) for size in TINY.codebooks[1:]), rel=0.5)
    loss.backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
