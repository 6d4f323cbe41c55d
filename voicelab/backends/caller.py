"""What becomes of a call, over either transport: address and key, waits, retries, and what each failure means.

Nothing here blocks or knows an event loop; a Transport does the waiting. So ServiceBackend and
AsyncServiceBackend are the same client twice, not two that resemble each other.
"""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, TypeVar, get_args

import httpx

from voicelab.backends import wire
from voicelab.backends.transport import Reply, Transport
from voicelab.capabilities import Capabilities
from voicelab.errors import (
    RequestInvalid,
    ServiceError,
    ServiceTimeout,
    ServiceUnavailable,
    StreamTruncated,
    VoicelabError,
)
from voicelab.schema import VoiceCreate, VoiceModel

_T = TypeVar("_T")
_Client = TypeVar("_Client", httpx.Client, httpx.AsyncClient)

# Of an answer that is no audio; a voice model record has a few KiB.
_LONGEST_ANSWER = 4 * 1024 * 1024
_PROBE_SECONDS = 3.0
# A service that lets the probe hang is not asked again before this has passed.
_PROBE_PAUSE_SECONDS = 60.0
# The same for an address that swallows it: there may be a service soon.
_ABSENT_PAUSE_SECONDS = 10.0
# What httpx reads of the environment.
_ENVIRONMENT = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")

# What httpx raises when an answer cannot be read to its end.
_BROKEN = (httpx.TransportError, httpx.DecodingError, httpx.StreamError)


RETRIED = frozenset({429, 502, 503, 504})
"""Statuses that say the request was not worked on, or that another try may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds to wait, None for ever.

    ``connect`` for a connection; ``send`` for each piece of the request to leave; ``first_audio`` from
    there until the service begins to answer; ``stall`` for more audio after that.
    """

    connect: float | None = 10.0
    send: float | None = 60.0
    first_audio: float | None = 120.0
    stall: float | None = 30.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is tried, and how long is waited in between.

    The wait before try ``n`` is random between 0 and ``base_s * 2 ** (n - 1)`` seconds, at most
    ``longest_s``: callers that failed together do not come back together. A service that says when
    (Retry-After) is believed up to ``longest_s``; if it says longer, the call fails at once.
    ``attempts`` 1 never tries again.
    """

    attempts: int = 3
    base_s: float = 0.5
    longest_s: float = 20.0

    def wait(self, failures: int, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait after ``failures`` failed tries; None to give up."""
        if failures >= self.attempts or (retry_after is not None and retry_after > self.longest_s):
            return None
        span = min(self.longest_s, self.base_s * 2.0 ** (failures - 1))
        if retry_after is None:
            return random.uniform(0.0, span)
        # Never earlier than the service says, and not all at the same moment.
        return min(self.longest_s, retry_after + random.uniform(0.0, min(span, 0.25)))


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or a date; None without one."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


_SHORT = Timeouts(connect=_PROBE_SECONDS, send=_PROBE_SECONDS, first_audio=_PROBE_SECONDS, stall=_PROBE_SECONDS)


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


def parse_base_url(base_url: str) -> httpx.URL:
    """Return an address as a URL. Raises RequestInvalid for what is none, or has a secret in it."""
    try:
        url = httpx.URL(base_url.strip())
    except (httpx.InvalidURL, AttributeError, TypeError):
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise RequestInvalid.of("base_url", "Input should be an address such as https://voice.example", in_="path")
    if url.userinfo or url.query or url.fragment:
        # Addresses are shown and written into takes; what is secret in one would be too.
        message = "The address must be without user, password, query and fragment; a key is passed as api_key"
        raise RequestInvalid.of("base_url", message, in_="path")
    return url


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(slots=True)
class Audio:
    """An answer that has begun to speak. ``answer`` is its head, ``notes`` what that notes of the speech."""

    answer: wire.Answer
    notes: tuple[str, ...]
    _reply: Reply
    _first: bytes
    _transport: Transport
    _stall: float | None
    _parts: list[bytes] = field(default_factory=list)

    async def chunk(self) -> bytes:
        """Return more audio, b"" at its end.

        Raises StreamTruncated with what did arrive, ServiceTimeout, Cancelled when the stream was closed.
        """
        if self._first:
            chunk, self._first = self._first, b""
        else:
            try:
                chunk = await self._reply.chunk()
            except _BROKEN as error:
                self._transport.check()
                raise self._broken(error) from error
        self._parts.append(chunk)
        return chunk

    async def close(self) -> None:
        """Let go of the answer; in mid-audio the service notices."""
        await self._reply.close()

    def _broken(self, error: Exception) -> ServiceError:
        answer, partial = self.answer, b"".join(self._parts)
        if isinstance(error, httpx.TimeoutException):
            return _stalled(answer, self._stall)
        message = f"the audio broke off after {len(partial)} bytes; the error's .partial holds them"
        return StreamTruncated(message, partial=partial, status=answer.status, request_id=answer.request_id)


