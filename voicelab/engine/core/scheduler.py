"""One batch for all sequences of a model: the thread that steps it, and the scheduler that replaces a dead or hanging one."""

from __future__ import annotations

import heapq
import logging
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from voicelab.engine.core.decoding import use_threads
from voicelab.engine.core.sequence import Ending, Frame, Sequence, Settings
from voicelab.errors import EngineError, EngineUnavailable

ROWS = 16
"""Sequences spoken at once; more wait their turn."""
HANGS_S = 120.0
"""Seconds after which a step is taken to hang; on a busy machine it may well take one."""
_CLOSE_S = 10.0
_LOG = logging.getLogger("voicelab.engine")


@dataclass(frozen=True)
class RowStep:
    """What one row did in a step."""

    codes: Tensor | None
    """(codebooks,) int64 on the CPU; None where there is no frame: the model said that speech is over, or, unless `ended`, is
    still reading what it was given."""
    position: int = -1
    """Place in the segment that the frame speaks, in units of the segment's `words`; -1 where the family does not know."""
    ended: bool = False
    """Whether the segment's speech is over, with this frame if there is one."""
    full: bool = False
    """Whether there is no room for a frame after this one, so that the segment is cut off."""


class Runner(Protocol):
    """The language model at work: it holds a state for each row that was admitted, and makes a frame for each in a step.

    Called by one thread only.
    """

    def admit(self, row: int, voice: Any, settings: Settings, seed: int) -> None:
        """Gives an empty row to a new sequence: who speaks, how it is sampled, and the seed of its randomness."""

    def more(self, row: int, segment: Any) -> None:
        """Puts the next segment of text before the row; speech goes on after what the row has said already."""

    def step(self, rows: list[int]) -> list[RowStep]:
        """One frame of each row; every row has a segment that has not ended. The rows do not influence each other.

        Raises:
            EngineError: the model's numbers are not finite. After any error the rows are as they were before, so that the
                step can be tried again, or with fewer of them.
        """

    def park(self, row: int) -> Any:
        """Takes out all that a row holds, so that another sequence can have it; `resume` puts it back into any row."""

    def resume(self, row: int, parked: Any) -> None:
        """Gives a row what `park` took out of this or another row."""

    def discard(self, row: int) -> None:
        """The row's step failed: removes what it left behind, which could spoil a later sequence even unseen."""

    def free_memory(self) -> None:
        """Gives back memory that is kept for later."""


