from __future__ import annotations

import logging
import traceback

import httpx
import pytest

from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.errors import AuthenticationError, EngineError


def test_a_secret_is_in_no_answer_and_no_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)

    def step(number: int) -> None:
        if number == 2:
            raise EngineError("broke")

    service = start(ToneBackend(step))
    answers = [
        service.http.post("/v1/tts", json={"text": "a"}),
        service.http.post("/v1/tts", json={"text": ""}),
        service.http.post("/v1/tts", content=b"{", headers={"content-type": "application/json"}),
        service.http.post("/v1/tts", json={"text": "a"}, headers={"authorization": f"Basic {service.secret}"}),
        service.http.post("/v1/tts", json={"text": "a"}, headers={"authorization": f"Bearer {service.secret}x"}),
        service.http.get("/nothing"),
    ]
    with pytest.raises(httpx.RemoteProtocolError):
        service.http.post("/v1/tts", json={"text": "hello", "format": "pcm"})
    service.keys.revoke("test")
    answers.append(service.http.post("/v1/tts", json={"text": "a"}))
    assert [answer.status_code for answer in answers] == [200, 422, 422, 401, 401, 404, 401]
    assert "broke" in caplog.text  # the log does tell of the failure
    hidden = service.secret[11:]
    assert hidden not in caplog.text
    assert logging.getLogger("uvicorn.error").isEnabledFor(1)
    for answer in answers:
        assert hidden.encode() not in answer.content
        assert hidden not in repr(answer.headers)


def test_a_refused_secret_is_not_in_the_error(start: Start) -> None:
    service = start()
    wrong = service.keys.create("other").secret
    service.keys.revoke("other")
    with pytest.raises(AuthenticationError) as caught:
        service.keys.authenticate(wrong)
    assert wrong[11:] not in "".join(traceback.format_exception(caught.value))
    assert wrong[11:] not in repr(vars(caught.value))
