"""What a request carries: its key, and its body as JSON, MessagePack or a form, read within bounds of size and time.

Whatever is wrong with a body's syntax is a RequestInvalid (422) with loc ``["body"]``. The decoders bound the
memory that a body can become: JSON by the number of its values, MessagePack by the number and the length of its
containers, a form by its parts.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import msgpack  # type: ignore[import-untyped]  # it publishes no types
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import Request

from voicelab.errors import AuthenticationError, FieldError, RequestInvalid
from voicelab.schema import VoiceCreate
from voicelab.service.concurrency import run_in_executor

BodyKind = Literal["json", "msgpack"]

_KINDS: dict[str, BodyKind] = {"application/json": "json", "application/msgpack": "msgpack"}

# A request has 18 fields and a handful of references. One more reason for a bound on each container:
# an array may claim any length, and memory is set aside for it before its items are seen.
_LONGEST = 64
# Nesting multiplies: four arrays of 64 inside each other hold 16 million maps in as many bytes.
_MOST_CONTAINERS = 1024
_MOST_DIGITS = 400
# Of `[{,:` in a JSON body, those in its text included: an empty array takes two bytes there and 56 in memory.
_MOST_MARKS = 200_000
_SHORT = 64 * 1024

MAX_PARTS: Final = 128
"""Parts of one form; a voice model has 20 recordings, as many transcripts, tags and a handful of fields."""

_FILES = ("voices", "cover_image")
_LISTED = re.compile(r"(voices|texts|tags)(?:\[([0-9]{0,4})\])?", re.ASCII)
_LONGEST_TEXT = 256 * 1024


def bearer_secret(request: Request) -> str:
    """Return the secret of the ``Authorization: Bearer`` header. Raises AuthenticationError.

    The message never repeats the header.
    """
    values = request.headers.getlist("authorization")
    if not values:
        raise AuthenticationError("An API key is needed: Authorization: Bearer <API key>", status=401)
    scheme, _, secret = values[0].strip().partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not secret.strip():
        raise AuthenticationError("The Authorization header must be: Bearer <API key>", status=401)
    return secret.strip()


def media_type(request: Request) -> str:
    """Return the content type without its parameters. Raises HTTPException 415 for a compressed body."""
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise HTTPException(415, "The body must not be compressed")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def body_kind(request: Request) -> BodyKind:
    """Return what the content type says the body is. Raises HTTPException 415."""
    kind = _KINDS.get(media_type(request))
    if kind is None:
        raise HTTPException(415, "The content type must be application/json or application/msgpack")
    return kind


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Return the body of at most ``limit`` bytes, sent within ``seconds``. Raises HTTPException 413 or 408."""
    body = bytearray()
    await _receive(request, limit, seconds, body.extend)
    return bytes(body)


async def read_form(request: Request, limit: int, file_limit: int, seconds: float) -> list[Part]:
    """Return the parts of a form of at most ``limit`` bytes, each file at most ``file_limit``, within ``seconds``.

    Raises HTTPException 413 or 408, RequestInvalid for what is no form or was cut off.
    """
    _, options = parse_options_header(request.headers.get("content-type"))
    form = _Form(options.get(b"boundary", b""), file_limit)
    await _receive(request, limit, seconds, form.feed)
    return form.finish()


async def _receive(request: Request, limit: int, seconds: float, feed: Callable[[bytes], object]) -> None:
    too_large = HTTPException(413, f"The body is larger than {limit} bytes")
    length = request.headers.get("content-length", "")
    # The server has refused what is no number; an honest length is refused before any of the body is read.
    if length.isdecimal() and int(length) > limit:
        raise too_large
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for data in request.stream():
                size += len(data)
                if size > limit:
                    raise too_large
                feed(data)
    except TimeoutError:
        # The connection is closed: the rest of the body would be taken for the next request.
        message = f"The body did not arrive within {seconds:g} s"
        raise HTTPException(408, message, {"connection": "close"}) from None


async def decode_body(executor: Executor, body: bytes, kind: BodyKind) -> object:
    """Return what ``decode`` does; a long body is decoded in a thread of ``executor``."""
    return decode(body, kind) if len(body) <= _SHORT else await run_in_executor(executor, decode, body, kind)


