"""Axis: a varied field. Grid: combinations of values, or rows of a table, as validated calls."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from pydantic import BaseModel

from voicelab.call import (
    EXTRA,
    Call,
    Knob,
    VoicePreset,
    check_seed,
    field_name,
    frozen,
    is_field,
    parse_value,
    value_kind,
    voice_id,
)
from voicelab.errors import FieldError, RequestInvalid, StoreError, shown_value, suggestion
from voicelab.recordings import sidecar
from voicelab.schema import ReferenceAudio, TTSRequest, VoiceModel
from voicelab.session import recorded
from voicelab.tables import bytes_of, read_table
from voicelab.takes.rows import value_label

if TYPE_CHECKING:
    import pandas as pd

MAX_VALUES: Final = 10_000
"""Maximum number of values of an axis."""

# Cost of changing a field: a change of backend loads weights, a change of voice encodes references.
_COST: Final = {"backend": 4, "model": 3, "reference_id": 2, "references": 2, "text": 1}
# Comma-separated values, with commas inside double quotes.
_ITEMS: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"|")+')
# Maximum number of digits of a decimal before or after the point.
_MAX_DIGITS: Final = 30
_TEMPLATE: Final = re.compile(r"\{(?:\{([^\W\d]\w*)\}|([^\W\d]\w*))\}")
_RANGE: Final = re.compile(r"^\s*(?P<start>\S+)\s*\.\.\s*(?P<stop>\S+)(?:\s+step\s+(?P<step>\S+))?\s*$")


@dataclass(frozen=True, slots=True)
class Axis:
    """A varied field.

    Args:
        name: a field of TTSRequest (also ``prosody.speed`` and ``prosody.volume``), ``model``, ``seed``, ``backend``, the
            name of ``knob``, or a placeholder: ``{tag}`` in the text is replaced by the values of an axis ``tag``.
        values: the values.
        labels: unique labels of the values in tables.
        knob: a parameter of the backend.
        template: whether ``name`` is a placeholder in the text.
    """

    name: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    knob: Knob | None = None
    template: bool = False

    @classmethod
    def of(cls, name: str, values: object, knobs: Iterable[Knob] = (), *, template: bool = False) -> Self:
        """Create an axis from its values.

        Args:
            name: a field; ``voice`` means ``reference_id``, ``speed`` and ``volume`` mean the fields of ``prosody``.
            values: a list, a mapping from labels to values, or text such as ``"0.2..1.0 step 0.2"`` or ``"low,
                normal"``. Voices may be given as ids, presets or records.
            knobs: parameters of the backends.
            template: whether ``name`` is a placeholder in the text.

        Raises RequestInvalid for an unknown field, or for missing, repeated or invalid values.
        """
        name = field_name(name)
        knob = _knob(name, knobs)
        labels: tuple[str, ...] | None = None
        if isinstance(values, Mapping):
            labels = tuple(str(label) for label in values)
            listed: tuple[Any, ...] = tuple(values.values())
        elif isinstance(values, str):
            listed = (values,) if name == "text" else parse_values(name, values, knob)
        elif isinstance(values, Iterable):
            listed = tuple(values)
        else:
            listed = (values,)
        if not listed:
            raise RequestInvalid.of(name, "the axis has no values", type="too_short")
        if len(listed) > MAX_VALUES:
            message = f"an axis must have at most {MAX_VALUES} values, got {len(listed)}"
            raise RequestInvalid.of(name, message, type="too_long")
        checked = tuple(_checked(name, value, knob, template) for value in listed)
        labels = labels or tuple(label(value, index) for index, value in enumerate(checked))
        repeated = [text for text, count in Counter(labels).items() if count > 1]
        if repeated:
            raise RequestInvalid.of(
                name, f"values must be unique, got {min(repeated)} more than once", type="duplicate"
            )
        return cls(name, checked, labels, knob, template)

    @property
    def cost(self) -> int:
        """Cost rank of a change of value; axes with the highest cost vary slowest."""
        return _COST["text"] if self.template else _COST.get(self.name, 0)

    def __len__(self) -> int:
        return len(self.values)


def varied(name: str, value: object, knobs: Iterable[Knob] = ()) -> bool:
    """Return whether the value of a keyword is an axis: a list, a mapping from labels, or a range as text.

    A list of ReferenceAudio, a mapping for ``prosody``, and a mapping from voices to weights (a blend) are single values.
    """
    if name == "references":
        return isinstance(value, Iterable) and not all(isinstance(item, ReferenceAudio) for item in value)
    if isinstance(value, str | bytes):
        return not _is_text(name, _knob(name, knobs)) and any(map(_RANGE.match, str(value).split(",")))
    if isinstance(value, Mapping):
        blend = field_name(name) == "reference_id" and all(isinstance(weight, int | float) for weight in value.values())
        return name not in ("prosody", "extra") and not blend
    return isinstance(value, Iterable) and not isinstance(value, BaseModel)


def _knob(name: str, knobs: Iterable[Knob]) -> Knob | None:
    return next((knob for knob in knobs if knob.name == name), None)


def _is_text(name: str, knob: Knob | None = None) -> bool:
    """Return whether the values of a field are text, in which numbers and ranges are not parsed."""
    return name == "backend" or value_kind(name, (knob,) if knob else ())[0] is str


def parse_values(name: str, text: str, knob: Knob | None = None) -> tuple[Any, ...]:
    """Parse comma-separated values and ranges: ``"0.2..1.0 step 0.2"`` (inclusive), ``"0.2, 0.7, 1"``, ``"low, normal"``.

    A range is computed in decimal arithmetic, so 0.2..1.0 step 0.2 is exactly 0.2, 0.4, 0.6, 0.8, 1.0. For integers,
    the default step is 1. ``true``, ``on``, ``false`` and ``off`` are Booleans, and ``null`` is None. Commas inside
    double quotes do not separate values. Raises RequestInvalid, which names the axis.
    """
    name = field_name(name)
    values: list[Any] = []
    for item in map(str.strip, _ITEMS.findall(text)):
        matched = None if _is_text(name, knob) else _RANGE.match(item)
        if matched is not None:
            values += _range(name, item, matched)
        elif item:
            values.append(_token(name, item, knob))
    return tuple(values)


def written(axis: Axis) -> str | None:
    """Format the values of an axis for ``parse_values``, texts as JSON strings; None for reference audio."""
    if axis.name == "references":
        return None
    listed = ", ".join(_typed(axis.name, value, axis.knob) for value in axis.values)
    numbers = [value for value in axis.values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < max(3, len(axis)):
        return listed
    start, second, stop = (Decimal(repr(numbers[index])) for index in (0, 1, -1))
    spanned = f"{_plain(start)}..{_plain(stop)} step {_plain(second - start)}"
    with suppress(RequestInvalid):
        if parse_values(axis.name, spanned, axis.knob) == axis.values:
            return spanned
    return listed


def _range(name: str, text: str, matched: re.Match[str]) -> tuple[float | int, ...]:
    def wrong(problem: str, type: str = "range_invalid") -> RequestInvalid:
        return RequestInvalid.of(name, f"{text!r} {problem}", type=type)

    try:
        start, stop, step = (Decimal(matched[name] or "NaN") for name in ("start", "stop", "step"))
    except InvalidOperation:
        raise wrong("must be a range such as 0.2..1.0 step 0.2") from None
    if not all(map(Decimal.is_finite, (start, stop, step) if matched["step"] else (start, stop))):
        raise wrong("must be finite")
    if any(number and not -_MAX_DIGITS <= number.adjusted() <= _MAX_DIGITS for number in (start, stop, step)):
        raise wrong(f"must have numbers of magnitude 1e-{_MAX_DIGITS} to 1e{_MAX_DIGITS}")
    if not matched["step"]:
        if start != int(start) or stop != int(stop):
            raise wrong("needs a step, as in 0.2..1.0 step 0.2")
        step = Decimal(1) if stop >= start else Decimal(-1)
    if step == 0 or (stop - start) / step < 0:
        raise RequestInvalid.of(
            name, f"the step must be {'negative' if stop < start else 'positive'}, got {text!r}", type="range_invalid"
        )
    if (stop - start) / step >= MAX_VALUES:
        raise wrong(f"has more than {MAX_VALUES} values", "too_long")
    values = (start + step * index for index in range(int((stop - start) / step) + 1))
    return tuple(int(value) if value.as_tuple().exponent == 0 else float(value) for value in values)


def label(value: Any, index: int = 0) -> str:
    """Return the label of a value: the value itself for numbers and texts, "references 1" for reference audio."""
    if isinstance(value, tuple) and value and isinstance(value[0], ReferenceAudio):
        return f"references {index + 1}"
    return value_label(value)


def template_names(text: str) -> tuple[str, ...]:
    """List the placeholders ``{name}`` of a text; ``{{name}}`` is literal text."""
    return tuple(dict.fromkeys(match[2] for match in _TEMPLATE.finditer(text) if match[2]))


def literal(text: Any) -> Any:
    """Return a text in which all braces are literal; other values are unchanged."""
    return _TEMPLATE.sub(r"{\g<0>}", text) if isinstance(text, str) else text


def check_placeholders(text: str, names: Collection[str]) -> None:
    """Raise RequestInvalid for a placeholder of a text that is not among the ``names`` of axes."""
    for name in template_names(text):
        if name not in names:
            problem = "is the name of a field: rename it" if is_field(name) else f"has no axis: pass {name}=[…]"
            message = f"the placeholder {{{name}}} {problem}, or write {{{{{name}}}}} for literal braces"
            raise RequestInvalid.of(
                "text", message + suggestion(name, [given for given in names if not is_field(given)])
            )


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """Replace the placeholders of a text by values. Raises RequestInvalid for a placeholder that has no value."""
    check_placeholders(text, values)
    words = {name: label(value) if value != "" else "" for name, value in values.items()}
    return _TEMPLATE.sub(lambda match: match[0][1:-1] if match[1] else words[match[2]], text)


def _checked(name: str, value: object, knob: Knob | None = None, template: bool = False) -> Any:
    if isinstance(value, np.generic):
        value = value.item()  # NumPy scalars, as from np.arange
    if template:
        if not isinstance(value, str | int | float):
            raise RequestInvalid.of(name, f"must be text or a number, got {type(value).__name__}")
        return value
    if knob is not None:
        return knob.check(value)
    if name.startswith(EXTRA):
        return frozen(value)
    if name == "backend":
        if not isinstance(value, str) or not value:
            raise RequestInvalid.of(name, f"must name a backend (pass lab={{name: lab}}), got {shown_value(value)}")
        return value
    if name == "seed":
        return check_seed(value)
    if name == "reference_id" and isinstance(value, VoicePreset | VoiceModel | Mapping):
        value = voice_id(value)
    if name.startswith("prosody."):
        field = name.removeprefix("prosody.")
        return getattr(TTSRequest.build(text="axis", prosody={field: value}).prosody, field)
    if name == "references" and isinstance(value, ReferenceAudio):
        value = (value,)
    fields = {name: value}
    if name == "sample_rate" and value is not None:
        # Sample rates depend on the format, so the grid checks them in complete calls.
        fields["format"] = "opus" if value == 48_000 else "wav"
    call = Call.of("axis").replace(**fields)
    return call.model if name == "model" else getattr(call.request, name)


def _token(name: str, text: str, knob: Knob | None = None) -> object:
    """Parse one of several comma-separated values; text in double quotes is literal."""
    if text.startswith('"'):
        with suppress(ValueError):
            return json.loads(text)
    return text if name == "backend" else parse_value(name, text, (knob,) if knob else ())


def _typed(name: str, value: object, knob: Knob | None) -> str:
    """Format a value for ``_token``; text is quoted only if it would be ambiguous."""
    if isinstance(value, bool):
        return label(value)
    if isinstance(value, float):
        return _plain(Decimal(repr(value)))
    if isinstance(value, str) and name != "text" and value == value.strip() != "" and not set(value) & set(',"'):
        bare = _is_text(name, knob) or _RANGE.match(value) is None
        if bare and _token(name, value, knob) == value:
            return value
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"


Rows = Mapping[str, tuple[int, ...]]
"""Rows by name ("row 3"). A row has, for each column, the index of its value on the column's axis."""


