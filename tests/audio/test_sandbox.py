from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.audio import untrusted
from tests.speechlike import speech_file
from voicelab.audio import sandbox
from voicelab.audio.formats import decode
from voicelab.audio.sandbox import Sandbox, decode_apart
from voicelab.errors import AudioError

posix = pytest.mark.skipif(os.name != "posix", reason="limits are those of POSIX")
Make = Callable[..., Sandbox]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Sandbox] = []

    def begin(function: Callable[..., bytes], **limits: float) -> Sandbox:
        made.append(Sandbox(function, **limits))  # type: ignore[arg-type]
        return made[-1]

    yield begin
    for box in made:
        box.close()


def test_large_answer_is_returned(make: Make) -> None:
    box = make(untrusted.echo)
    data = os.urandom(3_000_000)
    assert box.call(data, times=2) == data * 2
    assert box.call(b"") == b""


def test_worker_is_reused_and_replaced_after_a_kill(make: Make) -> None:
    box = make(untrusted.tell)
    worker_pid = box.call(b"").split()[0]
    assert box.call(b"").split()[0] == worker_pid
    os.kill(int(worker_pid), 9)
    box._idle[0].wait()
    assert box.call(b"").split()[0] != worker_pid


def test_rejection_keeps_message_and_worker(make: Make) -> None:
    box = make(untrusted.refuse)
    for reason in ("first", "second"):
        with pytest.raises(AudioError, match=f"no: {reason}"):
            box.call(reason.encode())
    assert len(box._idle) == 1


@pytest.mark.parametrize("function", [untrusted.crash, untrusted.fail], ids=["crash", "bug"])
def test_crash_raises_audio_error(make: Make, function: Callable[..., bytes]) -> None:
    with pytest.raises(AudioError, match=r"decoder (was ended by signal|stopped)"):
        make(function).call(b"x")


@pytest.mark.parametrize("function", [untrusted.hang, untrusted.spin], ids=["sleeps", "spins"])
def test_hanging_worker_is_killed(make: Make, function: Callable[..., bytes]) -> None:
    began = time.monotonic()
    with pytest.raises(AudioError, match="longer than 2 s"):
        make(function, seconds=2).call(b"x")
    assert time.monotonic() - began < 20


@posix
def test_memory_is_limited(make: Make) -> None:
    with pytest.raises(AudioError, match="memory"):
        make(untrusted.eat, memory=2**30).call(b"x")


def test_output_of_the_function_is_not_an_answer(make: Make) -> None:
    box = make(untrusted.chatter)
    assert [box.call(b"a"), box.call(b"b")] == [b"a", b"b"]


def test_answer_above_the_limit_is_rejected(make: Make) -> None:
    with pytest.raises(AudioError, match="more data than allowed"):
        make(untrusted.echo, max_answer_size=10).call(b"x" * 11)


def test_environment_of_the_worker_has_no_secrets(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_API_KEY", "canary")
    output = make(untrusted.tell).call(b"").decode()
    assert "VOICELAB" not in output
    assert "PYTHONPATH" in output


@posix
def test_worker_cannot_open_files_or_connections(make: Make, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_bytes(b"secret")
    for function, data in ((untrusted.read_file, str(canary).encode()), (untrusted.write_file, b"x")):
        with pytest.raises(AudioError, match="stopped"):
            make(function).call(data)
    assert not list(Path().glob("left-behind"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(AudioError, match="stopped"):
            make(untrusted.connect).call(str(listener.getsockname()[1]).encode())
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_concurrent_calls(make: Make) -> None:
    box = make(untrusted.echo)
    requests = [bytes([number]) * 100_000 for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(box.call, requests)) == requests
    assert len(box._idle) <= 2


def test_close_stops_workers(make: Make) -> None:
    box = make(untrusted.tell)
    worker_pid = int(box.call(b"").split()[0])
    box.close()
    if sys.platform == "linux":
        assert not Path(f"/proc/{worker_pid}").exists()
    assert box.call(b"")


@pytest.mark.parametrize("format", ["wav", "mp3", "opus"])
def test_sandboxed_audio_equals_direct_decoding(format: str) -> None:
    data = speech_file(2, format=format)
    samples, rate = decode_apart(data)
    expected, expected_rate = decode(data)
    assert rate == expected_rate
    assert np.array_equal(samples, expected)


def test_sandboxed_errors_equal_those_of_decode() -> None:
    for data, reason in ((b"nothing", "must be WAV"), (speech_file(2)[:-9], "cut off"), (bytes(200), "must be WAV")):
        with pytest.raises(AudioError, match=reason):
            decode_apart(data)
    with pytest.raises(AudioError, match="at most 1 s long"):
        decode_apart(speech_file(2), max_seconds=1)
    with pytest.raises(AudioError, match="at most 100"):
        decode_apart(speech_file(2), max_bytes=100)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x40\x1f\x00", struct.pack("<If", 8000, np.nan), struct.pack("<If", 8000, 7.0), struct.pack("<If", 0, 0.5)],
    ids=["nothing", "cut", "NaN", "loud", "no rate"],
)
def test_invalid_audio_from_the_worker_is_rejected(answer: bytes, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    box = make(untrusted.echo)
    monkeypatch.setattr(box, "call", lambda data, **_: Sandbox.call(box, answer))
    monkeypatch.setattr(sandbox, "_AUDIO", box)
    with pytest.raises(AudioError):
        decode_apart(b"x")
