from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

from voicelab.errors import ArgumentError
from voicelab.stats import holm, mixed_model

# J. C. Pinheiro & D. M. Bates, "Mixed-Effects Models in S and S-PLUS" (2000), section 1.2: the effort of rising from
# four types of stool, rated by nine people on Borg's scale.
STOOLS = (
    (12, 15, 12, 10), (10, 14, 13, 12), (7, 14, 13, 9), (7, 11, 10, 9), (8, 11, 8, 7), (9, 11, 11, 10), (8, 12, 12, 11),
    (7, 11, 8, 7), (9, 13, 10, 8),
)  # fmt: skip

# O. L. Davies & P. L. Goldsmith, "Statistical Methods in Research and Production" (1972), table 6.6: zones of growth in
# mm on 24 plates (down) by six samples of penicillin (across), which are crossed.
PENICILLIN = (
    "272326232321 272326232321 252125242420 262325232320 252226222320 242225232219 242023212219 262226242421 "
    "242124222220 242124232219 262326242421 252226242420 262426242522 262326232320 262325242422 252225232320 "
    "252124232320 252224232319 242123212119 262326242421 252124222218 252225222220 242124222419 242124222118"
)


def stools() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"listener": f"subject {number}", "system": f"T{place}", "rating": effort}
            for number, row in enumerate(STOOLS, start=1)
            for place, effort in enumerate(row, start=1)
        ]
    )


def ratings(
    seed: int,
    listeners: int = 12,
    items: int = 6,
    own: float = 0.0,
    lead: float = 0.0,
    better: tuple[float, ...] = (0.0, 0.0, 0.6),
) -> pd.DataFrame:
    """Return ratings of systems that are ``better`` by so much; sd ``own`` of it is the listener's, ``lead`` the item's."""
    rng = np.random.default_rng(seed)
    count = len(better)
    who, item, system = (axis.ravel() for axis in np.indices((listeners, items, count)))
    score = 3.0 + np.array(better)[system] + rng.normal(0, 0.5, items)[item] + rng.normal(0, 0.7, listeners)[who]
    score += rng.normal(0, own, (listeners, count))[who, system] + rng.normal(0, lead, (items, count))[item, system]
    score += rng.normal(0, 0.4, score.size)
    return pd.DataFrame(
        {
            "listener": [f"listener {number}" for number in who],
            "item": [f"sentence {number}" for number in item],
            "system": [f"voice {number}" for number in system],
            "rating": score,
        }
    )


def mean_squares(table: pd.DataFrame) -> dict[str, float]:
    """Return those of the analysis of variance of a complete table of ``ratings``, one to a cell."""
    shape = levels, items, systems = table.listener.nunique(), table.item.nunique(), table.system.nunique()
    cells = table.pivot_table(index=["listener", "item"], columns="system", values="rating").to_numpy()
    cube = cells.reshape(shape)
    middle = cube.mean()
    ways = {"listener": (1, 2), "item": (0, 2), "system": (0, 1)}
    main = {name: cube.mean(axis=axes, keepdims=True) - middle for name, axes in ways.items()}
    by_listener = cube.mean(axis=1, keepdims=True) - middle - main["listener"] - main["system"]
    by_item = cube.mean(axis=0, keepdims=True) - middle - main["item"] - main["system"]
    rest = cube - middle - sum(main.values()) - by_listener - by_item
    free = {
        "listener": (main["listener"], levels - 1),
        "item": (main["item"], items - 1),
        "system": (main["system"], systems - 1),
        "listener x system": (by_listener, (levels - 1) * (systems - 1)),
        "item x system": (by_item, (items - 1) * (systems - 1)),
        "residual": (rest, systems * (levels - 1) * (items - 1)),
    }
    return {name: float(np.square(np.broadcast_to(part, shape)).sum()) / count for name, (part, count) in free.items()}


def test_pinheiro_and_bates_stools() -> None:
    # Printed there: sd of subjects 1.332465, residual 1.100295; T1 8.556 with a standard error of 0.5760, differences
    # from it of 3.889, 2.222 and 0.667 with 0.5187, t = 7.498, 4.284 and 1.285 on 24 df; F(3, 24) = 22.36.
    found = mixed_model(stools().assign(item="stool"))
    assert found.sd == {"listener": pytest.approx(1.332465, abs=1e-4), "residual": pytest.approx(1.100295, abs=1e-4)}
    assert [score.value for score in found.scores.values()] == pytest.approx(
        [8.5556, 12.4444, 10.7778, 9.2222], abs=5e-5
    )
    assert found.df == pytest.approx((3, 24))
    assert found.statistic == pytest.approx(22.36, abs=0.005)
    assert found.p == pytest.approx(stats.f.sf(22.3556, 3, 24), rel=1e-3)
    first = found.pairs[found.pairs["first"] == "T1"]
    assert first.difference.to_numpy() == pytest.approx([-3.8889, -2.2222, -0.6667], abs=5e-5)
    assert first.p.to_numpy() == pytest.approx(2 * stats.t.sf([7.498, 4.284, 1.285], 24), rel=5e-3)
    reach = stats.t.ppf(0.975, 24) * 0.5186838
    assert (first.high - first.low).to_numpy() == pytest.approx([2 * reach] * 3, rel=1e-4)
    assert found.pairs.p_holm.to_numpy() == pytest.approx(holm(found.pairs.p))
    one = found.scores["T1"]
    # Of a mean, sum and difference of two mean squares: of the nine people, and of what is left.
    people, rest = 4 * 1.332465**2 + 1.100295**2, 1.100295**2
    df = (people + 3 * rest) ** 2 / (people**2 / 8 + (3 * rest) ** 2 / 24)
    assert (one.high - one.low) / 2 == pytest.approx(stats.t.ppf(0.975, df) * 0.5760123, rel=1e-4)
    assert found.notes == ()
    assert "equal means: F(3, 24) 22.36, p " in str(found)