def axes_of_rows(rows: Any, knobs: Iterable[Knob] = (), text: str | None = None) -> tuple[list[Axis], Rows]:
    """Convert each column of a table to an axis, and each row to indices on these axes.

    Args:
        rows: a DataFrame, a sequence of mappings, or the path of a CSV file with a header row. Missing values, NaN and
            empty cells of a file are filled with the sweep's value of the field, or with "" for a placeholder.
            ``references`` may be a file, relative to the CSV file, with its transcript in ``reference_text`` or NAME.txt.
        knobs: parameters of the backends, which may be columns.
        text: text of rows that have none.

    Raises RequestInvalid, which names row and column, for an invalid value, an unknown column, a repeated row, or a missing
    text; StoreError for a file that cannot be read.
    """
    table = _table(rows)
    names = [f"row {name}" for name in table.index]
    paths, troubles = _read_references(table, names, Path(rows).parent if isinstance(rows, str | Path) else Path())
    texts = [text] if "text" not in table else [value or text for value in table["text"]]
    templates = {
        name for value in texts if isinstance(value, str) for name in template_names(value) if not is_field(name)
    }
    troubles += [
        FieldError(("body", "text"), "missing", f"{names[index]}: text is required")
        for index, value in enumerate(texts)
        if not value
    ]
    axes, columns = list[Axis](), list[list[int]]()
    for column in table:
        knob = _knob(str(column), knobs)
        template, name = column in templates, field_name(str(column))
        if not (template or knob or name == "backend" or is_field(name)):
            hint = suggestion(name, ["text", "voice", "speed", "volume", *TTSRequest.model_fields])
            message = f"must be a field, or {{{column}}} in a text{hint}"
            troubles.append(FieldError(("body", str(column)), "extra_forbidden", message))
            continue
        values: dict[Any, tuple[int, Any]] = {}
        columns.append([])
        for row, cell in zip(names, table[column], strict=True):
            try:
                value = _cell(name, cell, knob, template, isinstance(rows, str | Path))
            except RequestInvalid as error:
                problem = error.errors[0].msg
                message = f"{row}: {problem}" + ("" if ", got " in problem else f", got {shown_value(cell)}")
                troubles.append(FieldError(("body", str(column)), error.errors[0].type, message))
                continue
            columns[-1].append(values.setdefault(value if value.__hash__ else id(value), (len(values), value))[0])
        labels: dict[str, None] = {}
        for index, value in values.values():
            name_of_value = paths.get(value) or label(value, index) if value.__hash__ else label(value, index)
            labels[name_of_value if name_of_value not in labels else f"{value} ({index + 1})"] = None
        axes.append(Axis(name, tuple(value for _, value in values.values()), tuple(labels), knob, template))
    if troubles:
        raise RequestInvalid(troubles)
    positions = dict(zip(names, zip(*columns, strict=True), strict=True))
    unique: dict[tuple[int, ...], str] = {}
    for row, indices in positions.items():
        if unique.setdefault(indices, row) != row:
            raise RequestInvalid.of(
                "rows", f"rows must be unique, {row} equals {unique[indices]}; for several takes, pass repeats=N"
            )
    return axes, MappingProxyType(positions)


