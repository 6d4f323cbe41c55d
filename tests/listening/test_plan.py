from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.listening.test_design import listening_test
from tests.listening.test_report import study
from tests.listening.test_results import unanimous
from tests.listening.test_votes import vote_all
from tests.tones import there
from voicelab.errors import ArgumentError, StoreError
from voicelab.listening.plan import Plan
from voicelab.listening.results import analyze
from voicelab.listening.votes import Ballot

FIELDS: dict[str, Any] = {"hypothesis": 'a is "better"\nthan b', "primary": ("a", "b"), "listeners": 6}


def test_plan_round_trip(tmp_path: Path) -> None:
    test = listening_test("MOS", "abc", items=5)
    plan = test.register(tmp_path / "plan.toml", **FIELDS, exclusions="nobody")
    assert Plan.load(tmp_path / "plan.toml") == plan
    assert plan.registered.startswith("20")
    assert len(plan.digest) == 64
    with pytest.raises(StoreError, match="never replaces a file; choose another path"):
        test.register(tmp_path / "plan.toml", **FIELDS)


def test_changed_plan_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    listening_test("MOS").register(path, **FIELDS)
    text = path.read_text()
    path.write_text(text.replace("listeners = 6", "listeners = 5"))
    with (
        Ballot(listening_test("MOS"), tmp_path / "v") as ballot,
        pytest.raises(StoreError, match="changed after it was registered"),
    ):
        analyze(listening_test("MOS"), ballot.frame(), plan=path)
    path.write_text("nonsense")
    with pytest.raises(StoreError, match="cannot be read as a plan"):
        Plan.load(path)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"claim": "best"}, "claim"),
        ({"claim": "equivalent"}, "margin"),
        ({"margin": 0.3}, "margin"),
        ({"claim": "not worse", "margin": 0.0}, "margin"),
        ({"alpha": 1.0}, "alpha"),
        ({"listeners": 1}, "listeners"),
        ({"primary": ("a", "z")}, "primary"),
        ({"primary": ("a", "a")}, "primary"),
    ],
)
def test_invalid_plans_are_rejected(tmp_path: Path, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{field}: "):
        listening_test("MOS").register(tmp_path / "plan.toml", **{**FIELDS, **fields})
    assert not (tmp_path / "plan.toml").exists()


def test_confirmatory_test_is_separate_and_deviations_are_listed(tmp_path: Path) -> None:
    test = listening_test("MOS", "abc", items=5)
    plan = test.register(tmp_path / "plan.toml", **FIELDS)
    votes = study("MOS")
    result = analyze(test, votes.votes.drop(columns="counts"), plan=tmp_path / "plan.toml")
    outcome = there(result.outcome)
    assert outcome.departures == ()
    # One-sided, of the pair that was named alone: no correction for the others.
    assert outcome.p == pytest.approx(result.crossed["a", "b"].p / 2)
    text = str(result)
    assert text.index("as registered: a is better than b: ") < text.index("exploratory") < text.index("a against c")
    assert plan.digest in result.report().text
    other = replace(test, seed=3, kind="MOS")
    with Ballot(other, tmp_path / "early") as ballot:
        for name in ("Ada", "Ben"):
            vote_all(ballot, name)
        late = replace(plan, registered="2999-01-01T00:00:00.000+00:00")
        departures = there(analyze(other, ballot, plan=late).outcome)
    text = " | ".join(departures.departures)
    for deviation in ("seed was 0 and is 3", "6 listeners were planned, 2 were analyzed",
                      "before the plan was registered"):  # fmt: skip
        assert deviation in text
    assert departures.p > 0.4  # type: ignore[operator]
    assert not departures.holds
    lone = votes.votes.drop(columns="counts").query("item == 's1'")
    untested = there(analyze(test, lone, plan=plan).outcome)
    assert untested.p is None
    assert not untested.holds
    assert "the responses do not allow the crossed analysis, so the claim was not tested" in str(untested)


@pytest.mark.parametrize("kind", ["AB", "CMOS", "MOS", "MUSHRA", "ABX"])
def test_unanimous_responses_have_the_registered_test(kind: Any) -> None:
    result = unanimous(kind, 24, 12)
    test, votes = listening_test(kind, "ab", items=12), result.votes.drop(columns="counts")

    def outcome(**fields: Any) -> Any:
        claim = "different" if kind == "ABX" else "better"
        plan = Plan(**{**FIELDS, "claim": claim, "listeners": 24, "design": test.to_record(), **fields})
        return there(analyze(test, votes, plan=plan).outcome)

    better = outcome()
    assert better.p < 1e-6
    assert better.holds
    assert "supported at alpha 0.05" in str(better)
    assert better.departures == ()
    assert outcome(primary=("b", "a")).holds == (kind == "ABX")
    if kind != "ABX":
        assert outcome(claim="different").p == pytest.approx(2 * better.p)
        assert outcome(claim="not worse", margin=0.1).p < better.p
        assert outcome(claim="not worse", margin=0.1, primary=("b", "a")).p == 1.0
    assert not outcome(claim="equivalent", margin=0.3).holds


@pytest.mark.parametrize("kind", ["MOS", "AB", "CMOS"])
def test_claims_in_either_direction(kind: Any) -> None:
    result = study(kind)
    test = listening_test(kind, "abc", items=5)
    votes, crossed = result.votes.drop(columns="counts"), result.crossed["a", "b"]
    null = 0.5 if kind == "AB" else 0.0

    def p(**fields: Any) -> float:
        outcome = there(analyze(test, votes, plan=Plan(**{**FIELDS, **fields})).outcome)
        return there(outcome.p)

    above = crossed.p_above(null)
    assert p() == pytest.approx(above)
    assert p(primary=("b", "a")) == pytest.approx(1 - above)
    assert p(claim="different") == pytest.approx(crossed.p)
    assert p(claim="different", primary=("b", "a")) == pytest.approx(crossed.p)
    assert p(claim="not worse", margin=0.3) == pytest.approx(crossed.p_above(null - 0.3))
    assert p(claim="not worse", margin=0.3, primary=("b", "a")) == pytest.approx(1 - crossed.p_above(null + 0.3))
    both = max(crossed.p_above(null - 0.3), 1 - crossed.p_above(null + 0.3))
    assert p(claim="equivalent", margin=0.3) == pytest.approx(both)
    assert p(claim="equivalent", margin=0.3, primary=("b", "a")) == pytest.approx(both)
    turned = there(there(analyze(test, votes, plan=Plan(**{**FIELDS, "primary": ("b", "a")})).outcome).test).estimate
    assert turned.value == pytest.approx(2 * null - crossed.estimate.value)
    assert turned.low == pytest.approx(2 * null - crossed.estimate.high)


def test_abx_has_no_direction(tmp_path: Path) -> None:
    result = study("ABX")
    test, votes = listening_test("ABX", "abc", items=5), result.votes.drop(columns="counts")
    for pair in (("a", "b"), ("b", "a")):
        plan = test.register(tmp_path / "".join(pair), hypothesis="audible", primary=pair, listeners=6)
        outcome = there(analyze(test, votes, plan=plan).outcome)
        assert outcome.p == pytest.approx(result.crossed["a", "b"].p)
        assert f"{pair[0]} is different from {pair[1]}: supported at alpha 0.05, one-sided p" in str(outcome)
        assert str(outcome).count("sided") == 1
    with pytest.raises(ArgumentError, match="claim: must be 'different' or 'equivalent', got 'better'"):
        test.register(tmp_path / "c", hypothesis="", primary=("a", "b"), listeners=6, claim="better")
    assert "against" not in "".join(result.comparisons())
    assert "superiority" not in result.report().text
