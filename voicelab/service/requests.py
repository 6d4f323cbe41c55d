"""Parse requests: bearer token, and JSON, MessagePack or form bodies, with limits on size and time.

Syntax errors in a body raise RequestInvalid (422) with loc ``["body"]``. Memory is limited by the number of
values in JSON, by number and length of containers in MessagePack, and by number and size of parts in forms.
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

from voicelab.errors import AuthenticationError, FieldError, RequestInvalid, some
from voicelab.schema import ProsodyControl, TTSRequest, VoiceCreate
from voicelab.service.concurrency import run_in_executor
from voicelab.service.openapi import SEED_HEADER

BodyKind = Literal["json", "msgpack"]

_KINDS: dict[str, BodyKind] = {"application/json": "json", "application/msgpack": "msgpack"}

# A request has 18 fields and a few references. The limit is low because msgpack allocates the declared length of an array
# in advance.
_MAX_CONTAINER_LENGTH = 64
# A second limit is needed because containers can be nested: four levels of 64 items would be 16 million.
_MAX_CONTAINERS = 1024
_MAX_DIGITS = 400
# Maximum number of the characters `[{,:` in a JSON body, including those in strings. This limits memory: an empty array has
# 2 bytes in JSON, but 56 in memory.
_MAX_DELIMITERS = 200_000
_MAX_INLINE_BYTES = 64 * 1024  # longer bodies are decoded in a thread

MAX_PARTS: Final = 128
"""Maximum number of parts of a form; a voice model has up to 20 recordings and transcripts, tags and a few fields."""

_MAX_LISTED = 8
_FILE_FIELDS = ("voices", "cover_image")
_LIST_FIELD = re.compile(r"(voices|texts|tags)(?:\[([0-9]{0,4})\])?", re.ASCII)
_MAX_TEXT_BYTES = 256 * 1024


def bearer_secret(request: Request) -> str:
    """Return the secret of the ``Authorization: Bearer`` header. Raises AuthenticationError, which does not quote it."""
    values = request.headers.getlist("authorization")
    if not values:
        raise AuthenticationError("An API key is required: Authorization: Bearer <API key>", status=401)
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
    """Determine the format of the body from its content type. Raises HTTPException 415."""
    kind = _KINDS.get(media_type(request))
    if kind is None:
        raise HTTPException(415, "The content type must be application/json or application/msgpack")
    return kind


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Read a body of at most ``limit`` bytes within ``seconds``. Raises HTTPException 413 or 408."""
    body = bytearray()
    await _receive(request, limit, seconds, body.extend)
    return bytes(body)


async def read_form(request: Request, limit: int, file_limit: int, seconds: float) -> list[Part]:
    """Read a form of at most ``limit`` bytes, with files of at most ``file_limit``, within ``seconds``.

    Raises HTTPException 413 or 408, RequestInvalid for an invalid or truncated form.
    """
    _, options = parse_options_header(request.headers.get("content-type"))
    form = _Form(options.get(b"boundary", b""), file_limit)
    await _receive(request, limit, seconds, form.feed)
    return form.finish()


async def _receive(request: Request, limit: int, seconds: float, feed: Callable[[bytes], object]) -> None:
    too_large = HTTPException(413, f"The body is larger than {limit} bytes")
    length = request.headers.get("content-length", "")
    # The server rejects invalid lengths; excessive lengths are rejected here, before the body is read.
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
        # The connection must be closed, because the rest of the body would be parsed as the next request.
        message = f"The body did not arrive within {seconds:g} s"
        raise HTTPException(408, message, {"connection": "close"}) from None


def ignored_fields(wire: object) -> tuple[str, ...]:
    """Return a note on the fields of a speech request that the interface does not have; an empty tuple if there are none."""
    fields = wire if isinstance(wire, dict) else {}
    names = [ascii(name)[1:-1] for name in fields if name not in TTSRequest.model_fields]
    if isinstance(prosody := fields.get("prosody"), dict):
        names += [f"prosody.{ascii(name)[1:-1]}" for name in prosody if name not in ProsodyControl.model_fields]
    seed = f"; a seed is sent in the header {SEED_HEADER}" if "seed" in names else ""
    listed = some([name[:40] for name in names], _MAX_LISTED)
    return (f"Ignored, because the interface has no such fields: {listed}{seed}.",) if names else ()


async def decode_body(executor: Executor, body: bytes, kind: BodyKind) -> object:
    """Decode a body with ``decode``, in a thread of ``executor`` if it is long."""
    return decode(body, kind) if len(body) <= _MAX_INLINE_BYTES else await run_in_executor(executor, decode, body, kind)


