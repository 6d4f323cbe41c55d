"""A sweep as a file: TOML that says what ``lab.sweep`` would be called with, for the command line and for clusters."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from voicelab.errors import FieldError, RequestInvalid, StoreError
from voicelab.experiments.sweeps.budget import Budget
from voicelab.schema import ReferenceAudio

__all__ = ["SweepSpec", "read_spec"]

_TOP: Final = ("text", "repeats", "seed", "model", "concurrency", "requests_per_minute", "fields", "axes", "budget")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """What a file says. ``asked`` is what ``lab.sweep`` takes, ``run`` and ``budget`` what ``start`` takes."""

    text: str | tuple[str, ...]
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

        [budget]
        audio_s = 600

    ``[fields]`` holds what stays, ``[axes]`` what is varied; ``references`` name files beside the spec, as
    ``[{audio = "a.wav", text = "…"}]``. Raises StoreError when the file cannot be read or is no TOML,
    RequestInvalid for what it says.
    """
    path = Path(path)
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} is no TOML: {error}") from error
    _check_names("", said, _TOP)
    tables = {name: said.get(name, _NOTHING) for name in ("fields", "axes", "budget")}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise RequestInvalid.of(name, f"write it as a table: [{name}]", type="table_type")
    _check_names("budget.", tables["budget"], tuple(item.name for item in fields(Budget)))
    text = said.get("text", "")
    if isinstance(text, list):
        text = tuple(text)
    both = sorted(set(tables["fields"]) & set(tables["axes"]))
    if both:
        raise RequestInvalid.of(both[0], "it is in [fields] and in [axes]; it can be one of them", type="duplicate")
    asked: dict[str, Any] = {name: said[name] for name in ("repeats", "seed", "model") if name in said}
    for name, value in {**tables["fields"], **tables["axes"]}.items():
        asked[name] = _references(path.parent, value) if name == "references" else value
    for name in tables["axes"]:
        # One value is an axis too, where it was written down as one.
        if name != "references" and isinstance(asked[name], bool | int | float):
            asked[name] = [asked[name]]
    run: dict[str, Any] = {name: said[name] for name in ("concurrency", "requests_per_minute") if name in said}
    return SweepSpec(text, MappingProxyType(asked), MappingProxyType(run), Budget(**tables["budget"]))


def _check_names(place: str, said: Mapping[str, Any], known: tuple[str, ...]) -> None:
    troubles = [
        FieldError(("body", f"{place}{name}"), "extra_forbidden", f"there is no {name!r}; there are {', '.join(known)}")
        for name in said
        if name not in known
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
    file = folder / value["audio"]
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror or error}") from error
    return ReferenceAudio.build(**{**value, "audio": data, "text": value.get("text", "")})
