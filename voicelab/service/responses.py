"""Errors as the interface answers them (part 7): ``{status, message}``, and for 422 an array of fields."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
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

__all__ = ["HANDLERS", "REQUEST_ID", "Problem", "Refusal", "failed", "invalid", "json_response", "refused"]

_LOG = logging.getLogger("voicelab.service")

REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="-")
"""The name of the request that is being answered, for the log."""

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


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return ``{status, message}``."""
    body: Refusal = {"status": status, "message": message}
    return json_response(body, status, headers)


def invalid(error: RequestInvalid) -> Response:
    """Return 422 with one item for each wrong field."""
    return json_response([item.to_wire() for item in error.errors], 422)


def failed(error: Exception) -> Response:
    """Return what a backend's error means to a caller, and log what went wrong on our side.

    A backend may itself call a service. That service's 401, 402 or 404 concerns our key there, not the
    caller's key here: to the caller it is a failure of this service, which no waiting mends.
    """
    if isinstance(error, RequestInvalid):
        return invalid(error)
    if isinstance(error, AudioError):
        # The only audio that a speech request carries.
        return invalid(RequestInvalid.of("references", str(error), type="audio_invalid"))
    _LOG.error("request %s: the backend failed: %s", REQUEST_ID.get(), type(error).__name__, exc_info=error)
    if isinstance(error, ServiceTimeout):
        return refused(504, "The voice did not answer in time")
    if isinstance(error, EngineUnavailable | ServiceUnavailable | StoreError | MemoryError):
        return refused(503, "The voice is not available at the moment", {"retry-after": _RETRY_AFTER})
    return refused(500, "The voice failed at this request")


def _on_http(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return refused(error.status_code, error.detail, error.headers)


def _on_invalid(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestInvalid):
        raise error
    return invalid(error)


def _on_unauthenticated(_: Request, error: Exception) -> Response:
    return refused(401, str(error), {"www-authenticate": "Bearer"})


def _on_unpaid(_: Request, error: Exception) -> Response:
    return refused(402, str(error))


def _on_unknown(_: Request, error: Exception) -> Response:
    return refused(404, str(error))


def _on_unavailable(_: Request, error: Exception) -> Response:
    _LOG.error("request %s: %s", REQUEST_ID.get(), error)
    return refused(503, "The service is not available at the moment", {"retry-after": _RETRY_AFTER})


def _on_gone(_: Request, __: Exception) -> Response:
    # The caller left before its request was complete; nobody reads this answer.
    return refused(400, "The request was not complete")


def _on_unexpected(_: Request, __: Exception) -> Response:
    # The server logs the traceback; the caller learns nothing of our insides.
    return refused(500, "Internal error")


HANDLERS: dict[Any, Any] = {
    HTTPException: _on_http,
    RequestInvalid: _on_invalid,
    AuthenticationError: _on_unauthenticated,
    PaymentRequired: _on_unpaid,
    NotFound: _on_unknown,
    ServiceUnavailable: _on_unavailable,
    ClientDisconnect: _on_gone,
    Exception: _on_unexpected,
}
"""What starlette calls for an error raised before an answer has begun."""
