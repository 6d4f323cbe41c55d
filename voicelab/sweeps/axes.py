"""Axis: one field that a sweep varies; Grid: every combination, or rows, of their values as checked calls, and the takes."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from pydantic import BaseModel

from voicelab.call import Call, Knob, VoicePreset, check_seed, field_name, is_field, parse_value, value_kind, voice_id
from voicelab.errors import FieldError, RequestInvalid, StoreError, suggestion
from voicelab.schema import ReferenceAudio, TTSRequest, VoiceModel
from voicelab.takes.rows import value_label

if TYPE_CHECKING:
    import pandas as pd

MAX_VALUES: Final = 10_000
"""Values of one axis; more is a slip of the step."""

# What a change of it costs a backend: another backend loads weights, another voice encodes references.
_COST: Final = {"backend": 4, "model": 3, "reference_id": 2, "references": 2, "text": 1}
# Between commas; a comma inside double quotes is part of a value.
_PARTS: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"|")+')
# Numbers of more digits, before or after the point, would take long to reckon with.
_DIGITS: Final = 30
_TEMPLATE: Final = re.compile(r"\{(?:\{([^\W\d]\w*)\}|([^\W\d]\w*))\}")
_RANGE: Final = re.compile(r"^\s*(?P<first>\S+)\s*\.\.\s*(?P<last>\S+)(?:\s+step\s+(?P<step>\S+))?\s*$")


@dataclass(frozen=True, slots=True)
class Axis:
    """One varied field.

    ``name`` is a field of TTSRequest (``prosody.speed`` and ``prosody.volume`` too), or ``model``, ``seed``
    or ``backend``, which stand beside the request, or ``knob``, a parameter of the backend's own, or of a template:
    ``{tag}`` in the text is filled with the values of an axis ``tag``. ``labels`` name the values in tables; they are unique.
    """

    name: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    knob: Knob | None = None
    template: bool = False

    @classmethod
    def of(cls, name: str, values: object, knobs: Iterable[Knob] = (), *, template: bool = False) -> Self:
        """Make an axis from what people write.

        Args:
            name: a field; ``voice`` stands for ``reference_id``, ``speed`` and ``volume`` for those of prosody.
            values: a list; a mapping from labels to values; or text such as ``"0.2..1.0 step 0.2"`` or
                ``"low, normal"``. Voices may be ids, presets or records.
            knobs: parameters of the backends' own, which ``name`` may be one of.
            template: whether ``name`` is one in braces in the text.

        Raises RequestInvalid: an unknown field, no values, the same value twice, one out of its bounds.
        """
        name = field_name(name)
        knob = _knob(name, knobs)
        labels: tuple[str, ...] | None = None
        if isinstance(values, Mapping):
            labels = tuple(str(label) for label in values)
            several: tuple[Any, ...] = tuple(values.values())
        elif isinstance(values, str):
            several = (values,) if name == "text" else parse_values(name, values, knob)
        elif isinstance(values, Iterable):
            several = tuple(values)
        else:
            several = (values,)
        if not several:
            raise RequestInvalid.of(name, "the axis has no values", type="too_short")
        if len(several) > MAX_VALUES:
            message = f"the axis has {len(several)} values; at most {MAX_VALUES} are taken"
            raise RequestInvalid.of(name, message, type="too_long")
        checked = tuple(_checked(name, value, knob, template) for value in several)
        labels = labels or tuple(label(value, place) for place, value in enumerate(checked))
        twice = [text for text, count in Counter(labels).items() if count > 1]
        if twice:
            raise RequestInvalid.of(name, f"the axis has {min(twice)} more than once", type="duplicate")
        return cls(name, checked, labels, knob, template)

    @property
    def cost(self) -> int:
        """How dear a change of value is to a backend; the dearest axes vary slowest."""
        return _COST["text"] if self.template else _COST.get(self.name, 0)

    def __len__(self) -> int:
        return len(self.values)


def varied(name: str, value: object, knobs: Iterable[Knob] = ()) -> bool:
    """Whether a keyword's value means an axis: a list, a mapping of labels, or a range in words.

    A list of ReferenceAudio is one value, and so is a mapping for ``prosody``, and of voices to weights: a blend.
    """
    if name == "references":
        return isinstance(value, Iterable) and not all(isinstance(item, ReferenceAudio) for item in value)
    if isinstance(value, str | bytes):
        return not _is_text(name, _knob(name, knobs)) and any(map(_RANGE.match, str(value).split(",")))
    if isinstance(value, Mapping):
        blend = field_name(name) == "reference_id" and all(isinstance(weight, int | float) for weight in value.values())
        return name != "prosody" and not blend
    return isinstance(value, Iterable) and not isinstance(value, BaseModel)


def _knob(name: str, knobs: Iterable[Knob]) -> Knob | None:
    return next((knob for knob in knobs if knob.name == name), None)


def _is_text(name: str, knob: Knob | None = None) -> bool:
    """Whether values are words: what looks like a number or a range there is an id all the same."""
    return name == "backend" or value_kind(name, (knob,) if knob else ())[0] is str


def parse_values(name: str, text: str, knob: Knob | None = None) -> tuple[Any, ...]:
    """Read ``"0.2..1.0 step 0.2"`` (both ends included), ``"0.2, 0.7, 1"``, ``"low, normal"``, or several, with commas.

    A range counts in decimals, so that 0.2..1.0 step 0.2 is 0.2, 0.4, 0.6, 0.8, 1.0 and nothing beside it;
    without a step whole numbers count by 1. ``true`` and ``on``, ``false`` and ``off``, and ``null`` are those values;
    double quotes keep a comma. Raises RequestInvalid naming the axis.
    """
    name = field_name(name)
    values: list[Any] = []
    for part in map(str.strip, _PARTS.findall(text)):
        matched = None if _is_text(name, knob) else _RANGE.match(part)
        if matched is not None:
            values += _range(name, part, matched)
        elif part:
            values.append(_token(name, part, knob))
    return tuple(values)


def written(axis: Axis) -> str | None:
    """Return an axis as ``parse_values`` reads it, ranges as ranges; None for audio, which nobody types.

    Texts are JSON strings. Labels that somebody gave are not in it.
    """
    if axis.name == "references":
        return None
    listed = ", ".join(_typed(axis.name, value, axis.knob) for value in axis.values)
    numbers = [value for value in axis.values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < max(3, len(axis)):
        return listed
    first, second, last = (Decimal(repr(numbers[place])) for place in (0, 1, -1))
    spanned = f"{_plain(first)}..{_plain(last)} step {_plain(second - first)}"
    with suppress(RequestInvalid):
        if parse_values(axis.name, spanned, axis.knob) == axis.values:
            return spanned
    return listed


def _range(name: str, text: str, matched: re.Match[str]) -> tuple[float | int, ...]:
    def wrong(problem: str, type: str = "range_invalid") -> RequestInvalid:
        return RequestInvalid.of(name, f"{text!r} {problem}", type=type)

    try:
        first, last, step = (Decimal(matched[part] or "NaN") for part in ("first", "last", "step"))
    except InvalidOperation:
        raise wrong("is no range; write it as 0.2..1.0 step 0.2") from None
    if not all(map(Decimal.is_finite, (first, last, step) if matched["step"] else (first, last))):
        raise wrong("has no end")
    if any(number and not -_DIGITS <= number.adjusted() <= _DIGITS for number in (first, last, step)):
        raise wrong("has numbers that no field takes")
    if not matched["step"]:
        if first != int(first) or last != int(last):
            raise wrong("needs a step, as in 0.2..1.0 step 0.2")
        step = Decimal(1) if last >= first else Decimal(-1)
    if step == 0 or (last - first) / step < 0:
        raise RequestInvalid.of(name, f"the step of {text!r} never leads to its end", type="range_invalid")
    if (last - first) / step >= MAX_VALUES:
        raise wrong(f"has more than {MAX_VALUES} values", "too_long")
    values = (first + step * place for place in range(int((last - first) / step) + 1))
    return tuple(int(value) if value.as_tuple().exponent == 0 else float(value) for value in values)


def label(value: Any, index: int = 0) -> str:
    """Label a value of an axis: numbers and texts as they are, reference audio by its index."""
    if isinstance(value, tuple) and value and isinstance(value[0], ReferenceAudio):
        return f"references {index + 1}"
    return value_label(value)


def template_names(text: str) -> tuple[str, ...]:
    """Return the names in braces in a text, ``{name}``; ``{{name}}`` is said with braces, and so is what is no name."""
    return tuple(dict.fromkeys(match[2] for match in _TEMPLATE.finditer(text) if match[2]))


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with values in the place of the names in braces. Raises RequestInvalid where one has none."""
    for name in template_names(text):
        if name not in values:
            what = "is a field of the call: name it otherwise" if is_field(name) else f"has no axis: give {name}=[…]"
            message = f"{{{name}}} in it {what}, or write {{{{{name}}}}} for braces that are said"
            raise RequestInvalid.of("text", message)
    words = {name: label(value) if value != "" else "" for name, value in values.items()}
    return _TEMPLATE.sub(lambda match: match[0][1:-1] if match[1] else words[match[2]], text)


