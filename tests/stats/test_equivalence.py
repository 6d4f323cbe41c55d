from __future__ import annotations

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.weightstats import ttost_ind, ttost_paired

from tests.listening.test_design import listening_test
from tests.listening.test_results import choices, comparisons, rated, unanimous
from voicelab.errors import ArgumentError
from voicelab.listening.results import analyze
from voicelab.stats import CrossedTest, Estimate, SequentialTest, crossed_mean, effects, equivalence, holm


def noisy(kind: str, levels: dict[str, float], listeners: int = 12, items: int = 8, seed: int = 0) -> pd.DataFrame:
    """Return ratings of systems at these levels, each a little otherwise."""
    table = rated(kind, {system: [level] * listeners for system, level in levels.items()}, items)
    table["rating"] += np.random.default_rng(seed).normal(0, 0.4, len(table))
    return table


def test_tost_agrees_with_statsmodels() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.normal(3.1, 0.5, 14), rng.normal(3.0, 0.5, 14)
    paired = crossed_mean(first - second, range(14), range(14))
    row = equivalence(paired, 0.5).frame.iloc[0]
    assert row.p == pytest.approx(ttost_paired(first, second, -0.5, 0.5)[0])
    frame = pd.DataFrame({"voice": ["a"] * 14 + ["b"] * 14, "level": np.concatenate((first, second))})
    row = equivalence(effects(frame, "voice"), 0.4).frame.iloc[0]
    assert row.p == pytest.approx(ttost_ind(second, first, -0.4, 0.4, usevar="unequal")[0])
    # p and the interval at 1 - 2 alpha are one.
    p = equivalence(paired, 0.5).frame.p[0]
    edge = equivalence(paired, 0.5, alpha=p).frame.iloc[0]
    assert max(abs(edge.low), abs(edge.high)) == pytest.approx(0.5)


def test_equivalence_is_shown_within_the_margin_only() -> None:
    result = analyze(listening_test("MOS", "abc", items=8), noisy("MOS", {"a": 3.0, "b": 3.02, "c": 3.6}))
    shown = equivalence(result, 0.3)
    assert shown.frame.shown.tolist() == [True, False, False]
    assert shown.frame.p_holm.to_numpy() == pytest.approx(holm(shown.frame.p))
    lines = str(shown).splitlines()
    assert lines[0].startswith("a is equivalent to b: ")
    assert "(90%) lies within -0.3 to 0.3, p " in lines[0]
    assert lines[1].startswith("It is not shown that a is equivalent to c: ")
    # c is better than a, hence not worse; a is worse.
    worse = equivalence(result, 0.3, claim="not worse", of="c").frame
    assert list(zip(worse["first"], worse["second"], worse.shown, strict=True)) == [("c", "a", True), ("c", "b", True)]
    assert equivalence(result, 0.3, claim="not worse", of="a").frame.shown.tolist() == [True, False]
    axes = shown.plot()
    marks = [line.get_markerfacecolor() == "white" for line in axes.lines if line.get_marker() == "o"]
    assert marks == [False, True, True]
    plt.close("all")


@pytest.mark.parametrize("kind", ["AB", "CMOS", "MUSHRA"])
def test_margin_is_on_the_scale_of_the_kind(kind: Any) -> None:
    rng, systems = np.random.default_rng(2), {"a": 60.0, "b": 60.0}
    if kind == "AB":
        table, margin = choices(rng.random((30, 20)) < 0.5), 0.1
    elif kind == "CMOS":
        table, margin = comparisons([0] * 20), 0.4
        table["rating"] = rng.integers(-1, 2, len(table)).astype(float)
    else:
        added = {"reference": [100.0] * 12, "anchor35": [20.0] * 12, "anchor70": [30.0] * 12}
        table, margin = rated("MUSHRA", {**{name: [level] * 12 for name, level in systems.items()}, **added}, 6), 3.0
        table["rating"] -= rng.uniform(0, 4, len(table))
    result = analyze(listening_test(kind, "ab", items=20), table)
    row = equivalence(result, margin).frame.iloc[0]
    middle = 0.5 if kind == "AB" else 0.0
    assert (row.lower, row.upper) == pytest.approx((middle - margin, middle + margin))
    assert row.shown
    assert row.lower < row.low < row.estimate < row.high < row.upper
    # A narrower margin than the interval cannot be shown.
    assert not equivalence(result, (row.high - row.low) / 4).frame.shown[0]


def test_abx_margin_is_one_sided() -> None:
    rng = np.random.default_rng(3)
    table = choices(rng.random((24, 16)) < 0.5).assign(kind="ABX")
    table["right"] = rng.random(len(table)) < 0.4
    result = analyze(listening_test("ABX", items=table["item"].nunique()), table)
    row = equivalence(result, 0.1).frame.iloc[0]
    assert (row.lower, row.upper, row.shown) == (-math.inf, 0.6, True)
    assert "lies below 0.6" in str(equivalence(result, 0.1))
    with pytest.raises(ArgumentError, match=r"claim: must be 'equivalent' for ABX, .* no direction, got 'not worse'"):
        equivalence(result, 0.1, claim="not worse")
    assert equivalence(result, 0.1).plot().get_xlim()[1] < 1
    plt.close("all")


