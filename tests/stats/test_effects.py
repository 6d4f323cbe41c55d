from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import AnovaRM, anova_lm

import voicelab as vl
from voicelab.errors import ArgumentError
from voicelab.stats import Effects, Estimate, benjamini_hochberg, effects, equivalence, holm

LEVELS = ["temperature", "latency"]
Mean = Callable[[dict[str, Any]], float]


def grid(
    seed: int, mean: Mean = lambda _: 0.0, sd: Mean = lambda _: 1.0, repeats: int = 4, texts: int = 4
) -> pd.DataFrame:
    """Simulate a grid of temperature and latency over texts with different means."""
    rng = np.random.default_rng(seed)
    rows = []
    for text in range(texts):
        for temperature in (0.2, 0.7, 1.0):
            for latency in ("low", "normal"):
                row: dict[str, Any] = {"text": f"text {text}", "temperature": temperature, "latency": latency}
                rows += [
                    {**row, "repeat": n, "f0": 120.0 + 10.0 * text + mean(row) + sd(row) * rng.standard_normal()}
                    for n in range(repeats)
                ]
    return pd.DataFrame(rows)


def found_in(frame: pd.DataFrame, **options: Any) -> Effects:
    return effects(frame, ["temperature", "latency"], "f0", blocks="text", **options)


def test_planted_effect_is_significant_and_others_are_not() -> None:
    found = found_in(grid(1, lambda row: 3.0 * row["temperature"]), robust=True)
    by_axis = found.frame.set_index("axis")
    assert by_axis.p["temperature"] < 1e-6
    assert by_axis.p_robust["temperature"] < 0.05 < by_axis.p_robust["latency"]
    assert by_axis.p["latency"] > 0.05
    assert by_axis.omega_sq["temperature"] > 5 * abs(by_axis.omega_sq["latency"])
    first, second, third = found.contrasts.to_dict("records")
    for row, level, true in ((first, 0.7, 1.5), (second, 1.0, 2.4)):
        assert (row["axis"], row["baseline"], row["level"]) == ("temperature", 0.2, level)
        assert 0 < row["low"] < true < row["high"]
    assert (third["axis"], third["level"]) == ("latency", "normal")
    assert third["low"] < 0 < third["high"]


def test_ranks_of_two_levels_agree_with_scipy() -> None:
    rng = np.random.default_rng(4)
    ours, theirs = rng.normal(0.9, 1, 7), rng.normal(0, 1, 8)
    frame = pd.DataFrame({"voice": ["a"] * 7 + ["b"] * 8, "level": np.concatenate((ours, theirs))})
    exact = stats.mannwhitneyu(ours, theirs, method="exact").pvalue
    assert effects(frame, "voice", robust=True).frame.p_robust[0] == pytest.approx(exact, abs=0.02)
    # One value per text and level: Wilcoxon's signed ranks.
    own = rng.normal(size=10)
    paired = pd.DataFrame({"voice": [*"ab"] * 10, "text": np.repeat(range(10), 2)})
    paired["level"] = np.stack([own, own + rng.normal(0.7, 1, 10)], axis=1).ravel()
    exact = stats.wilcoxon(np.diff(paired["level"].to_numpy().reshape(10, 2), axis=1).ravel()).pvalue
    found = effects(paired, "voice", "level", blocks="text", robust=True)
    assert found.frame.p_robust[0] == pytest.approx(exact, abs=0.05)
    assert "p, ranks" in str(found)


def test_permutations_stay_within_strata() -> None:
    # Within every text "low" is one below "normal" without exception, and texts are far apart: only a test that stays
    # within them sees it. There are 2 arrangements of each of 5 texts, of which 2 are as extreme.
    rows = [
        {"text": text, "latency": latency, "rtf": 100.0 * text + (latency == "low")}
        for text in range(5)
        for latency in ("low", "normal")
    ]
    found = effects(pd.DataFrame(rows), "latency", blocks="text", robust=True)
    assert found.frame.p_robust[0] == pytest.approx(2 / 32, abs=0.008)
    assert effects(pd.DataFrame(rows), "latency", "rtf").frame.p[0] > 0.5


def test_variance_decomposition_agrees_with_statsmodels() -> None:
    frame = grid(2, lambda row: 2.0 * row["temperature"] + (row["latency"] == "low"))
    frame = frame.drop(frame.index[[3, 4, 17, 40, 41, 42]])  # unbalanced
    found = found_in(frame).variance.set_index("source")
    table = anova_lm(ols("f0 ~ C(temperature) + C(latency) + C(text)", frame).fit(), typ=2)
    for ours, theirs in (("temperature", "C(temperature)"), ("latency", "C(latency)"), ("blocks", "C(text)")):
        assert found.sum_sq[ours] == pytest.approx(table.sum_sq[theirs])
        assert found.df[ours] == table.df[theirs]
    cells = ols("f0 ~ C(temperature) * C(latency) * C(text)", frame).fit()
    assert found.sum_sq["sampling"] == pytest.approx(cells.ssr)
    assert found.df["sampling"] == cells.df_resid
    assert found.sd["sampling"] == pytest.approx(math.sqrt(cells.mse_resid))


