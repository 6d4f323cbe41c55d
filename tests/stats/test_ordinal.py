from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from statsmodels.miscmodels.ordinal_model import OrderedModel

from tests.listening.test_design import listening_test
from tests.listening.test_results import choices, votes
from tests.listening.test_results import rated as constant
from voicelab.errors import ArgumentError
from voicelab.listening.results import analyze
from voicelab.stats import mixed_model, ordinal_model
from voicelab.stats.mixed import indicators
from voicelab.stats.ordinal import CumulativeLink

# J. H. Randall, "The analysis of sensory data by generalized linear model", Biometrical Journal 31 (1989): the bitterness
# of wine, rated 1 to 5 by nine judges: two bottles each of cold, cold with contact, warm, and warm with contact.
WINE = "23344455 12132354 23325544 32323253 23433333 32322454 11222323 22233334 12323244"


def test_wine_data_agree_with_clmm_in_r() -> None:
    # R. H. B. Christensen's tutorial prints: variance of judges 1.279; warm 3.0630 (error 0.5954), contact 1.8349 (0.5125);
    # thresholds -1.6237 (0.6824), 1.5134 (0.6038), 4.2285 (0.8090), 6.0888 (0.9725); log likelihood -81.57.
    ratings = np.array([int(rating) - 1 for rating in WINE.replace(" ", "")])
    warm, contact = np.tile([0.0, 0, 0, 0, 1, 1, 1, 1], 9), np.tile([0.0, 0, 1, 1, 0, 0, 1, 1], 9)
    model = CumulativeLink(ratings, np.column_stack((warm, contact)), [np.repeat(np.arange(9), 8)])
    roots, effects, covariance, likelihood = model.fit()
    assert roots[0] ** 2 == pytest.approx(1.279, abs=1e-3)
    assert effects == pytest.approx([-1.6237, 1.5134, 4.2285, 6.0888, 3.0630, 1.8349], abs=2e-4)
    assert np.sqrt(np.diag(covariance)) == pytest.approx([0.6824, 0.6038, 0.8090, 0.9725, 0.5954, 0.5125], abs=2e-4)
    assert likelihood == pytest.approx(-81.57, abs=5e-3)


def rated(seed: int, listeners: int = 10, items: int = 6, own: float = 1.0) -> pd.DataFrame:
    """Return votes of 1 to 5 by a logistic model in which b is above a by 1, and c by 2."""
    rng = np.random.default_rng(seed)
    who, what, system = (axis.ravel() for axis in np.indices((listeners, items, 3)))
    level = rng.normal(0, own, listeners)[who] + rng.normal(0, own, items)[what] + system + rng.logistic(size=who.size)
    rating = 1 + np.searchsorted([-2.0, 0.0, 1.5, 3.0], level)
    names = {"listener": who, "item": what, "system": np.array(["a", "b", "c"])[system], "rating": rating.astype(float)}
    return pd.DataFrame(names)


def test_gradient_agrees_with_differences() -> None:
    table = rated(2, listeners=6, items=5)
    systems = np.unique(table.system, return_inverse=True)[1]
    crossed = [table[name].to_numpy() * 3 + systems for name in ("listener", "item")]
    groups = [table.listener.to_numpy(), table.item.to_numpy(), *crossed]
    ratings = np.unique(table.rating, return_inverse=True)[1]
    for count in (4, 1, 0):
        model = CumulativeLink(ratings, indicators(systems)[:, 1:], groups[:count])
        parameters = np.array([-1.0, 0.1, 0.2, 0.05, 0.3, 0.4, -0.3, -0.6, -0.2, -1.0])[: 6 + count]
        _, gradient = model.deviance(parameters)
        steps = 1e-5 * np.eye(parameters.size)
        found = [(model.deviance(parameters + step)[0] - model.deviance(parameters - step)[0]) / 2e-5 for step in steps]
        assert gradient == pytest.approx(found, abs=1e-5)


