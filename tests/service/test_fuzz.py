"""Whatever is sent, the answer is the interface's: audio, or an error in its shape, and never a 5xx."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.served import Service, fields, message
from voicelab.schema import TTSRequest

# The service is shared and keeps nothing of a request. Real sockets are too slow for many examples.
fuzz = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NUMBERS = st.sampled_from(
    [-1, 0, 1, 2**31, 2**63, 2**64, -(2**63), 1e999, -1e999, float("nan"), True, 0.5, -0.0, 1e-320]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | NUMBERS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
FIELDS = st.sampled_from(sorted(TTSRequest.model_fields))
# Mostly a good request with something wrong in it: the deeper checks are behind the first ones.
BODIES = st.builds(
    lambda text, wrong: {"text": text, "format": "pcm", "sample_rate": 8000, **wrong},
    st.text(min_size=1, max_size=12),
    st.dictionaries(FIELDS | st.text(max_size=8), VALUES, max_size=3),
)


def check(answer: httpx.Response) -> None:
    if answer.status_code == 200:
        assert answer.headers["content-type"].startswith("audio/")
        assert answer.content
        return
    assert answer.status_code in {401, 413, 415, 422}
    if answer.status_code == 422:
        fields(answer)
    else:
        message(answer, answer.status_code)


def post(service: Service, content: bytes, kind: str) -> httpx.Response:
    return service.http.post("/v1/tts", content=content, headers={"content-type": f"application/{kind}"})


@fuzz
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"audio": st.binary(max_size=30) | SCALARS, "text": SCALARS}), max_size=3
    )
)
def test_references(service: Service, references: list[Any]) -> None:
    try:
        packed = msgpack.packb({"text": "a", "format": "pcm", "references": references})
    except (OverflowError, ValueError):
        return
    check(post(service, packed, "msgpack"))


@fuzz
@given(BODIES, st.data(), st.sampled_from(["json", "msgpack"]))
def test_damaged_bodies(service: Service, body: dict[str, Any], data: st.DataObject, kind: str) -> None:
    try:
        content = json.dumps(body).encode() if kind == "json" else msgpack.packb(body)
    except (OverflowError, ValueError):
        return
    where = data.draw(st.integers(0, len(content) - 1))
    cut = data.draw(st.booleans())
    damaged = (
        content[:where]
        if cut
        else content[:where] + data.draw(st.binary(min_size=1, max_size=3)) + content[where + 1 :]
    )
    check(post(service, damaged, kind))


GRAMMAR = st.recursive(
    st.sampled_from(r"""1 -0 1e999 1E-999 NaN -Infinity null tru "\ud800" "\udc00\ud800" "\u0000" "" 01 1.""".split()),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.lists(
            st.tuples(st.sampled_from(['"text"', '"prosody"', '"\\ud800"', "text", '""']), inner), max_size=3
        ).map(lambda items: "{" + ",".join(f"{key}:{value}" for key, value in items) + "}")
    ),
    max_leaves=8,
)


@fuzz
@given(GRAMMAR)
def test_what_is_nearly_json(service: Service, body: str) -> None:
    check(post(service, body.encode(), "json"))


HEADER_VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=12)


@fuzz
@given(
    st.dictionaries(st.sampled_from(["model", "x-voicelab-seed", "content-type", "content-encoding"]), HEADER_VALUES)
)
def test_headers(service: Service, headers: dict[str, str]) -> None:
    # What is no header at all is not sent: blanks at the ends are the client's affair.
    sent = {b"content-type": b"application/json"}
    sent |= {name.encode(): value.strip().encode("latin-1") for name, value in headers.items()}
    body = b'{"text": "a", "format": "pcm"}'
    try:
        answer = service.http.post("/v1/tts", content=body, headers=sent)
    except httpx.LocalProtocolError:
        return
    check(answer)


@pytest.mark.parametrize("depth", [10, 100, 511, 1000, 5000, 100_000])
def test_depth(service: Service, depth: int) -> None:
    check(post(service, b"[" * depth + b"]" * depth, "json"))
    check(post(service, b'{"text":' * depth + b"1" + b"}" * depth, "json"))
    check(post(service, b"\x91" * depth + b"\xc0", "msgpack"))
    check(post(service, b"\x81\xa4text" * depth + b"\xc0", "msgpack"))
