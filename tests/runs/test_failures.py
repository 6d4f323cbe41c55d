from __future__ import annotations

import json

import pytest

from voicelab.errors import RequestInvalid, ServiceUnavailable, StoreError
from voicelab.runs.failures import Failure, error_message, redact


def test_errors_are_restored() -> None:
    invalid = RequestInvalid.of("prosody.speed", "too fast")
    again = Failure.of_record(json.loads(json.dumps(Failure.of(invalid).record()))).error()
    assert isinstance(again, RequestInvalid)
    assert again.errors == invalid.errors
    error = Failure.of(ServiceUnavailable("busy", status=503, body=b"secret", request_id="r")).error()
    assert isinstance(error, ServiceUnavailable)
    assert (str(error), error.status, error.request_id, error.body) == ("busy", 503, "r", None)
    assert type(Failure("Strange", "m").error()).__name__ == "VoicelabError"
    with pytest.raises(StoreError):
        Failure.of_record({"kind": "x"})


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("api_key=abc refused", "api_key=… refused"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("vl_0123456789abcdef is unknown", "… is unknown"),
        ("the key of the door", "the key of the door"),
    ],
)
def test_secrets_in_messages_are_redacted(text: str, kept: str) -> None:
    assert redact(text) == kept
    assert Failure.of(ValueError(text)) == Failure("ValueError", kept)
    assert error_message(ValueError(text)) == f"ValueError: {kept}"
