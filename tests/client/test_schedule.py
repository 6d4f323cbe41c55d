"""A proxy that fails by a schedule, before a real service: the right tries, no silent part of a clip, no voice twice."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.client.conftest import WAYS, message
from tests.interface.foreign import KEY, Foreign, record, serving
from tests.served import accepting, reset_when_closed
from voicelab.call import Call
from voicelab.client import RetryPolicy
from voicelab.errors import ServiceError, ServiceTimeout, ServiceUnavailable, StreamTruncated, VoicelabError
from voicelab.schema import TTSRequest, VoiceCreate, VoiceModel

ATTEMPTS = 3
SPEAK = TTSRequest(text="hello", format="pcm", sample_rate=8000)
AUDIO = struct.pack("<h", 500) * 800
CREATE = VoiceCreate(title="Ada", voices=(b"RIFF",), visibility="private")
AGAIN = {429, 502, 503, 504}


@dataclass(frozen=True)
class Fault:
    """What happens to one request. ``answer`` bytes of the service's answer come through, in slices of ``slices``."""

    status: int | None = None
    forwarded: bool = True
    answer: int = 10**9
    slices: int = 10**9
    reset: bool = False


PASS = Fault()
FAULTS = st.one_of(
    st.builds(Fault, status=st.sampled_from([500, 501, *sorted(AGAIN)]), forwarded=st.just(False)),
    st.builds(Fault, forwarded=st.booleans(), answer=st.just(0), reset=st.booleans()),
    st.builds(Fault, answer=st.integers(0, 2000), slices=st.sampled_from([1, 7, 1000, 10**9]), reset=st.booleans()),
    st.builds(Fault, slices=st.sampled_from([1, 3, 1000])),
    st.just(PASS),
)
SCHEDULES = st.lists(FAULTS, min_size=1, max_size=4)


@dataclass
class Proxy:
    """Takes HTTP requests one at a time and does to each what the schedule says; afterwards all pass."""

    served: Foreign
    schedule: list[Fault] = field(default_factory=list)
    asked: int = 0
    through: list[bytes] = field(default_factory=list)
    url: str = ""

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        while (request := message(connection)) is not None:
            if request.startswith(b"GET /health"):
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            self.asked += 1
            if not self._do(connection, request, self.schedule.pop(0) if self.schedule else PASS):
                return

    def _do(self, connection: socket.socket, request: bytes, fault: Fault) -> bool:
        """Return whether the connection goes on."""
        if fault.status is not None:
            connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: 4\r\nRetry-After: 0\r\n\r\nbusy" % fault.status)
            return True
        answer = self._ask(request) if fault.forwarded else b""
        cut = answer[: fault.answer]
        for begin in range(0, len(cut), fault.slices):
            connection.sendall(cut[begin : begin + fault.slices])
        if len(cut) == len(answer) and fault.forwarded:
            return True
        if fault.reset:
            reset_when_closed(connection)
        else:
            connection.shutdown(socket.SHUT_RDWR)
        return False

    def _ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", int(self.served.url.rpartition(":")[2]))) as service:
            service.settimeout(20)
            service.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            answer = b"".join(iter(lambda: service.recv(65536), b""))
        self.through.append(answer)
        return answer


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with serving() as served:
        served.audio["pcm"] = AUDIO
        served.records["v7"] = record(_id="v7")
        made = Proxy(served)
        with accepting(made.serve) as made.url:
            yield made


def _call(proxy: Proxy, way: str, call: str, schedule: list[Fault]) -> Any:
    proxy.schedule, proxy.asked, proxy.through = list(schedule), 0, []
    retry = RetryPolicy(attempts=ATTEMPTS, base_s=0.001)
    with WAYS[way](proxy.url, KEY, retry=retry, timeout=20) as backend:
        try:
            if call == "speak":
                return b"".join(backend.synthesize(Call(SPEAK)))
            return backend.create_voice(CREATE) if call == "create" else backend.get_voice("v7")
        except VoicelabError as error:
            return error


def _delivered(answer: bytes) -> bytes:
    """Return the audio in the beginning of an answer in chunks."""
    audio, rest = b"", answer.partition(b"\r\n\r\n")[2]
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        audio, rest = audio + rest[:length], rest[length + 2 :]
        if length == 0:
            break
    return audio


