"""The decoding thread: task order, batching, errors, and torch thread counts."""

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
from voicelab.engine.core.decoding import CodeBlock, DecodingThread, Samples
from voicelab.engine.core.devices import set_thread_count
from voicelab.errors import EngineError


class Counting:
    """A codec that records its batches."""

    sample_rate, hop, codebooks = 100, 10, 2

    def __init__(self, max_batch: int) -> None:
        self.max_batch = max_batch
        self.batches: list[list[int]] = []

    def open(self, voice: object) -> int:
        return 0

    def feed(self, pieces: Sequence[CodeBlock]) -> list[Samples]:
        self.batches.append([piece.stream for piece in pieces])
        if any(len(piece.codes) == 9 for piece in pieces):
            raise EngineError("planted")
        return [np.full(len(piece.codes), piece.stream, np.float32) for piece in pieces]


def _thread(max_batch: int = 1) -> DecodingThread:
    return DecodingThread(Counting(max_batch))


def _piece(stream: int, frames: int) -> CodeBlock:
    return CodeBlock(stream, np.zeros((frames, 2), np.int64), final=False)


@contextmanager
def _busy(thread: DecodingThread) -> Iterator[ThreadPoolExecutor]:
    """Block the thread until four tasks are queued."""
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
    """Torch thread count of a new thread."""
    with ThreadPoolExecutor() as pool:
        return pool.submit(torch.get_num_threads).result()


def test_decoding_thread_does_not_change_other_thread_counts() -> None:
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


def test_exception_is_raised_in_the_calling_thread() -> None:
    thread = _thread()
    with pytest.raises(ZeroDivisionError):
        thread.do(lambda: 1 // 0, 0)
    assert thread.do(lambda: 2, 0) == 2
    thread.close()
    with pytest.raises(EngineError, match="closed"):
        thread.do(lambda: 3, 0)


def test_smallest_task_is_done_first() -> None:
    thread, done = _thread(), list[int]()
    with _busy(thread) as asking:
        for size in (48, 24, 1, 24):
            asking.submit(thread.do, partial(done.append, size), size)
    assert done == [1, 24, 24, 48]
    thread.close()


@pytest.mark.parametrize(
    ("max_batch", "batches"), [(1, [[4], [2], [3], [1]]), (2, [[4, 2], [3, 1]]), (8, [[4, 2, 3, 1]])]
)
def test_waiting_blocks_are_decoded_in_batches(max_batch: int, batches: list[list[int]]) -> None:
    """Up to the codec's limit, shortest first; each caller gets its own samples."""
    codec = Counting(max_batch)
    thread = DecodingThread(codec)
    with _busy(thread) as asking:
        fed = [asking.submit(thread.feed, _piece(*of)) for of in ((1, 8), (2, 2), (3, 4), (4, 1))]
    assert [one.result(30).tolist() for one in fed] == [[1.0] * 8, [2.0] * 2, [3.0] * 4, [4.0]]
    assert codec.batches == batches
    with pytest.raises(EngineError, match="planted"):
        thread.feed(_piece(1, 9))
    assert thread.feed(_piece(1, 1)).tolist() == [1.0]
    thread.close()


def test_close_ends_the_thread() -> None:
    before = set(threading.enumerate())
    thread = _thread()
    thread.do(partial(set_thread_count, 1), 0)
    (own,) = {t for t in threading.enumerate() if t.name.startswith("voicelab-codec")} - before
    thread.close()
    assert not own.is_alive()
