"""multipart/form-data, read as it arrives: parts by the names of their fields, whatever files and types they claim.

Clients call every part a file named "upload", or index their lists, or repeat a name: ``voices``, ``voices[]``
and ``voices[0]`` all mean the same field, and a text may come as a file. So only a part's field name counts.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import Request

from voicelab.errors import FieldError, RequestInvalid
from voicelab.schema import VoiceCreate
from voicelab.service.bodies import check_length, late

__all__ = ["MAX_PARTS", "Part", "as_wire", "read_form"]

MAX_PARTS: Final = 128
"""Parts of one form; a voice model has 20 recordings, as many transcripts, tags and a handful of fields."""

_FILES = ("voices", "cover_image")
_LISTED = re.compile(r"(voices|texts|tags)(?:\[([0-9]{0,4})\])?", re.ASCII)
_LONGEST_TEXT = 256 * 1024


@dataclass(slots=True)
class Part:
    """One part of a form: the name of its field, and its bytes as they were sent."""

    name: str = ""
    data: bytearray = field(default_factory=bytearray)


async def read_form(request: Request, limit: int, file_limit: int, seconds: float) -> list[Part]:
    """Return the parts of a form of at most ``limit`` bytes, each file at most ``file_limit``, within ``seconds``.

    Raises HTTPException 413 or 408, RequestInvalid for what is no form or was cut off.
    """
    check_length(request, limit)
    _, options = parse_options_header(request.headers.get("content-type"))
    form = _Form(options.get(b"boundary", b""), file_limit)
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for data in request.stream():
                size += len(data)
                if size > limit:
                    raise HTTPException(413, f"The body is larger than {limit} bytes")
                form.feed(data)
    except TimeoutError:
        raise late(seconds) from None
    return form.finish()


class _Form:
    def __init__(self, boundary: bytes, file_limit: int) -> None:
        if not boundary:
            raise _refused("its content type names no boundary")
        self._file_limit = file_limit
        self._parts: list[Part] = []
        self._header, self._value = bytearray(), bytearray()
        self._limit = 0
        self._named = self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": self._data,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise _refused(str(error)) from None

    def feed(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError:
            raise _refused("it does not follow its boundary") from None

    def finish(self) -> list[Part]:
        if not self._ended:
            raise _refused("it is cut off")
        return self._parts

    def _begin(self) -> None:
        if len(self._parts) == MAX_PARTS:
            raise _refused(f"it has more than {MAX_PARTS} parts")
        self._parts.append(Part())
        self._named = False

    def _header_end(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            if b"name" in options:
                self._parts[-1].name = options[b"name"].decode("utf-8", "replace")
                self._named = True
        self._header.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        if not self._named:
            raise _refused("a part has no name")
        base = _base(self._parts[-1].name)
        self._limit = self._file_limit if base in _FILES else _LONGEST_TEXT

    def _data(self, data: bytes, start: int, end: int) -> None:
        part = self._parts[-1]
        if len(part.data) + end - start > self._limit:
            raise HTTPException(413, f"A part of the form is larger than {self._limit} bytes")
        part.data += data[start:end]

    def _end(self) -> None:
        self._ended = True


def as_wire(parts: list[Part]) -> dict[str, object]:
    """Return a form's parts as the fields of a request: files as bytes, the rest as text, lists in their order.

    Parts that are no field of a request are left out.

    Raises RequestInvalid for text that is not UTF-8, and for two values where one is meant.
    """
    wire: dict[str, object] = {}
    lists: dict[str, list[tuple[int, object]]] = {}
    for part in parts:
        match = _LISTED.fullmatch(part.name)
        if match is None and part.name not in VoiceCreate.model_fields:
            continue  # whatever it holds, and however often it comes
        value = _value(_base(part.name), bytes(part.data))
        if match is None:
            if part.name in wire:
                raise _twice(part.name)
            wire[part.name] = value
            continue
        entries = lists.setdefault(match[1], [])
        # Numbered ones by their numbers, before those that are not, which keep the order of their arrival.
        number = int(match[2]) if match[2] else 10_000 + len(entries)
        if any(number == other for other, _ in entries):
            raise _twice(part.name)
        entries.append((number, value))
    for name, entries in lists.items():
        values = [value for _, value in sorted(entries, key=lambda entry: entry[0])]
        # An empty field of a form is one that was left out.
        if name == "voices" or any(values):
            wire[name] = values
    return wire


def _base(name: str) -> str:
    match = _LISTED.fullmatch(name)
    return match[1] if match else name


def _value(name: str, data: bytes) -> object:
    if name in _FILES:
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        message = "Input should be UTF-8 text"
        raise RequestInvalid((FieldError(("body", name), "string_unicode", message),)) from None


def _twice(name: str) -> RequestInvalid:
    return RequestInvalid((FieldError(("body", _base(name)), "duplicate", f"The field {_base(name)} is given twice"),))


def _refused(what: str) -> RequestInvalid:
    return RequestInvalid(
        (FieldError(("body",), "multipart_invalid", f"The body is no form that can be read: {what}"),)
    )
