"""What the service costs by itself, its voice having its audio ready, and how soon it refuses those who are too many.

    python bench/service.py
    python bench/service.py --seconds 10 --callers 8
    python bench/service.py --overload

The service runs in a process of its own. Requests a second are counted at raw sockets that stay open, each answer a
clip of 1 s in pcm at 44.1 kHz, sent in ten chunks and read to its end. What the client costs is bench/client.py.

Overload (with ``--overload`` that alone): 256 callers, then 1,000, connect and ask in the same moment for a clip that
takes .5 s to say, of whom 40 are admitted. Seconds are from a caller's connect to the end of its refusal, or to its first
audio.
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
"""A tenth of a second of pcm."""


class Canned:
    """Says a tenth of a second for every character, and has it ready."""

    capabilities = Capabilities("canned", ("s1", "s2-pro"), "cpu", "exact", "canned", max_text=100_000)

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def synthesize(self, call: Call) -> SpeechStream:
        """Say it at once, or with a pause before each chunk."""
        chunks = (self._chunk() for _ in call.request.text)
        return SpeechStream(chunks, call=call, backend=self.capabilities)

    def _chunk(self) -> bytes:
        if self._pause_s:
            time.sleep(self._pause_s)
        return CHUNK

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Refuse: there is nothing to make a voice of."""
        raise NotFound(f"no voice is made of {request.title!r}")

    def get_voice(self, id: str) -> VoiceModel:
        """Refuse: there are no voices."""
        raise NotFound(f"there is no voice {id!r}")

    def close(self) -> None:
        """Do nothing: nothing is held."""


def request(clip_s: float) -> TTSRequest:
    """Return what makes the voice speak for so many seconds."""
    return TTSRequest(text="x" * round(clip_s * 10), format="pcm")


def message_of(secret: str) -> bytes:
    """Return the whole of a request for a clip of 1 s."""
    body = json.dumps({"text": request(1).text, "format": "pcm"})
    return (
        f"POST /v1/tts HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def throughput(port: int, secret: str, callers: int, seconds: float) -> dict[str, Any]:
    """Count the answers that `callers` connections get in `seconds`, and how long each took."""
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
    """Let `callers` ask in the same moment; stop the benchmark if anybody is left without a whole answer."""
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
            now = time.perf_counter()
            if now > end:
                sys.exit(f"{len(selector.get_map())} callers have no whole answer")
            for key, _ in ready:
                caller: Any = key.fileobj
                if key.events == selectors.EVENT_WRITE:
                    caller.sendall(message)
                    selector.modify(caller, selectors.EVENT_READ, key.data)
                    continue
                part = caller.recv(65_536)
                if not part:
                    sys.exit(f"a caller was left after {key.data[1]!r}")
                if not key.data[1] and part.startswith(b"HTTP/1.1 200"):
                    first_audio.append(now - key.data[0])
                key.data[1] = (key.data[1] + part)[-400:]
                if key.data[1].endswith((b"\r\n0\r\n\r\n", b"}")):
                    if key.data[1].startswith(b"HTTP/1.1 503"):
                        refused.append(now - key.data[0])
                    selector.unregister(caller)
                    caller.close()
    if len(refused) + len(first_audio) != callers:
        sys.exit(f"{callers} callers: {len(refused)} were refused and {len(first_audio)} heard")
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
    """Read one chunked answer to its end, and stop the benchmark if it is not the whole clip."""
    size, tail = 0, b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        part = connection.recv(262_144)
        if not part or (size == 0 and not part.startswith(b"HTTP/1.1 200")):
            sys.exit(f"the service answered {part[:200]!r}")
        size += len(part)
        tail = (tail + part)[-8:]
    if size < 10 * len(CHUNK):
        sys.exit(f"an answer had {size} bytes only")


def milliseconds(seconds: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return round(statistics.median(seconds) * 1000, 3)


@contextmanager
def canned_service(pause_s: float = 0.0) -> Iterator[tuple[str, str]]:
    """Run the service in a process of its own; the values are its address and a key."""
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
    parser.add_argument("--seconds", type=float, default=5.0, help="how long requests are counted")
    parser.add_argument("--callers", type=int, default=4, help="connections that call at the same time")
    parser.add_argument("--overload", action="store_true", help="only how soon those are refused who are too many")
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
    here = machine()
    figures: dict[str, Any] = {}
    if not options.overload:
        with canned_service() as (url, secret):
            figures = {"service": throughput(int(url.rpartition(":")[2]), secret, options.callers, options.seconds)}
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with canned_service(0.05) as (url, secret):
        figures |= {"overload": [overload(url, secret, callers) for callers in (256, 1000)]}
    report({**figures, "machine": here})


if __name__ == "__main__":
    main()
