"""Batches whatever wants to speak: one thread steps the model, sequences come and go between steps."""

from __future__ import annotations

import atexit
import threading
from collections import deque

from voicelab.engine.lm import LM
from voicelab.engine.runner import Runner
from voicelab.engine.sequence import Ending, Frame, Sequence
from voicelab.errors import EngineError

ROWS = 8
"""Sequences spoken at once; more wait their turn."""


class Scheduler:
    """Owns the runner and the thread that steps it; `submit` from any thread. The cancelled leave at the next frame."""

    def __init__(self, model: LM, rows: int = ROWS) -> None:
        self._runner = Runner(model, rows)
        self._free = deque(range(rows))
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, *sequences: Sequence) -> None:
        """Takes sequences, which begin together as far as there are rows; their frames come out of them.

        Raises:
            EngineError: the scheduler is closed.
        """
        with self._wake:
            if self._closed:
                raise EngineError("the engine is closed")
            self._waiting.extend(sequences)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="voicelab-engine", daemon=True)
                self._thread.start()
                # A thread that is still inside torch when the interpreter goes down takes the process with it.
                atexit.register(self.close)
            self._wake.notify()

    def poke(self) -> None:
        """Tells the thread that a sequence was given more text, or was cancelled."""
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """Fails what still speaks, and ends the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=10)
            atexit.unregister(self.close)

    @property
    def load(self) -> tuple[int, int]:
        """(sequences speaking, sequences waiting)."""
        return len(self._active), len(self._waiting)

    def _run(self) -> None:
        while True:
            with self._wake:
                ready = self._ready()
                while not ready and not self._closed:
                    self._wake.wait()
                    ready = self._ready()
                if self._closed:
                    break
            try:
                self._step(ready)
            except Exception as error:  # noqa: BLE001 - the thread must outlive a failing batch
                self._runner.spoiled.update(s.row for s in ready)
                for sequence in ready:
                    self._leave(sequence, _failure(error))
        for sequence in [*self._active, *self._waiting]:
            sequence.put(EngineError("the engine was closed"))

    def _ready(self) -> list[Sequence]:
        """Admits, drops and returns the sequences that have something to say now."""
        for sequence in [s for s in self._active if s.cancelled]:
            self._leave(sequence, None)
        while True:
            self._admit()
            ready = [s for s in tuple(self._active) if self._has_text(s)]
            if not (self._waiting and self._free):  # else somebody has just left, and nobody would wake us for the next
                return ready

    def _admit(self) -> None:
        while self._waiting and self._free:
            sequence = self._waiting.popleft()
            if sequence.cancelled:
                continue
            try:
                self._runner.begin(sequence, self._free[0])
            except Exception as error:  # noqa: BLE001 - one bad sequence must not end the thread for all
                sequence.put(_failure(error))
            else:
                self._free.popleft()
                self._active.append(sequence)

    def _has_text(self, sequence: Sequence) -> bool:
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

    def _step(self, sequences: list[Sequence]) -> None:
        told = [s.pointer - s.kept for s in sequences]
        for sequence, codes, phone in zip(sequences, self._runner.step(sequences), told, strict=True):
            sequence.put(Frame(sequence.segment, codes, phone))
            if ending := _ending(sequence):
                sequence.put(Frame(sequence.segment, None, ending=ending))
                sequence.text = None
                if sequence.group and ending == "text":
                    sequence.group.end_one()

    def _leave(self, sequence: Sequence, error: EngineError | None) -> None:
        if sequence in self._active:
            self._active.remove(sequence)
            self._free.append(sequence.row)
            sequence.put(error)


def _failure(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    failure = EngineError(f"synthesis failed: {error!r}")
    failure.__cause__ = error
    return failure


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
