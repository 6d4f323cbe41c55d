"""``/metrics`` for Prometheus, on a port of its own that only this machine reaches: key names are in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from voicelab.errors import MissingExtra, RequestInvalid
from voicelab.service.concurrency import FairQueue
from voicelab.service.record import RequestRecord

_RTF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


@contextmanager
def serving_metrics(port: int, queue: FairQueue, host: str) -> Iterator[tuple[str, Callable[[RequestRecord], None]]]:
    """Serve metrics for the length of a ``with`` block, which gets their address and what counts a request.

    Raises MissingExtra without prometheus-client, RequestInvalid when the port cannot be used.
    """
    try:
        import prometheus_client as prometheus
    except ImportError as error:
        raise MissingExtra.of("prometheus", "voicelab serve --metrics") from error
    registry = prometheus.CollectorRegistry()
    prometheus.ProcessCollector(registry=registry)
    answers = prometheus.Counter("voicelab_requests", "Answers", ("route", "status"), registry=registry)
    characters = prometheus.Counter("voicelab_characters", "Characters charged", ("key",), registry=registry)
    first = prometheus.Histogram("voicelab_first_audio_seconds", "First audio", buckets=_SECONDS, registry=registry)
    rtf = prometheus.Histogram("voicelab_rtf", "The voice's time over the audio's", buckets=_RTF, registry=registry)
    now = prometheus.Gauge("voicelab_requests_now", "Requests that speak, or wait", ("state",), registry=registry)
    now.labels("speaking").set_function(lambda: queue.speaking)
    now.labels("waiting").set_function(lambda: queue.waiting)

    def count(request: RequestRecord) -> None:
        answers.labels(request.route or "other", request.status).inc()
        if request.charged:
            characters.labels(request.key).inc(request.charged)
        if request.first_audio_s is not None:
            first.observe(request.first_audio_s)
        if request.rtf is not None:
            rtf.observe(request.rtf)

    try:
        server, thread = prometheus.start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise RequestInvalid.of("metrics", f"cannot listen at port {port}: {error}") from error
    try:
        yield f"http://{host}:{server.server_port}/metrics", count
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
