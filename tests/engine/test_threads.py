"""The engine's own threads work alone, and nobody else's settings change."""

from __future__ import annotations

import threading

import pytest
import torch

from voicelab.engine.threads import Bench, work_alone
from voicelab.errors import EngineError


def _elsewhere() -> int:
    """Threads that torch would use in a thread that begins now."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_one_thread_is_a_threads_own_affair() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        bench = Bench("test")
        assert bench.do(torch.get_num_threads) == 1
        assert (torch.get_num_threads(), _elsewhere()) == (3, 3)
        torch.set_num_threads(2)
        assert (bench.do(torch.get_num_threads), _elsewhere()) == (1, 2)
        bench.close()
    finally:
        torch.set_num_threads(before)


def test_what_fails_on_the_bench_fails_for_who_asked() -> None:
    bench = Bench("test")
    with pytest.raises(ZeroDivisionError):
        bench.do(lambda: 1 // 0)
    assert bench.do(lambda: 2) == 2
    bench.close()
    with pytest.raises(EngineError, match="closed"):
        bench.do(lambda: 3)


def test_a_closed_bench_leaves_no_thread() -> None:
    bench = Bench("test-of-leaving")
    bench.do(work_alone)
    assert any(t.name.startswith("test-of-leaving") for t in threading.enumerate())
    bench.close()
    assert not any(t.name.startswith("test-of-leaving") for t in threading.enumerate())
