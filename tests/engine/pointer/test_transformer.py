"""Transformer stacks: cached steps equal the forward pass, windowing, padding and eviction."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from voicelab.engine.pointer.config import StackConfig
from voicelab.engine.pointer.lm import Stack, rotary
from voicelab.engine.pointer.rows import GRAIN, KVCache

WINDOW = 5
CONFIG = StackConfig(width=16, layers=2, heads=2, hidden=24, window=WINDOW)
ROOM = 2 * GRAIN


def _stack(causal: bool = True, layers: int = 2) -> Stack:
    torch.manual_seed(4)
    return Stack(StackConfig(width=16, layers=layers, heads=2, hidden=24, window=WINDOW), causal).eval()


def _cache(rows: int = 1, config: StackConfig = CONFIG) -> KVCache:
    return KVCache(config, rows, torch.zeros)


def _given(*shape: int) -> Tensor:
    return torch.randn(*shape, 16, generator=torch.Generator().manual_seed(6))


def _extended(stack: Stack, x: Tensor, cache: KVCache, rows: list[int]) -> Tensor:
    """Append positions to cache rows."""
    new = x.shape[1]
    for row in rows:
        cache.make_room(row, new)
    starts, offsets = (torch.tensor([each[row] for row in rows])[:, None] for each in (cache.lengths, cache.offsets))
    for row in rows:
        cache.lengths[row] += new
    longest = max(cache.lengths[row] for row in rows)
    return stack.extend(x, cache, torch.tensor(rows), starts + torch.arange(new), offsets, slice(longest))


@pytest.mark.parametrize(
    ("length", "size"),
    [
        *((length, 1) for length in (1, WINDOW, WINDOW + 1, ROOM, ROOM + 1, 3 * ROOM + 2)),
        *((30 * size, size) for size in (2, 3, WINDOW)),
    ],
)
def test_extend_equals_forward(length: int, size: int) -> None:
    """Lengths beyond the window and beyond the cache's room."""
    stack, x, cache = _stack(), _given(1, length), _cache()
    stepped = torch.cat([_extended(stack, x[:, i : i + size], cache, [0]) for i in range(0, length, size)], dim=1)
    torch.testing.assert_close(stepped, stack(x), atol=2e-5, rtol=1e-4)
    assert cache.offsets[0] + cache.lengths[0] == length
    if length > ROOM:
        assert cache.offsets[0] > 0


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0], [1, 2], [2, 1, 0]])
def test_rows_of_different_lengths_share_a_batch(order: list[int]) -> None:
    """Rows of different lengths, one with evicted positions, in any order."""
    stack, cache, x = _stack(), _cache(rows=3), _given(3, 2 * ROOM)
    begun = {0: 0, 1: WINDOW + 2, 2: ROOM + 3}
    for row, count in begun.items():
        for i in range(count):
            _extended(stack, x[row : row + 1, i : i + 1], cache, [row])
    out = {row: [] for row in order}  # type: dict[int, list[Tensor]]
    for step in range(WINDOW + 3):
        given = torch.stack([x[row, begun[row] + step] for row in order])[:, None]
        for row, made in zip(order, _extended(stack, given, cache, order), strict=True):
            out[row].append(made)
    for row, made in out.items():
        whole = stack(x[row : row + 1, : begun[row] + WINDOW + 3])[0]
        torch.testing.assert_close(torch.cat(made), whole[begun[row] :], atol=2e-5, rtol=1e-4)


def test_reset_clears_a_row() -> None:
    stack, cache, x = _stack(), _cache(rows=2), _given(2, 12)
    for i in range(12):
        _extended(stack, x[:, i : i + 1], cache, [0, 1])
    cache.reset(0)
    again = []
    for i in range(4):  # beside a long row, so that the old keys lie within what is looked at
        given = torch.stack([x[1, i], x[1, i]])[:, None]
        again.append(_extended(stack, given, cache, [0, 1])[0])
    torch.testing.assert_close(torch.cat(again)[None], stack(x[1:, :4]), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_window(causal: bool) -> None:
    stack, x = _stack(causal, layers=1), _given(1, 20)
    moved = x.clone()
    moved[:, 9] += 3
    changed = (stack(x) - stack(moved)).abs().amax((0, 2)) > 1e-6
    first = 9 if causal else 9 - WINDOW + 1
    assert changed.nonzero().flatten().tolist() == list(range(first, 9 + WINDOW))


def test_padding_does_not_change_valid_positions() -> None:
    stack, x = _stack(causal=False), _given(2, 11)
    valid = torch.ones(2, 11, dtype=torch.bool)
    valid[0, 7:] = False
    padded = stack(x, valid)
    torch.testing.assert_close(padded[0, :7], stack(x[:1, :7])[0], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(padded[1], stack(x[1:])[0], atol=2e-5, rtol=1e-4)
    garbage = x.clone()
    garbage[0, 7:] = 100.0
    torch.testing.assert_close(stack(garbage, valid)[0, :7], padded[0, :7])
    assert torch.isfinite(padded).all()


def test_causal_and_masked_attention_agree() -> None:
    """Short causal sequences use torch's causal mask, others an explicit one."""
    stack, x = _stack(), _given(1, WINDOW)
    torch.testing.assert_close(stack(x), stack(x, torch.ones(1, WINDOW, dtype=torch.bool)), atol=2e-5, rtol=1e-4)


def test_rotary_scores_depend_on_distance_only() -> None:
    q, k = torch.randn(8), torch.randn(8)

    def score(at: int, to: int) -> float:
        turned = []
        for vector, place in ((q, at), (k, to)):
            cos, sin = rotary(torch.tensor(place), 8)
            a, b = vector.chunk(2)
            turned.append(torch.cat([a * cos - b * sin, b * cos + a * sin]))
        return float(turned[0] @ turned[1])

    assert score(7, 3) == pytest.approx(score(107, 103), abs=1e-3)
    assert score(7, 3) != pytest.approx(score(7, 5), abs=1e-3)
