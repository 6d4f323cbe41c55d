from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from voicelab.errors import RequestInvalid
from voicelab.experiments.statistics import holm, mixed_model

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


def ratings(seed: int, listeners: int = 12, items: int = 6, own: float = 0.0) -> pd.DataFrame:
    """Return ratings of three systems, of which each listener has an opinion with sd ``own``."""
    rng = np.random.default_rng(seed)
    kind, strict, taste = rng.normal(0, 0.5, items), rng.normal(0, 0.7, listeners), rng.normal(0, own, (listeners, 3))
    return pd.DataFrame(
        [
            {
                "who": f"listener {listener}",
                "item": f"sentence {item}",
                "voice": "abc"[system],
                "score": 3.0
                + (0.0, 0.0, 0.6)[system]
                + strict[listener]
                + kind[item]
                + taste[listener, system]
                + rng.normal(0, 0.4),
            }
            for listener in range(listeners)
            for item in range(items)
            for system in range(3)
        ]
    )


NAMES: dict[str, Any] = {"rating": "score", "system": "voice", "listener": "who"}


def test_pinheiro_and_bates_stools() -> None:
    # Printed there: sd of subjects 1.332465, residual 1.100295; T1 8.556 with a standard error of 0.5760, differences
    # from it of 3.889, 2.222 and 0.667 with 0.5187, t = 7.498, 4.284 and 1.285 on 24 df; F(3, 24) = 22.36.
    found = mixed_model(stools(), item=None)
    assert found.sd == {"listener": pytest.approx(1.332465, abs=1e-4), "residual": pytest.approx(1.100295, abs=1e-4)}
    assert [score.value for score in found.scores.values()] == pytest.approx(
        [8.5556, 12.4444, 10.7778, 9.2222], abs=5e-5
    )
    assert found.df == (3, 24)
    assert found.statistic == pytest.approx(22.36, abs=0.005)
    assert found.p == pytest.approx(stats.f.sf(22.3556, 3, 24), rel=1e-3)
    first = found.pairs[found.pairs["first"] == "T1"]
    assert first.difference.to_numpy() == pytest.approx([-3.8889, -2.2222, -0.6667], abs=5e-5)
    assert first.p.to_numpy() == pytest.approx(2 * stats.t.sf([7.498, 4.284, 1.285], 24), rel=5e-3)
    reach = stats.t.ppf(0.975, 24) * 0.5186838
    assert (first.high - first.low).to_numpy() == pytest.approx([2 * reach] * 3, rel=1e-4)
    assert found.pairs.p_holm.to_numpy() == pytest.approx(holm(found.pairs.p))
    one = found.scores["T1"]
    assert (one.high - one.low) / 2 == pytest.approx(stats.t.ppf(0.975, 8) * 0.5760123, rel=1e-4)
    assert found.notes == ()
    assert "all equal: F(3, 24) 22.36, p " in str(found)


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
    assert (score.high - score.low) / 2 == pytest.approx(stats.t.ppf(0.975, 23) * 0.8086, rel=1e-3)
    assert found.pairs.empty
    assert math.isnan(found.p)


def test_listeners_with_opinions_of_their_own_are_not_counted_for_each_sentence() -> None:
    # In a complete table REML is the analysis of variance: systems against listeners x systems.
    table = ratings(3, own=0.5)
    found = mixed_model(table, **NAMES)
    cells = table.pivot_table(index="who", columns="voice", values="score").to_numpy()
    centred = cells - cells.mean(axis=0) - cells.mean(axis=1, keepdims=True) + cells.mean()
    between = 12 * float(np.square(cells.mean(axis=0) - cells.mean()).sum()) / 2
    expected = between / (float(np.square(centred).sum()) / 22)
    assert found.df == (2, 22)
    assert found.statistic == pytest.approx(expected, rel=1e-3)
    assert set(found.sd) == {"listener", "item", "listener x system", "residual"}
    assert found.sd["listener x system"] == pytest.approx(0.5, abs=0.2)
    assert found.sd["residual"] == pytest.approx(0.4, abs=0.05)


def test_gaps_are_taken() -> None:
    table = ratings(4)
    some = table.sample(frac=0.6, random_state=0)
    found = mixed_model(some, **NAMES)
    assert found.scores["c"].value - found.scores["a"].value == pytest.approx(0.6, abs=0.25)
    last = found.pairs.set_index(["first", "second"]).p_holm
    order = tuple(sorted(("a", "c"), key=list(found.scores).index))
    assert last[order] < 0.01
    # The order of the rows is nothing but that of the systems.
    again = mixed_model(some.sample(frac=1.0, random_state=1), **NAMES)
    assert again.statistic == pytest.approx(found.statistic, rel=1e-4)


def test_what_is_not_there_is_told() -> None:
    table = ratings(5, own=0.0)
    found = mixed_model(table.assign(score=table.groupby("who").cumcount() % 2 + 1.0), **NAMES)
    assert any("Nothing is left for listener" in note for note in found.notes)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rating": "votes"}, "rating"),
        ({"item": "sentence"}, "item"),
        ({"rating": "voice"}, "rating"),
        ({"confidence": 95}, "confidence"),
    ],
)
def test_a_table_that_is_none_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        mixed_model(ratings(0), **{**NAMES, **change})
    assert caught.value.errors[0].field == field


def test_too_little_is_refused() -> None:
    table = ratings(0)
    with pytest.raises(RequestInvalid, match="one listener stands for nobody else"):
        mixed_model(table[table.who == "listener 0"], **NAMES)
    with pytest.raises(RequestInvalid, match="all ratings are equal"):
        mixed_model(table.assign(score=4.0), **NAMES)


def test_without_statsmodels_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['statsmodels'] = None\n"
        "import pandas as pd\n"
        "from voicelab.errors import MissingExtra\n"
        "from voicelab.experiments.statistics import mixed_model\n"
        "try: mixed_model(pd.DataFrame())\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert "voicelab[statistics]" in done.stdout, done.stderr