def test_crossed_model_agrees_with_clmm_in_r() -> None:
    # clmm(factor(rating) ~ system + (1 | listener) + (1 | item) + (1 | listener:system) + (1 | item:system))
    rng = np.random.default_rng(0)
    who, what, system = (axis.ravel() for axis in np.indices((24, 16, 4)))
    level = rng.normal(0, 0.8, 24)[who] + rng.normal(0, 0.6, 16)[what] + rng.normal(0, 0.5, (24, 4))[who, system]
    level += rng.normal(0, 0.4, (16, 4))[what, system] + 0.3 * system
    rating = np.digitize(level + rng.logistic(size=who.size), [-1.5, -0.3, 1, 2.5]) + 1
    model = ordinal_model(pd.DataFrame({"rating": rating, "system": system, "listener": who, "item": what}))
    assert model.log_likelihood == pytest.approx(-2270.367383, abs=1e-4)
    assert model.thresholds == pytest.approx([-1.5249160, -0.3234234, 1.0174961, 2.5590154], abs=5e-5)
    assert model.pairs.log_odds[:3].to_numpy() == pytest.approx([-0.4547121, -0.3249601, -0.9663325], abs=5e-5)
    assert model.pairs.error[:3].to_numpy() == pytest.approx([0.2326533, 0.2313459, 0.2329423], abs=2e-5)
    assert list(model.sd.values()) == pytest.approx([0.807788, 0.518803, 0.465934, 0.381956], abs=5e-5)


def test_without_random_effects_agrees_with_statsmodels() -> None:
    table = rated(3, own=0.0)
    model = ordinal_model(table, interactions=False)
    design = pd.get_dummies(table.system).to_numpy(float)[:, 1:]
    theirs = OrderedModel(table.rating.to_numpy(), design, distr="logit").fit(method="bfgs", disp=False)
    assert model.log_likelihood >= theirs.llf - 1e-3
    assert -model.pairs.log_odds.iloc[:2].to_numpy() == pytest.approx(theirs.params[:2], rel=0.05)
    assert model.pairs.error.iloc[:2].to_numpy() == pytest.approx(theirs.bse[:2], rel=0.05)


def test_mos_results_have_an_ordinal_model() -> None:
    table = rated(5)
    own = table.assign(item=[f"s{item}" for item in table["item"]])
    result = analyze(
        listening_test("MOS", "abc", items=6),
        votes("MOS", [{str(key): value for key, value in row.items()} for row in own.to_dict("records")]),
    )
    model = result.ordinal_model()
    assert set(model.sd) == {"listener", "item", "listener x system", "item x system"}
    row = model.pairs.iloc[0]
    assert (row["first"], row["second"]) == ("a", "b")
    assert row.low < -1.0 < row.high
    linear = mixed_model(table).pairs
    assert (np.sign(model.pairs.log_odds) == np.sign(linear.difference)).all()
    assert f"a - b: odds of a higher category × {math.exp(row.log_odds):.3g} [" in str(model)
    with pytest.raises(ArgumentError, match="must be MOS"):
        analyze(listening_test("AB"), choices([[True, False]] * 3)).ordinal_model()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rating": 3.0}, "rating"),
        ({"rating": np.arange(180.0)}, "rating"),
        ({"system": "a"}, "system"),
        ({"item": None}, "frame"),
    ],
)
def test_invalid_tables_are_rejected(change: dict[str, Any], field: str) -> None:
    table = rated(1).assign(**change)
    with pytest.raises(ArgumentError, match=f"^{field}: "):
        ordinal_model(table.drop(columns="item") if field == "frame" else table)


@pytest.mark.parametrize("levels", [{"a": [5] * 8, "b": [2] * 8}, {"a": [5, 5, 4, 5, 4], "b": [2, 1, 2, 2, 1]}])
def test_separated_ratings_are_rejected(levels: dict[str, list[float]]) -> None:
    table = constant("MOS", levels, items=6)
    with pytest.raises(ArgumentError, match="rating: ratings of systems must overlap"):
        ordinal_model(table)
    with pytest.raises(ArgumentError, match="rating: systems, listeners and items explain every rating"):
        mixed_model(table)
