from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator

import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from voicelab.errors import RequestInvalid
from voicelab.service.requests import MAX_PARTS, BodyKind, Part, decode, form_fields, read_form

BOUNDARY = b"--x"
WAV = bytes(range(256)) * 4


def _part(name: str, data: bytes, more: str = "") -> bytes:
    return b'----x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name.encode(), more.encode(), data)


def _form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"----x--\r\n"


def _read(
    body: bytes, *, limit: int = 10**6, file: int = 10**5, piece: int = 1000, content_type: bytes | None = None
) -> list[Part]:
    pieces: Iterator[bytes] = iter([body[at : at + piece] for at in range(0, len(body), piece)] + [b""])

    async def receive() -> Message:
        data = next(pieces)
        return {"type": "http.request", "body": data, "more_body": bool(data)}

    kind = b"multipart/form-data; boundary=" + BOUNDARY if content_type is None else content_type
    request = Request({"type": "http", "headers": [(b"content-type", kind)]}, receive)
    return asyncio.run(read_form(request, limit, file, 5.0))


def _wire(*parts: bytes) -> dict[str, object]:
    return form_fields(_read(_form(*parts)))


@pytest.mark.parametrize("piece", [1, 7, 64, 10_000])
def test_form_does_not_depend_on_chunking(piece: int) -> None:
    body = _form(_part("title", "Ä".encode()), _part("voices", WAV, '; filename="a.wav"\r\nContent-Type: audio/wav'))
    assert form_fields(_read(body, piece=piece)) == {"title": "Ä", "voices": [WAV]}


@pytest.mark.parametrize("names", [("voices", "voices"), ("voices[]", "voices[]"), ("voices[0]", "voices[1]")])
@pytest.mark.parametrize("more", ["", '; filename="upload"\r\nContent-Type: application/octet-stream', '; filename=""'])
def test_files_are_known_by_their_field(names: tuple[str, str], more: str) -> None:
    found = _wire(*(_part(name, WAV + bytes([number]), more) for number, name in enumerate(names)))
    assert found == {"voices": [WAV + b"\x00", WAV + b"\x01"]}


def test_indices_set_the_order() -> None:
    parts = [_part(f"texts[{number}]", b"%d" % number) for number in (10, 2, 0)]
    assert _wire(*parts) == {"texts": ["0", "2", "10"]}
    assert _wire(_part("tags", b"last"), _part("tags[3]", b"first")) == {"tags": ["first", "last"]}


def test_a_text_may_come_as_a_file() -> None:
    more = '; filename="upload"\r\nContent-Type: application/octet-stream'
    assert _wire(_part("title", b"Ada", more), _part("texts", b"said", more)) == {"title": "Ada", "texts": ["said"]}


def test_empty_lists_are_left_out_and_empty_files_are_not() -> None:
    assert _wire(_part("texts", b""), _part("tags[]", b""), _part("voices", b"")) == {"voices": [b""]}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([_part("title", b"a"), _part("title", b"b")], "title: Duplicate field title"),
        ([_part("voices[1]", b"a"), _part("voices[1]", b"b")], "voices: Duplicate field voices"),
        ([_part("title", b"\xff\xfe")], "title: must be UTF-8"),
        ([_part("texts[0]", b"\xff\xfe")], "texts: must be UTF-8"),
    ],
)
def test_duplicate_fields_are_rejected(parts: list[bytes], why: str) -> None:
    with pytest.raises(RequestInvalid, match=why):
        _wire(*parts)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", None),
        (b"no form at all", None),
        (_form(_part("title", b"a"))[:-6], None),
        (b"----x\r\n\r\nno headers\r\n----x--\r\n", None),
        (b"----x\r\nContent-Disposition: form-data\r\n\r\nno name\r\n----x--\r\n", None),
        (b"----x\r\nA: " + b"b" * 10**5 + b"\r\n\r\nx\r\n----x--\r\n", None),
        (_form(*[_part("tags", b"x")] * (MAX_PARTS + 1)), None),
        (_form(_part("title", b"a")), b"multipart/form-data"),
        (_form(_part("title", b"a")), b"multipart/form-data; boundary=" + b"x" * 300),
    ],
    ids="empty rubbish cut headerless nameless header parts boundless boundary".split(),
)
def test_malformed_forms_are_rejected(body: bytes, content_type: bytes | None) -> None:
    with pytest.raises(RequestInvalid) as caught:
        _read(body, content_type=content_type)
    assert caught.value.errors[0].loc == ("body",)
    assert caught.value.errors[0].type == "multipart_invalid"


