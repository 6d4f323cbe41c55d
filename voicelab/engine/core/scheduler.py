"""Batching of all sequences of a model: the thread that steps them, and the scheduler that replaces a dead or hung thread."""

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

from voicelab.engine.core.devices import set_thread_count
from voicelab.engine.core.sequence import Codes, Ending, Frame, Sequence, Settings
from voicelab.errors import EngineError, EngineUnavailable
from voicelab.lifecycle import COMPUTING

ROWS = 16
"""Maximum concurrent sequences; further ones are queued."""
STEP_TIMEOUT_S = 120.0
"""Seconds after which a step counts as hung; on a busy machine a step may take a full second."""
_CLOSE_S = 10.0
_LOG = logging.getLogger("voicelab.engine")


@dataclass(frozen=True)
class RowStep:
    """Result of a step for one row."""

    codes: Codes | None
    """Codes (codebooks,); None if the step made no frame, because the model ended the speech (`ended`) or is still processing
    its prompt."""
    position: int = -1
    """Position in the segment to which the frame belongs, in the units of the segment's `words`; -1 if unknown."""
    ended: bool = False
    """Whether the segment's speech ends with this step."""
    full: bool = False
    """Whether the row has no positions left after this frame, so that the segment is cut off."""


class Runner(Protocol):
    """Protocol of a language model with a state for each row of a batch, that is, for each sequence in progress.

    All methods are called by one thread.
    """

    def admit(self, row: int, voice: Any, settings: Settings, seed: int) -> None:
        """Start a new sequence in an empty row."""

    def add_segment(self, row: int, segment: Any) -> None:
        """Start the next segment of a row, continuing the row's speech."""

    def step(self, rows: list[int]) -> list[RowStep]:
        """Compute one frame per row; every row has a segment in progress. Rows do not influence each other.

        Raises:
            EngineError: a logit is not finite. After any error the rows are unchanged, so that the step can be retried with
                the same rows or a subset of them.
        """

    def park(self, row: int) -> Any:
        """Remove and return all state of a row, so that another sequence can use the row; `resume` restores it in any row."""

    def resume(self, row: int, parked: Any) -> None:
        """Restore the state that `park` removed from this or another row."""

    def discard(self, row: int) -> None:
        """Clear a row after a failed step, because its values could corrupt a later sequence even if masked."""

    def free_memory(self) -> None:
        """Release cached memory."""


