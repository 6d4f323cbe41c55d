from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from voicelab.errors import ArgumentError
from voicelab.experiments.metrics import system_scores
from voicelab.experiments.statistics import crossed_mean


def table(seed: int = 0, lead: float = 0.0) -> pd.DataFrame:
    """Two systems, six texts, four voices, two takes of each; a text suits one system or the other."""
    draw = np.random.default_rng(seed)
    suits = draw.normal((lead, 0.0), 0.3, (6, 2))
    rows = [
        {"system": "ab"[s], "text": f"t{t}", "voice": f"v{v}", "seed": k, "mos": 3 + suits[t, s] + draw.normal(0, 0.2)}
        for s in range(2) for t in range(6) for v in range(4) for k in range(2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_scores_are_of_texts_and_not_of_clips() -> None:
    frame = table(lead=1.0)
    scores = system_scores(frame, "mos").set_index(["system", "against"])
    means = frame.groupby(["text", "system"])["mos"].mean().unstack()
    theirs = ttest_rel(means["a"], means["b"])
    assert scores.loc[("a", "b"), "mean"] == pytest.approx(means["a"].mean() - means["b"].mean())
    assert scores.loc[("a", "b"), "p"] == pytest.approx(theirs.pvalue)
    low, high = theirs.confidence_interval()
    assert scores.loc[("a", "b"), "low"] == pytest.approx(low)
    assert scores.loc[("a", "b"), "high"] == pytest.approx(high)
    assert scores.loc[("a", ""), "n"] == 6
    crossed = system_scores(frame, "mos", samples=("text", "voice")).set_index(["system", "against"])
    cells = frame.groupby(["text", "voice", "system"])["mos"].mean().unstack()
    apart = cells["a"] - cells["b"]
    texts, voices = (list(apart.index.get_level_values(level)) for level in (0, 1))
    assert crossed.loc[("a", "b"), "p"] == pytest.approx(crossed_mean(apart.to_numpy(), texts, voices).p)


def test_a_lead_of_these_texts_alone_is_none() -> None:
    found = [system_scores(table(seed), "mos", samples=("text", "voice"))["p"].iloc[-1] < 0.05 for seed in range(100)]
    # 12 of 100 come up once in 500 times at a level of 0.05; of clips taken as independent about half would be.
    assert sum(found) <= 12


def test_what_cannot_be_scored() -> None:
    frame = table()
    for options, match in (
        ({"metric": "wer"}, "no column 'wer'"),
        ({"system": "lab"}, "no column 'lab'"),
        ({"samples": ()}, "one column or two"),
    ):
        with pytest.raises(ArgumentError, match=match):
            system_scores(frame, **{"metric": "mos", **options})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="one is no sample"):
        system_scores(frame[frame["text"] == "t0"], "mos")
