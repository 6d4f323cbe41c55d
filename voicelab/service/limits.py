"""What a service bears: each limit is described once here; options, variables, the file's lines and the docs come of it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from voicelab.audio.formats import MAX_BYTES
from voicelab.errors import RequestInvalid
from voicelab.schema import WireModel

VARIABLE: Final = "VOICELAB_SERVE_"
"""What the variable of a limit begins with; the rest is the limit's name in capitals."""

_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
_RATE: Final = re.compile("([1-9][0-9]{0,8})/(s|min|h|day)", re.ASCII)


def read_rate(text: str) -> tuple[int, int]:
    """Return how many requests a rate such as ``60/min`` allows, and in how many seconds."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise PydanticCustomError("rate", "Input should be requests and a unit: 5/s, 60/min, 1000/h, 5000/day")
    return int(match[1]), _UNITS[match[2]]


def _no_boolean(value: object) -> object:
    # An option and a variable are words; true is no number of anything.
    return str(value) if isinstance(value, bool) else value


_Count = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1)]
_Seconds = Annotated[float, BeforeValidator(_no_boolean), Field(gt=0, allow_inf_nan=False)]
_Rate = Annotated[str, AfterValidator(lambda text: read_rate(text) and text)]


class KeyLimits(WireModel):
    """What one key may ask. None leaves it to the service; beyond it the answer is 429."""

    rate: _Rate | None = Field(default=None, description="Requests that it may send: 5/s, 60/min, 1000/h")
    active: _Count | None = Field(default=None, description="Requests that it may have at once")
    daily: _Count | None = Field(default=None, description="Characters that it may speak in a day, by UTC")


class Limits(WireModel):
    """What a service bears, all keywords; unknown ones and bad values raise RequestInvalid, which names them all."""

    active: _Count = Field(default=8, description="Requests that speak at once")
    waiting: int = Field(
        default=32, ge=0, description="Requests that wait for their turn; beyond that the answer is 503"
    )
    waiting_seconds: _Seconds = Field(default=60.0, description="Longest wait for a turn, in seconds (503)")
    text: _Count | None = Field(default=None, description="Characters of one text, where the voice takes more (422)")
    body: _Count = Field(default=64 * 1024 * 1024, description="Bytes of a speech request (413)")
    head_seconds: _Seconds = Field(default=20.0, description="Time for a request's head, in seconds (408)")
    body_seconds: _Seconds = Field(default=60.0, description="Time for a speech request's body, in seconds (408)")
    buffer: _Count = Field(default=1024 * 1024, description="Bytes of audio of one request that wait for its reader")
    lag_seconds: _Seconds = Field(
        default=20.0, description="How far a reader may be behind the pace of playing, in seconds"
    )
    linger_seconds: _Seconds = Field(
        default=5.0, description="Time for the end of a broken-off answer to leave, in seconds"
    )
    upload: _Count = Field(default=256 * 1024 * 1024, description="Bytes of all recordings for one voice (413)")
    upload_file: _Count = Field(default=MAX_BYTES, description="Bytes of one recording (413)")
    upload_seconds: _Seconds = Field(default=300.0, description="Time for the recordings to arrive, in seconds (408)")
    uploads: _Count = Field(default=4, description="Voices that are made at once (503)")
    key_rate: _Rate | None = Field(
        default=None, description="Rate of a key that has none of its own, such as 60/min (429)"
    )
    key_active: _Count | None = Field(default=None, description="The same for requests at once (429)")
    key_daily: _Count | None = Field(default=None, description="The same for characters in a day, by UTC (429)")


def read_limits(
    options: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[Limits, dict[str, str]]:
    """Return the limits, and where each comes from that is not the default.

    An option comes before a variable, and that before a line of the file. Raises
    RequestInvalid with all that is wrong, each named by its option, variable or line; OSError for the file.
    """
    try:
        text = file.read_text(encoding="utf-8") if file is not None else ""
        values: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestInvalid.of("limits", f"{file} is no TOML: {error}", type="toml_invalid") from None
    sources = {name: f"{file} line {_line(text, name)}" for name in values}
    for name in Limits.model_fields:
        variable = VARIABLE + name.upper()
        if variable in environ:
            values[name], sources[name] = environ[variable], variable
        if options.get(name) is not None:
            values[name], sources[name] = options[name], "--" + name.replace("_", "-")
    try:
        return Limits(**values), sources
    except RequestInvalid as error:
        error.change(lambda one: replace(one, loc=(f"{one.field}: {sources[one.field]}",), in_=None))
        raise


def _line(text: str, name: str) -> int:
    match = re.search(rf"^[ \t]*\[?[\"']?{re.escape(name)}\b", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def describe_limits(limits: Limits, sources: Mapping[str, str]) -> str:
    """Return limits as the file that would set them, each line with its meaning and where its value comes from."""
    lines = []
    for name, field in Limits.model_fields.items():
        value = getattr(limits, name)
        line = f"# {name} =" if value is None else f"{name} = {value!r}".replace("'", '"')
        lines.append(f"{line:<28} # {field.description}; {sources.get(name, 'the default')}")
    return "\n".join(lines)
