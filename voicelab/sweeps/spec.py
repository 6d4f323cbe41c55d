"""Sweeps as text, in TOML files and form entries, which are validated before anything runs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from voicelab.call import field_name
from voicelab.errors import FieldError, RequestInvalid, StoreError
from voicelab.recordings import sidecar
from voicelab.schema import ReferenceAudio, TTSRequest
from voicelab.sweeps.axes import Axis, written
from voicelab.sweeps.run import CAPS, Budget
from voicelab.sweeps.sweep import Sweep
from voicelab.tables import SUFFIXES, bytes_of, read_text

_RUN: Final = ("concurrency", "requests_per_minute")
_TOP: Final = ("text", "rows", "backend", "repeats", "seed", "model", *_RUN, "fields", "axes", "budget")
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """Sweep read from a file.

    Args:
        text: texts; None if there are rows.
        backend: address of the backend; None if not set.
        backends: addresses of the axis ``backend`` by label.
        options: keywords of ``lab.sweep``.
        run: keywords of ``start``.
        budget: limits.
    """

    text: str | tuple[str, ...] | None
    backend: str | None
    backends: Mapping[str, str]
    options: Mapping[str, Any]
    run: Mapping[str, Any]
    budget: Budget


@contextmanager
def in_file(path: str | Path) -> Iterator[None]:
    """Add the name of the file to each item of a RequestInvalid."""
    try:
        yield
    except RequestInvalid as error:
        error.change(lambda item: replace(item, msg=f"{item.msg} (in {path})"))
        raise


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

    ``backend = "NAME:ADDRESS"`` at the top sets the backend; ``rows = "texts.csv"`` replaces ``text``, and a
    table (CSV, TSV, JSON, Excel) is read as rows. ``[fields]`` holds fixed fields, ``[axes]`` varied fields.
    ``references`` and ``rows`` name files relative to the spec. References are given as ``["a.wav"]``, with the
    transcript in a.txt, or as ``[{audio = "a.wav", text = "…"}]``. Raises StoreError if the file cannot be read as TOML,
    RequestInvalid for invalid contents.
    """
    path = Path(path)
    spec: dict[str, Any] = {"rows": path.name} if path.suffix.lower() in SUFFIXES else _toml(path)
    _check_names("", spec, _TOP)
    tables = {name: spec.get(name, _EMPTY) for name in ("fields", "axes", "budget")}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise RequestInvalid.of(name, f"must be a table: [{name}]", type="table_type")
    _check_names("budget.", tables["budget"], CAPS)
    text = spec.get("text", None if "rows" in spec else "")
    if isinstance(text, list):
        text = tuple(text)
    if repeated := sorted(set(tables["fields"]) & set(tables["axes"])):
        raise RequestInvalid.of(repeated[0], "must be in [fields] or in [axes], not in both", type="duplicate")
    options: Any = {name: spec[name] for name in ("repeats", "seed", "model") if name in spec}
    if "rows" in spec:
        options["rows"] = path.parent / str(spec["rows"])
    for name, value in {**tables["fields"], **tables["axes"]}.items():
        options[name] = _references(path.parent, value) if name == "references" else value
    for name in tables["axes"]:
        # A single value in [axes] is an axis with one value.
        if name != "references" and isinstance(options[name], bool | int | float):
            options[name] = [options[name]]
    run: Any = {name: spec[name] for name in _RUN if name in spec}
    backend = spec.get("backend")
    backends = MappingProxyType(_addresses(options.pop("backend", {}), backend))
    limits = Budget(**tables["budget"])
    return SweepSpec(text, backend, backends, MappingProxyType(options), MappingProxyType(run), limits)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise StoreError(f"{path} must be TOML: {error}") from error


def _addresses(axis: object, backend: object) -> dict[str, str]:
    """Return the addresses of the axis ``backend`` by label; ``backend`` is the address at the top of the file."""
    listed: list[Any] = axis if isinstance(axis, list) else [axis]
    addresses = dict(axis) if isinstance(axis, Mapping) else {str(address): address for address in listed}
    for address in (backend, *addresses.values()):
        if address is not None and not isinstance(address, str):
            raise RequestInvalid.of("backend", 'must be an address in quotes, such as "local:"', type="string_type")
    return addresses


