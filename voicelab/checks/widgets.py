"""Saved states of widgets in a notebook: described as text, and reduced to stable states of the displayed widgets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

VIEW: Final = "application/vnd.jupyter.widget-view+json"
_STATE: Final = "application/vnd.jupyter.widget-state+json"
_REFERENCE: Final = "IPY_MODEL_"

States = Mapping[str, Any]
"""Saved widget models by id."""


def saved_states(notebook: Any) -> States:
    """Return the models in a notebook's metadata; empty if no state was saved."""
    states: States = notebook.metadata.get("widgets", {}).get(_STATE, {}).get("state", {})
    return states


def models(model_id: str, states: States) -> Iterator[tuple[str, Any]]:
    """Yield a displayed model and those that it contains as (id, model), depth first, each once."""
    stack, seen = [model_id], set()
    while stack:
        current = stack.pop()
        if current in states and current not in seen:
            seen.add(current)
            yield current, states[current]
            stack += reversed(list(_references(states[current].get("state", {}))))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith(_REFERENCE):
        yield value.removeprefix(_REFERENCE)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def properties(model: Any) -> Iterator[str]:
    """Yield the visible properties of a model, such as "IntSlider.value = 5".

    Properties with default values (null), private properties and nested ones are omitted.
    """
    name = model.get("model_name", "Widget").removesuffix("Model")
    for key, value in sorted(model.get("state", {}).items()):
        if value is None or key.startswith("_") or key in {"outputs", "msg_id"} or any(_references(value)):
            continue
        yield f"{name}.{key} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def stable_states(notebook: Any) -> Any:
    """Keep the states of displayed widgets that have no HTML fallback, with ids numbered in order instead of random."""
    states = saved_states(notebook)
    kept: dict[str, Any] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if VIEW in data and "text/html" not in data:
                kept.update(models(data[VIEW].get("model_id", ""), states))
    notebook.metadata.pop("widgets", None)
    if not kept:
        return notebook
    notebook.metadata["widgets"] = {_STATE: {"state": kept, "version_major": 2, "version_minor": 0}}
    text = json.dumps(notebook)
    for number, model_id in enumerate(kept, start=1):
        text = text.replace(model_id, f"{number:032x}")
    import nbformat

    return nbformat.from_dict(json.loads(text))
