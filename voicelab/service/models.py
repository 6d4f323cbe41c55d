"""Voice models over HTTP: ``POST /model``, ``GET /model/{id}``, and the cover image and samples that a record names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from voicelab.backend import Backend, VoiceHost
from voicelab.errors import NotFound
from voicelab.schema import MEDIA_TYPES, VoiceCreate, VoiceModel
from voicelab.service.concurrency import run_in_executor
from voicelab.service.keys import ApiKey
from voicelab.service.requests import Limits, decode_body, form_fields, media_type, read_body, read_form
from voicelab.service.responses import BackendFailure, json_response
from voicelab.voices.cover import image_kind

__all__ = ["Models", "caller_of", "owner_of"]

_T = TypeVar("_T")

# A browser that guessed another type might run what it believes to be in it.
_FILE = {"x-content-type-options": "nosniff", "cache-control": "private"}
_NUMBER = re.compile("0|[1-9][0-9]{0,5}", re.ASCII)
_BUSY = "Too many voice models are being made; try again in a moment"


def owner_of(key: ApiKey) -> str:
    """Return the name under which a key's voice models are kept: the same for ever, and no part of the key."""
    # A new key store counts from 1 again: by the number alone, its keys would own the private voices of earlier ones.
    identity = f"{key.id} {key.prefix} {int(key.created_at.timestamp())}"
    return hashlib.sha256(identity.encode()).hexdigest()[:24]


def caller_of(backend: Backend, key: ApiKey) -> Backend:
    """Return the backend as the holder of a key has it. One that hosts no voices is the same for all."""
    return backend.acting_for(owner_of(key)) if isinstance(backend, VoiceHost) else backend


class Models:
    """The endpoints of voice models.

    ``authenticate`` returns a request's key; ``workers`` are the threads in which voices are made, ``helpers``
    those for short waits.
    """

    def __init__(
        self,
        backend: Backend,
        authenticate: Callable[[Request], Awaitable[ApiKey]],
        limits: Limits,
        *,
        workers: Executor,
        helpers: Executor,
    ) -> None:
        self._backend = backend
        self._authenticate = authenticate
        self._limits = limits
        self._workers = workers
        self._helpers = helpers
        self._uploads = 0

    async def create(self, request: Request) -> Response:
        """Answer ``POST /model``: 201 and the record."""
        key = await self._authenticate(request)
        kind = media_type(request)
        if kind not in {"multipart/form-data", "application/msgpack"}:
            raise HTTPException(415, "The content type must be multipart/form-data or application/msgpack")
        if not isinstance(self._backend, VoiceHost):
            raise HTTPException(501, "The voice behind this service keeps no voice models")
        if self._uploads >= self._limits.uploads:
            raise HTTPException(503, _BUSY, {"retry-after": "5"})
        self._uploads += 1
        try:
            return await self._create(request, key, form=kind == "multipart/form-data")
        finally:
            self._uploads -= 1

    async def get(self, request: Request) -> Response:
        """Answer ``GET /model/{id}``."""
        return json_response(_wire(await self._read(request, self._record), request))

    async def cover(self, request: Request) -> Response:
        """Answer ``GET /model/{id}/cover`` with the picture, to a caller who may see the record."""
        data = await self._read(request, self._cover)
        return Response(data, 200, _FILE, media_type=f"image/{image_kind(data)}")

    async def sample(self, request: Request) -> Response:
        """Answer ``GET /model/{id}/samples/{number}`` with the recording, to a caller who may see the record."""
        number = request.path_params["number"]
        index = int(number) if _NUMBER.fullmatch(number) else -1
        data = await self._read(request, partial(self._sample, number=index))
        return Response(data, 200, _FILE, media_type=MEDIA_TYPES["wav"])

    async def _read(self, request: Request, read: Callable[[ApiKey, str], _T]) -> _T:
        key = await self._authenticate(request)
        try:
            return await run_in_executor(self._helpers, read, key, request.path_params["id"])
        except NotFound:
            raise
        except Exception as error:
            raise BackendFailure from error

    async def _create(self, request: Request, key: ApiKey, *, form: bool) -> Response:
        limits = self._limits
        # Nothing is kept before the last byte is there: an upload that is cut off leaves no trace.
        if form:
            wire: object = form_fields(await read_form(request, limits.upload, limits.file, limits.upload_seconds))
        else:
            body = await read_body(request, limits.upload, limits.upload_seconds)
            wire = await decode_body(self._workers, body, "msgpack")
            _check_files(wire, limits.file)
        creating = VoiceCreate.from_wire(wire, form=form)
        try:
            record = await run_in_executor(self._workers, caller_of(self._backend, key).create_voice, creating)
        except Exception as error:
            raise BackendFailure from error
        return json_response(_wire(record, request), 201, {"location": f"/model/{record.id}"})

    def _record(self, key: ApiKey, id: str) -> VoiceModel:
        record = caller_of(self._backend, key).get_voice(id)
        if record.visibility == "private" and not isinstance(self._backend, VoiceHost):
            # It is private to our own key there, and which of our callers it was made for is not recorded.
            raise NotFound(f"there is no voice model {id}", status=404)
        return record

    def _cover(self, key: ApiKey, id: str) -> bytes:
        caller = caller_of(self._backend, key)
        if not isinstance(caller, VoiceHost):
            raise NotFound("this voice model has no cover image", status=404)
        return caller.cover_image(id)

    def _sample(self, key: ApiKey, id: str, number: int) -> bytes:
        caller = caller_of(self._backend, key)
        if not isinstance(caller, VoiceHost):
            raise NotFound("this voice model has no such sample", status=404)
        return caller.sample_audio(id, number)


def _wire(record: VoiceModel, request: Request) -> dict[str, object]:
    """The record with whole addresses of what this service keeps."""
    wire = record.to_wire()
    here = str(request.base_url).rstrip("/")
    for holder, name in [(wire, "cover_image"), *((sample, "audio") for sample in wire["samples"])]:
        if holder[name].startswith("/"):
            holder[name] = here + holder[name]
    return wire


def _check_files(wire: object, limit: int) -> None:
    if not isinstance(wire, dict):
        return
    voices = wire.get("voices")
    files = [*(voices if isinstance(voices, list) else [voices]), wire.get("cover_image")]
    if any(isinstance(data, bytes) and len(data) > limit for data in files):
        raise HTTPException(413, f"A file is larger than {limit} bytes")
