from __future__ import annotations

import itertools
import math
import time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.oneway import anova_oneway

from tests.tones import there
from voicelab.errors import ArgumentError
from voicelab.stats import cliff_delta, effects
from voicelab.stats.factors import Design, build, permutation_p, text_profiles


def table(levels: tuple[int, ...], takes: int, seed: int = 0, metrics: int = 1) -> pd.DataFrame:
    """Return a grid of axes a, b, c with ``takes`` a cell, and metrics m0, m1, … that are nothing but normal noise."""
    cells = pd.DataFrame(itertools.product(*map(range, levels), range(takes)), columns=[*"abc"[: len(levels)], "take"])
    noise = np.random.default_rng((seed, *levels, takes)).standard_normal((len(cells), metrics))
    return pd.concat([cells, pd.DataFrame(noise, columns=[f"m{place}" for place in range(metrics)])], axis=1)


@pytest.mark.parametrize(
    ("levels", "takes", "lost"),
    [
        ((2, 2), 1, 0),
        ((3, 2), 1, 0),
        ((5, 2), 1, 1),
        ((3, 3), 1, 2),
        ((3, 2), 2, 1),
        ((2, 2, 2), 1, 0),
        ((4, 3, 2), 1, 3),
    ],
)
def test_few_takes_agree_with_a_linear_model(levels: tuple[int, ...], takes: int, lost: int) -> None:
    frame = table(levels, takes).iloc[lost:]
    frame["m0"] += 1.5 * frame["a"]
    axes = list("abc"[: len(levels)])
    found = effects(frame, axes, "m0")
    additive = ols(f"m0 ~ {' + '.join(f'C({axis})' for axis in axes)}", frame).fit()
    # Noise is what cells leave over, where some have two takes.
    cells = additive if takes == 1 else ols(f"m0 ~ {' * '.join(f'C({axis})' for axis in axes)}", frame).fit()
    theirs, rng = anova_lm(additive, typ=2), np.random.default_rng(0)
    widths = {}
    for axis, row in zip(axes, found.frame.to_dict("records"), strict=True):
        assert row["test"] == "pooled"
        names = [name for name in additive.params.index if name.startswith(f"C({axis})")]
        covariance = additive.cov_params().loc[names, names].to_numpy() / additive.mse_resid
        root = np.sqrt(np.diag(covariance))
        t = np.abs(additive.params[names] / root / math.sqrt(cells.mse_resid)).max()
        largest = stats.multivariate_t(shape=covariance / np.outer(root, root), df=cells.df_resid, seed=0)
        if len(names) == 1:
            f = theirs.sum_sq[f"C({axis})"] / cells.mse_resid
            assert row["p"] == pytest.approx(stats.f.sf(f, 1, cells.df_resid), rel=1e-9)
        else:
            inside = largest.cdf(np.full(len(names), t), lower_limit=np.full(len(names), -t), random_state=rng)
            assert row["p"] == pytest.approx(1.0 - inside, abs=0.012)
        draws = np.abs(largest.rvs(200_000, random_state=rng).reshape(200_000, -1)).max(axis=1)
        widths[axis] = np.quantile(draws, 0.95) if len(names) > 1 else stats.t.ppf(0.975, cells.df_resid)
    for row in found.contrasts.to_dict("records"):
        reach = widths[row["axis"]]
        name = f"C({row['axis']})[T.{row['level']}]"
        error = additive.bse[name] * math.sqrt(cells.mse_resid / additive.mse_resid)
        assert (row["estimate"], row["error"], row["df"]) == pytest.approx(
            (additive.params[name], error, cells.df_resid)
        )
        assert (row["low"], row["high"]) == pytest.approx(
            (row["estimate"] - reach * error, row["estimate"] + reach * error), abs=0.04 * reach * error
        )


