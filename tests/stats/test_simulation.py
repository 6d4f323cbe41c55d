from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import voicelab as vl
from tests.listening.test_design import listening_test
from tests.listening.test_results import choices, rated
from tests.stats.test_effects import sentences
from tests.tones import there
from voicelab.errors import ArgumentError
from voicelab.listening.results import analyze
from voicelab.stats import crossed_share, effects, plan_sweep, plan_test, rating_power


def test_power_with_listener_variance_only_agrees_with_student() -> None:
    # Items that do not differ and answers without noise: the listeners' own differences alone decide.
    plan = plan_test("MOS", 0.4, listeners=(8, 16), items=(200,), sd=(0.5, 0.0, 0.5), simulations=2000)
    for row in plan.frame.to_dict("records"):
        expected = rating_power(row["listeners"], 0.4, (0.5**2 + 0.5**2 / 200) ** 0.5)
        assert row["power"] == pytest.approx(expected, abs=0.05)
        assert row["low"] < row["power"] < row["high"]


def test_power_agrees_with_analyzed_simulations() -> None:
    plan = plan_test("AB", 0.68, listeners=(14,), items=(10,), sd=(0.7, 0.7, 0.0), simulations=1000)
    rng, hits = np.random.default_rng(5), 0
    who, what = (axis.ravel() for axis in np.indices((14, 10)))
    logit = np.log(0.68 / 0.32) * np.sqrt(1 + (16 * np.sqrt(3) / (15 * np.pi)) ** 2 * 2 * 0.7**2)
    for _ in range(150):
        leans = rng.normal(0, 0.7, (14, 1)) + rng.normal(0, 0.7, (1, 10))
        votes = (logit + leans + rng.logistic(size=(14, 10)) > 0).astype(float)
        hits += crossed_share(votes.ravel(), who, what).p <= 0.05
    assert plan.frame.power[0] == pytest.approx(hits / 150, abs=0.12)


@pytest.mark.parametrize("kind", ["AB", "ABX"])
@pytest.mark.parametrize(("listeners", "items"), [(24, 12), (12, 4), (6, 6)])
def test_power_increases_towards_unanimity(kind: Any, listeners: int, items: int) -> None:
    shares = (0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.99999)
    design: dict[str, Any] = {"listeners": (listeners,), "items": (items,), "sd": (0.5, 0.5, 0.0)}
    power = [plan_test(kind, share, **design).frame.power[0] for share in shares]
    assert np.diff(power).min() > -0.01
    assert power[-2] > 0.99
    # Of the plan's own analysis, as `analyze` makes it.
    all_one = choices(np.ones((listeners, items), bool))
    found = analyze(listening_test("AB", items=items), all_one).crossed["a", "b"]
    assert found.p <= 0.05


def test_unanimous_pilot_has_no_sd() -> None:
    same = plan_test("MOS", 1.0, listeners=(2, 12), items=(6,), sd=(0.0, 0.0, 0.0)).frame
    assert same.power.tolist() == [1.0, 1.0]
    unanimous = analyze(listening_test("AB", items=9), choices(np.ones((9, 9), bool)))
    with pytest.raises(ArgumentError, match=r"^pilot: "):
        plan_test("AB", 0.6, pilot=unanimous)


def test_power_increases_with_size_and_decreases_with_tests() -> None:
    spread = (0.3, 0.3, 1.0)
    plan = plan_test("MOS", 0.3, listeners=(6, 24), items=(6, 24), sd=spread)
    power = plan.frame.set_index(["listeners", "items"]).power
    assert power[6, 6] < power[24, 6] < power[24, 24]
    assert plan.enough(0.8).answers.is_monotonic_increasing
    fewer = plan_test("MOS", 0.3, listeners=(24,), items=(24,), sd=spread, systems=4).frame
    assert fewer.power[0] < power[24, 24]
    legend = there(plan.plot().get_legend())
    assert legend.get_texts()[0].get_text() == "6 items"
    assert str(plan).startswith("power to detect a difference of 0.3 at 0.05 (SD: listeners 0.3, items 0.3, answers 1)")
    plt.close("all")


@pytest.mark.parametrize(("kind", "owner"), [("AB", "for the first system"), ("ABX", "of correct responses")])
def test_planned_shares_are_named_as_shares(kind: Any, owner: str) -> None:
    plan = plan_test(kind, 0.6, listeners=6, items=6, sd=(0.8, 0.8, 0.0), simulations=100)
    assert str(plan).startswith(f"power to detect a share of 0.6 {owner} (0.5 is no difference) at 0.05")


def test_power_without_difference_is_the_level() -> None:
    null = plan_test("CMOS", 0.0, listeners=(12,), items=(12,), sd=(0.5, 0.5, 0.7), simulations=4000).frame
    assert 0.03 < null.power[0] < 0.065
    edge = plan_test("MOS", 0.4, listeners=(12,), items=(12,), sd=(0.5, 0.5, 0.7), margin=0.4, simulations=4000).frame
    assert edge.power[0] < 0.065
    same = plan_test("MOS", 0.0, listeners=(40,), items=(40,), sd=(0.3, 0.3, 0.7), margin=0.4).frame
    assert same.power[0] > 0.8


