"""Part 7: what an error looks like."""

from __future__ import annotations

from tests.interface.conftest import Wire
from tests.interface.rules import proves
from tests.interface.tables import TTS_REQUEST
from tests.interface.wire import JSON, MSGPACK, Caller, fields, refusal


@proves("7.1/402:meaning", "7.1/402:body")
def test_without_credit_there_is_402(wire: Wire, kind: str) -> None:
    caller = Caller(wire.caller.url, wire.keys.create(f"credit {kind}", credit=10).secret)
    assert caller.tts({"text": "12345678"}, kind).status == 200
    refusal(caller.tts({"text": "12345678"}, kind), 402)
    assert caller.tts({"text": "12"}, kind).status == 200
    refusal(caller.tts({"text": "1"}, kind), 402)


@proves("7.1/422:meaning", "7.1/422:body", "7.1/422:loc", "7.1/422:type", "7.1/422:msg", "7.1/422:ctx", "7.1/422:in")
def test_a_422_is_an_array_that_names_every_wrong_field(wire: Wire, kind: str) -> None:
    answer = wire.refused(kind, temperature=2, top_p="x", latency="fast", chunk_length=99, prosody={"speed": 3})
    wrong = ["body.chunk_length", "body.latency", "body.prosody.speed", "body.temperature", "body.top_p"]
    assert sorted(".".join(loc) for loc in fields(answer)) == wrong  # `fields` looks at the shape of every item
    items = {item["loc"][-1]: item for item in answer.json()}
    assert all(item["in"] == "body" for item in items.values())
    assert len({items[name]["type"] for name in ("temperature", "top_p", "latency")}) == 3
    assert "1" in items["temperature"]["msg"] + items["temperature"]["ctx"]


@proves("7.1/422:in=body")
def test_in_body(wire: Wire) -> None:
    assert wire.refused(temperature=2).json()[0]["in"] == "body"


@proves("7.1/422:in=header")
def test_in_header(wire: Wire) -> None:
    assert wire.caller.tts({"text": "Hi"}, model="s3").json()[0]["in"] == "header"


NO_OBJECT = [b"", b"{", b"null", b"[]", b"1", b'"text"', b"\xff", b'{"text": "a", "text": "b"}', b"[" * 5000]
NO_MAP = [
    *(b"", b"\xc1", b"\xc0", b"\x90", b"\x01", b"\x82\xa4text", b"\x81\xa4text\xa2Hi\x00", b"\x91" * 5000),
    *(b"\x81\x01\x01", b"\x81\xc4\x04text\xa2Hi", b"\x81\xa4text\xc4\x02Hi"),  # bytes and numbers as strings
]


def test_what_is_no_object_is_a_422_of_the_body(wire: Wire) -> None:
    for kind, bodies in ((JSON, NO_OBJECT), (MSGPACK, NO_MAP)):
        for body in bodies:
            assert all(loc[0] == "body" for loc in fields(wire.caller.tts(body, kind)))


def test_numbers_that_python_can_not_take_are_422(wire: Wire) -> None:
    named = [name for name, field in TTS_REQUEST.items() if field.type in {"integer", "number"}]
    for number in (str(2**64), f"-{2**64}", f"{10**300}", f"-{10**300}", "1e400", "-1e400", "1e99999"):
        for name in named:
            assert fields(wire.caller.tts(f'{{"text": "Hi", "{name}": {number}}}'.encode())) == [["body", name]]
    for number in ("9" * 400, "9" * 5000):
        for name in named:
            locs = fields(wire.caller.tts(f'{{"text": "Hi", "{name}": {number}}}'.encode()))
            assert all(loc[0] == "body" for loc in locs)