def test_few_takes_agree_with_r() -> None:
    # d <- expand.grid(a=factor(c(0.2,0.7,1.0)), b=factor(c("low","normal"))); d$x <- c(3.1, 4.7, 5.2, 2.4, 4.9, 6.6)
    # m <- lm(x ~ a + b, d); anova(m); confint(m): of two levels exact, of three wider for two differences.
    frame = pd.DataFrame({"a": [0.2, 0.7, 1.0] * 2, "b": ["low"] * 3 + ["normal"] * 3})
    frame["x"] = [3.1, 4.7, 5.2, 2.4, 4.9, 6.6]
    found = effects(frame, ["a", "b"], "x")
    assert found.frame.p[1] == pytest.approx(0.670707, abs=5e-7)
    low, high = (
        [-1.1554040906905, -0.0554040906905, -2.3172014805405],
        [5.2554040906905, 6.3554040906905, 2.9172014805405],
    )
    assert found.contrasts.low[2] == pytest.approx(low[2], abs=1e-9)
    assert found.contrasts.high[2] == pytest.approx(high[2], abs=1e-9)
    assert (found.contrasts.low[:2] < low[:2]).all()
    assert (found.contrasts.high[:2] > high[:2]).all()
    # With three takes more: drop1(lm(x ~ a + b, e), test="F"), with the mean square that lm(x ~ a * b, e) leaves over.
    more = pd.DataFrame({"a": [0.2, 0.7, 1.0], "b": ["low", "low", "normal"], "x": [3.6, 4.1, 2.9]})
    found = effects(pd.concat([frame, more]), ["a", "b"], "x")
    assert found.frame.p[1] == pytest.approx(0.801295987644066, rel=1e-12)
    assert found.contrasts.low[2] == pytest.approx(-3.7740693256132)


@pytest.mark.parametrize(
    ("levels", "takes", "test"),
    [
        ((2,), 4, "pooled"),
        ((2,), 5, "Welch"),
        ((2, 2), 1, "pooled"),
        ((2, 2), 2, "pooled"),
        ((2, 2), 3, "Welch"),
        ((6,), 8, "pooled"),
        ((6,), 9, "Welch"),
    ],
)
def test_choice_of_test_depends_on_the_design_only(levels: tuple[int, ...], takes: int, test: str) -> None:
    frame = table(levels, takes, metrics=3)
    frame["m1"] *= 1e9 * frame["a"]
    frame["m2"] = frame["a"]
    found = effects(frame, list("ab"[: len(levels)]), ["m0", "m1", "m2"])
    assert set(found.frame.test) == {test}
    assumed = [note for note in found.notes if "equal variances are assumed" in note]
    assert len(assumed) == (test == "pooled")


def test_too_few_takes_are_reported() -> None:
    with pytest.raises(ArgumentError, match="too few") as caught:
        effects(table((2,), 1).head(1), "a", "m0")
    assert caught.value.argument == "metrics"
    # A level with one take, beside eight, has no test; the others have theirs.
    frame = pd.concat([table((2,), 8), pd.DataFrame({"a": [2], "m0": [0.3]})])
    found, alone = effects(frame, "a", "m0"), effects(frame[frame["a"] < 2], "a", "m0")
    assert found.contrasts.error.isna().tolist() == [False, True]
    assert (found.frame.p[0], found.contrasts.p[0]) == pytest.approx((alone.frame.p[0], alone.contrasts.p[0]))
    assert "a 2 is not tested: 1 takes, another level 8, too unequal" in found.notes[0]
    # Undefined takes are excluded, and axes or metrics without any others, with a note.
    frame = table((3, 2), 1, metrics=3)
    frame.loc[0, "m0"], frame.loc[frame["b"] == 1, "m1"], frame["m2"] = np.nan, np.nan, np.nan
    found = effects(frame, ["a", "b"], ["m0", "m1", "m2"])
    assert found.frame.query("metric == 'm0'").takes.to_list() == [5, 5]
    assert found.frame.query("metric == 'm1'").axis.to_list() == ["a"]
    assert found.frame.query("metric == 'm1'").verdict.item() == "underpowered"
    assert "m2: 0 values, too few to compare." in found.notes
    assert "'b' has one level where m1 is defined: nothing to compare." in found.notes


def test_hundred_metrics_take_under_two_seconds() -> None:
    frame = table((5, 5, 4), 10, metrics=100)
    began = time.process_time()
    found = effects(frame, ["a", "b", "c"], [f"m{place}" for place in range(100)])
    assert time.process_time() - began < 2.0
    assert len(found.frame) == 300
    alone = effects(frame, ["a", "b", "c"], "m77")
    pd.testing.assert_frame_equal(alone.contrasts, found.contrasts.query("metric == 'm77'").reset_index(drop=True))