def test_shares_of_a_balanced_table_sum_to_one() -> None:
    found = found_in(grid(3, lambda row: row["temperature"])).variance
    assert found.eta_sq.sum() == pytest.approx(1.0)
    assert found.omega_sq.sum() == pytest.approx(1.0)
    assert found.df.sum() == 4 * 3 * 2 * 4 - 1


def test_one_way_omega_squared_agrees_with_its_formula() -> None:
    # (SS - df MS_within) / (SS_total + MS_within): W. L. Hays (1963), from scipy's F.
    rng = np.random.default_rng(6)
    groups = [rng.normal(mean, 1, 9) for mean in (0, 0.5, 1.5)]
    f = float(stats.f_oneway(*groups).statistic)
    frame = pd.DataFrame({"voice": np.repeat(["a", "b", "c"], 9), "level": np.concatenate(groups)})
    omega = effects(frame, "voice").frame.omega_sq[0]
    assert omega == pytest.approx(2 * (f - 1) / (2 * (f - 1) + 27))


def test_p_values_are_corrected_over_all_tests() -> None:
    frame = grid(5, lambda row: row["temperature"])
    frame["level"] = np.random.default_rng(0).normal(size=len(frame))
    found = effects(frame, ["temperature", "latency"], ["f0", "level"], blocks="text").frame
    assert len(found) == 4
    assert found.p_holm.to_numpy() == pytest.approx(holm(found.p))
    assert found.p_bh.to_numpy() == pytest.approx(benjamini_hochberg(found.p))


def test_undefined_takes_are_excluded_with_a_note() -> None:
    frame = grid(8)
    frame.loc[[2, 9], "f0"] = np.nan
    found = found_in(frame)
    assert (found.frame.takes == len(frame) - 2).all()
    assert "undefined for 2 of 96 takes" in found.notes[0]


def test_without_repeats_interactions_are_residual_variance() -> None:
    found = found_in(grid(9, lambda row: 4.0 * row["temperature"], repeats=1))
    assert any("No cell has two takes" in note for note in found.notes)
    assert list(found.variance.source) == ["temperature", "latency", "blocks", "residual"]
    assert found.frame.p[0] < 0.01
    assert (found.contrasts.low < found.contrasts.high).all()


def test_row_order_does_not_matter() -> None:
    # A manifest has takes in the random order of completion.
    frame = grid(12, lambda row: 0.3 * row["temperature"]).assign(seed=lambda table: 1000 + table["repeat"])
    frame["latency"] = pd.Categorical(frame["latency"], ["normal", "low"])
    found = effects(frame, ["temperature", "latency"], "f0", blocks=["text", "seed"])
    assert found.contrasts.baseline.tolist() == [0.2, 0.2, "normal"]
    for order in range(3):
        shuffled = frame.sample(frac=1.0, random_state=order)
        again = effects(shuffled, ["temperature", "latency"], "f0", blocks=["text", "seed"])
        pd.testing.assert_frame_equal(again.frame, found.frame)
        pd.testing.assert_frame_equal(again.contrasts, found.contrasts)
    # The first word to appear is the baseline; p is the same whichever it is.
    words = frame.astype({"latency": str})
    turned = pd.concat([words[words.latency == "normal"], words[words.latency == "low"]])
    one, other = (found_in(table, robust=True) for table in (words, turned))
    assert one.frame.p_robust.tolist() == other.frame.p_robust.tolist()
    assert one.frame.p.tolist() == pytest.approx(other.frame.p.tolist())
    assert one.contrasts.estimate.iloc[2] == pytest.approx(-other.contrasts.estimate.iloc[2])


def test_seed_as_block_gives_a_residual_sd() -> None:
    frame = grid(13, repeats=4)
    # The seeds' variance exceeds the residual variance.
    frame["f0"] += frame["repeat"].map({0: -9.0, 1: -3.0, 2: 3.0, 3: 9.0})
    paired = effects(frame, "temperature", "f0", blocks=["text", "latency", "repeat"])
    assert paired.variance.source.iloc[-1] == "residual"
    assert paired.variance.sd.iloc[-1] < 2.0
    assert "residual SD of the additive model: f0 " in str(paired)
    plain = effects(frame, "temperature", "f0", blocks=["text", "latency"])
    assert plain.variance.sd.iloc[-1] > 6.0
    for found, source in ((paired, "the additive model's residuals"), (plain, "repeated takes")):
        axes = found.plot()
        assert f"±1 SD of {source}" in axes.get_legend_handles_labels()[1]
        assert axes.get_xlabel().startswith(f"difference in SD of {source},")
        plt.close("all")


