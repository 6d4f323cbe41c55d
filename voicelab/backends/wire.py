"""Requests and responses of the interface, independent of connections."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import quote

import httpx
import msgpack  # type: ignore[import-untyped]  # msgpack publishes no types
from pydantic import TypeAdapter, ValidationError

from voicelab.call import EXTRA, Call, VoicePreset, thawed
from voicelab.capabilities import Capabilities, FieldSupport, Price, SeedSupport
from voicelab.distribution import __version__
from voicelab.errors import (
    AuthenticationError,
    FieldError,
    NotFound,
    PaymentRequired,
    RequestInvalid,
    ServiceError,
    ServiceTimeout,
    ServiceUnavailable,
    VoicelabError,
)
from voicelab.schema import MODELS, VoiceCreate, VoiceModel

Repeat = Literal["undelivered", "unsent"]
"""Condition of a retry: no part of the response was delivered, or the request was not sent."""

Upload = Literal["msgpack", "multipart"]
"""Encoding of recordings: MessagePack, or a form."""

_SEED_HEADER = "x-voicelab-seed"
_NOTES_HEADER = "x-voicelab-notes"
_AGENT = f"voicelab/{__version__}"
_REQUEST_IDS = ("x-request-id", "request-id", "x-correlation-id", "x-amzn-requestid", "x-amz-request-id", "cf-ray")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_TEXT = re.compile(rb"\s*(?:<[!?a-z]|[{\[]\s*[\"{])[\t\n\r -~]*$", re.IGNORECASE)
_MAX_MESSAGE_LENGTH = 300
_MAX_NOTES_LENGTH = 4096
_MAX_NOTES = 32
_LOCATIONS = ("path", "query", "header", "cookie", "body")
_PRICES = TypeAdapter(tuple[Price, ...])
_SUPPORT = TypeAdapter(FieldSupport)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """An HTTP request without address and key, which the transport adds."""

    method: Literal["GET", "POST"]
    path: str
    headers: Mapping[str, str]
    repeat: Repeat
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (names in lower case) and body of an HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def request_id(self) -> str | None:
        """Request ID assigned by the service, or None."""
        return next((self.headers[name] for name in _REQUEST_IDS if name in self.headers), None)


_JSON_HEADERS = {"accept": "application/json", "user-agent": _AGENT}
HEALTH = HttpCall("GET", "/health", _JSON_HEADERS, "undelivered")
"""Request for the capabilities of a voicelab service; other services answer 404."""

LIST = HttpCall("GET", "/model?self=true&page_size=100", _JSON_HEADERS, "undelivered")
"""Request for the caller's voice models. Not part of the interface; some services support it."""

ACCEPT: Final = "audio/*, application/json"
"""Media types accepted in response to a speech request: audio, or an error."""

EVENT_STREAM: Final = "text/event-stream"
"""The media type of server-sent events."""

CHECK = HttpCall("POST", "/v1/tts", {**_JSON_HEADERS, "content-type": "application/json"}, "undelivered", b"{}")
"""Speech request without a text: rejected as invalid by a service that accepts the key, without synthesis."""


def speech_call(call: Call) -> HttpCall:
    """Build ``POST /v1/tts`` as JSON, or as MessagePack if there is reference audio.

    All fields are sent, including those with default values, because a service may have other defaults. The seed, if set,
    is sent in a header.
    """
    request = call.request
    fields = with_extra({name: value for name, value in request.to_wire().items() if value is not None}, call)
    if request.reference_id is not None or not fields.get("references"):
        fields.pop("references", None)  # ignored or empty
    seed = {} if call.seed is None else {_SEED_HEADER: str(call.seed)}
    return audio_call("/v1/tts", fields, binary="references" in fields, model=call.model, **seed)


def with_extra(fields: dict[str, Any], call: Call) -> dict[str, Any]:
    """Add the extra fields of a call to a body; an extra field with the value None removes the field of the same name."""
    extra = {name.removeprefix(EXTRA): thawed(value) for name, value in call.knobs if name.startswith(EXTRA)}
    return {name: value for name, value in {**fields, **extra}.items() if name not in extra or value is not None}


def audio_call(path: str, fields: Mapping[str, object], *, binary: bool = False, **headers: str) -> HttpCall:
    """Build a speech request with a body of JSON or, if ``binary``, MessagePack; ``headers`` override the defaults."""
    kind = "application/msgpack" if binary else "application/json"
    # Audio is incompressible, and compression would delay chunks.
    headers = {**_JSON_HEADERS, "accept": ACCEPT, "accept-encoding": "identity", "content-type": kind, **headers}
    return HttpCall("POST", path, headers, "undelivered", _packed(fields) if binary else _json(fields))


