"""Where a service is and who calls it: addresses and keys that HTTP can carry, the key shown nowhere."""

from __future__ import annotations

from collections.abc import Generator
from ipaddress import ip_address

import httpx

from voicelab.errors import RequestInvalid

__all__ = ["Bearer", "checked_url", "is_loopback"]


class Bearer(httpx.Auth):
    """Adds the key to a request as late as can be, and keeps it out of every repr.

    Raises RequestInvalid, without repeating it, for a key that no header can carry.
    """

    def __init__(self, api_key: str) -> None:
        key = api_key.strip()
        # Checked here, because the errors of the layers below repeat the header.
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            message = "The API key is empty, or has characters that no key has"
            raise RequestInvalid.of("authorization", message, in_="header")
        self.secret = key

    def __repr__(self) -> str:
        return "Bearer(…)"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put the key into the header."""
        request.headers["authorization"] = f"Bearer {self.secret}"
        yield request


def checked_url(base_url: str) -> httpx.URL:
    """Return an address as a URL. Raises RequestInvalid for what is none, or has a secret in it."""
    try:
        url = httpx.URL(base_url.strip())
    except (httpx.InvalidURL, AttributeError, TypeError):
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise RequestInvalid.of("base_url", "Input should be an address such as https://voice.example", in_="path")
    if url.userinfo or url.query or url.fragment:
        # Addresses are shown and written into provenance; what is secret in one would be too.
        message = "The address must be without user, password, query and fragment; a key is passed as api_key"
        raise RequestInvalid.of("base_url", message, in_="path")
    return url


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