@pytest.mark.parametrize(
    "parts",
    [[_part("voices", bytes(10**5 + 1))], [_part("title", bytes(300_000))], [_part("voices", bytes(9**5))] * 20],
)
def test_too_large_parts_are_rejected_early(parts: list[bytes]) -> None:
    with pytest.raises(HTTPException) as caught:
        _read(_form(*parts))
    assert caught.value.status_code == 413


# JSON and MessagePack


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"text": "hi", "top_p": 1}', {"text": "hi", "top_p": 1}),
        (b'\xef\xbb\xbf{"text": "hi"}', {"text": "hi"}),
        ('{"text": "żółw 🐢"}'.encode(), {"text": "żółw 🐢"}),
        (b'{"text": "\\ud83d\\ude00"}', {"text": "😀"}),
        (b"null", None),
        (b"[1]", [1]),
        # Marks inside a text are no values.
        (b'{"text": "' + b"[{,:" * 5_000 + b'"}', {"text": "[{,:" * 5_000}),
    ],
)
def test_json_is_read(body: bytes, value: object) -> None:
    assert decode(body, "json") == value


def test_msgpack_is_read() -> None:
    value = {"text": "żółw 🐢", "references": [{"audio": b"\x00\xff" * 5000, "text": "x"}] * 64, "top_p": 0.5}
    assert decode(msgpack.packb(value), "msgpack") == value


NO_JSON = [
    b"",
    b"{",
    b"{'text': 1}",
    b'{"text": nan}',
    b'{"text": +Infinity}',
    b'{"text": "a", "text": "b"}',
    b'{"prosody": {"speed": 1, "speed": 2}}',
    b'{"text": "\xff"}',
    b'{"text": "\xed\xa0\x80"}',
    '{"text": "hi"}'.encode("utf-16"),
    b'{"top_p": ' + b"1" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
]
NO_MSGPACK = [
    b"",
    b"\x81",
    b"\xc1",
    b"\x80\x80",
    b"\x81\xa4text",
    b"\x81\xa4text\xa2\xff\xff",  # not UTF-8
    b"\x81\xa4text\xa3\xed\xa0\x80",  # half a surrogate pair
    b"\x82\xa1a\x01\xa1a\x02",  # the same key twice
    b"\x81\x91\x01\x01",  # an array as a key
    b"\x81\x01\x01",  # a number as a key
    b"\xd6\xff\x00\x00\x00\x01",  # a timestamp
    b"\xd4\x01\x01",  # an extension
    b"\xdd\xff\xff\xff\xff",  # lengths that lie
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91" * 100_000,  # deep
    b"\x81\xa1a" * 100_000,
    b"\xdc\x00\x41" + b"\xc0" * 65,  # long
]


@pytest.mark.parametrize(("kind", "bodies"), [("json", NO_JSON), ("msgpack", NO_MSGPACK)])
def test_malformed_bodies_are_rejected(kind: BodyKind, bodies: list[bytes]) -> None:
    for body in bodies:
        _refused(body, kind)


def _flood(leaf: bytes, depth: int) -> bytes:
    value = leaf
    for _ in range(depth):
        value = b"\xdc\x00\x40" + value * 64
    return value


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("json", b"[" + b"[]," * 3_000_000 + b"0]"),
        ("json", b'{"text": [' + b"0.1," * 2_000_000 + b"0]}"),
        ("json", b'{"a":' * 300_000 + b"1" + b"}" * 300_000),
        ("json", b"[" + b'"a",' * 2_000_000 + b"0]"),
        ("json", b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}"),
        ("msgpack", b"\xdd" + (10_000_000).to_bytes(4, "big") + b"\x80" * 10_000_000),
        # No container is long, but there are 16 million.
        ("msgpack", _flood(b"\x80", 4)),
        ("msgpack", _flood(b"\x90", 4)),
    ],
    ids=["arrays", "numbers", "depth", "strings", "keys", "long", "nested maps", "nested arrays"],
)
def test_a_flood_of_values_is_refused_before_it_takes_memory(kind: BodyKind, body: bytes) -> None:
    tracemalloc.start()
    try:
        _refused(body, kind)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(body)


def test_the_answer_repeats_no_long_input() -> None:
    error = _refused(msgpack.packb({1: 1, "x" * 10_000: 2}, strict_types=True), "msgpack")
    assert len(str(error)) < 300


def _refused(body: bytes, kind: BodyKind) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as caught:
        decode(body, kind)
    (item,) = caught.value.errors
    assert item.loc == ("body",)
    assert item.type == f"{kind}_invalid"
    assert str(caught.value).isascii()
    return caught.value