def create_call(request: VoiceCreate, upload: Upload = "msgpack") -> HttpCall:
    """Build ``POST /model`` as MessagePack, which encodes lists unambiguously, or as a form.

    A form has the recordings as ``voices[0]``, ``voices[1]`` …, and one field ``texts`` or ``tags`` for each of their
    values. The request is not retried if the service may have received it, to avoid duplicate voices.
    """
    fields = {name: value for name, value in request.to_wire().items() if value is not None and value != []}
    content, kind = _form(fields) if upload == "multipart" else (_packed(fields), "application/msgpack")
    return HttpCall("POST", "/model", {**_JSON_HEADERS, "content-type": kind}, "unsent", content)


def get_call(id: str) -> HttpCall:
    """Build ``GET /model/{id}``. Raises RequestInvalid if the id is not valid in a path."""
    if not id or id in {".", ".."}:
        raise RequestInvalid.of("id", f"must be the identifier of a voice model, got {id!r}", in_="path")
    try:
        path = "/model/" + quote(id, safe="")
    except UnicodeEncodeError:
        message = "must be valid Unicode text, without lone surrogates"
        raise RequestInvalid.of("id", message, type="string_unicode", in_="path") from None
    return HttpCall("GET", path, _JSON_HEADERS, "undelivered")


def seed_of(answer: Answer) -> int | None:
    """Parse the seed in the response of a voicelab service; None if it has none."""
    seed = answer.headers.get(_SEED_HEADER, "")
    return int(seed) if seed.isascii() and seed.isdigit() and len(seed) < 20 else None


def notes_of(answer: Answer) -> tuple[str, ...]:
    """Parse the notes of a voicelab service from their header, a JSON array in ASCII; () if it is malformed."""
    value = answer.headers.get(_NOTES_HEADER, "")
    listed = _strings(_parsed(value.encode())) if len(value) <= _MAX_NOTES_LENGTH else ()
    return tuple(filter(None, (plain(note, _MAX_NOTES_LENGTH) for note in listed[:_MAX_NOTES])))


def voice_of(answer: Answer) -> VoiceModel:
    """Parse the record of a voice model. Raises ServiceError if it is malformed."""
    try:
        return VoiceModel.from_wire(_parsed(answer.body))
    except ServiceError as error:
        raise error_of(ServiceError, str(error), answer) from None


def voices_of(answer: Answer) -> tuple[VoiceModel, ...]:
    """Parse a list of voice models; malformed records are left out."""
    parsed = _parsed(answer.body)
    items = parsed.get("items") if isinstance(parsed, dict) else parsed
    voices: list[VoiceModel] = []
    for item in items if isinstance(items, list) else ():
        with suppress(ServiceError):
            voices.append(VoiceModel.from_wire(item))
    return tuple(voices)


def is_audio(answer: Answer, call: HttpCall | None = None) -> bool:
    """Return whether a successful response may be audio, by its media type.

    JSON, and text as sent by proxies, are not audio. Server-sent events are audio if ``call`` accepts them.
    """
    kind = _media_type(answer)
    if call is not None and kind == EVENT_STREAM and EVENT_STREAM in call.headers["accept"]:
        return True
    return not (kind.startswith("text/") or kind == "application/json")


def is_text(chunk: bytes) -> bool:
    """Test whether the first bytes of a response are HTML, XML or JSON, regardless of its media type."""
    return _TEXT.match(chunk) is not None


def no_audio(answer: Answer) -> ServiceError:
    """Return the error for a successful response without audio."""
    if is_audio(answer) and not answer.body:
        return error_of(ServiceError, "the service sent no audio", answer)
    kind = (
        f"text as {_media_type(answer) or 'audio'}" if is_audio(answer) else f"{_media_type(answer)} instead of audio"
    )
    start = f" ({plain(answer.body[:80].decode('utf-8', 'replace'))})" if answer.body else ""
    message = f"the service sent {kind}{start}; check that base_url is a speech service"
    return error_of(ServiceError, message, answer)


def failure(answer: Answer) -> VoicelabError:
    """Return the error for a response with an error status.

    A 422 in the format of the interface is converted to a RequestInvalid with the rejected fields, any other 422 to a
    RequestInvalid for the complete body. A 400 that names a parameter, as in OpenAI's API, is treated like a 422.
    """
    parsed = _parsed(answer.body)
    candidates = [parsed.get(key) for key in ("error", "detail")] if isinstance(parsed, dict) else []
    error = next((item for item in candidates if isinstance(item, dict)), None)
    parsed = error or parsed
    message = _message(parsed, answer.body)
    parameter = _string(error.get("param")) if isinstance(error, dict) else ""
    if answer.status == 422 or (answer.status == 400 and parameter):
        items = _items(parsed) or (FieldError(("body", *filter(None, parameter.split("."))), "invalid", message),)
        return RequestInvalid(items, status=422, body=answer.body, request_id=answer.request_id)
    kind = _KINDS.get(answer.status, ServiceUnavailable if answer.status >= 500 else ServiceError)
    if 300 <= answer.status < 400 and (location := answer.headers.get("location")):
        message = f"redirects are not followed; use the address {plain(location)}"
    after = answer.headers.get("retry-after", "")
    later = f" (Retry-After: {plain(after)}{' s' * after.isdigit()})" if after else ""
    return error_of(kind, f"the service answered {answer.status}{later}" + (f": {message}" if message else ""), answer)


