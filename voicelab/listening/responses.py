"""Import of response tables from other programs; every row is checked before the analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from voicelab.asr.normalization import words_correct
from voicelab.errors import ArgumentError, StoreError, shown_value
from voicelab.listening.design import (
    ANCHORS,
    BY_SYSTEM,
    KINDS,
    NOISE_MASKED,
    REFERENCE,
    SCALES,
    SINGLE,
    ListeningTest,
    check_passed,
)
from voicelab.listening.webmushra import read_results
from voicelab.tables import folded, read_table

if TYPE_CHECKING:
    import pandas as pd

_MAX_PROBLEMS: Final = 20
_FLAGS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "1", "1.0"), True),
    **dict.fromkeys(("false", "no", "0", "0.0", ""), False),
}
_DEFAULTS: Final[Mapping[str, Any]] = {"check": False, "passed": True, "seconds": float("nan"), "plays": 0}
_EMPTY: Final = ("", "nan", "none", "<na>")
_WHOLE: Final = (*SINGLE, "CMOS", "BWS")
_Convert = Callable[[Any], Any]


def read_responses(test: ListeningTest, source: pd.DataFrame | str | Path, missing: object = ()) -> pd.DataFrame:
    """Read responses to a test from a table, or from a CSV or Excel file, with the columns of ``Ballot.frame``.

    A table of ratings may be long (columns system and rating) or wide (a column per system, in which an empty cell
    means that the system was not rated). Ratings may be text with a decimal point or comma. Flags may be true and
    false, yes and no, or 1 and 0. Spaces around names are removed. The columns ``check``, ``passed``, ``trial``,
    ``seconds`` and ``plays`` are optional (see ``_scored``). Results of webMUSHRA are read by ``read_results``.

    Args:
        test: the design.
        source: the table, or its file.
        missing: code or codes of missing ratings, such as 99 or ("n/a", 99). Rows with such a code are removed, and
            listed in ``attrs["notes"]`` of the result.

    Raises:
        ArgumentError: a column is missing or named like a system; a rating is empty or out of scale; a flag is invalid;
            a listener is missing; an item, a system or a scale is not in the test; or a BWS trial does not have exactly
            one best and one worst sound. The error names the column, the rows (of a file, as a spreadsheet numbers them),
            the values and the allowed values.
        StoreError: the file cannot be read.
    """
    rated, words = test.kind in SCALES, test.kind == "transcription"
    names = ["system", "against"][: 1 + (test.kind == "CMOS")] if rated else ["chosen", "other"]
    required = ["listener", "item", *["scale"] * bool(test.scales), *names]
    value = ["answer" if words else "rating"] if rated else ["right"] * (test.kind == "ABX")
    frame = source
    if str(source).lower().endswith(".sav"):
        raise StoreError(f"{source} is an SPSS file: export it as CSV or Excel")
    if isinstance(frame, str | Path):
        frame = read_table(frame, [*required, *value, *_DEFAULTS, *test.systems])
        if "session_test_id" in frame:
            return read_results(test, Path(str(source)))
    if not hasattr(frame, "columns"):
        rule = f"must be a Ballot, a table, or a CSV or Excel file, got {type(source).__name__}"
        raise ArgumentError.of("votes", rule)
    frame = frame.rename(columns=lambda name: name.strip() if isinstance(name, str) else name)
    notes: list[str] = []
    wide = test.kind in BY_SYSTEM and not {"system", *value} & {*frame}
    if wide and {*map(folded, test.systems)} & {folded(str(name)) for name in frame}:
        frame = _long(test, frame, value[0], notes)
    if frame.empty:
        return frame
    _check_columns(test, frame, [*required, *value], wide)
    added = {name: value for name, value in _DEFAULTS.items() if name not in frame}
    frame = frame.assign(**added, kind=test.kind)
    frame = frame.assign(**{name: [_name(cell) for cell in frame[name]] for name in ("listener", "item", *names)})
    missing = missing if isinstance(missing, Collection) and not isinstance(missing, str) else (missing,)
    if missing:
        frame = _without(frame, value[0], missing, notes)
    if "trial" not in frame:
        frame["trial"] = frame["listener"] + " " + frame["item"]
    flags = [name for name in ("check", "passed", "right", "first") if name in frame]
    frame = _checked(test, frame, names, flags)
    if words:
        answers = zip(frame["item"], frame["answer"].fillna("").astype(str), strict=True)
        frame["rating"] = [words_correct(test.texts[item], answer) for item, answer in answers]
    frame = _scored(test, frame, notes) if "passed" in added and frame["check"].any() else frame
    frame.attrs["notes"] = (*notes, *_doubts(test, frame))
    return frame.astype({**dict.fromkeys(flags, bool), **({"rating": float} if rated else {})})


def _check_columns(test: ListeningTest, frame: pd.DataFrame, names: Sequence[str], wide: bool) -> None:
    if absent := [name for name in names if name not in frame]:
        columns = f"{', '.join(names)}; missing: {', '.join(absent)}; got {', '.join(map(str, frame))}"
        columns += f"; in a wide table, one column for each system: {', '.join(test.systems)}" * wide
        raise ArgumentError.of("votes", f"must have the columns {columns}")
    if others := {*frame.get("kind", ())} & {*KINDS} - {test.kind}:
        raise ArgumentError.of("votes", f"kind must be {test.kind}, as in the test, got {', '.join(sorted(others))}")


def _long(test: ListeningTest, frame: pd.DataFrame, value: str, notes: list[str]) -> pd.DataFrame:
    """Convert a wide table, with a column per system, to a long table with a row per rating."""
    names = _systems(test)
    similar, others = {*map(folded, names)}, {*names, "listener", "item", "scale", "trial", *_DEFAULTS}
    wrong = [name for name in frame if name not in others and folded(str(name)) in similar]
    wrong += list(frame.columns[frame.columns.duplicated() & frame.columns.isin(names)])
    if wrong:
        rule = f"must have one column for each system, named as in the test: {', '.join(names)}"
        raise ArgumentError.of("votes", f"{rule}; rename or remove {', '.join(map(repr, wrong))}")
    systems = [name for name in names if name in frame]
    keys = [name for name in frame if name not in systems]
    long = frame.melt(keys, systems, var_name="system", value_name=value, ignore_index=False)
    empty = long[value].map(lambda cell: _name(cell).lower() in _EMPTY)
    if empty.any():
        notes.append(f"Empty cells, read as systems that were not rated: {int(empty.sum())}.")
    return long[~empty]


def _without(frame: pd.DataFrame, value: str, missing: Collection[object], notes: list[str]) -> pd.DataFrame:
    """Remove the rows in which the rating is a code for "missing"."""
    codes = {*map(_name, missing)}
    coded = frame[value].map(_name).isin(codes)
    if coded.any():
        listed = " or ".join(code or "empty" for code in sorted(codes))
        rows = ", ".join(map(str, frame.index[coded][:_MAX_PROBLEMS])) + " …" * (int(coded.sum()) > _MAX_PROBLEMS)
        notes.append(f"Missing responses, coded as {listed}: {int(coded.sum())}, in rows {rows}.")
    return frame[~coded]


def _checked(test: ListeningTest, frame: pd.DataFrame, names: Sequence[str], flags: Sequence[str]) -> pd.DataFrame:
    """Convert all columns to their types. Raises ArgumentError, which lists the values that are not allowed."""
    systems = [*_systems(test), NOISE_MASKED]
    items = [*test.items, *(f"trap {rating}" for rating in test.traps)]
    listed = (
        f"one of the {len(test.items)} items of the test ({', '.join(list(test.items)[:4])}{' …' * (len(items) > 4)})"
    )
    rules: dict[str, tuple[_Convert, str]] = {
        "listener": (lambda name: name or None, "a name or number"),
        "item": (_member(items), listed),
        **dict.fromkeys(names, (_member(systems), f"one of {', '.join(test.systems)}")),
        **dict.fromkeys(flags, (_flag, "true or false")),
    }
    if test.scales:
        rules["scale"] = (_member(list(test.scales)), f"one of {', '.join(test.scales)}")
    if test.kind in SCALES and test.kind != "transcription":
        low, high = SCALES[test.kind]
        rules["rating"] = (partial(_rating, low, high), f"a number from {low} to {high}")
    problems: list[str] = []
    columns = {}
    for name, (convert, rule) in rules.items():
        cells = frame[name].tolist()
        columns[name] = [convert(value) for value in cells]
        wrong = [
            f"got {shown_value(value)} in row {row}"
            for row, value, converted in zip(frame.index, cells, columns[name], strict=True)
            if converted is None
        ]
        if name == names[-1] and len(names) == 2:  # a pair of systems
            pairs = zip(frame.index, *(frame[column] for column in names), strict=True)
            # Both sounds of a trapping question are the same.
            wrong += [
                f"got {names[0]} {first!r} again in row {row}"
                for row, first, second in pairs
                if first == second != NOISE_MASKED
            ]
        if wrong:
            more = [f"and {len(wrong) - _MAX_PROBLEMS} more"] * (len(wrong) > _MAX_PROBLEMS)
            empty = name == "rating" and any(not _name(value) for value in cells)
            hint = '; empty ratings are missing ones with missing=[""]' * empty
            problems.append(", ".join([f"{name} must be {rule}", *wrong[:_MAX_PROBLEMS], *more]) + hint)
    frame = frame.assign(**columns)
    if test.kind == "BWS" and not problems:
        for _, trial in frame.groupby(["listener", "trial"], sort=False)["rating"]:
            if sorted(trial) != [-1.0, *[0.0] * (len(trial) - 2), 1.0]:
                got = f"got {', '.join(f'{rating:g}' for rating in trial)} in rows {', '.join(map(str, trial.index))}"
                problems.append(f"rating must be 1 (best) once, -1 (worst) once and otherwise 0 in each trial, {got}")
        more = [f"and {len(problems) - _MAX_PROBLEMS} more trials"] * (len(problems) > _MAX_PROBLEMS)
        problems = [*problems[:_MAX_PROBLEMS], *more]
    if problems:
        raise ArgumentError.of("votes", "; ".join(problems))
    return frame


def _systems(test: ListeningTest) -> list[str]:
    return [*test.systems, *([REFERENCE, *ANCHORS] if test.kind == "MUSHRA" else [])]


def _scored(test: ListeningTest, frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Derive the column ``passed`` from the answers to attention checks; of several scales, the first is used."""
    first = next(iter(test.scales), None)
    wanted = {f"trap {rating}": rating for rating in test.traps}

    def passed(row: dict[Any, Any]) -> bool | None:
        if not row["check"] or row.get("scale") != first:
            return True
        if test.kind == "ABX":
            return bool(row["right"])
        if test.kind not in SINGLE and row["item"] not in wanted and NOISE_MASKED not in row.values():
            return None
        if test.kind == "AB":
            return bool(row["chosen"] != NOISE_MASKED)
        return check_passed(row["rating"], test.kind, wanted.get(row["item"]), row.get("against", ""))

    scores = [passed(row) for row in frame.to_dict("records")]
    if unknown := scores.count(None):
        notes.append(
            f"Responses to attention checks that count as passed: {unknown}, because there is neither a column passed "
            f"nor a system {NOISE_MASKED!r} from which to derive it."
        )
    frame = frame.assign(passed=[score is not False for score in scores])
    return (
        frame.assign(passed=frame.groupby(["listener", "trial"])["passed"].transform("min")) if test.scales else frame
    )


