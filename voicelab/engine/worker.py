"""The thread that speaks: it steps the model for a batch, and sequences come and go between steps."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import deque

from voicelab.engine.lm import LM
from voicelab.engine.runner import Runner
from voicelab.engine.sequence import Ending, Frame, Sequence
from voicelab.engine.threads import work_alone
from voicelab.errors import EngineError, EngineUnavailable

_LOG = logging.getLogger("voicelab.engine")


class Worker:
    """One thread with its own caches. Nobody waits for a reader: a sequence whose reader is far behind is passed over,
    and gives its row to whoever waits for one.
    """

    def __init__(self, model: LM, rows: int) -> None:
        self._runner = Runner(model, rows)
        self._rows = rows
        self._free = deque(range(rows))
        # Filled by callers, emptied by the thread, so that no lock is ever held while there is work.
        self._inbox: deque[tuple[Sequence, ...]] = deque()
        self._waiting: deque[Sequence] = deque()
        self.active: list[Sequence] = []
        self._parked: list[Sequence] = []
        self._wake = threading.Event()
        self._over: EngineError | None = None
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name="voicelab-engine", daemon=True)
        self._thread.start()

    @property
    def load(self) -> tuple[int, int]:
        """(sequences that hold a row, sequences that wait for one)."""
        return len(self.active), sum(map(len, tuple(self._inbox))) + len(self._waiting) + len(self._parked)

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
        """Takes sequences; False when it is over, and nobody will speak them."""
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
        work_alone()
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
        except BaseException as error:  # noqa: BLE001 - nobody else would hear of it
            _LOG.critical("the engine's thread ended by an error", exc_info=error)
            self._over = EngineUnavailable("the engine failed and is being started anew; try again")
            self._over.__cause__ = error
        finally:
            self._began = None
            self._fail_all()

    def _fail_all(self) -> None:
        new = [sequence for sequences in tuple(self._inbox) for sequence in sequences]
        for sequence in [*self.active, *self._parked, *self._waiting, *new]:
            sequence.put(self._over or EngineError("the engine was closed"))

    def _ready(self) -> list[Sequence]:
        """Admits, drops and returns the sequences that have something to say now."""
        while self._inbox:
            self._waiting.extend(self._inbox.popleft())
        for sequence in [s for s in (*self.active, *self._parked) if s.cancelled]:
            self._leave(sequence, None)
        # Who has begun goes on before anybody else begins.
        for sequence in reversed([s for s in tuple(self._parked) if self._has_something_to_say(s)]):
            self._parked.remove(sequence)
            self._waiting.appendleft(sequence)
        while True:
            self._admit()
            ready = [s for s in tuple(self.active) if self._has_something_to_say(s)]
            if not self._waiting:
                return ready
            somebody_just_left = bool(self._free) and not self._must_wait(self._waiting[0])
            if not somebody_just_left and not self._park(ready):
                return ready

    def _park(self, ready: list[Sequence]) -> bool:
        """Takes the rows of those that have nothing to say."""
        idle = [s for s in self.active if s not in ready]
        for sequence in idle:
            self._runner.park(sequence)
            self.active.remove(sequence)
            self._free.append(sequence.row)
            self._parked.append(sequence)
        return bool(idle)

    def _must_wait(self, sequence: Sequence) -> bool:
        """Whether there are rows, but not for all of a group that must go in step."""
        group = sequence.group
        together = group is not None and group.in_step and not group.begun
        return together and group is not None and len(self._free) < min(group.size, self._rows)

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
            try:
                self._runner.begin(sequence, self._free[0])
            except Exception as error:  # noqa: BLE001 - one bad sequence must not end the thread for all
                sequence.put(_failure(error))
            else:
                self._free.popleft()
                self.active.append(sequence)

    def _has_something_to_say(self, sequence: Sequence) -> bool:
        if sequence.held():
            return False
        if sequence.text is not None:
            return True
        if sequence.waiting.empty():
            return False
        phonemes = sequence.waiting.get()
        if phonemes is None:
            self._leave(sequence, None)
            return False
        try:
            self._runner.read(sequence, phonemes)
        except Exception as error:  # noqa: BLE001 - as above
            self._leave(sequence, _failure(error))
            return False
        return True

    def _speak(self, sequences: list[Sequence]) -> None:
        """A frame of each. If that fails, of each alone: whose fault it was fails, and the others go on."""
        told = [s.pointer - s.kept for s in sequences]
        try:
            made = self._runner.step(sequences)
        except Exception as error:  # noqa: BLE001 - the thread must outlive a failing batch
            if _out_of_memory(error):
                self._runner.free_memory()
            if len(sequences) > 1:
                for sequence in sequences:
                    self._speak([sequence])
                return
            self._runner.spoiled.add(sequences[0].row)
            self._leave(sequences[0], _failure(error))
            return
        for sequence, codes, phone in zip(sequences, made, told, strict=True):
            sequence.put(Frame(sequence.segment, codes, phone))
            if ending := _ending(sequence):
                sequence.put(Frame(sequence.segment, None, ending=ending))
                sequence.text = None
                if sequence.group and ending == "text":
                    sequence.group.end_one()

    def _leave(self, sequence: Sequence, error: EngineError | None) -> None:
        if sequence in self.active:
            self.active.remove(sequence)
            self._free.append(sequence.row)
        elif sequence in self._parked:
            self._parked.remove(sequence)
        else:
            return
        sequence.put(error)


def _failure(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    if _out_of_memory(error):
        failure: EngineError = EngineUnavailable("there is not enough memory for this at the moment; try again")
    else:
        failure = EngineError(f"synthesis failed: {error!r}")
    failure.__cause__ = error
    return failure


def _out_of_memory(error: Exception) -> bool:
    # torch's CPU allocator says so in words only.
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error)


def _ending(sequence: Sequence) -> Ending | None:
    """Why the segment is over after this frame, if it is."""
    phones = sequence.phones
    if phones is None or sequence.pointer >= sequence.kept + len(phones.phones):
        return "text"
    if sequence.spoken >= sequence.max_frames:
        return "max_new_tokens"
    if sequence.group and sequence.group.over:
        return "early_stop"
    return None
