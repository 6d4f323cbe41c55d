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
    method: Literal["get", "post"]
    path: str
    summary: str
    success: int = 200
    description: str
    answer: Mapping[str, str | None]
    body: Mapping[str, str] = field(default_factory=dict)
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
        headers=("seed",),
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
        method="get",
        path="/model/{id}",
        summary="Get a voice model.",
        parameters=("id",),
        description="The record of the voice model.",
        answer={_JSON: "VoiceModel"},
        errors=_READING,
    ),
    Operation(
        name="cover",
        method="get",
        path="/model/{id}/cover",
        summary="Get the cover image of a voice model.",
        parameters=("id",),
        description="The image, as it was uploaded.",
        answer=dict.fromkeys(_IMAGES),
        errors=_READING,
    ),
    Operation(
        name="sample",
        method="get",
        path="/model/{id}/samples/{number}",
        summary="Get a sample of a voice model.",
        parameters=("id", "number"),
        description="The recording, as it was used to make the voice.",
        answer={"audio/wav": None},
        errors=_READING,
    ),
    Operation(
        name="health",
        method="get",
        path="/health",
        summary="Whether the service is ready, and what its backend declares.",
        description="The service is ready.",
        answer={_JSON: "Health"},
        errors=(503,),
        open=True,
    ),
    Operation(
        name="describe",
        method="get",
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
_HEADERS_OF: Final = {401: "authenticate", 429: "retry", 503: "retry"}


def document(capabilities: Capabilities) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a service in which a backend with these capabilities speaks."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, capabilities)
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
            "parameters": _parameters(capabilities),
            "headers": _headers(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _described(operation: Operation, capabilities: Capabilities) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary, "responses": {}}
    listed = _parameters(capabilities)
    if parameters := [_ref("parameters", name) for name in operation.parameters if name in listed]:
        described["parameters"] = parameters
    if operation.body:
        content = {kind: {"schema": _ref("schemas", schema)} for kind, schema in operation.body.items()}
        described["requestBody"] = {"required": True, "content": content}
    if operation.open:
        described["security"] = []
    answer = {kind: {"schema": _ref("schemas", schema)} if schema else {} for kind, schema in operation.answer.items()}
    described["responses"][str(operation.success)] = _response(operation.description, answer, operation.headers)
    for status in sorted(operation.errors):
        schema = "Problems" if status == 422 else "Refusal"
        content = {_JSON: {"schema": _ref("schemas", schema)}}
        more = (_HEADERS_OF[status],) if status in _HEADERS_OF else ()
        described["responses"][str(status)] = _response(_ERRORS[status], content, more)
    return described


def _response(description: str, content: dict[str, Any], headers: tuple[str, ...]) -> dict[str, Any]:
    names = {"authenticate": "WWW-Authenticate", "retry": "Retry-After", "seed": SEED_HEADER, "location": "Location"}
    listed = {names[header]: _ref("headers", header) for header in headers}
    return {
        "description": description,
        "headers": {"x-request-id": _ref("headers", "request"), **listed},
        "content": content,
    }


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _parameters(capabilities: Capabilities) -> dict[str, Any]:
    model: dict[str, Any] = {"type": "string", "enum": list(capabilities.wire_models)}
    if DEFAULT_MODEL in capabilities.wire_models:
        model["default"] = DEFAULT_MODEL
    number = {"type": "integer", "minimum": 0}
    listed = {
        "model": ("header", "model", "The synthesis model. Without it, s2-pro.", model),
        "seed": ("header", SEED_HEADER, "The same seed gives the same audio.", {**number, "maximum": MAX_SEED}),
        "id": ("path", "id", "Identifier of a voice model.", {"type": "string", "minLength": 1}),
        "number": ("path", "number", "Which of its samples; they count from 0.", number),
    }
    if capabilities.seed == "none":
        del listed["seed"]
    return {
        key: {"name": name, "in": place, "required": place == "path", "description": text, "schema": schema}
        for key, (place, name, text, schema) in listed.items()
    }


def _headers() -> dict[str, Any]:
    string = {"type": "string"}
    listed = {
        "request": ("The name of this answer.", True, string),
        "seed": ("The seed in use.", False, {"type": "integer", "minimum": 0, "maximum": MAX_SEED}),
        "location": ("Where the record is.", True, string),
        "authenticate": ("How to authenticate: Bearer.", True, string),
        "retry": ("Seconds after which to try again.", True, {"type": "integer", "minimum": 0}),
    }
    return {
        key: {"description": text, "required": required, "schema": schema}
        for key, (text, required, schema) in listed.items()
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