def test_crossed_penicillin() -> None:
    # D. M. Bates, "lme4: Mixed-effects modeling with R" (2010), section 2.1: sd of plates 0.84671, of samples 1.93157,
    # residual 0.54992; the mean is 22.9722 with a standard error of 0.8086.
    zones = [row[place : place + 2] for row in PENICILLIN.split() for place in range(0, 12, 2)]
    table = pd.DataFrame({"listener": np.repeat(np.arange(24), 6), "item": list("ABCDEF") * 24, "rating": zones})
    found = mixed_model(table.assign(system="penicillin"))
    assert found.sd["listener"] == pytest.approx(0.84671, abs=2e-4)
    assert found.sd["item"] == pytest.approx(1.93157, abs=2e-4)
    assert found.sd["residual"] == pytest.approx(0.54992, abs=2e-4)
    (score,) = found.scores.values()
    assert score.value == pytest.approx(22.9722, abs=5e-5)
    # lmerTest prints 5.49 degrees of freedom.
    assert (score.high - score.low) / 2 == pytest.approx(stats.t.ppf(0.975, 5.49) * 0.8086, rel=2e-3)
    assert found.pairs.empty
    assert math.isnan(found.p)


def test_listener_by_system_interaction_limits_the_degrees_of_freedom() -> None:
    # In a complete table REML is the analysis of variance: systems against listeners x systems.
    table = ratings(3, own=0.5)
    found = mixed_model(table.assign(item="all"))
    squares = mean_squares(table)
    assert found.df == pytest.approx((2, 22), rel=1e-3)
    assert found.statistic == pytest.approx(squares["system"] / squares["listener x system"], rel=1e-6)
    assert set(found.sd) == {"listener", "listener x system", "residual"}


@pytest.mark.parametrize(("listeners", "items"), [(12, 6), (4, 9)])
def test_complete_table_agrees_with_quasi_f(listeners: int, items: int) -> None:
    # H. H. Clark's quasi F, whose error is that by listeners and that by items less what both have of the residual.
    table = ratings(1, listeners, items, own=0.5, lead=0.4)
    found = mixed_model(table)
    squares = mean_squares(table)
    rest = squares["residual"]
    error = squares["listener x system"] + squares["item x system"] - rest
    by_listener, by_item = squares["listener x system"], squares["item x system"]
    ways = 2 * (listeners - 1), 2 * (items - 1), 2 * (listeners - 1) * (items - 1)
    df = error**2 / (by_listener**2 / ways[0] + by_item**2 / ways[1] + rest**2 / ways[2])
    assert found.df == pytest.approx((2, df), rel=1e-3)
    assert found.statistic == pytest.approx(squares["system"] / error, rel=1e-5)
    expected = {
        "listener": (squares["listener"] - squares["listener x system"]) / (3 * items),
        "item": (squares["item"] - squares["item x system"]) / (3 * listeners),
        "listener x system": (squares["listener x system"] - rest) / items,
        "item x system": (squares["item x system"] - rest) / listeners,
        "residual": rest,
    }
    assert found.sd == {name: pytest.approx(math.sqrt(value), rel=1e-4) for name, value in expected.items()}


