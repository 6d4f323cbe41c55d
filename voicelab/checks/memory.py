"""How much memory a process and what it starts hold at most: what decides whether a notebook fits a small machine."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any, Final

__all__ = ["MemoryPeak"]

# A peak of the main process is told by the system itself; only its children's are seen by looking.
_INTERVAL_S: Final = 0.1


class MemoryPeak:
    """Watches a process and its descendants until ``stop()``, which returns the most that they held together, in bytes.

    Several processes are counted by their proportional share (PSS), where the system tells it, so that a library that
    they share counts once; a single one by its resident size.
    """

    def __init__(self, pid: int) -> None:
        import psutil

        self._main = psutil.Process(pid)
        self._most = 0
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="voicelab-memory", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop watching; return the peak. The process may have ended."""
        self._ended.set()
        self._thread.join()
        self._look()
        return self._most

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self._look()

    def _look(self) -> None:
        import psutil

        try:
            children = self._main.children(recursive=True)
            held = sum(map(_share, (self._main, *children))) if children else self._main.memory_info().rss
            self._most = max(self._most, held, _high_water(self._main))
        except (psutil.Error, OSError):
            return  # it has ended, or a child between two looks


def _share(process: Any) -> int:
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.rss))


def _high_water(process: Any) -> int:
    """Return the most that Linux has seen a process hold, in bytes; 0 elsewhere. No peak is too short for it."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:  # noqa: PTH123 - no file of ours
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0
