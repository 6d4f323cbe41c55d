"""Who may come in, decided by the head of a request: whose key it is, what that key may ask, whether there is a place."""

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

BUSY = "All voices are busy; try again in a moment"

_STORE_SECONDS = 3.0
_DAY = 86_400


@dataclass(slots=True)
class _Window:
    ends: float
    requests: int = 0


class Admission:
    """Refuses who is too many without a look at the store, a thread or a body. For one event loop.

    Whose secret it is never changes, so it is looked up once; whether the key is still accepted, and its credit, are
    looked up for each request that gets a place. Rates are counted in windows that begin with a request, on a clock
    that nobody sets.
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
        """Return the key of a secret as it is now. Raises AuthenticationError, StoreError."""
        if not well_formed(secret):
            self._keys.authenticate(secret)  # raises, without a look at the store
        try:
            # Each look at the store waits for so long at most, but many callers may stand in line for theirs.
            async with asyncio.timeout(_STORE_SECONDS):
                key = await run_in_executor(self._helpers, self._keys.authenticate, secret)
        except TimeoutError:
            raise StoreError("the key store is busy") from None
        RECORD.get().key = key.name
        return key

    async def admit(self, secret: str) -> tuple[ApiKey, Arrival]:
        """Return the key of a request for speech, and the place that it holds until it has ended.

        Raises AuthenticationError and StoreError; HTTPException 429 for the key's own limits, 503 when the
        service is full.
        """
        owner, fresh = await self._owner(secret)
        RECORD.get().key = owner.name
        window = self._window(owner)
        most = owner.limits.active or self._limits.key_active
        if most is not None and self._active[owner.id] >= most:
            raise HTTPException(429, f"This API key may have {most} requests at once", {"retry-after": "1"})
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

    def count(self, key: ApiKey) -> None:
        """Count another request of a key. Raises HTTPException 429."""
        self._window(key).requests += 1

    async def reserve(self, key: ApiKey, characters: int) -> bool:
        """Take the characters of a text from what a key may speak; return whether they were counted.

        Raises PaymentRequired, HTTPException 429 for the day's.
        """
        daily = key.limits.daily or self._limits.key_daily
        if key.credit is None and daily is None:
            return False
        if not await run_in_executor(self._helpers, self._keys.reserve, key, characters, daily):
            left = _DAY - int(time.time()) % _DAY
            _announce("characters", daily or 0, _DAY, 0, left)
            message = f"This API key may speak {daily} characters in a day (UTC)"
            raise HTTPException(429, message, {"retry-after": str(left)})
        return True

    async def _owner(self, secret: str) -> tuple[ApiKey, bool]:
        digest = hashlib.sha256(secret.encode()).digest()
        look = self._owners.get(digest)
        fresh = look is None
        if look is None:
            # Those who come with the same secret meanwhile wait for the same look.
            look = self._owners[digest] = asyncio.ensure_future(self.authenticate(secret))
            look.add_done_callback(lambda done: (done.cancelled() or done.exception()) and self._owners.pop(digest))
        return await asyncio.shield(look), fresh

    def _window(self, key: ApiKey) -> _Window:
        text, now = key.limits.rate or self._limits.key_rate, time.monotonic()
        if text is None:
            return _Window(now)
        quota, lasts = read_rate(text)
        window = self._windows.get(key.id)
        if window is None or window.ends <= now:
            window = self._windows[key.id] = _Window(now + lasts)
        left, seconds = quota - window.requests, math.ceil(window.ends - now)
        _announce("requests", quota, lasts, max(0, left - 1), seconds)
        if left <= 0:
            raise HTTPException(429, f"This API key may send {text} requests", {"retry-after": str(seconds)})
        return window


def _announce(name: str, quota: int, window: int, left: int, seconds: int) -> None:
    # draft-ietf-httpapi-ratelimit-headers, as it is from its version 08 on: a list of limits in each of the two.
    headers = RECORD.get().headers
    for header, limit in (("ratelimit-policy", f"q={quota};w={window}"), ("ratelimit", f"r={left};t={seconds}")):
        headers[header] = ", ".join(filter(None, (headers.get(header), f'"{name}";{limit}')))