def _doubts(test: ListeningTest, frame: pd.DataFrame) -> Iterator[str]:
    """Yield notes on values that are allowed but improbable."""
    columns = [frame[name] for name in ("system", "against", "chosen", "other") if name in frame]
    if absent := [system for system in test.systems if not any((column == system).any() for column in columns)]:
        yield f"Systems without responses: {', '.join(absent)}."
    if len(columns) > 1 and not absent:
        compared = {frozenset(pair) for pair in zip(*columns, strict=True)}
        if pairs := [pair for pair in test.pairs if frozenset(pair) not in compared]:
            yield f"Pairs without responses: {', '.join(' and '.join(pair) for pair in pairs)}."
    listeners: dict[str, str] = {}
    for name in frame["listener"].unique():
        if (similar := listeners.setdefault(name.casefold(), name)) != name:
            yield f"{similar!r} and {name!r} count as two listeners, but their names differ only in case."
    if test.kind in _WHOLE and len(rows := frame.index[frame["rating"].astype(float) % 1 != 0]):
        yield f"Ratings that are not whole numbers: {len(rows)}, as in row {rows[0]}; check whether they are averages."


def _name(value: object) -> str:
    """Convert a name to trimmed text; a whole number loses its fraction, and a missing value becomes ""."""
    if value is None or str(value) == "<NA>" or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _member(names: Collection[str]) -> _Convert:
    return lambda value: name if (name := _name(value)) in names else None


def _flag(value: object) -> bool | None:
    return _FLAGS.get(str(value).strip().lower())


def _rating(low: float, high: float, value: object) -> float | None:
    try:
        number = float(str(value).strip().replace(",", "."))
    except ValueError:
        return None
    return number if low <= number <= high else None