def test_level_with_constant_repeats_has_a_note() -> None:
    frame = grid(14, sd=lambda row: 0.0 if row["temperature"] == 0.2 else 1.0)
    (note,) = found_in(frame).notes
    assert note == "At temperature 0.2 repeated takes have the same f0; their SD of 0 is pooled into the residual SD."
    assert found_in(grid(14)).notes == ()


def test_plot_fills_marks_whose_interval_excludes_zero() -> None:
    # The axis is significant, its first contrast is not.
    found = found_in(grid(15, lambda row: 5.0 * (row["temperature"] == 1.0)))
    first, second, _ = found.contrasts.to_dict("records")
    assert found.frame.p_holm[0] < 0.05
    assert first["low"] < 0.0 < first["high"]
    assert second["low"] > 0.0
    axes = found.plot()
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [True, False, True]
    plt.close("all")


def test_constant_metric_has_no_difference() -> None:
    frame = grid(10).assign(pauses=0.1)
    found = effects(frame, "temperature", "pauses")
    assert found.frame[["p", "p_holm", "eta_sq"]].isna().all(axis=None)
    assert found.frame.verdict[0] == "no difference"
    assert found.contrasts.p.isna().all()
    assert not found.contrasts["estimate"].any()
    assert found.contrasts[["low", "high"]].isna().all(axis=None)
    assert "nan" not in str(found)
    assert "pauses is the same in all" in str(found)
    # One take per level: an estimate without residual degrees of freedom.
    two = frame.groupby("temperature").head(1).head(2).assign(pauses=[1.0, 2.0])
    shown = effects(two, "temperature", "pauses")
    assert "+1 [too few takes]" in str(shown)
    assert shown.frame.verdict[0] == "underpowered"
    assert "from repeats=17" in shown.notes[-1]  # as statsmodels' TTestIndPower().solve_power(1, power=0.8)


TWICE, SPEEDS = [1, 1, 2, 2], [1.0, 1.0, 1.2, 1.2]
NO_VARIANCE = {
    "two pairs": ({"x": SPEEDS}, ()),
    "rounding": ({"x": [1.0, 1.0 + 2e-16, 1.2, 1.2 - 2e-16]}, ()),
    "large numbers": ({"x": [1e9, 1e9 + 1e-7, 1e9 + 3, 1e9 + 3]}, ()),
    "eight takes, Welch": ({"v": [1] * 8 + [2] * 8, "x": [1.0] * 8 + [1.2] * 8}, ()),
    "two of three levels": ({"v": [1] * 6 + [2] * 6 + [3] * 6, "x": [1.0] * 6 + [1.2] * 6 + [1.0, 2, 1, 3, 1, 2]}, ()),
    "additive": ({"v": TWICE, "seed": [1, 2, 1, 2], "x": [1.0, 3.0, 1.2, 3.2]}, "seed"),
    "texts alike": ({"v": TWICE * 2, "text": [*"aaaabbbb"], "x": [1.1, 1.3, 2.1, 2.3, 5.1, 5.3, 6.1, 6.3]}, "text"),
    "one difference in all texts": ({"v": TWICE, "text": [*"abab"], "x": [1000.1, 7.3, 1000.4, 7.6]}, "text"),
}


@pytest.mark.parametrize(("columns", "blocks"), NO_VARIANCE.values(), ids=NO_VARIANCE.keys())
def test_without_residual_variance_p_is_by_permutation_and_there_is_no_equivalence(
    columns: dict[str, Any], blocks: Any
) -> None:
    found = effects(pd.DataFrame({"v": TWICE, **columns} if "v" not in columns else columns), "v", "x", blocks=blocks)
    row, contrast = found.frame.iloc[0], found.contrasts.iloc[0]
    ending = "_texts" if "text" in blocks else ""
    # Few arrangements of the levels: of eight takes each, 12,870.
    assert row[f"p{ending}"] > (0.0001 if len(columns["x"]) == 16 else 0.003)
    assert row.verdict == ("significant" if row[f"p{ending}"] <= 0.05 else "no residual variance")
    assert contrast[f"error{ending}"] == 0.0
    assert contrast[[f"{name}{ending}" for name in ("low", "high", "p")]].isna().all()
    assert contrast.estimate != 0.0
    assert "x by v: " in str(found)
    least = float(str(found).partition("by permutation (smallest possible: ")[2].partition(")")[0])
    assert row[f"p{ending}"] >= least * 0.999
    # Of six arrangements of two pairs of takes, two have the largest difference; takes in seeds or texts have fewer.
    if len(columns["x"]) == 4:
        assert least == (0.5 if blocks else 0.333)
    assert "[no variance]" in str(found)
    for claim in ("equivalent", "not worse"):
        claimed = equivalence(found, 5.0, claim=claim)
        assert not claimed.frame.shown.iloc[0]
        assert math.isnan(claimed.frame.p.iloc[0])
        assert claimed.frame.reason.iloc[0].startswith("no residual variance: after ")
        assert str(claimed).startswith("It cannot be tested whether x at v 2 is")
    for axes in (found.plot(), claimed.plot()):
        marks = [line for line in axes.lines if line.get_marker() == "o"]
        assert all(line.get_markerfacecolor() == "white" for line in marks[:1])
    plt.close("all")


