"""Table of operations, from which routes, /openapi.json and the HTML page are generated. Fields come from the schemas."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from voicelab.call import MAX_SEED
from voicelab.capabilities import Capabilities
from voicelab.schema import DEFAULT_MODEL, MEDIA_TYPES, TTSRequest, VoiceCreate, VoiceModel
from voicelab.service.responses import Problem, Refusal

SEED_HEADER: Final = "x-voicelab-seed"
"""Request header with the seed, 0 to 2**63 - 1; response header with the seed in use, if any."""

MAX_NOTES_BYTES: Final = 3000
"""Maximum size of the notes header in bytes, because proxies limit all headers of a response to a total of 4 KiB."""
NOTES_HEADER: Final = "x-voicelab-notes"
"""Response header with the notes at the first audio: a JSON array of strings in ASCII."""

_JSON: Final = "application/json"
_MSGPACK: Final = "application/msgpack"
_WITHOUT_AUDIO: Final = "TTSRequestJSON"
_IMAGES: Final = ("image/png", "image/jpeg", "image/webp")
_REFS: Final = "#/components/schemas/"


class Health(TypedDict):
    """Response of ``GET /health``."""

    status: Literal["ready"]
    backend: Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of the API: an HTTP method and a path.

    ``body`` and ``answer`` map media types to schemas, or to None for bytes; ``parameters`` and ``headers`` (on success)
    are names of components; ``errors`` are the statuses of errors. An API key is required unless ``open``.
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
        summary="Synthesize a text.",
        parameters=("model", "seed"),
        body={_JSON: _WITHOUT_AUDIO, _MSGPACK: "TTSRequest"},
        description="Audio in the requested format, streamed in chunks. A body without its last chunk is truncated.",
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
        description="The image as uploaded.",
        answer=dict.fromkeys(_IMAGES),
        errors=_READING,
    ),
    Operation(
        name="sample",
        path="/model/{id}/samples/{number}",
        summary="Get a sample of a voice model.",
        parameters=("id", "number"),
        description="The recording as used for the voice.",
        answer={"audio/wav": None},
        errors=_READING,
    ),
    Operation(
        name="health",
        path="/health",
        summary="Get the state of the service and the capabilities of its backend.",
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
"""Operations of the service."""

_ERRORS: Final = {
    401: "The API key is missing or not accepted. Authentication is checked first.",
    402: "The credit of the API key does not cover the request.",
    404: "Unknown, or private to another caller; the response is the same for both.",
    408: "The request did not arrive in time.",
    413: "The body, or a file in it, is too large.",
    415: "The content type is not supported, or the body is compressed.",
    422: "Fields of the request are invalid; there is one item per error.",
    429: "A limit of the API key is exceeded: request rate, concurrent requests, characters per day, or stored voices.",
    500: "The backend failed.",
    501: "The backend of this service does not support voice models.",
    503: "The service is busy, stopping, or not available at the moment.",
    504: "The backend did not respond in time.",
}
_HEADERS_OF: Final = {401: ("authenticate",), 429: ("retry",), 503: ("retry",)}
_SEED: Final = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
_HEADERS: Final[Mapping[str, tuple[str, bool, str, Mapping[str, Any]]]] = {
    "request": ("x-request-id", True, "Identifier of the request.", {"type": "string"}),
    "seed": (SEED_HEADER, False, "The seed in use.", _SEED),
    "notes": (
        NOTES_HEADER,
        False,
        "Notes that are known at the first audio, such as omitted text, as a JSON array of strings in ASCII.",
        {"type": "string", "maxLength": MAX_NOTES_BYTES},
    ),
    "location": ("Location", True, "Path of the record.", {"type": "string"}),
    "authenticate": ("WWW-Authenticate", True, "Authentication scheme: Bearer.", {"type": "string"}),
    "retry": ("Retry-After", True, "Seconds to wait before a retry.", {"type": "integer", "minimum": 0}),
}


def document(capabilities: Capabilities) -> dict[str, Any]:
    """Build the OpenAPI 3.1 document of a service for a backend's capabilities."""
    parameters = _parameters(capabilities)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, parameters)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "voicelab",
            "version": "1",
            "description": "Speech from text, and voice models from recordings. Include the response's x-request-id in "
            "error reports." + (f" {capabilities.notice}" if capabilities.notice else ""),
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
        "model": ("header", "model", "The synthesis model; s2-pro if omitted.", model),
        "seed": ("header", SEED_HEADER, "The same seed gives the same audio.", _SEED),
        "id": ("path", "id", "Identifier of a voice model.", {"type": "string", "minLength": 1}),
        "number": ("path", "number", "Index of the sample, from 0.", {"type": "integer", "minimum": 0}),
    }
    if capabilities.seed == "none":
        del listed["seed"]
    return {
        key: {"name": name, "in": location, "required": location == "path", "description": text, "schema": schema}
        for key, (location, name, text, schema) in listed.items()
    }


