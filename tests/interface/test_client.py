"""The client's side: what vl.connect(url) and ServiceBackend send to a service, and what becomes of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import voicelab as vl
from tests.interface import tables
from tests.interface.containers import wav
from tests.interface.foreign import KEY, Foreign, record, serving
from tests.interface.rules import each, proves
from tests.interface.sound import file
from tests.interface.test_fields import OF_TYPE
from tests.interface.wire import JSON, MSGPACK
from voicelab.backends.caller import RetryPolicy
from voicelab.backends.service import ServiceBackend
from voicelab.call import Call

PCM = (8000 * np.sin(np.arange(44100 // 2) / 20)).astype("<i2").tobytes()
REFERENCE = vl.ReferenceAudio(audio=b"bytes", text="A transcript.")
CALLS: dict[str, Callable[[ServiceBackend], Any]] = {
    "POST /v1/tts": lambda backend: b"".join(backend.synthesize(Call(vl.TTSRequest(text="Hi")))),
    "POST /model": lambda backend: backend.create_voice(
        vl.VoiceCreate(title="Ada", voices=(b"x",), visibility="private")
    ),
    "GET /model": lambda backend: backend.get_voice("x"),
}
STATUSES: dict[int, type[vl.ServiceError]] = {
    **dict.fromkeys((307, 400, 413, 415, 418), vl.ServiceError),
    **dict.fromkeys((401, 403), vl.AuthenticationError),
    402: vl.PaymentRequired,
    404: vl.NotFound,
    **dict.fromkeys((408, 504), vl.ServiceTimeout),
    **dict.fromkeys((429, 500, 502, 503), vl.ServiceUnavailable),
}

AUDIO = {"pcm": PCM, **{kind.lower(): file(PCM, kind, 44100) for kind in ("WAV", "MP3", "OPUS")}}


@pytest.fixture
def service() -> Iterator[Foreign]:
    """A service of somebody else, who wrote it from the interface document."""
    with serving() as service:
        service.audio = AUDIO
        yield service


@pytest.fixture
def backend(service: Foreign) -> Iterator[ServiceBackend]:
    with ServiceBackend(service.url, KEY, retry=RetryPolicy(attempts=1)) as backend:
        yield backend


@pytest.fixture
def lab(service: Foreign) -> Iterator[vl.Lab]:
    with vl.connect(service.url, api_key=KEY) as lab:
        yield lab


def _sent(backend: ServiceBackend, service: Foreign, **fields: Any) -> dict[str, Any]:
    request = vl.TTSRequest.build(**{"text": "Hi", "format": "pcm", **fields})
    assert b"".join(backend.synthesize(Call(request))) == AUDIO[request.format]
    value: dict[str, Any] = service.last.value
    return value


@each("2.1/{}:type", tables.TTS_REQUEST)
def test_field_is_sent_as_named(backend: ServiceBackend, service: Foreign, row: str) -> None:
    if row == "references":
        assert _sent(backend, service, references=[REFERENCE])[row] == [{"audio": b"bytes", "text": "A transcript."}]
        return
    for more in ({}, {} if row == "reference_id" else {"references": [REFERENCE]}):
        value = _sent(backend, service, **{row: OF_TYPE[row]}, **more)
        assert service.last.kind == (MSGPACK if more else JSON)
        expected = {"speed": 1.5, "volume": 0} if row == "prosody" else OF_TYPE[row]
        assert value[row] == expected
        assert type(value[row]) is type(expected)


@each("2.1/{}:default", [name for name, field in tables.TTS_REQUEST.items() if field.default is not tables.MISSING])
def test_what_is_not_given_means_its_default(backend: ServiceBackend, service: Foreign, row: str) -> None:
    request = vl.TTSRequest.build(text="Hi")
    b"".join(backend.synthesize(Call(request)))
    assert service.last.value.get(row, tables.TTS_REQUEST[row].default) == tables.TTS_REQUEST[row].default
    assert set(service.last.value) <= set(tables.TTS_REQUEST)


@each("2.2/{}:type", tables.REFERENCE_AUDIO)
def test_reference_is_sent_as_named(lab: vl.Lab, service: Foreign, row: str) -> None:
    lab.speak("Hi", references=[REFERENCE, vl.ReferenceAudio(audio=bytes(range(256)), text="é")])
    value = service.last.value["references"][1][row]
    assert value == (bytes(range(256)) if row == "audio" else "é")


@each("2.3/{}:type", tables.PROSODY_CONTROL)
def test_prosody_is_sent_as_named(lab: vl.Lab, service: Foreign, row: str) -> None:
    lab.speak("Hi", prosody=vl.ProsodyControl(speed=1.25, volume=-3))
    assert service.last.value["prosody"][row] == {"speed": 1.25, "volume": -3}[row]


@proves("4.1-5", "2.1/references:msgpack")
def test_references_go_out_in_messagepack_and_the_rest_in_json(lab: vl.Lab, service: Foreign) -> None:
    lab.speak("Hi")
    assert service.last.kind == JSON
    lab.speak("Hi", references=[REFERENCE])
    assert service.last.kind == MSGPACK
    ignored: dict[str, Any]
    for ignored in ({"references": [REFERENCE], "reference_id": "v"}, {"references": []}):
        lab.speak("Hi", **ignored)
        assert service.last.kind == JSON
        assert "references" not in service.last.value


@proves("1-9", "9-2", "9-3")
def test_paths_follow_the_base_address(service: Foreign) -> None:
    service.records["x"] = record()
    for base, prefix in ((service.url, ""), (f"{service.url}/", ""), (f"{service.url}/voices/api", "/voices/api")):
        with vl.connect(base, api_key=KEY) as lab:
            lab.speak("Hi")
            lab.create_voice("Ada", file(PCM, "WAV"))
            lab.get_voice("x")
        calls = [(call.method, call.path) for call in service.calls[-3:]]
        assert calls == [("POST", f"{prefix}/v1/tts"), ("POST", f"{prefix}/model"), ("GET", f"{prefix}/model/x")]


@proves("5-1", "5-2")
def test_the_key_is_sent_as_bearer_credential_with_all_three(lab: vl.Lab, service: Foreign) -> None:
    service.records["x"] = record()
    lab.speak("Hi")
    lab.create_voice("Ada", file(PCM, "WAV"))
    lab.get_voice("x")
    assert [call.headers["authorization"] for call in service.calls] == [f"Bearer {KEY}"] * 3


@proves("5-5")
def test_the_key_shows_nowhere(lab: vl.Lab, service: Foreign) -> None:
    service.answer(401, {"status": 401, "message": f"Bearer {KEY} is not accepted"})
    with pytest.raises(vl.AuthenticationError) as caught:
        lab.speak("Hi")
    shown = repr(lab) + repr(lab.backend) + repr(lab.capabilities) + repr(caught.value) + str(caught.value)
    clip = lab.speak("Hi")
    assert KEY not in shown + repr(clip) + repr(clip.take)
    assert all(KEY not in call.path for call in service.calls)


@each("4.1/model={}", tables.MODELS)
def test_model_is_sent_in_the_header(lab: vl.Lab, service: Foreign, row: Any) -> None:
    lab.speak("Hi", model=row)
    assert service.last.headers["model"] == row
    assert "model" not in service.last.value


@proves("4.1/model:default")
def test_model_s2_pro_is_sent_by_default(lab: vl.Lab, service: Foreign) -> None:
    lab.speak("Hi")
    assert service.last.headers["model"] == "s2-pro"


@each("2.1/{}", [f"format={kind}" for kind in tables.RATES])
def test_each_format_of_a_foreign_service_becomes_a_clip(lab: vl.Lab, service: Foreign, row: str) -> None:
    kind: Any = row.partition("=")[2]
    clip = lab.speak("Hi", format=kind)
    assert service.last.value["format"] == kind
    assert clip.rate == tables.RATES[kind][1]
    assert clip.duration == pytest.approx(0.5, abs=0.06)
    assert np.abs(clip.samples).max() == pytest.approx(8000 / 32768, rel=0.1)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", STATUSES)
@proves("7.1/401:body", "7.1/402:body")
def test_status_and_message_become_an_error(backend: ServiceBackend, service: Foreign, call: str, status: int) -> None:
    for body, said in (
        (b'{"status": %d, "message": "Said by the service"}' % status, True),
        (b"<html>", False),
        (b"", False),
    ):
        service.answer(status, body)
        with pytest.raises(STATUSES[status]) as caught:
            CALLS[call](backend)
        assert type(caught.value) is STATUSES[status]
        assert caught.value.status == status
        assert str(status) in str(caught.value)
        assert caught.value.body == body
        assert ("Said by the service" in str(caught.value)) == said


def _refused(backend: ServiceBackend, service: Foreign, items: object, call: str = "POST /v1/tts") -> vl.RequestInvalid:
    service.answer(422, items)
    with pytest.raises(vl.RequestInvalid) as caught:
        CALLS[call](backend)
    return caught.value


@proves("7.1/422:body", "7.1/422:loc", "7.1/422:type", "7.1/422:msg")
def test_a_422_becomes_an_error_with_its_fields(backend: ServiceBackend, service: Foreign) -> None:
    items = [
        {"loc": ["body", "prosody", "speed"], "type": "less_than_equal", "msg": "Too fast"},
        {"loc": ["body", "references", "0", "audio"], "type": "audio", "msg": "No audio", "ctx": "mp3", "in": "body"},
    ]
    for call in ("POST /v1/tts", "POST /model"):
        error = _refused(backend, service, items, call)
        found = [(list(one.loc), one.type, one.msg) for one in error.errors]
        assert found == [(item["loc"], item["type"], item["msg"]) for item in items]
        assert (error.status, json.loads(error.body or b"")) == (422, items)
        assert "Too fast" in str(error)
        assert "No audio" in str(error)


@proves("7.1/422:ctx")
def test_ctx_of_a_422_is_optional(backend: ServiceBackend, service: Foreign) -> None:
    plain = {"loc": ["body", "text"], "type": "t", "msg": "m"}
    refused = _refused(backend, service, [plain, {**plain, "ctx": "some context"}])
    assert [error.ctx for error in refused.errors] == [None, "some context"]


@each("7.1/422:in={}", tables.ERROR_PLACES)
@proves("7.1/422:in")
def test_in_of_a_422(backend: ServiceBackend, service: Foreign, row: str) -> None:
    plain = {"loc": [row, "x"], "type": "t", "msg": "m"}
    refused = _refused(backend, service, [plain, {**plain, "in": row}])
    assert refused.errors[1].in_ == row
    assert [error.loc for error in refused.errors] == [(row, "x")] * 2


@each("2.4/{}:required", tables.VOICE_MODEL)
def test_field_of_a_foreign_record(backend: ServiceBackend, service: Foreign, row: str) -> None:
    full = record(
        description="d", cover_image="https://x/c.png", tags=["a"], like_count=1, mark_count=2, shared_count=3, task_count=4,
        train_mode="fast", samples=[{"title": "t", "text": "x", "task_id": "i", "audio": "u", "kind": 1}, {}],
        languages=["en"], lock_visibility=True, unliked=True, liked=True, marked=True,
        author={"_id": "1", "nickname": "n", "avatar": "", "x": 1}, default_text="more than the document shows",
    )  # fmt: skip
    service.records |= {"full": full, "some": {name: value for name, value in record().items() if name != row}}
    got = getattr(backend.get_voice("full"), row.removeprefix("_"))
    if row.endswith("_at"):
        assert got == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    elif row == "author":
        assert (got.id, got.nickname, got.avatar) == ("1", "n", "")
    elif row == "samples":
        assert [(one.title, one.text, one.task_id, one.audio) for one in got] == [("t", "x", "i", "u"), ("",) * 4]
    else:
        assert (list(got) if isinstance(got, tuple) else got) == full[row]
    if not tables.VOICE_MODEL[row].required:
        assert backend.get_voice("some").title == "Ada"


@each("2.4/{}:default", ["train_mode", "lock_visibility", "unliked", "liked", "marked"])
def test_default_of_a_foreign_record(backend: ServiceBackend, service: Foreign, row: str) -> None:
    service.records["x"] = record()
    assert getattr(backend.get_voice("x"), row) == tables.VOICE_MODEL[row].default


@each("2.4/{}", [f"{name}={value}" for name, field in tables.VOICE_MODEL.items() for value in field.values])
@proves("3-1")
def test_value_of_a_foreign_record(backend: ServiceBackend, service: Foreign, row: str) -> None:
    name, _, value = row.partition("=")
    service.records["x"] = record(**{name: value})
    assert getattr(backend.get_voice("x"), name) == value


@each("4.2/{}:type", tables.VOICE_FORM)
def test_field_of_a_voice_is_sent_as_named(service: Foreign, row: str) -> None:
    fields: dict[str, Any] = {
        "type": "tts", "title": 'Ada é\n"x"', "train_mode": "fast", "visibility": "unlist", "description": "a\r\nb",
        "voices": [b"first\r\n--", b"second"], "texts": ["one, two", "three"], "tags": ["calm, low", "high"],
        "cover_image": b"picture", "enhance_audio_quality": True,
    }  # fmt: skip
    request = vl.VoiceCreate(**fields)
    with ServiceBackend(service.url, KEY) as backend:
        assert backend.create_voice(request).title == "Ada"
    assert service.last.kind == MSGPACK
    assert service.last.value[row] == fields[row]
    with ServiceBackend(service.url, KEY, upload="multipart") as backend:
        backend.create_voice(request)
    assert service.last.kind == "multipart/form-data"
    found = [(file, data) for name, file, data in service.last.parts if name.partition("[")[0] == row]
    given = fields[row] if isinstance(fields[row], list) else [fields[row]]
    spelled = [one if isinstance(one, bytes) else b"true" if one is True else one.encode() for one in given]
    assert [data for _, data in found] == spelled
    assert all((file is not None) == (row in {"voices", "cover_image"}) for file, _ in found)


@proves("4.2-6", "1-6")
def test_any_success_of_a_creation_is_one(backend: ServiceBackend, service: Foreign) -> None:
    for status in (200, 201):
        service.answer(status, record(title=f"after {status}"))
        assert CALLS["POST /model"](backend).title == f"after {status}"


@proves("4.3-2", "4.3-4", "1-8")
def test_an_id_is_sent_whole_in_the_path(backend: ServiceBackend, service: Foreign) -> None:
    for name, path in (("abc", "abc"), ("a/b?c#d e", "a%2Fb%3Fc%23d%20e"), ("..a", "..a"), ("é", "%C3%A9")):
        with pytest.raises(vl.NotFound):
            backend.get_voice(name)
        assert service.last.path.upper() == f"/model/{path}".upper()
        assert service.last.body == b""
    service.calls.clear()
    for no_part_of_a_path in ("", ".", "..", "\ud800"):
        with pytest.raises(vl.RequestInvalid) as caught:
            backend.get_voice(no_part_of_a_path)
        assert caught.value.errors[0].in_ == "path"
    assert service.calls == []


@proves("D-20")
def test_no_seed_is_sent_to_a_service_that_does_not_say_it_takes_one(lab: vl.Lab, service: Foreign) -> None:
    assert (lab.capabilities.seed, lab.capabilities.fingerprint) == ("none", service.url)
    with pytest.raises(vl.RequestInvalid, match="seed"):
        lab.speak("Hi", seed=7)
    assert service.calls == []
    lab.speak("Hi")
    assert not [name for name in service.last.headers if "seed" in name.lower()]


@proves("D-5")
def test_own_constructors_refuse_unknown_keys(lab: vl.Lab, service: Foreign) -> None:
    for build in (
        lambda: vl.TTSRequest.build(text="Hi", temprature=1),
        lambda: lab.speak("Hi", temprature=1),  # type: ignore[call-arg]
        lambda: lab.create_voice("Ada", b"x", titel="x"),
        lambda: vl.connect(service.url, temprature=1),  # type: ignore[call-arg]
    ):
        with pytest.raises(vl.RequestInvalid):
            build()
    assert service.calls == []


@proves("D-2")
def test_a_saved_wav_says_its_sizes(lab: vl.Lab, tmp_path: Any) -> None:
    lab.speak("Hi").save(tmp_path / "hi.wav")
    raw = (tmp_path / "hi.wav").read_bytes()
    found = wav(raw)
    assert (found.riff_size, found.data_size) == (len(raw) - 8, len(raw) - 44)
