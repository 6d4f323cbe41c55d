"""ASGI application: the endpoints of the interface, OpenAI's speech API, ``/health`` and ``/openapi.json``."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voicelab.backend import Backend, VoiceHost
from voicelab.call import MAX_SEED, Call
from voicelab.capabilities import Capabilities, check_call, check_text_length
from voicelab.errors import Cancelled, FieldError, NotFound, PaymentRequired, RequestInvalid, StoreError, shown_value
from voicelab.schema import DEFAULT_MODEL, MEDIA_TYPES, Model, TTSRequest, VoiceCreate, VoiceModel, check_model
from voicelab.service.admission import Admission
from voicelab.service.concurrency import FairQueue, run_in_executor
from voicelab.service.keys import ApiKey, KeyStore
from voicelab.service.limits import Limits
from voicelab.service.openai import (
    MODELS,
    SPEECH,
    VOICES,
    asks_for_events,
    models_answer,
    openai_call,
    voices_answer,
)
from voicelab.service.openapi import OPERATIONS, SEED_HEADER, document, documentation
from voicelab.service.record import RECORD, RequestRecord, loggable
from voicelab.service.requests import (
    BodyKind,
    bearer_secret,
    body_kind,
    decode_body,
    form_fields,
    ignored_fields,
    media_type,
    read_body,
    read_form,
)
from voicelab.service.responses import HANDLERS, BackendFailure, json_response, refusal
from voicelab.service.speech import SpeechResponse, cost, delivered_cost
from voicelab.voices.intake import image_kind

_LOG = logging.getLogger("voicelab.service")

_SEED = re.compile("[0-9]{1,19}", re.ASCII)

_T = TypeVar("_T")


def create_app(
    backend: Backend, keys: KeyStore, *, limits: Limits | None = None, openai: bool = False
) -> ServiceMiddleware:
    """Create the ASGI application that serves ``backend`` to holders of ``keys``; the caller closes both.

    Errors follow part 7 of the interface. With ``openai``, the application also serves OpenAI's speech API.
    """
    service = _Service(backend, keys, limits or Limits())
    routes = [Route(item.path, getattr(service, item.name), methods=[item.method.upper()]) for item in OPERATIONS]
    routes += [Route(path, service.page) for path in ("/", "/docs")]
    if openai:
        routes += [
            Route(SPEECH, service.openai_speech, methods=["POST"]),
            Route(MODELS, service.openai_models),
            Route(MODELS + "/{id:path}", service.openai_models),
            Route(VOICES, service.openai_voices),
        ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS, lifespan=service.lifespan)
    # A path with a trailing slash gives status 404, as the interface specifies. A redirect would make clients send the
    # body and the key again.
    app.router.redirect_slashes = False
    patterns = {route.endpoint: route.path for route in routes}
    return ServiceMiddleware(app, service.queue, patterns, (SPEECH, MODELS, VOICES) if openai else ())


class _Service:
    """Endpoints of the service; the methods are named as in OPERATIONS."""

    def __init__(self, backend: Backend, keys: KeyStore, limits: Limits) -> None:
        self._backend = backend
        self._keys = keys
        self._limits = limits
        self._document = document(self._capabilities)
        # The thread pools are separate, so that look-ups of keys do not wait for synthesis, and synthesis does not wait
        # for the intake of recordings.
        self._helpers = ThreadPoolExecutor(4, "voicelab-helper")
        self._intake = ThreadPoolExecutor(2, "voicelab-intake")
        self._uploads = asyncio.Semaphore(limits.uploads)
        self.queue = FairQueue(limits.active, limits.waiting, limits.waiting_seconds)
        self._admission = Admission(keys, self._helpers, self.queue, limits)
        self._voices = ThreadPoolExecutor(limits.active, "voicelab-voice")
        self._respond = partial(SpeechResponse, self.queue, self._voices, self._helpers, limits)

    @property
    def _capabilities(self) -> Capabilities:
        """The backend's capabilities, with the service's limit on text length."""
        declared, limit = self._backend.capabilities, self._limits.text
        return declared if limit is None else replace(declared, max_text=min(limit, declared.max_text or limit))

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._voices.shutdown(wait=False, cancel_futures=True)
            self._intake.shutdown(wait=False, cancel_futures=True)
            self._helpers.shutdown(wait=False)

    async def health(self, _: Request) -> Response:
        """Answer ``GET /health`` with the backend's capabilities, without authentication."""
        capabilities = self._capabilities
        # List the models that the header "model" accepts. Omit backend parameters, which the interface does not define.
        declared = asdict(capabilities) | {"models": capabilities.wire_models}
        del declared["knobs"]
        return json_response({"status": "ready", "backend": declared})

    async def describe(self, _: Request) -> Response:
        """Answer ``GET /openapi.json``, without authentication."""
        return json_response(self._document)

    async def page(self, _: Request) -> Response:
        """Answer ``GET /`` and ``GET /docs`` with the documentation as a page, without authentication."""
        return HTMLResponse(documentation(self._document))

    async def speech(self, request: Request) -> Response:
        """Answer ``POST /v1/tts``: authenticate, reserve credit, validate, synthesize."""
        return await self._speak(request, self._interface_call)

    async def openai_speech(self, request: Request) -> Response:
        """Answer a speech request of OpenAI's API, in the same steps as ``speech``."""
        return await self._speak(request, self._openai_call)

    async def openai_models(self, request: Request) -> Response:
        """List the backend's models, or describe one of them."""
        await self._admission.authenticate(bearer_secret(request))
        return models_answer(self._capabilities, request.path_params.get("id"))

    async def openai_voices(self, request: Request) -> Response:
        """List the presets and the caller's stored voices."""
        caller = caller_of(self._backend, await self._admission.authenticate(bearer_secret(request)))
        return await run_in_executor(self._helpers, voices_answer, caller)

    async def create(self, request: Request) -> Response:
        """Answer ``POST /model`` with status 201 and the record."""
        if self._uploads.locked():
            raise HTTPException(503, _BUSY, {"retry-after": "5"})
        key = await self._admission.authenticate(bearer_secret(request))
        self._admission.count(key)
        kind = media_type(request)
        if kind not in {"multipart/form-data", "application/msgpack"}:
            raise HTTPException(415, "The content type must be multipart/form-data or application/msgpack")
        if not isinstance(self._backend, VoiceHost):
            raise HTTPException(501, "The backend of this service does not support voice models")
        if self._uploads.locked():
            raise HTTPException(503, _BUSY, {"retry-after": "5"})
        async with self._uploads:
            voices, size = await run_in_executor(self._helpers, self._backend.acting_for(key.owner).usage)
            self._admission.check_voices(key, voices, size)
            return await self._create(request, key, form=kind == "multipart/form-data")

    async def get(self, request: Request) -> Response:
        """Answer ``GET /model/{id}``."""
        return json_response(_wire(await self._read(request, self._record), request))

    async def cover(self, request: Request) -> Response:
        """Answer ``GET /model/{id}/cover`` with the image, if the caller has access to the record."""
        data = await self._read(request, partial(self._file, number=None))
        return Response(data, 200, _FILE_HEADERS, media_type=f"image/{image_kind(data)}")

    async def sample(self, request: Request) -> Response:
        """Answer ``GET /model/{id}/samples/{number}`` with the recording, if the caller has access to the record."""
        number = request.path_params["number"]
        index = int(number) if _NUMBER.fullmatch(number) else -1
        data = await self._read(request, partial(self._file, number=index))
        return Response(data, 200, _FILE_HEADERS, media_type=MEDIA_TYPES["wav"])

    async def _speak(
        self, request: Request, read: Callable[[Request, object, BodyKind, list[FieldError]], Call]
    ) -> Response:
        key, arrival = await self._admission.admit(bearer_secret(request))
        if key.credit == 0:
            raise PaymentRequired("This API key has no credit left", status=402)
        kind = body_kind(request)
        body = await read_body(request, self._limits.body, self._limits.body_seconds)
        wire: object = None
        malformed: list[FieldError] = []
        with _collected(malformed):
            wire = await decode_body(self._helpers, body, kind)
        if key.credit is not None and cost(wire) > key.credit:
            raise PaymentRequired(f"The text is longer than this API key's credit of {key.credit} characters")
        call = check_call(read(request, wire, kind, malformed), self._capabilities)
        speech = call.request
        record = RECORD.get()
        record.characters, record.text = len(speech.text), speech.text
        counted = await self._admission.reserve(key, len(speech.text))
        return self._respond(
            speech,
            partial(caller_of(self._backend, key).synthesize, call),
            arrival=arrival,
            settle=partial(self._settle, key, speech, counted),
            events=request.url.path == SPEECH and asks_for_events(wire),
            notes=ignored_fields(wire) if read == self._interface_call else (),
        )

    def _interface_call(self, request: Request, wire: object, kind: BodyKind, malformed: list[FieldError]) -> Call:
        model: Model = DEFAULT_MODEL
        seed: int | None = None
        speech: TTSRequest | None = None
        # The response lists the errors of headers and body together.
        errors: list[FieldError] = []
        with _collected(errors):
            model = _model(request, self._capabilities)
        with _collected(errors):
            seed = _seed(request, self._capabilities)
        errors += malformed
        with _collected(errors):
            speech = None if malformed else self._validate(wire, kind == "msgpack")
        if speech is None or errors:
            raise RequestInvalid(errors)
        return Call(speech, model, seed)

    def _openai_call(self, _: Request, wire: object, __: BodyKind, malformed: list[FieldError]) -> Call:
        if malformed:
            raise RequestInvalid(malformed)
        call = openai_call(wire, self._capabilities)
        check_text_length(call.request, self._capabilities.max_text)
        return call

    def _validate(self, wire: object, binary: bool) -> TTSRequest:
        speech = TTSRequest.from_wire(wire, binary=binary)
        check_text_length(speech, self._capabilities.max_text)
        check_call(Call(speech), self._capabilities)
        return speech

    async def _settle(self, key: ApiKey, speech: TTSRequest, counted: bool, sent: int, complete: bool) -> None:
        charged = len(speech.text) if complete else delivered_cost(speech, sent)
        RECORD.get().charged = charged
        refund = len(speech.text) - charged
        if not counted or not refund:
            return
        for retries in (2, 1, 0):
            try:
                await run_in_executor(self._helpers, self._keys.refund, key, refund)
                return
            except StoreError:
                if not retries:
                    _LOG.exception("the refund of %d characters to the key %s failed", refund, key.prefix)

    async def _read(self, request: Request, read: Callable[[ApiKey, str], _T]) -> _T:
        key = await self._admission.authenticate(bearer_secret(request))
        try:
            return await run_in_executor(self._helpers, read, key, request.path_params["id"])
        except NotFound:
            raise
        except Exception as error:
            raise BackendFailure from error

    async def _create(self, request: Request, key: ApiKey, *, form: bool) -> Response:
        limits = self._limits
        # The voice is stored after the complete body has arrived, so that a truncated upload stores nothing.
        if form:
            parts = await read_form(request, limits.upload, limits.upload_file, limits.upload_seconds)
            wire: object = form_fields(parts)
        else:
            body = await read_body(request, limits.upload, limits.upload_seconds)
            wire = await decode_body(self._intake, body, "msgpack")
            _check_files(wire, limits.upload_file)
        creating = VoiceCreate.from_wire(wire, form=form)
        try:
            record = await run_in_executor(self._intake, caller_of(self._backend, key).create_voice, creating)
        except Exception as error:
            raise BackendFailure from error
        return json_response(_wire(record, request), 201, {"location": f"/model/{record.id}"})

    def _record(self, key: ApiKey, id: str) -> VoiceModel:
        record = caller_of(self._backend, key).get_voice(id)
        if record.visibility == "private" and not isinstance(self._backend, VoiceHost):
            # Private to this service's key at the remote backend; the creating caller is unknown.
            raise NotFound(f"there is no voice model {id}", status=404)
        return record

    def _file(self, key: ApiKey, id: str, number: int | None) -> bytes:
        """Return sample ``number`` of a voice model; for None, the cover image."""
        caller = caller_of(self._backend, key)
        if not isinstance(caller, VoiceHost):
            raise NotFound(f"this voice model has no {'cover image' if number is None else 'such sample'}", status=404)
        return caller.cover_image(id) if number is None else caller.sample_audio(id, number)