class Worker:
    """The thread that steps a runner for a batch; sequences are added and removed between steps.

    The thread never waits for a reader: a sequence with a slow reader is paused, and a waiting sequence gets its row.
    """

    def __init__(self, runner: Runner, rows: int, threads: int = 1) -> None:
        self._runner = runner
        self._rows, self._threads = rows, threads
        # A heap: the lowest free row is used, because a runner may compute all rows up to the highest one in use.
        self._free = list(range(rows))
        # Filled by callers and emptied by the thread, so that no lock is held while stepping.
        self._inbox: deque[tuple[Sequence, ...]] = deque()
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []
        self._parked: list[Sequence] = []
        self._wake = threading.Event()
        self._error: EngineError | None = None
        self._step_began: float | None = None
        self._thread = threading.Thread(target=self._run, name="voicelab-engine", daemon=True)
        self._thread.start()

    @property
    def load(self) -> tuple[int, int]:
        """Number of sequences that hold a row, and number of sequences waiting for one."""
        return len(self._active), sum(map(len, tuple(self._inbox))) + len(self._waiting) + len(self._parked)

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    @property
    def busy_s(self) -> float:
        """Seconds since the current step began; 0 when idle."""
        step_began = self._step_began
        return 0.0 if step_began is None else time.monotonic() - step_began

    def submit(self, sequences: tuple[Sequence, ...]) -> bool:
        """Queue sequences; returns False if the thread is ending."""
        self._inbox.append(sequences)
        self._wake.set()
        return self._error is None

    def notify(self) -> None:
        """Wake the thread, because a sequence has more text, was read, or was cancelled."""
        self._wake.set()

    def close(self, error: EngineError, wait_s: float) -> None:
        """End the thread; unfinished sequences fail with `error`, even if the thread does not end within `wait_s`."""
        self._error = self._error or error
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=wait_s)
        if self.alive:
            self._fail_all()

    def dump(self) -> str:
        """Format the thread's stack trace."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - no public API inspects a thread
        return "".join(traceback.format_stack(frame)) if frame is not None else "(not running)"

    def _run(self) -> None:
        set_thread_count(self._threads)
        try:
            while self._error is None:
                self._wake.clear()  # before the check, so that no event during it is missed
                self._step_began = time.monotonic()
                with COMPUTING:
                    if ready := self._ready():
                        self._step(ready)
                if not ready:
                    self._step_began = None
                    if self._error is None:
                        self._wake.wait()
        except BaseException as error:  # noqa: BLE001 - no other code would see it
            _LOG.critical("the engine's thread failed", exc_info=error)
            self._error = EngineUnavailable("the engine failed and is restarting; try again")
            self._error.__cause__ = error
        finally:
            self._step_began = None
            self._fail_all()

    def _fail_all(self) -> None:
        new = [sequence for sequences in tuple(self._inbox) for sequence in sequences]
        for sequence in [*self._active, *self._parked, *self._waiting, *new]:
            sequence.put(self._error or EngineError("the engine was closed"))

    def _ready(self) -> list[Sequence]:
        """Remove cancelled sequences and admit waiting ones; return the sequences that can make a frame."""
        while self._inbox:
            self._waiting.extend(self._inbox.popleft())
        for sequence in [s for s in (*self._active, *self._parked) if s.cancelled]:
            self._leave(sequence, None)
        # Sequences in progress precede new ones.
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
        """Park the sequences that cannot make a frame; return whether there were any."""
        idle = [s for s in self._active if s not in ready]
        for sequence in idle:
            sequence.parked = self._runner.park(sequence.row)
            self._active.remove(sequence)
            heapq.heappush(self._free, sequence.row)
            sequence.row = -1
            self._parked.append(sequence)
        return bool(idle)

    def _must_wait(self, sequence: Sequence) -> bool:
        """Return whether the sequence belongs to a group that runs in lockstep, for which there are too few free rows."""
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
            except Exception as error:  # noqa: BLE001 - one bad sequence must not end the thread
                sequence.put(_failure(error))
            else:
                heapq.heappop(self._free)
                sequence.row, sequence.parked = row, None
                self._active.append(sequence)

    def _can_speak(self, sequence: Sequence) -> bool:
        if sequence.paused():
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
        if sequence.row < 0:  # parked: the segment is added after it is resumed
            return True
        try:
            self._runner.add_segment(sequence.row, sequence.following)
        except Exception as error:  # noqa: BLE001 - as above
            self._leave(sequence, _failure(error))
            return False
        sequence.begin_segment()
        return True

    def _step(self, sequences: list[Sequence]) -> None:
        """Compute a frame of each sequence. If that fails, step each sequence alone, so that only the faulty one fails."""
        try:
            steps = self._runner.step([sequence.row for sequence in sequences])
        except Exception as error:  # noqa: BLE001 - the thread must survive a failing batch
            if out_of_memory(error):
                self._runner.free_memory()
            if len(sequences) > 1:
                for sequence in sequences:
                    self._step([sequence])
                return
            self._runner.discard(sequences[0].row)
            self._leave(sequences[0], _failure(error))
            return
        for sequence, step in zip(sequences, steps, strict=True):
            sequence.frame_count += step.codes is not None
            ending = _ending(sequence, step)
            if step.codes is not None:
                cut = ending not in {None, "text"}
                sequence.put(Frame(sequence.segment, step.codes, step.position, cut=cut))
            if ending:
                sequence.put(Frame(sequence.segment, None, ending=ending))
                sequence.speaking = False
                if sequence.group and ending == "text":
                    sequence.group.count_ended()

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
    if out_of_memory(error):
        failure = EngineUnavailable("not enough memory at the moment; try again")
    failure.__cause__ = error
    return failure


def out_of_memory(error: Exception) -> bool:
    """Return whether an error reports a lack of memory."""
    # torch's CPU allocator raises a RuntimeError that only its message distinguishes.
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


def _ending(sequence: Sequence, step: RowStep) -> Ending | None:
    """Return the reason why the segment ends with this step; None if it continues."""
    if step.ended:
        return "text"
    if step.full:
        return "no_room"
    if sequence.frame_count >= sequence.max_frames:
        return "max_new_tokens"
    if sequence.group and sequence.group.over:
        return "early_stop"
    return None


class Scheduler:
    """Runs the sequences that any thread submits as one batch. Cancelled sequences are removed at the next frame.

    Readers supervise the thread: if no frame arrives for a while and the thread is dead or hung, its sequences fail with
    EngineUnavailable, its stack is logged, and the next submit starts a new thread. The thread ends when the scheduler is
    garbage-collected, which cannot happen while it has sequences.

    Args:
        runner: makes the runner of a new thread.
        rows: rows of the runner, the maximum number of concurrent sequences.
        step_timeout_s: seconds after which a step counts as hung.
        threads: CPU threads per step.
    """

    def __init__(
        self, runner: Callable[[], Runner], rows: int = ROWS, step_timeout_s: float = STEP_TIMEOUT_S, threads: int = 1
    ) -> None:
        self._make_runner, self.rows, self._step_timeout_s, self._threads = runner, rows, step_timeout_s, threads
        self._lock = threading.Lock()
        self._closed = False
        self._worker: Worker | None = None
        self._end: weakref.finalize[..., Scheduler] | None = None

    def submit(self, *sequences: Sequence) -> None:
        """Queue sequences; those for which rows are free start as one batch. Read them with `Sequence.frames`.

        Raises:
            EngineError: the scheduler is closed.
        """
        for sequence in sequences:
            sequence.on_room, sequence.on_silence = self.notify, self.check
        self.check()
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            if self._worker is None:
                worker = self._worker = Worker(self._make_runner(), self.rows, self._threads)
                # Also at interpreter exit: a thread that is still inside torch would crash the process.
                self._end = weakref.finalize(self, worker.close, EngineError("the engine was closed"), _CLOSE_S)
            accepted = self._worker.submit(sequences)
        if not accepted:  # the thread failed meanwhile
            raise EngineUnavailable("the engine is restarting; try again")

    def notify(self) -> None:
        """Wake the thread, because a sequence has more text, was read, or was cancelled."""
        worker = self._worker
        if worker is not None:
            worker.notify()

    def close(self) -> None:
        """Fail unfinished sequences and end the thread."""
        with self._lock:
            self._closed = True
            worker, end = self._worker, self._end
        if worker is not None and end is not None:
            worker.close(EngineError("the engine was closed"), _CLOSE_S)  # every caller waits, even a second one
            end.detach()

    def check(self) -> None:
        """Replace the thread if it is dead or hung; otherwise do nothing."""
        with self._lock:
            worker = self._worker
            if worker is None or self._closed or not self._failed(worker):
                return
            self._worker = None
            if self._end is not None:
                self._end.detach()
        state = f"has hung for {worker.busy_s:.0f} s" if worker.alive else "is dead"
        _LOG.critical("the engine's thread %s and is abandoned; its stack:\n%s", state, worker.dump())
        worker.close(EngineUnavailable("the engine hung and was restarted; try again"), 0.0)

    @property
    def healthy(self) -> bool:
        """Whether submitted sequences will be processed."""
        worker = self._worker
        return not self._closed and (worker is None or not self._failed(worker))

    @property
    def load(self) -> tuple[int, int]:
        """Number of sequences that hold a row, and number of sequences waiting for one."""
        worker = self._worker
        return (0, 0) if worker is None else worker.load

    def _failed(self, worker: Worker) -> bool:
        return not worker.alive or worker.busy_s > self._step_timeout_s
