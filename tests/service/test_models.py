"""POST /model and GET /model/{id} over real sockets, with a real engine whose weights were drawn at random."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.served import PLAIN, fields, head, message, serving, tiny_engine, until
from tests.served import Service as ToneService
from tests.service.conftest import Start
from tests.service.host import ToneHost
from tests.speechlike import speech_file
from tests.voices.test_cover import picture
from voicelab.audio.formats import decode
from voicelab.service.app import owner_of
from voicelab.service.keys import KeyStore
from voicelab.voices.store import VoiceStore

WAV = speech_file(2)
FIELDS: dict[str, Any] = {"type": "tts", "title": "Ada", "train_mode": "fast", "visibility": "private", "texts": "said"}
PACKED = {"content-type": "application/msgpack"}


@dataclass(frozen=True)
class Service:
    served: ToneService
    folder: Path
    ann: httpx.Client
    ben: httpx.Client

    def rows(self) -> int:
        if not (self.folder / "voices.sqlite3").exists():
            return 0
        with VoiceStore(self.folder) as store, store._database.reading() as db:
            return int(db.execute("SELECT COUNT(*) FROM voices").fetchone()[0])

    def files(self) -> int:
        return len(list((self.folder / "files").glob("*")))


def _served(folder: Path, service: ToneService) -> Service:
    other = service.keys.create("ben").secret
    ben = httpx.Client(base_url=service.url, headers={"authorization": f"Bearer {other}"}, timeout=60, **PLAIN)
    return Service(service, folder / "voices", service.http, ben)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("models")
    with tiny_engine(folder) as engine, serving(folder, engine) as service:
        both = _served(folder, service)
        yield both
        both.ben.close()


@pytest.fixture
def small(tmp_path: Path, start: Start) -> Iterator[Service]:
    both = _served(tmp_path, start(ToneHost(tmp_path / "voices"), upload=400_000, upload_file=200_000, uploads=1))
    yield both
    both.ben.close()


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
        service.ann, "multipart", voices=[WAV, speech_file(2, 200)], texts=["one", "two"], visibility="public",
        cover_image=cover,
    ).json()  # fmt: skip
    image = service.ann.get(record["cover_image"])
    assert (image.content, image.headers["content-type"]) == (cover, "image/jpeg")
    heard = [service.ann.get(sample["audio"]) for sample in record["samples"]]
    for audio in heard:
        assert audio.headers["content-type"] == "audio/wav"
        assert int(audio.headers["content-length"]) == len(audio.content)
        samples, rate = decode(audio.content, "wav")
        assert abs(len(samples) / rate - 2) < 0.5
    assert heard[0].content != heard[1].content
    for number in ("2", "-1", "00", "x", "1e0", "%31%00", "9" * 30):
        message(service.ann.get(f"/model/{record['_id']}/samples/{number}"), 404)
    assert service.ann.post("/v1/tts", json={"text": "One dog.", "reference_id": record["_id"]}).status_code == 200
    assert service.ann.get(f"/model/{record['_id']}").json()["task_count"] == 1


@pytest.mark.parametrize("visibility", ["private", "unlist", "public"])
def test_files_of_a_voice_are_for_whom_the_voice_is(service: Service, visibility: str) -> None:
    made = _send(service.ann, "multipart", visibility=visibility, cover_image=picture()).json()["_id"]

    def answers(client: httpx.Client, voice: str) -> list[tuple[int, str]]:
        found = [client.get(f"/model/{voice}/{file}") for file in ("cover", "samples/0")]
        return [(one.status_code, "" if one.status_code == 200 else one.text.replace(voice, "ID")) for one in found]

    assert [status for status, _ in answers(service.ann, made)] == [200, 200]
    seen = answers(service.ben, made)
    assert [status for status, _ in seen] == ([404, 404] if visibility == "private" else [200, 200])
    assert visibility != "private" or seen == answers(service.ben, "0" * 32)


def test_a_key_that_is_made_anew_inherits_nothing(tmp_path: Path) -> None:
    with KeyStore(tmp_path / "a") as one, KeyStore(tmp_path / "b") as two:
        first, second = one.create("x").key, two.create("x").key
        assert first.id == second.id
        assert owner_of(first) != owner_of(second)
        assert owner_of(first) == owner_of(one.list()[0])
        assert first.prefix not in owner_of(first)


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
def test_what_is_wrong_is_named_and_nothing_is_kept(service: Service, changes: dict[str, Any], field: str) -> None:
    before = service.rows(), service.files()
    assert field in fields(_send(service.ann, "msgpack", **changes))
    assert (service.rows(), service.files()) == before


@pytest.mark.parametrize("body", [b"", b"\xc1", b"[1]", msgpack.packb([1])])
def test_rubbish_in_msgpack(service: Service, body: bytes) -> None:
    fields(service.ann.post("/model", content=body, headers=PACKED))


# Beyond what the interface's document shows, clients of the public service send this.
BESIDES: dict[str, dict[str, Any]] = {
    "nulls": dict.fromkeys(("texts", "tags", "description", "cover_image", "enhance_audio_quality")),
    "empty lists": {"texts": [], "tags": []},
    "no visibility": {"visibility": None, "cover_image": picture("png")},
    "keys that are not listed": {"generate_sample": False, "lock_visibility": True, "a": {"b": [1]}},
}


@pytest.mark.parametrize("name", BESIDES)
def test_messagepack_of_clients_of_the_public_service_is_taken(host: ToneService, name: str) -> None:
    body = msgpack.packb({**FIELDS, "voices": [WAV], **BESIDES[name]})
    assert host.http.post("/model", content=body, headers=PACKED).status_code == 201


def test_a_form_with_odd_parts_in_pieces_of_unknown_length_is_taken(host: ToneService) -> None:
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
def test_large_uploads_are_refused(small: Service, how: str) -> None:
    assert "200000" in message(_send(small.ann, how, voices=[WAV + bytes(200_000)]), 413)
    assert "400000" in message(_send(small.ann, how, voices=[WAV] * 5, texts=None), 413)
    assert small.rows() == 0
    assert not small.folder.joinpath("files").exists()


def _raw(service: Service, kind: str, body: bytes, length: int | None = None) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", service.served.port), timeout=20)
    raw.sendall(head(service.served, len(body) if length is None else length, "/model", kind=kind) + body)
    return raw


def test_an_upload_that_is_cut_off_anywhere_leaves_nothing(small: Service) -> None:
    request = small.ann.build_request("POST", "/model", data=FIELDS, files=[("voices", ("a", WAV))])
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
    assert small.rows() == 0
    assert not small.folder.joinpath("files").exists()
    assert _send(small.ann, "multipart").status_code == 201  # no place is lost either


def test_too_many_uploads_at_once_are_told_to_wait(small: Service) -> None:
    with _raw(small, "application/msgpack", b"\x81", 1000):
        end = time.monotonic() + 10
        while (answer := _send(small.ben, "msgpack")).status_code != 503:
            assert time.monotonic() < end
        assert message(answer, 503)
        assert int(answer.headers["retry-after"]) > 0
    until(lambda: _send(small.ben, "msgpack").status_code == 201)


def test_several_at_once_are_all_made(service: Service) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda title: _send(service.ann, "msgpack", title=title).json()["_id"], "0123"))
    assert [service.ann.get(f"/model/{voice}").json()["title"] for voice in made] == ["0", "1", "2", "3"]


def test_a_store_that_is_gone_is_unavailable(small: Service) -> None:
    made = _send(small.ann, "msgpack").json()["_id"]
    (small.folder / "voices.sqlite3").unlink()
    for answer in (
        small.ann.get(f"/model/{made}"),
        small.ann.get(f"/model/{made}/cover"),
        small.ann.post("/v1/tts", json={"text": "One dog.", "reference_id": made}),
        _send(small.ann, "msgpack"),
    ):
        assert "available" in message(answer, 503)
        assert str(small.folder) not in answer.text
    assert small.ann.post("/v1/tts", json={"text": "One dog."}).status_code == 200


def test_a_backend_that_hosts_no_voices_says_so(start_shared: Any) -> None:
    tones: ToneService = start_shared()
    assert message(_send(tones.http, "multipart"), 501)
    assert message(tones.http.get("/model/ada"), 404)
    assert message(tones.http.get("/model/ada/cover"), 404)
    assert message(tones.http.get("/model/ada/samples/0"), 404)
