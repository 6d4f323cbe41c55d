"""A sweep in text: as a TOML file, and as it is typed into a form; everything is checked before anything runs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from voicelab.call import field_name
from voicelab.errors import FieldError, RequestInvalid, StoreError
from voicelab.recordings import bytes_of, read_text
from voicelab.schema import ReferenceAudio, TTSRequest
from voicelab.sweeps.axes import Axis, written
from voicelab.sweeps.run import CAPS, Budget
from voicelab.sweeps.sweep import Sweep

_RUN: Final = ("concurrency", "requests_per_minute")
_TOP: Final = ("text", "rows", "backend", "repeats", "seed", "model", *_RUN, "fields", "axes", "budget")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """What a file says. ``asked`` is what ``lab.sweep`` takes, ``run`` and ``budget`` what ``start`` takes.

    ``backend`` is the address of who speaks, None where it is not said; ``backends`` are those of an axis, by label.
    """

    text: str | tuple[str, ...] | None
    backend: str | None
    backends: Mapping[str, str]
    asked: Mapping[str, Any]
    run: Mapping[str, Any]
    budget: Budget


def read_spec(path: str | Path) -> SweepSpec:
    """Read a sweep from a file.

        text = ["One sentence.", "Another."]
        repeats = 3

        [fields]
        format = "wav"

        [axes]
        temperature = "0..1 step 0.5"
        latency = ["low", "normal"]
        backend = ["local:", "https://voice.example"]

        [budget]
        audio_s = 600

    ``backend = "NAME:ADDRESS"`` at the top says who speaks; ``rows = "texts.csv"`` is in the place of ``text``, and a path
    that ends in .csv are rows without a spec. ``[fields]`` holds what stays, ``[axes]`` what is varied; ``references`` and
    ``rows`` name files beside the spec, references as ``[{audio = "a.wav", text = "…"}]``. Raises StoreError when the file
    cannot be read or is no TOML, RequestInvalid for what it says.
    """
    path = Path(path)
    said: dict[str, Any] = {"rows": path.name} if path.suffix == ".csv" else _toml(path)
    _check_names("", said, _TOP)
    tables = {name: said.get(name, _NOTHING) for name in ("fields", "axes", "budget")}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise RequestInvalid.of(name, f"write it as a table: [{name}]", type="table_type")
    _check_names("budget.", tables["budget"], CAPS)
    text = said.get("text", None if "rows" in said else "")
    if isinstance(text, list):
        text = tuple(text)
    if both := sorted(set(tables["fields"]) & set(tables["axes"])):
        raise RequestInvalid.of(both[0], "it is in [fields] and in [axes]; it can be one of them", type="duplicate")
    asked: Any = {name: said[name] for name in ("repeats", "seed", "model") if name in said}
    if "rows" in said:
        asked["rows"] = path.parent / str(said["rows"])
    for name, value in {**tables["fields"], **tables["axes"]}.items():
        asked[name] = _references(path.parent, value) if name == "references" else value
    for name in tables["axes"]:
        # One value is an axis too, where it was written down as one.
        if name != "references" and isinstance(asked[name], bool | int | float):
            asked[name] = [asked[name]]
    run: Any = {name: said[name] for name in _RUN if name in said}
    alone = said.get("backend")
    named = _addresses(asked.pop("backend", {}), alone)
    backends, asked, run = MappingProxyType(named), MappingProxyType(asked), MappingProxyType(run)
    return SweepSpec(text, alone, backends, asked, run, Budget(**tables["budget"]))


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise StoreError(f"{path} is no TOML: {error}") from error


def _addresses(axis: object, alone: object) -> dict[str, str]:
    """Return the addresses of an axis of backends by their labels; ``alone`` is the one at the top of the file."""
    listed: list[Any] = axis if isinstance(axis, list) else [axis]
    named = dict(axis) if isinstance(axis, Mapping) else {str(one): one for one in listed}
    for one in (alone, *named.values()):
        if one is not None and not isinstance(one, str):
            raise RequestInvalid.of("backend", 'write addresses in quotes, such as "local:"', type="string_type")
    return named


def _check_names(place: str, said: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    listed = ", ".join(allowed)
    troubles = [
        FieldError(("body", f"{place}{name}"), "extra_forbidden", f"there is no {name!r}; there are {listed}")
        for name in said
        if name not in allowed
    ]
    if troubles:
        raise RequestInvalid(troubles)


def _references(folder: Path, value: object) -> object:
    """Return references with the bytes of the files they name; lists of lists stay so."""
    if isinstance(value, list):
        return [_references(folder, item) for item in value]
    if not isinstance(value, Mapping) or not isinstance(value.get("audio"), str):
        message = 'name files: references = [{audio = "a.wav", text = "…"}]'
        raise RequestInvalid.of("references", message, type="reference_type")
    return ReferenceAudio.build(**{**value, "audio": bytes_of(folder / value["audio"]), "text": value.get("text", "")})


# Those that people vary first, then what else the schema has; texts have a place of their own.
_FIRST: Final = ("temperature", "top_p", "reference_id", "latency", "repetition_penalty")
_REST: Final = [name for name in TTSRequest.model_fields if name not in {*_FIRST, "text", "references", "prosody"}]

AXES: Final = (*_FIRST, "prosody.speed", "prosody.volume", *_REST, "model", "seed", "backend")
"""Everything that can be varied by typing its values, by the names of the interface."""


def axes_for(sweep: Sweep) -> tuple[str, ...]:
    """Return what can be varied by typing its values in a sweep: what acts in all of its backends, and their knobs."""
    declared = [backend.capabilities for backend in sweep.backends.values()]
    acting = (name for name in AXES if not any(one.ignored(name) for one in declared))
    return (*acting, *(knob.name for knob in sweep.knobs), *(axis.name for axis in sweep.axes if axis.template))


# What a line of texts cannot hold as it is.
_READ: Final = {r"\\": "\\", r"\n": "\n", r"\r": "\r"}
_WRITTEN: Final = {ord(character): escape for escape, character in _READ.items()}
_TYPED: Final = re.compile(r"\\[\\nr]")


def texts_of(sweep: Sweep) -> str:
    r"""Return the texts of a sweep, one a line; a line break within a text is written as ``\n``, a backslash as ``\\``."""
    axis = next((axis for axis in sweep.axes if axis.name == "text"), None)
    return lines_of(filter(None, axis.values) if axis is not None else (sweep.base.request.text,))


def lines_of(texts: Iterable[str]) -> str:
    """Return texts one a line, as ``texts_in`` reads them."""
    return "\n".join(text.translate(_WRITTEN) for text in texts)


def texts_in(typed: str) -> list[str]:
    """Return the texts that stand one a line; blank lines are none."""
    return [_TYPED.sub(lambda match: _READ[match.group()], line) for line in typed.split("\n") if line.strip()]


def typed_axes(sweep: Sweep) -> list[tuple[str, str]]:
    """Return name and values of every axis that can be typed, but for the texts."""
    values = ((axis.name, written(axis)) for axis in _beside_rows(sweep) if axis.name != "text")
    return [(name, text) for name, text in values if text is not None]


def _beside_rows(sweep: Sweep) -> tuple[Axis, ...]:
    """The axes that are no columns of rows."""
    return sweep.axes[len(next(iter(sweep.rows.values()), ())) :]


def retyped(
    sweep: Sweep, texts: str, axes: Iterable[tuple[str, str]], *, repeats: int | None = None, seed: int | None = None
) -> Sweep:
    """Return ``sweep`` with what somebody typed in the place of its texts and axes.

    ``axes`` are names with values as ``parse_values`` reads them. An axis that says what it said keeps its labels,
    and one that nobody can type (reference audio) stays, as rows do. Raises RequestInvalid, which names all that is wrong.
    """
    before = {axis.name: axis for axis in sweep.axes}
    troubles: list[FieldError] = []
    new_axes: list[Axis] = []
    base = sweep.base
    try:
        if sweep.rows:
            if texts != texts_of(sweep):
                raise RequestInvalid.of("text", "these are the texts of rows: change them where the rows come from")
            new_axes += [axis for axis in sweep.axes if axis not in _beside_rows(sweep)]
        elif texts != texts_of(sweep):
            lines = texts_in(texts)
            base = base.replace(text=lines[0] if lines else "")
            if len(lines) > 1:
                new_axes.append(Axis.of("text", lines))
        elif "text" in before:
            new_axes.append(before["text"])
    except RequestInvalid as error:
        troubles += error.errors
    for name, typed in axes:
        same = before.get(field_name(name))
        try:
            if same is None or written(same) != typed:
                same = Axis.of(name, typed, sweep.knobs, template=same is not None and same.template)
            new_axes.append(same)
        except RequestInvalid as error:
            # Under the name of its axis, for the form to find the field.
            place = ("body", *field_name(name).split("."))
            troubles += [replace(item, loc=place, in_="body") for item in error.errors]
    if troubles:
        raise RequestInvalid(troubles)
    new_axes += [axis for axis in _beside_rows(sweep) if written(axis) is None]
    repeats, seed = sweep.repeats if repeats is None else repeats, sweep.seed if seed is None else seed
    return replace(sweep, base=base, axes=tuple(new_axes), repeats=repeats, seed=seed)


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
