from __future__ import annotations

import socket
import sys

import httpx
import pytest

from tests.served import PLAIN
from voicelab.errors import MissingExtra, RequestInvalid
from voicelab.service.concurrency import FairQueue
from voicelab.service.record import RequestRecord, serving_metrics


def test_requests_are_counted_by_route_and_status() -> None:
    with serving_metrics(0, FairQueue(2, 2, 1), "127.0.0.1") as (url, count):
        spoken = RequestRecord(route="/v1/tts", status=200, key="ada", charged=40, first_audio_s=0.3, rtf=0.04)
        for request in (spoken, spoken, RequestRecord(status=404)):
            count(request)
        lines = set(httpx.get(url, **PLAIN).text.splitlines())
    assert {
        'voicelab_requests_total{route="/v1/tts",status="200"} 2.0',
        'voicelab_requests_total{route="other",status="404"} 1.0',
        'voicelab_characters_total{key="ada"} 80.0',
        'voicelab_first_audio_seconds_bucket{le="0.2"} 0.0',
        'voicelab_first_audio_seconds_bucket{le="0.5"} 2.0',
        'voicelab_rtf_bucket{le="0.05"} 2.0',
        'voicelab_requests_now{state="speaking"} 0.0',
        'voicelab_requests_now{state="waiting"} 0.0',
    } <= lines
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, **PLAIN)


def test_port_in_use_and_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RequestInvalid, match="metrics"), serving_metrics(port, FairQueue(1, 1, 1), "127.0.0.1"):
            pytest.fail("it cannot listen")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match="prometheus"), serving_metrics(0, FairQueue(1, 1, 1), "127.0.0.1"):
        pytest.fail("there is nothing to count with")
