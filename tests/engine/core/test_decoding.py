"""The engine's own threads work alone, and nobody else's settings change."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch

from tests.engine.tiny import until
from voicelab.engine.core.decoding import DecodingThread, Piece, Samples, use_threads
from voicelab.errors import EngineError


class Counting:
    """A codec that says which pieces it was given together."""

    sample_rate, hop, codebooks = 100, 10, 2

    def __init__(self, together: int) -> None:
        self.together = together
        self.batches: list[list[int]] = []

    def open(self, voice: object) -> int:
        return 0

    def feed(self, pieces: Sequence[Piece]) -> list[Samples]:
        self.batches.append([piece.stream for piece in pieces])
        if any(len(piece.codes) == 9 for piece in pieces):
            raise EngineError("planted")
        return [np.full(len(piece.codes), piece.stream, np.float32) for piece in pieces]


def _thread(together: int = 1) -> DecodingThread:
    return DecodingThread(Counting(together))


def _piece(stream: int, frames: int) -> Piece:
    return Piece(stream, torch.zeros(frames, 2, dtype=torch.int64), last=False)


@contextmanager
def _busy(thread: DecodingThread) -> Iterator[ThreadPoolExecutor]:
    """Where four who ask have to wait until all of them have."""
    begun, may_go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        may_go_on.wait(30)

    with ThreadPoolExecutor() as asking:
        asking.submit(thread.do, first, 0)
        begun.wait(30)
        yield asking
        until(lambda: len(thread._waiting) == 4)
        may_go_on.set()


def _elsewhere() -> int:
    """Threads that torch would use in a thread that begins now."""
    with ThreadPoolExecutor() as pool:
        return pool.submit(torch.get_num_threads).result()


def test_one_thread_is_a_threads_own_affair() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        thread = _thread()
        assert thread.do(torch.get_num_threads, 0) == 1
        assert (torch.get_num_threads(), _elsewhere()) == (3, 3)
        torch.set_num_threads(2)
        assert (thread.do(torch.get_num_threads, 0), _elsewhere()) == (1, 2)
        thread.close()
    finally:
        torch.set_num_threads(before)


def test_what_fails_on_the_thread_fails_for_who_asked() -> None:
    thread = _thread()
    with pytest.raises(ZeroDivisionError):
        thread.do(lambda: 1 // 0, 0)
    assert thread.do(lambda: 2, 0) == 2
    thread.close()
    with pytest.raises(EngineError, match="closed"):
        thread.do(lambda: 3, 0)


def test_what_is_short_goes_first() -> None:
    thread, done = _thread(), list[int]()
    with _busy(thread) as asking:
        for size in (48, 24, 1, 24):
            asking.submit(thread.do, partial(done.append, size), size)
    assert done == [1, 24, 24, 48]
    thread.close()


@pytest.mark.parametrize(
    ("together", "batches"), [(1, [[4], [2], [3], [1]]), (2, [[4, 2], [3, 1]]), (8, [[4, 2, 3, 1]])]
)
def test_pieces_that_wait_are_decoded_together(together: int, batches: list[list[int]]) -> None:
    """As many streams as the codec takes, the shortest first, and each caller gets the samples of its own."""
    codec = Counting(together)
    thread = DecodingThread(codec)
    with _busy(thread) as asking:
        fed = [asking.submit(thread.feed, _piece(*of)) for of in ((1, 8), (2, 2), (3, 4), (4, 1))]
    assert [one.result(30).tolist() for one in fed] == [[1.0] * 8, [2.0] * 2, [3.0] * 4, [4.0]]
    assert codec.batches == batches
    with pytest.raises(EngineError, match="planted"):
        thread.feed(_piece(1, 9))
    assert thread.feed(_piece(1, 1)).tolist() == [1.0]
    thread.close()


def test_closed_it_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    thread = _thread()
    thread.do(partial(use_threads, 1), 0)
    (own,) = {t for t in threading.enumerate() if t.name.startswith("voicelab-codec")} - before
    thread.close()
    assert not own.is_alive()