def _checked(name: str, value: object, knob: Knob | None = None, template: bool = False) -> Any:
    """Return the value as a request has it, out of bounds never. Raises RequestInvalid."""
    if isinstance(value, np.generic):
        value = value.item()  # of np.arange and the like
    if template:
        if not isinstance(value, str | int | float):
            raise RequestInvalid.of(name, f"a text is filled with words and numbers, not {type(value).__name__}")
        return value
    if knob is not None:
        return knob.check(value)
    if name == "backend":
        if not isinstance(value, str) or not value:
            raise RequestInvalid.of(name, "a backend is named by a word; give them as {name: lab}")
        return value
    if name == "seed":
        return check_seed(value)
    if name == "reference_id" and isinstance(value, VoicePreset | VoiceModel | Mapping):
        value = voice_id(value)
    if name.startswith("prosody."):
        part = name.removeprefix("prosody.")
        return getattr(TTSRequest.build(text="axis", prosody={part: value}).prosody, part)
    if name == "references" and isinstance(value, ReferenceAudio):
        value = (value,)
    fields = {name: value}
    if name == "sample_rate" and value is not None:
        # Which rates go with which format is known only for a whole request; the grid checks it.
        fields["format"] = "opus" if value == 48_000 else "wav"
    call = Call.of("axis").replace(**fields)
    return call.model if name == "model" else getattr(call.request, name)


