from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from statsmodels.stats.power import TTestPower

from voicelab.errors import ArgumentError
from voicelab.stats import BettingTest, Sprt, choice_power, rating_power, ratings_needed, trials_needed


@pytest.mark.parametrize("trials", [1, 5, 6, 16, 100])
@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
def test_choice_power_agrees_with_the_binomial_test(trials: int, alternative: Any) -> None:
    counts = np.arange(trials + 1)
    significant = np.array([binomtest(int(k), trials, 0.5, alternative).pvalue <= 0.05 for k in counts])
    assert choice_power(trials, 0.7, alternative=alternative) == pytest.approx(
        float(binom.pmf(counts, trials, 0.7)[significant].sum())
    )


@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
@pytest.mark.parametrize("share", [0.6, 0.75, 0.95])
def test_trials_needed_keep_the_power_for_larger_samples(share: float, alternative: Any) -> None:
    count = trials_needed(share, alternative=alternative)
    assert choice_power(count - 1, share, alternative=alternative) < 0.8
    after = [choice_power(count + more, share, alternative=alternative) for more in range(60)]
    assert min(after) >= 0.8


def test_share_below_chance_has_power_two_sided_only() -> None:
    assert trials_needed(0.3) == trials_needed(0.7)
    with pytest.raises(ArgumentError, match=r"share: must be above 0\.5, got 0\.3"):
        trials_needed(0.3, alternative="greater")


@pytest.mark.parametrize("listeners", [3, 12, 60])
def test_rating_power_agrees_with_statsmodels(listeners: int) -> None:
    theirs = TTestPower().power(0.6, listeners, 0.05)
    assert rating_power(listeners, 0.3, 0.5) == pytest.approx(theirs, abs=1e-6)


def test_ratings_needed_is_the_smallest_number_with_the_power() -> None:
    count = ratings_needed(0.2, 0.7)
    assert rating_power(count - 1, 0.2, 0.7) < 0.8 <= rating_power(count, 0.2, 0.7)


@pytest.mark.parametrize(
    "call",
    [
        lambda: trials_needed(0.5),
        lambda: trials_needed(0.5001),
        lambda: trials_needed(0.7, power=1.0),
        lambda: choice_power(0, 0.7),
        lambda: choice_power(10, 1.0),
        lambda: choice_power(10, 0.7, alternative="less"),  # type: ignore[arg-type]
        lambda: rating_power(1, 0.5, 1.0),
        lambda: rating_power(10, 0.5, 0.0),
        lambda: ratings_needed(0.0, 1.0),
        lambda: ratings_needed(1e-6, 1.0),
        lambda: Sprt(0.4),
        lambda: Sprt(0.7, alpha=0.6),
        lambda: Sprt(0.7, most=0),
        lambda: Sprt(0.7).decide(3, 2),
        lambda: Sprt(0.7).operating(1.5),
    ],
)
def test_invalid_plans_are_rejected(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()


def test_sprt_has_wald_limits() -> None:
    # Wald: stop for the effect when the likelihood ratio reaches (1 - beta) / alpha = 16; each right answer in a row
    # multiplies it by 0.7 / 0.5, so that nine are needed and eight are not enough.
    rule = Sprt(0.7, alpha=0.05, beta=0.2)
    assert 1.4**8 < 16 < 1.4**9
    assert rule.decide(8, 8) == "continue"
    assert rule.decide(9, 9) == "effect"
    # Each wrong one by 0.3 / 0.5, to below beta / (1 - alpha) = 0.2105.
    assert rule.decide(0, 3) == "continue"
    assert rule.decide(0, 4) == "no effect"
    assert rule.decide(120, 200) == "no effect"


def test_sprt_keeps_its_error_rates_with_fewer_trials() -> None:
    rule = Sprt(0.7, alpha=0.05, beta=0.2)
    false, _ = rule.operating(0.5)
    power, mean = rule.operating(0.7)
    assert false <= 0.05
    assert power >= 0.8
    assert mean < trials_needed(0.7, alternative="greater")
    assert rule.operating(1.0) == (1.0, 9.0)


@pytest.mark.parametrize("share", [0.5, 0.6, 0.7])
def test_sprt_operating_agrees_with_simulation(share: float) -> None:
    rule = Sprt(0.7, most=60)
    found, mean = rule.operating(share)
    rng = np.random.default_rng(int(share * 10))
    effects, lengths = 0, 0
    for _ in range(1500):
        successes = 0
        for trials in range(1, 61):
            successes += rng.random() < share
            decision = rule.decide(int(successes), trials)
            if decision != "continue":
                break
        effects += decision == "effect"
        lengths += trials
    assert effects / 1500 == pytest.approx(found, abs=4 * (found * (1 - found) / 1500) ** 0.5)
    assert lengths / 1500 == pytest.approx(mean, rel=0.1)


def test_sprt_warns_when_truncation_costs_power() -> None:
    with pytest.warns(UserWarning, match="most=60 gives a power of 60%, below the 80% of beta=0.2"):
        Sprt(0.65, most=60)


def test_betting_test_keeps_its_level_with_dependent_responses() -> None:
    # No side is preferred on the whole, but each listener has a preference of their own; 12 answers of each.
    rule, pooled, rng, wrong, naive = BettingTest(most=60), Sprt(0.65), np.random.default_rng(0), 0, 0
    for _ in range(400):
        votes = rng.random((60, 12)) < rng.uniform(size=(60, 1))
        wrong += rule.decide(list(votes.mean(axis=1))) == "effect"
        counts = np.cumsum(votes.ravel())[:200]
        decisions = (pooled.decide(int(right), trials) for trials, right in enumerate(counts, start=1))
        naive += next(decision for decision in decisions if decision != "continue") == "effect"
    # 0.05 of 400 exceeds 34 once in 1,000 times; all votes as independent are wrong four times as often.
    assert wrong <= 34
    assert naive > 60


def test_betting_test_stops_on_a_preference() -> None:
    rule, rng = BettingTest(most=40), np.random.default_rng(1)
    shares = np.clip(rng.normal(0.7, 0.15, (100, 40)), 0, 1)
    assert np.mean([rule.decide(list(own)) == "effect" for own in shares]) > 0.9
    # Each listener is one bet: 19 stakes of 0.05 to 0.95 of all, times 1 + stake for a share of 1.
    stakes = np.linspace(0.05, 0.95, 19)
    needed = next(count for count in range(1, 20) if np.mean((1 + stakes) ** count) >= 20)
    assert rule.decide([1.0] * (needed - 1)) == "continue"
    assert rule.decide([1.0] * needed) == "effect"
    assert rule.decide([0.5] * 40) == "no effect"
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        rule.decide([1.2])
