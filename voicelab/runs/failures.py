"""Errors as storable values, and redaction of secrets in messages."""

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
    """An error as a storable value: class name, message, fields of a RequestInvalid, HTTP status and request ID."""

    kind: str
    message: str
    fields: tuple[FieldError, ...] = ()
    status: int | None = None
    request_id: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Convert an exception; secrets are removed from the messages of other packages' exceptions."""
        fields = error.errors if isinstance(error, RequestInvalid) else ()
        status, request_id = (error.status, error.request_id) if isinstance(error, ServiceError) else (None, None)
        message = str(error) if isinstance(error, VoicelabError) else redact(str(error))
        return cls(type(error).__name__, message, fields, status, request_id)

    def error(self) -> VoicelabError:
        """Restore the exception with its class, message, fields and status."""
        if self.fields:
            return RequestInvalid(self.fields)
        kind = _KINDS.get(self.kind, VoicelabError)
        if issubclass(kind, ServiceError):
            return kind(self.message, status=self.status, request_id=self.request_id)
        return kind(self.message)

    def record(self) -> dict[str, Any]:
        """Return the failure as a JSON-serializable object, see ``of_record``."""
        return {**asdict(self), "fields": [item.to_wire() for item in self.fields]}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Restore a failure from ``record()``. Raises NoRecord (a StoreError) if it is malformed."""
        try:
            fields = tuple(
                FieldError(tuple(item["loc"]), item["type"], item["msg"], item.get("ctx"), item.get("in"))
                for item in record["fields"]
            )
            return cls(record["kind"], record["message"], fields, record["status"], record["request_id"])
        except (KeyError, TypeError) as error:
            raise NoRecord(f"malformed record of a failure: {error!r}") from error


@dataclass(frozen=True)
class Failed:
    """A failed take: the partial take, the failure, and whether it occurred at the call or during the stream."""

    take: Take
    failure: Failure
    at: Literal["call", "stream"] = "call"

    @classmethod
    def of(
        cls, call: Call, backend: Capabilities, error: Exception, *, repeat: int = 0, started: float | None = None
    ) -> Self:
        """Build the failed take of a rejected call; ``started`` is the ``time.perf_counter()`` of the call."""
        return cls(StreamBase((), call=call, backend=backend, started=started).take_of(b"", repeat), Failure.of(error))

    @property
    def call(self) -> Call:
        """Call of the take."""
        return self.take.call


def redact(text: str) -> str:
    """Replace apparent keys, tokens and passwords with an ellipsis."""
    return _SECRET.sub(lambda match: f"{match[1] or ''}…", text)


def error_message(error: BaseException) -> str:
    """Return the redacted message of an error, preceded by its class for other packages' errors."""
    is_voicelab = isinstance(error, VoicelabError) and str(error)
    return redact(str(error) if is_voicelab else f"{type(error).__name__}: {error}")
