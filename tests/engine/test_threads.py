"""The engine's own threads work alone, and nobody else's settings change."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from voicelab.engine.threads import OneThread, work_alone
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
        thread = OneThread("test")
        assert thread.do(torch.get_num_threads) == 1
        assert (torch.get_num_threads(), _elsewhere()) == (3, 3)
        torch.set_num_threads(2)
        assert (thread.do(torch.get_num_threads), _elsewhere()) == (1, 2)
        thread.close()
    finally:
        torch.set_num_threads(before)


def test_what_fails_on_the_thread_fails_for_who_asked() -> None:
    thread = OneThread("test")
    with pytest.raises(ZeroDivisionError):
        thread.do(lambda: 1 // 0)
    assert thread.do(lambda: 2) == 2
    thread.close()
    with pytest.raises(EngineError, match="closed"):
        thread.do(lambda: 3)


def test_what_is_short_goes_first() -> None:
    thread, begun, may_go_on, done = OneThread("test"), threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        begun.set()
        may_go_on.wait(30)

    with ThreadPoolExecutor() as asking:
        asking.submit(thread.do, first)
        begun.wait(30)
        for size in (48, 24, 1, 24):
            asking.submit(thread.do, partial(done.append, size), size)
        while len(thread._waiting) < 4:
            time.sleep(0.001)
        may_go_on.set()
    assert done == [1, 24, 24, 48]
    thread.close()


def test_closed_it_leaves_no_thread() -> None:
    thread = OneThread("test-of-leaving")
    thread.do(work_alone)
    assert any(t.name.startswith("test-of-leaving") for t in threading.enumerate())
    thread.close()
    assert not any(t.name.startswith("test-of-leaving") for t in threading.enumerate())
