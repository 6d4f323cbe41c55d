"""OpenAIBackend against our own service, and against what servers of that API do otherwise."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voicelab as vl
from tests.backends.conftest import QUICK, Act, Script, chunked, reply
from tests.backends.servers import Stub, serving
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.audio.formats import encode
from voicelab.backends.openai import OpenAIBackend, open_openai
from voicelab.call import Call, Knob
from voicelab.schema import VoiceCreate
from voicelab.sweeps.knobs import UNKNOWN_FIELD, probe_fields

TONE = (0.3 * np.sin(np.arange(12_000) / 10)).astype(np.float32)
WAV = encode(TONE, "wav", 24_000, 24_000)
JSON = {"content_type": "application/json"}
LISTS: tuple[Act, ...] = (
    reply(200, b'{"object":"list","data":[{"id":"whisper-1"},{"id":"my-tts"}]}', **JSON),
    reply(200, b'{"voices":["ann",{"id":"bob","name":"Bob"}]}', **JSON),
)


@pytest.fixture
def backend(script: Script) -> Iterator[OpenAIBackend]:
    with OpenAIBackend(script.url, "sk-secret", retry=QUICK, timeout=5) as backend:
        yield backend


def call(backend: OpenAIBackend, **fields: Any) -> Call:
    return Call.of("Hello.", knobs=backend.capabilities.knobs, **fields)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_client_with_voicelab_server(start: Start, stream_format: Any) -> None:
    knob = Knob("instructions", "str", "")
    service = start(ToneBackend(knobs=(knob,)), openai=True)
    with OpenAIBackend(service.url + "/v1/", service.secret, stream_format=stream_format) as backend:
        backend.check()
        can = backend.capabilities
        assert can.models == ("s1", "s2-pro")  # no name has tts in it: all of them
        assert [(voice.id, voice.title) for voice in can.voices] == [("ada", "Ada"), ("ben", "Ben")]
        made = call(backend, voice="ben", speed=1.5, model="s1", instructions="Whisper.", sample_rate=44100)
        clip = backend.synthesize(made).clip()
        request, model, _ = service.backend.asked[-1]
        assert (request.reference_id, request.format, model) == ("ben", "wav", "s1")
        assert request.prosody.speed == 1.5
        direct = service.backend.synthesize(Call(request.replace(sample_rate=44100), model)).clip()
        assert np.allclose(clip.samples, direct.samples, atol=1e-4)
        with pytest.raises(vl.RequestInvalid, match=r"reference_id|voice"):
            backend.synthesize(call(backend, voice="eve")).take()
    with OpenAIBackend(service.url, "vl_wrong") as stranger, pytest.raises(vl.AuthenticationError):
        stranger.check()
    with pytest.raises(vl.RequestInvalid, match="stream_format: must be 'audio' or 'sse', got "):
        open_openai(f"{service.url}?stream_format=xml")


def test_request_body(backend: OpenAIBackend, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.acts += [*LISTS, chunked(WAV, kind="audio/wav"), chunked(WAV, kind="audio/wav")]
    backend.synthesize(call(backend, instructions="Gently.", speed=0.5, model="my-tts")).take()
    backend.synthesize(call(backend)).take()
    head, _, body = script.asked[2].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/audio/speech ")
    assert b"authorization: bearer sk-secret" in head.lower()
    expected = {"model": "my-tts", "input": "Hello.", "voice": "ann", "response_format": "wav"}
    assert json.loads(body) == {**expected, "speed": 0.5, "instructions": "Gently."}
    assert json.loads(script.asked[3].partition(b"\r\n\r\n")[2]) == expected
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    with open_openai(script.url) as other:
        script.acts.append(reply(200, b"{}"))
        other.check()
    assert b"bearer sk-other" in script.asked[-1].lower()
    assert "sk-secret" not in repr(backend) + str(vars(backend))


@pytest.mark.parametrize("rate", [16_000, 24_000, 44_100])
@pytest.mark.parametrize("size", [1, 7_000, len(WAV)])
def test_audio_is_converted_to_rate_and_volume(backend: OpenAIBackend, script: Script, rate: int, size: int) -> None:
    pieces = [WAV[at : at + size] for at in range(0, len(WAV), size)][: len(WAV) if size > 1 else 300]
    pieces.append(WAV[sum(map(len, pieces)) :])
    script.acts += [*LISTS, chunked(*filter(None, pieces), kind="audio/wav")]
    clip = backend.synthesize(call(backend, sample_rate=rate, volume=-6.0206)).clip()
    assert clip.rate == rate
    assert clip.duration == pytest.approx(0.5, abs=0.001)
    assert np.abs(clip.samples).max() == pytest.approx(0.15, abs=0.005)


def test_ignored_fields_are_noted_and_references_rejected(backend: OpenAIBackend, script: Script) -> None:
    script.acts += [*LISTS, chunked(WAV, kind="audio/wav")]
    take = backend.synthesize(call(backend, temperature=0.1, format="mp3")).take()
    assert take.notes == ("temperature had no effect: not supported by OpenAI's API.",)
    reference = vl.Clip(TONE, 24_000).to_bytes("wav")
    with pytest.raises(
        vl.RequestInvalid, match="references: the server would ignore a recording; connect with profile="
    ):
        vl.Lab(backend).speak("Hello.", references=reference)
    with pytest.raises(vl.RequestInvalid, match="voices"):
        backend.create_voice(VoiceCreate(title="Ada", voices=(b"RIFF",), visibility="private"))
    with pytest.raises(vl.NotFound, match="ada"):
        backend.get_voice("ada")


def sglang_events(*audio: bytes) -> bytes:
    chunks = [{"object": "audio.speech.chunk", "audio": {"data": base64.b64encode(part).decode()}} for part in audio]
    chunks.append({"object": "audio.speech.chunk", "audio": None, "finish_reason": "stop"})  # type: ignore[dict-item]
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks) + b"data: [DONE]\n\n"


def events(*audio: bytes, done: bool = True, line: bytes = b"\n") -> bytes:
    deltas = [{"type": "speech.audio.delta", "audio": base64.b64encode(part).decode()} for part in audio]
    last = [{"type": "speech.audio.done", "usage": {"total_tokens": 3}}] if done else []
    return b": hello" + line + b"".join(b"data: " + json.dumps(one).encode() + 2 * line for one in (*deltas, *last))


@pytest.mark.parametrize(
    "body",
    [
        events(WAV[:5000], WAV[5000:]),
        events(WAV, line=b"\r\n"),
        events(WAV[:10_044], WAV[:44] + WAV[10_044:]),
        sglang_events(WAV[:10_044], WAV[:44] + WAV[10_044:]),
        WAV,
    ],
    ids=["events", "crlf", "files", "sglang-omni", "audio all the same"],
)
@pytest.mark.parametrize("size", [997, 100_000])
def test_server_sent_events_give_the_same_audio(script: Script, body: bytes, size: int) -> None:
    kind = "audio/wav" if body == WAV else "text/event-stream"
    script.acts += [*LISTS, chunked(*(body[at : at + size] for at in range(0, len(body), size)), kind=kind)]
    with open_openai(f"{script.url}?stream_format=sse") as backend:
        clip = backend.synthesize(call(backend, sample_rate=24000)).clip()
    assert json.loads(script.asked[2].partition(b"\r\n\r\n")[2])["stream_format"] == "sse"
    assert np.allclose(clip.samples, TONE, atol=1e-4)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (chunked(events(WAV[:5000], done=False), kind="text/event-stream"), vl.StreamTruncated, "5000 bytes of audio"),
        (chunked(b'data: {"error":{"message":"no voice"}}\n\n', kind="text/event-stream"), vl.ServiceError, "no voice"),
        (
            chunked(
                b'event: speech.audio.error\ndata: {"type":"speech.audio.error","error":{"message":"no GPU","code":500}}\n\n',
                kind="text/event-stream",
            ),
            vl.ServiceError,
            "no GPU",
        ),
        (
            chunked(b'data: {"type":"x"}\n\ndata: [DONE]\n\n', kind="text/event-stream"),
            vl.ServiceError,
            "without audio",
        ),
        (chunked(b"data: <html>\n\n", kind="text/event-stream"), vl.ServiceError, "malformed event: .*html"),
        (chunked(b"<html>", kind="text/html"), vl.ServiceError, "text/html instead of audio"),
    ],
)
def test_errors_of_events(script: Script, act: Act, error: type[Exception], message: str) -> None:
    script.acts += [*LISTS, act]
    backend = OpenAIBackend(script.url, retry=QUICK, timeout=5, stream_format="sse")
    with backend, pytest.raises(error, match=message):
        backend.synthesize(call(backend)).take()


@pytest.mark.parametrize(
    ("acts", "error", "message"),
    [
        ([chunked(b"<html>", kind="text/html")], vl.ServiceError, "text/html instead of audio"),
        ([chunked(b'{"ok": 1}', kind="audio/wav")], vl.ServiceError, r'text as audio/wav \(\{"ok": 1\}\); check'),
        ([chunked(b"<?xml version='1.0'?>", kind="")], vl.ServiceError, "text as audio .*xml"),
        ([reply(301, location="https://other.example")], vl.ServiceError, "redirects are not followed; use the address https://other"),
        ([reply(413)], vl.ServiceError, "answered 413$"),
        ([reply(401, b'{"error":{"message":"no key sk-secret","code":"x"}}')], vl.AuthenticationError, r"no key \*\*\*"),
        ([reply(400, b'{"error":{"message":"no such voice","param":"voice"}}')], vl.RequestInvalid, "voice: no such voice"),
        ([reply(400, b'{"error":{"message":"too long"}}')], vl.ServiceError, "too long"),
        ([reply(429, b'{"error":{"message":"slow down"}}')] * 3, vl.ServiceUnavailable, "slow down"),
        ([chunked(WAV[:9000], end=False, kind="audio/wav")], vl.StreamTruncated, "broke off"),
        ([chunked(b"ID3" + bytes(400), kind="audio/mpeg")], vl.AudioError, "wav"),
    ],
)  # fmt: skip
def test_errors_of_responses(
    backend: OpenAIBackend, script: Script, acts: list[Act], error: type[Exception], message: str
) -> None:
    script.acts += [*LISTS, *acts]
    with pytest.raises(error, match=message):
        backend.synthesize(call(backend)).take()
    assert script.acts == []  # a busy server is asked again


@pytest.mark.parametrize(
    "act", [reply(404, b"no"), reply(200, b"<html>"), reply(200, b"[]"), reply(200, b'{"data":3}')]
)
def test_server_without_lists_has_openai_defaults(backend: OpenAIBackend, script: Script, act: Act) -> None:
    script.acts += [act, act]
    can = backend.capabilities
    assert can.models == ("gpt-4o-mini-tts", "tts-1", "tts-1-hd")
    assert can.voices == ()
    assert backend.capabilities is can


def test_unreachable_server_is_probed_again(backend: OpenAIBackend, script: Script) -> None:
    script.acts += [reply(503), reply(503, b"loading"), *LISTS]
    assert not any(backend.capabilities.voices)
    assert len(script.asked) == 1
    with pytest.raises(vl.ServiceUnavailable, match="loading"):  # not that a voice is required
        backend.synthesize(Call.of("Hello."))
    backend._next_probe = 0.0
    assert [voice.id for voice in backend.capabilities.voices] == ["ann", "bob"]


QWEN = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
AUDIO = reply(200, WAV, content_type="audio/wav")


@contextmanager
def connected(profile: str, query: str = "", **options: Any) -> Iterator[tuple[Stub, vl.Lab]]:
    with serving(profile) as server, vl.connect(f"openai:{server.url}?profile={profile}{query}", **options) as lab:
        yield server, lab


def test_vllm_omni() -> None:
    with connected("vllm-omni", fields={"language": ["English", "Chinese"]}) as (server, lab):
        names = {knob.name: knob.choices for knob in lab.capabilities.knobs}
        assert names["language"] == ("English", "Chinese")
        assert names["task_type"] == ("CustomVoice", "VoiceDesign", "Base")
        assert lab.capabilities.default_model == QWEN
        lab.speak("Hello.", language="English", task_type="CustomVoice", seed=2**31 + 3)  # type: ignore[call-arg]
        assert server.asked[-1] == {
            "model": QWEN,
            "input": "Hello.",
            "voice": "vivian",
            "response_format": "wav",
            "stream_format": "audio",
            "language": "English",
            "task_type": "CustomVoice",
            "seed": 3,
        }
        plain = lab.speak("Hello.")
        lab.speak("Hello.", speed=1.5)
        assert (server.asked[-1]["speed"], "stream_format" in server.asked[-1]) == (1.5, False)
        with vl.connect(f"openai:{server.url}?profile=vllm-omni&stream_format=sse") as events_lab:
            assert np.allclose(events_lab.speak("Hello.").samples, plain.samples, atol=1e-4)
            assert server.asked[-1]["stream_format"] == "sse"
            assert events_lab.speak("Hello.", speed=1.5).duration < plain.duration
        recording = vl.ReferenceAudio(audio=WAV, text="Hi.")
        lab.speak("Hello.", references=recording, extra={"x_vector_only_mode": False})
        body = server.asked[-1]
        assert body["ref_audio"] == "data:audio/wav;base64," + base64.b64encode(WAV).decode()
        assert (body["ref_text"], body["x_vector_only_mode"], "voice" in body) == ("Hi.", False, False)
        for fields, message in (
            ({"references": [recording, recording]}, "references: must be one recording, got 2"),
            ({"language": "German"}, "language: must be 'English' or 'Chinese', got 'German'"),
            ({"speed": 0.2}, r"speed: must be between 0\.5 and 2"),
            ({"extra": {"task_type": "Clone"}}, "^task_type: Input should be 'CustomVoice', 'VoiceDesign' or 'Base'$"),
        ):
            with pytest.raises(vl.RequestInvalid, match=message):
                lab.speak("Hello.", **fields)
        table = lab.sweep("Hello.", extra={"language": ["English", "Chinese"], "top_k": 3}, seed=[1, 2]).run()
        assert {(body["language"], body["top_k"]) for body in server.asked[-4:]} == {("English", 3), ("Chinese", 3)}
        assert len({row.take.digest for row in table.rows if row.take}) == 4


def test_kokoro_fastapi() -> None:
    with connected("kokoro-fastapi") as (server, lab):
        assert lab.capabilities.models == ("tts-1", "tts-1-hd")
        lab.speak(  # type: ignore[call-arg]
            "Hello.",
            voice={"af_heart": 1, "af_sky": 2},
            lang_code="a",
            extra={"normalization_options": {"normalize": False}},
        )
        body = server.asked[-1]
        assert (body["voice"], body["lang_code"]) == ("af_heart(1)+af_sky(2)", "a")
        assert body["normalization_options"] == {"normalize": False}
        take = lab.speak("Hello.", seed=1).take
        assert server.asked[-1]["seed"] == 1
        assert take.seed is None  # type: ignore[union-attr]
        assert "Seed support of the service is unknown, and its response does not confirm seed 1" in take.notes[0]  # type: ignore[union-attr]
        with pytest.raises(
            vl.ServiceError, match=r"answered 400: Voice 'eve' not found\. Available voices: af_heart, af_sky$"
        ):
            lab.speak("Hello.", voice="eve")
        with pytest.raises(
            vl.RequestInvalid, match=r"^normalization_options\.normalize: Input should be a valid boolean"
        ):
            lab.speak("Hello.", extra={"normalization_options": {"normalize": 7}})


def test_speaches() -> None:
    with connected("speaches") as (server, lab):
        assert lab.capabilities.models == ("speaches-ai/Kokoro-82M-v1.0-ONNX",), "no recognizer"
        assert [voice.id for voice in lab.voices] == ["af_heart", "af_sky"]
        plain = lab.speak("Hello.")
        server.voices = None
        with vl.connect(f"openai:{server.url}") as unlisted:
            with pytest.raises(vl.RequestInvalid, match=r"voice: a voice is required, since .* lists none; pass"):
                unlisted.speak("Hello.")
            unlisted.speak("Hello.", voice="af_heart")
            assert server.asked[-1]["voice"] == "af_heart"
            with pytest.raises(
                vl.RequestInvalid, match=r"^language: unknown field [^{]*; extra=\{'language': …\} sends it unchecked$"
            ):
                unlisted.speak("Hello.", voice="af_heart", language="English")  # type: ignore[call-arg]
            with pytest.raises(vl.RequestInvalid, match=r"^voice: Field required$"):
                unlisted.speak("Hello.", voice=None)
    with connected("speaches", "&stream_format=sse") as (_, lab):  # its events have no header
        clip = lab.speak("Hello.")
        assert np.allclose(clip.samples, plain.samples, atol=1e-4)
        assert clip.notes == (
            "The server's events state no sample rate: 24000 Hz is assumed; responses without sse state it.",
        )


def test_openai() -> None:
    with connected("openai", "&stream_format=sse", api_key="sk-1") as (server, lab):
        assert lab.capabilities.models == ("gpt-4o-mini-tts", "tts-1")
        clip = lab.speak("Hello.", voice="alloy", instructions="Whisper.")  # type: ignore[call-arg]
        assert clip.duration == pytest.approx(0.24)
        assert clip.notes == ()
        assert server.asked[-1]["instructions"] == "Whisper."
        with pytest.raises(vl.RequestInvalid, match=r"^language: Extra inputs are not permitted$"):
            lab.speak("Hello.", voice="alloy", extra={"language": "English"})
        with pytest.raises(vl.RequestInvalid, match=r"does not support seeds; extra=\{'seed': 1\} sends it unchecked"):
            lab.speak("Hello.", voice="alloy", seed=1)
        lab.sweep("Hello.", voice="alloy", repeats=2).run()
        assert "seed" not in server.asked[-1]


@pytest.mark.parametrize(
    ("profile", "refused", "acting"),
    [
        ("openai", {"seed", "extra.language", "extra.ref_audio", "extra." + UNKNOWN_FIELD}, {"model", "instructions"}),
        (
            "vllm-omni",
            set(),
            {"voice", "seed", "instructions", "extra.language", "extra.max_new_tokens", "extra.ref_audio"},
        ),
        ("kokoro-fastapi", set(), {"voice", "extra.lang_code", "extra.volume_multiplier"}),
        ("speaches", set(), {"voice"}),
    ],
)
def test_probed_fields(profile: str, refused: set[str], acting: set[str]) -> None:
    with serving(profile) as server, OpenAIBackend(server.url) as backend:
        voice = None if backend.capabilities.voices else "alloy"
        probes = {probe.name: probe for probe in probe_fields(backend, Call.of("x", voice=voice))}
    ours = {"speed", "volume", "mp3_bitrate", "opus_bitrate", "sample_rate"}
    assert {name for name, probe in probes.items() if probe.acts == "yes"} == acting | ours
    assert refused <= {name for name, probe in probes.items() if probe.accepted == "no"}
    assert probes["extra." + UNKNOWN_FIELD].accepted == ("no" if refused else "yes")
    assert probes["references"].remark == "not sent: not supported by OpenAI's API"


def test_cached_takes_of_a_server_that_only_its_address_identifies_are_noted(tmp_path: Path) -> None:
    with connected("kokoro-fastapi") as (_, lab):
        sweep = lab.sweep("Hello.", repeats=2, cache=tmp_path)
        assert sweep.run().notes == ()
        (note,) = sweep.run().notes
    assert note.startswith("The service is identified by its address, and 2 takes from the cache may be outdated: ")


def test_an_unknown_server_is_sent_seeds_with_a_note(script: Script) -> None:
    script.acts = [reply(404), reply(404), AUDIO]
    with vl.connect(f"openai:{script.url}", fields={"stream": bool, "top_k": int}) as lab:
        take = lab.speak("Hello.", seed=3, voice=None, stream=False, top_k=0).take  # type: ignore[call-arg]
        body = json.loads(script.asked[-1].partition(b"\r\n\r\n")[2])
        assert (body["seed"], body["stream"], body["top_k"], "voice" in body) == (3, False, 0, False)
        assert any("does not confirm seed 3" in note for note in take.notes)  # type: ignore[union-attr]
        assert take.notes[-1] == "Not sent: voice."  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("address", "options", "message"),
    [
        ("?profile=vllm", {}, "profile: must be 'openai' or 'vllm-omni' or .* got 'vllm'"),
        ("?profil=openai", {}, "the options must be profile or stream_format, got 'profil'"),
        ("", {"fields": {"steps": [1, 2]}}, "fields: 'steps' must be a list of texts, or one of the types"),
        ("", {"fields": {"speed": float}}, "'speed' is a field"),
        ("", {"fields": ["language"]}, "fields: must be a mapping such as .*, got .'language'"),
    ],
)
def test_invalid_options(address: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((vl.RequestInvalid, vl.ArgumentError), match=message):
        vl.connect(f"openai:http://127.0.0.1:9{address}", **options)
