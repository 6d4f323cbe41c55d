"""Several systems on the same texts: one loudness, one table, a blind test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

import voicelab as vl
from tests.tones import ToneBackend
from voicelab.errors import ArgumentError
from voicelab.metrics import measure
from voicelab.stats import crossed_mean
from voicelab.sweeps.systems import system_scores

TEXTS = ["One two three four five.", "Six seven eight nine ten.", "Eleven twelve thirteen."]


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> vl.TakeTable:
    plain = vl.Lab(ToneBackend())
    slow = vl.Lab(ToneBackend(fingerprint="tones-2", models=("own",)), volume=-12)
    metrics = ("duration", "loudness", "first_audio_s")
    return vl.compare_systems(
        TEXTS, metrics=metrics, repeats=2, cache=tmp_path_factory.mktemp("takes"), plain=plain, quiet=slow
    )


def test_the_same_texts_are_said_by_all_at_one_loudness(systems: vl.TakeTable) -> None:
    assert (systems.systems, systems.column("text").labels) == (("plain", "quiet"), tuple(TEXTS))
    loudness = measure(systems.clips(1).values(), "loudness")["loudness"]
    assert np.ptp(loudness) < 0.01
    assert systems.frame().groupby(["system", "text"]).size().eq(2).all()
    assert systems.compare("One two three four five.").names == systems.systems


def test_one_table_has_means_and_differences_with_their_intervals(systems: vl.TakeTable) -> None:
    table = systems.summary()
    assert list(table.columns) == ["plain", "quiet", "quiet difference", "quiet low", "quiet high", "p"]
    row = table.loc["first_audio_s"]
    assert row["quiet difference"] == pytest.approx(row["quiet"] - row["plain"], abs=1e-6)
    assert row["quiet low"] <= row["quiet difference"] <= row["quiet high"]
    shown = systems._repr_mimebundle_()
    assert "first_audio_s" in shown["text/html"]
    assert repr(systems) in shown["text/plain"]


def test_braces_in_texts_are_literal(tmp_path: Path) -> None:
    texts = [r"You \emph{must} go.", "{{a}} {b} {1}"]
    lab = vl.Lab(ToneBackend())
    for given in (texts, dict(zip(texts, texts, strict=True))):
        table = vl.compare_systems(
            given, metrics=["duration"], cache=tmp_path, one=lab, two=lab.with_defaults(volume=-6)
        )
        assert [take.request.text for take in table.takes[::2]] == texts
        assert list(table.frame()["text"][::2]) == texts == list(table.column("text").labels)
    for wrong, problem in ((["{a}"] * 2, "must be unique"), (["{a}", ["b"]], "must be a string, got list")):
        with pytest.raises(vl.RequestInvalid, match=problem):
            vl.compare_systems(wrong, one=lab, two=lab)  # type: ignore[arg-type]
    swept = lab.sweep(r"You \emph{{must}} go.", temperature=[0, 1])
    assert {cell.call.request.text for cell in swept.grid.cells} == {texts[0]}
    with pytest.raises(vl.RequestInvalid, match=r"has no axis: pass must=\[…\], or write {{must}} for literal braces"):
        lab.sweep(texts[0], temperature=[0, 1])
    with pytest.raises(vl.RequestInvalid, match=r"^text: the placeholder {nmae} has no axis: .*; did you mean name\?$"):
        lab.sweep("I am {nmae}.", name=["Ann", "Ben"])  # type: ignore[call-arg]


def test_one_text_said_once_has_means_alone(tmp_path: Path) -> None:
    lab = vl.Lab(ToneBackend())
    once = vl.compare_systems(
        TEXTS[0], metrics=("duration",), cache=tmp_path, one=lab, other=lab.with_defaults(volume=-6)
    )
    assert list(once.summary().columns) == ["one", "other"]
    assert "need more texts, or repeats" in once._repr_mimebundle_()["text/html"]
    with pytest.raises(ArgumentError, match="add texts or repeats"):
        once.effects()


def test_what_is_no_comparison_is_refused(tmp_path: Path) -> None:
    lab = vl.Lab(ToneBackend())
    with pytest.raises(ArgumentError, match="at least two systems"):
        vl.compare_systems(TEXTS, a=lab)
    with pytest.raises(ArgumentError, match="b: a system must be a Lab, got ToneBackend"):
        vl.compare_systems(TEXTS, a=lab, b=ToneBackend())  # type: ignore[arg-type]
    silent = vl.Lab(ToneBackend(max_text=3))
    with pytest.raises(vl.RequestInvalid, match="at most 3"):
        vl.compare_systems(TEXTS, a=lab, b=silent, cache=tmp_path)


def scored(seed: int = 0, lead: float = 0.0) -> pd.DataFrame:
    """Two systems, six texts, four voices, two takes of each; a text suits one system or the other."""
    draw = np.random.default_rng(seed)
    suits = draw.normal((lead, 0.0), 0.3, (6, 2))
    rows = [
        {"system": "ab"[s], "text": f"t{t}", "voice": f"v{v}", "seed": k, "mos": 3 + suits[t, s] + draw.normal(0, 0.2)}
        for s in range(2) for t in range(6) for v in range(4) for k in range(2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_scores_are_of_texts_and_not_of_clips() -> None:
    frame = scored(lead=1.0)
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
    found = [system_scores(scored(seed), "mos", samples=("text", "voice"))["p"].iloc[-1] < 0.05 for seed in range(100)]
    # 12 of 100 come up once in 500 times at a level of 0.05; of clips taken as independent about half would be.
    assert sum(found) <= 12


@pytest.mark.parametrize("samples", [("text",), ("text", "voice")])
def test_a_metric_that_does_not_vary_has_neither_interval_nor_p(samples: tuple[str, ...]) -> None:
    scores = system_scores(scored().assign(mos=0.1 + 0.2), "mos", samples=samples)
    assert scores[["low", "high", "p"]].isna().all(axis=None)
    assert scores["mean"].tolist() == pytest.approx([0.3, 0.3, 0.0])


def test_what_cannot_be_scored() -> None:
    frame = scored()
    for options, match in (
        ({"metric": "wer"}, "metric: must be a column, one of .* got 'wer'"),
        ({"samples": ()}, "must be one or two columns, got 0"),
    ):
        with pytest.raises(ArgumentError, match=match):
            system_scores(frame, **{"metric": "mos", **options})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="text must have two values or more, got 1"):
        system_scores(frame[frame["text"] == "t0"], "mos")
