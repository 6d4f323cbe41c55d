"""Sampling: nucleus, greedy decoding, and a repetition penalty that keeps advance probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.engine.tiny import sampler_of
from voicelab.engine.core.sequence import Settings
from voicelab.engine.pointer.rows import REPEAT_WINDOW

CPU = torch.device("cpu")
ALMOST_ONE = float(np.nextafter(np.float32(1), np.float32(0)))


def _nucleus(logits: NDArray[np.float64], temperature: float, top_p: float) -> NDArray[np.float64]:
    """The nucleus distribution by definition: the smallest set of most likely symbols with `top_p`, renormalized."""
    p = np.exp(logits / temperature - (logits / temperature).max())
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    size = int(np.searchsorted(np.cumsum(p[order]), top_p - 1e-9)) + 1
    kept = np.zeros_like(p)
    kept[order[:size]] = p[order[:size]]
    shared: NDArray[np.float64] = kept / kept.sum()
    return shared


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, ALMOST_ONE, 0.5]))
def test_temperature_zero_is_greedy(seed: int, draw: float) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(seed)) * 5
    sampler = sampler_of([Settings(temperature=0.0, top_p=top_p) for top_p in (0.0, 0.7, 1.0)])
    assert torch.equal(sampler.pick(logits, torch.full((3,), draw)), logits.argmax(-1))


@pytest.mark.parametrize(
    ("temperature", "top_p"),
    [
        *((1.0, 1.0), (0.7, 0.7), (1.0, 0.3), (0.4, 0.95), (0.05, 0.9)),
        *((1.0, top_p) for top_p in (0.0, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91)),
    ],
)
@pytest.mark.parametrize(
    "logits", [np.random.default_rng(8).normal(size=12) * 1.5, np.log([0.1, 0.4, 0.2, 0.3])], ids=len
)
def test_nucleus_matches_definition(temperature: float, top_p: float, logits: NDArray[np.float64]) -> None:
    draws = 999
    sampler = sampler_of([Settings(temperature, top_p)] * draws)
    picked = sampler.pick(torch.tensor(logits, dtype=torch.float32).expand(draws, -1), torch.arange(draws) / draws)
    counts = np.bincount(picked.numpy(), minlength=logits.size)
    wanted = _nucleus(logits, temperature, top_p)
    assert set(np.flatnonzero(counts)) <= set(np.flatnonzero(wanted))
    np.testing.assert_allclose(counts, wanted * draws, atol=2)


def test_extreme_draws_select_nucleus_ends() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    full, most = Settings(1.0, 1.0), Settings(1.0, 0.65)
    assert int(sampler_of([full]).pick(logits, torch.tensor([0.0]))) == 1
    assert int(sampler_of([full]).pick(logits, torch.tensor([ALMOST_ONE]))) == 0
    assert int(sampler_of([most]).pick(logits, torch.tensor([ALMOST_ONE]))) == 3


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1, exclude_max=True, width=32))
def test_impossible_symbols_are_never_picked(seed: int, temperature: float, top_p: float, draw: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 64, generator=generator) * 20
    impossible = torch.rand(64, generator=generator) < 0.9
    impossible[seed % 64] = False
    logits[0, impossible] = -torch.inf
    picked = int(sampler_of([Settings(temperature, top_p)]).pick(logits, torch.tensor([draw])))
    assert not impossible[picked]


def _penalized(penalty: float, logits: Tensor, recent: list[int]) -> Tensor:
    return sampler_of([Settings(repetition_penalty=penalty)]).penalize(logits[None], torch.tensor([recent]))[0]


LOGITS = torch.randn(4, 10, generator=torch.Generator().manual_seed(3)) * 2
RECENT = [3, -1, 7, 3]


def test_recent_has_window_length() -> None:
    assert len(RECENT) == REPEAT_WINDOW


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0, 100.0])
def test_penalty_keeps_advance_probabilities(penalty: float) -> None:
    found = _penalized(penalty, LOGITS, RECENT)
    plain = torch.log_softmax(LOGITS.flatten(), 0).view_as(LOGITS)
    torch.testing.assert_close(found.logsumexp(-1), plain.logsumexp(-1), atol=1e-5, rtol=1e-5)
    assert float(found.exp().sum()) == pytest.approx(1, abs=1e-5)


def test_penalty_divides_odds() -> None:
    found, plain = _penalized(3.0, LOGITS, RECENT), _penalized(1.0, LOGITS, RECENT)
    torch.testing.assert_close(plain, torch.log_softmax(LOGITS.flatten(), 0).view_as(LOGITS))
    odds = (found[:, 3] - found[:, 0]) - (plain[:, 3] - plain[:, 0])
    torch.testing.assert_close(odds, torch.full((4,), -float(np.log(3.0))), atol=1e-5, rtol=1e-5)
    untouched = (found[:, 5] - found[:, 0]) - (plain[:, 5] - plain[:, 0])
    torch.testing.assert_close(untouched, torch.zeros(4), atol=1e-5, rtol=0)


def test_larger_penalty_lowers_probability() -> None:
    likely = [float(_penalized(p, LOGITS, RECENT)[:, 3].logsumexp(0)) for p in (0.3, 0.8, 1.0, 1.2, 2.0, 10.0, 100.0)]
    assert likely == sorted(likely, reverse=True)
    assert len(set(likely)) == len(likely)


def test_no_recent_codes_no_penalty() -> None:
    torch.testing.assert_close(_penalized(5.0, LOGITS, [-1] * 4), _penalized(1.0, LOGITS, [-1] * 4))


@pytest.mark.parametrize("penalty", [5e-324, 1e-50, 1e-6, 100.0])
def test_extreme_penalties_are_finite(penalty: float) -> None:
    found = _penalized(penalty, LOGITS, RECENT)
    assert not torch.isnan(found).any()
    picked = sampler_of([Settings(1.0, 1.0)]).pick(found.flatten()[None], torch.tensor([0.5]))
    assert 0 <= int(picked) < 40