def undeclared(base_url: str, seed: SeedSupport = "none") -> Capabilities:
    """Return the capabilities of a service that declares none; ``seed`` is "unknown" before its first response."""
    return Capabilities(
        name="service", models=MODELS, device="remote", seed=seed, fingerprint=base_url, open_ended=True
    )


def capabilities_of(answer: Answer, base_url: str) -> Capabilities:
    """Parse the capabilities of ``/health``; missing values are taken from `undeclared`."""
    default = undeclared(base_url)
    parsed = _parsed(answer.body) if answer.status == 200 else None
    declared = parsed.get("backend") if isinstance(parsed, dict) else None
    if not isinstance(declared, dict):
        return default
    seed, max_text, one_model = map(declared.get, ("seed", "max_text", "one_model"))
    models = tuple(model for model in MODELS if model in _strings(declared.get("models")))
    return Capabilities(
        name=_string(declared.get("name")) or default.name,
        models=models or default.models,
        device=default.device,
        seed=next((support for support in ("exact", "best-effort", "unknown") if seed == support), "none"),
        fingerprint=_string(declared.get("fingerprint")) or default.fingerprint,
        languages=_strings(declared.get("languages")),
        voices=tuple(_presets(declared.get("voices"))),
        max_text=max_text if type(max_text) is int and max_text > 0 else None,
        prices=_prices(declared.get("prices")),
        one_model=one_model if isinstance(one_model, bool) else None,
        fields=tuple(_supports(declared.get("fields"))),
        open_ended=True,
    )


def error_of(kind: type[ServiceError], message: str, answer: Answer) -> ServiceError:
    """Build an error with status, body and request ID of a response."""
    return kind(message, status=answer.status, body=answer.body, request_id=answer.request_id)


def _media_type(answer: Answer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


_KINDS: Final[Mapping[int, type[ServiceError]]] = {
    **dict.fromkeys((401, 403), AuthenticationError),
    402: PaymentRequired,
    404: NotFound,
    429: ServiceUnavailable,
    **dict.fromkeys((408, 504), ServiceTimeout),
}


def _items(parsed: object) -> tuple[FieldError, ...]:
    """Parse the invalid fields of a 422: a list, or ``{"detail": [...]}`` as from FastAPI; empty if it is malformed."""
    items: list[FieldError] = []
    listed = parsed.get("detail") if isinstance(parsed, dict) else parsed
    for item in listed if isinstance(listed, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("loc"), list) or not item["loc"]:
            return ()
        if listed is not parsed and not _string(item.get("msg")):
            return ()
        location, context = item.get("in", item["loc"][0]), item.get("ctx")
        items.append(
            FieldError(
                loc=tuple(plain(str(key)) for key in item["loc"]),
                type=plain(_string(item.get("type"))) or "invalid",
                msg=plain(_string(item.get("msg"))),
                # Some services send an object.
                ctx=context if context is None or isinstance(context, str) else _to_json(context),
                in_=location if location in _LOCATIONS else None,
            )
        )
    return tuple(items)


def _to_json(value: object) -> str | None:
    try:
        return json.dumps(value)
    except RecursionError:
        return None


def _message(parsed: object, body: bytes) -> str:
    text = ""
    if isinstance(parsed, dict):
        text = next((parsed[key] for key in ("message", "detail", "error") if isinstance(parsed.get(key), str)), "")
    return plain(text or body[: 4 * _MAX_MESSAGE_LENGTH].decode("utf-8", "replace"))


def plain(text: str, max_length: int = _MAX_MESSAGE_LENGTH) -> str:
    """Remove control characters and lone surrogates from text of a service, and truncate it."""
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= max_length else text[:max_length] + "…"


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _packed(fields: Mapping[str, object]) -> bytes:
    return cast("bytes", msgpack.packb(fields, use_bin_type=True))


def _form(fields: Mapping[str, Any]) -> tuple[bytes, str]:
    """Encode multipart/form-data with httpx; return body and content type."""
    rest = dict(fields)
    # File names are unknown; services detect the format from the content.
    files = [(f"voices[{number}]", ("upload", data)) for number, data in enumerate(rest.pop("voices"))]
    if "cover_image" in rest:
        files.append(("cover_image", ("upload", rest.pop("cover_image"))))
    form = httpx.Request("POST", "http://form", data=rest, files=files)
    return form.read(), form.headers["content-type"]


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _prices(value: object) -> tuple[Price, ...] | None:
    try:
        return _PRICES.validate_python(value)
    except ValidationError:
        return None  # unknown


def _supports(value: object) -> Iterable[FieldSupport]:
    for item in value if isinstance(value, list) else ():
        with suppress(ValidationError):
            yield _SUPPORT.validate_python(item)


def _presets(value: object) -> Iterable[VoicePreset]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and _string(item.get("id")):
            name = _string(item["id"])
            yield VoicePreset(name, _string(item.get("title")) or name, _string(item.get("description")))
