"""When a failed call is made again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["RETRIED", "RetryPolicy", "retry_after"]

RETRIED = frozenset({429, 502, 503, 504})
"""Statuses that say the request was not worked on, or that another try may succeed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is tried, and how long is waited in between.

    The wait before try ``n`` is random between 0 and ``base_s * 2 ** (n - 1)`` seconds, at most
    ``longest_s``: callers that failed together do not come back together. A service that says when
    (Retry-After) is believed up to ``longest_s``; told to wait longer, the call fails at once.
    ``attempts`` 1 never tries again.
    """

    attempts: int = 3
    base_s: float = 0.5
    longest_s: float = 20.0

    def wait(self, failures: int, told: float | None = None) -> float | None:
        """Return the seconds to wait after ``failures`` failed tries; None to give up."""
        if failures >= self.attempts or (told is not None and told > self.longest_s):
            return None
        span = min(self.longest_s, self.base_s * 2.0 ** (failures - 1))
        if told is None:
            return random.uniform(0.0, span)
        # Never earlier than told, and not all at the same moment.
        return min(self.longest_s, told + random.uniform(0.0, min(span, 0.25)))


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or a date; None without one."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
