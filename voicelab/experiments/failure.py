"""Failure: a call that ended with an error, kept beside the takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from voicelab import errors
from voicelab.errors import FieldError, RequestInvalid, ServiceError, VoicelabError
from voicelab.take import NoRecord

__all__ = ["Failure"]

_KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, VoicelabError) and kind is not RequestInvalid
}


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
    def of(cls, error: VoicelabError) -> Self:
        """Return what is kept of an error."""
        fields = error.errors if isinstance(error, RequestInvalid) else ()
        status, request_id = (error.status, error.request_id) if isinstance(error, ServiceError) else (None, None)
        return cls(type(error).__name__, str(error), fields, status, request_id)

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
        return {
            "kind": self.kind,
            "message": self.message,
            "fields": [item.to_wire() for item in self.fields],
            "status": self.status,
            "request_id": self.request_id,
        }

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
