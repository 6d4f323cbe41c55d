"""What is written down of each request: one line of the log, as text or JSON, and what Prometheus counts."""

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
_LONGEST: Final = 120
_WAITING: Final = 4096
"""Lines, some 400 bytes each."""
_RTF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


def loggable(text: str) -> str:
    """Return what a caller sent as a word for the log: in ASCII, short, without keys pasted in the wrong place."""
    return _KEY.sub("vl_…", ascii(text)[1:-1])[:_LONGEST]


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request. Seconds count from its head; what does not apply to it is None.

    ``key`` is the name of the caller's key, ``route`` the path's pattern, ``refused`` why the answer is no success.
    ``characters`` are those of the text, ``charged`` those that it cost. Of Opus, ``audio_s`` is what its bitrate says.
    ``rtf`` is the voice's time over that of the audio, waiting for the reader not counted; ``bytes`` those of the body.
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
    """Whether errors are answered in OpenAI's shape."""
    headers: dict[str, str] = field(default_factory=dict)
    """What every answer to this request carries."""
    began: float = field(default_factory=time.perf_counter)
    ended: ExitStack = field(default_factory=ExitStack)
    """What the request holds until its answer has ended."""

    def fields(self) -> dict[str, object]:
        """Return what the log says, without the text."""
        return {name: round(one, 4) if isinstance(one := getattr(self, name), float) else one for name in _LOGGED}

    def __str__(self) -> str:
        begin = f"request {self.id} {self.outcome}: {self.method} {self.path}, status {self.status}"
        more = {name: value for name, value in self.fields().items() if name in _LOGGED[6:] and value is not None}
        return ", ".join([begin, *(f"{name} {value}" for name, value in more.items())])


_LOGGED: Final[tuple[str, ...]] = tuple(RequestRecord.__slots__[:15])  # from id to refused

RECORD: ContextVar[RequestRecord] = ContextVar("RECORD", default=RequestRecord())  # noqa: B039 - outside requests
"""Of the request that is being answered."""


class LogFormatter(logging.Formatter):
    """A line for each request, and for whatever else is logged; with ``texts`` what was to be spoken is in it."""

    converter = time.gmtime  # type: ignore[assignment]  # a builtin is not bound
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, form: LogForm, *, texts: bool = False) -> None:
        super().__init__("%(asctime)s %(message)s")
        self._form, self._texts = form, texts

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        args = record.args if isinstance(record.args, tuple) else ()
        request = next((one for one in args if isinstance(one, RequestRecord)), None)
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
    """Write requests, and what goes wrong anywhere in the program, to stdout; ``none`` leaves logging as it is.

    Lines wait in a queue for whoever reads stdout: one who stops reading stops no request. Of more than `_WAITING` lines the
    newest are dropped; how many, a line says as soon as there is room. At the end the reader has a second for the rest.
    """
    if form == "none":
        yield
        return
    lines: Queue[logging.LogRecord] = Queue(_WAITING)
    handler, root, service = _Queued(lines), logging.getLogger(), logging.getLogger("voicelab.service")
    handler.setFormatter(LogFormatter(form, texts=texts))
    root.addHandler(handler)
    service.setLevel(logging.INFO)
    # Its end is not waited for: it may be in the middle of a write that nobody reads.
    Thread(target=_write_lines, args=(lines, sys.stdout.fileno()), name="voicelab-log", daemon=True).start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        until = time.monotonic() + 1.0
        while lines.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.01)


class _Queued(QueueHandler):
    """Puts lines, written out where they are logged, since a request's record changes, into a queue; never waits."""

    queue: Queue[logging.LogRecord]
    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put the record into the queue, after one that says what was dropped before it."""
        room = _WAITING - self.queue.qsize()
        if room < 1 + bool(self.dropped):
            self.dropped += 1
            return
        if self.dropped:
            said = "%d lines of the log were dropped: whoever reads it had stopped"
            warning = logging.LogRecord(__name__, logging.WARNING, "", 0, said, (self.dropped,), None)
            self.queue.put_nowait(self.prepare(warning))
            self.dropped = 0
        self.queue.put_nowait(record)


def _write_lines(lines: Queue[logging.LogRecord], file: int) -> None:
    """Write what comes to a file's number: buffered, an unfinished write would be waited for when the program ends."""
    while True:
        data = f"{lines.get().getMessage()}\n".encode()
        with suppress(OSError):  # nobody is there to read
            while data:
                data = data[os.write(file, data) :]
        lines.task_done()


@contextmanager
def serving_metrics(port: int, queue: FairQueue, host: str) -> Iterator[tuple[str, Callable[[RequestRecord], None]]]:
    """Serve ``/metrics`` for Prometheus for the length of a ``with`` block, which gets the address and what counts a request.

    The port is one of its own, since names of keys are in it. Raises MissingExtra without prometheus-client, RequestInvalid
    when the port cannot be used.
    """
    with MissingExtra.where("prometheus", "voicelab serve --metrics"):
        import prometheus_client as prometheus
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