def test_identical_repeats_have_no_advice_to_repeat() -> None:
    once = pd.DataFrame({"v": [0, 1, 2], "f0": [100.0, 101.0, 103.0]})
    notes = " ".join(effects(pd.concat([once] * 2, ignore_index=True), "v", "f0").notes)
    assert "Repeated takes are identical, so more repeats add nothing" in notes
    assert "repeats=" not in notes


def test_texts_are_the_units_of_the_permutation_if_they_are_random() -> None:
    for texts in (2, 4, 12):
        v, text = np.tile([0, 0, 0, 1, 1, 1], texts), np.repeat(np.arange(texts), 6)
        row = effects(pd.DataFrame({"v": v, "text": text, "x": v * 1.0}), "v", "x", blocks="text").frame.iloc[0]
        # The level of each text exchanged as a whole: 2 of 2^texts arrangements are as extreme.
        assert row.p_texts == pytest.approx(2 / 2**texts, abs=0.015)
        assert row.verdict == ("significant" if texts == 12 else "no residual variance")


def test_greedy_takes_have_a_difference_without_p() -> None:
    frame = pd.DataFrame({"speed": [1.0, 1.0, 2.0, 2.0], "duration": [4.0, 4.0, 2.0, 2.0]})
    row = effects(frame, "speed").contrasts.iloc[0]
    assert row.estimate == pytest.approx(-2.0)
    assert math.isnan(row.in_sd)
    # The residual variance of another level is pooled.
    noisy = pd.DataFrame({"temperature": [0.0] * 4 + [1.0] * 4, "level": [0.1] * 4 + [1.0, 2.0, 3.0, 1.5]})
    row = effects(noisy, "temperature").contrasts.iloc[0]
    assert row.low < row.estimate < row.high < 5.0


def test_levels_may_be_none_lists_and_records() -> None:
    values = [None, None, ["a"], ["a"], {"x": 1}, {"x": 1}]
    frame = pd.DataFrame({"references": values, "level": [1.0, 1.2, 2.0, 2.2, 3.0, 3.2]})
    assert effects(frame, "references").frame.levels[0] == 3


def test_text_form_lists_significant_effects_first() -> None:
    frame = grid(1, lambda row: 3.0 * (row["temperature"] == 1.0))
    found = effects(frame, ["latency", "temperature"], "f0", blocks="text")
    lines = str(found).splitlines()
    assert lines[0] == (
        "95% intervals and p with texts random; with texts fixed p by Welch's test, Holm-corrected over 2 tests"
    )
    assert lines[1].split() == ["metric", "axis", "effect", "p", "p,", "texts", "fixed", "omega²"]
    assert lines[2].startswith("f0      temperature  0.2 → 0.7")
    assert lines[2].endswith("  significant")
    assert lines[3].startswith("                     0.2 → 1.0     +")
    assert lines[4].startswith("f0      latency      low → normal  ")
    assert lines[4].endswith("  not significant")
    assert lines[5].startswith("residual SD: f0 0.")
    columns = {line.index("[") - len(line.split("[")[0].split()[-1]) for line in lines[2:5]}
    assert len(columns) == 1, "differences are aligned"


def test_rounding_errors_are_formatted_as_zero() -> None:
    # The means of these differ by 5.55e-17.
    frame = pd.DataFrame({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2], "x": [0.1 + 0.2, 0.7, 0.3, 0.7]})
    for axis in ("a", "b"):
        shown = str(effects(frame, axis, "x", blocks={"a": "b", "b": "a"}[axis]))
        assert "e-1" not in shown
    assert "1 → 2   0 [no variance]" in str(effects(frame, "a", "x", blocks="b"))


def test_extreme_p_and_confidence_keep_their_digits() -> None:
    frame = pd.DataFrame({"voice": ["a"] * 12 + ["b"] * 12, "level": np.r_[0:12, 100:112]})
    found = effects(frame, "voice", confidence=0.999)
    assert str(found).startswith("99.9% intervals")
    assert "< 0.0001  0.99" in str(found)
    assert "99.9% interval" in found.plot().get_xlabel()
    plt.close("all")
    assert str(Estimate(1.0, 0.5, 1.5, 0.999, 8)) == "1 [0.5, 1.5] (99.9%, n = 8)"