def _read_references(
    table: pd.DataFrame, names: Iterable[str], folder: Path
) -> tuple[dict[Any, str], list[FieldError]]:
    """Replace the files of the column ``references`` by their audio.

    Returns the paths by value, and the errors of unreadable files.

    The transcript is read from the column ``reference_text``, which is removed, or from NAME.txt next to the file.
    """
    import pandas as pd

    texts = table.pop("reference_text") if "reference_text" in table else itertools.repeat(None)
    values: dict[tuple[str, str], Any] = {}
    paths: dict[Any, str] = {}
    troubles = []
    cells: list[Any] = []
    for row, cell, text in zip(names, table.get("references", ()), texts, strict=False):
        if not cell or not isinstance(cell, str | Path):
            cells.append(recorded({"references": cell})["references"] if cell else None)
            continue
        file = folder / cell
        key = (str(file), str(text or sidecar(file)))
        try:
            if key not in values:
                values[key] = (ReferenceAudio.build(audio=bytes_of(file), text=key[1]),)
            paths.setdefault(values[key], str(cell))
        except (StoreError, RequestInvalid) as error:
            troubles.append(FieldError(("body", "references"), "not_found", f"{row}: {error}"))
        cells.append(values.get(key))
    if "references" in table:
        table["references"] = pd.Series(cells, index=table.index, dtype=object)
    return paths, troubles


