"""/openapi.json is a valid document, and the service does what it says."""

from __future__ import annotations

import re
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from openapi_spec_validator import validate
from pydantic import BaseModel
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.schemas import OpenApiSchema
from schemathesis.transport.serialization import contains_binary

from tests.served import PLAIN, Service
from tests.speechlike import speech_file
from tests.tones import ToneBackend
from tests.voices.test_cover import picture
from voicelab.schema import FORMATS, RATES, TTSRequest, VoiceCreate, VoiceModel
from voicelab.service.openapi import OPERATIONS, document

WAV = speech_file(1.2)
PNG = picture("png")
WHOLE = {"chunk_length", "min_chunk_length", "max_new_tokens", "sample_rate", "mp3_bitrate", "opus_bitrate"}


@pytest.fixture(scope="module")
def told(host: Service) -> dict[str, Any]:
    answer = httpx.get(host.url + "/openapi.json", **PLAIN)  # no key
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


def test_the_document_is_valid(told: dict[str, Any]) -> None:
    assert told["openapi"].startswith("3.1")
    validate(told)


def test_every_route_is_in_it_and_every_operation_is_a_route(told: dict[str, Any], host: Service) -> None:
    listed = {(path, method) for path, operations in told["paths"].items() for method in operations}
    assert listed == {(one.path, one.method) for one in OPERATIONS}
    for path, method in listed:
        answer = httpx.request(method, host.url + path.format(id="0" * 32, number=0), **PLAIN)
        open_ = told["paths"][path][method].get("security") == []
        assert answer.status_code == (200 if open_ else 401)


def test_every_field_is_told_as_the_schema_tells_it(told: dict[str, Any]) -> None:
    schemas = told["components"]["schemas"]
    models: tuple[type[BaseModel], ...] = (TTSRequest, VoiceCreate, VoiceModel)
    for model in models:
        name = model.__name__
        fields = {field.serialization_alias or key: field for key, field in model.model_fields.items()}
        assert set(schemas[name]["properties"]) == set(fields)
        for key, field in fields.items():
            assert schemas[name]["properties"][key]["description"] == field.description
    assert set(schemas["VoiceModel"]["required"]) == set(schemas["VoiceModel"]["properties"])
    assert schemas["VoiceCreate"]["required"] == ["title", "voices", "train_mode", "type"]
    assert schemas["TTSRequest"]["required"] == ["text"]
    assert schemas["TTSRequest"]["properties"]["text"]["maxLength"] == 60


