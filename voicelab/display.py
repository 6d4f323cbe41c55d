"""What shows a value in a notebook: a registry from names to views, each imported when it is first asked for.

Imports run downward only, and a value knows no view. The package's ``__init__`` fills the registry when it is imported:
a class by its name, and what a method opens by the method's (``Clip.plot``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_views: dict[str, str] = {}


def register(views: Mapping[str, str]) -> None:
    """Add views, each ``"module:function"``, by the name of what they show."""
    _views.update(views)


def view(name: str) -> Callable[..., Any]:
    """Import and return the view that is registered under ``name``."""
    module, _, function = _views[name].partition(":")
    shows: Callable[..., Any] = getattr(import_module(module), function)
    return shows


class Shown:
    """A value that notebooks show by the view of its class, or of the nearest of its bases that has one."""

    __slots__ = ()

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        name = next(base.__name__ for base in type(self).__mro__ if base.__name__ in _views)
        outputs: dict[str, Any] = view(name)(self)
        return outputs