def test_texts_with_the_same_takes_share_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table((3, 2, 20), 2).drop(index=[1, 50])  # two texts have other takes
    design, order = build(frame, ["a", "b"], ["c"], "c")
    values, texts = frame[["m0"]].to_numpy()[order], there(design.texts)
    shuffled = np.random.default_rng(0).permutation(len(frame))
    other = Design(design.codes[:, shuffled], design.levels, texts[shuffled])
    whole, models = Design.differences, []

    def counting(self: Design, axis: int) -> Any:
        models.append(axis)
        return whole(self, axis)

    monkeypatch.setattr(Design, "differences", counting)
    profiles, weights = there(text_profiles(design, values, 0))
    assert len(models) == 3
    # Whatever the order of a text's takes.
    assert there(text_profiles(other, values[shuffled], 0))[0] == pytest.approx(profiles)
    assert weights == pytest.approx(1 / len(profiles))
    for number, profile in enumerate(profiles):
        alone = texts == number
        assert profile[1:] == pytest.approx(whole(Design(design.codes[:, alone], design.levels), 0)[0] @ values[alone])


@pytest.mark.parametrize("sizes", [(8, 3), (5, 15), (6, 6, 6), (12, 4, 7)])
def test_p_and_intervals_agree_with_welch(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(sizes))
    groups = [rng.normal(0.6 * place, 1 + 2 * place, size) for place, size in enumerate(sizes)]
    frame = pd.DataFrame({"voice": np.repeat(list("abc")[: len(sizes)], sizes), "level": np.concatenate(groups)})
    frame["level"] += 100.0
    table = effects(frame, "voice")
    assert (table.frame.p[0] <= 0.05) == (anova_oneway(groups, use_var="unequal").pvalue <= 0.05)
    for place, row in enumerate(table.contrasts.to_dict("records"), start=1):
        theirs = stats.ttest_ind(groups[place], groups[0], equal_var=False)
        interval = theirs.confidence_interval()
        if min(sizes) < 4:
            assert row["df"] == math.floor(theirs.df)
            assert row["p"] == pytest.approx(2 * stats.t.sf(abs(theirs.statistic), row["df"]))
            assert row["low"] < interval.low < interval.high < row["high"]
            continue
        assert row["df"] == pytest.approx(theirs.df)
        if len(sizes) == 2:
            assert row["p"] == pytest.approx(theirs.pvalue)
            assert (row["low"], row["high"]) == (pytest.approx(interval.low), pytest.approx(interval.high))
        else:  # adjusted for two differences, at most by Bonferroni's bound
            assert theirs.pvalue < row["p"] <= 2 * theirs.pvalue
            assert row["low"] < interval.low < interval.high < row["high"]
        assert (row["p"] < 0.05) == (not row["low"] < 0 < row["high"])
        delta = cliff_delta(groups[place], groups[0])
        assert (row["delta"], row["delta_low"]) == pytest.approx((delta.value, delta.low))
        assert row["in_sd_low"] < row["in_sd"] < row["in_sd_high"]


def test_permutations_are_around_stratum_means() -> None:
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
    frame = pd.DataFrame(rows)
    design, order = build(frame, ["voice"], ["text"])
    p = permutation_p(design, frame["level"].to_numpy()[order], 0)
    assert p == pytest.approx(exact, abs=4 * math.sqrt(exact / 9999))


def test_blocks_are_combined_into_one_factor() -> None:
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


def test_confounded_levels_are_not_estimated() -> None:
    # Voice a speaks text one, b text two, c both: by way of c they can be compared.
    rng = np.random.default_rng(21)
    cells = [("a", "one", 0.0), ("b", "two", 5.0), ("c", "one", 1.0), ("c", "two", 2.0)]
    rows = [{"voice": v, "text": t, "level": mean + 0.1 * rng.normal()} for v, t, mean in cells for _ in range(5)]
    frame = pd.DataFrame(rows)
    alone = effects(frame[frame.voice != "c"], "voice", blocks="text")
    assert alone.contrasts[["estimate", "low", "high", "in_sd"]].isna().all(axis=None)
    assert "voice b cannot be compared with a in level: confounded with another axis or the blocks." in alone.notes
    assert "a → b   cannot be estimated  –" in str(alone)
    assert alone.frame.verdict[0] == "confounded"
    assert "cannot be estimated" in alone.plot().get_yticklabels()[0].get_text()
    plt.close("all")
    joined = effects(frame, "voice", blocks="text").contrasts.set_index("level")
    cell = frame.groupby(["voice", "text"])["level"].mean()
    assert joined.estimate["c"] == pytest.approx(cell["c", "one"] - cell["a", "one"])
    by_way = cell["b", "two"] - cell["c", "two"] + cell["c", "one"] - cell["a", "one"]
    assert joined.estimate["b"] == pytest.approx(by_way)
    assert (joined.low < joined.high).all()
    # Nor for a constant metric.
    same = effects(frame[frame.voice != "c"].assign(level=1.0), "voice", blocks="text")
    assert same.contrasts.estimate.isna().all()
