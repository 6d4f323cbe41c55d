"""The interface as calls and answers, without a connection: what every transport of the client shares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import quote

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
from pydantic import TypeAdapter, ValidationError

from voicelab.call import Call, VoicePreset
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
"""When a call may be made again: while nothing of the answer was delivered, or only if it never got out."""

Upload = Literal["msgpack", "multipart"]
"""How recordings are sent: MessagePack, or a form."""

_SEED_HEADER = "x-voicelab-seed"
_NOTES_HEADER = "x-voicelab-notes"
_AGENT = f"voicelab/{__version__}"
_REQUEST_IDS = ("x-request-id", "request-id", "x-correlation-id", "x-amzn-requestid", "x-amz-request-id", "cf-ray")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_LONGEST_MESSAGE = 300
_LONGEST_NOTES = 4096
_MOST_NOTES = 32
_PLACES = ("path", "query", "header", "cookie", "body")
_PRICES = TypeAdapter(tuple[Price, ...])
_SUPPORT = TypeAdapter(FieldSupport)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One HTTP request, except for the address and the key, which the transport adds."""

    method: Literal["GET", "POST"]
    path: str
    headers: Mapping[str, str]
    repeat: Repeat
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The status, headers (found by names in lower case) and body of an HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def request_id(self) -> str | None:
        """The service's name for the call, where it gives one."""
        return next((self.headers[name] for name in _REQUEST_IDS if name in self.headers), None)


_PLAIN = {"accept": "application/json", "user-agent": _AGENT}
HEALTH = HttpCall("GET", "/health", _PLAIN, "undelivered")
"""What a service of ours declares about itself; others answer 404, which is fine."""

ACCEPT: Final = "audio/*, application/json"
"""What every call for speech takes: audio, or what went wrong."""

EVENT_STREAM: Final = "text/event-stream"
"""The media type of server-sent events."""

CHECK = HttpCall("POST", "/v1/tts", {**_PLAIN, "content-type": "application/json"}, "undelivered", b"{}")
"""Speech without a text: a service that takes the key refuses it as invalid, and speaks nothing."""


def speech_call(call: Call) -> HttpCall:
    """Return ``POST /v1/tts``: JSON, or MessagePack when there is reference audio to carry.

    Every field is sent, defaults too, so that a service with other defaults says the same. The seed
    goes in a header of ours and is sent only when given.
    """
    request = call.request
    fields = {name: value for name, value in request.to_wire().items() if value is not None}
    if request.reference_id is not None or not fields.get("references"):
        fields.pop("references", None)  # ignored, or empty: not worth carrying
    seed = {} if call.seed is None else {_SEED_HEADER: str(call.seed)}
    return sound_call("/v1/tts", fields, binary="references" in fields, model=call.model, **seed)


def sound_call(path: str, fields: Mapping[str, object], *, binary: bool = False, **more: str) -> HttpCall:
    """Return a call for speech: JSON in, or MessagePack; audio out, or what the header ``accept`` in ``more`` names."""
    kind = "application/msgpack" if binary else "application/json"
    # Audio does not shrink, and a compressor on the way would hold chunks back.
    headers = {**_PLAIN, "accept": ACCEPT, "accept-encoding": "identity", "content-type": kind, **more}
    return HttpCall("POST", path, headers, "undelivered", _packed(fields) if binary else _json(fields))


def create_call(request: VoiceCreate, upload: Upload = "msgpack") -> HttpCall:
    """Return ``POST /model``: MessagePack, in which several texts and tags have one meaning, or a form.

    A form has the recordings as ``voices[0]``, ``voices[1]`` …, and repeats ``texts`` and ``tags``. The
    call is not repeated once it may have arrived: a second voice would be made.
    """
    fields = {name: value for name, value in request.to_wire().items() if value is not None and value != []}
    content, kind = _form(fields) if upload == "multipart" else (_packed(fields), "application/msgpack")
    return HttpCall("POST", "/model", {**_PLAIN, "content-type": kind}, "unsent", content)


def get_call(id: str) -> HttpCall:
    """Return ``GET /model/{id}``. Raises RequestInvalid for an id that no path can carry."""
    if not id or id in {".", ".."}:
        raise RequestInvalid.of("id", "Input should be the identifier of a voice model", in_="path")
    try:
        path = "/model/" + quote(id, safe="")
    except UnicodeEncodeError:
        message = "Input should be valid Unicode text, without lone surrogates"
        raise RequestInvalid.of("id", message, type="string_unicode", in_="path") from None
    return HttpCall("GET", path, _PLAIN, "undelivered")


def seed_of(answer: Answer) -> int | None:
    """Return the seed that a service of ours says it spoke with, or None."""
    seed = answer.headers.get(_SEED_HEADER, "")
    return int(seed) if seed.isascii() and seed.isdigit() and len(seed) < 20 else None


def notes_of(answer: Answer) -> tuple[str, ...]:
    """Return the notes that a service of ours gives in a header, a JSON array in ASCII; none where it is anything else."""
    value = answer.headers.get(_NOTES_HEADER, "")
    listed = _strings(_parsed(value.encode())) if len(value) <= _LONGEST_NOTES else ()
    return tuple(filter(None, (plain(note, _LONGEST_NOTES) for note in listed[:_MOST_NOTES])))


