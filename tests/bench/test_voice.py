"""How bench/voice.py sums up what the judges said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pytest
import voice
from judges import Verdict, Verdicts
from voice import figures, goals, table, takes


def _said(
    opinions: Sequence[float], heard: str = "one two", cosine: float = 0.8, older: bool = True, seconds: float = 2.0
) -> list[Verdict]:
    like = {"am_michael": cosine, "af_kore": 0.6, "am_adam": 0.4}
    return [
        Verdict(
            "x", f"one two {'three ' * (i % 2)}", heard, o, "one" if older else None, 3.0 if older else None, like, s
        )
        for i, (o, s) in enumerate(zip(opinions, [seconds] * len(opinions), strict=True))
    ]


def test_every_figure_has_its_interval_and_the_distance_is_by_sentence() -> None:
    teacher = _said([4.0, 3.0, 5.0, 4.0])
    row = figures("voice", _said([3.5, 2.5, 4.5, 3.5]), teacher)
    assert row["behind"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert row["distillmos"]["low"] < row["distillmos"]["value"] == 3.5 < row["distillmos"]["high"]
    assert row["whisper"]["value"] == pytest.approx(2 / 10)
    assert row["pocketsphinx"]["value"] == pytest.approx(6 / 10)
    assert row["dnsmos"]["value"] == 3
    assert row["sentences"] == 4


def test_likeness_is_to_ones_own_teacher_among_all() -> None:
    row = figures("voice", _said([4.0, 4.0], cosine=0.8), _said([4.0, 4.0]))
    assert (row["likeness"]["value"], row["likeness_others"], row["nearest"]) == (0.8, 0.5, 1.0)
    assert figures("voice", _said([4.0, 4.0], cosine=0.5), _said([4.0, 4.0]))["nearest"] == 0
    for nobody in ("flite:rms", "kokoro:af_heart"):
        assert figures(nobody, _said([4.0, 4.0]), _said([4.0, 4.0]))["likeness"] is None


def test_what_ran_away_or_came_out_short_is_counted() -> None:
    teacher = _said([4.0] * 5)
    ours = [said for seconds in (2.0, 1.2, 3.4, 1.0, 4.0) for said in _said([4.0], seconds=seconds)]
    assert figures("voice", ours, teacher)["length"] == {"min": 0.5, "median": 1.0, "max": 2.0, "outside": 2}


def test_a_teacher_may_have_said_the_first_sentences_alone() -> None:
    row = figures("voice", _said([4.0, 4.0, 1.0], seconds=2.0), _said([4.5, 4.5], seconds=1.0))
    assert (row["behind"]["value"], row["length"]["max"], row["distillmos"]["value"]) == (0.5, 2.0, 3.0)


def test_the_older_judges_columns_are_of_the_sentences_that_they_were_asked_about() -> None:
    said = _said([4.0, 3.0], older=False)
    row = figures("voice", said, said)
    assert row["dnsmos"] is row["pocketsphinx"] is None
    some = figures("voice", [*_said([4.0]), *said[1:]], said)
    assert (some["dnsmos"]["value"], some["pocketsphinx"]["value"]) == (3, 0.5)


def test_each_preset_is_compared_with_its_own_teacher_on_its_own_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opinions = {"kokoro:am_michael": 4.5, "kokoro:af_kore": 4.0, "voice": 3.5, "voice:clara": 3.5, "flite:rms": 2.5}
    verdicts = Verdicts()
    monkeypatch.setattr(verdicts, "of", lambda name, texts: _said([opinions[name]] * len(texts)))
    rows = table({"voice": "abc", "voice:clara": "ab", "flite:rms": "ab"}, verdicts)
    assert {name: row["behind"]["value"] for name, row in rows.items()} == {
        "voice": 1.0,
        "voice:clara": 0.5,
        "flite:rms": 2.0,
    }
    assert {name: row["sentences"] for name, row in rows.items()} == {"voice": 3, "voice:clara": 2, "flite:rms": 2}
    assert "voice:clara: whisper" in capsys.readouterr().out


def test_a_goal_of_all_presets_is_told_when_all_were_measured() -> None:
    def row(opinion: float, wrong: float) -> dict[str, Any]:
        return {"distillmos": {"value": opinion}, "whisper": {"value": wrong}}

    rows = {"voice": row(4.35, 0.04), "voice:clara": row(4.1, 0.03)}
    assert [goal["met"] for goal in goals(rows, None)] == [True, False]
    every = "clara ewan otto juno nadia victor felix hugo iris".split()
    rows |= {f"voice:{name}": row(4.25, 0.03) for name in every[1:]}
    counted = {"takes": 10, "ran_away": 0, "too_short": 1, "lost_words": 0, "fell_silent": 0}
    all_goals = goals(rows, counted)
    assert [goal["value"] for goal in all_goals] == [4.35, 0.04, 4.1, 0.04, 1]
    assert [goal["met"] for goal in all_goals] == [True, False, False, True, False]


def test_takes_that_ran_away_lost_words_or_fell_silent_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {("a", 0): (1.0, 0.1, 5), ("a", 1): (2.0, 0.1, 5), ("a", 2): (1.0, 0.1, 4)}
    answers |= {("b", 0): (0.5, 0.9, 3), ("b", 1): (1.0, 0.2, 3)}

    class Pool:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def map(self, _: Any, texts: list[str], seeds: list[int], chunksize: int) -> list[tuple[float, float, int]]:
            return [answers[pair] for pair in zip(texts, seeds, strict=True)]

    monkeypatch.setattr(voice, "ProcessPoolExecutor", Pool)
    counted = takes(["a", "b"], 5, 1)
    assert counted == {
        "takes": 5,
        "ran_away": 1,
        "too_short": 1,
        "lost_words": 1,
        "fell_silent": 1,
        "longest_silence_s": 0.9,
    }
