from __future__ import annotations

import logging
import signal
import traceback
from pathlib import Path

import httpx
import pytest

from tests.served import PLAIN, breaks
from tests.service.conftest import Start
from tests.service.test_run import Program
from tests.tones import ToneBackend
from voicelab.errors import AuthenticationError
from voicelab.service.keys import KeyStore


def test_a_secret_is_in_no_answer_and_no_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    service = start(ToneBackend(breaks(2)))
    answers = [
        service.speak(),
        service.speak(""),
        service.http.post("/v1/tts", content=b"{", headers={"content-type": "application/json"}),
        service.http.post("/v1/tts", json={"text": "a"}, headers={"authorization": f"Basic {service.secret}"}),
        service.http.post("/v1/tts", json={"text": "a"}, headers={"authorization": f"Bearer {service.secret}x"}),
        service.http.get("/nothing"),
    ]
    with pytest.raises(httpx.RemoteProtocolError):
        service.http.post("/v1/tts", json={"text": "hello", "format": "pcm"})
    service.keys.revoke("test")
    answers.append(service.speak())
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


def test_a_secret_is_in_no_file_and_no_output_of_a_service(tmp_path: Path) -> None:
    with KeyStore(tmp_path / "keys.sqlite3") as keys:
        secret = keys.create("canary").secret
    program = Program(tmp_path, 5)  # it logs everything
    with httpx.Client(base_url=program.url, headers={"authorization": f"Bearer {secret}"}, **PLAIN) as http:
        assert http.post("/v1/tts", json={"text": "a"}).status_code == 200
        assert http.post("/v1/tts", json={"text": secret, "top_p": 2}).status_code == 422
        assert http.get(f"/model/{secret}", params={"key": secret}).status_code == 404
        assert http.post("/v1/tts", headers={"authorization": f"Basic {secret}"}).status_code == 401
    program.process.send_signal(signal.SIGTERM)
    code, out, err = program.end()
    assert code == 0
    assert "status 200" in err  # it did log
    for what in (out, err, *(path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file())):
        assert secret[11:] not in what