def voice_of(answer: Answer) -> VoiceModel:
    """Return the voice model record of an answer. Raises ServiceError when there is none in it."""
    try:
        return VoiceModel.from_wire(_parsed(answer.body))
    except ServiceError as error:
        raise error_of(ServiceError, str(error), answer) from None


def is_audio(answer: Answer, call: HttpCall | None = None) -> bool:
    """Whether an answer of status 200 can be audio; a page or a message, as proxies give, cannot.

    Of the answer to ``call``, events can too, where it asked for them.
    """
    kind = _media_type(answer)
    if call is not None and kind == EVENT_STREAM and EVENT_STREAM in call.headers["accept"]:
        return True
    return not (kind.startswith("text/") or kind == "application/json")


def no_audio(answer: Answer) -> ServiceError:
    """Return the error that an answer of status 200 means which is no audio."""
    if is_audio(answer):
        return error_of(ServiceError, "the service gave no audio", answer)
    what = f"{_media_type(answer)}, not audio: is this the address of a speech service?"
    return error_of(ServiceError, f"the service answered with {what}", answer)


def failure(answer: Answer) -> VoicelabError:
    """Return the error that an answer of any status but success means.

    A 422 in the interface's shape becomes RequestInvalid with the service's own fields, a 422 of any
    other shape one for the whole body; so does a 400 that names a parameter, as OpenAI's API has it.
    """
    parsed = _parsed(answer.body)
    error = parsed.get("error") if isinstance(parsed, dict) else None
    parsed = error if isinstance(error, dict) else parsed
    message = _message(parsed, answer.body)
    parameter = _string(error.get("param")) if isinstance(error, dict) else ""
    if answer.status == 422 or (answer.status == 400 and parameter):
        items = _items(parsed) or (FieldError(("body", *filter(None, parameter.split("."))), "invalid", message),)
        return RequestInvalid(items, status=422, body=answer.body, request_id=answer.request_id)
    kind = _KINDS.get(answer.status, ServiceUnavailable if answer.status >= 500 else ServiceError)
    return error_of(kind, f"the service answered {answer.status}: {message}", answer)


def undeclared(base_url: str, seed: SeedSupport = "none") -> Capabilities:
    """Return what is assumed of a service that declares nothing; ``seed`` is "unknown" while it was not reached."""
    return Capabilities(name="service", models=MODELS, device="remote", seed=seed, fingerprint=base_url)


def capabilities_of(answer: Answer, base_url: str) -> Capabilities:
    """Return what a service declares at ``/health``; what it leaves out is as for any service."""
    plain = undeclared(base_url)
    parsed = _parsed(answer.body) if answer.status == 200 else None
    declared = parsed.get("backend") if isinstance(parsed, dict) else None
    if not isinstance(declared, dict):
        return plain
    seed, longest, one = map(declared.get, ("seed", "max_text", "one_model"))
    models = tuple(model for model in MODELS if model in _strings(declared.get("models")))
    return Capabilities(
        name=_string(declared.get("name")) or plain.name,
        models=models or plain.models,
        device=plain.device,
        seed=seed if seed == "exact" or seed == "best-effort" else "none",  # noqa: PLR1714 - it may be unhashable
        fingerprint=_string(declared.get("fingerprint")) or plain.fingerprint,
        languages=_strings(declared.get("languages")),
        voices=tuple(_presets(declared.get("voices"))),
        max_text=longest if type(longest) is int and longest > 0 else None,
        prices=_prices(declared.get("prices")),
        one_model=one if isinstance(one, bool) else None,
        fields=tuple(_supports(declared.get("fields"))),
    )


def error_of(kind: type[ServiceError], message: str, answer: Answer) -> ServiceError:
    """Return an error of this kind, with what the answer says of itself."""
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
    items: list[FieldError] = []
    for item in parsed if isinstance(parsed, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("loc"), list) or not item["loc"]:
            return ()
        place, context = item.get("in"), item.get("ctx")
        items.append(
            FieldError(
                loc=tuple(plain(str(part)) for part in item["loc"]),
                type=plain(_string(item.get("type"))) or "invalid",
                msg=plain(_string(item.get("msg"))),
                # Some services send an object here.
                ctx=context if context is None or isinstance(context, str) else _shown(context),
                in_=place if place in _PLACES else None,
            )
        )
    return tuple(items)


def _shown(value: object) -> str | None:
    try:
        return json.dumps(value)
    except RecursionError:
        return None


def _message(parsed: object, body: bytes) -> str:
    text = ""
    if isinstance(parsed, dict):
        text = next((parsed[key] for key in ("message", "detail", "error") if isinstance(parsed.get(key), str)), "")
    return plain(text or body[: 4 * _LONGEST_MESSAGE].decode("utf-8", "replace"))


def plain(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Return text of a service without control characters and lone surrogates, cut to ``longest`` characters."""
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= longest else text[:longest] + "…"


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
    """Return a body of multipart/form-data and its content type; httpx knows how one is written."""
    rest = dict(fields)
    # A service goes by what a file holds: nobody here knows its name.
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
        return None  # a table that cannot be read is an unknown price


def _supports(value: object) -> Iterable[FieldSupport]:
    for item in value if isinstance(value, list) else ():
        with suppress(ValidationError):
            yield _SUPPORT.validate_python(item)


def _presets(value: object) -> Iterable[VoicePreset]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and _string(item.get("id")):
            name = _string(item["id"])
            yield VoicePreset(name, _string(item.get("title")) or name, _string(item.get("description")))