class ServiceMiddleware:
    """Middleware for request ids, the request log, metrics, and status 503 during shutdown. Used by one event loop.

    The ``x-request-id`` of a response is also in the log. Errors at paths with a prefix in ``openai`` have OpenAI's format.
    """

    def __init__(self, app: ASGIApp, queue: FairQueue, routes: Mapping[Any, str], openai: tuple[str, ...] = ()) -> None:
        self._app, self._openai = app, openai
        self._routes = routes
        self._stopping = False
        self.queue = queue
        """Queue of the speech requests."""
        self.observe: Callable[[RequestRecord], object] | None = None
        """Callback with the record of each completed request."""
        self.active = 0
        """Number of active requests."""

    def stop(self) -> None:
        """Answer new requests with 503; active requests continue."""
        self._stopping = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request; pass on other protocols."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(id=secrets.token_hex(8), method=scope["method"], path=loggable(scope["path"]))
        record.openai = scope["path"].startswith(self._openai)
        RECORD.set(record)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message).update(record.headers | {"x-request-id": record.id})
            record.bytes += len(message.get("body", b""))
            await send(message)

        app: ASGIApp = self._app
        if self._stopping:
            app = refusal(503, "The service is stopping", {"retry-after": "1"})
        self.active += 1
        try:
            with record.ended:
                await app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            record.outcome = "was cancelled"
            raise
        except Cancelled as error:
            record.outcome, record.refused = "was read too slowly", str(error)
            raise
        except Exception as error:
            record.outcome = "broke off"
            error.add_note(f"in request {record.id}")
            raise
        finally:
            self.active -= 1
            record.seconds = time.perf_counter() - record.start
            record.route = self._routes.get(scope.get("endpoint"), "")
            _LOG.info("%s", record)
            if self.observe is not None:
                self.observe(record)


