"""Decoding: what codecs are fed, carry on and are built of, and the thread that does it; results that several want."""

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
class Piece:
    """Codes of one stream to be decoded."""

    stream: Any
    """What `Decoding.open` returned."""
    codes: Tensor
    """(frames, codebooks) int64 on the CPU; may be empty in the last piece."""
    last: bool
    """Whether the stream ends with it."""


State = tuple[Tensor, ...]
"""What a stream, or a batch of them, carries from piece to piece: a tensor for each layer that looks back, in their order."""


class Carry:
    """The past of the streams of a batch, which layers read in turn, and the past of the next pieces."""

    def __init__(self, pasts: Sequence[State | None]) -> None:
        """Takes each stream's state after the piece before, or that of all of them; None at the start."""
        self._pasts = pasts
        self.after: list[Tensor] = []
        """The same of all streams, after this piece."""

    def join(self, x: Tensor, left: int, dim: int = -1) -> Tensor:
        """Puts the `left` steps of time before it in front of a piece, zeros before the start; time is axis `dim`."""
        if not left:
            return x

        def zeros() -> Tensor:
            shape = list(x.shape)
            shape[0], shape[dim] = len(x) // len(self._pasts), left
            return x.new_zeros(shape)

        whole = torch.cat([self.past(zeros), x], dim=dim)
        self.after.append(whole.narrow(dim, whole.shape[dim] - left, left))
        return whole

    def positions(self, steps: int, device: torch.device) -> Tensor:
        """(batch,) steps that each stream has done before this piece of so many; (1,) of a batch with one state."""
        before = self.past(lambda: torch.zeros(1, dtype=torch.int64, device=device))
        self.after.append(before + steps)
        return before

    def states(self) -> list[State]:
        """Each stream's state after this piece."""
        # Views: the streams of a batch share its memory until their next piece.
        return list(zip(*(after.split(1) for after in self.after), strict=True))

    def past(self, start: Callable[[], Tensor]) -> Tensor:
        """What a layer left in `after` the last time; `start` gives it at the start. The layer then adds to `after`."""
        place = len(self.after)
        pasts = [start() if past is None else past[place] for past in self._pasts]
        return pasts[0] if len(pasts) == 1 else torch.cat(pasts)


class Chain(nn.ModuleList):
    """Layers one after the other."""

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """The output of the last."""
        for layer in self:
            x = layer(x, carry)
        return x


class LayerGroup(nn.Module):
    """Layers that the checkpoint has under a name of their own; ``residual`` adds them to their input."""

    def __init__(self, name: str, layers: Iterable[nn.Module], residual: bool = False) -> None:
        super().__init__()
        self.add_module(name, Chain(layers))
        self._name, self._residual = name, residual

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """As `Chain`."""
        y = cast("Tensor", self.get_submodule(self._name)(x, carry))
        return x + y if self._residual else y


class Conv(nn.Module):
    """A convolution over time that ends with the step it is for: it sees only the past. Time is a multiple of its stride."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, dilation=dilation, groups=groups)
        self.left = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, inputs, n · stride) → (batch, outputs, n)."""
        return cast("Tensor", self.conv(carry.join(x, self.left)))


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
        """A new stream of speech by `voice`, as `Family.voice` returned it; it holds all that is kept between its pieces."""

    def feed(self, pieces: Sequence[Piece]) -> list[Samples]:
        """The samples that each piece completes; the pieces are of different streams."""


_Task = tuple[int, int, Piece | Callable[[], Any], Future[Any]]
"""Size, number, work, result; no two have the same number."""


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
        return cast("Samples", self.do(piece, len(piece.codes)))

    def close(self) -> None:
        """Ends the thread when all tasks are done."""
        self._pool.shutdown()

    def do(self, work: Piece | Callable[[], Any], size: int) -> Any:
        """What `work` returns or raises; `size` in frames. Raises EngineError: the thread is closed."""
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
        pieces = [work for work in works if isinstance(work, Piece)]
        try:
            results = self.decoding.feed(pieces) if pieces else [work() for work in works if callable(work)]
        except BaseException as error:  # noqa: BLE001 - it is raised in the threads that wait for it
            for future in futures:
                future.set_exception(error)
        else:
            for future, result in zip(futures, results, strict=True):
                future.set_result(result)

    def _take(self) -> list[_Task]:
        """The next task; with a piece, the next of the pieces that wait. None if an earlier task took them along."""
        tasks: list[_Task] = []
        while self._waiting and len(tasks) < self.decoding.together:
            if tasks and not (isinstance(tasks[0][2], Piece) and isinstance(self._waiting[0][2], Piece)):
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
