"""A week of the service in minutes: requests of all kinds, and whether anything grows.

    python bench/soak.py                      100,000 requests, some minutes on two cores
    python bench/soak.py --requests 5000

The service, whose voice has its audio ready, runs in a process of its own. Of ten requests four are speech as JSON, one as
MessagePack with references, one is cancelled after its first audio, one is read slowly, one has a bad key, one a bad body,
one asks for a voice that is not there. Every minute a line says how the service is: time to first audio since the last one,
memory, descriptors, threads, files and bytes of its home, its database. The slope of memory is that of a line through what
comes after the first tenth, in MiB a 1,000 requests.
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
MOST_MIB = 0.02
"""Of memory, a 1,000 requests."""


class Callers:
    """Callers in threads, who count what they were answered."""

    def __init__(self, url: str, secret: str, requests: int) -> None:
        self.url, self.secret, self.left = url, secret, requests
        self.answers = Counter[str]()
        self.first_audio = list[float]()
        self.lock = threading.Lock()

    def run(self, seed: int) -> None:
        """Call until all requests were sent."""
        chance = random.Random(seed)
        with httpx.Client(base_url=self.url, timeout=60, trust_env=False) as http:
            while self.left > 0:
                kind = chance.choice(("json",) * 4 + ("references", "cancelled", "slow", "key", "body", "voice"))
                with self.lock:
                    self.left -= 1
                status = self.call(http, kind, chance)
                with self.lock:
                    self.answers[f"{kind} {status}"] += 1

    def call(self, http: httpx.Client, kind: str, chance: random.Random) -> int:
        """Send one request, and read its answer as its kind does. Return the status."""
        secret = "vl_" + "0" * 49 if kind == "key" else self.secret
        headers = {"authorization": f"Bearer {secret}"}
        if kind == "voice":
            return http.get(f"/model/{chance.getrandbits(128):032x}", headers=headers).status_code
        fields: dict[str, Any] = {"text": "x" * chance.randint(1, 30), "format": "pcm"}
        if kind == "body":
            fields["temperature"] = 9
        if kind == "references":
            fields["references"] = [{"audio": chance.randbytes(20_000), "text": "a"}]
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
    """Return how the service is now."""
    files = [path.stat().st_size for path in home.rglob("*") if path.is_file()]
    return {
        "memory_mib": round(service.memory_info().rss / 2**20, 2),
        "descriptors": service.num_fds(),
        "threads": service.num_threads(),
        "files": len(files),
        "bytes": sum(files),
    }


def slope(seen: list[tuple[int, float]], requests: int) -> float:
    """Return MiB a 1,000 requests, by least squares, after the first tenth."""
    late = [(count / 1000, memory) for count, memory in seen if count >= requests / 10]
    counts, memory = np.array(late).T
    return float(np.polyfit(counts, memory, 1)[0])


def main() -> None:
    """Call until all requests are answered, print a line a minute, and the slope; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--callers", type=int, default=8)
    options = parser.parse_args()
    here, seen = machine(), list[tuple[int, float]]()
    with canned_service() as (url, secret):
        (service,) = [one for one in psutil.Process().children() if "--serve" in " ".join(one.cmdline())]
        home = Path(service.cmdline()[service.cmdline().index("--serve") + 1]).parent
        callers = Callers(url, secret, options.requests)
        threads = [threading.Thread(target=callers.run, args=(seed,)) for seed in range(options.callers)]
        first = state(service, home)
        for thread in threads:
            thread.start()
        said = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.5)
            done = sum(callers.answers.values())
            seen.append((done, service.memory_info().rss / 2**20))
            if time.monotonic() - said >= _EVERY_S:
                said, timed = time.monotonic(), callers.first_audio[:]
                del callers.first_audio[: len(timed)]
                median = round(statistics.median(timed or [0.0]) * 1000, 1)
                print(f"{done} requests, first audio {median} ms, {state(service, home)}", flush=True)
        last = state(service, home)
    rising = round(slope(seen, options.requests), 4)
    print("\n".join(f"{count:7} {kind}" for kind, count in sorted(callers.answers.items())))
    tenths = [round(seen[len(seen) * tenth // 10][1], 1) for tenth in range(10)]
    figures = {
        "requests": options.requests,
        "growth_per_1000_mib": rising,
        "by_tenth_mib": tenths,
        "before": first,
        "after": last,
    }
    report({"soak": figures, "answers": dict(callers.answers), "machine": here})
    if rising > MOST_MIB:
        sys.exit(f"memory rises by {rising} MiB a 1,000 requests; {MOST_MIB} are allowed")


if __name__ == "__main__":
    main()