def _token(name: str, text: str, knob: Knob | None = None) -> object:
    """Return what is meant by one of several values with commas between; one in double quotes is a text as it stands."""
    if text.startswith('"'):
        with suppress(ValueError):
            return json.loads(text)
    return text if name == "backend" else parse_value(name, text, (knob,) if knob else ())


def _typed(name: str, value: object, knob: Knob | None) -> str:
    """Return a value so that ``_token`` reads it again: words bare where they are nothing else then."""
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
"""Rows by what they are called, "row 3": the place of each one's value on the axis of each column."""


def axes_of_rows(rows: Any, knobs: Iterable[Knob] = (), text: str | None = None) -> tuple[list[Axis], Rows]:
    """Return an axis for each column of a table, and its rows as places on them.

    Args:
        rows: a table of pandas, a sequence of mappings, or the path of a CSV file whose first line names the columns. What
            is not there, is NaN, or is empty in a file, is as the sweep has it besides; of a template, "".
        knobs: parameters of the backends' own, which may be columns.
        text: what the rows say that have no text of their own.

    Raises RequestInvalid, which names row and column as they are typed: what no field takes, a column that is none, two
    rows that are the same, a row without a text. Raises StoreError for a file that cannot be read.
    """
    table = _table(rows)
    names = [f"row {name}" for name in table.index]
    said = [text] if "text" not in table else [one or text for one in table["text"]]
    templates = {name for one in said if isinstance(one, str) for name in template_names(one) if not is_field(name)}
    troubles = [
        FieldError(("body", "text"), "missing", f"{names[place]}: there is no text to say")
        for place, one in enumerate(said)
        if not one
    ]
    axes, columns = list[Axis](), list[list[int]]()
    for column in table:
        knob = _knob(str(column), knobs)
        template, name = column in templates, field_name(str(column))
        if not (template or knob or name == "backend" or is_field(name)):
            hint = suggestion(name, ["text", "voice", "speed", "volume", *TTSRequest.model_fields])
            message = f"the column is no field, and no text has {{{column}}} for it{hint}"
            troubles.append(FieldError(("body", str(column)), "extra_forbidden", message))
            continue
        values: dict[Any, tuple[int, Any]] = {}
        columns.append([])
        for row, cell in zip(names, table[column], strict=True):
            try:
                value = _cell(name, cell, knob, template, isinstance(rows, str | Path))
            except RequestInvalid as error:
                problem = error.errors[0].msg
                message = f"{row}: {problem}" + ("" if repr(cell) in problem else f", not {cell!r}")
                troubles.append(FieldError(("body", str(column)), error.errors[0].type, message))
                continue
            columns[-1].append(values.setdefault(value if value.__hash__ else id(value), (len(values), value))[0])
        labels: dict[str, None] = {}
        for place, value in values.values():
            named = label(value, place)
            labels[named if named not in labels else f"{value} ({place + 1})"] = None
        axes.append(Axis(name, tuple(value for _, value in values.values()), tuple(labels), knob, template))
    if troubles:
        raise RequestInvalid(troubles)
    places = dict(zip(names, zip(*columns, strict=True), strict=True))
    before: dict[tuple[int, ...], str] = {}
    for row, own in places.items():
        if before.setdefault(own, row) != row:
            raise RequestInvalid.of("rows", f"{row} is {before[own]} again; repeats=… makes several takes of each")
    return axes, MappingProxyType(places)


