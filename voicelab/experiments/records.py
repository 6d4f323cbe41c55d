"""What is kept of a run besides its takes: capabilities and failures as JSON, and error messages without keys."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from voicelab import errors
from voicelab.call import Knob, VoicePreset
from voicelab.capabilities import Capabilities, FieldSupport, Price
from voicelab.clip import NoRecord
from voicelab.errors import ArgumentError, FieldError, RequestInvalid, ServiceError, StoreError, VoicelabError

__all__ = ["Failure", "capabilities_of", "capabilities_record", "error_message", "redact"]


def capabilities_record(capabilities: Capabilities) -> dict[str, Any]:
    """Return what a backend declares as a JSON-able object; ``capabilities_of`` reads it back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(capabilities).items()}


def capabilities_of(record: Any) -> Capabilities:
    """Return the Capabilities that were recorded. Raises StoreError when the record is none."""
    try:
        fields: dict[str, Any] = _plain(record)
        if "price_per_million_bytes" in fields:  # before there were tables of prices
            price = fields.pop("price_per_million_bytes")
            fields["prices"] = None if price is None else ({"amount": price},) if price else ()
        for name, kind in _PARTS.items():
            if fields.get(name) is not None:
                fields[name] = tuple(kind(**_plain(item)) for item in fields[name])
        return Capabilities(**fields)
    except (AttributeError, KeyError, TypeError, ArgumentError) as error:
        raise StoreError(f"this is no record of a backend's capabilities: {error}") from error


_PARTS: Final[Mapping[str, Callable[..., Any]]] = {
    "voices": VoicePreset,
    "prices": Price,
    "fields": FieldSupport,
    "knobs": Knob,
}


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}


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


_SECRET: Final = re.compile(
    r"(?i)(\bbearer\s+|\b(?:api|access|auth)?[_-]?(?:key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]+"
    r"|\b(?:vl_|sk-)[\w-]{12,}"
)


def redact(text: str) -> str:
    """Return a text with an ellipsis for everything that looks like a key."""
    return _SECRET.sub(lambda match: f"{match[1] or ''}…", text)


def error_message(error: BaseException) -> str:
    """Return an error's sentence without keys, with its class where it is none of ours.

    Errors of this program hold no secrets; those of somebody else's backend may.
    """
    ours = isinstance(error, VoicelabError) and str(error)
    return redact(str(error) if ours else f"{type(error).__name__}: {error}")
