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
    for one in made:
        one.close()


def test_an_answer_comes_back_whole(make: Make) -> None:
    box = make(untrusted.echo)
    data = os.urandom(3_000_000)
    assert box.call(data, times=2) == data * 2
    assert box.call(b"") == b""


def test_a_process_is_used_again_and_a_lost_one_replaced(make: Make) -> None:
    box = make(untrusted.tell)
    first = box.call(b"").split()[0]
    assert box.call(b"").split()[0] == first
    os.kill(int(first), 9)
    box._idle[0].wait()
    assert box.call(b"").split()[0] != first


def test_a_refusal_keeps_its_reason_and_the_process(make: Make) -> None:
    box = make(untrusted.refuse)
    for reason in ("one", "two"):
        with pytest.raises(AudioError, match=f"no: {reason}"):
            box.call(reason.encode())
    assert len(box._idle) == 1


@pytest.mark.parametrize("what", [untrusted.crash, untrusted.fail], ids=["crash", "bug"])
def test_a_crash_is_an_audio_error(make: Make, what: Callable[..., bytes]) -> None:
    with pytest.raises(AudioError, match=r"decoder (was ended by signal|stopped)"):
        make(what).call(b"x")


@pytest.mark.parametrize("what", [untrusted.hang, untrusted.spin], ids=["sleeps", "spins"])
def test_what_hangs_is_ended(make: Make, what: Callable[..., bytes]) -> None:
    began = time.monotonic()
    with pytest.raises(AudioError, match="longer than 2 s"):
        make(what, seconds=2).call(b"x")
    assert time.monotonic() - began < 20


@posix
def test_memory_is_limited(make: Make) -> None:
    with pytest.raises(AudioError, match="memory"):
        make(untrusted.eat, memory=2**30).call(b"x")


def test_what_it_prints_is_no_answer(make: Make) -> None:
    box = make(untrusted.chatter)
    assert [box.call(b"a"), box.call(b"b")] == [b"a", b"b"]


def test_an_answer_that_is_too_long_is_refused(make: Make) -> None:
    with pytest.raises(AudioError, match="more than it should"):
        make(untrusted.echo, most=10).call(b"x" * 11)


def test_no_key_of_ours_is_in_its_environment(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_API_KEY", "canary")
    told = make(untrusted.tell).call(b"").decode()
    assert "VOICELAB" not in told
    assert "PYTHONPATH" in told


@posix
def test_it_opens_no_file_and_no_connection(make: Make, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_bytes(b"secret")
    for what, data in ((untrusted.read_file, str(canary).encode()), (untrusted.write_file, b"x")):
        with pytest.raises(AudioError, match="stopped"):
            make(what).call(data)
    assert not list(Path().glob("left-behind"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(AudioError, match="stopped"):
            make(untrusted.connect).call(str(listener.getsockname()[1]).encode())
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_several_calls_at_once(make: Make) -> None:
    box = make(untrusted.echo)
    asked = [bytes([number]) * 100_000 for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(box.call, asked)) == asked
    assert len(box._idle) <= 2


def test_closing_ends_its_processes(make: Make) -> None:
    box = make(untrusted.tell)
    process = int(box.call(b"").split()[0])
    box.close()
    if sys.platform == "linux":
        assert not Path(f"/proc/{process}").exists()
    assert box.call(b"")


@pytest.mark.parametrize("format", ["wav", "mp3", "opus"])
def test_audio_is_the_same_as_decoded_here(format: str) -> None:
    data = speech_file(2, format=format)
    samples, rate = decode_apart(data)
    expected, expected_rate = decode(data)
    assert rate == expected_rate
    assert np.array_equal(samples, expected)


def test_its_refusals_are_those_of_the_decoder() -> None:
    for data, why in ((b"nothing", "no WAV"), (speech_file(2)[:-9], "cut off"), (bytes(200), "no WAV")):
        with pytest.raises(AudioError, match=why):
            decode_apart(data)
    with pytest.raises(AudioError, match="longer than 1 seconds"):
        decode_apart(speech_file(2), max_seconds=1)
    with pytest.raises(AudioError, match="at most 100"):
        decode_apart(speech_file(2), max_bytes=100)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x40\x1f\x00", struct.pack("<If", 8000, np.nan), struct.pack("<If", 8000, 7.0), struct.pack("<If", 0, 0.5)],
    ids=["nothing", "cut", "NaN", "loud", "no rate"],
)
def test_an_answer_that_is_no_audio_is_not_believed(answer: bytes, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = make(untrusted.echo)
    monkeypatch.setattr(liar, "call", lambda data, **_: Sandbox.call(liar, answer))
    monkeypatch.setattr(sandbox, "_AUDIO", liar)
    with pytest.raises(AudioError):
        decode_apart(b"x")
