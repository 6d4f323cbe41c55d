"""Batches whatever wants to speak, and replaces the thread that speaks when it is dead or hangs."""

from __future__ import annotations

import logging
import threading
import weakref

from voicelab.engine.lm import LM
from voicelab.engine.sequence import Sequence
from voicelab.engine.worker import Worker
from voicelab.errors import EngineError, EngineUnavailable

ROWS = 16
"""Sequences spoken at once; more wait their turn."""
HANGS_S = 120.0
"""Seconds after which a step is taken to hang; on a busy machine it may well take one."""
_CLOSE_S = 10.0
_LOG = logging.getLogger("voicelab.engine")


class Scheduler:
    """`submit` from any thread. The cancelled leave at the next frame.

    Readers look after the thread: when nothing comes for a while and it is found dead or hanging, all that it was to
    speak fails with EngineUnavailable, where it hangs is logged, and the next submit starts another. A scheduler that nobody
    knows any more, which none is while it speaks, ends its thread.
    """

    def __init__(self, model: LM, rows: int = ROWS, hangs_s: float = HANGS_S) -> None:
        self._model, self.rows, self._hangs_s = model, rows, hangs_s
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
                worker = self._worker = Worker(self._model, self.rows)
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
            worker.close(EngineError("the engine was closed"), _CLOSE_S)  # whoever closes waits, also the second
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