def _table(rows: Any) -> pd.DataFrame:
    """Return rows as objects, None where there is nothing; those of no index of their own count from 1."""
    import pandas as pd

    table: pd.DataFrame = rows
    try:
        if isinstance(rows, str | Path):
            table = pd.read_csv(rows, dtype=object, keep_default_na=False)
        elif not isinstance(rows, pd.DataFrame):
            table = pd.DataFrame(list(rows), dtype=object)
    except (OSError, ValueError, TypeError) as error:
        if not isinstance(rows, str | Path):
            raise RequestInvalid.of("rows", f"a table, mappings or the path of a CSV file, please: {error}") from error
        raise StoreError(f"{rows} cannot be read as rows: {getattr(error, 'strerror', None) or error}") from error
    if table.empty:
        raise RequestInvalid.of("rows", "there are no rows", type="too_short")
    if table is not rows or not table.index.is_unique:
        table = table.set_axis(range(1, len(table) + 1))
    filled: pd.DataFrame = table.astype(object).where(table.notna(), None)
    return filled


def _cell(name: str, value: Any, knob: Knob | None, template: bool, typed: bool) -> Any:
    """Return a value of a row as its axis has it, None where there is none. Raises RequestInvalid."""
    if value is None or (typed and value == ""):
        return "" if template else None
    if typed and not template and name != "text":
        value = _token(name, value, knob)
    if isinstance(value, float) and value.is_integer() and value_kind(name, (knob,) if knob else ())[0] is int:
        value = int(value)  # pandas has no whole numbers in a column with gaps
    return _checked(name, value, knob, template)


MAX_TAKES: Final = 1_000_000
"""Takes of one sweep; a grid beyond it is a slip."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination: its place in the grid, a label for each axis, and its call.

    The call has a seed only where an axis ``seed`` gives it; otherwise the repeat says which.
    """

    index: int
    labels: Mapping[str, str]
    values: Mapping[str, Any]
    call: Call
    backend: str
    template: str = ""
    """Its text before the values came into it, where it is one with names in braces."""

    @property
    def plain(self) -> dict[str, str | int | float]:
        """What tables and manifests have for each axis: numbers and words as they are, a label for anything else."""
        return {
            name: value if isinstance(value, str | int | float) and value != "" else self.labels[name]
            for name, value in self.values.items()
        }