def test_tables_may_have_gaps() -> None:
    table = ratings(4, own=0.4, lead=0.3)
    some = table.sample(frac=0.6, random_state=0)
    found = mixed_model(some)
    names = list(found.scores)
    cells = {
        "listener": some.listener,
        "item": some.item,
        "own": some.listener + some.system,
        "lead": some.item + some.system,
    }
    parts = [pd.get_dummies(column).to_numpy(float) for column in cells.values()]
    labels = [[[str(number) for number in range(part.shape[1])]] for part in parts]
    design = pd.get_dummies(some.system)[names].to_numpy(float)
    crossed = VCSpec(list(cells), labels, [[part] for part in parts])
    theirs = MixedLM(some.rating.to_numpy(), design, np.zeros(len(some)), exog_vc=crossed).fit(reml=True)
    assert list(found.sd.values()) == pytest.approx(np.sqrt([*theirs.vcomp, theirs.scale]), rel=1e-2)
    assert [score.value for score in found.scores.values()] == pytest.approx(theirs.fe_params, abs=1e-3)
    half = np.array([score.high - score.low for score in found.scores.values()]) / 2
    # By Satterthwaite: more than of the six sentences alone, fewer than of the cells.
    assert ((half / stats.t.ppf(0.975, 60) > theirs.bse_fe) & (half / stats.t.ppf(0.975, 5) < theirs.bse_fe)).all()
    row = found.pairs.iloc[0]
    contrast = np.array([1.0, -1.0, 0.0])
    error = math.sqrt(contrast @ np.asarray(theirs.cov_params())[:3, :3] @ contrast)
    assert (row.high - row.low) / 2 / stats.t.ppf(0.975, row.df) == pytest.approx(error, rel=1e-2)
    # The order of the rows is nothing but that of the systems.
    again = mixed_model(some.sample(frac=1.0, random_state=1))
    assert again.statistic == pytest.approx(found.statistic, rel=1e-4)


def test_items_nested_in_systems_are_random() -> None:
    table = ratings(2, lead=0.4, items=8)
    own = table[
        table.item.map({f"sentence {number}": number % 3 for number in range(8)}) == table.system.str[-1].astype(int)
    ]
    found = mixed_model(own)
    # By items 8 - 3: they are what differs most.
    assert found.df == pytest.approx((2, 5), rel=1e-3)
    assert set(found.sd) == {"listener", "item", "listener x system", "residual"}
    with pytest.raises(ArgumentError, match="each system has a different sentence") as caught:
        mixed_model(own[own.item.isin([f"sentence {number}" for number in range(3)])])
    assert caught.value.argument == "item"


def test_singular_fit_has_a_note() -> None:
    # Listeners who agree on the whole: what is left for them is negative, hence 0, and theirs falls to the residual.
    table = pd.DataFrame(np.array(STOOLS, float)).T
    table = (
        (table - table.mean())
        .T.rename(columns="T{}".format)
        .melt(ignore_index=False, var_name="system", value_name="rating")
    )
    found = mixed_model(table.rename_axis("listener").reset_index().assign(item="stool"))
    assert found.notes == ("The variance of listener is 0 (singular fit).",)
    assert found.sd["listener"] == pytest.approx(0.0, abs=1e-5)
    # Pinheiro and Bates' residual of 24 degrees of freedom, now of 32.
    assert found.sd["residual"] == pytest.approx(1.100295 * math.sqrt(24 / 32), abs=1e-4)


@pytest.mark.parametrize(
    ("table", "confidence", "message"),
    [
        (ratings(0).drop(columns="rating"), 0.95, "frame: must have a column 'rating', got "),
        (ratings(0).rename(columns={"item": "sentence"}), 0.95, "frame: must have a column 'item', got .*'sentence'"),
        (ratings(0).assign(rating="good"), 0.95, "rating: "),
        (ratings(0), 95, "confidence: "),
    ],
)
def test_invalid_tables_are_rejected(table: pd.DataFrame, confidence: float, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}"):
        mixed_model(table, confidence=confidence)


def test_too_few_ratings_are_rejected() -> None:
    table = ratings(0)
    with pytest.raises(ArgumentError, match="listener: must have two or more listeners, got 1"):
        mixed_model(table[table.listener == "listener 0"])
    with pytest.raises(ArgumentError, match="rating: must vary, got only 4"):
        mixed_model(table.assign(rating=4.0))


@pytest.mark.parametrize("each", [1, 3])
def test_confounded_systems_are_rejected(each: int) -> None:
    # Half of the listeners rated one system, half the other; then one of them both.
    table = ratings(0, items=each, better=(0, 0))
    number = table.listener.str.split().str[-1].astype(int)
    apart = table[(number % 2 == 0) == (table.system == "voice 0")]
    bridged = table[(number == 0) | ((number % 2 == 0) == (table.system == "voice 0"))]
    for rows in (apart, bridged):
        with pytest.raises(ArgumentError) as caught:
            mixed_model(rows)
        assert caught.value.argument in {"listener", "frame"}
    found = mixed_model(table[(number < 2) | ((number % 2 == 0) == (table.system == "voice 0"))])
    assert found.df[1] >= 1
    assert math.isfinite(found.p)


@pytest.mark.parametrize("column", [None, "listener", "item"])
def test_saturated_model_is_rejected(column: str | None) -> None:
    table = ratings(0)
    score = table.system.map({"voice 0": 3.0, "voice 1": 4.0, "voice 2": 5.0})
    if column is not None:
        score = score + table[column].str.split().str[-1].astype(float)
    with pytest.raises(ArgumentError, match="no residual variance") as caught:
        mixed_model(table.assign(rating=score))
    assert caught.value.argument == "rating"
