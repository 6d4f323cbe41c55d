"""Parts 1, 4.1, 6 and 9: the speech endpoint, the bytes on its socket, and what the paths are."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interface import tables
from tests.interface.conftest import Voice, Wire, calling
from tests.interface.containers import chunks
from tests.interface.rules import each, proves
from tests.interface.wire import JSON, KINDS, MSGPACK, encode, fields, refusal
from tests.served import Held
from tests.tones import ToneBackend

FORMATS = tables.TTS_REQUEST["format"].values


@proves("4.1-3")
def test_a_body_may_be_json(wire: Wire) -> None:
    for kind in (JSON, "application/json; charset=utf-8", "Application/JSON"):
        assert wire.caller.tts({"text": "Grüße"}, Content_Type=kind).status == 200
        assert wire.backend.asked[-1][0].text == "Grüße"


@proves("4.1-4")
def test_a_body_may_be_messagepack(wire: Wire) -> None:
    body = encode({"text": "Grüße"}, MSGPACK)
    for kind in (MSGPACK, "Application/MsgPack"):
        assert wire.caller.tts(body, kind).status == 200
        assert wire.backend.asked[-1][0].text == "Grüße"


@proves("D-9")
def test_another_content_type_is_415(wire: Wire) -> None:
    body = encode({"text": "Hi"}, JSON)
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        None,
        "json",
    ):
        refusal(wire.caller.call("POST", "/v1/tts", body, Content_Type=kind, model="s1"), 415)
    refusal(wire.caller.call("POST", "/model", body, Content_Type="text/plain"), 415)


def _until(line: socket.socket, mark: bytes, received: bytes = b"") -> bytes:
    """Everything received, up to the first piece in which ``mark`` has come."""
    while mark not in received:
        piece = line.recv(65536)
        assert piece, received
        received += piece
    return received


@proves("4.1-6")
def test_success_is_200_and_chunked(wire: Wire) -> None:
    for kind in KINDS:
        for name in FORMATS:
            with wire.caller.open() as line:
                line.sendall(wire.caller.raw({"text": "Twenty characters ok", "format": name}, kind))
                head, _, body = _until(line, b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")
            status, *headers = head.decode().split("\r\n")
            assert status.split()[:2] == ["HTTP/1.1", "200"]
            named = {name.lower(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
            assert named["transfer-encoding"].lower() == "chunked"
            assert "content-length" not in named
            found, left = chunks(body)
            assert left == b""
            assert found


@proves("1-2")
def test_audio_leaves_while_the_rest_is_still_being_made(tmp_path: Path) -> None:
    """The voice waits after its twentieth note until its first audio has been received at the other end."""
    for name in FORMATS:
        held = Held(20)
        with calling(ToneBackend(held), tmp_path / name) as (_, caller), caller.open() as line:
            line.sendall(caller.raw({"text": "x" * 40, "format": name}))
            answer = _until(line, b"\r\n\r\n")
            while len(answer.partition(b"\r\n\r\n")[2]) < 600:
                answer += line.recv(65536)
            assert held.said <= 20, name
            held.release()
            assert chunks(_until(line, b"\r\n0\r\n\r\n", answer).partition(b"\r\n\r\n")[2])[1] == b""


@each("4.1/model={}", tables.MODELS)
def test_model(wire: Wire, row: str) -> None:
    for kind in KINDS:
        for name in ("Model", "MODEL", "model"):  # names of headers have no case
            headers = {name: row, "content_TYPE": kind}
            assert wire.caller.call("POST", "/v1/tts", encode({"text": "Hi"}, kind), **headers).status == 200
            assert wire.backend.asked.pop()[1] == row


@proves("4.1/model:default")
def test_the_model_is_s2_pro_by_default(wire: Wire) -> None:
    for kind in KINDS:
        assert wire.caller.tts({"text": "Hi"}, kind, model=None).status == 200
        assert wire.backend.asked[-1][1] == "s2-pro"


@proves("4.1/model:meaning", "9-4")
def test_the_model_header_selects_what_speaks(wire: Wire, voice: Voice) -> None:
    said = {m: wire.caller.tts({"text": "Hi"}, model=m, x_voicelab_seed="1").body for m in tables.MODELS}
    assert said["s1"] != said["s2-pro"]  # to the voice of these tests they are two
    for model in tables.MODELS:
        assert voice.caller.tts({"text": "Yes."}, model=model).status == 200


@proves("D-4")
def test_a_model_that_is_none_of_them_is_a_422_in_the_header(wire: Wire) -> None:
    for wrong in ("s2", "S1", "s1, s2-pro", "", "speech-1.5"):
        answer = wire.caller.tts({"text": "Hi"}, model=wrong)
        assert fields(answer) == [["header", "model"]]
        assert answer.json()[0]["in"] == "header"
    assert wire.caller.tts({"text": "Hi"}, model=None).status == 200


@proves("D-5")
def test_unknown_keys_of_a_body_are_ignored(wire: Wire, kind: str) -> None:
    got = wire.arrived(kind, seed=3, Temperature=9, audio=None, prosody={"speed": 1.5, "pitch": 2, "volume": -1})
    assert got.temperature == 0.7
    assert got.prosody is not None
    assert (got.prosody.speed, got.prosody.volume) == (1.5, -1)
    assert wire.arrived(MSGPACK, references=[{"audio": b"x", "text": "y", "name": "z"}]).references


@proves("D-8")
def test_blank_and_too_long_texts_are_422(wire: Wire) -> None:
    for kind in KINDS:
        for text in ("", " ", "\n\t \u00a0\u3000"):
            assert fields(wire.refused(kind, text=text)) == [["body", "text"]]
        assert fields(wire.refused(kind, text="x" * 20_001)) == [["body", "text"]]


@proves("D-7")
def test_an_unknown_reference_id_is_a_422(wire: Wire, voice: Voice, kind: str) -> None:
    for caller in (wire.caller, voice.caller):
        for name in ("nobody", "../ada", "a" * 32, "0" * 1000):
            assert fields(caller.tts({"text": "Hi", "reference_id": name}, kind)) == [["body", "reference_id"]]


@proves("1-9")
def test_the_base_address_is_where_the_service_listens(wire: Wire) -> None:
    assert wire.caller.url == f"http://{wire.caller.host}:{wire.caller.port}"
    assert wire.caller.call("POST", "/v1/tts", b'{"text": "Hi"}', Content_Type=JSON).status == 200


@proves("9-1", "9-2")
def test_speech_is_under_v1(wire: Wire) -> None:
    assert wire.caller.tts({"text": "Hi"}).status == 200
    for path in ("/tts", "/v2/tts", "/v1/v1/tts"):
        refusal(wire.caller.call("POST", path, b'{"text": "Hi"}', Content_Type=JSON), 404)


@proves("9-3")
def test_models_have_no_version_prefix(voice: Voice) -> None:
    refusal(voice.caller.call("GET", "/v1/model/nobody"), 404)
    for method, path in (("POST", "/model"), ("GET", "/model/nobody")):
        # The paths are there: not the answer that any other path gets.
        unknown = voice.caller.call(method, "/modelx")
        assert voice.caller.call(method, path).body != unknown.body


@proves("D-19")
def test_a_full_queue_is_503_with_retry_after(tmp_path: Path) -> None:
    hold = threading.Event()
    backend = ToneBackend(lambda _: hold.wait(60))
    with calling(backend, tmp_path, active=1, waiting=1) as (_, one), ThreadPoolExecutor(6) as pool:
        statuses: list[int] = []

        def ask(_: int) -> None:
            answer = one.tts({"text": "Hi", "format": "pcm"})
            statuses.append(answer.status)
            if answer.status == 503:
                refusal(answer, 503)
                assert int(answer.headers["retry-after"]) >= 0
            if len(statuses) == 4:  # two must wait; all others have been told
                hold.set()

        list(pool.map(ask, range(6)))
    assert sorted(statuses) == [200, 200, 503, 503, 503, 503]


@proves("D-20")
def test_a_seed_in_the_header_repeats_the_audio(wire: Wire) -> None:
    def said(seed: str | None) -> bytes:
        return wire.caller.tts({"text": "Hi"}, x_voicelab_seed=seed).body

    assert said("7") == said("7") != said("8")
    assert wire.backend.asked[-1][2] == 8
    for wrong in ("", "-1", "1.5", "seven", str(2**63), "9" * 5000):
        answer = wire.caller.tts({"text": "Hi"}, x_voicelab_seed=wrong)
        assert fields(answer) == [["header", "x-voicelab-seed"]]


@proves("D-20")
def test_a_backend_without_seeds_refuses_one(tmp_path: Path) -> None:
    with calling(ToneBackend(seed="none"), tmp_path) as (_, caller):
        assert caller.tts({"text": "Hi"}).status == 200
        assert fields(caller.tts({"text": "Hi"}, x_voicelab_seed="7"))