@pytest.mark.parametrize("claim", ["different", "better", "not worse", "equivalent"])
def test_sides_of_claims_are_stated(claim: Any) -> None:
    options: dict[str, Any] = {"listeners": 12, "items": 8, "sd": (0.4, 0.4, 0.7), "simulations": 400}
    if claim in {"not worse", "equivalent"}:
        options["margin"] = 0.5
    plan = plan_test("MOS", 0.3, claim=claim, **options)
    assert ("two-sided" in str(plan)) == (claim == "different")
    power = plan.frame.power[0]
    both = plan_test("MOS", 0.3, alpha=0.1, listeners=12, items=8, sd=(0.4, 0.4, 0.7), simulations=400).frame.power[0]
    assert claim != "better" or power == pytest.approx(both, abs=0.02)
    assert claim != "not worse" or power > both


def test_pilot_provides_the_sd() -> None:
    rng = np.random.default_rng(2)
    table = rated("MOS", {"a": [3.0] * 30, "b": [3.0] * 30}, 30)
    lean = dict(zip(table.listener.unique(), rng.normal(0, 0.6, 30), strict=True))
    table["rating"] += rng.normal(0, 0.5, len(table)) + (table.system == "a") * table.listener.map(lean)
    table["rating"] = table["rating"].clip(1.0, 5.0)
    result = analyze(listening_test("MOS", "ab", items=30), table)
    plan = plan_test("MOS", 0.3, listeners=(12,), items=(12,), pilot=result)
    assert "uncertainty of the pilot's SDs" in plan.notes[-1]
    assert plan.frame.low[0] < plan.frame.power[0] - 0.03
    assert list(plan.sd) == ["listeners", "items", "answers"]
    assert plan.sd["listeners"] == pytest.approx(0.6, rel=0.3)
    assert plan.sd["answers"] == pytest.approx(0.5 * 2**0.5, rel=0.1)
    lone = analyze(listening_test("AB"), choices([[True]] * 3))
    with pytest.raises(ArgumentError, match="listeners and items as random effects"):
        plan_test("AB", 0.6, pilot=lone)


def test_sweep_plan_with_random_texts_agrees_with_effects() -> None:
    plan = plan_sweep(0.8, texts=(4, 12), repeats=(2, 6), sd=(0.6, 1.0))
    row = plan.frame.iloc[-1]
    assert row.power == pytest.approx(rating_power(12, 0.8, (0.36 + 2 / 6) ** 0.5))
    assert plan.frame.power.is_monotonic_increasing
    pilot = effects(sentences(4, texts=40), "temperature", "f0", blocks=["text", "latency"])
    planned = plan_sweep(0.8, pilot=pilot)
    # 39 degrees of freedom leave power open; an assumed SD does not.
    assert (planned.frame.low < planned.frame.power - 0.05).any()
    assert (planned.frame.low <= planned.frame.power).all()
    assert (planned.frame.power <= planned.frame.high).all()
    assert planned.notes[0] == "Sides: two-sided."
    assert planned.notes[1].startswith("Intervals include the uncertainty of the pilot's SDs (39 degrees of freedom)")
    # Each level has a lean of its own in each text, sd 1, so that their difference has the root of 2; takes have 1.
    assert planned.sd == {"texts": pytest.approx(2**0.5, rel=0.3), "takes": pytest.approx(1.0, rel=0.1)}


@pytest.mark.parametrize(("texts", "levels", "repeats"), [(5, 6, 2), (1, 4, 3)])
def test_sweep_plan_of_several_levels_agrees_with_effects(texts: int, levels: int, repeats: int) -> None:
    shape, rng = (texts, levels, repeats), np.random.default_rng(4)
    text, level, _ = (axis.ravel() for axis in np.indices(shape))
    for shift in (0.0, 1.5):
        noise = rng.normal(0, 1.0, (*shape, 150)) + rng.normal(0, 0.5**0.5, (texts, levels, 1, 150)) * (texts > 1)
        noise[:, 2] += shift
        names = [f"m{place}" for place in range(150)]
        frame = pd.DataFrame(noise.reshape(-1, 150), columns=names).assign(text=text.astype(str), v=level)
        found = effects(frame, "v", names, blocks="text" if texts > 1 else ()).frame
        share = (found["p_texts" if texts > 1 else "p"] <= 0.05).mean()
        plan = plan_sweep(shift, texts=texts, repeats=repeats, sd=(1.0, 1.0), levels=levels)
        assert plan.frame.answers[0] == texts * levels * repeats
        assert share == pytest.approx(plan.frame.power[0], abs=0.06 if not shift else 0.12)
        assert plan.notes[0] == f"Sides: two-sided, the largest difference from the first of {levels} levels."


