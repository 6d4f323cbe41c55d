"""The arithmetic of bench/speed.py, and the machine that every figure names."""

from __future__ import annotations

import json

import pytest
from machine import machine, report
from speed import MODES, Turns, peak_mib, spread


def test_spread() -> None:
    assert spread([0.1, 0.2, 0.3]) == {"median": 0.2, "p95": 0.29, "repeats": 3}


def test_weights_are_compared_turn_by_turn() -> None:
    def turns(share: float) -> Turns:
        slow = [1.0, 4.0, 1.0]  # the machine was busy in the second turn
        times = {mode: [share * value for value in slow] for mode in MODES}
        return Turns(times, dict(times), [share], [1 / value for value in slow], [2 / value for value in slow])

    over = turns(0.9).over(turns(1.0))
    assert {over[f"{what} {mode}"] for mode in MODES for what in ("first audio", "real-time factor")} == {0.9}
    assert over["one stream"] == over["8 streams"] == 1
    assert turns(0.9).figures()["throughput"]["ratio"]["median"] == 2


def test_peak_memory_grows_with_what_is_held() -> None:
    before = peak_mib()
    held = bytearray(64 * 1024 * 1024)
    assert len(held) > 0
    assert peak_mib() >= before
    assert 10 < peak_mib() < 100_000


def test_the_machine_is_named() -> None:
    found = machine()
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["python"].startswith("3.")


def test_a_report_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    report({"figure": "µ", "value": 1.5})
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"figure": "µ", "value": 1.5}
