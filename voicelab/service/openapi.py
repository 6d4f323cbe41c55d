"""The service described by itself: one table of operations, from which its routes and /openapi.json are both made.

Fields are described by the schemas; nothing about a field is written here.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from voicelab.call import MAX_SEED
from voicelab.capabilities import Capabilities
from voicelab.schema import DEFAULT_MODEL, MEDIA_TYPES, TTSRequest, VoiceCreate, VoiceModel
from voicelab.service.responses import Problem, Refusal

SEED_HEADER: Final = "x-voicelab-seed"
"""Request header with the seed, 0 to 2**63 - 1; the answer names in it the seed in use, where there is one."""

LONGEST_NOTES: Final = 3000
"""Bytes of that header: proxies give all headers of an answer 4 KiB."""
NOTES_HEADER: Final = "x-voicelab-notes"
"""Response header with the notes known at the first audio: a JSON array of texts in ASCII, of bounded length."""

_JSON: Final = "application/json"
_MSGPACK: Final = "application/msgpack"
_WITHOUT_AUDIO: Final = "TTSRequestJSON"
_IMAGES: Final = ("image/png", "image/jpeg", "image/webp")
_REFS: Final = "#/components/schemas/"


class Health(TypedDict):
    """What ``GET /health`` says."""

    status: Literal["ready"]
    backend: Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    ``body`` and ``answer`` give the schema for each media type, None for bytes; ``parameters`` and ``headers``
    (of a success) are names of components; ``errors`` the statuses that it may answer besides ``success``.
    Unless it is ``open``, a key is needed.
    """

    name: str
    method: Literal["get", "post"] = "get"
    path: str
    summary: str
    success: int = 200
    description: str
    answer: Mapping[str, str | None]
    body: Mapping[str, str | None] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    open: bool = False


_READING = (401, 404, 500, 503)
_SENDING = (401, 408, 413, 415, 422, 429, 500, 503, 504)

OPERATIONS: Final = (
    Operation(
        name="speech",
        method="post",
        path="/v1/tts",
        summary="Speak a text.",
        parameters=("model", "seed"),
        body={_JSON: _WITHOUT_AUDIO, _MSGPACK: "TTSRequest"},
        description="The audio in the format asked for, in chunks as it is made. A body without its last chunk is not whole.",
        answer=dict.fromkeys(MEDIA_TYPES.values()),
        headers=("seed", "notes"),
        errors=(*_SENDING, 402),
    ),
    Operation(
        name="create",
        method="post",
        path="/model",
        summary="Create a voice model from recordings.",
        body={"multipart/form-data": "VoiceCreate", _MSGPACK: "VoiceCreate"},
        success=201,
        description="The voice model was created.",
        answer={_JSON: "VoiceModel"},
        headers=("location",),
        errors=(*_SENDING, 501),
    ),
    Operation(
        name="get",
        path="/model/{id}",
        summary="Get a voice model.",
        parameters=("id",),
        description="The record of the voice model.",
        answer={_JSON: "VoiceModel"},
        errors=_READING,
    ),
    Operation(
        name="cover",
        path="/model/{id}/cover",
        summary="Get the cover image of a voice model.",
        parameters=("id",),
        description="The image, as it was uploaded.",
        answer=dict.fromkeys(_IMAGES),
        errors=_READING,
    ),
    Operation(
        name="sample",
        path="/model/{id}/samples/{number}",
        summary="Get a sample of a voice model.",
        parameters=("id", "number"),
        description="The recording, as it was used to make the voice.",
        answer={"audio/wav": None},
        errors=_READING,
    ),
    Operation(
        name="health",
        path="/health",
        summary="Whether the service is ready, and what its backend declares.",
        description="The service is ready.",
        answer={_JSON: "Health"},
        errors=(503,),
        open=True,
    ),
    Operation(
        name="describe",
        path="/openapi.json",
        summary="Get this document.",
        description="This document.",
        answer={_JSON: "Document"},
        errors=(503,),
        open=True,
    ),
)
"""What the service answers."""

_ERRORS: Final = {
    401: "The API key is missing or not accepted. This is checked before anything else.",
    402: "The credit of the API key does not cover the request.",
    404: "Unknown, or private to another caller; the answer is the same for both.",
    408: "The request did not arrive in time.",
    413: "The body, or a file in it, is too large.",
    415: "The content type is none of those listed, or the body is compressed.",
    422: "Something in the request is wrong; each item names a field.",
    429: "A limit of the API key is reached: its requests in a time, at once, or its characters in a day.",
    500: "The voice failed at this request.",
    501: "The voice behind this service keeps no voice models.",
    503: "The service is busy, stopping, or not available at the moment.",
    504: "The voice did not answer in time.",
}
_HEADERS_OF: Final = {401: ("authenticate",), 429: ("retry",), 503: ("retry",)}
_SEED: Final = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
_HEADERS: Final[Mapping[str, tuple[str, bool, str, Mapping[str, Any]]]] = {
    "request": ("x-request-id", True, "The name of this answer.", {"type": "string"}),
    "seed": (SEED_HEADER, False, "The seed in use.", _SEED),
    "notes": (
        NOTES_HEADER,
        False,
        "Notes on the speech known at its first audio, such as text left out: a JSON array of strings in ASCII.",
        {"type": "string", "maxLength": LONGEST_NOTES},
    ),
    "location": ("Location", True, "Where the record is.", {"type": "string"}),
    "authenticate": ("WWW-Authenticate", True, "How to authenticate: Bearer.", {"type": "string"}),
    "retry": ("Retry-After", True, "Seconds after which to try again.", {"type": "integer", "minimum": 0}),
}


