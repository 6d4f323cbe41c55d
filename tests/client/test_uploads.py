"""Voices made through the client by a real service: as MessagePack and as a form they come to the same record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.served import serving, tiny_engine
from tests.speechlike import speech_file
from tests.voices.test_cover import picture
from voicelab.call import Call
from voicelab.errors import NotFound, RequestInvalid
from voicelab.schema import TTSRequest, VoiceCreate, VoiceModel

Connect = Callable[..., Any]

REQUESTS = {
    "all": VoiceCreate(
        title='Ada ü\n"x"', voices=(speech_file(2), speech_file(2, 200, "mp3")), texts=("one, two", "drei ß"),
        tags=("calm", "low & slow"), visibility="public", description="a\r\nb", cover_image=picture("png"),
        enhance_audio_quality=True,
    ),
    "least": VoiceCreate(title="Ben", voices=(speech_file(2),), texts=("said",), visibility="private"),
    "unlisted": VoiceCreate(title="Cy", voices=(speech_file(2),), texts=("said",), visibility="unlist", tags=("t",)),
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("uploads")
    with tiny_engine(folder) as engine, serving(folder, engine) as service:
        yield service.url, service.secret


def _told(record: VoiceModel) -> dict[str, Any]:
    """What does not change from one creation to the next."""
    wire = record.to_wire()
    for name in ("_id", "created_at", "updated_at", "cover_image"):
        assert wire.pop(name) or (name == "cover_image" and record.visibility != "public")
    return {**wire, "samples": [{**sample, "audio": "", "task_id": ""} for sample in wire["samples"]]}


@pytest.mark.parametrize("name", REQUESTS)
def test_both_encodings_make_the_same_voice(service: tuple[str, str], connect: Connect, name: str) -> None:
    made = []
    for upload in ("msgpack", "multipart"):
        with connect(*service, upload=upload) as backend:
            record = backend.create_voice(REQUESTS[name])
            assert record == backend.get_voice(record.id)
            made.append(record)
    first, second = made
    assert first.id != second.id
    assert _told(first) == _told(second)
    assert first.title == REQUESTS[name].title
    assert [sample.text for sample in first.samples] == list(REQUESTS[name].texts)
    with connect(*service) as backend:
        said = [
            b"".join(backend.synthesize(Call(TTSRequest(text="a", format="pcm", reference_id=record.id), seed=1)))
            for record in made
        ]
    assert said[0] == said[1]


@pytest.mark.parametrize("upload", ["msgpack", "multipart"])
def test_what_is_no_speech_is_refused_with_the_service_s_answer(
    service: tuple[str, str], connect: Connect, upload: str
) -> None:
    with connect(*service, upload=upload) as backend:
        with pytest.raises(RequestInvalid) as caught:
            backend.create_voice(VoiceCreate(title="Ada", voices=(b"rubbish",), visibility="private"))
        assert caught.value.errors[0].field.startswith("voices")
        assert caught.value.status == 422
        assert caught.value.request_id
        with pytest.raises(NotFound):
            backend.get_voice("nobody")


def test_another_upload_is_refused(connect: Connect) -> None:
    with pytest.raises(RequestInvalid, match="upload: Input should be msgpack or multipart"):
        connect("http://127.0.0.1:9", upload="carrier pigeon")


def test_a_file_on_disk_is_what_is_sent(service: tuple[str, str], tmp_path: Path) -> None:
    # The same through a Lab, whose backend sends forms.
    from voicelab.client import ServiceBackend
    from voicelab.lab import Lab

    path = tmp_path / "a.wav"
    path.write_bytes(speech_file(2))
    with Lab(ServiceBackend(*service, upload="multipart")) as lab:
        assert lab.create_voice("Ada", path, texts="said").samples[0].text == "said"
