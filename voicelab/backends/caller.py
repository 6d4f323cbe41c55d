"""HTTP calls of ServiceBackend and AsyncServiceBackend: address, key, timeouts, retries, mapping of errors, transports.

The client logic is written once, as coroutines over a Transport that does the waiting. ``BlockingTransport`` never suspends,
so ``run_blocking`` can run the coroutines in a thread without an event loop; ``AsyncTransport`` runs on an event loop.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address
from typing import Any, TypeVar, get_args

import httpx

from voicelab.audio.decoders import is_empty_wav
from voicelab.backends import wire
from voicelab.capabilities import Capabilities
from voicelab.errors import (
    Cancelled,
    RequestInvalid,
    ServiceError,
    ServiceTimeout,
    ServiceUnavailable,
    StreamTruncated,
    VoicelabError,
    shown_value,
)
from voicelab.schema import VoiceCreate, VoiceModel

_T = TypeVar("_T")

_CLOSED = "the stream was closed before all audio had arrived"


@dataclass(frozen=True, slots=True)
class Reply:
    """HTTP response with received headers and an unread body."""

    response: httpx.Response
    chunk: Callable[[], Coroutine[Any, Any, bytes]]
    """Return the next chunk of the body, b"" at its end. Raises errors of httpx."""
    close: Callable[[], Coroutine[Any, Any, None]]
    """Release the response. If its body is incomplete, this closes the connection."""


class BlockingTransport:
    """Transport of a single call in the calling thread. Only ``cancel()`` may be called from other threads.

    Args:
        client: HTTP client of the backend.
        backend_closed: Set when the backend is closed.
    """

    def __init__(self, client: httpx.Client, backend_closed: threading.Event) -> None:
        self._client = client
        self._backend_closed = backend_closed
        self._cancelled = threading.Event()
        self._response: httpx.Response | None = None
        self._head: Future[httpx.Response] | None = None

    @property
    def closed(self) -> bool:
        """Whether the backend was closed."""
        return self._backend_closed.is_set()

    def check(self) -> None:
        """Raise Cancelled after ``cancel()``."""
        if self._cancelled.is_set():
            raise Cancelled(_CLOSED)

    async def sleep(self, seconds: float) -> None:
        """Block for ``seconds``. Raises Cancelled as soon as the call is cancelled."""
        self._cancelled.wait(seconds)
        self.check()

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send a request and block until the response headers arrive or the call is cancelled. Raises errors of httpx.

        The caller must then call ``check()``; after that, ``cancel()`` shuts down the connection of the response.
        """
        response = self._wait_for(partial(self._client.send, request, stream=True, auth=auth))
        chunks = response.iter_bytes()
        self._response = response

        async def chunk() -> bytes:
            return next(chunks, b"")

        async def close() -> None:
            response.close()

        return Reply(response, chunk, close)

    def _wait_for(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Run ``send`` so that it can be cancelled. Raises Cancelled.

        A thread that waits for response headers cannot be woken, because the socket of a reused connection is unknown.
        Therefore a helper thread sends the request, and closes a response that arrives after cancellation. In the main
        thread, an interrupt ends the wait and closes the connection.
        """
        if threading.current_thread() is threading.main_thread():
            return send()
        head = self._head = Future[httpx.Response]()
        self.check()
        waiter = threading.Thread(
            target=copy_context().run, args=(_send_for, head, send), name="voicelab-head", daemon=True
        )
        try:
            waiter.start()
        except RuntimeError:  # Python 3.12 at interpreter shutdown
            return send()
        try:
            return head.result()
        except CancelledError:
            raise Cancelled(_CLOSED) from None
        finally:
            self._head = None
            del head  # its exception would keep this frame alive

    def cancel(self) -> None:
        """Cancel the call; present and future waits raise Cancelled. Idempotent, from any thread."""
        self._cancelled.set()
        head, response = self._head, self._response
        if head is not None:
            head.cancel()
        # The connection of a completed response may already serve another call.
        if response is None or response.is_closed:
            return
        stream = response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            # close() would not wake a thread in recv(). shutdown() of SSLSocket would discard TLS state that the
            # reader still uses, hence the method of the base class.
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _send_for(head: Future[httpx.Response], send: Callable[[], httpx.Response]) -> None:
    """Set ``head`` to the result or exception of ``send``; close the response if ``head`` was cancelled."""
    try:
        response = send()
    except BaseException as error:  # noqa: BLE001 - raised where the response is awaited
        if head.set_running_or_notify_cancel():
            head.set_exception(error)
        return
    if head.set_running_or_notify_cancel():
        head.set_result(response)
    else:
        response.close()


class AsyncTransport:
    """Transport of calls on an event loop; cancelling the waiting task closes the connection."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._client.is_closed

    def check(self) -> None:
        """Do nothing, because closing a stream wakes the task that reads it."""

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send a request and wait for the response headers. Raises errors of httpx."""
        response = await self._client.send(request, stream=True, auth=auth)
        chunks = response.aiter_bytes()

        async def chunk() -> bytes:
            return await anext(chunks, b"")

        async def close() -> None:
            # Close the iterator first; the event loop would close it only after its connection.
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
            await response.aclose()

        return Reply(response, chunk, close)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        await asyncio.sleep(seconds)


Transport = BlockingTransport | AsyncTransport
"""Transport of a call."""


def run_blocking(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: _T = stop.value
        return result
    work.close()
    raise VoicelabError("a blocking transport waited for an event loop")


_Client = TypeVar("_Client", httpx.Client, httpx.AsyncClient)

# Maximum size in bytes of a response without audio; the record of a voice model has a few KiB.
_MAX_BODY = 4 * 1024 * 1024
_PROBE_SECONDS = 3.0
# Pauses before the next probe, after one that timed out while it waited for the response or for the connection.
_PROBE_PAUSE_SECONDS = 60.0
_CONNECT_PAUSE_SECONDS = 10.0
# Environment variables that httpx reads.
_ENVIRONMENT = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")

# Errors of httpx while it reads a response.
_READ_ERRORS = (httpx.TransportError, httpx.DecodingError, httpx.StreamError)


RETRIED = frozenset({429, 502, 503, 504})
"""Statuses of requests that were not processed or may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds, None for no limit.

    Args:
        connect: To establish a connection.
        send: To send each chunk of the request.
        first_audio: From the end of the request to the response headers.
        stall: Between chunks of audio.
    """

    connect: float | None = 10.0
    send: float | None = 60.0
    first_audio: float | None = 120.0
    stall: float | None = 30.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter.

    The wait after failure ``n`` is uniform between 0 and ``base_s * 2 ** (n - 1)`` seconds, at most ``max_wait_s``.
    Retry-After is respected up to ``max_wait_s``; a longer one fails the call at once. ``attempts=1`` disables retries.
    """

    attempts: int = 3
    base_s: float = 0.5
    max_wait_s: float = 60.0  # limits of a service often count requests per minute

    def wait(self, failures: int, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait after ``failures`` failed attempts; None to stop."""
        if failures >= self.attempts or (retry_after is not None and retry_after > self.max_wait_s):
            return None
        span = min(self.max_wait_s, self.base_s * 2.0 ** (failures - 1))
        if retry_after is None:
            return random.uniform(0.0, span)
        # Wait for as long as Retry-After asks, plus jitter.
        return min(self.max_wait_s, retry_after + random.uniform(0.0, min(span, 0.25)))


def retry_after(headers: Mapping[str, str], reference_time: datetime | None = None) -> float | None:
    """Parse a Retry-After header, a number or a date, as seconds from ``reference_time`` (default: now)."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (reference_time or datetime.now(UTC))).total_seconds())


_PROBE_TIMEOUTS = Timeouts(
    connect=_PROBE_SECONDS, send=_PROBE_SECONDS, first_audio=_PROBE_SECONDS, stall=_PROBE_SECONDS
)


class Bearer(httpx.Auth):
    """Bearer authentication, which adds the key to a request when it is sent and never shows it in a repr.

    Raises RequestInvalid, without the key in its message, if the key is not valid in a header.
    """

    def __init__(self, api_key: str) -> None:
        key = api_key.strip()
        # Errors of lower layers would show the header.
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            message = "The API key must be printable ASCII without spaces, and not empty"
            raise RequestInvalid.of("authorization", message, in_="header")
        self.secret = key

    def __repr__(self) -> str:
        return "Bearer(…)"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the authorization header."""
        request.headers["authorization"] = f"Bearer {self.secret}"
        yield request


def parse_base_url(base_url: str) -> httpx.URL:
    """Parse a base URL. Raises RequestInvalid if it is invalid or may contain a secret."""
    try:
        url = httpx.URL(base_url.strip())
    except (httpx.InvalidURL, AttributeError, TypeError):
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        got = f", got {shown_value(base_url)}" if "@" not in str(base_url) else ""  # it may contain a password
        message = f"must be an address such as https://voice.example or http://127.0.0.1:8880{got}"
        raise RequestInvalid.of("base_url", message, in_="path")
    if url.userinfo or url.query or url.fragment:
        # Addresses must not contain secrets, because they are displayed and stored in takes.
        message = "The address must not have a user, password, query or fragment; pass a key as api_key"
        raise RequestInvalid.of("base_url", message, in_="path")
    return url


def is_loopback(host: str) -> bool:
    """Test for a loopback address or localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(slots=True)
class Audio:
    """A response whose first audio has arrived. ``answer`` has the response headers, and ``notes`` the notes in them."""

    answer: wire.Answer
    notes: tuple[str, ...]
    _reply: Reply
    _first_chunk: bytes
    _transport: Transport
    _stall: float | None
    _chunks: list[bytes] = field(default_factory=list)

    async def chunk(self) -> bytes:
        """Return the next chunk of audio, b"" at the end.

        Raises StreamTruncated with the partial audio, ServiceTimeout, Cancelled if the stream was closed, and ServiceError if
        the audio has no samples.
        """
        if self._first_chunk:
            chunk, self._first_chunk = self._first_chunk, b""
        else:
            try:
                chunk = await self._reply.chunk()
            except _READ_ERRORS as error:
                self._transport.check()
                raise self._truncated(error) from error
            if not chunk and is_empty_wav(b"".join(self._chunks)):
                raise wire.error_of(ServiceError, "the service sent a WAV file without samples", self.answer)
        self._chunks.append(chunk)
        return chunk

    async def close(self) -> None:
        """Release the response. If its body is incomplete, this closes the connection."""
        await self._reply.close()

    def _truncated(self, error: Exception) -> ServiceError:
        answer, partial = self.answer, b"".join(self._chunks)
        if isinstance(error, httpx.TimeoutException):
            return _stalled(answer, self._stall)
        message = f"the audio broke off after {len(partial)} bytes, which are in the error's .partial"
        return StreamTruncated(message, partial=partial, status=answer.status, request_id=answer.request_id)


def open_client(kind: Callable[..., _Client], settings: Mapping[str, Any]) -> _Client:
    """Create an httpx client. Raises RequestInvalid if proxy or certificate settings are unusable."""
    try:
        return kind(**settings)
    except (ImportError, ValueError, httpx.InvalidURL, OSError) as error:
        # Messages of other errors are omitted: they may contain the password of a proxy.
        names = [name for name in _ENVIRONMENT if os.environ.get(name) or os.environ.get(name.lower())]
        reason = f" ({error})" if isinstance(error, ImportError) else ""
        message = f"no HTTP client can be created with the settings of {', '.join(names) or 'the environment'}{reason}"
        raise RequestInvalid.of("base_url", message) from None


class Caller:
    """Client logic for one service, independent of the Transport; ``http`` has the arguments of the httpx client."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: Timeouts | float | None = None,
        retry: RetryPolicy | None = None,
        upload: wire.Upload = "msgpack",
    ) -> None:
        url = parse_base_url(base_url)
        self.base_url = str(url).rstrip("/")
        self.http: dict[str, Any] = {
            # A proxy cannot reach the loopback interface of this machine.
            "trust_env": not is_loopback(url.host),
            # Without TLS, skip the slow loading of certificates.
            "verify": url.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            "limits": httpx.Limits(max_connections=None),
        }
        if isinstance(timeout, int | float):
            timeout = Timeouts(connect=timeout, send=timeout, first_audio=timeout, stall=timeout)
        if upload not in get_args(wire.Upload):
            raise RequestInvalid.of(
                "upload", f"must be {' or '.join(map(repr, get_args(wire.Upload)))}, got {shown_value(upload)}"
            )
        self._upload = upload
        self._timeouts = timeout or Timeouts()
        self._retry = retry or RetryPolicy()
        self._auth = Bearer(api_key) if api_key is not None else None
        self._declared: Capabilities | None = None
        self._next_probe = 0.0

    async def capabilities(self, transport: Transport) -> Capabilities:
        """Return the declared capabilities. Never raises.

        Requests them from the service until it has answered once. After a timeout, it makes no further request for up to a
        minute. A service that declares no capabilities is assumed to support the interface only.
        """
        if self._declared is None and time.monotonic() >= self._next_probe:
            await self._request_capabilities(transport)
        return self._declared or wire.undeclared(self.base_url, "unknown")

    async def probe(self, call: wire.HttpCall, transport: Transport) -> wire.Answer:
        """Send a call that returns no audio, without retries and with short timeouts.

        Raises ServiceError and its subclasses.
        """
        try:
            return await self._read_answer(await self._open(call, transport, _PROBE_TIMEOUTS, auth=self._auth))
        except _FailedAttempt as failed:
            raise failed.error from failed.__cause__

    async def _request_capabilities(self, transport: Transport) -> None:
        try:
            reply = await self._open(wire.HEALTH, transport, _PROBE_TIMEOUTS, auth=None)
            self._declared = wire.capabilities_of(await self._read_answer(reply), self.base_url)
        except _FailedAttempt as failed:
            if failed.status is not None and failed.status not in RETRIED:
                self._declared = wire.undeclared(self.base_url)
            elif failed.status is None and isinstance(failed.error, ServiceTimeout):
                pause = _CONNECT_PAUSE_SECONDS if failed.unsent else _PROBE_PAUSE_SECONDS
                self._next_probe = time.monotonic() + pause

    async def create_voice(self, request: VoiceCreate, transport: Transport) -> VoiceModel:
        """Create a voice model and return its record. Raises RequestInvalid, ServiceError."""
        return wire.voice_of(await self._answer(wire.create_call(request, self._upload), transport))

    async def get_voice(self, id: str, transport: Transport) -> VoiceModel:
        """Return the record of a voice model. Raises RequestInvalid, ServiceError."""
        return wire.voice_of(await self._answer(wire.get_call(id), transport))

    async def check(self, transport: Transport) -> None:
        """Check address and key with a speech request that has no text, which the service must reject.

        Raises AuthenticationError, NotFound if the address is not a speech service, ServiceError.
        """
        try:
            answer = await self._answer(wire.CHECK, transport)
        except RequestInvalid:
            return
        message = f"{self.base_url} is not a speech service of this interface: it accepts a request without a text"
        raise ServiceError(message, status=answer.status)

    async def speak(self, call: wire.HttpCall, transport: Transport) -> Audio:
        """Request speech and wait for the first audio. Raises RequestInvalid, ServiceError."""

        async def attempt() -> Audio:
            transport.check()
            reply = await self._open(call, transport, self._timeouts, auth=self._auth)
            try:
                transport.check()
                return await self._first_audio(call, reply, transport)
            except BaseException:
                await reply.close()
                raise

        return await self._with_retries(call, transport, attempt)

    async def _first_audio(self, call: wire.HttpCall, reply: Reply, transport: Transport) -> Audio:
        answer = _answer(reply, b"")
        if not wire.is_audio(answer, call):
            raise _FailedAttempt(wire.no_audio(await self._read_answer(reply)))
        try:
            chunk = await reply.chunk()
        except httpx.TimeoutException as error:
            raise _FailedAttempt(_stalled(answer, self._timeouts.stall)) from error
        except _READ_ERRORS as error:
            message = "the connection was closed before any audio arrived"
            truncated = StreamTruncated(message, status=answer.status, request_id=answer.request_id)
            raise _FailedAttempt(truncated, unanswered=True) from error
        if not chunk or wire.is_text(chunk[:64]):
            raise _FailedAttempt(wire.no_audio(_answer(reply, chunk)))
        notes = tuple(self._redacted(note) for note in wire.notes_of(answer))
        return Audio(answer, notes, reply, chunk, transport, self._timeouts.stall)

    async def _answer(self, call: wire.HttpCall, transport: Transport) -> wire.Answer:
        async def attempt() -> wire.Answer:
            return await self._read_answer(await self._open(call, transport, self._timeouts, auth=self._auth))

        return await self._with_retries(call, transport, attempt)

    async def _with_retries(
        self, call: wire.HttpCall, transport: Transport, attempt: Callable[[], Awaitable[_T]]
    ) -> _T:
        """Run ``attempt`` and retry it according to the policy, unless part of the response was delivered."""
        failures = 0
        while True:
            try:
                return await attempt()
            except _FailedAttempt as failed:
                transport.check()
                failures += 1
                retryable = failed.unsent or (failed.unanswered and call.repeat == "undelivered")
                wait = self._retry.wait(failures, failed.retry_after) if retryable else None
                if wait is None:
                    raise failed.error from failed.__cause__
            await transport.sleep(wait)

    async def _open(
        self, call: wire.HttpCall, transport: Transport, timeouts: Timeouts, *, auth: httpx.Auth | None
    ) -> Reply:
        """Send a call and return the response with its headers. Raises _FailedAttempt."""
        # httpcore reads this dictionary at the start of each wait, so "read" can change when the headers have arrived.
        connect = timeouts.connect
        waits = {"connect": connect, "pool": connect, "read": timeouts.first_audio, "write": timeouts.send}
        # A request without the client's default headers and cookies.
        url, body = self.base_url + call.path, call.content
        request = httpx.Request(call.method, url, headers=call.headers, content=body, extensions={"timeout": waits})
        try:
            if transport.closed:
                raise _FailedAttempt(_closed())
            reply = await transport.send(request, auth)
        except httpx.ConnectTimeout as error:
            raise _FailedAttempt(ServiceTimeout(f"connecting to {self.base_url} timed out"), unsent=True) from error
        except (httpx.ConnectError, httpx.ProxyError) as error:
            raise _FailedAttempt(
                ServiceUnavailable(f"{self.base_url} cannot be reached: {error}"), unsent=True
            ) from error
        except httpx.TimeoutException as error:
            raise _FailedAttempt(ServiceTimeout(f"{self.base_url} did not answer in time")) from error
        except RuntimeError:
            # httpx raises RuntimeError if the client was closed meanwhile.
            if transport.closed:
                raise _FailedAttempt(_closed()) from None
            raise
        except httpx.TransportError as error:
            message = f"{self.base_url} closed the connection before its response"
            raise _FailedAttempt(ServiceUnavailable(message), unanswered=True) from error
        waits["read"] = timeouts.stall
        if reply.response.is_success:
            return reply
        answer = await self._read_answer(reply)
        raise _FailedAttempt(
            wire.failure(answer),
            status=answer.status,
            unanswered=answer.status in RETRIED,
            retry_after=retry_after(answer.headers),
        )

    async def _read_answer(self, reply: Reply) -> wire.Answer:
        """Read the body, up to about `_MAX_BODY` bytes. Raises _FailedAttempt."""
        chunks: list[bytes] = []
        size = 0
        try:
            while size <= _MAX_BODY and (chunk := await reply.chunk()):
                chunks.append(chunk)
                size += len(chunk)
        except _READ_ERRORS as error:
            answer = self._without_key(reply, chunks)
            truncated = wire.error_of(ServiceUnavailable, f"the response of {self.base_url} was truncated", answer)
            raise _FailedAttempt(truncated, unanswered=True) from error
        finally:
            await reply.close()
        return self._without_key(reply, chunks)

    def _without_key(self, reply: Reply, chunks: list[bytes]) -> wire.Answer:
        """Build the response, with the key redacted if the service echoes it."""
        body = b"".join(chunks)
        return _answer(reply, body.replace(self._auth.secret.encode(), b"***") if self._auth is not None else body)

    def _redacted(self, text: str) -> str:
        return text.replace(self._auth.secret, "***") if self._auth is not None else text


@dataclass(eq=False)
class _FailedAttempt(Exception):
    """A failed attempt: the error to raise, and the facts that decide whether to retry."""

    error: VoicelabError
    status: int | None = None
    unsent: bool = False
    unanswered: bool = False
    retry_after: float | None = None


def _answer(reply: Reply, body: bytes) -> wire.Answer:
    return wire.Answer(reply.response.status_code, reply.response.headers, body)


def _closed() -> ServiceError:
    return ServiceError("this backend is closed")


def _stalled(answer: wire.Answer, seconds: float | None) -> ServiceTimeout:
    message = f"no audio arrived for {seconds:g} s"
    return ServiceTimeout(message, status=answer.status, request_id=answer.request_id)