def test_plot_draws_into_given_axes() -> None:
    found = found_in(grid(1, lambda row: 3.0 * row["temperature"]))
    figure, axes = plt.subplots()
    try:
        assert found.plot(axes) is axes
        assert [label.get_text() for label in axes.get_yticklabels()] == [
            "f0 · temperature 0.2 → 0.7",
            "f0 · temperature 0.2 → 1.0",
            "f0 · latency low → normal",
        ]
        marks = [line for line in axes.lines if line.get_marker() == "o"]
        sd = found.variance.sd[found.variance.source == "sampling"].item()
        assert [np.asarray(line.get_xdata()).item() for line in marks] == pytest.approx(found.contrasts.estimate / sd)
        assert [line.get_markerfacecolor() == "white" for line in marks] == [False, False, True]
        figure.canvas.draw()
    finally:
        plt.close(figure)
    greedy = effects(pd.DataFrame({"speed": [1.0, 1.0, 2.0, 2.0], "duration": [4.0, 4.0, 2.0, 2.0]}), "speed").plot()
    assert greedy is not axes
    assert "-2, repeated takes do not vary" in greedy.get_yticklabels()[0].get_text()
    plt.close("all")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"axes": "pitch"}, "axes"),
        ({"axes": ["text", "text"]}, "axes"),
        ({"axes": []}, "axes"),
        ({"axes": "repeat0"}, "axes"),
        ({"metrics": "loudness"}, "metrics"),
        ({"metrics": "text"}, "metrics"),
        ({"metrics": []}, "metrics"),
        ({"blocks": "temperature"}, "blocks"),
        ({"metrics": ["f0", "f0"]}, "metrics"),
        ({"metrics": "temperature"}, "metrics"),
        ({"blocks": "sentence"}, "blocks"),
        ({"confidence": 95}, "confidence"),
    ],
)
def test_invalid_arguments_are_rejected(change: dict[str, Any], field: str) -> None:
    frame = grid(0).assign(repeat0=0)
    with pytest.raises(ArgumentError, match=f"^{field}: "):
        effects(frame, **{"axes": "temperature", "metrics": "f0", **change})


def sentences(seed: int, texts: int = 4, own: float = 1.0) -> pd.DataFrame:
    """Simulate a temperature effect that varies between texts with mean 0 and an SD of ``own``."""
    lead = dict(enumerate(np.random.default_rng((seed, 1)).normal(0, own, (texts, 3))))
    frame = grid(seed, texts=texts, repeats=3)
    level = frame.temperature.map({0.2: 0, 0.7: 1, 1.0: 2})
    frame["f0"] += [lead[int(text.split()[1])][place] for text, place in zip(frame.text, level, strict=True)]
    return frame


def test_random_texts_agree_with_repeated_measures_anova() -> None:
    frame = sentences(3, texts=6)
    found = effects(frame, "latency", "f0", blocks=["text", "temperature"])
    means = frame.pivot_table(index="text", columns="latency", values="f0")
    theirs = stats.ttest_rel(means["normal"], means["low"])
    row, interval = found.contrasts.iloc[0], theirs.confidence_interval()
    assert found.frame.p_texts[0] == pytest.approx(theirs.pvalue)
    assert (row.low_texts, row.high_texts) == pytest.approx((interval.low, interval.high))
    # An interaction of two by two levels: the analysis of variance with repeated measures, of statsmodels.
    two = frame[frame.temperature < 1.0]
    interaction = effects(two, LEVELS, "f0", blocks="text").interactions
    cells = two.groupby(["text", *LEVELS])["f0"].mean().reset_index()
    theirs = AnovaRM(cells, "f0", "text", LEVELS).fit().anova_table["Pr > F"].iloc[2]
    assert interaction.p[0] == pytest.approx(theirs)
    # Fixed texts and single texts do not generalize.
    assert "p_texts" not in effects(frame, "latency", "f0", blocks="text", texts="").frame
    one = effects(frame[frame.text == "text 0"], "latency", "f0", blocks="text")
    assert "so texts are fixed" in one.notes[0]


@pytest.mark.parametrize(("texts", "levels", "level_p"), [(4, 10, 0.05), (6, 5, 0.01), (2, 3, 0.05)])
def test_axis_is_significant_exactly_if_an_interval_excludes_0(texts: int, levels: int, level_p: float) -> None:
    rng, names = np.random.default_rng(texts), [f"m{place}" for place in range(120)]
    text, level = (axis.ravel() for axis in np.indices((texts, levels)))
    noise = rng.standard_normal((texts * levels, 120))
    noise[:, 60:] += 2.0 * (level == 1)[:, None]
    frame = pd.DataFrame(noise, columns=names).assign(text=text.astype(str), v=level)
    found = effects(frame, "v", names, blocks="text", confidence=1.0 - level_p)
    for ending in ("", "_texts"):
        contrasts = found.contrasts
        excluded = (contrasts[f"low{ending}"] > 0) | (contrasts[f"high{ending}"] < 0)
        assert (excluded == (contrasts[f"p{ending}"] <= level_p)).all()
        axis = excluded.groupby(contrasts["metric"], sort=False).any().to_numpy()
        assert (axis == (found.frame[f"p{ending}"] <= level_p)).all()
        assert axis[:60].mean() <= level_p + 3 * (level_p * (1 - level_p) / 60) ** 0.5
        assert levels == 3 or axis[60:].mean() > 0.3