def test_speech_operation(told: dict[str, Any]) -> None:
    speech = told["paths"]["/v1/tts"]["post"]
    assert set(speech["requestBody"]["content"]) == {"application/json", "application/msgpack"}
    assert set(speech["responses"]["200"]["content"]) == {"audio/wav", "audio/pcm", "audio/mpeg", "audio/ogg"}
    assert {"401", "402", "413", "415", "422", "503"} <= set(speech["responses"])
    assert set(told["paths"]["/model"]["post"]["requestBody"]["content"]) == {
        "multipart/form-data",
        "application/msgpack",
    }
    parameters = told["components"]["parameters"]
    assert parameters["model"]["schema"] == {"type": "string", "enum": ["s1", "s2-pro"], "default": "s2-pro"}
    assert parameters["seed"]["name"] == "x-voicelab-seed"
    assert told["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    problem = told["components"]["schemas"]["Problem"]
    assert problem["properties"]["loc"] == {"type": "array", "items": {"type": "string"}, "title": "Loc"}
    assert problem["properties"]["in"]["enum"] == ["path", "query", "header", "cookie", "body"]
    assert problem["required"] == ["loc", "type", "msg"]
    assert "Retry-After" in speech["responses"]["503"]["headers"]
    assert {"x-voicelab-seed", "x-voicelab-notes"} <= set(speech["responses"]["200"]["headers"])


def test_document_depends_on_capabilities() -> None:
    silent = ToneBackend(seed="none", models=("s1",), max_text=None, notice="Built with Fish Audio.")
    plain = document(silent.capabilities)
    validate(plain)
    assert plain["info"]["description"].endswith("error reports. Built with Fish Audio.")
    assert "seed" not in plain["components"]["parameters"]
    assert plain["components"]["parameters"]["model"]["schema"] == {"type": "string", "enum": ["s1"]}
    assert "maxLength" not in plain["components"]["schemas"]["TTSRequest"]["properties"]["text"]
    rates = plain["components"]["schemas"]["TTSRequest"]["anyOf"]
    assert [one["properties"]["sample_rate"]["enum"] for one in rates] == [[*RATES[name], None] for name in FORMATS]


# Calls made from the document


@schemathesis.serializer("application/msgpack")
def _packed(_: object, value: Any) -> bytes:
    return bytes(msgpack.packb(_plain(value)))


def _plain(value: Any) -> Any:
    """What schemathesis makes of ``format: binary`` becomes bytes."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return 2**63  # MessagePack has no larger one
    data = getattr(value, "data", value)
    return bytes(data) if isinstance(data, bytes | bytearray) else value


@pytest.fixture(scope="module")
def described(host: Service, told: dict[str, Any]) -> OpenApiSchema:
    # What a document cannot say: which ids there are, and what is a recording or a picture.
    record = host.http.post(
        "/model",
        data={"type": "tts", "train_mode": "fast", "title": "Ada", "texts": "said"},
        files={"voices": WAV, "cover_image": PNG},
    )
    assert record.status_code == 201, record.text
    for operations in told["paths"].values():
        for operation in operations.values():
            operation["x-known"] = record.json()["_id"]
    schema: OpenApiSchema = schemathesis.openapi.from_dict(told)
    schema.config.update(base_url=host.url)
    return schema


def _call_all(schema: OpenApiSchema, host: Service, name: str, mode: GenerationMode, examples: int) -> set[int]:
    method = next(one.method for one in OPERATIONS if one.path == name)
    operation = schema[name][method.upper()]
    known = operation.definition.raw["x-known"]
    seen: set[int] = set()

    @seed(7)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            _make_true(case, known)
        # Whether what holds bytes is wrong as it was meant to be, schemathesis does not look.
        excluded = [CHECKS.get_one("negative_data_rejection")] if contains_binary(case.body) else []
        response = case.call_and_validate(
            headers={"Authorization": f"Bearer {host.secret}"}, excluded_checks=excluded, timeout=20
        )
        seen.add(response.status_code)
        assert response.status_code < 500
        assert re.fullmatch("[0-9a-f]{16}", response.headers["x-request-id"][0])

    call()
    return seen


def _make_true(case: Any, known: str) -> None:
    if case.path_parameters:
        case.path_parameters = {"id": known, **({"number": 0} if "number" in case.path_parameters else {})}
    body = case.body
    if not isinstance(body, dict):
        return
    for name in WHOLE & set(body):
        # A whole number is one for JSON Schema however it is written; we want it without a point.
        body[name] = None if body[name] is None else int(body[name])
    body.pop("enhance_audio_quality", None)  # it takes seconds
    if body.get("reference_id") is not None:
        body["reference_id"] = known
    if "voices" in body:
        body["voices"] = [WAV]
        body.pop("texts", None)
        if body.pop("cover_image", None) is not None:  # a form has no null
            body["cover_image"] = PNG


@pytest.mark.parametrize("examples", [15, pytest.param(120, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", [one.path for one in OPERATIONS])
def test_the_service_answers_as_the_document_says(
    described: OpenApiSchema, host: Service, path: str, mode: GenerationMode, examples: int
) -> None:
    if mode is GenerationMode.NEGATIVE and path in {"/health", "/openapi.json"}:
        return  # nothing can be wrong in a call that says nothing
    seen = _call_all(described, host, path, mode, examples)
    if mode is GenerationMode.POSITIVE:
        assert seen & {200, 201}, seen
    assert host.http.get("/health").json()["status"] == "ready"
