"""Decoding of codes to audio, block by block on one thread, and a cache of results for concurrent requests."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from voicelab.engine.core.devices import set_thread_count
from voicelab.engine.core.sequence import Codes
from voicelab.errors import EngineError
from voicelab.lifecycle import COMPUTING

Result = TypeVar("Result")
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class CodeBlock:
    """A block of codes to decode, with its stream."""

    stream: Any
    """The stream, from `Decoding.open`."""
    codes: Codes
    """Codes (frames, codebooks); may be empty in the final block."""
    final: bool
    """Whether this is the stream's last block."""


class Decoding(Protocol):
    """A streaming decoder of codes: concatenating a stream's decoded blocks gives the same audio as decoding all at once."""

    sample_rate: int
    """Sample rate of the audio in Hz."""
    hop: int
    """Samples per frame."""
    codebooks: int
    """Codes per frame."""
    max_batch: int
    """Maximum number of blocks per call of `feed`."""

    def open(self, voice: Any) -> Any:
        """Open a stream for a `voice` from `Family.voice`; the stream holds all state between its blocks."""

    def feed(self, blocks: Sequence[CodeBlock]) -> list[Samples]:
        """Decode one block per stream; return the samples that each block completes."""


_Task = tuple[int, int, CodeBlock | Callable[[], Any], Future[Any]]
"""Entry of the queue: size in frames, unique serial number, work and result."""


class DecodingThread:
    """The thread that decodes all streams, smallest task first.

    Waiting blocks of several streams are decoded as a batch, up to `Decoding.max_batch`. There is only one thread because
    torch splits each operation among threads: operations started by several threads would block each other.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding
        self._pool = ThreadPoolExecutor(1, "voicelab-codec", initializer=set_thread_count, initargs=(1,))
        self._lock = threading.Lock()
        self._waiting: list[_Task] = []
        self._numbers = itertools.count()

    def feed(self, block: CodeBlock) -> Samples:
        """Decode a block; return the samples that it completes. Raises EngineError if the thread is closed."""
        return cast("Samples", self.do(block, len(block.codes)))

    def close(self) -> None:
        """End the thread after all tasks are done."""
        self._pool.shutdown()

    def do(self, work: CodeBlock | Callable[[], Any], size: int) -> Any:
        """Run `work` of `size` frames on the thread. Raises its exception, or EngineError if the thread is closed."""
        result = Future[Any]()
        with self._lock:
            heapq.heappush(self._waiting, (size, next(self._numbers), work, result))
        try:
            self._pool.submit(self._next)
        except RuntimeError as error:
            raise EngineError("the engine is closed") from error
        return result.result()

    def _next(self) -> None:
        with self._lock:
            tasks = self._take()
        works, futures = [task[2] for task in tasks], [task[3] for task in tasks]
        blocks = [work for work in works if isinstance(work, CodeBlock)]
        try:
            with COMPUTING:
                results = self.decoding.feed(blocks) if blocks else [work() for work in works if callable(work)]
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting threads
            for future in futures:
                future.set_exception(error)
        else:
            for future, result in zip(futures, results, strict=True):
                future.set_result(result)

    def _take(self) -> list[_Task]:
        """Take the next task, or several waiting blocks as a batch; return [] if the task was part of an earlier batch."""
        tasks: list[_Task] = []
        while self._waiting and len(tasks) < self.decoding.max_batch:
            if tasks and not (isinstance(tasks[0][2], CodeBlock) and isinstance(self._waiting[0][2], CodeBlock)):
                break
            tasks.append(heapq.heappop(self._waiting))
        return tasks


class Memo(Generic[Result]):
    """A cache of the latest results by key; concurrent requests for a key compute its result once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, tuple[threading.Lock, list[Result]]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the key's result, computing it if needed. Exceptions of `compute` are raised and not cached."""
        with self._lock:
            computing, results = self._entries.setdefault(key, (threading.Lock(), []))
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
        with computing:
            if not results:
                results.append(compute())
            return results[0]
