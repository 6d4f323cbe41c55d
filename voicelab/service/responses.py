"""Errors as the interface answers them (part 7): ``{status, message}``, for 422 an array of fields; or as OpenAI's API."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from typing_extensions import TypedDict  # pydantic reads it, and before Python 3.12 not typing's own

from voicelab.errors import (
    AudioError,
    AuthenticationError,
    EngineUnavailable,
    NotFound,
    PaymentRequired,
    RequestInvalid,
    ServiceTimeout,
    ServiceUnavailable,
    StoreError,
)
from voicelab.service.record import RECORD, loggable

_LOG = logging.getLogger("voicelab.service")

# Seconds after which a caller may try again when the service cannot say better.
_RETRY_AFTER = "1"


class Refusal(TypedDict):
    """Any error but a 422."""

    status: int
    message: str


# Its last name is a word of Python's, so that it cannot be written as a class.
Problem = TypedDict(
    "Problem",
    {
        "loc": list[str],
        "type": str,
        "msg": str,
        "ctx": NotRequired[str],
        "in": NotRequired[Literal["path", "query", "header", "cookie", "body"]],
    },
)
"""One item of a 422: an erroneous field."""


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON in ASCII, so that no character of a message can fail to be encoded."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")
    return Response(body, status, headers, media_type="application/json")


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return ``{status, message}``, and write the message down as why."""
    record, body = RECORD.get(), Refusal(status=status, message=message)
    record.refused = loggable(message)
    if record.openai:
        return _openai_error(status, message, code=_CODES.get(status), headers=headers)
    return json_response(body, status, headers)


def _unprocessable(error: RequestInvalid) -> Response:
    """Return 422 with one item for each wrong field, and write the fields down as why."""
    record, errors = RECORD.get(), error.errors
    record.refused = loggable("; ".join(f"{item.field}: {item.type}" for item in errors))
    if record.openai:
        fields = [".".join(item.loc[1:]) for item in errors]
        names = [
            name if item.type == "extra_forbidden" else _THEIRS.get(name, name)
            for name, item in zip(fields, errors, strict=True)
        ]
        message = "; ".join(f"{name}: {item.msg}" for name, item in zip(names, errors, strict=True))
        return _openai_error(400, message, param=names[0] or None, code=errors[0].type)
    return json_response([item.to_wire() for item in errors], 422)


_THEIRS = {
    "text": "input", "reference_id": "voice", "format": "response_format", "prosody.speed": "speed",
    "prosody.volume": "volume",
}  # fmt: skip
"""What OpenAI's API calls a field."""
_CODES = {401: "invalid_api_key", 402: "insufficient_quota", 404: "not_found", 429: "rate_limit_exceeded"}


def _openai_error(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json_response({"error": error}, status, headers)


def backend_failure(error: Exception) -> Response:
    """Return what a backend's error means to a caller, and log what went wrong on our side.

    A backend may itself call a service. That service's 401, 402 or 404 concerns our key there, not the
    caller's key here: to the caller it is a failure of this service, and trying again does not help.
    """
    if isinstance(error, RequestInvalid):
        return _unprocessable(error)
    if isinstance(error, AudioError):
        # The only audio that a speech request carries.
        return _unprocessable(RequestInvalid.of("references", str(error), type="audio_invalid"))
    _LOG.error("request %s: the backend failed: %s", RECORD.get().id, type(error).__name__, exc_info=error)
    if isinstance(error, ServiceTimeout):
        return refusal(504, "The voice did not answer in time")
    if isinstance(error, EngineUnavailable | ServiceUnavailable | StoreError | MemoryError):
        return refusal(503, "The voice is not available at the moment", {"retry-after": _RETRY_AFTER})
    return refusal(500, "The voice failed at this request")


class BackendFailure(Exception):
    """Raised from an error of the backend, before an answer has begun. Never leaves the service."""


async def _handle(_: Request, error: Exception) -> Response:  # were it not async, starlette would take a thread for it
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail, error.headers)
    if isinstance(error, RequestInvalid):
        return _unprocessable(error)
    if isinstance(error, BackendFailure) and isinstance(error.__cause__, Exception):
        return backend_failure(error.__cause__)
    if isinstance(error, StoreError):
        _LOG.error("request %s: %s", RECORD.get().id, error)
    for kind, (status, message, headers) in _ANSWERS.items():
        if isinstance(error, kind):
            return refusal(status, message or str(error), headers)
    # The server logs the traceback; the caller learns nothing of our insides.
    return refusal(500, "Internal error")


_ANSWERS: dict[type[Exception], tuple[int, str, dict[str, str]]] = {
    AuthenticationError: (401, "", {"www-authenticate": "Bearer"}),
    PaymentRequired: (402, "", {}),
    NotFound: (404, "", {}),
    StoreError: (503, "The service is not available at the moment", {"retry-after": _RETRY_AFTER}),
    # The caller left before its request was complete; nobody reads this answer.
    ClientDisconnect: (400, "The request was not complete", {}),
}
"""Status, message (the error's own where it is empty) and headers."""

HANDLERS: dict[Any, Any] = dict.fromkeys((HTTPException, RequestInvalid, BackendFailure, *_ANSWERS, Exception), _handle)
"""What starlette calls for an error raised before an answer has begun."""
