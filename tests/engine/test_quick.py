"""The step in numpy is the step in torch, and a row's numbers do not depend on the rows beside it, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.tiny import LIVELY, phonemes, sequence
from voicelab.engine.lm import LM
from voicelab.engine.quick import Matrix, QuickStep, penalize, pick
from voicelab.engine.runner import Runner
from voicelab.engine.sampling import Sampler, Settings
from voicelab.engine.step import TorchStep
from voicelab.errors import EngineError

CPU = torch.device("cpu")
SETTINGS = (LIVELY, Settings(), Settings(0.0), Settings(0.4, 0.95, 3.0))


@pytest.mark.parametrize("chosen", SETTINGS, ids=str)
def test_both_ways_say_the_same(lm: LM, chosen: Settings) -> None:
    """Beyond the window and beyond the cache's room; a draw in a hundred thousand may fall between two roundings."""
    said: list[list[list[int]]] = []
    for way in (QuickStep, TorchStep):
        runner = Runner(lm, 3, way)
        made = [sequence(phonemes(400, seed), seed=seed, settings=chosen, voice=seed) for seed in range(3)]
        for row, one in enumerate(made):
            runner.begin(one, row)
            runner.read(one, phonemes(400, row))
        said.append([runner.step(made).tolist() for _ in range(5 * lm.config.slow.window)])
    assert said[0] == said[1]


def _rows(count: int, width: int, seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


@pytest.mark.parametrize(("out", "width"), [(768, 256), (256, 704), (7, 30_000), (131, 97), (1, 5), (2048, 256)])
def test_a_product_is_the_product_and_each_row_is_by_itself(out: int, width: int) -> None:
    weight, x, bias = _rows(out, width), _rows(8, width, 1), _rows(1, out, 2)[0]
    matrix = Matrix(torch.from_numpy(weight), torch.from_numpy(bias))
    made = matrix(x)
    wanted = x.astype(np.float64) @ weight.T + bias
    np.testing.assert_allclose(made, wanted, atol=1e-5 * np.sqrt(width))
    for i, row in enumerate(x):
        assert np.array_equal(matrix(row[None])[0], made[i])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 998).map(lambda n: n / 1000 + 0.00037)),
        min_size=1,
        max_size=4,
    ),
)
def test_a_symbol_is_picked_as_torch_does(seed: int, chosen: list[tuple[float, float, float]]) -> None:
    """Logits with ties, and with what is impossible."""
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(len(chosen), 50)) * 4).astype(np.float32)
    logits[rng.random(logits.shape) < 0.3] = -np.inf
    logits[:, seed % 50] = 1.0
    given_ = [Settings(temperature, top_p) for temperature, top_p, _ in chosen]
    draws = np.array([draw for *_, draw in chosen], np.float32)
    with np.errstate(all="ignore"):
        found = pick(logits, given_, draws)
    wanted = Sampler(given_, CPU).pick(torch.from_numpy(logits), torch.from_numpy(draws)).numpy()
    # A draw that falls between two roundings of a sum may take the neighbour.
    near = [
        Sampler(given_, CPU).pick(torch.from_numpy(logits), torch.from_numpy(draws + np.float32(e))).numpy()
        for e in (-1e-5, 1e-5)
    ]
    assert all(one in around for one, *around in zip(found, wanted, *near, strict=True))


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.2, 3.0, 100.0, 1e-6])
def test_the_penalty_is_torchs(penalty: float) -> None:
    logits = np.random.default_rng(3).normal(size=(2, 4, 10)).astype(np.float32) * 2
    recent, chosen = [[3, -1, 7, 3], [-1] * 4], [Settings(repetition_penalty=penalty)] * 2
    wanted = Sampler(chosen, CPU).penalize(torch.from_numpy(logits), torch.tensor(recent))
    np.testing.assert_allclose(penalize(logits, recent, chosen), wanted.numpy(), atol=2e-5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_never_picked(temperature: float, number: float) -> None:
    logits = np.zeros((1, 5), np.float32)
    logits[0, 2] = number
    with np.errstate(all="ignore"), pytest.raises(EngineError, match="not finite"):
        pick(logits, [Settings(temperature)], np.array([0.5], np.float32))
