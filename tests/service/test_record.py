from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator

import pytest

from tests.served import message, until
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.service.record import LogForm, LogFormatter, write_log


class Lines(logging.Handler):
    """Keeps what a formatter makes of the service's log."""

    def __init__(self, form: LogForm, *, texts: bool = False) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(LogFormatter(form, texts=texts))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept(caplog: pytest.LogCaptureFixture) -> Iterator[dict[str, Lines]]:
    caplog.set_level(logging.INFO)
    log = logging.getLogger("voicelab.service")
    handlers = {"json": Lines("json"), "text": Lines("text"), "texts": Lines("json", texts=True)}
    for handler in handlers.values():
        log.addHandler(handler)
    yield handlers
    for handler in handlers.values():
        log.removeHandler(handler)


def test_log_line_of_a_request_has_no_text(start: Start, kept: dict[str, Lines]) -> None:
    service = start(ToneBackend(), credit=10)
    secret = service.secret
    answer = service.speak(secret[:6] + "hey", format="pcm", sample_rate=24000)
    assert answer.status_code == 200
    message(service.speak("far too long a text"), 402)
    assert service.speak("a", temperature=7).status_code == 422
    until(lambda: len(kept["text"].lines) == 3)

    spoken, unpaid, wrong = map(json.loads, kept["json"].lines)
    assert spoken["id"] == answer.headers["x-request-id"]
    assert spoken["key"] == "test"
    assert (spoken["route"], spoken["status"], spoken["outcome"]) == ("/v1/tts", 200, "ended")
    assert spoken["characters"] == spoken["charged"] == 9
    assert spoken["bytes"] == len(answer.content)
    assert spoken["audio_s"] == pytest.approx(len(answer.content) / 48_000)
    assert 0 < spoken["first_audio_s"] <= spoken["seconds"]
    assert 0 < spoken["rtf"] < 10
    assert spoken["refused"] is None
    assert spoken["time"].endswith("Z")
    assert (unpaid["status"], unpaid["audio_s"]) == (402, None)
    assert "credit" in unpaid["refused"]
    assert wrong["refused"] == "temperature: less_than_equal"

    assert "status 200, " in kept["text"].lines[0]
    assert "key test, characters 9" in kept["text"].lines[0]
    with_text = [json.loads(line).get("text") for line in kept["texts"].lines]
    assert with_text == ["vl_…", None, None]  # what looks like a key is hidden even there
    for handler in (kept["json"], kept["text"]):
        assert not any("hey" in line or "\n" in line for line in handler.lines)


def test_other_messages_are_json() -> None:
    lines = Lines("json")
    log = logging.getLogger("voicelab.service.test_record")
    log.addHandler(lines)
    try:
        1 / 0  # noqa: B018 - it is to fail
    except ZeroDivisionError:
        log.exception("went %s", "wrong")
    log.removeHandler(lines)
    (line,) = map(json.loads, lines.lines)
    assert (line["level"], line["message"]) == ("error", "went wrong")
    assert "ZeroDivisionError" in line["error"]


def test_stalled_log_reader_does_not_block_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    log = logging.getLogger("voicelab.service.test_record")
    with os.fdopen(writing, "w") as stdout, os.fdopen(reading) as reader:
        monkeypatch.setattr(sys, "stdout", stdout)
        begun = time.monotonic()
        with write_log("json"):
            for number in range(8000):
                log.warning("number %d of a line that is long enough for a pipe to fill", number)
            assert time.monotonic() - begun < 5
            first = [json.loads(reader.readline())["message"] for _ in range(3000)]
            log.warning("the last")
            got = list(first)
            while got[-1] != "the last":
                got.append(json.loads(reader.readline())["message"])
    told = [int(line.split()[0]) for line in got if "were dropped" in line]  # more than one where the writer got a turn
    dropped = sum(told)
    assert len(got) == 8000 + 1 + len(told) - dropped
    assert 1000 < dropped < 4000
    assert got[:4000] == [f"number {number} of a line that is long enough for a pipe to fill" for number in range(4000)]