@contextmanager
def _collected(errors: list[FieldError]) -> Iterator[None]:
    try:
        yield
    except RequestInvalid as error:
        errors += error.errors


def _model(request: Request, capabilities: Capabilities) -> Model:
    values = request.headers.getlist("model")
    model = check_model(values[0] if values else None)
    if len(set(values)) > 1 or model not in capabilities.wire_models:
        allowed = " or ".join(repr(name) for name in capabilities.wire_models)
        raise RequestInvalid.of(
            "model", f"must be {allowed}, got {shown_value(', '.join(values))}", type="literal_error", in_="header"
        )
    return model


def _seed(request: Request, capabilities: Capabilities) -> int | None:
    values = request.headers.getlist(SEED_HEADER)
    if not values:
        return None
    if capabilities.seed == "none":
        message = "The backend does not support seeds"
        raise RequestInvalid.of(SEED_HEADER, message, type="unsupported", in_="header")
    if len(values) > 1 or _SEED.fullmatch(values[0]) is None or int(values[0]) > MAX_SEED:
        message = f"must be a whole number from 0 to {MAX_SEED}, got {shown_value(', '.join(values))}"
        raise RequestInvalid.of(SEED_HEADER, message, type="int_parsing", in_="header")
    return int(values[0])


# nosniff: a browser that guesses another media type could run the file as a script.
_FILE_HEADERS = {"x-content-type-options": "nosniff", "cache-control": "private"}
_NUMBER = re.compile("0|[1-9][0-9]{0,5}", re.ASCII)
_BUSY = "Too many voice models are being created; try again in a moment"


def caller_of(backend: Backend, key: ApiKey) -> Backend:
    """Return a backend that acts for the owner of a key, or the backend itself if it does not host voices."""
    return backend.acting_for(key.owner) if isinstance(backend, VoiceHost) else backend


def _wire(record: VoiceModel, request: Request) -> dict[str, object]:
    """Return the record as JSON, with absolute URLs of the files on this service."""
    wire = record.to_wire()
    base_url = str(request.base_url).rstrip("/")
    for item, name in [(wire, "cover_image"), *((sample, "audio") for sample in wire["samples"])]:
        if item[name].startswith("/"):
            item[name] = base_url + item[name]
    return wire


def _check_files(wire: object, limit: int) -> None:
    voices, cover = map(wire.get, ("voices", "cover_image")) if isinstance(wire, dict) else (None, None)
    files = [*(voices if isinstance(voices, list) else [voices]), cover]
    if any(isinstance(data, bytes) and len(data) > limit for data in files):
        raise HTTPException(413, f"A file is larger than {limit} bytes")
