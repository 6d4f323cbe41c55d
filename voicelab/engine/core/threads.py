"""The engine's threads: as many share the work of each as it says, and results that several want are computed once."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voicelab.errors import EngineError

Result = TypeVar("Result")
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Piece:
    """Codes of one stream to be decoded."""

    stream: Any
    """What `Decoding.open` returned."""
    codes: Tensor
    """(frames, codebooks) int64 on the CPU; may be empty in the last piece."""
    last: bool
    """Whether the stream ends with it."""


class Decoding(Protocol):
    """Codes become audio, piece by piece; the pieces of a stream together give what the whole would give."""

    sample_rate: int
    """Hz."""
    hop: int
    """Samples of a frame."""
    codebooks: int
    """Codes of a frame."""
    together: int
    """Most streams that `feed` takes at once."""

    def open(self, voice: Any) -> Any:
        """A new stream of speech by `voice`, as `Family.voice` returned it."""

    def feed(self, pieces: Sequence[Piece]) -> list[Samples]:
        """The samples that each piece completes; the pieces are of different streams."""

    def close(self, stream: Any) -> None:
        """Frees what a stream holds; it may have ended or not."""


@dataclass(order=True)
class _Task:
    size: int
    number: int
    work: Piece | Callable[[], Any] = field(compare=False)
    result: Future[Any] = field(compare=False)


class DecodingThread:
    """The thread on which codes become audio, for all streams: the smallest task is done first.

    Pieces of several streams that wait are decoded together, as far as the codec takes them. What many threads give torch at
    once would be shared by each of them among as many more, which then wait for each other.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding
        self._pool = ThreadPoolExecutor(1, "voicelab-codec", initializer=use_threads, initargs=(1,))
        self._lock = threading.Lock()
        self._waiting: list[_Task] = []
        self._numbers = itertools.count()

    def feed(self, piece: Piece) -> Samples:
        """The samples that a piece completes. Raises EngineError: the thread is closed."""
        samples: Samples = self.do(piece, len(piece.codes))
        return samples

    def close(self) -> None:
        """Ends the thread when all tasks are done."""
        self._pool.shutdown()

    def do(self, work: Piece | Callable[[], Any], size: int) -> Any:
        """What `work` returns or raises; `size` in frames. Raises EngineError: the thread is closed."""
        task = _Task(size, next(self._numbers), work, Future())
        with self._lock:
            heapq.heappush(self._waiting, task)
        try:
            self._pool.submit(self._next)
        except RuntimeError as error:
            raise EngineError("the engine is closed") from error
        return task.result.result()

    def _next(self) -> None:
        with self._lock:
            tasks = self._take()
        pieces = [task.work for task in tasks if isinstance(task.work, Piece)]
        try:
            results = self.decoding.feed(pieces) if pieces else [task.work() for task in tasks if callable(task.work)]
        except BaseException as error:  # noqa: BLE001 - it is raised in the threads that wait for it
            for task in tasks:
                task.result.set_exception(error)
        else:
            for task, result in zip(tasks, results, strict=True):
                task.result.set_result(result)

    def _take(self) -> list[_Task]:
        """The next task; with a piece, the next of the pieces that wait. None if an earlier task took them along."""
        tasks: list[_Task] = []
        while self._waiting and len(tasks) < self.decoding.together:
            if tasks and not (isinstance(tasks[0].work, Piece) and isinstance(self._waiting[0].work, Piece)):
                break
            tasks.append(heapq.heappop(self._waiting))
        return tasks


def use_threads(number: int) -> None:
    """Lets torch share the operations of this thread among so many; all others, and those to come, go on as they were.

    The number of threads is each thread's own, but what was set last is what later ones begin with: so it is set again.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    again = threading.Thread(target=torch.set_num_threads, args=(before,))
    again.start()
    again.join()


class Memo(Generic[Result]):
    """Keeps the latest results by their keys; each is computed once, however many threads want it at the same time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, tuple[threading.Lock, list[Result]]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The key's result; other threads that want it meanwhile wait. Raises what `compute` raises, which is not kept."""
        with self._lock:
            computing, results = self._entries.setdefault(key, (threading.Lock(), []))
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
        with computing:
            if not results:
                results.append(compute())
            return results[0]
