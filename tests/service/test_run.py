from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.served import PLAIN
from tests.tones import ToneBackend
from voicelab.errors import RequestInvalid
from voicelab.service.keys import KeyStore
from voicelab.service.run import listen, raise_descriptor_limit, running, serve

# A program that serves with a voice of 20 notes a second, and says its lines on stdout.
_PROGRAM = """
import functools, logging, sys, time
from tests.tones import ToneBackend
from voicelab.service.keys import KeyStore
from voicelab.service.run import serve
logging.basicConfig(level=logging.DEBUG)
backend = ToneBackend(lambda number: time.sleep(0.05))
with KeyStore() as keys:
    serve(backend, port=0, keys=keys, say=functools.partial(print, flush=True), grace_seconds=int(sys.argv[1]))
for _ in range(60):  # a note that was being made when the service ended is finished before its stream closes
    if not backend.open:
        break
    time.sleep(0.05)
print("ended", backend.open, flush=True)
"""


class Program:
    def __init__(self, home: Path, grace: int, before: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + _PROGRAM, str(grace)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # a buffer here would keep lines from communicate()
            cwd=Path(__file__).parents[2],
            env={**os.environ, "VOICELAB_HOME": str(home)},
        )
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline().decode()
        match = re.search(r"http://127\.0\.0\.1:\d+", self.first)
        assert match, self.first
        self.url = match[0]

    @contextmanager
    def speech(self, secret: str, notes: int) -> Iterator[tuple[Iterator[bytes], int]]:
        """Begin a speech; give what is to come of it, and how much came at once."""
        body = {"text": "x" * notes, "format": "pcm", "sample_rate": 24000}
        headers = {"authorization": f"Bearer {secret}"}
        with httpx.stream("POST", self.url + "/v1/tts", json=body, headers=headers, timeout=20, **PLAIN) as response:
            assert response.status_code == 200
            chunks = response.iter_raw()
            yield chunks, len(next(chunks))

    def end(self) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, out.decode(), err.decode()


@pytest.fixture
def secret(tmp_path: Path) -> str:
    with KeyStore(tmp_path / "keys.sqlite3") as keys:
        return keys.create("test").secret


def test_sigterm_lets_running_speech_finish(tmp_path: Path, secret: str) -> None:
    program = Program(tmp_path, 20)
    assert "tones is ready at" in program.first
    with program.speech(secret, 60) as (chunks, first):
        program.process.send_signal(signal.SIGTERM)
        body = {"text": "hello"}
        headers = {"authorization": f"Bearer {secret}"}
        end = time.monotonic() + 10
        while (answer := httpx.post(program.url + "/v1/tts", json=body, headers=headers, **PLAIN)).is_success:
            assert time.monotonic() < end  # the signal had not arrived yet
        assert answer.status_code == 503
        assert set(answer.json()) == {"status", "message"}
        assert int(answer.headers["retry-after"]) > 0
        assert httpx.get(program.url + "/health", **PLAIN).status_code == 503
        assert first + len(b"".join(chunks)) == 60 * 2400
    code, out, err = program.end()
    assert code == 0, err
    assert out.endswith("ended 0\n")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("signals", "grace"),
    [((signal.SIGINT, signal.SIGINT), 20), ((signal.SIGTERM,), 1)],
    ids=["a second signal", "the end of the grace"],
)
def test_speech_is_broken_off_by(tmp_path: Path, secret: str, signals: tuple[signal.Signals, ...], grace: int) -> None:
    program = Program(tmp_path, grace)
    with program.speech(secret, 2000) as (chunks, _):
        for number, one in enumerate(signals):
            time.sleep(0.5 * number)
            program.process.send_signal(one)
        before = time.monotonic()
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            list(chunks)
    code, out, _ = program.end()
    assert time.monotonic() - before < 15
    assert code == 0
    assert out.endswith("ended 0\n")


def test_service_without_keys_prints_a_hint(tmp_path: Path) -> None:
    program = Program(tmp_path, 1)
    program.process.send_signal(signal.SIGINT)
    code, out, _ = program.end()
    assert code == 0
    assert "voicelab keys create" in out