def test_sweep_plan_of_one_text_has_fixed_texts() -> None:
    plan = plan_sweep(1.0, texts=(1,), repeats=(1, 2, 4, 8), sd=(0.0, 1.0)).frame
    assert plan.power[0] == 0.0
    for repeats, power in zip(plan.repeats[1:], plan.power[1:], strict=True):
        noise = (
            np.random.default_rng(repeats).standard_normal((2 * repeats, 1000)) + np.repeat([0, 1], repeats)[:, None]
        )
        names = [f"m{place}" for place in range(1000)]
        frame = pd.DataFrame(noise, columns=names).assign(v=np.repeat([0, 1], repeats))
        assert (effects(frame, "v", names).frame.p <= 0.05).mean() == pytest.approx(power, abs=0.05)


def test_grid_takes_seconds_and_reports_progress() -> None:
    seen = []

    def progress(rows: Iterable[Any]) -> Iterable[Any]:
        for row in vl.progress(rows, "designs"):
            seen.append(row)
            yield row

    began = time.monotonic()
    plan = plan_test("MOS", 0.3, sd=(0.3, 0.3, 1.0), progress=progress)
    assert time.monotonic() - began < 30
    assert len(plan.frame) == len(seen) == 15


ALONE = pd.DataFrame({"v": [0, 0, 1, 1], "f": [1.0, 2, 3, 5]})


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: plan_test("MOS", 0.3), "sd"),
        (lambda: plan_test("MOS", 0.3, sd=(1.0, -1.0, 1.0)), "sd"),
        (lambda: plan_test("AB", 1.2, sd=(1.0, 1.0, 0.0)), "difference"),
        (lambda: plan_test("ABX", 0.3, sd=(1.0, 1.0, 0.0)), "difference: must be at least 0.5 for ABX"),
        (lambda: plan_test("MOS", 4, sd=(1.0, 1.0, 0.0)), "difference: must be above -4 and below 4, got 4"),
        (lambda: plan_test("MOS", None, sd=(1.0, 1.0, 0.0)), "difference: must be above -4"),  # type: ignore[arg-type]
        (lambda: plan_test("MOS", 0.3, sd=(1.0, 1.0, 1.0), listeners=12.0), "listeners: must be an integer"),  # type: ignore[arg-type]
        (lambda: plan_test("MOS", 0.3, sd=(1.0, 1.0, 1.0), items=None), "items: must be an integer"),  # type: ignore[arg-type]
        (lambda: plan_sweep(0.3, sd=(1.0, 1.0), texts=2.5), "texts: must be an integer"),  # type: ignore[arg-type]
        (lambda: plan_test("MOS", 6.0, sd=(1.0, 1.0, 0.0)), "difference"),
        (lambda: plan_test("AB", 0.5, sd=(1.0, 1.0, 0.0), margin=0.6), "margin"),
        (lambda: plan_test("AB", 0.5, sd=(1.0, 1.0, 0.0), claim="not worse"), "margin"),
        (lambda: plan_test("AB", 0.6, sd=(1.0, 1.0, 0.0), claim="better", margin=0.1), "margin"),
        (lambda: plan_test("ABX", 0.6, sd=(1.0, 1.0, 0.0), claim="better"), "claim"),
        (lambda: plan_test("ABX", 0.6, sd=(1.0, 1.0, 0.0), claim="not worse", margin=0.1), "claim"),
        (lambda: plan_test("MOS", 0.3, sd=(1.0, 1.0, 1.0), listeners=()), "listeners"),
        (lambda: plan_test("MOS", 0.3, sd=(1.0, 1.0)), "sd"),  # type: ignore[arg-type]
        (lambda: plan_test("AB", 0.6, sd=1.0), "sd: must be three numbers .* in logits"),  # type: ignore[arg-type]
        (lambda: plan_sweep(0.3, sd=(1.0, -0.3)), "sd"),
        (lambda: plan_sweep(0.3, sd=("a", 1.0)), "sd: must be two numbers"),  # type: ignore[arg-type]
        (lambda: plan_sweep(0.3, sd=1.0), "sd: must be two numbers"),  # type: ignore[arg-type]
        (lambda: plan_sweep("x", sd=(1.0, 1.0)), "difference: must be a finite number, got 'x'"),  # type: ignore[arg-type]
        (lambda: plan_sweep(math.nan, sd=(1.0, 1.0)), "difference"),
        (lambda: plan_test("MOS", 0.3, sd=(1.0, 1.0, 1.0), listeners=(1,)), "listeners"),
        (lambda: plan_sweep(0.3), "sd"),
        (lambda: plan_sweep(0.3, sd=(1.0, 1.0), texts=(0,)), "texts"),
        (
            lambda: plan_sweep(0.3, pilot=effects(ALONE, "v")),
            "pilot",
        ),
    ],
)
def test_invalid_plans_are_rejected(call: Any, field: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{field}"):
        call()
