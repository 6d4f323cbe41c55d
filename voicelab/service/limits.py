"""Service limits: models from which options, environment variables, the TOML format and documentation are generated."""

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
"""Prefix of the environment variable of a limit, followed by the limit's name in capitals."""

_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
_RATE: Final = re.compile("([1-9][0-9]{0,8})/(s|min|h|day)", re.ASCII)


def read_rate(text: str) -> tuple[int, int]:
    """Parse a rate such as ``60/min`` into the number of requests and the period in seconds."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise PydanticCustomError("rate", "must be requests per unit, such as 5/s, 60/min, 1000/h or 5000/day")
    return int(match[1]), _UNITS[match[2]]


def _reject_boolean(value: object) -> object:
    # pydantic would accept True as 1.
    return str(value) if isinstance(value, bool) else value


_Count = Annotated[int, BeforeValidator(_reject_boolean), Field(ge=1)]
_Seconds = Annotated[float, BeforeValidator(_reject_boolean), Field(gt=0, allow_inf_nan=False)]
_Rate = Annotated[str, AfterValidator(lambda text: read_rate(text) and text)]


class KeyLimits(WireModel):
    """Limits of a key; requests that exceed them get status 429. None means that the service's limit applies."""

    rate: _Rate | None = Field(default=None, description="Request rate: 5/s, 60/min, 1000/h")
    active: _Count | None = Field(default=None, description="Concurrent requests")
    daily: _Count | None = Field(default=None, description="Characters per day (UTC)")
    voices: _Count | None = Field(default=None, description="Stored voices")
    voice_bytes: _Count | None = Field(default=None, description="Bytes of the recordings of all stored voices")


class Limits(WireModel):
    """Limits of a service. Unknown names and invalid values raise a RequestInvalid that lists all errors."""

    active: _Count = Field(default=8, description="Concurrent speech requests")
    waiting: int = Field(default=32, ge=0, description="Queued speech requests (503)")
    waiting_seconds: _Seconds = Field(default=60.0, description="Maximum time in the queue in seconds (503)")
    text: _Count | None = Field(default=None, description="Characters per text, if below the backend's limit (422)")
    body: _Count = Field(default=64 * 1024 * 1024, description="Bytes of a speech request (413)")
    head_seconds: _Seconds = Field(default=20.0, description="Time limit for request headers in seconds (408)")
    body_seconds: _Seconds = Field(default=60.0, description="Time limit for a speech request's body in seconds (408)")
    buffer: _Count = Field(default=1024 * 1024, description="Bytes of audio buffered per request")
    lag_seconds: _Seconds = Field(
        default=20.0, description="Maximum lag of a reader behind real-time playback in seconds"
    )
    linger_seconds: _Seconds = Field(
        default=5.0, description="Time limit for sending the rest of an aborted response in seconds"
    )
    upload: _Count = Field(default=256 * 1024 * 1024, description="Bytes of all recordings of a voice (413)")
    upload_file: _Count = Field(default=MAX_BYTES, description="Bytes per recording (413)")
    upload_seconds: _Seconds = Field(default=300.0, description="Time limit for uploading recordings in seconds (408)")
    uploads: _Count = Field(default=4, description="Voices created concurrently (503)")
    key_rate: _Rate | None = Field(default=None, description="Default request rate per key, such as 60/min (429)")
    key_active: _Count | None = Field(default=None, description="Default concurrent requests per key (429)")
    key_daily: _Count | None = Field(default=None, description="Default characters per key and day, UTC (429)")
    key_voices: _Count | None = Field(default=None, description="Default stored voices per key (429)")
    key_voice_bytes: _Count | None = Field(
        default=None, description="Default bytes of recordings of stored voices per key (429)"
    )


def read_limits(
    options: Mapping[str, Any], file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[Limits, dict[str, str]]:
    """Return the limits, and the source of every limit that is not a default.

    Options override environment variables, which override the file. Raises RequestInvalid with all errors, each of which
    names the option, variable or line, and OSError if the file cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8") if file is not None else ""
        values: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestInvalid.of("limits", f"{file} is not valid TOML: {error}", type="toml_invalid") from None
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
        error.change(lambda item: replace(item, loc=(f"{item.field}: {sources[item.field]}",), in_=None))
        raise


def _line(text: str, name: str) -> int:
    match = re.search(rf"^[ \t]*\[?[\"']?{re.escape(name)}\b", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def describe_limits(limits: Limits, sources: Mapping[str, str]) -> str:
    """Format limits as a TOML file, with the description and source of each limit."""
    lines = []
    for name, field in Limits.model_fields.items():
        value = getattr(limits, name)
        line = f"# {name} =" if value is None else f"{name} = {value!r}".replace("'", '"')
        lines.append(f"{line:<28} # {field.description}; {sources.get(name, 'default')}")
    return "\n".join(lines)