def test_several_levels_agree_with_dunnett() -> None:
    rng = np.random.default_rng(7)
    groups = [rng.normal(0.8 * (place == 2), 1, 5) for place in range(4)]
    frame = pd.DataFrame({"v": np.repeat(range(4), 5), "f0": np.concatenate(groups)})
    found, theirs = effects(frame, "v"), stats.dunnett(*groups[1:], control=groups[0], random_state=1)
    assert found.frame.test[0] == "pooled"
    assert found.contrasts.p.to_numpy() == pytest.approx(theirs.pvalue, abs=0.012)
    ends = theirs.confidence_interval(0.95)
    assert found.contrasts.low.to_numpy() == pytest.approx(ends.low, abs=0.06)
    assert found.contrasts.high.to_numpy() == pytest.approx(ends.high, abs=0.06)


def test_rates_are_pooled_over_their_totals() -> None:
    rng, texts = np.random.default_rng(3), 12
    words = rng.integers(3, 30, texts)
    rows = [
        {
            "text": text,
            "v": v,
            "repeat": n,
            "words": words[text],
            "wer": rng.binomial(words[text], 0.1 + 0.1 * v) / words[text],
        }
        for text in range(texts)
        for v in (0, 1)
        for n in range(2)
    ]
    frame = pd.DataFrame(rows)
    found = vl.effects(frame, "v", blocks="text")
    assert found.frame.metric.tolist() == ["wer"]
    assert found.notes[-1] == "wer: texts are weighted by their words, as in a pooled rate."
    errors = (frame.wer * frame.words).groupby(frame.v).sum()
    total = frame.words.groupby(frame.v).sum()
    assert found.contrasts.estimate_texts[0] == pytest.approx((errors / total).diff()[1])
    # Bell and McCaffrey's error of a regression on a constant, weighted by words, with a cluster per text.
    profile = frame.pivot_table(index="text", columns="v", values="wer")
    difference, share = (profile[1] - profile[0]).to_numpy(), words / words.sum()
    residuals = difference - share @ difference
    assert found.contrasts.error_texts[0] == pytest.approx(math.sqrt((share**2 * residuals**2 / (1 - share)).sum()))
    assert 2 < found.contrasts.df_texts[0] < texts - 1
    equal = vl.effects(frame, "v", "wer", blocks="text", totals={})
    assert equal.contrasts.estimate_texts[0] == pytest.approx(difference.mean())
    assert equal.contrasts.df_texts[0] == texts - 1
    with pytest.raises(ArgumentError, match=r"totals: 'words' must be above 0 where wer is defined, got 0 in row 5"):
        vl.effects(frame.assign(words=frame.words.where(frame.index != 5, 0)), "v", blocks="text")
    with pytest.raises(ArgumentError, match="totals: there is no column 'word'"):
        vl.effects(frame, "v", totals={"wer": "word"})


@pytest.mark.thorough
@pytest.mark.parametrize("texts", [2, 3, 6, 12])
def test_random_text_test_keeps_its_level(texts: int) -> None:
    tables = (sentences(seed, texts) for seed in range(1000))
    blocks = ["text", "latency"]
    found = [effects(table, "temperature", "f0", blocks=blocks).frame for table in tables]
    assert np.mean([frame.p_texts[0] < 0.05 for frame in found]) < 0.065 + 2 * (0.065 * 0.935 / 1000) ** 0.5


def test_metric_without_values_is_rejected() -> None:
    with pytest.raises(ArgumentError, match="too few"):
        effects(grid(0).assign(f0=np.nan), "temperature", "f0")


@pytest.mark.thorough
@pytest.mark.parametrize("drop", [0, 12])
def test_p_is_uniform_under_the_null(drop: int) -> None:
    # Latency does something and texts differ; temperature does nothing.
    found, blocks = [], ["text", "latency"]
    for seed in range(800):
        frame = grid(1000 + seed, lambda row: 2.0 * (row["latency"] == "low"), repeats=3, texts=3)
        frame = frame.sample(len(frame) - drop, random_state=seed)
        found.append(effects(frame, "temperature", "f0", blocks=blocks).frame.p[0])
    assert stats.kstest(found, "uniform").pvalue > 0.01
    for alpha in (0.01, 0.05, 0.1):
        share = np.mean(np.array(found) <= alpha)
        assert stats.binomtest(int(share * 800), 800, alpha).pvalue > 0.005


