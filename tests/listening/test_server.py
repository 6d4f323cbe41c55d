from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.listening.test_design import listening_test
from tests.served import PLAIN
from voicelab.errors import StoreError
from voicelab.listening.study import Study
from voicelab.listening.votes import Ballot
from voicelab.views.listening import listening_page


@pytest.fixture(scope="module")
def ballot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ballot]:
    with Ballot(
        replace(listening_test("MUSHRA", items=2), training=1, instructions="Listen."),
        tmp_path_factory.mktemp("listening") / "votes",
    ) as ballot:
        yield ballot


@pytest.fixture(scope="module")
def page(ballot: Ballot) -> Iterator[httpx.Client]:
    with listening_page(ballot) as address, httpx.Client(base_url=address, **PLAIN) as client:
        yield client


def test_listener_completes_a_test(page: httpx.Client, ballot: Ballot) -> None:
    assert "listening.js" in page.get("/").text
    for name, kind in (
        ("listening.js", "text/javascript"),
        ("switcher.js", "text/javascript"),
        ("listening.css", "text/css"),
    ):
        answer = page.get(f"/{name}")
        assert answer.headers["content-type"].startswith(kind)
    listener = page.post("/api/listeners", json={"name": "Ada"}).json()["listener"]
    for place in range(2):
        asked = page.get(f"/api/listeners/{listener}/trial").json()["trial"]
        assert (asked["place"], asked["total"], asked["scale"]) == (place, 2, [0, 100])
        assert asked["reference"] not in {one["sound"] for one in asked["letters"]}
        for one in asked["letters"]:
            sound = page.get(f"/api/sounds/{one['sound']}")
            assert sound.headers["content-type"] == "audio/wav"
            with wave.open(io.BytesIO(sound.content)) as file:
                assert file.getnframes() > 10_000
        body = {
            "trial": asked["id"],
            "answers": {one["letter"]: 50 for one in asked["letters"]},
            "seconds": 3.5,
            "plays": 9,
        }
        assert page.post(f"/api/listeners/{listener}/votes", json=body).json() == {"kept": True}
    assert page.get(f"/api/listeners/{listener}/trial").json() == {"trial": None}
    assert len(ballot.votes()) == 2  # the tests that follow keep none


def test_page_data_is_blinded(page: httpx.Client) -> None:
    joined = page.post("/api/listeners", json={"name": "Ida"})
    listener = joined.json()["listener"]
    said = page.get("/api/test").text + joined.text + page.get(f"/api/listeners/{listener}/trial").text
    assert said.count("letters") == 2
    assert not any(name in said for name in ("anchor", '"a"', '"b"', "system", "s0", "s1"))


def test_training_trials_have_sounds_and_reject_responses(page: httpx.Client, ballot: Ballot) -> None:
    assert page.get("/api/test").json() == {"name": "trial", "kind": "MUSHRA", "instructions": "Listen."}
    joined = page.post("/api/listeners", json={"name": "Una"}).json()
    (practice,) = joined["training"]
    before = len(ballot.votes())
    sounds = [practice["reference"], *(one["sound"] for one in practice["letters"]), joined["volume"]]
    sent = [page.get(f"/api/sounds/{sound}").content for sound in sounds]
    assert len(set(sent)) == len(sounds) == 7
    body = {"trial": practice["id"], "answers": {one["letter"]: 50 for one in practice["letters"]}}
    assert page.post(f"/api/listeners/{joined['listener']}/votes", json=body).status_code == 404
    assert len(ballot.votes()) == before


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/listeners", {"name": " "}, 422),
        ("POST", "/api/listeners", {"name": 3}, 422),
        ("POST", "/api/listeners", [1], 422),
        ("GET", "/api/listeners/77/trial", None, 404),
        ("GET", "/api/sounds/nonsense", None, 404),
        ("POST", "/api/listeners/0/votes", {"trial": "0-0", "answers": {"A": 500}}, 422),
        ("POST", "/api/listeners/0/votes", {"trial": "0-0", "answers": 3}, 422),
        ("POST", "/api/listeners/0/votes", {"trial": 3, "answers": {}}, 422),
        ("POST", "/api/listeners/0/votes", {"trial": "9-9", "answers": {}}, 404),
        ("POST", "/api/listeners/0/votes", {"trial": "0-0", "answers": {}, "seconds": "long"}, 422),
        ("POST", "/api/listeners/0/votes", {"trial": "0-0", "answers": {}, "plays": -1}, 422),
        ("GET", "/../votes", None, 404),
        # What the file of votes has no room for.
        ("GET", "/api/listeners/100000000000000000000/trial", None, 404),
        ("GET", f"/api/listeners/{'9' * 5000}/trial", None, 404),
        ("POST", f"/api/listeners/{'9' * 5000}/votes", {"trial": "0-0"}, 404),
        ("POST", "/api/listeners", {"name": "A\x00da"}, 422),
        ("POST", "/api/listeners", {"name": "Ada \ud800"}, 422),
        ("POST", "/api/listeners/0/votes", {"trial": "0-0", "answers": {}, "seconds": 10**400}, 422),
        ("POST", "/api/listeners/0/votes", {"trial": "0-0", "answers": {}, "plays": 10**30}, 422),
    ],
)
def test_invalid_requests_are_rejected(page: httpx.Client, method: str, path: str, body: object, status: int) -> None:
    page.post("/api/listeners", json={"name": "Eve"})
    answer = page.request(method, path, content=json.dumps(body))
    assert answer.status_code == status
    if path.startswith("/api"):
        assert answer.json()["status"] == status
        assert answer.json()["message"]


def test_a_study_is_served_once(tmp_path: Path) -> None:
    study = Study(listening_test("AB", items=2), listeners=2, consent="Yes?")
    with Ballot(study.test, tmp_path / "votes") as first, Ballot(study.test, tmp_path / "votes") as second:
        with (
            listening_page(first, study),
            pytest.raises(StoreError, match=r"another server serves .*votes: end it"),
            listening_page(second, study),
        ):
            pass
        with listening_page(second, study) as address:
            assert httpx.get(address, **PLAIN).status_code == 200


def test_server_stops_despite_a_hanging_client(ballot: Ballot) -> None:
    with socket.socket() as caller:
        with listening_page(ballot) as address:
            caller.connect((httpx.URL(address).host, httpx.URL(address).port or 80))
            caller.sendall(b"POST /api/listeners HTTP/1.1\r\nhost: here\r\ncontent-length: 50\r\n\r\n")
            assert httpx.get(address, **PLAIN).status_code == 200
            begun = time.monotonic()
        assert time.monotonic() - begun < 15


def test_oversized_response_is_rejected(page: httpx.Client) -> None:
    page.post("/api/listeners", json={"name": "Eve"})
    assert page.post("/api/listeners/0/votes", content=b" " * 100_000).status_code == 413
    assert page.post("/api/listeners/0/votes", content=b"[" * 50_000).status_code == 422


def test_web_server_is_loaded_when_a_page_is_served() -> None:
    code = """
import sys
import voicelab as vl
import voicelab.listening.design, voicelab.listening.report, voicelab.listening.study, voicelab.listening.webmushra
vl.listen, vl.Ballot, vl.Study, vl.ListeningTest, vl.analyze
assert not {"starlette", "uvicorn"} & set(sys.modules), sorted({"starlette", "uvicorn"} & set(sys.modules))
import voicelab.listening.server
assert {"starlette", "uvicorn"} <= set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
