"""What the service costs by itself: a voice whose audio is ready beforehand speaks.

    python bench/service.py
    python bench/service.py --seconds 10 --callers 8

The service runs in a process of its own. Requests a second are counted at raw sockets that stay open, each answer a
clip of 1 s in pcm at 44.1 kHz, sent in ten chunks and read to its end. What the client costs is bench/client.py.
"""

from __future__ import annotations

import argparse
import json
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
from voicelab.service.requests import Limits
from voicelab.service.run import serve

CHUNK = bytes(8820)
"""A tenth of a second of pcm."""


class Canned:
    """Says a tenth of a second for every character, and has it ready."""

    capabilities = Capabilities("canned", ("s1", "s2-pro"), "cpu", "exact", "canned", max_text=100_000)

    def synthesize(self, call: Call) -> SpeechStream:
        """Say it at once."""
        chunks = iter([CHUNK] * len(call.request.text))
        return SpeechStream(chunks, call=call, backend=self.capabilities)

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


def throughput(port: int, secret: str, callers: int, seconds: float) -> dict[str, Any]:
    """Count the answers that `callers` connections get in `seconds`, and how long each took."""
    body = json.dumps({"text": request(1).text, "format": "pcm"})
    message = (
        f"POST /v1/tts HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
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
        "requests_per_s": round(len(took) / elapsed, 1),
        "median_ms": milliseconds(took),
        "callers": callers,
        "requests": len(took),
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
def canned_service() -> Iterator[tuple[str, str]]:
    """Run the service in a process of its own; the values are its address and a key."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "keys.sqlite3"
        with KeyStore(store) as keys:
            secret = keys.create("bench").secret
        command = [sys.executable, __file__, "--serve", str(store)]
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
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        with KeyStore(options.serve) as keys:
            serve(Canned(), port=0, keys=keys, say=lambda line: print(line, flush=True), limits=Limits(active=8))
        return
    found = machine()
    with canned_service() as (url, secret):
        figures = {"service": throughput(int(url.rpartition(":")[2]), secret, options.callers, options.seconds)}
    report({**figures, "machine": found})


if __name__ == "__main__":
    main()