def test_a_secret_is_in_no_answer_no_file_and_no_output(tmp_path: Path) -> None:
    with KeyStore(tmp_path / "keys.sqlite3") as keys:
        secret = keys.create("canary").secret
    program = Program(tmp_path, 5)  # it logs everything
    with httpx.Client(base_url=program.url, headers={"authorization": f"Bearer {secret}"}, **PLAIN) as http:
        answers = [
            http.post("/v1/tts", json={"text": "a"}),
            http.post("/v1/tts", json={"text": secret, "top_p": 2}),
            http.post("/v1/tts", content=b"{", headers={"content-type": "application/json"}),
            http.post("/v1/tts", headers={"authorization": f"Basic {secret}"}),
            http.post("/v1/tts", headers={"authorization": f"Bearer {secret}x"}),
        ]
        assert http.get(f"/model/{secret}", params={"key": secret}).status_code == 404
    program.process.send_signal(signal.SIGTERM)
    code, out, err = program.end()
    assert [code, *(answer.status_code for answer in answers)] == [0, 200, 422, 422, 401, 401]
    assert "status 200" in err  # it did log
    said = [what for answer in answers for what in (answer.text, repr(answer.headers))]
    for what in (out, err, *said, *(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())):
        assert secret[11:] not in what


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no host", 0), ("1.2.3.4.5", 0)])
def test_invalid_addresses(tmp_path: Path, host: str, port: int) -> None:
    with KeyStore(tmp_path / "k") as keys, pytest.raises(RequestInvalid, match="address"):
        serve(ToneBackend(), host, port, keys=keys)


def test_a_service_can_run_beside_other_work_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with KeyStore(tmp_path / "k") as keys, running(ToneBackend(), keys=keys) as url:
        assert httpx.get(url + "/health", **PLAIN).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/health", **PLAIN)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def test_small_answers_do_not_wait_for_acknowledgements() -> None:
    # With Nagle's algorithm on, every short answer takes 40 ms or more.
    async def accepted() -> int:
        listener, found = listen("127.0.0.1", 0), asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(lambda _, writer: found.set_result(writer), sock=listener):
            _, caller = await asyncio.open_connection(*listener.getsockname())
            connection = await asyncio.wait_for(found, 10)
            waits = connection.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for end in (caller, connection):
                end.close()
                await end.wait_closed()
            return int(waits)

    assert asyncio.run(accepted()) == 1


_FEW_DESCRIPTORS = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 100))
"""


def test_connections_are_rejected_before_descriptors_run_out_and_logged_once(tmp_path: Path, secret: str) -> None:
    program = Program(tmp_path, 5, before=_FEW_DESCRIPTORS)  # serve() raises the limit to 100
    port = int(program.url.rpartition(":")[2])
    body, headers = {"text": "hello", "format": "pcm", "sample_rate": 24000}, {"authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=program.url, headers=headers, timeout=20, **PLAIN) as http, ExitStack() as stack:
        assert http.post("/v1/tts", json=body).status_code == 200
        for _ in range(260):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            with suppress(OSError):  # rejected before it was sent
                raw.sendall(b"POST /v1/tts HTTP/1.1\r\nHost: x\r\n")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
            refusal = raw.recv(1000)
        # Connections that are open are served, whose requests need databases and threads.
        assert http.post("/v1/tts", json=body).status_code == 200
    assert refusal.startswith(b"HTTP/1.1 503")
    assert b'{"status": 503, "message": "The service has too many connections"}' in refusal
    program.process.send_signal(signal.SIGTERM)
    _, _, err = program.end()
    assert "Traceback" not in err
    assert err.count("may open 100 files") == 1


def test_descriptor_limit_where_the_system_rejects_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []

    def setrlimit(_: int, limit: tuple[int, int]) -> None:  # as on macOS
        if limit[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(limit)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    raise_descriptor_limit()
    assert limits == [(10_240, resource.RLIM_INFINITY)]
