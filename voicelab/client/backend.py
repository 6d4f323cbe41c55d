"""ServiceBackend: any service of the interface as a Backend, over one pool of HTTP connections."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self, TypeVar

import httpx

from voicelab.backend import Capabilities, SpeechStream, check_seed
from voicelab.client import wire
from voicelab.client.line import Line
from voicelab.client.retry import RETRIED, RetryPolicy, retry_after
from voicelab.errors import (
    RequestInvalid,
    ServiceError,
    ServiceTimeout,
    ServiceUnavailable,
    StreamTruncated,
    VoicelabError,
)
from voicelab.schema import DEFAULT_MODEL, Model, TTSRequest, VoiceCreate, VoiceModel

__all__ = ["ServiceBackend", "Timeouts"]

_T = TypeVar("_T")

# Of an answer that is no audio; a voice model record has a few KiB.
_LONGEST_ANSWER = 4 * 1024 * 1024
_PROBE_SECONDS = 3.0

# What httpx raises when an answer cannot be read to its end.
_BROKEN = (httpx.TransportError, httpx.DecodingError, httpx.StreamError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds to wait, None for ever.

    ``connect`` for a connection; ``send`` for each piece of the request to leave; ``first_audio`` from
    there until the service begins to answer; ``stall`` for more audio after what came before.
    """

    connect: float | None = 10.0
    send: float | None = 60.0
    first_audio: float | None = 120.0
    stall: float | None = 30.0


