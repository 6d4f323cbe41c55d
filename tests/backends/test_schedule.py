"""A service that fails by a schedule: the right tries, no silent part of a clip, no voice twice."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.backends.conftest import CREATE, RECORD, WAYS, Act, Script, hang_up, reply, reset
from voicelab.backends.caller import RetryPolicy
from voicelab.call import Call
from voicelab.errors import ServiceError, ServiceTimeout, ServiceUnavailable, StreamTruncated, VoicelabError
from voicelab.schema import TTSRequest, VoiceModel

ATTEMPTS = 3
SPEAK = TTSRequest(text="hello", format="pcm", sample_rate=8000)
AUDIO = struct.pack("<h", 500) * 800
HEAD = b"HTTP/1.1 200 OK\r\nCONTENT-TYPE: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# A chunk may carry an extension, its length may be in capitals with zeros before it, and fields may follow the last.
CHUNKS = [b"%06X;note=1\r\n%b\r\n" % (len(part), part) for part in (AUDIO[:1000], AUDIO[1000:])]
SPOKEN = HEAD + b"".join(CHUNKS) + b"0\r\nX-Trailer: yes\r\n\r\n"
MADE = b"HTTP/1.1 201 Created\r\ncOnTeNt-LeNgTh: %d\r\n\r\n%b" % (len(RECORD), RECORD)
AGAIN = {429, 502, 503, 504}


@dataclass(frozen=True)
class Fault:
    """What happens to one request. ``answer`` bytes of the whole answer come through, in slices of ``slices``."""

    status: int | None = None
    answer: int = 10**9
    slices: int = 10**9
    reset: bool = False

    def act(self, whole: bytes) -> Act:
        if self.status is not None:
            return reply(self.status, b"busy", Retry_After="0")
        cut = whole[: self.answer]

        def act(connection: Any) -> None:
            for begin in range(0, len(cut), self.slices):
                connection.sendall(cut[begin : begin + self.slices])
            if cut != whole:
                (reset if self.reset else hang_up)(connection)

        return act


PASS = Fault()
FAULTS = st.one_of(
    st.builds(Fault, status=st.sampled_from([500, 501, *sorted(AGAIN)])),
    st.builds(Fault, answer=st.just(0), reset=st.booleans()),
    st.builds(Fault, answer=st.integers(0, 2000), slices=st.sampled_from([1, 7, 1000, 10**9]), reset=st.booleans()),
    st.builds(Fault, slices=st.sampled_from([1, 3, 1000])),
    st.just(PASS),
)
SCHEDULES = st.lists(FAULTS, min_size=1, max_size=4)


def _call(script: Script, way: str, call: str, schedule: list[Fault]) -> Any:
    """What a call comes to by a schedule, after which all goes well."""
    whole = SPOKEN if call == "speak" else MADE
    script.acts, script.asked = [fault.act(whole) for fault in (*schedule, *[PASS] * ATTEMPTS)], []
    retry = RetryPolicy(attempts=ATTEMPTS, base_s=0.001)
    with WAYS[way](script.url, retry=retry, timeout=20) as backend:
        try:
            if call == "speak":
                return b"".join(backend.synthesize(Call(SPEAK)))
            return backend.create_voice(CREATE) if call == "create" else backend.get_voice("v1")
        except VoicelabError as error:
            return error


def _delivered(cut: bytes) -> bytes:
    """Return the audio in the beginning of the answer."""
    audio, at = b"", len(HEAD)
    for chunk in CHUNKS:
        begin = at + chunk.index(b"\r\n") + 2
        at += len(chunk)
        audio += cut[begin : at - 2]
    return audio


def _expected(schedule: list[Fault]) -> tuple[int, type | None, bytes]:
    """Return how often is asked, the error if there is one, and the audio that came, by the rules in words."""
    for number, fault in enumerate([*schedule, PASS], start=1):
        cut = SPOKEN[: fault.answer]
        if fault.status is not None:
            # A status says whether another try is worth it.
            error: type = ServiceTimeout if fault.status == 504 else ServiceUnavailable
            if fault.status not in AGAIN or number == ATTEMPTS:
                return number, error, b""
        elif cut == SPOKEN:
            return number, None, AUDIO
        elif _delivered(cut):
            # Audio was delivered: never again from the beginning.
            return number, StreamTruncated, _delivered(cut)
        elif number == ATTEMPTS:
            return number, StreamTruncated if len(cut) >= len(HEAD) else ServiceUnavailable, b""
    raise AssertionError


def _speak(script: Script, schedule: list[Fault]) -> None:
    times, error, audio = _expected(schedule)
    # A reset overtakes what was sent before it: less arrives, or nothing, and then another try is right.
    exact = not any(fault.reset for fault in schedule)
    for way in WAYS:
        came = _call(script, way, "speak", schedule)
        if exact:
            assert len(script.asked) == times
            assert came == AUDIO if error is None else type(came) is error
        assert len(script.asked) <= ATTEMPTS
        assert isinstance(came, VoicelabError) or came == AUDIO
        if isinstance(came, StreamTruncated):
            assert came.partial == audio if exact else AUDIO.startswith(came.partial)


def _create(script: Script, schedule: list[Fault]) -> None:
    whole = schedule[0].status is None and len(MADE) <= schedule[0].answer
    for way in WAYS:
        came = _call(script, way, "create", schedule)
        # The body was sent: whatever came back, or did not, there is no second time.
        assert len(script.asked) == 1
        assert isinstance(came, VoiceModel if whole else ServiceError)


def _get(script: Script, schedule: list[Fault]) -> None:
    for way in WAYS:
        came = _call(script, way, "get", schedule)
        tries = len(script.asked)
        assert tries <= ATTEMPTS
        assert came.title == "Ada" if isinstance(came, VoiceModel) else isinstance(came, ServiceError)
        for fault in schedule[: tries - 1]:
            # Only what delivered nothing, or half an answer, is asked again.
            assert fault.status in AGAIN if fault.status is not None else fault.answer < len(MADE)


PROPERTIES = {"speak": _speak, "create": _create, "get": _get}
MANY = pytest.param(300, marks=[pytest.mark.thorough, pytest.mark.timeout(600)])


@pytest.mark.parametrize("examples", [25, MANY])
@pytest.mark.parametrize("call", PROPERTIES)
def test_any_schedule(script: Script, call: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(schedule=SCHEDULES)
    @example(schedule=[Fault(answer=0), Fault(answer=1200)])
    @example(schedule=[Fault(status=503)] * 3)
    @example(schedule=[Fault(answer=150), Fault(slices=1)])
    def check(schedule: list[Fault]) -> None:
        PROPERTIES[call](script, schedule)

    check()


@pytest.mark.thorough
def test_truncation_at_every_byte(script: Script) -> None:
    for place in [*range(220), *range(1100, 1300), *range(len(SPOKEN) - 60, len(SPOKEN) + 1)]:
        _speak(script, [Fault(answer=place)])