def _check_names(prefix: str, table: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    listed = ", ".join(allowed)
    troubles = [
        FieldError(("body", f"{prefix}{name}"), "extra_forbidden", f"must be one of {listed}, got {name!r}")
        for name in table
        if name not in allowed
    ]
    if troubles:
        raise RequestInvalid(troubles)


def _references(folder: Path, value: object) -> object:
    if isinstance(value, list):
        return [_references(folder, item) for item in value]
    if isinstance(value, str):
        value = {"audio": value, "text": sidecar(folder / value)}
    if not isinstance(value, Mapping) or not isinstance(value.get("audio"), str):
        message = 'must name files: references = ["a.wav"] or [{audio = "a.wav", text = "…"}]'
        raise RequestInvalid.of("references", message, type="reference_type")
    return ReferenceAudio.build(**{**value, "audio": bytes_of(folder / value["audio"]), "text": value.get("text", "")})


# The fields that are varied most often come first. Texts have a separate control.
_COMMON: Final = ("temperature", "top_p", "reference_id", "latency", "repetition_penalty")
_OTHER_FIELDS: Final = [
    name for name in TTSRequest.model_fields if name not in {*_COMMON, "text", "references", "prosody"}
]

AXES: Final = (*_COMMON, "prosody.speed", "prosody.volume", *_OTHER_FIELDS, "model", "seed", "backend")
"""Fields that can be varied by typing values, under their names in the interface."""


def axes_for(sweep: Sweep) -> tuple[str, ...]:
    """List the names that can be varied in a form: fields that all backends of the sweep support, and backend parameters."""
    declared = [backend.capabilities for backend in sweep.backends.values()]
    acting = (name for name in AXES if not any(capabilities.ignored(name) for capabilities in declared))
    return (*acting, *(knob.name for knob in sweep.knobs), *(axis.name for axis in sweep.axes if axis.template))


# Escape sequences in a line of a list of texts.
_UNESCAPED: Final = {r"\\": "\\", r"\n": "\n", r"\r": "\r"}
_ESCAPES: Final = {ord(character): escape for escape, character in _UNESCAPED.items()}
_ESCAPED: Final = re.compile(r"\\[\\nr]")


def texts_of(sweep: Sweep) -> str:
    r"""Format the texts of a sweep, one per line; a line break within a text is written as ``\n``, a backslash as ``\\``."""
    axis = next((axis for axis in sweep.axes if axis.name == "text"), None)
    return lines_of(filter(None, axis.values) if axis is not None else (sweep.base.request.text,))


def lines_of(texts: Iterable[str]) -> str:
    """Format texts, one per line, for ``texts_in``."""
    return "\n".join(text.translate(_ESCAPES) for text in texts)


def texts_in(typed: str) -> list[str]:
    """Parse texts, one per line, ignoring blank lines."""
    return [_ESCAPED.sub(lambda match: _UNESCAPED[match.group()], line) for line in typed.split("\n") if line.strip()]


def typed_axes(sweep: Sweep) -> list[tuple[str, str]]:
    """Format names and values of all axes that a form can show as text, except texts."""
    values = ((axis.name, written(axis)) for axis in _beside_rows(sweep) if axis.name != "text")
    return [(name, text) for name, text in values if text is not None]


def _beside_rows(sweep: Sweep) -> tuple[Axis, ...]:
    """Return the axes that are not columns of rows."""
    return sweep.axes[len(next(iter(sweep.rows.values()), ())) :]


def retyped(
    sweep: Sweep, texts: str, axes: Iterable[tuple[str, str]], *, repeats: int | None = None, seed: int | None = None
) -> Sweep:
    """Replace the texts and axes of a sweep by form entries.

    ``axes`` has names and texts for ``parse_values``. An unchanged axis keeps its labels; reference audio and rows are kept.
    Raises RequestInvalid, which names every problem.
    """
    previous = {axis.name: axis for axis in sweep.axes}
    troubles: list[FieldError] = []
    new_axes: list[Axis] = []
    base = sweep.base
    try:
        if sweep.rows:
            if texts != texts_of(sweep):
                raise RequestInvalid.of("text", "texts of rows must be changed in their source")
            new_axes += [axis for axis in sweep.axes if axis not in _beside_rows(sweep)]
        elif texts != texts_of(sweep):
            lines = texts_in(texts)
            base = base.replace(text=lines[0] if lines else "")
            if len(lines) > 1:
                new_axes.append(Axis.of("text", lines))
        elif "text" in previous:
            new_axes.append(previous["text"])
    except RequestInvalid as error:
        troubles += error.errors
    for name, typed in axes:
        same = previous.get(field_name(name))
        try:
            if same is None or written(same) != typed:
                same = Axis.of(name, typed, sweep.knobs, template=same is not None and same.template)
            new_axes.append(same)
        except RequestInvalid as error:
            # Locate the error at its axis, for the form.
            loc = ("body", *field_name(name).split("."))
            troubles += [replace(item, loc=loc, in_="body") for item in error.errors]
    if troubles:
        raise RequestInvalid(troubles)
    new_axes += [axis for axis in _beside_rows(sweep) if written(axis) is None]
    repeats, seed = sweep.repeats if repeats is None else repeats, sweep.seed if seed is None else seed
    return replace(sweep, base=base, axes=tuple(new_axes), repeats=repeats, seed=seed)


def budget_of(typed: Mapping[str, str]) -> Budget:
    """Parse limits that a user typed, by name; a blank limit is unlimited. Raises RequestInvalid."""
    caps: dict[str, Any] = {}
    troubles: list[FieldError] = []
    for name, text in typed.items():
        if not text.strip():
            continue
        try:
            caps[name] = float(text)
            Budget(**{name: caps[name]})
        except (ValueError, TypeError):
            message = f"must be a number, 0 or more, or empty for no limit, got {text!r}"
            troubles.append(FieldError(("body", "budget", name), "float_parsing", message))
    if troubles:
        raise RequestInvalid(troubles)
    return Budget(**caps)
