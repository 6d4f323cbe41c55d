"""Every sentence and every cell of the interface document has a name here; a test says with `proves` which it proves.

A name is the part of the document, then the row or the sentence, then the column: ``2.1/temperature:default``,
``4.1-4``, ``7.1/422:loc``. What the document calls "not shown" and DESIGN decides has a name that begins with D.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import pytest

from tests.interface import tables
from tests.interface.sentences import DECIDED, SENTENCES

Test = TypeVar("Test", bound=Callable[..., Any])


def _cells() -> dict[str, str]:
    """The cells of the tables of fields that say a type, a default, a bound or a value."""
    found: dict[str, str] = {}
    for number, table in (
        ("2.1", tables.TTS_REQUEST),
        ("2.2", tables.REFERENCE_AUDIO),
        ("2.3", tables.PROSODY_CONTROL),
        ("2.4", tables.VOICE_MODEL),
        ("4.2", tables.VOICE_FORM),
    ):
        for name, field in table.items():
            row = f"{number}/{name}"
            found[f"{row}:type"] = f"{name}: {field.type}{' or null' if field.null else ''}"
            if number != "2.3":
                found[f"{row}:required"] = f"{name}: required: {'yes' if field.required else 'no'}"
            if field.default is not tables.MISSING:
                found[f"{row}:default"] = f"{name}: default: {_spelled(field.default)}"
            if field.low is not None:
                found[f"{row}:bounds"] = f"{name}: {field.low} to {field.high} inclusive"
            for value in field.values:
                found[f"{row}={value}"] = f"{name}: one of … {value} …"
    for kind, (rates, default) in tables.RATES.items():
        for rate in rates:
            found[f"4.1/{kind}@{rate}"] = f"{kind}: sample rates … {rate} …"
        found[f"4.1/{kind}:default"] = f"{kind}: default rate {default}"
        found[f"4.1/{kind}:mono"] = f"{kind}: mono"
    for model in tables.MODELS:
        found[f"4.1/model={model}"] = f"request header model: one of … {model} …"
    for place in tables.ERROR_PLACES:
        found[f"7.1/422:in={place}"] = f"in: one of … {place} …"
    return found


def _spelled(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _in_order(names: Collection[str]) -> list[str]:
    """By part of the document, and what is said of one row together."""
    rows: dict[str, int] = {}
    for name in names:
        rows.setdefault(_row(name), len(rows))
    return sorted(
        names, key=lambda name: ([int(digits) for digits in re.findall(r"\d+", part(name))], rows[_row(name)])
    )


def part(name: str) -> str:
    """Return the part of the document that a sentence is in."""
    return re.split("[/-]", name)[0]


def _row(name: str) -> str:
    return re.split("[:=@]", name)[0]


_DOCUMENT = {**_cells(), **SENTENCES}
RULES: dict[str, str] = {name: _DOCUMENT[name] for name in _in_order(_DOCUMENT)} | DECIDED


def proves(*names: str) -> Callable[[Test], Test]:
    """Mark a test as the proof of sentences, by their names."""
    return lambda test: _mark(test, dict.fromkeys(names, ""))


def each(template: str, rows: Collection[object]) -> Callable[[Test], Test]:
    """Run a test once for every row, as argument ``row``; each time it proves the sentence ``template`` with that row."""
    parametrize: Callable[[Test], Test] = pytest.mark.parametrize("row", rows, ids=str)
    return lambda test: parametrize(_mark(test, {template.format(row): f"[{row}]" for row in rows}))


def _mark(test: Test, names: dict[str, str]) -> Test:
    unknown = [name for name in names if name not in RULES]
    if unknown:
        pytest.fail(f"the document has no sentences named {unknown}")
    test.__dict__.setdefault("proofs", {}).update(names)
    return test
