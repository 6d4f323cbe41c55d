"""The arithmetic of bench/speed.py."""

from __future__ import annotations

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
