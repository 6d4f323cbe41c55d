"""Web server of a listening test or a study; all responses are stored in one file.

If there is no study, every visitor may respond under any name, which is adequate on a lab's internal network. In a study, a
listener is identified by the browser, which sends a secret with every request. The page receives no names of systems.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from voicelab.errors import NotFound, RequestInvalid, StoreError, VoicelabError, shown_value
from voicelab.listening.study import BlindStudy, Study
from voicelab.listening.votes import Ballot, BlindBallot
from voicelab.service.concurrency import run_in_executor
from voicelab.service.limits import Limits
from voicelab.service.requests import decode, read_body
from voicelab.service.responses import json_response
from voicelab.service.run import LOOPBACK, ReadyServer, connections, in_thread, listen
from voicelab.storage import FileLock

_LOG: Final = logging.getLogger("voicelab.listening")
_MAX_BODY_BYTES: Final = 64 * 1024
_BODY_SECONDS: Final = 60.0
# Time limit for pending requests when the server stops, since a client that has vanished would block it forever.
_GRACE_SECONDS: Final = 3
# A browser opens up to six connections. Beyond the limit, the server responds with status 503, and the page retries.
_MAX_CONNECTIONS: Final = 4000
# Longer than browsers keep an idle connection: a request sent just as the server closes one would have to be resent.
_KEEP_ALIVE_SECONDS: Final = 330
_ENCODERS: Final = 2
"""Number of threads that encode sounds; kept small because each thread retains the memory of its arrays."""
_HEADER: Final = "x-voicelab-listener"
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)
PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Listening test</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="look.css">
<link rel="stylesheet" href="listening.css">
<style>:root { color-scheme: light dark; }</style>
</head>
<body>
<main id="test" class="voicelab-look"></main>
<script type="module">
import { open } from "./listening.js";
import { LINE } from "./FILE";
open(document.getElementById("test"), LINE());
</script>
</body>
</html>
"""
"""HTML template: LINE is replaced by the name of the function that fetches trials, FILE by the module of that
function."""
FILES: Final = {
    **dict.fromkeys(
        ("listening.js", "listening-lines.js", "listening-scale.js", "listening-study.js", "switcher.js", "dom.js"),
        "text/javascript",
    ),
    **dict.fromkeys(("look.css", "listening.css"), "text/css"),
}


def listening_app(ballot: Ballot, static: Path, study: Study | None = None) -> Starlette:
    """Return the ASGI application of a test or a study; ``static`` is the folder with its JavaScript."""
    session = BlindBallot(ballot) if study is None else BlindStudy(study, ballot)

    encoders = ThreadPoolExecutor(_ENCODERS, "voicelab-sound")

    async def page(_: Request) -> Response:
        return HTMLResponse(PAGE.replace("LINE", "overHttp").replace("FILE", "listening-lines.js"))

    async def file(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        return Response((static / name).read_bytes(), media_type=FILES[name])

    def api(call: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            body = await _body(request) if request.method == "POST" else {}
            body |= {"secret": request.headers.get(_HEADER)}
            listener = request.path_params.get("listener", "")
            # Starlette's int converter fails at thousands of digits.
            number = int(listener) if _NUMBER.fullmatch(listener) else None
            value = await run_in_threadpool(session.answer, call, number, body)
            return json_response({"trial": value} if call == "trial" else value)

        return endpoint

    async def sound(request: Request) -> Response:
        data = await run_in_executor(encoders, session.sound, request.path_params["id"])
        # Not cached: the next test at this address may use the same id for another sound.
        return Response(data, media_type="audio/wav", headers={"cache-control": "no-store"})

    return Starlette(
        routes=[
            Route("/", page),
            *(Route(f"/{name}", file) for name in FILES),
            Route("/api/test", api("test")),
            Route("/api/listeners", api("join"), methods=["POST"]),
            Route("/api/listeners/{listener}/trial", api("trial")),
            Route("/api/listeners/{listener}/votes", api("vote"), methods=["POST"]),
            Route("/api/listeners/{listener}/steps", api("step"), methods=["POST"]),
            Route("/api/sounds/{id:str}", sound),
        ],
        exception_handlers={VoicelabError: _failed},
    )


@contextmanager
def serving(
    ballot: Ballot, static: Path, study: Study | None = None, *, host: str = LOOPBACK, port: int = 0
) -> Iterator[str]:
    """Serve a test or a study during a ``with`` block; yield the address of the page.

    Raises RequestInvalid if the address is unavailable, EngineError if the server does not start, StoreError if another
    server serves the study.
    """
    message = f"another server serves {ballot.path}: end it, or serve another copy of the study"
    lock = (
        FileLock(ballot.path.with_name(f"{ballot.path.name}.lock"), message, temporary=True) if study else nullcontext()
    )
    config = uvicorn.Config(
        listening_app(ballot, static, study),
        http=connections(Limits()),
        loop="asyncio",  # uvloop would not call the socket's accept()
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    with lock, in_thread(partial(ReadyServer, config), listen(host, port), "voicelab-listening") as url:
        yield url


async def _body(request: Request) -> dict[str, Any]:
    body = decode(await read_body(request, _MAX_BODY_BYTES, _BODY_SECONDS), "json")
    if not isinstance(body, dict):
        raise RequestInvalid.of("body", f"must be a JSON object, got {shown_value(body)}", type="model_type")
    return body


async def _failed(_: Request, error: Exception) -> Response:
    if isinstance(error, StoreError):  # such as a full disk: pages retry, and only the operator can act
        _LOG.error("a response was not stored: %s", error)
    status = {RequestInvalid: 422, NotFound: 404, StoreError: 503}.get(type(error), 500)
    return json_response({"status": status, "message": str(error)}, status)