@pytest.mark.thorough
@pytest.mark.parametrize("repeats", [2, 5])
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_interval_coverage(repeats: int, spread: float) -> None:
    # Also where the parameter changes how much takes differ, as a temperature does.
    frame, names = grid(0, repeats=repeats, texts=2), [f"m{place}" for place in range(2000)]
    level = frame["temperature"].to_numpy()[:, None]
    noise = np.random.default_rng(repeats).standard_normal((len(frame), len(names)))
    values = pd.DataFrame(level + (1 + spread * level) * noise, columns=names)
    rows = effects(pd.concat([frame, values], axis=1), ["temperature", "latency"], names, blocks="text").contrasts
    levels = rows[rows["axis"] == "temperature"]
    true = levels["level"].map({0.7: 0.5, 1.0: 0.8})
    covered = ((levels.low < true) & (levels.high > true)).groupby(levels["metric"]).all().mean()
    # Two takes leave one variance for all levels, too wide for the one that varies least.
    assert 0.93 < covered < (0.99 if spread and repeats == 2 else 0.97)


def test_many_blocks_take_seconds_and_little_memory() -> None:
    rng, count = np.random.default_rng(0), 40_000
    frame = pd.DataFrame({name: rng.integers(0, levels, count) for name, levels in (("v", 3), ("a", 200), ("b", 20))})
    frame["f0"] = rng.normal(frame["v"] * 0.1)
    began = time.monotonic()
    found = effects(frame, "v", "f0", blocks=["a", "b"])
    assert time.monotonic() - began < 10
    assert found.contrasts.estimate.to_numpy() == pytest.approx([0.1, 0.2], abs=0.05)


@pytest.mark.parametrize(("texts", "takes"), [(2, 1), (1, 2), (1, 3), (6, 1)])
def test_type_i_error_of_discrete_metrics(texts: int, takes: int) -> None:
    rng, count = np.random.default_rng(texts), 100
    text, level, _ = (axis.ravel() for axis in np.indices((texts, 2, takes)))
    names = [f"m{place}" for place in range(2 * count)]
    draws = np.hstack([rng.random((text.size, count)) < 0.3, rng.poisson(1.0, (text.size, count))]).astype(float)
    frame = pd.DataFrame(draws, columns=names).assign(text=text.astype(str), v=level)
    found = effects(frame, "v", names, blocks="text" if texts > 1 else ()).frame
    p = found["p_texts" if texts > 1 else "p"]
    assert (p <= 0.05).sum() <= 0.08 * len(names)
    assert not (p <= 0.0001).any()
    assert not (found.verdict == "significant").any()


def test_significant_interaction_is_printed_first_and_effects_are_conditional() -> None:
    crossing = grid(1, lambda row: 2.0 * (row["temperature"] == 1.0) * (1 if row["latency"] == "low" else -1))
    for blocks in ("text", ()):
        frame = crossing if blocks else crossing.assign(f0=crossing.f0 - 10.0 * crossing.text.str[-1].astype(int))
        found = effects(frame, ["temperature", "latency"], "f0", blocks=blocks)
        (row,) = found.interactions.to_dict("records")
        assert (row["axis"], row["other"], row["level"]) == ("temperature", "latency", 1.0)
        assert row["p_holm"] < 0.01
        assert (row["low_at"], row["high_at"]) == ("normal", "low")
        assert (row["low"], row["high"]) == pytest.approx((-2.0, 2.0), abs=1.0)
        assert str(found).startswith("f0: temperature and latency interact (p ")
        assert "depends on latency" in str(found)
        assert found.frame.depends_on.tolist() == ["latency", "temperature"]
    four = frame[frame.temperature != 0.7].groupby(["temperature", "latency"]).head(2)
    pooled = effects(four, ["temperature", "latency"], "f0")
    theirs = anova_lm(ols("f0 ~ C(temperature) * C(latency)", four).fit(), typ=2).loc["C(temperature):C(latency)"]
    assert pooled.interactions.p[0] == pytest.approx(theirs["PR(>F)"])
    # Of a text's cells, as of levels: two by two are one difference of differences per text.
    two = crossing[crossing.temperature != 0.7]
    cells = two.pivot_table(index="text", columns=["temperature", "latency"], values="f0").to_numpy()
    p = effects(two, ["temperature", "latency"], "f0", blocks="text").interactions.p[0]
    assert p == pytest.approx(stats.ttest_1samp(cells @ [1, -1, -1, 1], 0).pvalue)
    none = effects(grid(3), ["temperature", "latency"], "f0", blocks="text")
    assert none.conditions == []
    assert none.frame.depends_on.tolist() == ["", ""]
    gaps = effects(crossing[(crossing.temperature < 1) | (crossing.latency == "low")], ["temperature", "latency"], "f0")
    assert gaps.interactions.empty
    fixed = effects(
        frame.assign(f0=frame.f0.round(-3) + (frame.temperature == 1) * (frame.latency == "low")), LEVELS, "f0"
    )
    assert "interact (no residual variance, " in fixed.conditions[0]


