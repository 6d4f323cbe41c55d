"""Bearer authentication: the first thing that is looked at, before a byte of the body is read."""

from __future__ import annotations

from starlette.requests import Request

from voicelab.errors import AuthenticationError

__all__ = ["bearer_secret"]


def bearer_secret(request: Request) -> str:
    """Return the secret of the ``Authorization: Bearer`` header. Raises AuthenticationError.

    The message never repeats the header.
    """
    values = request.headers.getlist("authorization")
    if not values:
        raise AuthenticationError("An API key is needed: Authorization: Bearer <API key>", status=401)
    scheme, _, secret = values[0].strip().partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not secret.strip():
        raise AuthenticationError("The Authorization header must be: Bearer <API key>", status=401)
    return secret.strip()
