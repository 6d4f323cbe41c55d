"""The outermost layer of the service: every answer gets a name, the log a line, and a stopping service says so."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voicelab.service.responses import REQUEST_ID, refused

__all__ = ["Edge"]

_LOG = logging.getLogger("voicelab.service")
_KEY = re.compile(r"vl_[0-9A-Za-z]+", re.ASCII)
_LONGEST_PATH = 120


class Edge:
    """Wraps an application. For use on one event loop.

    Each answer carries an ``x-request-id``, under which a caller's report can be found in our log.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._stopping = False
        self.inside = 0
        """Requests that are being answered."""

    def stop(self) -> None:
        """Answer 503 from now on; what is inside goes on."""
        self._stopping = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on what is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, status, began = secrets.token_hex(8), 0, time.perf_counter()
        REQUEST_ID.set(name)

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = name
            await send(message)

        app: ASGIApp = self._app
        if self._stopping:
            app = refused(503, "The service is stopping", {"retry-after": "1"})
        self.inside += 1
        outcome = "ended"
        try:
            await app(scope, receive, named)
        except asyncio.CancelledError:
            outcome = "was cancelled"
            raise
        except Exception as error:
            outcome = "broke off"
            error.add_note(f"in request {name}")
            raise
        finally:
            self.inside -= 1
            seconds = time.perf_counter() - began
            _LOG.info(
                "request %s %s: %s %s, status %d, %.3f s",
                name, outcome, scope["method"], _plain(scope["path"]), status, seconds,
            )  # fmt: skip


def _plain(path: str) -> str:
    # Paths are the callers' own: they may hold anything, a key pasted in the wrong place too.
    return _KEY.sub("vl_…", ascii(path)[1:-1])[:_LONGEST_PATH]
