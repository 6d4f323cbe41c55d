"""Streaming convolutions: equal to processing at once, and causal."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from voicelab.engine.core.layers import Carry, Conv, LayerGroup, State
from voicelab.engine.pointer.codec import ConvBlock

LENGTH = 24


def _stack() -> LayerGroup:
    torch.manual_seed(3)
    stack = LayerGroup("blocks", [ConvBlock(6) for _ in range(3)])
    for name, parameter in stack.named_parameters():
        if name.endswith("scale"):
            torch.nn.init.ones_(parameter)  # at 0.1 a wrong past would hardly show
    return stack


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, LENGTH - 1), max_size=6, unique=True))
def test_streaming_equals_processing_at_once(cuts: list[int]) -> None:
    stack, x = _stack(), torch.randn(2, 6, LENGTH)
    end = Carry([None])
    whole = stack(x, end)
    past: State | None = None
    parts = []
    for start, stop in pairwise([0, *sorted(cuts), LENGTH]):
        carry = Carry([past])
        parts.append(stack(x[..., start:stop], carry))
        past = tuple(carry.after)
    torch.testing.assert_close(torch.cat(parts, dim=-1), whole)
    assert past is not None
    for mine, theirs in zip(past, end.after, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_causal_convolution_receptive_field() -> None:
    conv = Conv(1, 1, kernel=5)
    x = torch.zeros(1, 1, 12)
    bent = x.clone()
    bent[..., 3] = 1
    moved = (conv(bent, Carry([None])) - conv(x, Carry([None])))[0, 0].abs() > 1e-6
    assert moved.nonzero().flatten().tolist() == [3, 4, 5, 6, 7]


def test_encoder_block_is_noncausal_and_keeps_length() -> None:
    block = ConvBlock(4)
    torch.nn.init.ones_(block.scale)
    x = torch.randn(1, 4, 9)
    later = x.clone()
    later[..., 5] += 1
    before, after = block(x, None), block(later, None)
    assert before.shape == x.shape
    moved: Tensor = (before - after).abs().sum((0, 1)) > 1e-6
    assert moved.nonzero().flatten().tolist() == list(range(2, 9))
