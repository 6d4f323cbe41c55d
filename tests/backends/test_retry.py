from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from voicelab.backends.caller import RetryPolicy, retry_after


def test_exponential_backoff_with_jitter() -> None:
    policy = RetryPolicy(attempts=6, base_s=1.0, max_wait_s=5.0)
    for failures, span in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (5, 5.0)]:
        waits = [policy.wait(failures) for _ in range(200)]
        assert all(wait is not None and 0 <= wait <= span for wait in waits)
        assert len(set(waits)) > 100
        assert max(wait or 0 for wait in waits) > 0.8 * span
    assert policy.wait(6) is None
    assert RetryPolicy(attempts=1).wait(1, retry_after=0.0) is None


def test_retry_after_is_respected_up_to_the_limit() -> None:
    policy = RetryPolicy(attempts=3, max_wait_s=10.0)
    for _ in range(50):
        wait = policy.wait(1, retry_after=3.0)
        assert wait is not None
        assert 3.0 <= wait <= 3.25
    assert policy.wait(1, retry_after=10.0) == 10.0
    assert policy.wait(1, retry_after=10.5) is None


NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 120 ", 120.0),
        (format_datetime(NOW + timedelta(seconds=30), usegmt=True), 30.0),
        (format_datetime(NOW - timedelta(seconds=30), usegmt=True), 0.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("9" * 400, None),
        (None, None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after({} if value is None else {"retry-after": value}, NOW) == seconds


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone of a process cannot be changed here")
@pytest.mark.parametrize("zone", ["JST-9", "PST8PDT"])
@pytest.mark.parametrize("value", ["Thu, 01 Jan 2026 12:00:05 -0000", "Thu, 01 Jan 2026 12:00:05"])
def test_date_without_time_zone_is_utc(value: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert retry_after({"retry-after": value}, NOW) == 5.0
    time.tzset()