def _expected(schedule: list[Fault], answer: bytes) -> tuple[int, type | None, bytes]:
    """Return how often is asked, the error if there is one, and the audio that came, by the rules in words."""
    for number, fault in enumerate([*schedule, PASS], start=1):
        cut = answer[: fault.answer] if fault.forwarded else b""
        if fault.status is not None:
            # A status says whether another try is worth it.
            error: type = ServiceTimeout if fault.status == 504 else ServiceUnavailable
            if fault.status not in AGAIN or number == ATTEMPTS:
                return number, error, b""
        elif cut == answer:
            return number, None, AUDIO
        elif _delivered(cut):
            # Audio was delivered: never again from the beginning.
            return number, StreamTruncated, _delivered(cut)
        elif number == ATTEMPTS:
            return number, StreamTruncated if b"\r\n\r\n" in cut else ServiceUnavailable, b""
    raise AssertionError


def _speak(proxy: Proxy, schedule: list[Fault]) -> None:
    assert _call(proxy, "blocking", "speak", []) == AUDIO
    (answer,) = proxy.through
    times, error, audio = _expected(schedule, answer)
    # A reset overtakes what was sent before it: less arrives, or nothing, and then another try is right.
    exact = not any(fault.reset for fault in schedule)
    for way in WAYS:
        came = _call(proxy, way, "speak", schedule)
        if exact:
            assert proxy.asked == times
            assert came == AUDIO if error is None else type(came) is error
        assert proxy.asked <= ATTEMPTS
        assert isinstance(came, VoicelabError) or came == AUDIO
        if isinstance(came, StreamTruncated):
            assert came.partial == audio if exact else AUDIO.startswith(came.partial)


def _create(proxy: Proxy, schedule: list[Fault]) -> None:
    for way in WAYS:
        before = len(proxy.served.records)
        came = _call(proxy, way, "create", schedule)
        # The body was sent: whatever came back, or did not, there is no second time.
        assert proxy.asked == 1
        assert len(proxy.served.records) - before == schedule[0].forwarded
        whole = schedule[0].forwarded and len(proxy.through[0]) <= schedule[0].answer
        if schedule[0].reset and not whole:
            assert isinstance(came, ServiceError)
        else:
            assert isinstance(came, VoiceModel if whole else ServiceError)


def _get(proxy: Proxy, schedule: list[Fault]) -> None:
    _call(proxy, "blocking", "create", [])
    wanted = _call(proxy, "blocking", "get", [])
    assert isinstance(wanted, VoiceModel)
    (answer,) = proxy.through
    for way in WAYS:
        came = _call(proxy, way, "get", schedule)
        assert proxy.asked <= ATTEMPTS
        assert came == wanted or isinstance(came, ServiceError)
        for fault in schedule[: proxy.asked - 1]:
            # Only what delivered nothing, or half an answer, is asked again.
            assert fault.status in AGAIN if fault.status is not None else fault.answer < len(answer)


PROPERTIES = {"speak": _speak, "create": _create, "get": _get}
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=300)


@pytest.mark.parametrize("call", PROPERTIES)
@QUICK
@given(schedule=SCHEDULES)
@example(schedule=[Fault(answer=0), Fault(answer=1200)])
@example(schedule=[Fault(status=503, forwarded=False)] * 3)
@example(schedule=[Fault(answer=150), Fault(slices=1)])
def test_any_schedule(proxy: Proxy, call: str, schedule: list[Fault]) -> None:
    PROPERTIES[call](proxy, schedule)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("call", PROPERTIES)
@LONG
@given(schedule=SCHEDULES)
def test_very_many_schedules(proxy: Proxy, call: str, schedule: list[Fault]) -> None:
    PROPERTIES[call](proxy, schedule)


@pytest.mark.thorough
def test_every_place_of_a_cut(proxy: Proxy) -> None:
    _call(proxy, "blocking", "speak", [])
    length = len(proxy.through[0])
    for place in [*range(220), *range(1100, 1300), *range(length - 60, length + 1)]:
        _speak(proxy, [Fault(answer=place)])
