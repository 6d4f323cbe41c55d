"""Admission of requests by their headers: authentication, limits of the key, load shedding."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import Counter
from concurrent.futures import Executor
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from voicelab.errors import StoreError
from voicelab.service.concurrency import Arrival, FairQueue, QueueFull, run_in_executor
from voicelab.service.keys import ApiKey, KeyStore, well_formed
from voicelab.service.limits import Limits, read_rate
from voicelab.service.record import RECORD

BUSY = "The service is busy; try again in a moment"

_STORE_TIMEOUT_S = 3.0
_DAY_S = 86_400


@dataclass(slots=True)
class _Window:
    end: float
    requests: int = 0


class Admission:
    """Admission control, which rejects excess requests before reading the store or the body. Used by one event loop.

    The owner of a secret is looked up once. The state and the credit of the key are read for each admitted request. Request
    rates are counted in fixed windows on a monotonic clock. The first request after the end of a window starts a new one.
    """

    def __init__(self, keys: KeyStore, helpers: Executor, queue: FairQueue, limits: Limits) -> None:
        self._keys = keys
        self._helpers = helpers
        self._queue = queue
        self._limits = limits
        self._owners: dict[bytes, asyncio.Task[ApiKey]] = {}
        self._windows: dict[int, _Window] = {}
        self._active: Counter[int] = Counter()

    async def authenticate(self, secret: str) -> ApiKey:
        """Return the API key with this secret. Raises AuthenticationError, StoreError."""
        if not well_formed(secret):
            self._keys.authenticate(secret)  # raises without access to the store
        try:
            # A look-up waits for the store and for a helper thread.
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                key = await run_in_executor(self._helpers, self._keys.authenticate, secret)
        except TimeoutError:
            raise StoreError("the key store is busy") from None
        RECORD.get().key = key.name
        return key

    async def admit(self, secret: str) -> tuple[ApiKey, Arrival]:
        """Admit a speech request; return its key and its reserved queue position.

        Raises AuthenticationError, StoreError, HTTPException 429 if a limit of the key is exceeded, and HTTPException 503
        if the service is busy.
        """
        owner, fresh = await self._owner(secret)
        RECORD.get().key = owner.name
        window = self._window(owner)
        limit = owner.limits.active or self._limits.key_active
        if limit is not None and self._active[owner.id] >= limit:
            raise HTTPException(429, f"This API key is limited to {limit} concurrent requests", {"retry-after": "1"})
        try:
            arrival = self._queue.expect(owner.id)
        except QueueFull:
            raise HTTPException(503, BUSY, {"retry-after": "1"}) from None
        self._active[owner.id] += 1
        window.requests += 1
        ended = RECORD.get().ended
        ended.callback(self._queue.arrived, arrival)
        ended.callback(self._active.subtract, (owner.id,))
        return owner if fresh else await self.authenticate(secret), arrival

    def check_voices(self, key: ApiKey, voices: int, size: int) -> None:
        """Raise HTTPException 429 if the number of a key's voices or the size of their recordings has reached its limit."""
        limits = self._limits
        for name, stored, limit in (
            ("voices", voices, key.limits.voices or limits.key_voices),
            ("bytes of recordings", size, key.limits.voice_bytes or limits.key_voice_bytes),
        ):
            if limit is not None and stored >= limit:
                limited = f"This API key is limited to {limit} stored {name}, and has {stored}"
                raise HTTPException(429, f"{limited}; ask the operator to delete some")

    def count(self, key: ApiKey) -> None:
        """Count a request of a key. Raises HTTPException 429."""
        self._window(key).requests += 1

    async def reserve(self, key: ApiKey, characters: int) -> bool:
        """Reserve characters of a key's credit and daily limit; return False if neither applies to the key.

        Raises PaymentRequired if the credit is exceeded, HTTPException 429 if the daily limit is exceeded.
        """
        daily = key.limits.daily or self._limits.key_daily
        if key.credit is None and daily is None:
            return False
        if not await run_in_executor(self._helpers, self._keys.reserve, key, characters, daily):
            seconds = _DAY_S - int(time.time()) % _DAY_S
            _add_ratelimit_headers("characters", daily or 0, _DAY_S, 0, seconds)
            message = f"This API key is limited to {daily} characters per day (UTC)"
            raise HTTPException(429, message, {"retry-after": str(seconds)})
        return True

    async def _owner(self, secret: str) -> tuple[ApiKey, bool]:
        digest = hashlib.sha256(secret.encode()).digest()
        lookup = self._owners.get(digest)
        fresh = lookup is None
        if lookup is None:
            # Concurrent requests with the same secret share the look-up.
            lookup = self._owners[digest] = asyncio.ensure_future(self.authenticate(secret))
            lookup.add_done_callback(lambda done: (done.cancelled() or done.exception()) and self._owners.pop(digest))
        return await asyncio.shield(lookup), fresh

    def _window(self, key: ApiKey) -> _Window:
        rate, time_s = key.limits.rate or self._limits.key_rate, time.monotonic()
        if rate is None:
            return _Window(time_s)
        quota, window_s = read_rate(rate)
        window = self._windows.get(key.id)
        if window is None or window.end <= time_s:
            window = self._windows[key.id] = _Window(time_s + window_s)
        remaining, seconds = quota - window.requests, math.ceil(window.end - time_s)
        _add_ratelimit_headers("requests", quota, window_s, max(0, remaining - 1), seconds)
        if remaining <= 0:
            message = f"The request rate of this API key is limited to {rate}"
            raise HTTPException(429, message, {"retry-after": str(seconds)})
        return window


def _add_ratelimit_headers(name: str, quota: int, window_s: int, remaining: int, seconds: int) -> None:
    # The headers follow draft-ietf-httpapi-ratelimit-headers, version 08 and later.
    headers = RECORD.get().headers
    policy, state = f"q={quota};w={window_s}", f"r={remaining};t={seconds}"
    for header, limit in (("ratelimit-policy", policy), ("ratelimit", state)):
        headers[header] = ", ".join(filter(None, (headers.get(header), f'"{name}";{limit}')))