@dataclass(frozen=True, slots=True)
class Job:
    """One take to be made: a cell, which of its repeats, and the seed that repeat has in every cell."""

    cell: Cell
    repeat: int
    seed: int | None

    @property
    def call(self) -> Call:
        """What is asked for."""
        return replace(self.cell.call, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Grid:
    """All cells in the order of the caller's axes; ``jobs()`` has them in the order that costs least."""

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
        """Check every combination and return the grid.

        Where there are ``rows``, the first axes are their columns: not every combination of these, but the rows.

        The seeds of the repeats are drawn from ``seed`` and are the same in every cell, so that cells
        differ by their parameters and not by their luck. ``bases`` are the calls that the cells of a backend start from,
        where these have others than ``base``, whose text they say.

        Raises RequestInvalid: two axes of one name, repeats below 1, too many takes, or combinations that
        no request can have (a sample rate that a format has not), each with its place.
        """
        width = len(next(iter(rows.values()), ()))
        lengths = [len(axis) for axis in axes[width:]]
        _check_shape(axes, repeats * max(len(rows), 1) * math.prod(lengths), repeats)
        cells: list[Cell] = []
        troubles: dict[str, FieldError] = {}
        knobs = [axis.knob for axis in axes if axis.knob is not None]
        text = base.request.text
        bases = {name: call.replace(text=text, seed=None) for name, call in bases.items()}
        several = itertools.product(rows.items() or [("", ())], itertools.product(*map(range, lengths)))
        for index, ((row, first), rest) in enumerate(several):
            places = (*first, *rest)
            values = {axis.name: axis.values[place] for axis, place in zip(axes, places, strict=True)}
            labels = {axis.name: axis.labels[place] for axis, place in zip(axes, places, strict=True)}
            who = values.get("backend", backend)
            try:
                call, template = _call(bases.get(who, base), values, axes, knobs, width)
            except RequestInvalid as error:
                named = [replace(item, msg=f"{row}: {item.msg}") if row else item for item in error.errors]
                troubles.update({str(item): item for item in named})
                continue
            cells.append(Cell(index, MappingProxyType(labels), MappingProxyType(values), call, who, template))
        if troubles:
            raise RequestInvalid(troubles.values())
        # 63 bits: what a seed may have, from one number, far apart.
        drawn = np.random.SeedSequence(seed).generate_state(repeats, np.uint64) >> np.uint64(1)
        return cls(tuple(axes), tuple(cells), repeats, tuple(int(one) for one in drawn))

    def __len__(self) -> int:
        """Takes in all."""
        return len(self.cells) * self.repeats

    def position(self, job: Job) -> int:
        """Index of a take in the order of the cells; the repeats of a cell are adjacent."""
        return job.cell.index * self.repeats + job.repeat

    def jobs(self) -> tuple[Job, ...]:
        """All takes, dear changes (backend, model, voice, text) outermost, otherwise in the axes' order."""
        dear = sorted((axis for axis in self.axes if axis.cost), key=lambda axis: -axis.cost)
        places = {axis.name: {text: place for place, text in enumerate(axis.labels)} for axis in dear}

        def order(cell: Cell) -> tuple[int, ...]:
            return (*(places[axis.name][cell.labels[axis.name]] for axis in dear), cell.index)

        return tuple(
            Job(cell, repeat, self.seeds[repeat] if cell.call.seed is None else cell.call.seed)
            for cell in sorted(self.cells, key=order)
            for repeat in range(self.repeats)
        )


def _call(
    start: Call, values: Mapping[str, Any], axes: Sequence[Axis], knobs: Iterable[Knob], width: int
) -> tuple[Call, str]:
    """Return the call of a cell, and the template of its text; of a row, what is not given is as in ``start``."""
    given = {
        axis.name: values[axis.name]
        for place, axis in enumerate(axes)
        if not axis.template and axis.name != "backend" and not (place < width and values[axis.name] is None)
    }
    text = given.get("text", start.request.text)
    names = template_names(text)
    for axis in axes[width:]:
        if axis.template and axis.name not in names:
            raise RequestInvalid.of(axis.name, f"there is no {{{axis.name}}} in {text!r} to be filled with it")
    filled = _filled(text, {axis.name: values[axis.name] for axis in axes if axis.template})
    return start.replace(knobs, **given | ({} if filled == text else {"text": filled})), text if names else ""


def _check_shape(axes: Sequence[Axis], total: int, repeats: int) -> None:
    names = Counter(axis.name for axis in axes)
    if max(names.values(), default=0) > 1:
        raise RequestInvalid.of(names.most_common(1)[0][0], "there are two axes of this name", type="duplicate")
    if type(repeats) is not int or repeats < 1:
        raise RequestInvalid.of("repeats", "Input should be a whole number, 1 or more", type="int_type")
    if "seed" in names and repeats > 1:
        message = "an axis of seeds already says what to repeat; leave repeats at 1"
        raise RequestInvalid.of("repeats", message, type="value_error")
    if total > MAX_TAKES:
        message = f"the grid has {total} takes; at most {MAX_TAKES} are taken"
        raise RequestInvalid.of("repeats", message, type="too_long")
