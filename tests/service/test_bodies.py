from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from voicelab.errors import RequestInvalid
from voicelab.service.bodies import BodyKind, decode


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"text": "hi", "top_p": 1}', {"text": "hi", "top_p": 1}),
        (b'\xef\xbb\xbf{"text": "hi"}', {"text": "hi"}),
        ('{"text": "żółw 🐢"}'.encode(), {"text": "żółw 🐢"}),
        (b'{"text": "\\ud83d\\ude00"}', {"text": "😀"}),
        (b"null", None),
        (b"[1]", [1]),
    ],
)
def test_json_is_read(body: bytes, value: object) -> None:
    assert decode(body, "json") == value


def test_msgpack_is_read() -> None:
    value = {"text": "żółw 🐢", "references": [{"audio": b"\x00\xff" * 5000, "text": "x"}] * 64, "top_p": 0.5}
    assert decode(msgpack.packb(value), "msgpack") == value


@pytest.mark.parametrize(
    "body",
    [
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
    ],
)
def test_json_that_no_request_can_be_is_refused(body: bytes) -> None:
    _refused(body, "json")


@pytest.mark.parametrize(
    "body",
    [
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
    ],
)
def test_msgpack_that_no_request_can_be_is_refused(body: bytes) -> None:
    _refused(body, "msgpack")


def _flood(leaf: bytes, depth: int) -> bytes:
    value = leaf
    for _ in range(depth):
        value = b"\xdc\x00\x40" + value * 64
    return value


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd" + (10_000_000).to_bytes(4, "big") + b"\x80" * 10_000_000,
        # No container is long, but there are 16 million.
        _flood(b"\x80", 4),
        _flood(b"\x90", 4),
    ],
    ids=["long", "nested maps", "nested arrays"],
)
def test_a_flood_of_containers_is_refused_before_it_takes_memory(body: bytes) -> None:
    tracemalloc.start()
    try:
        _refused(body, "msgpack")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(body)


def test_the_answer_repeats_no_long_input() -> None:
    error = _refused(msgpack.packb({1: 1, "x" * 10_000: 2}, strict_types=True), "msgpack")
    assert len(str(error)) < 300


def _refused(body: bytes, kind: Any) -> RequestInvalid:
    checked: BodyKind = kind
    with pytest.raises(RequestInvalid) as caught:
        decode(body, checked)
    (item,) = caught.value.errors
    assert item.loc == ("body",)
    assert item.type == f"{kind}_invalid"
    assert str(caught.value).isascii()
    return caught.value