def decode(body: bytes, kind: BodyKind) -> object:
    """Return what a body says: a mapping if it is a request, anything else its decoder allows otherwise.

    Raises RequestInvalid for syntax errors and duplicate keys, and for nesting or lengths that no request has.
    """
    try:
        return _from_json(body) if kind == "json" else _from_msgpack(body)
    except RequestInvalid:
        raise
    except RecursionError:
        raise _malformed(kind, "nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _malformed(kind, f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise _malformed(kind, f"text that is not UTF-8 at byte {error.start}") from None
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        # An unhashable key; a length that lies. Some quote the input, which may be long and hold anything.
        text = ascii(str(error))[1:-1] or type(error).__name__
        raise _malformed(kind, text if len(text) <= 120 else f"{text[:120]}...") from None


def _from_json(body: bytes) -> object:
    if len(body) > _MOST_MARKS and sum(map(body.count, (b"[", b"{", b",", b":"))) > _MOST_MARKS:
        raise _malformed("json", "more values than any request has")
    # NaN and its like are left to the schema, which names the field.
    return json.loads(body.decode("utf-8-sig"), object_pairs_hook=partial(_unique, "json"), parse_int=_whole)


def _from_msgpack(body: bytes) -> object:
    count = 0

    def counted(container: Any) -> Any:
        nonlocal count
        count += 1
        if count > _MOST_CONTAINERS:
            raise _malformed("msgpack", f"more than {_MOST_CONTAINERS} arrays and maps")
        return container

    return msgpack.unpackb(
        body,
        raw=False,
        strict_map_key=True,
        object_pairs_hook=lambda pairs: counted(_unique("msgpack", pairs)),
        list_hook=counted,
        max_array_len=_LONGEST,
        max_map_len=_LONGEST,
        max_ext_len=0,
    )


def _unique(kind: BodyKind, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    # Which of two values is meant cannot be known; parsers differ, and a caller would get one unawares.
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _malformed(kind, "the same key twice in one object")
    return fields


def _whole(digits: str) -> int:
    # Reading digits takes time that grows with their square; no field takes as many as this.
    if len(digits) > _MOST_DIGITS:
        raise _malformed("json", f"a number of {len(digits)} digits")
    return int(digits)


_MALFORMED: Final = {
    "json": "is not JSON that a request can be",
    "msgpack": "is not MessagePack that a request can be",
    "multipart": "is no form that can be read",
}


def _malformed(kind: Literal[BodyKind, "multipart"], what: str) -> RequestInvalid:
    return RequestInvalid((FieldError(("body",), f"{kind}_invalid", f"The body {_MALFORMED[kind]}: {what}"),))


@dataclass(slots=True)
class Part:
    """One part of a form: the name of its field, its bytes as they were sent, and how many it may have."""

    name: str = ""
    data: bytearray = field(default_factory=bytearray)
    limit: int = 0


class _Form:
    def __init__(self, boundary: bytes, file_limit: int) -> None:
        if not boundary:
            raise _malformed("multipart", "its content type names no boundary")
        self._file_limit = file_limit
        self._parts: list[Part] = []
        self._header, self._value = bytearray(), bytearray()
        self._ended = False
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
            raise _malformed("multipart", str(error)) from None

    def feed(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError:
            raise _malformed("multipart", "it does not follow its boundary") from None

    def finish(self) -> list[Part]:
        if not self._ended:
            raise _malformed("multipart", "it is cut off")
        return self._parts

    def _begin(self) -> None:
        if len(self._parts) == MAX_PARTS:
            raise _malformed("multipart", f"it has more than {MAX_PARTS} parts")
        self._parts.append(Part())

    def _header_end(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            if b"name" in options:
                part = self._parts[-1]
                part.name = options[b"name"].decode("utf-8", "replace")
                part.limit = self._file_limit if _base(part.name) in _FILES else _LONGEST_TEXT
        self._header.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        if not self._parts[-1].limit:
            raise _malformed("multipart", "a part has no name")

    def _data(self, data: bytes, start: int, end: int) -> None:
        part = self._parts[-1]
        if len(part.data) + end - start > part.limit:
            raise HTTPException(413, f"A part of the form is larger than {part.limit} bytes")
        part.data += data[start:end]

    def _end(self) -> None:
        self._ended = True


def form_fields(parts: list[Part]) -> dict[str, object]:
    """Return a form's parts as the fields of a request: files as bytes, the rest as text, lists in their order.

    Clients call every part a file, or index their lists, or repeat a name: ``voices``, ``voices[]`` and
    ``voices[0]`` all mean the same field, and a text may come as a file. So only a part's field name counts.
    Parts that are no field of a request are left out.

    Raises RequestInvalid for text that is not UTF-8, and for two values where one is meant.
    """
    wire: dict[str, object] = {}
    lists: dict[str, dict[int, object]] = {}
    for part in parts:
        match, name = _LISTED.fullmatch(part.name), _base(part.name)
        if name not in VoiceCreate.model_fields:
            continue  # whatever it holds, and however often it comes
        value = _value(name, bytes(part.data))
        entries = lists.setdefault(name, {})
        # Numbered ones by their numbers, before those that are not, which keep the order of their arrival.
        number = int(match[2]) if match and match[2] else 10_000 + len(entries)
        if number in entries or (entries and match is None):
            raise RequestInvalid.of(name, f"The field {name} is given twice", type="duplicate")
        entries[number] = value
        if match is None:
            wire[name] = value
        # An empty field of a form is one that was left out.
        elif name == "voices" or any(entries.values()):
            wire[name] = [entries[number] for number in sorted(entries)]
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
        raise RequestInvalid.of(name, "Input should be UTF-8 text", type="string_unicode") from None
