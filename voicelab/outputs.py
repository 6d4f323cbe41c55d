"""How a value of ours is shown in a notebook, without this package knowing anything of notebooks.

What shows a value registers itself in the group of entry points ``voicelab.display`` under a name; values
ask for it by that name when a cell ends with them. Where nothing is registered, or its libraries are not
installed, the plain text remains.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

__all__ = ["bundle", "registered"]


def registered(name: str) -> Callable[..., Any] | None:
    """Return what is registered under ``name``; None when nothing is, or what it needs is not installed."""
    for entry in entry_points(group="voicelab.display", name=name):
        try:
            show: Callable[..., Any] = entry.load()
        except ImportError:
            continue
        return show
    return None


def bundle(name: str, value: object) -> dict[str, Any]:
    """Return the outputs of ``value`` by media type, from what is registered under ``name``."""
    show = registered(name)
    if show is not None:
        try:
            shown: dict[str, Any] = show(value)
        except ModuleNotFoundError:
            # What draws is imported when there is something to draw.
            pass
        else:
            return shown
    return {"text/plain": repr(value)}