def _table(rows: Any) -> pd.DataFrame:
    """Read rows as a DataFrame of objects, with None for missing values; mappings and repeated labels are numbered from 1."""
    import pandas as pd

    table: pd.DataFrame = rows
    if isinstance(rows, str | Path):
        table = read_table(rows, TTSRequest.model_fields)
    elif not isinstance(rows, pd.DataFrame):
        try:
            listed = list(rows)
            table = pd.DataFrame(listed, index=range(1, len(listed) + 1), dtype=object)
        except (ValueError, TypeError) as error:
            message = f"must be a DataFrame, mappings or the path of a CSV or Excel file: {error}"
            raise RequestInvalid.of("rows", message) from error
    if table.empty:
        raise RequestInvalid.of("rows", "must have at least one row, got none", type="too_short")
    if not table.index.is_unique:
        table = table.set_axis(range(1, len(table) + 1))
    filled: pd.DataFrame = table.astype(object).where(table.notna(), None)
    return filled


def _cell(name: str, value: Any, knob: Knob | None, template: bool, typed: bool) -> Any:
    """Convert a cell to a value of its axis; None if it is missing. Raises RequestInvalid."""
    if value is None or (typed and value == ""):
        return "" if template else None
    if typed and isinstance(value, str) and not template and name not in ("text", "references"):
        is_float = value_kind(name, (knob,) if knob else ())[0] is float  # integers may have commas of thousands
        value = _token(name, value.replace(",", ".") if is_float else value, knob)
    if isinstance(value, float) and value.is_integer() and value_kind(name, (knob,) if knob else ())[0] is int:
        value = int(value)  # pandas stores integers as floats in a column with NaN
    return _checked(name, value, knob, template)