class ServiceBackend:
    """Speaks through a service at ``base_url``, such as ``https://voice.example``.

    ``api_key`` is sent as the bearer credential and shown nowhere; without one the service decides.
    ``timeout`` is a Timeouts, or seconds for each of its waits. Calls that delivered nothing are
    repeated as ``retry`` says. Safe to use from several threads; ``close()`` when done.

    A service of ours declares itself at ``/health``, which is asked once; of any other one only the
    interface is assumed, and its Capabilities say that it takes no seed. Nothing is sent until the
    first call. Raises RequestInvalid for an address or a key that HTTP cannot carry.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: Timeouts | float | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        url = _checked_url(base_url)
        self.base_url = str(url).rstrip("/")
        if isinstance(timeout, int | float):
            timeout = Timeouts(connect=timeout, send=timeout, first_audio=timeout, stall=timeout)
        self._timeouts = timeout or Timeouts()
        self._retry = retry or RetryPolicy()
        self._auth = _Bearer(_checked_key(api_key)) if api_key is not None else None
        self._lock = threading.Lock()
        self._capabilities: Capabilities | None = None
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self._lines_lock = threading.Lock()
        # A proxy of the environment cannot reach this machine's own loopback.
        self._client = httpx.Client(trust_env=not _is_loopback(url.host), limits=httpx.Limits(max_connections=None))

    def __repr__(self) -> str:
        return f"ServiceBackend({self.base_url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; who still reads a stream gets Cancelled. May be called twice."""
        with self._lines_lock:
            running = list(self._lines)
        for line in running:
            line.cut()
        self._client.close()

    @property
    def capabilities(self) -> Capabilities:
        """What the service declares about itself; the first look asks it, and never fails."""
        with self._lock:
            if self._capabilities is not None:
                return self._capabilities
            short = Timeouts(connect=_PROBE_SECONDS, send=_PROBE_SECONDS, first_audio=_PROBE_SECONDS)
            try:
                # Without the key: this concerns anybody.
                response = self._open(wire.HEALTH, short, auth=None)
                told = wire.capabilities_of(self._whole(response), self.base_url)
            except _Failed as failed:
                told = wire.remote(self.base_url)
                if failed.status is None:
                    return told  # not reached; it may be there the next time
            self._capabilities = told
            return told

    def synthesize(self, request: TTSRequest, *, model: Model = DEFAULT_MODEL, seed: int | None = None) -> SpeechStream:
        """Return the audio as it will arrive; the request is sent when the stream is first read.

        Raises RequestInvalid for a seed that the service does not take. The stream raises RequestInvalid
        with the service's own fields, ServiceError and its kinds, StreamTruncated with what did arrive
        when the connection ends early, Cancelled when it was closed.
        """
        started = time.perf_counter()
        capabilities = self.capabilities
        seed = check_seed(seed, capabilities)
        call = wire.speech_call(request, model, seed)
        line = Line()
        with self._lines_lock:
            self._lines.add(line)

        def told(answer: wire.Answer) -> None:
            # A seed that the service drew itself belongs into the clip's provenance.
            stream = weak()
            if stream is not None and stream.seed is None:
                stream.seed = wire.seed_of(answer)

        stream = SpeechStream(
            self._audio(call, line, told),
            request=request,
            model=model,
            backend=capabilities,
            seed=seed,
            on_close=line.cut,
            started=started,
        )
        # Weak, so that a stream that nobody holds any more ends at once.
        weak = weakref.ref(stream)
        return stream

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Make a voice model with ``POST /model``. Raises RequestInvalid, ServiceError and its kinds.

        It is not repeated once it may have arrived, so that no voice is made twice.
        """
        return self._record(wire.create_call(request))

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record with ``GET /model/{id}``.

        Raises NotFound when it is unknown or private to another caller, ServiceError and its kinds.
        """
        return self._record(wire.get_call(id))

    def _record(self, call: wire.Call) -> VoiceModel:
        def once() -> wire.Answer:
            return self._whole(self._open(call, self._timeouts, auth=self._auth))

        return wire.voice_of(self._tried(call, Line(), once))

    def _audio(self, call: wire.Call, line: Line, told: Callable[[wire.Answer], None]) -> Generator[bytes, None, None]:
        def once() -> tuple[httpx.Response, Iterator[bytes], bytes]:
            line.check()
            response = self._open(call, self._timeouts, auth=self._auth)
            try:
                line.hold(response)
                return response, *self._begun(response)
            except BaseException:
                response.close()
                raise

        response, chunks, first = self._tried(call, line, once)
        # Closing in mid-stream closes the connection, which tells the service that we have left.
        with closing(response):
            told(_answer(response, b""))
            arrived = [first]
            yield first
            try:
                for chunk in chunks:
                    arrived.append(chunk)
                    yield chunk
            except _BROKEN as error:
                line.check()
                raise self._broken(response, arrived, error) from error
            finally:
                line.release()

    def _begun(self, response: httpx.Response) -> tuple[Iterator[bytes], bytes]:
        """Return the rest of the audio and its first chunk, which is there. Raises _Failed."""
        answer = _answer(response, b"")
        try:
            wire.check_audio(answer)
        except ServiceError as error:
            raise _Failed(error) from None
        chunks = response.iter_bytes()
        try:
            first = next((chunk for chunk in chunks if chunk), b"")
        except httpx.TimeoutException as error:
            raise _Failed(self._stalled(answer)) from error
        except _BROKEN as error:
            broken = StreamTruncated(
                "the service broke off before any audio", status=answer.status, request_id=answer.request_id
            )
            raise _Failed(broken, unanswered=True) from error
        if not first:
            raise _Failed(ServiceError("the service gave no audio", status=answer.status, request_id=answer.request_id))
        return chunks, first

    def _broken(self, response: httpx.Response, arrived: list[bytes], error: Exception) -> ServiceError:
        answer = _answer(response, b"")
        if isinstance(error, httpx.TimeoutException):
            return self._stalled(answer)
        partial = b"".join(arrived)
        message = f"the audio broke off after {len(partial)} bytes; the error's .partial holds them"
        return StreamTruncated(message, partial=partial, status=answer.status, request_id=answer.request_id)

    def _stalled(self, answer: wire.Answer) -> ServiceTimeout:
        message = f"no more audio came for {self._timeouts.stall:g} s"
        return ServiceTimeout(message, status=answer.status, request_id=answer.request_id)

    def _tried(self, call: wire.Call, line: Line, once: Callable[[], _T]) -> _T:
        """Return what ``once`` does, tried again as the policy allows while nothing was delivered."""
        failures = 0
        while True:
            try:
                return once()
            except _Failed as failed:
                line.check()
                failures += 1
                again = failed.unsent or (failed.unanswered and call.repeat == "undelivered")
                wait = self._retry.wait(failures, failed.told) if again else None
                if wait is None:
                    raise failed.error from failed.__cause__
            line.wait(wait)

    def _open(self, call: wire.Call, timeouts: Timeouts, *, auth: httpx.Auth | None) -> httpx.Response:
        """Send a call and return its answer, of which only the head is read. Raises _Failed."""
        if self._client.is_closed:
            raise _Failed(ServiceError("this ServiceBackend is closed"))
        # The transport looks into this very dictionary before each wait.
        waits = {
            "connect": timeouts.connect,
            "pool": timeouts.connect,
            "read": timeouts.first_audio,
            "write": timeouts.send,
        }
        # Without the client's own headers and cookies: a call says all that it needs.
        request = httpx.Request(
            call.method,
            self.base_url + call.path,
            headers=call.headers,
            content=call.content,
            extensions={"timeout": waits},
        )
        try:
            response = self._client.send(request, stream=True, auth=auth)
        except httpx.ConnectTimeout as error:
            raise _Failed(ServiceTimeout(f"{self.base_url} cannot be reached in time"), unsent=True) from error
        except (httpx.ConnectError, httpx.ProxyError) as error:
            raise _Failed(ServiceUnavailable(f"{self.base_url} cannot be reached: {error}"), unsent=True) from error
        except httpx.TimeoutException as error:
            raise _Failed(ServiceTimeout(f"{self.base_url} did not answer in time")) from error
        except httpx.TransportError as error:
            message = f"{self.base_url} broke the connection off before it answered"
            raise _Failed(ServiceUnavailable(message), unanswered=True) from error
        waits["read"] = timeouts.stall
        if response.is_success:
            return response
        answer = self._whole(response)
        secret = self._auth.secret if self._auth is not None else None
        raise _Failed(
            wire.failure(answer, secret),
            status=answer.status,
            unanswered=answer.status in RETRIED,
            told=retry_after(answer.headers),
        )

    def _whole(self, response: httpx.Response) -> wire.Answer:
        """Return an answer with its body, or as much of it as anybody needs. Raises _Failed."""
        parts: list[bytes] = []
        size = 0
        try:
            with closing(response):
                for part in response.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > _LONGEST_ANSWER:
                        break
        except _BROKEN as error:
            broken = ServiceUnavailable(
                f"the answer of {self.base_url} broke off", status=response.status_code, body=b"".join(parts)
            )
            raise _Failed(broken, unanswered=True) from error
        return _answer(response, b"".join(parts))


class _Failed(Exception):
    """A try that failed: what it means, and whether another one is thinkable. Stays in this module."""

    def __init__(
        self,
        error: VoicelabError,
        *,
        status: int | None = None,
        unsent: bool = False,
        unanswered: bool = False,
        told: float | None = None,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.status = status
        self.unsent = unsent
        self.unanswered = unanswered
        self.told = told


class _Bearer(httpx.Auth):
    """Adds the key to a request as late as can be, and keeps it out of every repr."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return "_Bearer(…)"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["authorization"] = f"Bearer {self.secret}"
        yield request


def _answer(response: httpx.Response, body: bytes) -> wire.Answer:
    return wire.Answer(response.status_code, response.headers, body)


def _checked_url(base_url: str) -> httpx.URL:
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


def _checked_key(api_key: str) -> str:
    key = api_key.strip()
    # Checked here, because the errors of the layers below repeat the header.
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        message = "The API key is empty, or has characters that no key has"
        raise RequestInvalid.of("authorization", message, in_="header")
    return key


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