def decode(body: bytes, kind: BodyKind) -> object:
    """Decode a body; the result is a mapping if the request is valid.

    Raises RequestInvalid for syntax errors, duplicate keys, and excessive nesting or lengths.
    """
    try:
        return _from_json(body) if kind == "json" else _from_msgpack(body)
    except RequestInvalid:
        raise
    except RecursionError:
        raise _malformed(kind, "it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _malformed(kind, f"{error.msg} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise _malformed(kind, f"byte {error.start} is not UTF-8") from None
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        # Examples are an unhashable key and a wrong length. The messages of these errors may quote the input.
        text = ascii(str(error))[1:-1] or type(error).__name__
        raise _malformed(kind, text if len(text) <= 120 else f"{text[:120]}...") from None


def _from_json(body: bytes) -> object:
    if len(body) > _MAX_DELIMITERS and sum(map(body.count, (b"[", b"{", b",", b":"))) > _MAX_DELIMITERS:
        raise _malformed("json", f"it has more than {_MAX_DELIMITERS} brackets, commas and colons")
    # NaN and infinity are rejected by the schema, with the field's name.
    return json.loads(body.decode("utf-8-sig"), object_pairs_hook=partial(_unique, "json"), parse_int=_integer)


def _from_msgpack(body: bytes) -> object:
    count = 0

    def counted(container: Any) -> Any:
        nonlocal count
        count += 1
        if count > _MAX_CONTAINERS:
            raise _malformed("msgpack", f"it has more than {_MAX_CONTAINERS} arrays and maps")
        return container

    return msgpack.unpackb(
        body,
        raw=False,
        strict_map_key=True,
        object_pairs_hook=lambda pairs: counted(_unique("msgpack", pairs)),
        list_hook=counted,
        max_array_len=_MAX_CONTAINER_LENGTH,
        max_map_len=_MAX_CONTAINER_LENGTH,
        max_ext_len=0,
    )


def _unique(kind: BodyKind, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    # Parsers differ in which of the two values they use.
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _malformed(kind, "an object has a key twice")
    return fields


def _integer(digits: str) -> int:
    # int() takes quadratic time.
    if len(digits) > _MAX_DIGITS:
        raise _malformed("json", f"a number has {len(digits)} digits, more than {_MAX_DIGITS}")
    return int(digits)


_MALFORMED: Final = {
    "json": "is not valid JSON",
    "msgpack": "is not valid MessagePack",
    "multipart": "is not a valid form",
}


def _malformed(kind: Literal[BodyKind, "multipart"], reason: str) -> RequestInvalid:
    return RequestInvalid((FieldError(("body",), f"{kind}_invalid", f"The body {_MALFORMED[kind]}: {reason}"),))


@dataclass(slots=True)
class Part:
    """Part of a form: field name, bytes, and size limit in bytes."""

    name: str = ""
    data: bytearray = field(default_factory=bytearray)
    limit: int = 0


class _Form:
    def __init__(self, boundary: bytes, file_limit: int) -> None:
        if not boundary:
            raise _malformed("multipart", "the content type has no boundary")
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
            raise _malformed("multipart", "the boundary must be followed by a line break or --") from None

    def finish(self) -> list[Part]:
        if not self._ended:
            raise _malformed("multipart", "it is truncated")
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
                part.limit = self._file_limit if _field_name(part.name) in _FILE_FIELDS else _MAX_TEXT_BYTES
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
    """Convert a form's parts to fields of a request: files as bytes, other values as text, lists in order.

    Clients differ: ``voices``, ``voices[]`` and ``voices[0]`` are the same field, and texts may be sent as files.
    Unknown fields are ignored.

    Raises RequestInvalid for text that is not UTF-8, and for duplicates of a single field.
    """
    wire: dict[str, object] = {}
    lists: dict[str, dict[int, object]] = {}
    for part in parts:
        match, name = _LIST_FIELD.fullmatch(part.name), _field_name(part.name)
        if name not in VoiceCreate.model_fields:
            continue
        value = _value(name, bytes(part.data))
        entries = lists.setdefault(name, {})
        # Sort by index; items without an index follow in order of arrival.
        number = int(match[2]) if match and match[2] else 10_000 + len(entries)
        if number in entries or (entries and match is None):
            raise RequestInvalid.of(name, f"Duplicate field {name}", type="duplicate")
        entries[number] = value
        if match is None:
            wire[name] = value
        # Browsers send unset fields as empty parts.
        elif name == "voices" or any(entries.values()):
            wire[name] = [entries[number] for number in sorted(entries)]
    return wire


def _field_name(name: str) -> str:
    match = _LIST_FIELD.fullmatch(name)
    return match[1] if match else name


def _value(name: str, data: bytes) -> object:
    if name in _FILE_FIELDS:
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestInvalid.of(name, "must be UTF-8 text", type="string_unicode") from None
