"""The client against a service that was written from the interface alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import voicelab
from tests.client.foreign import SECRET, Served, serving
from voicelab.errors import AuthenticationError, NotFound, PaymentRequired, RequestInvalid
from voicelab.schema import ReferenceAudio, TTSRequest, VoiceCreate

Connect = Callable[..., Any]


@pytest.fixture
def foreign() -> Iterator[Served]:
    with serving() as served:
        yield served


def test_it_speaks(foreign: Served, connect: Connect) -> None:
    with connect(foreign.url, SECRET) as backend:
        assert backend.capabilities.seed == "none"
        assert backend.capabilities.models == ("s1", "s2-pro")
        for request in (
            TTSRequest(text="hello", format="wav"),
            TTSRequest(text="hello", format="pcm", sample_rate=8000, reference_id="v7", latency="low"),
            TTSRequest(text="hello", format="wav", references=(ReferenceAudio(audio=b"RIFF", text="said"),)),
        ):
            clip = backend.synthesize(request, model="s1").clip()
            assert clip.rate == request.rate
            assert len(clip.samples) == request.rate // 10
            assert set(np.round(clip.samples * 32768)) == {500.0}
            assert clip.notes == ()
            assert clip.provenance.seed is None


@pytest.mark.parametrize("upload", ["msgpack", "multipart"])
def test_it_makes_and_gives_a_voice(foreign: Served, connect: Connect, upload: str) -> None:
    request = VoiceCreate(
        title="Ada", voices=(b"RIFF1", b"fLaC22"), texts=("one", "zwei ü"), tags=("calm", "low"), visibility="public",
        cover_image=b"\x89PNG", description="deep", enhance_audio_quality=True,
    )  # fmt: skip
    with connect(foreign.url, SECRET, upload=upload) as backend:
        made = backend.create_voice(request)
        assert (made.id, made.title, made.visibility, made.tags) == ("v1", "Ada", "public", ("calm", "low"))
        assert [sample.text for sample in made.samples] == ["one", "zwei ü"]
        assert foreign.voices["v1"]["x"] == {"y": [5, 6]}
        assert backend.get_voice(made.id) == made
        assert backend.synthesize(TTSRequest(text="a", format="pcm", reference_id=made.id)).clip().duration == 0.1


def test_its_errors_are_what_they_are(foreign: Served, connect: Connect) -> None:
    with connect(foreign.url, SECRET) as backend:
        with pytest.raises(PaymentRequired, match="please pay"):
            backend.synthesize(TTSRequest(text="too dear")).clip()
        with pytest.raises(RequestInvalid, match="reference_id: unknown"):
            backend.synthesize(TTSRequest(text="a", reference_id="nobody")).clip()
        with pytest.raises(NotFound, match="no such model"):
            backend.get_voice("nobody")
    with connect(foreign.url, "wrong") as backend, pytest.raises(AuthenticationError, match="no permission"):
        backend.get_voice("v1")


def test_a_lab_needs_no_other_line(foreign: Served) -> None:
    with voicelab.connect(foreign.url, api_key=SECRET) as lab:
        voice = lab.create_voice("Ada", [b"RIFF"], texts=["one"])
        assert lab.get_voice(voice.id).title == "Ada"
        assert lab.speak("hello", voice=voice).duration == 0.1
