"""A sweep as it is typed into a form: axes, texts and caps in words, checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from voicelab.errors import FieldError, RequestInvalid
from voicelab.experiments.sweeps.axes import Axis, field_name, written
from voicelab.experiments.sweeps.budget import Budget
from voicelab.experiments.sweeps.sweep import Sweep
from voicelab.schema import TTSRequest

__all__ = ["AXES", "CAPS", "budget_of", "retyped", "texts_of", "typed_axes"]

# Those that people vary first, then what else the schema has; texts have a place of their own.
_FIRST: Final = ("temperature", "top_p", "reference_id", "latency", "repetition_penalty")
_REST: Final = [name for name in TTSRequest.model_fields if name not in {*_FIRST, "text", "references", "prosody"}]

AXES: Final = (*_FIRST, "prosody.speed", "prosody.volume", *_REST, "model", "seed", "backend")
"""Everything that can be varied by typing its values, by the names of the interface."""

# What a line of texts cannot hold as it is.
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_READ: Final = {escape: character for character, escape in _ESCAPES.items()}
_WRITTEN: Final = re.compile(r"[\\\n\r]")
_TYPED: Final = re.compile(r"\\[\\nr]")

CAPS: Final = tuple(item.name for item in fields(Budget))
"""What can be capped."""


def texts_of(sweep: Sweep) -> str:
    r"""Return the texts of a sweep, one a line; a line break within a text is written as ``\n``, a backslash as ``\\``."""
    axis = next((axis for axis in sweep.axes if axis.name == "text"), None)
    texts = axis.values if axis is not None else (sweep.base.request.text,)
    return "\n".join(_WRITTEN.sub(lambda match: _ESCAPES[match.group()], text) for text in texts)


def typed_axes(sweep: Sweep) -> list[tuple[str, str]]:
    """Return name and values of every axis that can be typed, but for the texts."""
    known = ((axis.name, written(axis)) for axis in sweep.axes if axis.name != "text")
    return [(name, text) for name, text in known if text is not None]


def retyped(
    sweep: Sweep, texts: str, axes: Iterable[tuple[str, str]], *, repeats: int | None = None, seed: int | None = None
) -> Sweep:
    """Return ``sweep`` with what somebody typed in the place of its texts and axes.

    ``axes`` are names with values as ``parse_values`` reads them. An axis that says what it said keeps its labels,
    and one that nobody can type (reference audio) stays. Raises RequestInvalid, which names all that is wrong.
    """
    before = {axis.name: axis for axis in sweep.axes}
    troubles: list[FieldError] = []
    made: list[Axis] = []
    base = sweep.base
    try:
        if texts != texts_of(sweep):
            lines = [_TYPED.sub(lambda match: _READ[match.group()], line) for line in texts.split("\n") if line.strip()]
            base = base.replace(text=lines[0] if lines else "")
            if len(lines) > 1:
                made.append(Axis.of("text", lines))
        elif "text" in before:
            made.append(before["text"])
    except RequestInvalid as error:
        troubles += error.errors
    for name, typed in axes:
        known = before.get(field_name(name))
        try:
            made.append(known if known is not None and written(known) == typed else Axis.of(name, typed))
        except RequestInvalid as error:
            troubles += [_named(item, name) for item in error.errors]
    if troubles:
        raise RequestInvalid(troubles)
    made += [axis for axis in sweep.axes if written(axis) is None]
    return replace(
        sweep,
        base=base,
        axes=tuple(made),
        repeats=sweep.repeats if repeats is None else repeats,
        seed=sweep.seed if seed is None else seed,
    )


def budget_of(typed: Mapping[str, str]) -> Budget:
    """Return the caps that somebody typed, by their names; blank is no cap. Raises RequestInvalid."""
    caps: dict[str, Any] = {}
    troubles: list[FieldError] = []
    for name, text in typed.items():
        if not text.strip():
            continue
        try:
            caps[name] = float(text)
            Budget(**{name: caps[name]})
        except (ValueError, TypeError):
            message = "Input should be a number, 0 or more, or empty for no cap"
            troubles.append(FieldError(("body", "budget", name), "float_parsing", message))
    if troubles:
        raise RequestInvalid(troubles)
    return Budget(**caps)


def _named(item: FieldError, name: str) -> FieldError:
    """Return an error under the name of its axis, for the form to find the field."""
    place: Sequence[str] = field_name(name).split(".")
    return replace(item, loc=("body", *place), in_="body")