class Worker:
    """The thread that steps a runner for a batch; sequences come and go between steps.

    It never waits for a reader: a sequence whose reader is far behind is passed over, and gives its row to one that waits.
    """

    def __init__(self, runner: Runner, rows: int, threads: int = 1) -> None:
        self._runner = runner
        self._rows, self._threads = rows, threads
        # A heap: the lowest is taken, since a runner may step all rows up to the highest.
        self._free = list(range(rows))
        # Filled by callers, emptied by the thread, so that no lock is ever held while there is work.
        self._inbox: deque[tuple[Sequence, ...]] = deque()
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []
        self._parked: list[Sequence] = []
        self._wake = threading.Event()
        self._over: EngineError | None = None
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name="voicelab-engine", daemon=True)
        self._thread.start()

    @property
    def load(self) -> tuple[int, int]:
        """(sequences that hold a row, sequences that wait for one)."""
        return len(self._active), sum(map(len, tuple(self._inbox))) + len(self._waiting) + len(self._parked)

    @property
    def alive(self) -> bool:
        """Whether the thread lives."""
        return self._thread.is_alive()

    @property
    def busy_s(self) -> float:
        """Seconds since the present step began; 0 while there is nothing to do."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def submit(self, sequences: tuple[Sequence, ...]) -> bool:
        """Takes sequences; False when the thread is ending and will not speak them."""
        self._inbox.append(sequences)
        self._wake.set()
        return self._over is None

    def poke(self) -> None:
        """A sequence was given more text, has room again, or was cancelled."""
        self._wake.set()

    def close(self, error: EngineError, wait_s: float) -> None:
        """Ends the thread; what still speaks fails with `error`, at once when the thread does not end within `wait_s`."""
        self._over = self._over or error
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=wait_s)
        if self.alive:
            self._fail_all()

    def dump(self) -> str:
        """Where the thread is now."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - the only way to look into a thread
        return "".join(traceback.format_stack(frame)) if frame is not None else "nowhere any more"

    def _run(self) -> None:
        use_threads(self._threads)
        try:
            while self._over is None:
                self._wake.clear()  # before looking, so that what comes after the look is not missed
                self._began = time.monotonic()
                ready = self._ready()
                if ready:
                    self._speak(ready)
                else:
                    self._began = None
                    if self._over is None:
                        self._wake.wait()
        except BaseException as error:  # noqa: BLE001 - no other code would notice it
            _LOG.critical("the engine's thread ended by an error", exc_info=error)
            self._over = EngineUnavailable("the engine failed and is being started anew; try again")
            self._over.__cause__ = error
        finally:
            self._began = None
            self._fail_all()

    def _fail_all(self) -> None:
        new = [sequence for sequences in tuple(self._inbox) for sequence in sequences]
        for sequence in [*self._active, *self._parked, *self._waiting, *new]:
            sequence.put(self._over or EngineError("the engine was closed"))

    def _ready(self) -> list[Sequence]:
        """Admits and drops sequences, and returns those that can make a frame now."""
        while self._inbox:
            self._waiting.extend(self._inbox.popleft())
        for sequence in [s for s in (*self._active, *self._parked) if s.cancelled]:
            self._leave(sequence, None)
        # Those that have begun go on before others begin.
        for sequence in reversed([s for s in tuple(self._parked) if self._can_speak(s)]):
            self._parked.remove(sequence)
            self._waiting.appendleft(sequence)
        while True:
            self._admit()
            ready = [s for s in tuple(self._active) if self._can_speak(s)]
            if not self._waiting:
                return ready
            row_was_freed = bool(self._free) and not self._must_wait(self._waiting[0])
            if not row_was_freed and not self._park(ready):
                return ready

    def _park(self, ready: list[Sequence]) -> bool:
        """Takes the rows of those that cannot make a frame now; whether there were any."""
        idle = [s for s in self._active if s not in ready]
        for sequence in idle:
            sequence.parked = self._runner.park(sequence.row)
            self._active.remove(sequence)
            heapq.heappush(self._free, sequence.row)
            sequence.row = -1
            self._parked.append(sequence)
        return bool(idle)

    def _must_wait(self, sequence: Sequence) -> bool:
        """Whether there are rows, but not for all of a group that must go in step."""
        group = sequence.group
        if group is None or not group.in_step or group.begun:
            return False
        return len(self._free) < min(group.size, self._rows)

    def _admit(self) -> None:
        while self._waiting and self._free:
            if self._waiting[0].cancelled:
                self._waiting.popleft()
                continue
            if self._must_wait(self._waiting[0]):
                return
            sequence = self._waiting.popleft()
            if sequence.group is not None:
                sequence.group.begun = True
            row = self._free[0]
            try:
                if sequence.parked is not None:
                    self._runner.resume(row, sequence.parked)
                else:
                    self._runner.admit(row, sequence.voice, sequence.settings, sequence.seed)
            except Exception as error:  # noqa: BLE001 - one bad sequence must not end the thread for all
                sequence.put(_failure(error))
            else:
                heapq.heappop(self._free)
                sequence.row, sequence.parked = row, None
                self._active.append(sequence)

    def _can_speak(self, sequence: Sequence) -> bool:
        if sequence.held():
            return False
        if sequence.speaking:
            return True
        if sequence.following is None:
            if sequence.waiting.empty():
                return False
            sequence.following = sequence.waiting.get()
            if sequence.following is None:
                self._leave(sequence, None)
                return False
        if sequence.row < 0:  # parked: it reads the segment when it has a row again
            return True
        try:
            self._runner.more(sequence.row, sequence.following)
        except Exception as error:  # noqa: BLE001 - as above
            self._leave(sequence, _failure(error))
            return False
        sequence.begin_segment()
        return True

    def _speak(self, sequences: list[Sequence]) -> None:
        """A frame of each. If that fails, of each alone: the one at fault fails, and the others go on."""
        try:
            steps = self._runner.step([sequence.row for sequence in sequences])
        except Exception as error:  # noqa: BLE001 - the thread must outlive a failing batch
            if _out_of_memory(error):
                self._runner.free_memory()
            if len(sequences) > 1:
                for sequence in sequences:
                    self._speak([sequence])
                return
            self._runner.discard(sequences[0].row)
            self._leave(sequences[0], _failure(error))
            return
        for sequence, step in zip(sequences, steps, strict=True):
            sequence.spoken += step.codes is not None
            ending = _ending(sequence, step)
            if step.codes is not None:
                cut = ending not in {None, "text"}
                sequence.put(Frame(sequence.segment, step.codes, step.position, cut=cut))
            if ending:
                sequence.put(Frame(sequence.segment, None, ending=ending))
                sequence.speaking = False
                if sequence.group and ending == "text":
                    sequence.group.end_one()

    def _leave(self, sequence: Sequence, error: EngineError | None) -> None:
        if sequence in self._active:
            self._active.remove(sequence)
            heapq.heappush(self._free, sequence.row)
        elif sequence in self._parked:
            self._parked.remove(sequence)
        else:
            return
        sequence.put(error)


