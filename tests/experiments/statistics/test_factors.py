from __future__ import annotations

import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.oneway import anova_oneway

from voicelab.experiments.statistics import cliff_delta, effects


@pytest.mark.parametrize("sizes", [(8, 3), (5, 15), (6, 6, 6), (12, 4, 7)])
def test_p_and_intervals_are_welchs(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(sizes))
    groups = [rng.normal(0.6 * place, 1 + 2 * place, size) for place, size in enumerate(sizes)]
    frame = pd.DataFrame({"voice": np.repeat(list("abc")[: len(sizes)], sizes), "level": np.concatenate(groups)})
    frame["level"] += 100.0
    table = effects(frame, "voice")
    assert table.frame.p[0] == pytest.approx(anova_oneway(groups, use_var="unequal").pvalue)
    for place, row in enumerate(table.contrasts.to_dict("records"), start=1):
        theirs = stats.ttest_ind(groups[place], groups[0], equal_var=False)
        interval = theirs.confidence_interval()
        assert (row["p"], row["df"]) == (pytest.approx(theirs.pvalue), pytest.approx(theirs.df))
        assert (row["low"], row["high"]) == (pytest.approx(interval.low), pytest.approx(interval.high))
        assert (row["p"] < 0.05) == (not row["low"] < 0 < row["high"])
        delta = cliff_delta(groups[place], groups[0])
        assert (row["delta"], row["delta_low"]) == pytest.approx((delta.value, delta.low))
        assert row["in_sd_low"] < row["in_sd"] < row["in_sd_high"]


def test_unequal_takes_and_spreads_make_no_effects() -> None:
    # 8 takes with sd 1 and 3 with sd 4: by permutation a quarter of such tables have an effect.
    rng, few, permuted = np.random.default_rng(0), 0, 0
    for _ in range(150):
        values = np.concatenate((rng.normal(0, 1, 8), rng.normal(0, 4, 3)))
        table = effects(pd.DataFrame({"voice": list("aaaaaaaabbb"), "level": values}), "voice", permutations=99)
        few += table.frame.p[0] <= 0.05
        permuted += table.frame.p_permutation[0] <= 0.05
    # A test at 0.065 exceeds 19 of 150 once in 300 times.
    assert few <= 19 < permuted


def test_levels_are_exchanged_around_each_stratums_mean() -> None:
    # Levels in other proportions in texts that are far apart: without the texts' means taken out, those would decide.
    strata, rng = ("aaab", "abbb", "aabb"), np.random.default_rng(9)
    values = [
        100.0 * place + rng.normal(size=4) + 1.2 * (np.array(list(own)) == "b") for place, own in enumerate(strata)
    ]
    centred = np.concatenate([own - own.mean() for own in values])

    def between(labels: str) -> float:
        one = np.array(list(labels)) == "a"
        return float(centred[one].sum() ** 2 / one.sum() + centred[~one].sum() ** 2 / (~one).sum())

    orders = itertools.product(*(itertools.permutations(own) for own in strata))
    statistics = [between("".join("".join(own) for own in order)) for order in orders]
    exact = float(np.mean(np.array(statistics) >= between("".join(strata)) - 1e-9))
    rows = [
        {"text": place, "voice": level, "level": value}
        for place, own in enumerate(strata)
        for level, value in zip(own, values[place], strict=True)
    ]
    frame = effects(pd.DataFrame(rows), "voice", "level", blocks="text", permutations=9999).frame
    assert frame.p_permutation[0] == pytest.approx(exact, abs=4 * math.sqrt(exact / 9999))


def test_several_blocks_are_one_factor() -> None:
    # What a text and a seed make together is far larger than the effect: only takes of one text and one seed compare.
    rng = np.random.default_rng(20)
    own, noise = 5.0 * rng.standard_normal((6, 4, 1)), 0.1 * rng.standard_normal((6, 4, 2))
    values = own + noise + np.array([0.0, 0.5])
    places = np.indices(values.shape).reshape(3, -1)
    frame = pd.DataFrame({"text": places[0], "seed": places[1], "voice": places[2], "level": values.ravel()})
    found = effects(frame, "voice", "level", blocks=["text", "seed"])
    paired = stats.ttest_rel(values[..., 1].ravel(), values[..., 0].ravel()).confidence_interval()
    row = found.contrasts.iloc[0]
    assert (row.low, row.high) == pytest.approx((paired.low, paired.high), abs=0.01)
    apart = values[..., 1] - values[..., 0]
    by_source = found.variance.set_index("source")
    assert by_source.sd["residual"] == pytest.approx(apart.std(ddof=1) / math.sqrt(2))
    frame["pair"] = [f"{text} {seed}" for text, seed in zip(frame.text, frame.seed, strict=True)]
    table = anova_lm(ols("level ~ C(voice) + C(pair)", frame).fit(), typ=2)
    assert by_source.sum_sq["blocks"] == pytest.approx(table.sum_sq["C(pair)"])
    assert by_source.df["blocks"] == 23


def test_what_differs_with_another_factor_is_not_told() -> None:
    # Voice a speaks text one, b text two, c both: by way of c they can be compared.
    rng = np.random.default_rng(21)
    cells = [("a", "one", 0.0), ("b", "two", 5.0), ("c", "one", 1.0), ("c", "two", 2.0)]
    rows = [{"voice": v, "text": t, "level": mean + 0.1 * rng.normal()} for v, t, mean in cells for _ in range(5)]
    frame = pd.DataFrame(rows)
    alone = effects(frame[frame.voice != "c"], "voice", blocks="text")
    assert alone.contrasts[["estimate", "low", "high", "in_sd"]].isna().all(axis=None)
    assert "voice b cannot be compared with a in level: another axis or the blocks differ with it." in alone.notes
    assert "a → b   cannot be estimated  –" in str(alone)
    assert alone.frame.verdict[0] == "not separable"
    assert "cannot be estimated" in alone.plot().get_yticklabels()[0].get_text()
    plt.close("all")
    joined = effects(frame, "voice", blocks="text").contrasts.set_index("level")
    cell = frame.groupby(["voice", "text"])["level"].mean()
    assert joined.estimate["c"] == pytest.approx(cell["c", "one"] - cell["a", "one"])
    by_way = cell["b", "two"] - cell["c", "two"] + cell["c", "one"] - cell["a", "one"]
    assert joined.estimate["b"] == pytest.approx(by_way)
    assert (joined.low < joined.high).all()
    # A metric that is the same everywhere tells no more of them.
    same = effects(frame[frame.voice != "c"].assign(level=1.0), "voice", blocks="text")
    assert same.contrasts.estimate.isna().all()
