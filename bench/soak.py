"""Soak test of the service: requests of all kinds, and growth of memory and other resources.

    python bench/soak.py                      100,000 requests, some minutes on two cores
    python bench/soak.py --requests 5000

The service runs in a separate process with precomputed audio. Of ten requests, four are speech as JSON, one is speech as
MessagePack with references, one is cancelled after the first audio, one is read slowly, one has an invalid key, one an
invalid body, and one an unknown voice. Every minute prints time to first audio, memory, file descriptors, threads, and files
and bytes of the data folder. The memory slope is a linear fit after the first tenth, in MiB per 1,000 requests.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import numpy as np
import psutil
from machine import machine, report
from service import canned_service

_EVERY_S = 60.0
MAX_GROWTH_MIB = 0.02
"""Maximum growth of memory per 1,000 requests."""


class Callers:
    """Concurrent callers that count the responses."""

    def __init__(self, url: str, secret: str, requests: int) -> None:
        self.url, self.secret, self.remaining = url, secret, requests
        self.answers = Counter[str]()
        self.first_audio = list[float]()
        self.lock = threading.Lock()

    def run(self, seed: int) -> None:
        """Send requests until none remain."""
        rng = random.Random(seed)
        with httpx.Client(base_url=self.url, timeout=60, trust_env=False) as http:
            while self.remaining > 0:
                kind = rng.choice(("json",) * 4 + ("references", "cancelled", "slow", "key", "body", "voice"))
                with self.lock:
                    self.remaining -= 1
                status = self.call(http, kind, rng)
                with self.lock:
                    self.answers[f"{kind} {status}"] += 1

    def call(self, http: httpx.Client, kind: str, rng: random.Random) -> int:
        """Send one request, read the response according to its kind, and return the status."""
        secret = "vl_" + "0" * 49 if kind == "key" else self.secret
        headers = {"authorization": f"Bearer {secret}"}
        if kind == "voice":
            return http.get(f"/model/{rng.getrandbits(128):032x}", headers=headers).status_code
        fields: dict[str, Any] = {"text": "x" * rng.randint(1, 30), "format": "pcm"}
        if kind == "body":
            fields["temperature"] = 9
        if kind == "references":
            fields["references"] = [{"audio": rng.randbytes(20_000), "text": "a"}]
            headers["content-type"] = "application/msgpack"
            content = {"content": msgpack.packb(fields)}
        else:
            content = {"json": fields}
        began = time.perf_counter()
        with http.stream("POST", "/v1/tts", headers=headers, **content) as answer:
            for number, _ in enumerate(answer.iter_raw()):
                if number == 0 and answer.status_code == 200:
                    self.first_audio.append(time.perf_counter() - began)
                if kind == "cancelled":
                    break
                if kind == "slow":
                    time.sleep(0.02)
            return answer.status_code


def state(service: psutil.Process, home: Path) -> dict[str, Any]:
    """Return the resource usage of the service."""
    files = [path.stat().st_size for path in home.rglob("*") if path.is_file()]
    return {
        "memory_mib": round(service.memory_info().rss / 2**20, 2),
        "descriptors": service.num_fds(),
        "threads": service.num_threads(),
        "files": len(files),
        "bytes": sum(files),
    }


def slope(samples: list[tuple[int, float]], requests: int) -> float:
    """Fit the growth of memory in MiB per 1,000 requests, after the first tenth."""
    fitted = [(count / 1000, memory) for count, memory in samples if count >= requests / 10]
    counts, memory = np.array(fitted).T
    return float(np.polyfit(counts, memory, 1)[0])


def main() -> None:
    """Run all requests, printing a line per minute and the slope; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--callers", type=int, default=8)
    options = parser.parse_args()
    host, samples = machine(), list[tuple[int, float]]()
    with canned_service() as (url, secret):
        (service,) = [child for child in psutil.Process().children() if "--serve" in " ".join(child.cmdline())]
        home = Path(service.cmdline()[service.cmdline().index("--serve") + 1]).parent
        callers = Callers(url, secret, options.requests)
        threads = [threading.Thread(target=callers.run, args=(seed,)) for seed in range(options.callers)]
        before = state(service, home)
        for thread in threads:
            thread.start()
        printed_s = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.5)
            done = sum(callers.answers.values())
            samples.append((done, service.memory_info().rss / 2**20))
            if time.monotonic() - printed_s >= _EVERY_S:
                printed_s, timed = time.monotonic(), callers.first_audio[:]
                del callers.first_audio[: len(timed)]
                median = round(statistics.median(timed or [0.0]) * 1000, 1)
                print(f"{done} requests, first audio {median} ms, {state(service, home)}", flush=True)
        after = state(service, home)
    rising = round(slope(samples, options.requests), 4)
    print("\n".join(f"{count:7} {kind}" for kind, count in sorted(callers.answers.items())))
    tenths = [round(samples[len(samples) * tenth // 10][1], 1) for tenth in range(10)]
    figures = {
        "requests": options.requests,
        "growth_per_1000_mib": rising,
        "by_tenth_mib": tenths,
        "before": before,
        "after": after,
    }
    report({"soak": figures, "answers": dict(callers.answers), "machine": host})
    if rising > MAX_GROWTH_MIB:
        sys.exit(f"memory must grow by at most {MAX_GROWTH_MIB} MiB per 1,000 requests, got {rising}")


if __name__ == "__main__":
    main()
