"""Registry of notebook views by name, each imported at first use.

Modules that define values do not import views, so that lower layers do not import higher ones. The package's ``__init__``
registers views of classes by class name, and views that methods open by method name (``Clip.plot``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_views: dict[str, str] = {}


def register(views: Mapping[str, str]) -> None:
    """Register views: a mapping from names of classes or methods to ``"module:function"``."""
    _views.update(views)


def view(name: str) -> Callable[..., Any]:
    """Import and return the view registered as ``name``."""
    module, _, function = _views[name].partition(":")
    imported: Callable[..., Any] = getattr(import_module(module), function)
    return imported


class Shown:
    """Mixin for values that notebooks display with the view of their class, or of the nearest base that has a view."""

    __slots__ = ()

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        name = next(base.__name__ for base in type(self).__mro__ if base.__name__ in _views)
        outputs: dict[str, Any] = view(name)(self)
        return outputs


def note_on(table: pd.DataFrame, names: Iterable[object]) -> str:
    """Return the note in a table's ``attrs["note"]`` ("METRICS: …") if it concerns one of these metrics, else ""."""
    note = str(table.attrs.get("note", ""))
    return note if set(note.partition(":")[0].split(", ")).intersection(map(str, names)) else ""
