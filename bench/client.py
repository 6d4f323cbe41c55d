"""Overhead of the service client over httpx: time to first byte and throughput, blocking and asynchronous.

    python bench/client.py
    python bench/client.py --rounds 500

The service of bench/service.py, with precomputed audio, runs in a separate process. In every round a plain httpx stream and
the client request the same clip over persistent connections, in alternating order. Ratios are of medians, client over
httpx, with bootstrap 95 % intervals over rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
from machine import machine, report
from service import CHUNK, canned_service, milliseconds, request
from stats import Interval

from voicelab.backends.service import AsyncServiceBackend, ServiceBackend
from voicelab.call import Call
from voicelab.schema import TTSRequest

_WARM_UP_ROUNDS = 10
"""Warm-up rounds."""

Reading = tuple[float, float, int]
"""Seconds to the first byte, seconds to the last byte, size in bytes."""


def median_ratio(ours: Sequence[float], theirs: Sequence[float], *, draws: int = 2000, seed: int = 0) -> Interval:
    """Compute the ratio of two medians over paired rounds, with its bootstrap interval."""
    pairs = np.array((ours, theirs), float)
    index = np.random.default_rng(seed).integers(0, pairs.shape[1], (draws, pairs.shape[1]))
    ratios = np.divide(*np.median(pairs[:, index], axis=2))
    low, high = np.quantile(ratios, (0.025, 0.975))
    value, baseline = np.median(pairs, axis=1)
    return Interval(float(value / baseline), float(low), float(high))


def message(tts_request: TTSRequest, secret: str) -> dict[str, Any]:
    """Build the httpx arguments of the request that the client sends."""
    body = json.dumps({name: value for name, value in tts_request.to_wire().items() if value is not None}).encode()
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json", "model": "s2-pro"}
    return {"content": body, "headers": {**headers, "accept-encoding": "identity"}}


def read(chunks: Callable[[], Iterator[bytes]]) -> Reading:
    """Read one response."""
    started = time.perf_counter()
    arriving = chunks()
    size = len(next(arriving))
    first_s = time.perf_counter() - started
    size += sum(map(len, arriving))
    return first_s, time.perf_counter() - started, size


async def read_async(chunks: Callable[[], Awaitable[AsyncIterator[bytes]]]) -> Reading:
    """Read one response."""
    started = time.perf_counter()
    arriving = await chunks()
    size = len(await anext(arriving))
    first_s = time.perf_counter() - started
    async for chunk in arriving:
        size += len(chunk)
    return first_s, time.perf_counter() - started, size


def blocking(url: str, secret: str, tts_request: TTSRequest, rounds: int) -> dict[str, list[Reading]]:
    """Alternate between httpx.Client and ServiceBackend."""
    arguments = message(tts_request, secret)
    with httpx.Client(trust_env=False) as bare, ServiceBackend(url, secret) as backend:

        def by_httpx() -> Iterator[bytes]:
            with bare.stream("POST", f"{url}/v1/tts", **arguments) as response:
                response.raise_for_status()
                yield from response.iter_bytes()

        methods = {"httpx": by_httpx, "client": lambda: backend.synthesize(Call(tts_request))}
        readings: dict[str, list[Reading]] = {name: [] for name in methods}
        for number in range(rounds + _WARM_UP_ROUNDS):
            for name in sorted(methods, reverse=number % 2 == 1):
                readings[name].append(read(methods[name]))
    return readings


async def on_a_loop(url: str, secret: str, tts_request: TTSRequest, rounds: int) -> dict[str, list[Reading]]:
    """Alternate between httpx.AsyncClient and AsyncServiceBackend."""
    arguments = message(tts_request, secret)
    async with httpx.AsyncClient(trust_env=False) as bare, AsyncServiceBackend(url, secret) as backend:

        async def stream() -> AsyncIterator[bytes]:
            async with bare.stream("POST", f"{url}/v1/tts", **arguments) as response:
                response.raise_for_status()
                async for chunk in response.aiter_bytes():
                    yield chunk

        async def by_httpx() -> AsyncIterator[bytes]:
            return stream()

        async def by_client() -> AsyncIterator[bytes]:
            return await backend.synthesize(Call(tts_request))

        methods = {"httpx": by_httpx, "client": by_client}
        readings: dict[str, list[Reading]] = {name: [] for name in methods}
        for number in range(rounds + _WARM_UP_ROUNDS):
            for name in sorted(methods, reverse=number % 2 == 1):
                readings[name].append(await read_async(methods[name]))
    return readings


def compare(readings: dict[str, list[Reading]], clip_s: float, way: str) -> dict[str, Any]:
    """Summarize one comparison; exit if a response was incomplete."""
    size = round(clip_s * 10) * len(CHUNK)
    if any(received != size for values in readings.values() for _, _, received in values):
        sys.exit("a response did not have the complete clip")
    first_s = {name: [value for value, _, _ in values[_WARM_UP_ROUNDS:]] for name, values in readings.items()}
    total_s = {name: [value for _, value, _ in values[_WARM_UP_ROUNDS:]] for name, values in readings.items()}
    return {
        "way": way,
        "clip_s": clip_s,
        "rounds": len(first_s["client"]),
        "first_byte_ms": {name: milliseconds(values) for name, values in first_s.items()},
        "megabytes_per_s": {name: round(size / float(np.median(values)) / 1e6, 1) for name, values in total_s.items()},
        "first_byte_ratio": median_ratio(first_s["client"], first_s["httpx"]).rounded(),
        "whole_ratio": median_ratio(total_s["client"], total_s["httpx"]).rounded(),
    }


def main() -> None:
    """Run all comparisons and print them; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="calls each of client and httpx")
    options = parser.parse_args()
    host = machine()
    figures = []
    with canned_service() as (url, secret):
        for clip_s in (1, 60):
            tts_request = request(clip_s)
            figures.append(compare(blocking(url, secret, tts_request, options.rounds), clip_s, "blocking"))
            readings = asyncio.run(on_a_loop(url, secret, tts_request, options.rounds))
            figures.append(compare(readings, clip_s, "event loop"))
    report({"client": figures, "machine": host})


if __name__ == "__main__":
    main()
