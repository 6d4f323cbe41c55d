"""What the service and its client cost by themselves: a voice whose audio is ready beforehand speaks.

    python bench/service.py
    python bench/service.py --seconds 10 --callers 8

The service runs in a process of its own. Requests a second are counted at raw sockets that stay open, each answer a
clip of 1 s in pcm at 44.1 kHz, sent in ten chunks and read to its end. The client is compared with a bare httpx
stream to the same service: the two take turns, and the ratios are those of their medians.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from machine import machine, report

from voicelab.backend import Capabilities, SpeechStream
from voicelab.client import ServiceBackend
from voicelab.errors import NotFound
from voicelab.schema import Model, TTSRequest, VoiceCreate, VoiceModel
from voicelab.service.app import Limits
from voicelab.service.keys import KeyStore
from voicelab.service.run import serve

CHUNK = bytes(8820)
"""A tenth of a second of pcm."""


class Canned:
    """Says a tenth of a second for every character, and has it ready."""

    capabilities = Capabilities("canned", ("s1", "s2-pro"), "cpu", "exact", "canned", max_text=100_000)

    def synthesize(self, request: TTSRequest, *, model: Model = "s2-pro", seed: int | None = None) -> SpeechStream:
        """Say it at once."""
        chunks = iter([CHUNK] * len(request.text))
        return SpeechStream(chunks, request=request, model=model, backend=self.capabilities, seed=seed)

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


def overhead(url: str, secret: str, clip_s: float, repeats: int) -> dict[str, Any]:
    """Compare ServiceBackend with a bare httpx stream on a clip of `clip_s` seconds."""
    wanted = request(clip_s)
    body = json.dumps({name: value for name, value in wanted.to_wire().items() if value is not None}).encode()
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json", "model": "s2-pro"}

    with httpx.Client(trust_env=False) as bare, ServiceBackend(url, secret) as backend:

        def by_httpx() -> Iterator[bytes]:
            with bare.stream("POST", f"{url}/v1/tts", content=body, headers=headers) as response:
                response.raise_for_status()
                yield from response.iter_bytes()

        def by_client() -> Iterator[bytes]:
            return backend.synthesize(wanted)

        ways: dict[str, Callable[[], Iterator[bytes]]] = {"httpx": by_httpx, "client": by_client}
        first: dict[str, list[float]] = {name: [] for name in ways}
        whole: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(repeats + 5):
            # Who goes first changes, because the second of two finds the machine warm or busy.
            for name, begin in list(ways.items())[:: 1 if number % 2 else -1]:
                started = time.perf_counter()
                chunks = begin()
                size = len(next(chunks))
                arrived = time.perf_counter()
                size += sum(map(len, chunks))
                if size != len(wanted.text) * len(CHUNK):
                    sys.exit(f"{name} got {size} bytes")
                if number >= 5:  # before that, connections are made
                    first[name].append(arrived - started)
                    whole[name].append(time.perf_counter() - started)
    return {
        "clip_s": clip_s,
        "repeats": repeats,
        "first_byte_ms": {name: milliseconds(values) for name, values in first.items()},
        "whole_ms": {name: milliseconds(values) for name, values in whole.items()},
        "first_byte_ratio": ratio(first),
        "whole_ratio": ratio(whole),
    }


def ratio(values: dict[str, list[float]]) -> float:
    """Return how many times as long the client took."""
    return round(statistics.median(values["client"]) / statistics.median(values["httpx"]), 3)


def main() -> None:
    """Run all measurements and print them; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long requests are counted")
    parser.add_argument("--callers", type=int, default=4, help="connections that call at the same time")
    parser.add_argument("--repeats", type=int, default=200, help="calls by each of client and httpx")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        with KeyStore(options.serve) as keys:
            serve(Canned(), port=0, keys=keys, say=lambda line: print(line, flush=True), limits=Limits(active=8))
        return
    found = machine()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "keys.sqlite3"
        with KeyStore(store) as keys:
            secret = keys.create("bench").secret
        command = [sys.executable, __file__, "--serve", str(store)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            url = service.stdout.readline().rpartition(" ")[2].strip() if service.stdout else ""
            try:
                figures = {
                    "service": throughput(int(url.rpartition(":")[2]), secret, options.callers, options.seconds),
                    "client": [
                        overhead(url, secret, 1, options.repeats),
                        overhead(url, secret, 60, options.repeats // 2),
                    ],
                }
            finally:
                service.terminate()
    report({**figures, "machine": found})


if __name__ == "__main__":
    main()
