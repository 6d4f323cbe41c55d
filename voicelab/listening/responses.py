"""Tables of responses from other programs, checked row by row before the analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from voicelab.errors import ArgumentError, shown_value
from voicelab.listening.design import ANCHORS, NOISE_MASKED, REFERENCE, SCALES, ListeningTest
from voicelab.listening.webmushra import read_results
from voicelab.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

_MAX_PROBLEMS: Final = 20
_FLAGS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "1", "1.0"), True),
    **dict.fromkeys(("false", "no", "0", "0.0", ""), False),
}
_DEFAULTS: Final[Mapping[str, Any]] = {"check": False, "passed": True, "seconds": float("nan"), "plays": 0}


def read_responses(test: ListeningTest, source: pd.DataFrame | str | Path) -> pd.DataFrame:
    """Read responses to a test from a table or a CSV or Excel file, with the columns of ``Ballot.frame``.

    Ratings may be text with a decimal point or comma; flags are true and false, yes and no, or 1 and 0. Spaces around names
    are removed. ``check``, ``passed``, ``trial``, ``seconds`` and ``plays`` are optional. Results of webMUSHRA are passed to
    ``read_results``.

    Raises:
        ArgumentError: columns are missing, or rows have an empty or out-of-scale rating, an invalid flag, or a system that is
            not in the test; the error lists all such rows with column, value and allowed values.
        StoreError: the file cannot be read.
    """
    rated = test.kind in SCALES
    names = ["system", "against"][: 1 + (test.kind == "CMOS")] if rated else ["chosen", "other"]
    required = ["listener", "item", *names, *(["rating"] if rated else ["right"] * (test.kind == "ABX"))]
    frame = read_table(source, [*required, *_DEFAULTS]) if isinstance(source, str | Path) else source.copy()
    if "session_test_id" in frame and isinstance(source, str | Path):
        return read_results(test, source)
    if frame.empty:
        return frame
    if missing := [name for name in required if name not in frame]:
        columns = f"{', '.join(required)}; missing: {', '.join(missing)}; got {', '.join(map(str, frame))}"
        raise ArgumentError.of("votes", f"must have the columns {columns}")
    frame = frame.assign(**{name: value for name, value in _DEFAULTS.items() if name not in frame})
    for name in ("listener", "item", *names):
        frame[name] = [value.strip() if isinstance(value, str) else str(value) for value in frame[name].tolist()]
    if "trial" not in frame:
        frame["trial"] = frame["listener"] + " " + frame["item"]
    problems: list[str] = []
    flags = [name for name in ("check", "passed", "right", "first") if name in frame]
    systems = [*test.systems, *([REFERENCE, *ANCHORS] if test.kind == "MUSHRA" else []), NOISE_MASKED]
    for name in flags:
        frame[name] = _converted(frame[name], _flag, "true or false", problems).astype(bool)
    for name in names:
        allowed = {system: system for system in systems}
        _converted(frame[name], allowed.get, f"one of {', '.join(test.systems)}", problems)
    if rated:
        low, high = SCALES[test.kind]
        frame["rating"] = _converted(
            frame["rating"], lambda value: _rating(value, low, high), f"a number from {low} to {high}", problems
        )
    if problems:
        more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        raise ArgumentError.of("votes", "; ".join(problems[:_MAX_PROBLEMS]) + more)
    return frame.astype({"rating": float}) if rated else frame


def _converted(column: pd.Series[Any], convert: Callable[[Any], Any], rule: str, problems: list[str]) -> pd.Series[Any]:
    """Convert each value of a column; add a problem for each that is not allowed."""
    given_values = column.tolist()
    values = [convert(value) for value in given_values]
    rows: Iterable[tuple[Any, Any]] = zip(column.index, given_values, strict=True)
    problems += [
        f"{column.name} must be {rule}, got {shown_value(given)} in row {row}"
        for (row, given), value in zip(rows, values, strict=True)
        if value is None
    ]
    converted = column.astype(object)
    converted[:] = [given if value is None else value for given, value in zip(given_values, values, strict=True)]
    return converted


def _flag(value: object) -> bool | None:
    return _FLAGS.get(str(value).strip().lower())


def _rating(value: object, low: float, high: float) -> float | None:
    try:
        number = float(str(value).strip().replace(",", "."))
    except ValueError:
        return None
    return number if low <= number <= high else None
