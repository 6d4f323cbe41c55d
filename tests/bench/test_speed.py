"""The arithmetic of bench/speed.py."""

from __future__ import annotations

from speed import MODES, Turns, peak_mib, summarize


def test_summarize() -> None:
    assert summarize([0.1, 0.2, 0.3]) == {"median": 0.2, "p95": 0.29, "repeats": 3}


def test_ratios_are_by_turn() -> None:
    def turns(share: float) -> Turns:
        slow = [1.0, 4.0, 1.0]  # the machine was busy in the second turn
        times = {mode: [share * value for value in slow] for mode in MODES}
        rates = {"1": [1 / value for value in slow], "8": [2 / value for value in slow]}
        return Turns(times, dict(times), dict(times), rates, {"1": times["low"], "8": times["low"]})

    ratios = turns(0.9).over(turns(1.0))
    figures = ("first audio", "real-time factor", "CPU time")
    assert {ratios[f"{figure} {mode}"] for mode in MODES for figure in figures} == {0.9}
    assert ratios["one stream"] == ratios["8 streams"] == 1
    assert ratios["CPU time 8 streams"] == 0.9
    assert turns(0.9).figures()["throughput"]["ratio"]["median"] == 2
    total = Turns()
    total.add(turns(1.0))
    total.add(turns(1.0))
    assert total.cpu["low"] == [1.0, 4.0, 1.0] * 2


def test_peak_memory() -> None:
    before = peak_mib()
    allocated = bytearray(64 * 1024 * 1024)
    assert len(allocated) > 0
    assert peak_mib() >= before
    assert 10 < peak_mib() < 100_000
