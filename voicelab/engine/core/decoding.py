"""Decoding: blocks of codes, streaming layers and their state, and the decoding thread; a cache of shared computations."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from voicelab.errors import EngineError

Result = TypeVar("Result")
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class CodeBlock:
    """Codes of one stream to be decoded."""

    stream: Any
    """The stream, from `Decoding.open`."""
    codes: Tensor
    """(frames, codebooks) int64 on the CPU; may be empty in the final block."""
    final: bool
    """Whether it is the stream's last block."""


State = tuple[Tensor, ...]
"""State of a stream, or of a batch of them, between blocks: a tensor per layer with left context, in layer order."""


class Carry:
    """State of a batch of streams: layers read their past in turn, and append the past for the next blocks."""

    def __init__(self, pasts: Sequence[State | None]) -> None:
        """Take each stream's state after the previous block, or one state of all of them; None at the start."""
        self._pasts = pasts
        self.after: list[Tensor] = []
        """State of all streams after this block."""

    def join(self, x: Tensor, context: int, dim: int = -1) -> Tensor:
        """Prepend the `context` preceding steps to a block, zeros at the start of a stream; time is axis `dim`."""
        if not context:
            return x

        def zeros() -> Tensor:
            shape = list(x.shape)
            shape[0], shape[dim] = len(x) // len(self._pasts), context
            return x.new_zeros(shape)

        extended = torch.cat([self.past(zeros), x], dim=dim)
        self.after.append(extended.narrow(dim, extended.shape[dim] - context, context))
        return extended

    def positions(self, steps: int, device: torch.device) -> Tensor:
        """Return (batch,) steps of each stream before this block of `steps`; (1,) for a batch with one state."""
        before = self.past(lambda: torch.zeros(1, dtype=torch.int64, device=device))
        self.after.append(before + steps)
        return before

    def states(self) -> list[State]:
        """Return each stream's state after this block."""
        # Views: the streams of a batch share memory until their next block.
        return list(zip(*(after.split(1) for after in self.after), strict=True))

    def past(self, start: Callable[[], Tensor]) -> Tensor:
        """Return a layer's entry of `after` from the previous block, or `start()`; the layer then appends to `after`."""
        index = len(self.after)
        pasts = [start() if past is None else past[index] for past in self._pasts]
        return pasts[0] if len(pasts) == 1 else torch.cat(pasts)


class Chain(nn.ModuleList):
    """A sequence of layers."""

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Run the layers in order."""
        for layer in self:
            x = layer(x, carry)
        return x


class LayerGroup(nn.Module):
    """Layers that have a common name in the checkpoint; ``residual`` adds their input to their output."""

    def __init__(self, name: str, layers: Iterable[nn.Module], residual: bool = False) -> None:
        super().__init__()
        self.add_module(name, Chain(layers))
        self._name, self._residual = name, residual

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Run the layers in order."""
        y = cast("Tensor", self.get_submodule(self._name)(x, carry))
        return x + y if self._residual else y


class Conv(nn.Module):
    """A causal convolution over time. The number of time steps is a multiple of its stride."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, groups=groups)
        self.context = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Convolve (batch, inputs, n · stride) to (batch, outputs, n)."""
        return cast("Tensor", self.conv(carry.join(x, self.context)))


class Decoding(Protocol):
    """A streaming decoder of codes: the decoded blocks of a stream concatenate to the result of decoding at once."""

    sample_rate: int
    """Hz."""
    hop: int
    """Samples per frame."""
    codebooks: int
    """Codes per frame."""
    max_batch: int
    """Maximum number of blocks per call of `feed`."""

    def open(self, voice: Any) -> Any:
        """Open a stream for a `voice` from `Family.voice`; the stream holds all state between its blocks."""

    def feed(self, blocks: Sequence[CodeBlock]) -> list[Samples]:
        """Decode one block per stream to the samples that it completes."""


_Task = tuple[int, int, CodeBlock | Callable[[], Any], Future[Any]]
"""Size, number, work, result; numbers are unique."""


class DecodingThread:
    """The thread that decodes all streams, smallest task first.

    Waiting blocks of several streams are decoded as a batch, up to `Decoding.max_batch`. One thread, since torch operations
    started by many threads would each be split among as many more, which block each other.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding
        self._pool = ThreadPoolExecutor(1, "voicelab-codec", initializer=set_thread_count, initargs=(1,))
        self._lock = threading.Lock()
        self._waiting: list[_Task] = []
        self._numbers = itertools.count()

    def feed(self, block: CodeBlock) -> Samples:
        """Decode a block to the samples that it completes. Raises EngineError: the thread is closed."""
        return cast("Samples", self.do(block, len(block.codes)))

    def close(self) -> None:
        """End the thread after all tasks are done."""
        self._pool.shutdown()

    def do(self, work: CodeBlock | Callable[[], Any], size: int) -> Any:
        """Run `work` on the thread; `size` in frames. Raises its exception, or EngineError: the thread is closed."""
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
            results = self.decoding.feed(blocks) if blocks else [work() for work in works if callable(work)]
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting threads
            for future in futures:
                future.set_exception(error)
        else:
            for future, result in zip(futures, results, strict=True):
                future.set_result(result)

    def _take(self) -> list[_Task]:
        """Take the next task or batch of waiting blocks; empty if an earlier batch included this task."""
        tasks: list[_Task] = []
        while self._waiting and len(tasks) < self.decoding.max_batch:
            if tasks and not (isinstance(tasks[0][2], CodeBlock) and isinstance(self._waiting[0][2], CodeBlock)):
                break
            tasks.append(heapq.heappop(self._waiting))
        return tasks


def set_thread_count(number: int) -> None:
    """Set the number of torch threads for operations of the calling thread only.

    The count is per thread, but new threads inherit the value set most recently: so the previous value is set once more.
    """
    thread_count = torch.get_num_threads()
    torch.set_num_threads(number)
    restorer = threading.Thread(target=torch.set_num_threads, args=(thread_count,))
    restorer.start()
    restorer.join()


class Memo(Generic[Result]):
    """A cache of the latest results by key; concurrent requests for a key compute it once."""

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