MAX_TAKES: Final = 1_000_000
"""Maximum number of takes of a sweep."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of values, with its index in the grid, a label for each axis, and its call.

    The call has a seed only if ``seed`` is an axis; otherwise the repeat determines the seed.
    """

    index: int
    labels: Mapping[str, str]
    values: Mapping[str, Any]
    call: Call
    backend: str
    template: str = ""
    """Text with its placeholders; "" if it has none."""

    @property
    def plain(self) -> dict[str, str | int | float]:
        """Values as tables and manifests show them: numbers and texts unchanged, voices and all other values as labels."""
        shown = {
            name: value
            if isinstance(value, str | int | float) and value != "" and name != "reference_id"
            else self.labels[name]
            for name, value in self.values.items()
        }
        if "text" in shown and not self.template:
            shown["text"] = self.call.request.text  # with single braces
        return shown


@dataclass(frozen=True, slots=True)
class Job:
    """One planned take: its cell, the index of the repeat, and the seed, which is the same for this repeat in every cell."""

    cell: Cell
    repeat: int
    seed: int | None

    @property
    def call(self) -> Call:
        """Call of the take."""
        return replace(self.cell.call, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Grid:
    """All cells in the order of the axes; ``jobs()`` returns the takes in the order with the fewest costly changes."""

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    repeats: int
    seeds: tuple[int, ...]

    @classmethod
    def of(
        cls,
        base: Call,
        axes: Sequence[Axis],
        *,
        repeats: int = 1,
        seed: int = 0,
        backend: str = "",
        bases: Mapping[str, Call] = MappingProxyType({}),
        rows: Rows = MappingProxyType({}),
    ) -> Grid:
        """Validate every combination and return the grid.

        If there are ``rows``, the first axes are their columns, and only the combinations in the rows are used. The seeds of
        the repeats are drawn from ``seed`` and are the same in every cell, so that cells differ by their parameters only.
        ``bases`` has the base call of each backend, whose text is replaced by that of ``base``.

        Raises RequestInvalid if two axes have the same name, repeats is below 1, there are too many takes, or a
        combination is invalid, such as a sample rate that the format does not support.
        """
        width = len(next(iter(rows.values()), ()))
        lengths = [len(axis) for axis in axes[width:]]
        _check_shape(axes, repeats * max(len(rows), 1) * math.prod(lengths), repeats)
        cells: list[Cell] = []
        troubles: dict[str, FieldError] = {}
        knobs = [axis.knob for axis in axes if axis.knob is not None]
        text = base.request.text
        bases = {name: call.replace(text=text, seed=None) for name, call in bases.items()}
        combinations = itertools.product(rows.items() or [("", ())], itertools.product(*map(range, lengths)))
        for index, ((row, row_indices), axis_indices) in enumerate(combinations):
            indices = (*row_indices, *axis_indices)
            values = {axis.name: axis.values[i] for axis, i in zip(axes, indices, strict=True)}
            labels = {axis.name: axis.labels[i] for axis, i in zip(axes, indices, strict=True)}
            speaker = values.get("backend", backend)
            try:
                call, template = _call(bases.get(speaker, base), values, axes, knobs, width)
            except RequestInvalid as error:
                items = [replace(item, msg=f"{row}: {item.msg}") if row else item for item in error.errors]
                troubles.update({str(item): item for item in items})
                continue
            cells.append(Cell(index, MappingProxyType(labels), MappingProxyType(values), call, speaker, template))
        if troubles:
            raise RequestInvalid(troubles.values())
        # Seeds have 63 bits.
        drawn = np.random.SeedSequence(seed).generate_state(repeats, np.uint64) >> np.uint64(1)
        return cls(tuple(axes), tuple(cells), repeats, tuple(map(int, drawn)))

    def __len__(self) -> int:
        """Return the number of takes."""
        return len(self.cells) * self.repeats

    def position(self, job: Job) -> int:
        """Return the index of a take in the order of the cells; the repeats of a cell are adjacent."""
        return job.cell.index * self.repeats + job.repeat

    def jobs(self) -> tuple[Job, ...]:
        """Return all takes, ordered so that costly fields (backend, model, voice, text) change least often."""
        costly = sorted((axis for axis in self.axes if axis.cost), key=lambda axis: -axis.cost)
        ranks = {axis.name: {text: rank for rank, text in enumerate(axis.labels)} for axis in costly}

        def order(cell: Cell) -> tuple[int, ...]:
            return (*(ranks[axis.name][cell.labels[axis.name]] for axis in costly), cell.index)

        return tuple(
            Job(cell, repeat, self.seeds[repeat] if cell.call.seed is None else cell.call.seed)
            for cell in sorted(self.cells, key=order)
            for repeat in range(self.repeats)
        )


def _call(
    start: Call, values: Mapping[str, Any], axes: Sequence[Axis], knobs: Iterable[Knob], width: int
) -> tuple[Call, str]:
    """Return the call of a cell and the template of its text; values that a row lacks are taken from ``start``."""
    fields = {
        axis.name: values[axis.name]
        for index, axis in enumerate(axes)
        if not axis.template and axis.name != "backend" and not (index < width and values[axis.name] is None)
    }
    text = fields.get("text", start.request.text)
    names = template_names(text)
    for axis in axes[width:]:
        if axis.template and axis.name not in names:
            raise RequestInvalid.of(axis.name, f"the text must contain {{{axis.name}}}, got {text!r}")
    filled = _filled(text, {axis.name: values[axis.name] for axis in axes if axis.template})
    return start.replace(knobs, **fields | ({} if filled == text else {"text": filled})), text if names else ""


def _check_shape(axes: Sequence[Axis], total: int, repeats: int) -> None:
    names = Counter(axis.name for axis in axes)
    if max(names.values(), default=0) > 1:
        raise RequestInvalid.of(names.most_common(1)[0][0], "axes must have unique names", type="duplicate")
    if type(repeats) is not int or repeats < 1:
        raise RequestInvalid.of(
            "repeats", f"must be a whole number, 1 or more, got {shown_value(repeats)}", type="int_type"
        )
    if "seed" in names and repeats > 1:
        message = f"must be 1 with an axis of seeds, got {repeats}"
        raise RequestInvalid.of("repeats", message, type="value_error")
    if total > MAX_TAKES:
        message = f"a grid must have at most {MAX_TAKES} takes, got {total}"
        raise RequestInvalid.of("repeats", message, type="too_long")
