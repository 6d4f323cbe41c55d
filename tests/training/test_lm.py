from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.tiny import LANGUAGE as TINY
from training.codes import Encoded
from training.lm import FRAMES, Rows, Streams, Work, add_dropout, bring_to_scale, losses, pointer_path, unscaled
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.rows import STATISTICS


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(2, 5))
def test_pointer_follows_the_alignment(steps: list[int], advances: int) -> None:
    at = np.cumsum([0, *steps])
    phones = int(at[-1]) + 1
    pointer, advance = pointer_path(at, phones, advances)
    assert pointer[0] == 0
    assert np.all(advance >= 0)
    assert np.all(advance < advances)
    np.testing.assert_array_equal(pointer[1:], pointer[:-1] + advance[:-1])
    assert np.all(pointer <= at)  # it may lag if phones are shorter than a frame


def test_pointer_leaves_the_text_at_the_last_frame() -> None:
    pointer, advance = pointer_path(np.array([0, 0, 1, 2, 2]), 3, 4)
    assert pointer[-1] + advance[-1] == 3


def test_pointer_catches_up_after_short_phones() -> None:
    pointer, _ = pointer_path(np.array([0, 6, 6, 6, 7]), 8, 4)
    assert pointer.tolist() == [0, 3, 6, 6, 7]


def _encoded(speaker: int) -> Encoded:
    """Create a hundred frames whose codes and statistics equal the speaker index."""
    codes = np.full((100, len(TINY.codebooks)), speaker, np.int16)
    at = np.arange(100, dtype=np.int16) // 10
    statistics = np.full(STATISTICS * TINY.latent, speaker, np.float32)
    return Encoded(speaker, np.ones(10, np.int16), np.zeros(10, np.int16), codes, at, statistics)


def test_rows_continue_with_other_speakers_and_their_statistics() -> None:
    rows = Streams([_encoded(speaker) for speaker in range(7)], TINY, seed=0).batch(20)
    assert rows.speaker.shape == (20, FRAMES, STATISTICS * TINY.latent)
    for speaker_codes, statistics in zip(rows.codes[..., 0], rows.speaker, strict=True):
        order = speaker_codes[np.flatnonzero(np.diff(speaker_codes, prepend=-1))].tolist()
        assert len(order) == len(set(order)) >= 4
        # The mean equals the speaker index.
        assert torch.equal(statistics[:, 0], speaker_codes.float())


def test_unscaled_is_the_inverse_of_bring_to_scale() -> None:
    model, plain = LM(TINY), LM(TINY)
    statistics = torch.randn(50, STATISTICS * TINY.latent) * 0.1 + 0.5
    bring_to_scale(model, statistics, fresh=True)
    entered = model.speaker[0](statistics)
    assert entered.mean(0).abs().max() < 1e-4
    assert 0.3 < entered.std() < 1.2, "normalized, although the SD of the statistics is 0.1"
    plain.load_state_dict(unscaled(model.state_dict()))
    torch.testing.assert_close(plain.encode_speaker(statistics), model.encode_speaker(statistics))
    assert unscaled(plain.state_dict()).keys() == plain.state_dict().keys()


def test_bring_to_scale_preserves_a_trained_model() -> None:
    model, statistics = LM(TINY), torch.randn(50, STATISTICS * TINY.latent) * 0.1 + 0.5
    before = model.encode_speaker(statistics)
    bring_to_scale(model, statistics, fresh=False)
    torch.testing.assert_close(model.encode_speaker(statistics), before)
    plain = unscaled(model.state_dict())["speaker.0.weight"]
    assert model.state_dict()["speaker.0.parametrizations.weight.original"].abs().mean() < plain.abs().mean()


def test_dropout_is_only_active_in_training() -> None:
    model, inputs = LM(TINY), torch.randn(2, 5, TINY.slow.width)
    reference, before = model.slow(inputs), list(model.state_dict())
    add_dropout(model, 0.5)
    assert not torch.allclose(model.slow(inputs), model.slow(inputs))
    assert torch.equal(model.eval().slow(inputs), reference)
    assert list(model.state_dict()) == before


def test_losses_reach_every_weight_and_codebook() -> None:
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
    # Untrained: roughly uniform probabilities.
    assert parts["first"] == pytest.approx(np.log(TINY.codebooks[0] * TINY.advances), rel=0.5)
    assert parts["depth"] == pytest.approx(sum(np.log(size) for size in TINY.codebooks[1:]), rel=0.5)
    loss.backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
