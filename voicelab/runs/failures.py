"""Failures: errors as values that are kept and raised again, and error messages without keys."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from voicelab import errors
from voicelab.backend import StreamBase
from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.clip import NoRecord, Take
from voicelab.errors import FieldError, RequestInvalid, ServiceError, VoicelabError

_KINDS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, VoicelabError) and kind is not RequestInvalid
}
_SECRET: Final = re.compile(
    r"(?i)(\bbearer\s+|\b(?:api|access|auth)?[_-]?(?:key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]+"
    r"|\b(?:vl_|sk-)[\w-]{12,}"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a value: ``kind`` is the name of its class, ``fields`` those of a RequestInvalid.

    The body of a service's answer is not kept; its status and the service's name of the call are.
    """

    kind: str
    message: str
    fields: tuple[FieldError, ...] = ()
    status: int | None = None
    request_id: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Return what is kept of an error; of one that is none of ours, its message without keys."""
        fields = error.errors if isinstance(error, RequestInvalid) else ()
        status, request_id = (error.status, error.request_id) if isinstance(error, ServiceError) else (None, None)
        message = str(error) if isinstance(error, VoicelabError) else redact(str(error))
        return cls(type(error).__name__, message, fields, status, request_id)

    def error(self) -> VoicelabError:
        """Return an error like the one that was: of its class, with its message, fields and status."""
        if self.fields:
            return RequestInvalid(self.fields)
        kind = _KINDS.get(self.kind, VoicelabError)
        if issubclass(kind, ServiceError):
            return kind(self.message, status=self.status, request_id=self.request_id)
        return kind(self.message)

    def record(self) -> dict[str, Any]:
        """Return the failure as a JSON-able object; ``of_record`` reads it back."""
        return {**asdict(self), "fields": [item.to_wire() for item in self.fields]}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the failure that ``record()`` described. Raises NoRecord (a StoreError) when it is none."""
        try:
            fields = tuple(
                FieldError(tuple(item["loc"]), item["type"], item["msg"], item.get("ctx"), item.get("in"))
                for item in record["fields"]
            )
            return cls(record["kind"], record["message"], fields, record["status"], record["request_id"])
        except (KeyError, TypeError) as error:
            raise NoRecord(f"this is no record of a failure: {error!r}") from error


@dataclass(frozen=True)
class Failed:
    """A take that was asked for and not had: as far as it came, why, and whether at the call or while it streamed."""

    take: Take
    failure: Failure
    at: Literal["call", "stream"] = "call"

    @classmethod
    def of(
        cls, call: Call, backend: Capabilities, error: Exception, *, repeat: int = 0, started: float | None = None
    ) -> Self:
        """Return what is kept of a call that a backend refused; ``started`` is the ``time.perf_counter()`` of the call."""
        return cls(StreamBase((), call=call, backend=backend, started=started).take_of(b"", repeat), Failure.of(error))

    @property
    def call(self) -> Call:
        """What was asked for."""
        return self.take.call


def redact(text: str) -> str:
    """Return a text with an ellipsis for everything that looks like a key."""
    return _SECRET.sub(lambda match: f"{match[1] or ''}…", text)


def error_message(error: BaseException) -> str:
    """Return an error's sentence without keys, with its class where it is none of ours.

    Errors of this program hold no secrets; those of somebody else's backend may.
    """
    ours = isinstance(error, VoicelabError) and str(error)
    return redact(str(error) if ours else f"{type(error).__name__}: {error}")
