"""Request bodies: read within bounds of size and time, and decoded so that no input can harm.

Whatever is wrong with a body's syntax is a RequestInvalid (422) with loc ``["body"]``. Both decoders
bound the memory that a body can become: JSON by the number of its values, MessagePack by the number and the
length of its containers.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Executor
from functools import partial
from typing import Any, Literal, NoReturn

import msgpack  # type: ignore[import-untyped]  # it publishes no types
from starlette.exceptions import HTTPException
from starlette.requests import Request

from voicelab.errors import FieldError, RequestInvalid
from voicelab.service.aside import aside

__all__ = ["BodyKind", "body_kind", "check_length", "decode", "decoded", "late", "media_type", "read_body"]

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


def body_kind(request: Request) -> BodyKind:
    """Return what the content type says the body is. Raises HTTPException 415."""
    kind = _KINDS.get(media_type(request))
    if kind is None:
        raise HTTPException(415, "The content type must be application/json or application/msgpack")
    return kind


def media_type(request: Request) -> str:
    """Return the content type without its parameters. Raises HTTPException 415 for a compressed body."""
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise HTTPException(415, "The body must not be compressed")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_length(request: Request, limit: int) -> None:
    """Raise HTTPException 413 when the body says that it is larger than ``limit`` bytes."""
    declared = request.headers.get("content-length", "")
    # The server has refused what is no number; an honest length is refused before any of it is read.
    if declared.isdecimal() and int(declared) > limit:
        raise HTTPException(413, f"The body is larger than {limit} bytes")


def late(seconds: float) -> HTTPException:
    """Return the answer to a body that did not arrive in time."""
    # The rest of the body would be taken for the next request.
    return HTTPException(408, f"The body did not arrive within {seconds:g} s", {"connection": "close"})


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Return the body of at most ``limit`` bytes, sent within ``seconds``. Raises HTTPException 413 or 408."""
    check_length(request, limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise HTTPException(413, f"The body is larger than {limit} bytes")
                parts.append(part)
    except TimeoutError:
        raise late(seconds) from None
    return b"".join(parts)


async def decoded(executor: Executor, body: bytes, kind: BodyKind) -> object:
    """Return what ``decode`` does; a body that takes a while is read in a thread of ``executor``."""
    return decode(body, kind) if len(body) <= _SHORT else await aside(executor, decode, body, kind)


def decode(body: bytes, kind: BodyKind) -> object:
    """Return what a body says: a mapping if it is a request, anything else its decoder allows otherwise.

    Raises RequestInvalid for syntax errors and duplicate keys, and for nesting or lengths that no request has.
    """
    try:
        return _from_json(body) if kind == "json" else _from_msgpack(body)
    except RequestInvalid:
        raise
    except RecursionError:
        _refuse(kind, "nested too deeply")
    except json.JSONDecodeError as error:
        _refuse(kind, f"{error.msg} at character {error.pos}")
    except UnicodeDecodeError as error:
        _refuse(kind, f"text that is not UTF-8 at byte {error.start}")
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        # An unhashable key; a length that lies.
        _refuse(kind, _plain(error))


def _from_json(body: bytes) -> object:
    if len(body) > _MOST_MARKS and sum(map(body.count, (b"[", b"{", b",", b":"))) > _MOST_MARKS:
        _refuse("json", "more values than any request has")
    unique = partial(_unique, "json")
    text = body.decode("utf-8-sig")
    # NaN and its like are left to the schema, which names the field.
    return json.loads(text, object_pairs_hook=unique, parse_int=_whole)


def _from_msgpack(body: bytes) -> object:
    count = 0

    def counted(container: Any) -> Any:
        nonlocal count
        count += 1
        if count > _MOST_CONTAINERS:
            _refuse("msgpack", f"more than {_MOST_CONTAINERS} arrays and maps")
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
        _refuse(kind, "the same key twice in one object")
    return fields


def _whole(digits: str) -> int:
    # Reading digits takes time that grows with their square; no field takes as many as this.
    if len(digits) > _MOST_DIGITS:
        _refuse("json", f"a number of {len(digits)} digits")
    return int(digits)


def _plain(error: Exception) -> str:
    # Some of these messages quote the input, which may be long and hold anything.
    text = str(error).encode("ascii", "backslashreplace").decode("ascii")
    return (text[:120] + "...") if len(text) > 120 else text or type(error).__name__


def _refuse(kind: BodyKind, what: str) -> NoReturn:
    name = {"json": "JSON", "msgpack": "MessagePack"}[kind]
    message = f"The body is not {name} that a request can be: {what}"
    raise RequestInvalid((FieldError(("body",), f"{kind}_invalid", message),)) from None
