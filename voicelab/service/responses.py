"""Error responses of the interface (part 7) and of OpenAI's API.

In the interface, the body of an error is ``{status, message}``, or an array of invalid fields for status 422.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing's own

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

_RETRY_AFTER = "1"  # seconds


class Refusal(TypedDict):
    """Error response other than 422."""

    status: int
    message: str


# The class syntax is not possible, because "in" is a keyword.
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
"""Item of a 422 response: an invalid field."""


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Build a JSON response in ASCII, which can also encode lone surrogates."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")
    return Response(body, status, headers, media_type="application/json")


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Build the response ``{status, message}`` and record the message for the log."""
    record, body = RECORD.get(), Refusal(status=status, message=message)
    record.refused = loggable(message)
    if record.openai:
        return _openai_error(status, message, code=_CODES.get(status), headers=headers)
    return json_response(body, status, headers)


def _unprocessable(error: RequestInvalid) -> Response:
    """Build the 422 response with an item for each invalid field, and record the fields for the log."""
    record, errors = RECORD.get(), error.errors
    record.refused = loggable("; ".join(f"{item.field}: {item.type}" for item in errors))
    if record.openai:
        fields = [".".join(item.loc[1:]) for item in errors]
        names = [
            name if item.type == "extra_forbidden" else _OPENAI_NAMES.get(name, name)
            for name, item in zip(fields, errors, strict=True)
        ]
        message = "; ".join(f"{name}: {item.msg}" for name, item in zip(names, errors, strict=True))
        return _openai_error(400, message, param=names[0] or None, code=errors[0].type)
    return json_response([item.to_wire() for item in errors], 422)


_OPENAI_NAMES = {
    "text": "input", "reference_id": "voice", "format": "response_format", "prosody.speed": "speed",
    "prosody.volume": "volume",
}  # fmt: skip
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
    """Build the response for a backend's error, and log it unless the caller caused it.

    If the backend is a remote service, its statuses 401, 402 and 404 concern this service's key, not the caller's key. The
    caller then gets status 500.
    """
    if isinstance(error, RequestInvalid):
        return _unprocessable(error)
    if isinstance(error, AudioError):
        # References are the only audio in a speech request.
        return _unprocessable(RequestInvalid.of("references", str(error), type="audio_invalid"))
    _LOG.error("request %s: the backend failed: %s", RECORD.get().id, type(error).__name__, exc_info=error)
    if isinstance(error, ServiceTimeout):
        return refusal(504, "The backend did not respond in time")
    if isinstance(error, EngineUnavailable | ServiceUnavailable | StoreError | MemoryError):
        return refusal(503, "The backend is not available at the moment", {"retry-after": _RETRY_AFTER})
    return refusal(500, "The backend failed")


class BackendFailure(Exception):
    """Raised for an error of the backend before the response has started. Internal to the service."""


async def _handle(_: Request, error: Exception) -> Response:  # async, so that starlette does not use a thread
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail, error.headers)
    if isinstance(error, RequestInvalid):
        return _unprocessable(error)
    if isinstance(error, BackendFailure) and isinstance(error.__cause__, Exception):
        return backend_failure(error.__cause__)
    if isinstance(error, StoreError):
        _LOG.error("request %s: %s", RECORD.get().id, error)
    for kind, (status, message, headers) in _RESPONSES.items():
        if isinstance(error, kind):
            return refusal(status, message or str(error), headers)
    # The server logs the traceback, which is not sent to the caller.
    return refusal(500, "Internal error")


_RESPONSES: dict[type[Exception], tuple[int, str, dict[str, str]]] = {
    AuthenticationError: (401, "", {"www-authenticate": "Bearer"}),
    PaymentRequired: (402, "", {}),
    NotFound: (404, "", {}),
    StoreError: (503, "The service is not available at the moment", {"retry-after": _RETRY_AFTER}),
    # For the log only: the caller has disconnected.
    ClientDisconnect: (400, "The request was not complete", {}),
}
"""Error class → status, message ("" for the message of the error itself) and headers."""

HANDLERS: dict[Any, Any] = dict.fromkeys(
    (HTTPException, RequestInvalid, BackendFailure, *_RESPONSES, Exception), _handle
)
"""Handlers by which Starlette answers errors that are raised before the response has started."""
