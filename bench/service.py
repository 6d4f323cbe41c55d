"""Overhead of the service with precomputed audio, and its response time under overload.

    python bench/service.py
    python bench/service.py --seconds 10 --callers 8
    python bench/service.py --overload

The service runs in a separate process. Requests per second are counted at persistent raw sockets; each response is a clip of
1 s in pcm at 44.1 kHz, sent in ten chunks and read completely. For the overhead of the client see bench/client.py.

Overload (only, with ``--overload``): 256 and then 1,000 callers simultaneously connect and request a clip that takes 0.5 s
to synthesize; 40 are admitted. Times are from the caller's connect to the end of the 503 response, or to the first audio.
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import machine, report

from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.errors import NotFound
from voicelab.schema import TTSRequest, VoiceCreate, VoiceModel
from voicelab.service.keys import KeyStore
from voicelab.service.limits import Limits
from voicelab.service.run import serve

CHUNK = bytes(8820)
"""0.1 s of pcm."""


class Canned:
    """Backend with precomputed audio, 0.1 s per character."""

    capabilities = Capabilities("canned", ("s1", "s2-pro"), "cpu", "exact", "canned", max_text=100_000)

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def synthesize(self, call: Call) -> SpeechStream:
        """Stream the audio, optionally with a pause before each chunk."""
        chunks = (self._chunk() for _ in call.request.text)
        return SpeechStream(chunks, call=call, backend=self.capabilities)

    def _chunk(self) -> bytes:
        if self._pause_s:
            time.sleep(self._pause_s)
        return CHUNK

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Raise NotFound: voice creation is not supported."""
        raise NotFound(f"voice creation is not supported: {request.title!r}")

    def get_voice(self, id: str) -> VoiceModel:
        """Raise NotFound: the backend stores no voice models."""
        raise NotFound(f"there is no voice {id!r}")

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


def request(clip_s: float) -> TTSRequest:
    """Build the request of a clip of `clip_s` seconds."""
    return TTSRequest(text="x" * round(clip_s * 10), format="pcm")


def message_of(secret: str) -> bytes:
    """Build the HTTP request of a clip of 1 s."""
    body = json.dumps({"text": request(1).text, "format": "pcm"})
    return (
        f"POST /v1/tts HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def throughput(port: int, secret: str, callers: int, seconds: float) -> dict[str, Any]:
    """Measure responses per second and response times of `callers` connections over `seconds`."""
    message = message_of(secret)
    took: list[float] = []
    end = time.perf_counter() + seconds

    def call() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (started := time.perf_counter()) < end:
                connection.sendall(message)
                read_answer(connection)
                took.append(time.perf_counter() - started)

    started = time.perf_counter()
    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - started
    return {
        "requests_a_second": round(len(took) / elapsed, 1),
        "median_ms": milliseconds(took),
        "callers": callers,
        "requests": len(took),
    }


def overload(url: str, secret: str, callers: int) -> dict[str, Any]:
    """Send simultaneous requests of `callers`; exit if a response is incomplete."""
    message, refused, first_audio = message_of(secret), [], []
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    with selectors.DefaultSelector() as selector:
        for _ in range(callers):
            connection = socket.socket()
            connection.setblocking(False)
            began = time.perf_counter()
            connection.connect_ex(address)
            selector.register(connection, selectors.EVENT_WRITE, [began, b""])
        end = time.perf_counter() + 60
        while selector.get_map():
            ready = selector.select(1)
            now_s = time.perf_counter()
            if now_s > end:
                sys.exit(f"{len(selector.get_map())} callers have no complete response")
            for key, _ in ready:
                caller: Any = key.fileobj
                if key.events == selectors.EVENT_WRITE:
                    caller.sendall(message)
                    selector.modify(caller, selectors.EVENT_READ, key.data)
                    continue
                data = caller.recv(65_536)
                if not data:
                    sys.exit(f"a connection was closed after {key.data[1]!r}")
                if not key.data[1] and data.startswith(b"HTTP/1.1 200"):
                    first_audio.append(now_s - key.data[0])
                key.data[1] = (key.data[1] + data)[-400:]
                if key.data[1].endswith((b"\r\n0\r\n\r\n", b"}")):
                    if key.data[1].startswith(b"HTTP/1.1 503"):
                        refused.append(now_s - key.data[0])
                    selector.unregister(caller)
                    caller.close()
    if len(refused) + len(first_audio) != callers:
        sys.exit(f"{callers} callers: {len(refused)} rejected, {len(first_audio)} served")
    return {
        "callers": callers,
        "spoken": len(first_audio),
        "refused": len(refused),
        "refused_p50_ms": milliseconds(refused),
        "refused_p95_ms": round(sorted(refused)[len(refused) * 95 // 100] * 1000, 1),
        "refused_last_ms": round(max(refused) * 1000, 1),
        "first_audio_p50_ms": milliseconds(first_audio),
        "first_audio_last_ms": round(max(first_audio) * 1000, 1),
    }


def read_answer(connection: socket.socket) -> None:
    """Read one chunked response; exit if it is incomplete."""
    size, tail = 0, b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        data = connection.recv(262_144)
        if not data or (size == 0 and not data.startswith(b"HTTP/1.1 200")):
            sys.exit(f"the service responded {data[:200]!r}")
        size += len(data)
        tail = (tail + data)[-8:]
    if size < 10 * len(CHUNK):
        sys.exit(f"a response had only {size} bytes")


def milliseconds(seconds: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return round(statistics.median(seconds) * 1000, 3)


@contextmanager
def canned_service(pause_s: float = 0.0) -> Iterator[tuple[str, str]]:
    """Run the service in a separate process; yield its URL and an API key."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "keys.sqlite3"
        with KeyStore(store) as keys:
            secret = keys.create("bench").secret
        command = [sys.executable, __file__, "--serve", str(store), "--pause", str(pause_s)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            url = service.stdout.readline().rpartition(" ")[2].strip() if service.stdout else ""
            try:
                yield url, secret
            finally:
                service.terminate()


def main() -> None:
    """Run all measurements and print them; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of the throughput measurement")
    parser.add_argument("--callers", type=int, default=4, help="concurrent connections")
    parser.add_argument("--overload", action="store_true", help="measure only overload")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        with KeyStore(options.serve) as keys:
            serve(
                Canned(options.pause),
                port=0,
                keys=keys,
                say=lambda line: print(line, flush=True),
                limits=Limits(active=8),
            )
        return
    host = machine()
    figures: dict[str, Any] = {}
    if not options.overload:
        with canned_service() as (url, secret):
            figures = {"service": throughput(int(url.rpartition(":")[2]), secret, options.callers, options.seconds)}
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with canned_service(0.05) as (url, secret):
        figures |= {"overload": [overload(url, secret, callers) for callers in (256, 1000)]}
    report({**figures, "machine": host})


if __name__ == "__main__":
    main()