def test_sweep_equivalence_has_random_texts_when_they_are_a_block() -> None:
    rng = np.random.default_rng(4)
    rows = [
        {
            "text": text,
            "voice": voice,
            "wer": 0.2 + 0.02 * rng.normal(),
            "f0": 100 * (1 + (voice == "b")) + rng.normal(),
        }
        for text in range(8)
        for voice in "ab"
        for _ in range(3)
    ]
    found = effects(pd.DataFrame(rows), "voice", ["wer", "f0"], blocks="text")
    shown = equivalence(found, {"wer": 0.05, "f0": 5.0}, claim="not worse", lower_is_better=True)
    assert shown.frame.shown.tolist() == [True, False]
    contrast = found.contrasts.iloc[0]
    assert shown.frame.estimate[0] == contrast.estimate_texts
    assert str(shown).startswith("wer at voice b is not worse than voice a: ")
    assert shown.notes == ()
    alone = effects(pd.DataFrame(rows), "voice", "wer")
    assert equivalence(alone, 0.05).notes == ("Texts are fixed: the result does not generalize to other texts.",)
    for margin in ("0.05", {"wer": "0.05"}):
        with pytest.raises(ArgumentError, match=r"^margin: must be a number, or a number per metric, got '0.05'"):
            equivalence(alone, margin)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"margin": 0.0}, "margin"),
        ({"margin": {"f0": 1.0}}, "margin"),
        ({"claim": "better"}, "claim"),
        ({"alpha": 0.6}, "alpha"),
        ({"of": "z"}, "of"),
    ],
)
def test_invalid_claims_are_rejected(change: dict[str, Any], field: str) -> None:
    result = analyze(listening_test("MOS", "ab", items=8), noisy("MOS", {"a": 3.0, "b": 3.0}))
    with pytest.raises(ArgumentError, match=f"^{field}: "):
        equivalence(result, **{"margin": 0.3, **change})


def test_single_sentence_does_not_generalize() -> None:
    with pytest.raises(ArgumentError, match="one item"):
        equivalence(analyze(listening_test("MOS", "ab", items=1), noisy("MOS", {"a": 3.0, "b": 3.0}, items=1)), 0.3)


def test_difference_without_error_shows_no_equivalence() -> None:
    exact = CrossedTest("exact", 0.0, 0.0, Estimate(0.25, 0.25, 0.25, 0.95, 4), 0.0, 3.0, (0.0, 0.0, 0.0))
    for margin in (0.25, 0.5):
        claimed = equivalence(exact, margin)
        assert math.isnan(claimed.frame.p.item())
        assert not claimed.frame.shown.item()


@pytest.mark.parametrize("count", [2, 4, 400])
@pytest.mark.parametrize("value", [1.0, 0.0, 0.1 + 0.2, [0.3, 0.1 + 0.2]])
def test_constant_metric_shows_no_equivalence(count: int, value: Any) -> None:
    frame = pd.DataFrame(
        {"v": [1, 2] * count, "text": np.repeat(np.arange(count), 2), "wer": np.resize(value, 2 * count)}
    )
    for blocks in ((), "text"):
        claimed = equivalence(effects(frame, "v", "wer", blocks=blocks), 0.05)
        assert not claimed.frame.shown.any()
        assert claimed.frame.p.isna().all()
        assert str(claimed).startswith(
            "It cannot be tested whether wer at v 2 is equivalent to v 1: 0, no residual variance: "
            f"after {count} equal values, up to "
        )


@pytest.mark.parametrize("kind", ["MOS", "MUSHRA", "CMOS", "AB", "ABX"])
def test_constant_responses_show_no_equivalence(kind: Any) -> None:
    result = unanimous(kind, 12, 8, ahead=False)
    claimed = equivalence(result, 0.3)
    assert not claimed.frame.shown.any()
    # Of ABX one side counts, which signs can tell.
    assert ("It cannot be tested whether a is equivalent to b" in str(claimed)) == (kind != "ABX")
    if kind != "ABX":
        assert equivalence(unanimous(kind, 12, 8), 0.3, claim="not worse").frame.shown.all()
    rule = SequentialTest(margin=0.5)
    assert rule.decide(result.crossed["a", "b"]) == ("effect" if kind in {"AB", "ABX"} else "continue")
    assert rule.decide(unanimous(kind, 12, 8).crossed["a", "b"]) == "effect"


@pytest.mark.parametrize(("texts", "q"), [(2, 0.3), (16, 0.18)])
def test_rare_errors_show_no_equivalence_at_the_margin(texts: int, q: float) -> None:
    # WER is 0, or in a share q of the second system's texts 0.5: the difference is the margin.
    wer = 0.5 * (np.random.default_rng(texts).random((texts, 120)) < q)
    frame = pd.DataFrame(np.vstack([np.zeros_like(wer), wer]), columns=[f"m{place}" for place in range(120)])
    frame = frame.assign(text=[*range(texts)] * 2, v=np.repeat([1, 2], texts))
    for blocks in ("text", ()):
        found = equivalence(effects(frame, "v", blocks=blocks), 0.5 * q).frame
        assert ((found.p <= 0.05) == ((found.low >= found.lower) & (found.high <= found.upper))).all()
        assert (found.p <= 0.05).mean() <= 0.065