def _schemas(capabilities: Capabilities) -> dict[str, Any]:
    types: tuple[Any, ...] = (TTSRequest, VoiceCreate, Refusal, Problem, Health)
    inputs = [(kind, "validation", TypeAdapter(kind)) for kind in types]
    records = [(VoiceModel, "serialization", TypeAdapter(VoiceModel))]
    schemas: dict[str, Any] = {}
    for models in (inputs, records):
        _, definitions = TypeAdapter.json_schemas(models, ref_template=_REFS + "{model}")  # type: ignore[arg-type]
        for name, schema in definitions["$defs"].items():
            # Unknown keys are ignored on the wire; only voicelab's constructors reject them.
            schema.pop("additionalProperties", None)
            if models is records:
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


_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>voicelab service</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse } td, th { border-top: 1px solid #8884; padding: .3rem .8rem .3rem 0; text-align: left;
vertical-align: top }
</style></head><body>"""


def documentation(document: Mapping[str, Any]) -> str:
    """Format the result of ``document`` as an HTML page of operations and fields, which loads no external resources."""
    return "\n".join([_HEAD, *_lines(document), "</body></html>"])


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    parts = document["components"]
    yield f"<h1>voicelab service</h1><p>{escape(document['info']['description'])}</p>"
    yield (
        "<p>Requests need an API key, <code>Authorization: Bearer KEY</code>. Machine-readable: "
        '<a href="openapi.json">openapi.json</a>; state: <a href="health">health</a>.</p>'
    )
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
            yield from _table(
                "Parameter",
                {
                    parameter["name"]: parameter
                    for reference in operation.get("parameters", ())
                    for parameter in [parts["parameters"][reference["$ref"].rpartition("/")[2]]]
                },
            )
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                name = content["schema"]["$ref"].rpartition("/")[2]
                yield f'<p>Body, <code>{escape(kind)}</code>: <a href="#{name}">{name}</a></p>'
            yield "<table><tr><th>Status<th>Description</tr>"
            for status, response in operation["responses"].items():
                yield f"<tr><td><code>{status}</code><td>{escape(response['description'])}</tr>"
            yield "</table>"
    for name, schema in parts["schemas"].items():
        if "properties" in schema:
            yield f'<h2 id="{name}">{name}</h2><p>{escape(schema.get("description", ""))}</p>'
            yield from _table("Field", schema["properties"])


def _table(head: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield f"<table><tr><th>{head}<th>Values<th>Description</tr>"
    for name, row in rows.items():
        values = escape(_values(row.get("schema", row)))
        yield f"<tr><td><code>{escape(name)}</code><td>{values}<td>{escape(row.get('description', ''))}</tr>"
    yield "</table>"


def _values(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_values, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("const") or schema.get("type", "")
    values = ", ".join(map(str, schema.get("enum", ()))) or (" or ".join(kind) if isinstance(kind, list) else str(kind))
    for key, word in (("minimum", "from"), ("maximum", "to")):
        values += f" {word} {schema[key]}".removesuffix(".0") if key in schema else ""
    return values if schema.get("default") is None else f"{values}; default {schema['default']}"
