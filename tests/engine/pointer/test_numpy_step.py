"""The step in numpy is the step in torch, and a row's numbers do not depend on the rows beside it, to the bit."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.tiny import BOTH, LIVELY, begun, numpy_lm, phonemes, sampler_of, stepped
from voicelab.engine.core.sequence import Settings
from voicelab.engine.pointer.family import PointerRunner
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.numpy_step import Choice, _pasts, attend, penalize, pick
from voicelab.engine.pointer.rows import GRAIN
from voicelab.engine.pointer.step import TorchLM, TorchStep
from voicelab.errors import EngineError

CPU = torch.device("cpu")
SETTINGS = (LIVELY, Settings(), Settings(0.0), Settings(0.4, 0.95, 3.0))


@pytest.mark.parametrize("chosen", SETTINGS, ids=str)
def test_numpy_equals_torch(lm: LM, chosen: Settings) -> None:
    """Beyond the window and beyond the cache's room; a draw in a hundred thousand may fall between two roundings."""
    said = []
    for made in BOTH:
        runner = PointerRunner(made(lm), 3)
        for row in range(3):
            begun(runner, row, phonemes(400, row), row, chosen)
        turns = [[0, 2] if 5 < frame < 20 else [2, 0, 1] for frame in range(GRAIN * 2 + 4)]  # one is idle for a while
        said.append([stepped(runner, rows) for rows in turns])
    assert said[0] == said[1]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_attention_is_independent_of_the_batch(data: st.DataObject) -> None:
    """Rows in any order with gaps between them, of any age, together or each by itself; against the definition too."""
    heads, head, window = 2, 16, data.draw(st.sampled_from([5, 40, 192]))
    places = np.array(data.draw(st.lists(st.integers(0, window + 2 * GRAIN), min_size=1, max_size=6)))
    rows = np.array(data.draw(st.permutations(range(8))))[: len(places)]
    rng = np.random.default_rng(len(places))
    keys, values = rng.normal(size=(2, 8, heads, window + 4 * GRAIN, head)).astype(np.float32)
    query = rng.normal(size=(len(rows), heads, head)).astype(np.float32)
    made = np.empty_like(query)
    for past in _pasts(rows, places, window):
        made[past.which] = past.attend(query[past.which], keys, values)
    for i, (row, place) in enumerate(zip(rows, places, strict=True)):
        (alone,) = _pasts(rows[[i]], places[[i]], window)
        assert np.array_equal(alone.attend(query[[i]], keys, values)[0], made[i])
        seen = slice(max(0, place + 1 - window), place + 1)
        np.testing.assert_allclose(made[i], attend(query[i], keys[row, :, seen], values[row, :, seen]), atol=1e-5)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 998).map(lambda n: n / 1000 + 0.00037)),
        min_size=1,
        max_size=4,
    ),
)
def test_pick_equals_torch(seed: int, chosen: list[tuple[float, float, float]]) -> None:
    """Logits with ties, and with what is impossible."""
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(len(chosen), 50 if seed % 2 else 300)) * 4).astype(np.float32)
    logits[rng.random(logits.shape) < 0.3] = -np.inf
    logits[:, seed % 50] = 1.0
    given_ = [Settings(temperature, top_p) for temperature, top_p, _ in chosen]
    draws = np.array([draw for *_, draw in chosen], np.float32)
    with np.errstate(all="ignore"):
        found = pick(logits, Choice.of(given_), draws)
    wanted = sampler_of(given_).pick(torch.from_numpy(logits), torch.from_numpy(draws)).numpy()
    # A draw that falls between two roundings of a sum may take the neighbour.
    near = [
        sampler_of(given_).pick(torch.from_numpy(logits), torch.from_numpy(draws + np.float32(e))).numpy()
        for e in (-1e-5, 1e-5)
    ]
    assert all(one in around for one, *around in zip(found, wanted, *near, strict=True))


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.2, 3.0, 100.0, 1e-6])
def test_penalty_equals_torch(penalty: float) -> None:
    logits = np.random.default_rng(3).normal(size=(2, 4, 10)).astype(np.float32) * 2
    recent, chosen = [[3, -1, 7, 3], [-1] * 4], [Settings(repetition_penalty=penalty)] * 2
    wanted = sampler_of(chosen).penalize(torch.from_numpy(logits), torch.tensor(recent))
    np.testing.assert_allclose(penalize(logits, np.array(recent), Choice.of(chosen)), wanted.numpy(), atol=2e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_non_finite_logits_raise(temperature: float, number: float) -> None:
    logits = np.zeros((1, 5), np.float32)
    logits[0, 2] = number
    with np.errstate(all="ignore"), pytest.raises(EngineError, match="not finite"):
        pick(logits, Choice.of([Settings(temperature)]), np.array([0.5], np.float32))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("graphs", [True, False])
def test_cuda_equals_cpu(lm: LM, graphs: bool) -> None:
    """With rows of different ages, one of which is idle for a while, beyond the window and the cache's room."""
    said = []
    on_cuda = TorchLM(copy.deepcopy(lm).cuda())
    on_cuda.step = partial(TorchStep, on_cuda.module, graphs=graphs)  # type: ignore[method-assign]
    for model in (numpy_lm(lm), on_cuda):
        runner = PointerRunner(model, 3)
        for row in range(3):
            begun(runner, row, phonemes(400, row), row)
        turns = [[0, 2] if 5 < frame < 20 else [0, 1, 2] for frame in range(GRAIN * 2 + 4)]
        said.append([stepped(runner, rows) for rows in turns])
    assert said[0] == said[1]