def test_interaction_keeps_its_level_if_one_cell_has_another_variance() -> None:
    row, column, _ = (axis.ravel() for axis in np.indices((3, 3, 2)))
    noise = np.random.default_rng(0).standard_normal((18, 400)) * np.where(row + column == 0, 3.0, 1.0)[:, None]
    frame = pd.DataFrame(noise, columns=[f"m{index}" for index in range(400)]).assign(v=row, w=column)
    # One pooled variance would give .13.
    interactions = effects(frame, ["v", "w"]).interactions
    assert (interactions["p"] <= 0.05).mean() < 0.07
    assert set(interactions["test"]) == {"pooled", "Welch"}  # the one with the larger p
    # Repeats vary in one cell only, so most differences of differences have no variance of their own.
    counts = frame[["v", "w"]].assign(count=[*[0] * 9, 1, *[2] * 7, 4])
    assert np.isfinite(effects(counts, ["v", "w"], "count").interactions["p"]).all()


def test_outliers_are_named_and_ranks_keep_the_effect() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"v": [*"a" * 12, *"b" * 12], "loudness": rng.normal(-23, 1, 24), "digest": "x"})
    frame.loc[12:, "loudness"] += 3.0
    assert effects(frame, "v", "loudness").outliers.empty
    frame.loc[3, "loudness"] = -90.0
    found = effects(frame.sample(frac=1.0, random_state=0), "v", "loudness", robust=True)
    assert found.frame.p[0] > 0.05
    assert found.frame.p_robust[0] < 0.01
    (outlier,) = found.outliers.to_dict("records")
    assert (outlier["row"], outlier["value"]) == (3, -90.0)
    assert outlier["expected"] == pytest.approx(-23.0, abs=1.0)
    (note,) = found.notes
    assert note.startswith("Outlier: loudness of row 3 is -90, ")
    assert note.endswith("hear it by table.pick([3]).")
    assert effects(frame, "v", "loudness").notes[0].endswith("robust=True adds a test by ranks.")
    # One take per text and level.
    single = grid(4, lambda row: row["temperature"], repeats=1)
    single["f0"] += 40.0 * (single.index == 7)
    assert effects(single, LEVELS, "f0", blocks="text").outliers.row.tolist() == [7]


def test_outlier_of_two_takes_is_named_without_its_partner_and_medians_of_texts_keep_the_effect() -> None:
    for texts, takes in ((12, 1), (8, 3)):
        text, level, _ = (axis.ravel() for axis in np.indices((texts, 2, takes)))
        rng = np.random.default_rng(0)
        values = -23.0 + rng.normal(0, 0.5, text.size) + rng.normal(0, 1, texts)[text] + level
        values[3] = -90.0
        frame = pd.DataFrame({"text": text.astype(str), "v": level, "loudness": values})
        found = effects(frame, "v", "loudness", blocks="text", robust=True)
        (outlier,) = found.outliers.to_dict("records")
        assert outlier["row"] == 3
        assert outlier["expected"] == pytest.approx(-23.0, abs=3.0)
        assert found.frame.p_texts[0] > 0.4
        assert found.frame.p_robust[0] < 0.05
    # 2^-7 is the smallest p of eight texts.
    assert found.frame.p_robust[0] == pytest.approx(2**-7, abs=1e-3)


def test_takes_missing_more_often_at_a_level_are_reported() -> None:
    frame = pd.DataFrame({"v": [*"a" * 12, *"b" * 12], "f0": np.random.default_rng(0).normal(size=24)})
    frame.loc[[1, 2, 3, 5, 7, 9], "f0"] = np.nan
    first, second = effects(frame, "v").notes[:2]
    assert first == "f0 is undefined for 6 of 24 takes, which are excluded."
    assert second.startswith("f0: undefined more often at some levels of v (a 6 of 12, b 0 of 12; p 0.01")
    frame["f0"] = np.random.default_rng(1).normal(size=24)
    frame.loc[[1, 2, 13], "f0"] = np.nan
    assert len(effects(frame, "v").notes) == 1


@pytest.mark.parametrize("sizes", [(9, 2), (2, 9), (8, 1), (6, 3)])
def test_small_cells_of_another_variance_have_no_pooled_test(sizes: tuple[int, int]) -> None:
    rng, names = np.random.default_rng(sum(sizes)), [f"m{place}" for place in range(600)]
    spread = np.repeat([1.0 if sizes[0] > sizes[1] else 3.0, 3.0 if sizes[0] > sizes[1] else 1.0], sizes)[:, None]
    frame = pd.DataFrame(rng.normal(size=(sum(sizes), 600)) * spread, columns=names).assign(v=np.repeat([1, 2], sizes))
    found = effects(frame, "v")
    assert (found.frame.p <= 0.05).mean() < 0.09
    assert found.frame.p.isna().all() == (min(sizes) < 3)
    assert any("is not tested" in note for note in found.notes) == (min(sizes) < 3)
