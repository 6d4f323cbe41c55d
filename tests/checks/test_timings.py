"""Timing columns of tables are masked; all other numbers are compared."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from nbformat.v4 import new_output

from voicelab.checks.compare import TIMINGS, Masks, OutputComparison
from voicelab.metrics.measure import METRICS
from voicelab.takes.replay import Tolerance
from voicelab.views.bundles import metric_label, table


def frame(first: float = 0.123456, total: float = 1.5, rtf: float = 0.41, duration: float = 2.7) -> pd.DataFrame:
    rows = [
        {"temperature": 0.2, "repeat": 0, "duration_s": duration, "first_audio_s": first, "total_s": total, "rtf": rtf,
         "cached": False, "digest": "ab12"},
        {"temperature": 0.9, "repeat": 1, "duration_s": 3.1, "first_audio_s": 0.2, "total_s": 9.25, "rtf": 0.5,
         "cached": False, "digest": "cd34"},
    ]  # fmt: skip
    return pd.DataFrame(rows)


SHAPES: dict[str, Any] = {
    "frame": lambda table: table,
    "indexed": lambda table: table.set_index(["temperature", "repeat"]),
    "timings alone": lambda table: table[["duration_s", "first_audio_s", "rtf"]],
    "turned": lambda table: table.drop(columns=["digest", "cached"]).T,
    "described": lambda table: table.drop(columns=["digest", "cached"]).describe(),
    "grouped": lambda table: table.groupby("temperature")[["duration_s", "rtf", "total_s"]].mean(),
    "rounded": lambda table: table.round(2),
    "wide": lambda table: pd.concat(
        [table[["digest"] * 4].set_axis([f"a_long_name_{i}" for i in range(4)], axis=1), table], axis=1
    ),
}


def shown(value: Any) -> list[Any]:
    return [
        new_output("execute_result", {"text/plain": repr(value), "text/html": value._repr_html_()}),
        new_output("stream", text=f"{value.to_string()}\nthat was all 3\n"),
    ]


def differences(was: Any, now: Any) -> list[str]:
    return [str(one) for one in OutputComparison(Masks(), Tolerance()).differences(was, now)]


@pytest.mark.parametrize("shape", SHAPES)
def test_timings_in_tables_are_masked(shape: str) -> None:
    made = SHAPES[shape]
    was, other_times = made(frame()), made(frame(first=11.5, total=0.9876543, rtf=0.4))
    assert was.to_string() != other_times.to_string()
    assert differences(shown(was), shown(other_times)) == []
    found = differences(shown(was), shown(made(frame(duration=2.8))))
    assert len(found) == 2
    assert differences(shown(was), shown(made(frame(rtf=float("nan"))))) != [] or shape in {"described", "grouped"}


def test_a_series_and_a_printed_sentence() -> None:
    for was, now, same in ((frame(), frame(first=7.0), True), (frame(), frame(duration=2.8), False)):
        rows = [each.drop(columns=["digest", "cached"]).iloc[0] for each in (was, now)]
        outputs = ([new_output("execute_result", {"text/plain": repr(row)})] for row in rows)
        assert (differences(*outputs) == []) is same
    columns = ([new_output("execute_result", {"text/plain": repr(frame(rtf=each).rtf)})] for each in (0.5, 0.123456))
    assert differences(*columns) == []
    said = ([new_output("stream", text=f"rtf of {value} takes\nMOS 4.{value}\n")] for value in (1, 2))
    assert differences(*said) != []


def test_our_own_tables_in_html() -> None:
    def page(first: str, duration: str) -> list[Any]:
        heads = ("take", "duration, s", "first audio, s", metric_label("rtf"))
        across = table(heads, [("a", duration, first, first), ("b", "2.9", "0.2", "0.1")])
        down = table(
            ("metric", "a", "b"),
            [(metric_label("first_audio_s", "s"), first, "0.1"), (metric_label("duration", "s"), duration, "2")],
        )
        return [new_output("display_data", {"text/html": across + down})]

    assert differences(page("0.31", "2.7"), page("11.2", "2.7")) == []
    assert differences(page("0.31", "2.7"), page("0.31", "2.8")) != []


def test_all_timing_metrics_are_masked() -> None:
    assert {*TIMINGS} - {*METRICS} == {"total_s"}
    latency = {name for name, metric in METRICS.items() if metric.compute.__module__.endswith(".latency")}
    assert latency <= set(TIMINGS)
