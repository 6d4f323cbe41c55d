"""Request log, as text or JSON, and Prometheus metrics."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from logging.handlers import QueueHandler
from queue import Queue
from threading import Thread
from typing import Final, Literal

from voicelab.errors import MissingExtra, RequestInvalid
from voicelab.service.concurrency import FairQueue

LogForm = Literal["json", "text", "none"]

_KEY: Final = re.compile(r"vl_[0-9A-Za-z]+", re.ASCII)
_MAX_LOGGED_CHARACTERS: Final = 120
_MAX_QUEUED_LINES: Final = 4096  # lines of about 400 bytes
_RTF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


def loggable(text: str) -> str:
    """Sanitize a caller's text for the log: ASCII, truncated, with API keys masked."""
    return _KEY.sub("vl_…", ascii(text)[1:-1])[:_MAX_LOGGED_CHARACTERS]


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """Record of a request. Times are in seconds since its headers arrived; None means not applicable.

    Attributes:
        key: name of the API key.
        route: pattern of the path.
        characters: length of the text.
        charged: characters charged.
        audio_s: duration of the audio, computed from its size and bitrate.
        rtf: real-time factor, excluding waits for the reader.
        bytes: size of the response body.
        refused: message of an error response.
        openai: whether errors have OpenAI's format.
        headers: headers of the response.
        ended: callbacks that run when the response has ended.
    """

    id: str = "-"
    outcome: str = "ended"
    method: str = ""
    path: str = ""
    route: str = ""
    status: int = 0
    seconds: float = 0.0
    key: str | None = None
    characters: int | None = None
    charged: int | None = None
    first_audio_s: float | None = None
    audio_s: float | None = None
    rtf: float | None = None
    bytes: int = 0
    refused: str | None = None
    text: str | None = field(default=None, repr=False)
    openai: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    start: float = field(default_factory=time.perf_counter)
    ended: ExitStack = field(default_factory=ExitStack)

    def fields(self) -> dict[str, object]:
        """Return the fields of a log line, without the text."""
        values = {name: getattr(self, name) for name in _LOG_FIELDS}
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}

    def __str__(self) -> str:
        request = f"request {self.id} {self.outcome}: {self.method} {self.path}, status {self.status}"
        fields = {name: value for name, value in self.fields().items() if name in _LOG_FIELDS[6:] and value is not None}
        return ", ".join([request, *(f"{name} {value}" for name, value in fields.items())])


_LOG_FIELDS: Final[tuple[str, ...]] = tuple(RequestRecord.__slots__[:15])  # from id to refused

RECORD: ContextVar[RequestRecord] = ContextVar("RECORD", default=RequestRecord())  # noqa: B039 - outside requests
"""Record of the current request."""


class LogFormatter(logging.Formatter):
    """Formatter that writes requests and other log messages as text or JSON; ``texts`` includes request texts."""

    converter = time.gmtime  # type: ignore[assignment]  # a builtin does not become a method
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, form: LogForm, *, texts: bool = False) -> None:
        super().__init__("%(asctime)s %(message)s")
        self._form, self._texts = form, texts

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line."""
        args = record.args if isinstance(record.args, tuple) else ()
        request = next((item for item in args if isinstance(item, RequestRecord)), None)
        text = _KEY.sub("vl_…", request.text) if request and request.text is not None and self._texts else None
        if self._form == "text":
            return super().format(record) + (f", text {text!a}" if text is not None else "")
        fields: dict[str, object] = {"time": self.formatTime(record), "level": record.levelname.lower()}
        fields |= request.fields() if request else {"message": record.getMessage()}
        if text is not None:
            fields["text"] = text
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields)


@contextmanager
def write_log(form: LogForm, *, texts: bool = False) -> Iterator[None]:
    """Log requests and warnings of the program to stdout; ``none`` leaves logging unchanged.

    Lines are queued, so that a stalled reader of stdout does not block requests. If the queue is full, lines are dropped,
    and their number is logged when the queue has space again. At the end, the queue is flushed for at most a second.
    """
    if form == "none":
        yield
        return
    lines: Queue[logging.LogRecord] = Queue(_MAX_QUEUED_LINES)
    handler, root, service = _LogQueue(lines), logging.getLogger(), logging.getLogger("voicelab.service")
    handler.setFormatter(LogFormatter(form, texts=texts))
    root.addHandler(handler)
    service.setLevel(logging.INFO)
    # A daemon thread, because a write may block forever.
    Thread(target=_write_lines, args=(lines, sys.stdout.fileno()), name="voicelab-log", daemon=True).start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        deadline = time.monotonic() + 1.0
        while lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)


class _LogQueue(QueueHandler):
    """Nonblocking queue of log records, which are formatted before they are queued, because request records are mutable."""

    queue: Queue[logging.LogRecord]
    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a record, preceded by a warning if records were dropped."""
        space = _MAX_QUEUED_LINES - self.queue.qsize()
        if space < 1 + bool(self.dropped):
            self.dropped += 1
            return
        if self.dropped:
            message = "%d lines of the log were dropped because the reader of stdout stalled"
            warning = logging.LogRecord(__name__, logging.WARNING, "", 0, message, (self.dropped,), None)
            self.queue.put_nowait(self.prepare(warning))
            self.dropped = 0
        self.queue.put_nowait(record)


def _write_lines(lines: Queue[logging.LogRecord], file: int) -> None:
    """Write queued lines to a file descriptor, unbuffered, so that the program's exit does not wait for a flush."""
    while True:
        data = f"{lines.get().getMessage()}\n".encode()
        with suppress(OSError):  # the reader has closed stdout
            while data:
                data = data[os.write(file, data) :]
        lines.task_done()


@contextmanager
def serving_metrics(port: int, queue: FairQueue, host: str) -> Iterator[tuple[str, Callable[[RequestRecord], None]]]:
    """Serve ``/metrics`` for Prometheus; yield the address and the callback that counts a request.

    The port is separate because metrics contain key names. Raises MissingExtra if prometheus-client is not installed,
    RequestInvalid if the port is not available.
    """
    with MissingExtra.where("prometheus", "voicelab serve --metrics"):
        import prometheus_client as prometheus
    registry = prometheus.CollectorRegistry()
    prometheus.ProcessCollector(registry=registry)
    responses = prometheus.Counter("voicelab_requests", "Responses", ("route", "status"), registry=registry)
    characters = prometheus.Counter("voicelab_characters", "Characters charged", ("key",), registry=registry)
    latency = prometheus.Histogram("voicelab_first_audio_seconds", "First audio", buckets=_SECONDS, registry=registry)
    rtf = prometheus.Histogram("voicelab_rtf", "Real-time factor", buckets=_RTF, registry=registry)
    current = prometheus.Gauge("voicelab_requests_now", "Active or queued requests", ("state",), registry=registry)
    current.labels("speaking").set_function(lambda: queue.speaking)
    current.labels("waiting").set_function(lambda: queue.waiting)

    def count(request: RequestRecord) -> None:
        responses.labels(request.route or "other", request.status).inc()
        if request.charged:
            characters.labels(request.key).inc(request.charged)
        if request.first_audio_s is not None:
            latency.observe(request.first_audio_s)
        if request.rtf is not None:
            rtf.observe(request.rtf)

    try:
        server, thread = prometheus.start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise RequestInvalid.of("metrics", f"cannot listen on port {port}: {error}") from error
    try:
        yield f"http://{host}:{server.server_port}/metrics", count
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
