"""POST /model and GET /model/{id} over real sockets, with a real engine whose weights were drawn at random."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.served import Service, fields, head, message, serving, tiny_engine, until
from tests.service.conftest import Start
from tests.service.host import ToneHost
from tests.speechlike import speech_file
from tests.voices.test_cover import picture
from voicelab.audio.formats import decode
from voicelab.service.keys import KeyStore

WAV = speech_file(2)
FIELDS: dict[str, Any] = {"type": "tts", "title": "Ada", "train_mode": "fast", "visibility": "private", "texts": "said"}
PACKED = {"content-type": "application/msgpack"}


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def service(voices: Path) -> Iterator[Service]:
    with tiny_engine(voices) as engine, serving(voices, engine) as service:
        yield service


@pytest.fixture
def small(tmp_path: Path, start: Start) -> Service:
    return start(ToneHost(tmp_path / "voices"), upload=400_000, upload_file=200_000, uploads=1)


def _kept(folder: Path) -> dict[Path, bytes]:
    """What a store of voices holds, to the byte."""
    return {path: path.read_bytes() for path in (folder / "voices").rglob("*") if path.is_file()}


def _send(client: httpx.Client, how: str, **changes: Any) -> httpx.Response:
    fields = {name: value for name, value in {**FIELDS, **changes}.items() if value is not None}
    files = fields.pop("voices", [WAV])
    if how == "msgpack":
        return client.post("/model", content=msgpack.packb({**fields, "voices": files}), headers=PACKED)
    parts = [("voices", ("upload", data, "application/octet-stream")) for data in files]
    if "cover_image" in fields:
        parts.append(("cover_image", ("upload", fields.pop("cover_image"), "application/octet-stream")))
    data = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
    return client.post("/model", data=data, files=parts)


def test_a_voice_is_made_found_and_spoken_with(service: Service) -> None:
    cover = picture("jpeg")
    record = _send(
        service.http, "multipart", voices=[WAV, speech_file(2, 200)], texts=["one", "two"], visibility="public",
        cover_image=cover,
    ).json()  # fmt: skip
    image = service.http.get(record["cover_image"])
    assert (image.content, image.headers["content-type"]) == (cover, "image/jpeg")
    heard = [service.http.get(sample["audio"]) for sample in record["samples"]]
    for audio in heard:
        assert audio.headers["content-type"] == "audio/wav"
        assert int(audio.headers["content-length"]) == len(audio.content)
        samples, rate = decode(audio.content, "wav")
        assert abs(len(samples) / rate - 2) < 0.5
    assert heard[0].content != heard[1].content
    for number in ("2", "-1", "00", "x", "1e0", "%31%00", "9" * 30):
        message(service.http.get(f"/model/{record['_id']}/samples/{number}"), 404)
    assert service.http.post("/v1/tts", json={"text": "One dog.", "reference_id": record["_id"]}).status_code == 200
    assert service.http.get(f"/model/{record['_id']}").json()["task_count"] == 1


@pytest.mark.parametrize("visibility", ["private", "unlist", "public"])
def test_files_have_the_visibility_of_the_voice(service: Service, visibility: str) -> None:
    made = _send(service.http, "multipart", visibility=visibility, cover_image=picture()).json()["_id"]

    other = {"authorization": f"Bearer {service.keys.create(visibility).secret}"}

    def answers(voice: str, headers: dict[str, str] | None) -> list[tuple[int, str]]:
        found = [service.http.get(f"/model/{voice}/{file}", headers=headers) for file in ("cover", "samples/0")]
        return [(one.status_code, "" if one.status_code == 200 else one.text.replace(voice, "ID")) for one in found]

    assert [status for status, _ in answers(made, None)] == [200, 200]
    seen = answers(made, other)
    assert [status for status, _ in seen] == ([404, 404] if visibility == "private" else [200, 200])
    assert visibility != "private" or seen == answers("0" * 32, other)


def test_new_key_store_does_not_inherit_voices(tmp_path: Path) -> None:
    with KeyStore(tmp_path / "a") as one, KeyStore(tmp_path / "b") as two:
        first, second = one.create("x").key, two.create("x").key
        assert first.id == second.id
        assert first.owner != second.owner
        assert first.owner == one.list()[0].owner
        assert first.prefix not in first.owner


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"title": "x" * 1001}, "body.title"),
        ({"visibility": "public", "cover_image": b"GIF89a"}, "body.cover_image"),
        ({"tags": ["x" * 101]}, "body.tags"),
        ({"voices": [WAV, b"no audio"], "texts": ["a", "b"]}, "body.voices"),
        ({"voices": {"a": 1}}, "body.voices"),
    ],
    ids=str,
)
def test_invalid_uploads_are_rejected_and_not_stored(
    service: Service, voices: Path, changes: dict[str, Any], field: str
) -> None:
    before = _kept(voices)
    assert field in fields(_send(service.http, "msgpack", **changes))
    assert _kept(voices) == before


@pytest.mark.parametrize("body", [b"", b"\xc1", b"[1]", msgpack.packb([1])])
def test_rubbish_in_msgpack(service: Service, body: bytes) -> None:
    fields(service.http.post("/model", content=body, headers=PACKED))


# Beyond what the interface's document shows, clients of the public service send this.
BESIDES: dict[str, dict[str, Any]] = {
    "nulls": dict.fromkeys(("texts", "tags", "description", "cover_image", "enhance_audio_quality")),
    "empty lists": {"texts": [], "tags": []},
    "no visibility": {"visibility": None, "cover_image": picture("png")},
    "keys that are not listed": {"generate_sample": False, "lock_visibility": True, "a": {"b": [1]}},
}


@pytest.mark.parametrize("name", BESIDES)
def test_messagepack_of_clients_of_the_public_service_is_taken(host: Service, name: str) -> None:
    body = msgpack.packb({**FIELDS, "voices": [WAV], **BESIDES[name]})
    assert host.http.post("/model", content=body, headers=PACKED).status_code == 201


def test_a_form_with_odd_parts_in_pieces_of_unknown_length_is_taken(host: Service) -> None:
    odd: list[tuple[str, Any]] = [
        *((name, (None, "")) for name in ("description", "texts", "tags")),
        ("cover_image", ("", b"", "application/octet-stream")),
        ("enhance_audio_quality", ("upload", b"False")),
        *(("not listed", (None, text)) for text in ("a", "b")),
        ("voices", ("../../x.exe", WAV, "image/png")),
    ]
    fields = {name: value for name, value in FIELDS.items() if name != "texts"}
    request = httpx.Request("POST", host.url + "/model", data=fields, files=odd)
    body = request.read()
    pieces = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    headers = {"content-type": request.headers["content-type"]}
    answer = host.http.post("/model", content=pieces, headers=headers)
    assert (answer.status_code, answer.json()["cover_image"]) == (201, "")


@pytest.mark.parametrize("how", ["multipart", "msgpack"])
def test_large_uploads_are_refused(small: Service, tmp_path: Path, how: str) -> None:
    assert "200000" in message(_send(small.http, how, voices=[WAV + bytes(200_000)]), 413)
    assert "400000" in message(_send(small.http, how, voices=[WAV] * 5, texts=None), 413)
    assert _kept(tmp_path) == {}


def _raw(service: Service, kind: str, body: bytes, length: int | None = None) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=20)
    raw.sendall(head(service, len(body) if length is None else length, "/model", kind=kind) + body)
    return raw


def test_an_upload_that_is_cut_off_anywhere_leaves_nothing(small: Service, tmp_path: Path) -> None:
    request = small.http.build_request("POST", "/model", data=FIELDS, files=[("voices", ("a", WAV))])
    whole = request.read()
    packed = msgpack.packb({**FIELDS, "voices": [WAV]})
    for kind, body in ((request.headers["content-type"], whole), ("application/msgpack", packed)):
        for cut in range(0, len(body), 4096):
            with _raw(small, kind, body[:cut], len(body)) as raw:
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):  # until the service has noticed
                    pass
    for kind, body in ((request.headers["content-type"], whole[:-4]), ("application/msgpack", packed[:-1])):
        with _raw(small, kind, body) as raw:  # a length that lies
            assert raw.recv(65536).startswith(b"HTTP/1.1 422")
    assert _kept(tmp_path) == {}
    assert _send(small.http, "multipart").status_code == 201  # no place is lost either


def test_too_many_uploads_at_once_are_told_to_wait(small: Service) -> None:
    with _raw(small, "application/msgpack", b"\x81", 1000):
        until(lambda: _send(small.http, "msgpack").status_code == 503)
        answer = _send(small.http, "msgpack")
        assert message(answer, 503)
        assert int(answer.headers["retry-after"]) > 0
    until(lambda: _send(small.http, "msgpack").status_code == 201)


def test_several_at_once_are_all_made(service: Service) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda title: _send(service.http, "msgpack", title=title).json()["_id"], "0123"))
    assert [service.http.get(f"/model/{voice}").json()["title"] for voice in made] == ["0", "1", "2", "3"]


def test_a_store_that_is_gone_is_unavailable(small: Service, tmp_path: Path) -> None:
    made = _send(small.http, "msgpack").json()["_id"]
    (tmp_path / "voices" / "voices.sqlite3").unlink()
    for answer in (
        small.http.get(f"/model/{made}"),
        small.http.get(f"/model/{made}/cover"),
        small.http.post("/v1/tts", json={"text": "One dog.", "reference_id": made}),
        _send(small.http, "msgpack"),
    ):
        assert "available" in message(answer, 503)
        assert str(tmp_path) not in answer.text
    assert small.http.post("/v1/tts", json={"text": "One dog."}).status_code == 200


def test_a_backend_that_hosts_no_voices_says_so(start: Start) -> None:
    tones = start()
    assert message(_send(tones.http, "multipart"), 501)
    assert message(tones.http.get("/model/ada"), 404)
    assert message(tones.http.get("/model/ada/cover"), 404)
    assert message(tones.http.get("/model/ada/samples/0"), 404)
