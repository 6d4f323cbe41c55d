"""What is written down of each request: one line of the log, as text or JSON, and what the metrics count."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal

LogForm = Literal["json", "text", "none"]

_KEY: Final = re.compile(r"vl_[0-9A-Za-z]+", re.ASCII)
_LONGEST: Final = 120


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
        first = record.args[0] if isinstance(record.args, tuple) and record.args else None
        request = first if isinstance(first, RequestRecord) else None
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


def write_log(form: LogForm, *, texts: bool = False) -> None:
    """Write requests, and what goes wrong anywhere in the program, to stdout; ``none`` leaves logging as it is."""
    if form == "none":
        return
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LogFormatter(form, texts=texts))
    logging.getLogger().addHandler(handler)
    logging.getLogger("voicelab.service").setLevel(logging.INFO)
