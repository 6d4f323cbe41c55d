"""progress(): how far a loop in code is, in a notebook's output that stays readable, or in a line of a terminal."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any, Final, TypeVar

__all__ = ["progress"]

_Item = TypeVar("_Item")

# Ten a second look alive; more would only queue up on their way to the page.
_INTERVAL_S: Final = 0.1


def progress(items: Iterable[_Item], about: str = "", *, total: int | None = None) -> Iterator[_Item]:
    """Yield ``items`` and show how far they are: ``for text in vl.progress(texts): lab.speak(text)``.

    Anything that can be iterated; a sweep at work too, whose outcomes come as they are made:
    ``for outcome in vl.progress(sweep.start()): …``.

    Args:
        items: what is gone through.
        about: a word or two before the count.
        total: how many there are, where ``len(items)`` does not say; without it they are only counted.

    At the end, and when the loop is left early, the count alone stays, no times: the same at every run.
    """
    total = operator.length_hint(items, 0) or None if total is None else total
    show = _notebook() or _terminal(about)
    began, last, done = time.monotonic(), 0.0, 0
    show(about, 0, total, None)
    try:
        for item in items:
            yield item
            done += 1
            now = time.monotonic()
            if now >= last + _INTERVAL_S:
                left = (now - began) / done * (total - done) if total else None
                show(about, done, total, left)
                last = now
    finally:
        show(about, done, total, -1.0)


_Show = Callable[[str, int, int | None, float | None], object]
"""Shows about what, how many are done, of how many, and the seconds left; -1 when no more will come."""


def _notebook() -> _Show | None:
    """Return what shows progress in a cell's output, None where there is no notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    handles: list[Any] = []

    def show(about: str, done: int, total: int | None, left: float | None) -> None:
        text = _text(about, done, total, left)
        bar = "" if left == -1.0 else f'<progress value="{done}" max="{total}"></progress> ' if total else ""
        data = {"text/html": f'<div role="status">{bar}{escape(text)}</div>', "text/plain": text}
        if handles:
            handles[0].update(data, raw=True)
        else:
            handles.append(display(data, raw=True, display_id=True))  # type: ignore[no-untyped-call]

    return show


def _terminal(about: str) -> _Show:
    """Return what shows progress in a line of the terminal; nothing where the output is none."""
    from rich import markup
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, disable=not console.is_terminal)
    task = bar.add_task(markup.escape(about), total=None)
    bar.start()

    def show(_: str, done: int, total: int | None, left: float | None) -> None:
        bar.update(task, completed=done, total=total)
        if left == -1.0:
            bar.stop()

    return show


def _text(about: str, done: int, total: int | None, left: float | None) -> str:
    count = f"{done} of {total}" if total else str(done)
    told = f", about {left:.0f} s left" if left is not None and left >= 0.5 else ""
    return f"{about}: {count}{told}" if about else f"{count}{told}"