def open_client(kind: Callable[..., _Client], settings: Mapping[str, Any]) -> _Client:
    """Return a client of httpx. Raises RequestInvalid where the environment names proxies or certificates that do not do."""
    try:
        return kind(**settings)
    except (ImportError, ValueError, httpx.InvalidURL, OSError) as error:
        # The address of a proxy may hold a password, and the error the address.
        names = [name for name in _ENVIRONMENT if os.environ.get(name) or os.environ.get(name.lower())]
        why = f" ({error})" if isinstance(error, ImportError) else ""
        where = ", ".join(names) or "its settings"
        message = f"it cannot be called with what the environment says in {where}{why}"
        raise RequestInvalid.of("base_url", message) from None


class Caller:
    """Makes the calls of one service. ``http`` is how httpx is to be set up for it, in either of its forms."""

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
            # A proxy of the environment cannot reach this machine's own loopback.
            "trust_env": not is_loopback(url.host),
            # Certificates take longer to load than many calls take; without TLS nobody is asked for any.
            "verify": url.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            "limits": httpx.Limits(max_connections=None),
        }
        if isinstance(timeout, int | float):
            timeout = Timeouts(connect=timeout, send=timeout, first_audio=timeout, stall=timeout)
        if upload not in get_args(wire.Upload):
            raise RequestInvalid.of("upload", f"Input should be {' or '.join(get_args(wire.Upload))}")
        self._upload = upload
        self._timeouts = timeout or Timeouts()
        self._retry = retry or RetryPolicy()
        self._auth = Bearer(api_key) if api_key is not None else None
        self._declared: Capabilities | None = None
        self._quiet_until = 0.0

    async def capabilities(self, transport: Transport) -> Capabilities:
        """Return what the service declares; it is asked when it has not answered yet. Never fails.

        A service that declares nothing is assumed to be of the interface and no more.
        """
        if self._declared is None and time.monotonic() >= self._quiet_until:
            await self._ask(transport)
        return self._declared or wire.undeclared(self.base_url, "unknown")

    async def probe(self, call: wire.HttpCall, transport: Transport) -> wire.Answer:
        """Return the answer to a call that has no audio, tried once, with short waits. Raises ServiceError and its kinds."""
        try:
            return await self._read_answer(await self._open(call, transport, _SHORT, auth=self._auth))
        except _Failed as failed:
            raise failed.error from failed.__cause__

    async def _ask(self, transport: Transport) -> None:
        try:
            # Without the key: everybody may ask this.
            reply = await self._open(wire.HEALTH, transport, _SHORT, auth=None)
            self._declared = wire.capabilities_of(await self._read_answer(reply), self.base_url)
        except _Failed as failed:
            if failed.status is not None and failed.status not in RETRIED:
                self._declared = wire.undeclared(self.base_url)
            elif failed.status is None and isinstance(failed.error, ServiceTimeout):
                pause = _ABSENT_PAUSE_SECONDS if failed.unsent else _PROBE_PAUSE_SECONDS
                self._quiet_until = time.monotonic() + pause
            # Otherwise it was not reached; it may be there the next time.

    async def create_voice(self, request: VoiceCreate, transport: Transport) -> VoiceModel:
        """Make a voice model and return its record. Raises RequestInvalid, ServiceError."""
        return wire.voice_of(await self._answer(wire.create_call(request, self._upload), transport))

    async def get_voice(self, id: str, transport: Transport) -> VoiceModel:
        """Return the record of a voice model. Raises RequestInvalid, ServiceError."""
        return wire.voice_of(await self._answer(wire.get_call(id), transport))

    async def check(self, transport: Transport) -> None:
        """Ask for speech without a text, which a service refuses.

        Raises AuthenticationError, NotFound where there is no such service, ServiceError.
        """
        try:
            answer = await self._answer(wire.CHECK, transport)
        except RequestInvalid:
            return
        message = f"{self.base_url} is no service of the interface: it takes speech without a text"
        raise ServiceError(message, status=answer.status)

    async def speak(self, call: wire.HttpCall, transport: Transport) -> Audio:
        """Return the answer to a call for speech once its first audio is there. Raises RequestInvalid, ServiceError."""

        async def once() -> Audio:
            transport.check()
            reply = await self._open(call, transport, self._timeouts, auth=self._auth)
            try:
                transport.check()
                return await self._first_audio(call, reply, transport)
            except BaseException:
                await reply.close()
                raise

        return await self._with_retries(call, transport, once)

    async def _first_audio(self, call: wire.HttpCall, reply: Reply, transport: Transport) -> Audio:
        head = _answer(reply, b"")
        if not wire.is_audio(head, call):
            raise _Failed(wire.no_audio(await self._read_answer(reply)))
        try:
            first = await reply.chunk()
        except httpx.TimeoutException as error:
            raise _Failed(_stalled(head, self._timeouts.stall)) from error
        except _BROKEN as error:
            message = "the service broke off before any audio"
            broken = StreamTruncated(message, status=head.status, request_id=head.request_id)
            raise _Failed(broken, unanswered=True) from error
        if not first:
            raise _Failed(wire.no_audio(head))
        notes = tuple(self._redacted(note) for note in wire.notes_of(head))
        return Audio(head, notes, reply, first, transport, self._timeouts.stall)

    async def _answer(self, call: wire.HttpCall, transport: Transport) -> wire.Answer:
        async def once() -> wire.Answer:
            return await self._read_answer(await self._open(call, transport, self._timeouts, auth=self._auth))

        return await self._with_retries(call, transport, once)

    async def _with_retries(self, call: wire.HttpCall, transport: Transport, once: Callable[[], Awaitable[_T]]) -> _T:
        """Return what ``once`` does, tried again as the policy allows while nothing was delivered."""
        failures = 0
        while True:
            try:
                return await once()
            except _Failed as failed:
                transport.check()
                failures += 1
                again = failed.unsent or (failed.unanswered and call.repeat == "undelivered")
                wait = self._retry.wait(failures, failed.retry_after) if again else None
                if wait is None:
                    raise failed.error from failed.__cause__
            await transport.sleep(wait)

    async def _open(
        self, call: wire.HttpCall, transport: Transport, timeouts: Timeouts, *, auth: httpx.Auth | None
    ) -> Reply:
        """Send a call and return its answer, of which only the head is read. Raises _Failed."""
        # The layers below look into this very dictionary when they begin to wait.
        connect = timeouts.connect
        waits = {"connect": connect, "pool": connect, "read": timeouts.first_audio, "write": timeouts.send}
        # Without the client's own headers and cookies: a call says all that it needs.
        url, body = self.base_url + call.path, call.content
        request = httpx.Request(call.method, url, headers=call.headers, content=body, extensions={"timeout": waits})
        try:
            if transport.closed:
                raise _Failed(_closed())
            reply = await transport.send(request, auth)
        except httpx.ConnectTimeout as error:
            raise _Failed(ServiceTimeout(f"{self.base_url} cannot be reached in time"), unsent=True) from error
        except (httpx.ConnectError, httpx.ProxyError) as error:
            raise _Failed(ServiceUnavailable(f"{self.base_url} cannot be reached: {error}"), unsent=True) from error
        except httpx.TimeoutException as error:
            raise _Failed(ServiceTimeout(f"{self.base_url} did not answer in time")) from error
        except RuntimeError:
            # httpx's word for a client that was closed meanwhile.
            if transport.closed:
                raise _Failed(_closed()) from None
            raise
        except httpx.TransportError as error:
            message = f"{self.base_url} broke the connection off before it answered"
            raise _Failed(ServiceUnavailable(message), unanswered=True) from error
        waits["read"] = timeouts.stall
        if reply.response.is_success:
            return reply
        answer = await self._read_answer(reply)
        raise _Failed(
            wire.failure(answer),
            status=answer.status,
            unanswered=answer.status in RETRIED,
            retry_after=retry_after(answer.headers),
        )

    async def _read_answer(self, reply: Reply) -> wire.Answer:
        """Return an answer with its body, or as much of it as anybody needs. Raises _Failed."""
        parts: list[bytes] = []
        size = 0
        try:
            while size <= _LONGEST_ANSWER and (part := await reply.chunk()):
                parts.append(part)
                size += len(part)
        except _BROKEN as error:
            answer = self._without_key(reply, parts)
            broken = wire.error_of(ServiceUnavailable, f"the answer of {self.base_url} broke off", answer)
            raise _Failed(broken, unanswered=True) from error
        finally:
            await reply.close()
        return self._without_key(reply, parts)

    def _without_key(self, reply: Reply, parts: list[bytes]) -> wire.Answer:
        """Return an answer; should the service repeat the key, it is cut out."""
        body = b"".join(parts)
        return _answer(reply, body.replace(self._auth.secret.encode(), b"***") if self._auth is not None else body)

    def _redacted(self, text: str) -> str:
        return text.replace(self._auth.secret, "***") if self._auth is not None else text


@dataclass(eq=False)
class _Failed(Exception):
    """A try that failed: what it means, and whether another one is thinkable. Stays in this module."""

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
    message = f"no more audio came for {seconds:g} s"
    return ServiceTimeout(message, status=answer.status, request_id=answer.request_id)