def document(capabilities: Capabilities) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a service in which a backend with these capabilities speaks."""
    parameters = _parameters(capabilities)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, parameters)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "voicelab",
            "version": "1",
            "description": "Speech from text, and voice models from recordings. Every answer names itself in "
            "x-request-id; report it when something is wrong."
            + (f" {capabilities.notice}" if capabilities.notice else ""),
        },
        "paths": paths,
        "security": [{"bearer": []}],
        "components": {
            "schemas": _schemas(capabilities),
            "parameters": parameters,
            "headers": {
                key: {"description": text, "required": required, "schema": schema}
                for key, (_, required, text, schema) in _HEADERS.items()
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _described(operation: Operation, listed: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
    if parameters := [_ref("parameters", name) for name in operation.parameters if name in listed]:
        described["parameters"] = parameters
    if operation.body:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    if operation.open:
        described["security"] = []
    responses = {str(operation.success): _response(operation.description, operation.answer, operation.headers)}
    for status in sorted(operation.errors):
        schema = "Problems" if status == 422 else "Refusal"
        responses[str(status)] = _response(_ERRORS[status], {_JSON: schema}, _HEADERS_OF.get(status, ()))
    return described | {"responses": responses}


def _response(description: str, answer: Mapping[str, str | None], headers: tuple[str, ...]) -> dict[str, Any]:
    listed = {_HEADERS[name][0]: _ref("headers", name) for name in ("request", *headers)}
    return {"description": description, "headers": listed, "content": _content(answer)}


def _content(kinds: Mapping[str, str | None]) -> dict[str, Any]:
    return {kind: {"schema": _ref("schemas", schema)} if schema else {} for kind, schema in kinds.items()}


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _parameters(capabilities: Capabilities) -> dict[str, Any]:
    model: dict[str, Any] = {"type": "string", "enum": list(capabilities.wire_models)}
    if DEFAULT_MODEL in capabilities.wire_models:
        model["default"] = DEFAULT_MODEL
    listed = {
        "model": ("header", "model", "The synthesis model. Without it, s2-pro.", model),
        "seed": ("header", SEED_HEADER, "The same seed gives the same audio.", _SEED),
        "id": ("path", "id", "Identifier of a voice model.", {"type": "string", "minLength": 1}),
        "number": ("path", "number", "Which of its samples; they count from 0.", {"type": "integer", "minimum": 0}),
    }
    if capabilities.seed == "none":
        del listed["seed"]
    return {
        key: {"name": name, "in": place, "required": place == "path", "description": text, "schema": schema}
        for key, (place, name, text, schema) in listed.items()
    }


def _schemas(capabilities: Capabilities) -> dict[str, Any]:
    types: tuple[Any, ...] = (TTSRequest, VoiceCreate, Refusal, Problem, Health)
    inputs = [(kind, "validation", TypeAdapter(kind)) for kind in types]
    records = [(VoiceModel, "serialization", TypeAdapter(VoiceModel))]
    schemas: dict[str, Any] = {}
    for wanted in (inputs, records):
        _, defined = TypeAdapter.json_schemas(wanted, ref_template=_REFS + "{model}")  # type: ignore[arg-type]
        for name, schema in defined["$defs"].items():
            # Keys that are not listed are ignored on the wire; it is our constructors that refuse them.
            schema.pop("additionalProperties", None)
            if wanted is records:
                schema["required"] = list(schema["properties"])
            schemas[name] = schema
    if capabilities.max_text is not None:
        schemas["TTSRequest"]["properties"]["text"]["maxLength"] = capabilities.max_text
    schemas[_WITHOUT_AUDIO] = copy.deepcopy(schemas["TTSRequest"])
    schemas[_WITHOUT_AUDIO]["description"] = "A speech request in JSON, which carries no audio."
    schemas[_WITHOUT_AUDIO]["properties"]["references"].update({"type": ["array", "null"], "maxItems": 0})
    schemas[_WITHOUT_AUDIO]["properties"]["references"].pop("anyOf")
    schemas["Problems"] = {"type": "array", "minItems": 1, "items": {"$ref": _REFS + "Problem"}}
    schemas["Document"] = {"type": "object", "description": "An OpenAPI document.", "required": ["openapi"]}
    return dict(sorted(schemas.items()))
