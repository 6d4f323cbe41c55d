"""Part 5: bearer keys, on all three endpoints."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from tests.interface.conftest import Voice, Wire
from tests.interface.rules import proves
from tests.interface.wire import JSON, Answer, Caller, fields, refusal


def _asked(caller: Caller, method: str, path: str, authorization: str | None) -> Answer:
    body = b'{"text": "Hi"}' if method == "POST" else None
    return Caller(caller.url, None).call(method, path, body, Content_Type=JSON, Authorization=authorization)


@proves("5-1", "4.2-2", "4.3-3")
def test_all_three_endpoints_want_a_bearer_key(voice: Voice) -> None:
    for method, path in (("POST", "/v1/tts"), ("POST", "/model"), ("GET", "/model/some-id")):
        refusal(_asked(voice.caller, method, path, None), 401)
        assert _asked(voice.caller, method, path, f"Bearer {voice.caller.key}").status != 401


@proves("5-2", "4.1-2")
def test_the_header_is_authorization_bearer_key(wire: Wire) -> None:
    key = wire.caller.key
    assert _asked(wire.caller, "POST", "/v1/tts", f"Bearer {key}").status == 200
    assert _asked(wire.caller, "POST", "/v1/tts", f"bearer {key}").status == 200  # a scheme has no case (RFC 9110)
    for wrong in (f"{key}", f"Basic {key}", f"Token {key}", f"Bearer{key}", "Bearer", "Bearer ", f"Bearer {key} x", ""):
        refusal(_asked(wire.caller, "POST", "/v1/tts", wrong), 401)


@proves("5-6", "7.1/401:meaning", "7.1/401:body")
def test_missing_and_unacceptable_credentials_are_401(wire: Wire) -> None:
    revoked = wire.keys.create("revoked")
    wire.keys.revoke("revoked")
    other = wire.caller.key or ""
    strange = ("a-key-of-another-service", other[:-1], f"{other}x", other.upper(), "\u00e9", "x" * 20_000)
    for authorization in (None, *(f"Bearer {key}" for key in (revoked.secret, *strange))):
        message = refusal(_asked(wire.caller, "POST", "/v1/tts", authorization), 401)
        assert other not in message
        assert revoked.secret not in message


@proves("5-3")
def test_a_key_has_a_descriptive_name(wire: Wire) -> None:
    wire.keys.create("the speech lab's notebook")
    assert "the speech lab's notebook" in [key.name for key in wire.keys.list()]
    with pytest.raises(ValueError, match="name"):
        wire.keys.create(" ")


@proves("5-4")
def test_a_key_may_expire(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    lasting, brief = wire.keys.create("lasting"), wire.keys.create("brief", expires_in=timedelta(hours=1))
    assert _asked(wire.caller, "POST", "/v1/tts", f"Bearer {brief.secret}").status == 200
    later = datetime.now(UTC) + timedelta(hours=1, seconds=1)
    monkeypatch.setattr("voicelab.service.keys._now", lambda: later)
    refusal(_asked(wire.caller, "POST", "/v1/tts", f"Bearer {brief.secret}"), 401)
    assert _asked(wire.caller, "POST", "/v1/tts", f"Bearer {lasting.secret}").status == 200


@proves("5-5")
def test_a_key_stays_secret(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        new = wire.keys.create("secret")
        answers = [
            _asked(wire.caller, "POST", "/v1/tts", f"Bearer {new.secret}"),
            _asked(wire.caller, "GET", "/model/x", f"Bearer {new.secret}"),
            _asked(wire.caller, "GET", f"/model/{new.secret}", f"Bearer {new.secret}x"),
            wire.caller.call("GET", "/health"),
        ]
    assert new.secret not in f"{new!r} {new} {wire.keys!r} {wire.keys.list()!r} {caplog.text} {answers!r}"


@proves("D-10")
def test_authentication_comes_before_credit_and_credit_before_validation(wire: Wire) -> None:
    poor = wire.keys.create("poor", credit=0).secret
    for body in (b'{"text": "Hi"}', b'{"text": ""}', b"{", b'{"text": "Hi", "temperature": 9}'):
        refusal(wire.caller.tts(body, model="none", Authorization="Bearer x"), 401)
        refusal(wire.caller.tts(body, model="none", Authorization=f"Bearer {poor}"), 402)
        fields(wire.caller.tts(body, model="none"))
