from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from statsmodels.api import GLM, families
from statsmodels.stats.proportion import proportion_confint

from voicelab.errors import RequestInvalid
from voicelab.experiments.statistics import binomial, bradley_terry

# A. Agresti, "Categorical Data Analysis" (2002), table 10.10: the American League's eastern division in 1987, who won
# how often against whom; the strengths that he prints are against Baltimore.
TEAMS = ("Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore")
WINS = np.array(
    [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ]
)
PRINTED = (1.58, 1.44, 1.29, 1.25, 1.11, 0.68, 0.0)


def test_twelve_of_sixteen_is_the_classic_abx_result() -> None:
    # 2517 of the 65536 ways in which 16 answers can fall have 12 right or more.
    found = binomial(12, 16, alternative="greater")
    assert found.p == pytest.approx(2517 / 65536)
    assert found.estimate.value == 0.75
    assert binomial(11, 16, alternative="greater").p > 0.05
    assert "p 0.03841" in str(found)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (7, 20), (263, 500)])
@pytest.mark.parametrize(("interval", "theirs"), [("exact", "beta"), ("wilson", "wilson")])
def test_intervals_agree_with_statsmodels(successes: int, trials: int, interval: Any, theirs: str) -> None:
    found = binomial(successes, trials, interval=interval, alternative="greater", confidence=0.9).estimate
    assert (found.low, found.high) == pytest.approx(proportion_confint(successes, trials, 0.1, theirs), abs=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"successes": 5, "trials": 4},
        {"successes": -1, "trials": 4},
        {"successes": 1, "trials": 0},
        {"successes": 1.5, "trials": 4},
        {"successes": 1, "trials": 4, "chance": 0.0},
        {"successes": 1, "trials": 4, "alternative": "more"},
        {"successes": 1, "trials": 4, "interval": "wald"},
        {"successes": 1, "trials": 4, "confidence": 95},
    ],
)
def test_impossible_choices_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid):
        binomial(**wrong)


def test_strengths_are_those_that_agresti_prints() -> None:
    found = bradley_terry(WINS, TEAMS)
    assert found.strength - found.strength[-1] == pytest.approx(PRINTED, abs=0.006)
    assert found.probability("Milwaukee", "Baltimore") == pytest.approx(1 / (1 + math.exp(-1.58)), abs=0.001)


def test_strengths_and_errors_are_a_logistic_regressions() -> None:
    rows, won = [], []
    for a in range(len(WINS)):
        for b in range(a):
            row = np.zeros(len(WINS))
            row[a], row[b] = 1, -1
            rows.append(row[:-1])
            won.append([WINS[a, b], WINS[b, a]])
    fitted = GLM(np.array(won), np.array(rows), family=families.Binomial()).fit()
    found = bradley_terry(WINS, TEAMS)
    assert found.strength[:-1] - found.strength[-1] == pytest.approx(fitted.params, abs=1e-6)
    apart = found.difference("Milwaukee", "Baltimore")
    reach = 400 / math.log(10) * 1.959964 * fitted.bse[0]
    assert apart.high - apart.low == pytest.approx(2 * reach, rel=1e-4)


def test_the_table_is_on_elos_scale_and_sorted() -> None:
    # Odds of 10 to 1 are 400 points.
    table = bradley_terry([[0, 10], [100, 0]], ["low", "high"]).frame()
    assert list(table.system) == ["high", "low"]
    assert table.elo[0] - table.elo[1] == pytest.approx(400.0)
    assert table.elo.mean() == pytest.approx(1500.0)
    assert (table.low < table.elo).all()
    assert (table.elo < table.high).all()


@pytest.mark.parametrize(
    ("wins", "why"),
    [
        ([[0, 3], [0, 0]], "never lose"),
        ([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], "never lose"),
        ([[0, -1], [1, 0]], "counts"),
        ([[1, 1], [1, 0]], "diagonal"),
        ([[0, 1, 1], [1, 0, 1]], "shape"),
        ([[0, math.nan], [1, 0]], "counts"),
    ],
)
def test_wins_without_finite_strengths_are_refused(wins: Any, why: str) -> None:
    with pytest.raises(RequestInvalid, match=why):
        bradley_terry(wins)


@pytest.mark.thorough
def test_intervals_of_strengths_cover_the_truth() -> None:
    rng = np.random.default_rng(7)
    truth = np.array([0.8, 0.3, -0.2, -0.9])
    chance = 1 / (1 + np.exp(truth[None] - truth[:, None]))
    covered = 0
    for _ in range(600):
        upper = np.triu(rng.binomial(25, chance), 1)
        found = bradley_terry(upper + np.triu(25 - upper, 1).T, "abcd").difference("a", "c")
        covered += found.low <= 400 / math.log(10) * 1.0 <= found.high
    assert 0.92 <= covered / 600 <= 0.98
