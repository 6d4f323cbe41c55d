"""What the client costs over httpx: time to the first byte and bytes a second, blocking and on an event loop.

    python bench/client.py
    python bench/client.py --rounds 500

The service of bench/service.py, whose audio is ready beforehand, runs in a process of its own. In every round a bare
httpx stream and the client say the same clip, each first in every other round, over connections that stay open. A
ratio is that of the medians, client over httpx; its 95 % interval is a bootstrap over rounds.
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

from voicelab.call import Call
from voicelab.client import AsyncServiceBackend, ServiceBackend
from voicelab.schema import TTSRequest

_WARM = 10
"""Rounds before the count begins: connections are made, and code is run for the first time."""

Taken = tuple[float, float, int]
"""Seconds to the first byte, seconds to the last, bytes."""


def median_ratio(ours: Sequence[float], theirs: Sequence[float], *, draws: int = 2000, seed: int = 0) -> Interval:
    """Return the ratio of two medians over the same rounds, with its bootstrap interval."""
    pairs = np.array((ours, theirs), float)
    index = np.random.default_rng(seed).integers(0, pairs.shape[1], (draws, pairs.shape[1]))
    ratios = np.divide(*np.median(pairs[:, index], axis=2))
    low, high = np.quantile(ratios, (0.025, 0.975))
    value, baseline = np.median(pairs, axis=1)
    return Interval(float(value / baseline), float(low), float(high))


def message(wanted: TTSRequest, secret: str) -> dict[str, Any]:
    """Return what httpx is given to ask for the same as the client."""
    body = json.dumps({name: value for name, value in wanted.to_wire().items() if value is not None}).encode()
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json", "model": "s2-pro"}
    return {"content": body, "headers": {**headers, "accept-encoding": "identity"}}


def read(chunks: Callable[[], Iterator[bytes]]) -> Taken:
    """Read one answer."""
    started = time.perf_counter()
    arriving = chunks()
    size = len(next(arriving))
    first = time.perf_counter() - started
    size += sum(map(len, arriving))
    return first, time.perf_counter() - started, size


async def read_async(chunks: Callable[[], Awaitable[AsyncIterator[bytes]]]) -> Taken:
    """Read one answer."""
    started = time.perf_counter()
    arriving = await chunks()
    size = len(await anext(arriving))
    first = time.perf_counter() - started
    async for chunk in arriving:
        size += len(chunk)
    return first, time.perf_counter() - started, size


def blocking(url: str, secret: str, wanted: TTSRequest, rounds: int) -> dict[str, list[Taken]]:
    """Let httpx.Client and ServiceBackend take turns."""
    asked = message(wanted, secret)
    with httpx.Client(trust_env=False) as bare, ServiceBackend(url, secret) as backend:

        def by_httpx() -> Iterator[bytes]:
            with bare.stream("POST", f"{url}/v1/tts", **asked) as response:
                response.raise_for_status()
                yield from response.iter_bytes()

        ways = {"httpx": by_httpx, "client": lambda: backend.synthesize(Call(wanted))}
        taken: dict[str, list[Taken]] = {name: [] for name in ways}
        for number in range(rounds + _WARM):
            for name in sorted(ways, reverse=number % 2 == 1):
                taken[name].append(read(ways[name]))
    return taken


async def on_a_loop(url: str, secret: str, wanted: TTSRequest, rounds: int) -> dict[str, list[Taken]]:
    """Let httpx.AsyncClient and AsyncServiceBackend take turns."""
    asked = message(wanted, secret)
    async with httpx.AsyncClient(trust_env=False) as bare, AsyncServiceBackend(url, secret) as backend:

        async def stream() -> AsyncIterator[bytes]:
            async with bare.stream("POST", f"{url}/v1/tts", **asked) as response:
                response.raise_for_status()
                async for chunk in response.aiter_bytes():
                    yield chunk

        async def by_httpx() -> AsyncIterator[bytes]:
            return stream()

        async def by_client() -> AsyncIterator[bytes]:
            return await backend.synthesize(Call(wanted))

        ways = {"httpx": by_httpx, "client": by_client}
        taken: dict[str, list[Taken]] = {name: [] for name in ways}
        for number in range(rounds + _WARM):
            for name in sorted(ways, reverse=number % 2 == 1):
                taken[name].append(await read_async(ways[name]))
    return taken


def compare(taken: dict[str, list[Taken]], clip_s: float, way: str) -> dict[str, Any]:
    """Return the figures of one comparison; stop when an answer was not the whole clip."""
    size = round(clip_s * 10) * len(CHUNK)
    if any(got != size for values in taken.values() for _, _, got in values):
        sys.exit("an answer was not the whole clip")
    first = {name: [value for value, _, _ in values[_WARM:]] for name, values in taken.items()}
    whole = {name: [value for _, value, _ in values[_WARM:]] for name, values in taken.items()}
    return {
        "way": way,
        "clip_s": clip_s,
        "rounds": len(first["client"]),
        "first_byte_ms": {name: milliseconds(values) for name, values in first.items()},
        "megabytes_per_s": {name: round(size / float(np.median(values)) / 1e6, 1) for name, values in whole.items()},
        "first_byte_ratio": median_ratio(first["client"], first["httpx"]).rounded(),
        "whole_ratio": median_ratio(whole["client"], whole["httpx"]).rounded(),
    }


def main() -> None:
    """Run all comparisons and print them; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="calls by each of client and httpx")
    options = parser.parse_args()
    found = machine()
    figures = []
    with canned_service() as (url, secret):
        for clip_s in (1, 60):
            wanted = request(clip_s)
            figures.append(compare(blocking(url, secret, wanted, options.rounds), clip_s, "blocking"))
            taken = asyncio.run(on_a_loop(url, secret, wanted, options.rounds))
            figures.append(compare(taken, clip_s, "event loop"))
    report({"client": figures, "machine": found})


if __name__ == "__main__":
    main()