def _failure(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    failure = EngineError(f"synthesis failed: {error!r}")
    if _out_of_memory(error):
        failure = EngineUnavailable("there is not enough memory for this at the moment; try again")
    failure.__cause__ = error
    return failure


def _out_of_memory(error: Exception) -> bool:
    # torch's CPU allocator says so in words only.
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


def _ending(sequence: Sequence, step: RowStep) -> Ending | None:
    """Why the segment is over after this step, if it is."""
    if step.ended:
        return "text"
    if step.full:
        return "no_room"
    if sequence.spoken >= sequence.max_frames:
        return "max_new_tokens"
    if sequence.group and sequence.group.over:
        return "early_stop"
    return None


class Scheduler:
    """Takes sequences from any thread and has them spoken as one batch. Cancelled ones leave at the next frame.

    Readers look after the thread: when no frame comes for a while and the thread is dead or hangs, all its sequences
    fail with EngineUnavailable, its stack is logged, and the next submit starts another. A scheduler without references,
    which none is while it speaks, ends its thread.

    Args:
        runner: makes the runner of a new thread.
        rows: of the runner: most sequences at once.
        hangs_s: seconds after which a step counts as hanging.
        threads: CPU threads that share the operations of a step.
    """

    def __init__(
        self, runner: Callable[[], Runner], rows: int = ROWS, hangs_s: float = HANGS_S, threads: int = 1
    ) -> None:
        self._make_runner, self.rows, self._hangs_s, self._threads = runner, rows, hangs_s, threads
        self._lock = threading.Lock()
        self._closed = False
        self._worker: Worker | None = None
        self._end: weakref.finalize[..., Scheduler] | None = None

    def submit(self, *sequences: Sequence) -> None:
        """Takes sequences, which begin together as far as there are rows; their frames come out of them.

        Raises:
            EngineError: the scheduler is closed.
        """
        for sequence in sequences:
            sequence.on_room, sequence.on_silence = self.poke, self.check
        self.check()
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            if self._worker is None:
                worker = self._worker = Worker(self._make_runner(), self.rows, self._threads)
                # Also when the interpreter goes down: a thread that is still inside torch takes the process with it.
                self._end = weakref.finalize(self, worker.close, EngineError("the engine was closed"), _CLOSE_S)
            taken = self._worker.submit(sequences)
        if not taken:  # it failed just now
            raise EngineUnavailable("the engine is being started anew; try again")

    def poke(self) -> None:
        """Tells the thread that a sequence was given more text, has room again, or was cancelled."""
        worker = self._worker
        if worker is not None:
            worker.poke()

    def close(self) -> None:
        """Fails what still speaks, and ends the thread."""
        with self._lock:
            self._closed = True
            worker, end = self._worker, self._end
        if worker is not None and end is not None:
            worker.close(EngineError("the engine was closed"), _CLOSE_S)  # every caller waits, also the second
            end.detach()

    def check(self) -> None:
        """Gives the thread up if it is dead or hangs; otherwise does nothing."""
        with self._lock:
            worker = self._worker
            if worker is None or self._closed or not self._ill(worker):
                return
            self._worker = None
            if self._end is not None:
                self._end.detach()
        how = f"hangs for {worker.busy_s:.0f} s" if worker.alive else "is dead"
        _LOG.critical("the engine's thread %s and is given up; it was at\n%s", how, worker.dump())
        worker.close(EngineUnavailable("the engine hung and was started anew; try again"), 0.0)

    @property
    def healthy(self) -> bool:
        """Whether what is submitted now will be spoken."""
        worker = self._worker
        return not self._closed and (worker is None or not self._ill(worker))

    @property
    def load(self) -> tuple[int, int]:
        """(sequences that hold a place in the batch, sequences waiting for one)."""
        worker = self._worker
        return (0, 0) if worker is None else worker.load

    def _ill(self, worker: Worker) -> bool:
        return not worker.alive or worker.busy_s > self._hangs_s
