"""Summary of objective metrics in bench/voice.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pytest
import voice
from judges import Verdict, Verdicts
from voice import figures, goals, table, takes


def _verdicts(
    predicted_mos: Sequence[float],
    transcript: str = "one two",
    cosine: float = 0.8,
    older: bool = True,
    seconds: float = 2.0,
) -> list[Verdict]:
    like = {"am_michael": cosine, "af_kore": 0.6, "am_adam": 0.4}
    return [
        Verdict(
            "x",
            f"one two {'three ' * (i % 2)}",
            transcript,
            o,
            "one" if older else None,
            3.0 if older else None,
            like,
            s,
        )
        for i, (o, s) in enumerate(zip(predicted_mos, [seconds] * len(predicted_mos), strict=True))
    ]


def test_intervals_and_paired_differences() -> None:
    teacher = _verdicts([4.0, 3.0, 5.0, 4.0])
    row = figures("voice", _verdicts([3.5, 2.5, 4.5, 3.5]), teacher)
    assert row["behind"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert row["distillmos"]["low"] < row["distillmos"]["value"] == 3.5 < row["distillmos"]["high"]
    assert row["whisper"]["value"] == pytest.approx(2 / 10)
    assert row["pocketsphinx"]["value"] == pytest.approx(6 / 10)
    assert row["dnsmos"]["value"] == 3
    assert row["sentences"] == 4


def test_speaker_similarity_to_the_teacher() -> None:
    row = figures("voice", _verdicts([4.0, 4.0], cosine=0.8), _verdicts([4.0, 4.0]))
    assert (row["likeness"]["value"], row["likeness_others"], row["nearest"]) == (0.8, 0.5, 1.0)
    assert figures("voice", _verdicts([4.0, 4.0], cosine=0.5), _verdicts([4.0, 4.0]))["nearest"] == 0
    for system in ("flite:rms", "kokoro:af_heart"):
        assert figures(system, _verdicts([4.0, 4.0]), _verdicts([4.0, 4.0]))["likeness"] is None


def test_durations_out_of_bounds_are_counted() -> None:
    teacher = _verdicts([4.0] * 5)
    ours = [verdict for seconds in (2.0, 1.2, 3.4, 1.0, 4.0) for verdict in _verdicts([4.0], seconds=seconds)]
    assert figures("voice", ours, teacher)["length"] == {"min": 0.5, "median": 1.0, "max": 2.0, "outside": 2}


def test_teacher_with_fewer_sentences() -> None:
    row = figures("voice", _verdicts([4.0, 4.0, 1.0], seconds=2.0), _verdicts([4.5, 4.5], seconds=1.0))
    assert (row["behind"]["value"], row["length"]["max"], row["distillmos"]["value"]) == (0.5, 2.0, 3.0)


def test_columns_of_older_evaluators() -> None:
    verdicts = _verdicts([4.0, 3.0], older=False)
    row = figures("voice", verdicts, verdicts)
    assert row["dnsmos"] is row["pocketsphinx"] is None
    mixed = figures("voice", [*_verdicts([4.0]), *verdicts[1:]], verdicts)
    assert (mixed["dnsmos"]["value"], mixed["pocketsphinx"]["value"]) == (3, 0.5)


def test_presets_are_compared_with_their_teachers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mos_by_system = {
        "kokoro:am_michael": 4.5,
        "kokoro:af_kore": 4.0,
        "voice": 3.5,
        "voice:clara": 3.5,
        "flite:rms": 2.5,
    }
    verdicts = Verdicts()
    monkeypatch.setattr(verdicts, "of", lambda name, texts: _verdicts([mos_by_system[name]] * len(texts)))
    rows = table({"voice": "abc", "voice:clara": "ab", "flite:rms": "ab"}, verdicts)
    assert {name: row["behind"]["value"] for name, row in rows.items()} == {
        "voice": 1.0,
        "voice:clara": 0.5,
        "flite:rms": 2.0,
    }
    assert {name: row["sentences"] for name, row in rows.items()} == {"voice": 3, "voice:clara": 2, "flite:rms": 2}
    assert "voice:clara: whisper" in capsys.readouterr().out


def test_goals_of_all_presets() -> None:
    def row(predicted_mos: float, wer: float) -> dict[str, Any]:
        return {"distillmos": {"value": predicted_mos}, "whisper": {"value": wer}}

    rows = {"voice": row(4.35, 0.04), "voice:clara": row(4.1, 0.03)}
    assert [goal["met"] for goal in goals(rows, None)] == [True, False]
    presets = "clara ewan otto juno nadia victor felix hugo iris".split()
    rows |= {f"voice:{name}": row(4.25, 0.03) for name in presets[1:]}
    counted = {"takes": 10, "ran_away": 0, "too_short": 1, "lost_words": 0, "fell_silent": 0}
    all_goals = goals(rows, counted)
    assert [goal["value"] for goal in all_goals] == [4.35, 0.04, 4.1, 0.04, 1]
    assert [goal["met"] for goal in all_goals] == [True, False, False, True, False]


def test_failed_takes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
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
