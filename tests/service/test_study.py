"""A study over its protocol: listeners who come together, answers that come twice, a server that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.listening.test_design import listening_test, sound
from tests.listening.test_study import FIRST, QUESTIONS, SECRET
from tests.served import PLAIN, program
from voicelab.listening.results import analyze
from voicelab.listening.study import Study, check_answer
from voicelab.listening.votes import Ballot
from voicelab.views.listening import listening_page


def a_study(listeners: int, items: int = 6, per_listener: int = 3, checks: int = 1, **fields: Any) -> Study:
    # Sounds of 20 ms, since a response counts only after all of them could be played.
    sounds = {f"s{n}": {"a": sound(2 * n, 0.02), "b": sound(2 * n + 1, 0.02)} for n in range(items)}
    test = replace(listening_test("AB", items=items, checks=checks, lufs=None), items=sounds, per_listener=per_listener)
    return Study(test, listeners, consent="Agreed?", questions=QUESTIONS, **fields)


@dataclass
class Listener:
    """Somebody with a browser, one connection, who answers at random and tries again what found no room or no server."""

    address: str
    name: str
    seconds: float = 0.0
    patience: float = 60.0
    kept: dict[str, str] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask until there is an answer; return what it says. By hand: httpx takes longer with many than the server does."""
        end, data = time.monotonic() + self.patience, b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nx-voicelab-listener: {SECRET}{self.name}\r\n"
        while True:
            begun = time.monotonic()
            try:
                status, said = await self.exchange(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            except (OSError, asyncio.IncompleteReadError):
                self.hang_up()
                status, said = 503, b""
            if status != 503:
                self.waits.append(time.monotonic() - begun)
                assert status == 200, said
                return said if said.startswith(b"RIFF") else json.loads(said)
            assert time.monotonic() < end, "no room for too long"
            await asyncio.sleep(0.1 + 0.3 * random.random())

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        if self.streams is None:
            url = httpx.URL(self.address)
            self.streams = await asyncio.open_connection(url.host, url.port)
        reader, writer = self.streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        said = await reader.readexactly(int(length[1]) if length else 0)
        if "connection: close" in head:
            self.hang_up()
        return int(head.split()[1]), said

    def hang_up(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None

    async def pause(self) -> None:
        await asyncio.sleep(self.seconds * (0.5 + random.random()))

    async def take_part(self) -> dict[str, Any]:
        await self.pause()
        state: dict[str, Any] = await self.call("/api/listeners", {"session": SECRET + self.name, "id": self.name})
        while "end" not in state:
            await self.pause()
            step, number = state["steps"][0], state["listener"]
            answers: Any = FIRST.get(step, {})
            if step == "headphones":
                for trial in state[step]:
                    await self.call(f"/api/sounds/{trial['letters'][0]['sound']}")
                asked = [trial["id"].split("-headphones") for trial in state[step]]
                answers = {"answers": [check_answer(int(which), int(place)) for which, place in asked]}
            if step == "trials":
                await self.answer_all(number)
            state = await self.call(f"/api/listeners/{number}/steps", {"step": step, "answers": answers})
        self.hang_up()
        return state

    async def answer_all(self, number: int) -> None:
        while (trial := (await self.call(f"/api/listeners/{number}/trial"))["trial"]) is not None:
            for one in trial["letters"]:
                await self.call(f"/api/sounds/{one['sound']}")
            await asyncio.sleep(0.05)
            await self.pause()
            choice = random.choice("AB")
            body = {"trial": trial["id"], "answers": {"choice": choice}, "seconds": 2.0, "plays": 2}
            kept = (await self.call(f"/api/listeners/{number}/votes", body))["kept"]
            # An answer that was not kept was kept before, and the server was killed before it could say so.
            self.kept[trial["id"]] = choice if kept else "?"


async def together(address: str, count: int, **fields: Any) -> list[Listener]:
    listeners = [Listener(address, f"p{number}", **fields) for number in range(count)]
    ends = await asyncio.gather(*(listener.take_part() for listener in listeners))
    assert all(end["end"] == "finished" for end in ends)
    return listeners


def check_kept(study: Study, path: Path, listeners: list[Listener]) -> None:
    """No acknowledged answer is lost, none is there twice, nobody shares trials, and the usual analysis takes them."""
    with Ballot(study.test, path) as ballot:
        assert len(study.finished(ballot)) == len(listeners)
        votes = {vote.trial.id: vote.answers["choice"] for vote in ballot.votes()}
        assert len(votes) == len(ballot.votes()) == sum(len(one.kept) for one in listeners)
        for listener in listeners:
            for trial, choice in listener.kept.items():
                assert votes[trial] == choice or choice == "?"
        assert set(Counter(vote.listener for vote in ballot.votes()).values()) == {len(study.test.trials(0))}
        assert analyze(study.test, ballot).crossed or analyze(study.test, ballot).excluded


def test_listeners_joining_concurrently(tmp_path: Path) -> None:
    study = a_study(12, headphones="huggins", checks=0)  # whose choices are random, so that many would be excluded
    with Ballot(study.test, tmp_path / "votes") as ballot, listening_page(ballot, study) as address:
        listeners = asyncio.run(together(address, 12))
        with httpx.Client(base_url=address, **PLAIN) as client:
            said = client.get("/api/test").text + "".join(
                client.post("/api/listeners", json={"session": SECRET + "new", "id": person}).text
                for person in ("", "p3")
            )
    assert '"full"' in said
    assert '"finished"' in said
    check_kept(study, tmp_path / "votes", listeners)


def test_listener_secret_is_required(tmp_path: Path) -> None:
    study = a_study(4)
    with (
        Ballot(study.test, tmp_path / "votes") as ballot,
        listening_page(ballot, study) as address,
        httpx.Client(base_url=address, **PLAIN) as client,
    ):
        state = client.post("/api/listeners", json={"session": SECRET}).json()
        assert not any(name in client.get("/api/test").text + str(state) for name in ("s0", "'a'", '"a"'))
        for header in ({}, {"x-voicelab-listener": "another-browser-17"}):
            for path, body in (
                ("steps", {"step": "consent", "answers": {"agreed": True}}),
                ("votes", {"trial": "0-0"}),
            ):
                answer = client.post(f"/api/listeners/{state['listener']}/{path}", json=body, headers=header)
                assert answer.status_code == 404
            assert client.get("/api/listeners/0/trial", headers=header).status_code == 404
        mine = {"x-voicelab-listener": SECRET}
        assert client.get("/api/listeners/0/trial", headers=mine).status_code == 422
        assert client.get("/api/listeners/5/trial", headers=mine).status_code == 404
        refused: list[Any] = [{"session": "short"}, {"session": SECRET, "id": 3}, [], {"session": None}]
        for bad in refused:
            assert client.post("/api/listeners", json=bad).status_code == 422


_WRONG: list[Any] = [
    None, True, 0, -1, 10**19, 10**30, 10**4000, 1.5, 1e308, float("nan"), float("inf"), -float("inf"), "", " ", "x" * 10**4,
    "\x00", "a\x00b", "\x1b[2J", "\ud800", "٣", "9" * 20, [], [[]], ["A"], {}, {"A": {}}, {"a": [{"b": 10**30}]},
]  # fmt: skip


def test_arbitrary_requests_are_never_internal_errors(tmp_path: Path) -> None:
    study = a_study(4, headphones="huggins", comment="Else?")
    draw = random.Random(1)
    texts = [json.dumps(value) for value in _WRONG] + [
        "1e400",
        "9" * 5000,
        "[" * 5000,
        '{"a":1,"a":2}',
        "-0",
        '"\\ud83d"',
    ]
    with (
        Ballot(study.test, tmp_path / "votes") as ballot,
        listening_page(ballot, study) as address,
        httpx.Client(base_url=address, headers={"x-voicelab-listener": SECRET}, **PLAIN) as client,
    ):
        asked = {
            "/api/listeners": ("session", "id", "name"),
            "/api/listeners/0/steps": ("step", "answers"),
            "/api/listeners/0/votes": ("trial", "answers", "seconds", "plays"),
        }
        good = {"answers": "{}", "session": f'"{SECRET}-other"', "trial": '"0-0"'}
        for step in study.steps:
            state = client.post("/api/listeners", json={"session": SECRET, "id": "me"}).json()
            assert (state["listener"], state["steps"][0]) == (0, step)
            good["step"] = f'"{step}"'
            for path, names in asked.items():
                if path.endswith("steps") and step not in {"questionnaire", "headphones", "trials"}:
                    continue  # any answers are some
                for name in names:
                    for text in texts:
                        given = {**{key: good.get(key, "1") for key in names}, name: text}
                        if draw.random() < 0.2:
                            given["answers"] = (
                                f'{{"{draw.choice(["age", "tongue", "A", "choice", "answers"])}": {text}}}'
                            )
                        body = "{" + ", ".join(f'"{key}": {value}' for key, value in given.items()) + "}"
                        answer = client.post(path, content=body.encode())
                        assert answer.status_code in {200, 404, 422}, (path, body[:200], answer.text[:300])
                        if answer.status_code != 200:
                            assert answer.json()["status"] == answer.status_code
                            assert len(answer.text) < 1000
            if step == "trials":
                break
            answers: dict[str, Any] = FIRST.get(step, {})
            if step == "headphones":
                ids = [trial["id"].split("-headphones") for trial in state[step]]
                answers = {"answers": [check_answer(int(which), int(place)) for which, place in ids]}
            client.post("/api/listeners/0/steps", json={"step": step, "answers": answers})


def test_arbitrary_numbers_in_paths_are_never_internal_errors(tmp_path: Path) -> None:
    study = a_study(4, headphones="huggins")
    numbers = ["0", "1", "00", "-1", "1.5", "9" * 10, "9" * 20, "9" * 5000, "٣", "%00", "%F0%9F%98%80", "x", "%0A"]
    with (
        Ballot(study.test, tmp_path / "votes") as ballot,
        listening_page(ballot, study) as address,
        httpx.Client(base_url=address, headers={"x-voicelab-listener": SECRET}, **PLAIN) as client,
    ):
        client.post("/api/listeners", json={"session": SECRET, "id": "me"})
        for number in numbers:
            for path in (
                f"listeners/{number}/trial",
                f"sounds/{number}-0-A",
                f"sounds/0-{number}-A",
                f"sounds/0-headphones{number}",
            ):
                assert client.get(f"/api/{path}").status_code in {200, 404, 422}, path
            for path in ("votes", "steps"):
                assert client.post(f"/api/listeners/{number}/{path}", json={}).status_code in {404, 422}
        assert client.get("/api/test").status_code == 200


def test_excluded_listeners_are_replaced(tmp_path: Path) -> None:
    study = a_study(3, checks=2)
    with (
        Ballot(study.test, tmp_path / "votes") as ballot,
        listening_page(ballot, study) as address,
        httpx.Client(base_url=address, **PLAIN) as client,
    ):

        def take_part(name: str, attentive: bool) -> dict[str, Any]:
            headers = {"x-voicelab-listener": SECRET + name}
            state: dict[str, Any] = client.post("/api/listeners", json={"session": SECRET + name}).json()
            while "end" not in state:
                step, number = state["steps"][0], state["listener"]
                while step == "trials" and (trial := ballot.next_trial(number)) is not None:
                    wrong = "B" if trial.answer == "A" else "A"
                    choice = trial.answer if attentive and trial.check else wrong
                    body = {"trial": trial.id, "answers": {"choice": choice}, "seconds": 2.0, "plays": 2}
                    assert client.post(f"/api/listeners/{number}/votes", json=body, headers=headers).json() == {
                        "kept": True
                    }
                body = {"step": step, "answers": FIRST.get(step, {})}
                state = client.post(f"/api/listeners/{number}/steps", json=body, headers=headers).json()
            return state

        for name, attentive in (("a", True), ("b", False), ("c", True), ("d", False)):
            assert take_part(name, attentive)["end"] == "finished"
        progress = study.progress(ballot)
        assert (progress.finished, progress.counted, progress.wanted, progress.enough) == (4, 2, 3, False)
        assert str(progress).startswith("2 of 3 listeners (4 finished, 2 excluded)")
        assert take_part("e", True)["end"] == "finished"
        assert client.post("/api/listeners", json={"session": SECRET + "f"}).json() == {"end": "full"}
        progress, result = study.progress(ballot), analyze(study.test, ballot)
        assert (progress.finished, progress.counted, progress.enough) == (5, 3, True)
        assert result.listeners == progress.counted
        assert {*study.finished(ballot)} - {*study.counted(ballot)} == {*result.excluded}
        # The third attentive listener was asked what an excluded one had been asked.
        blocks = ballot.people().set_index("listener")["block"]
        assert sorted(blocks[list(study.counted(ballot))]) == [0, 1, 2]


def served(folder: Path, port: int = 0) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    return program("listen", str(folder), "--port", str(port))


def test_listen_command_serves_and_resumes_a_study(tmp_path: Path) -> None:
    study = a_study(6)
    study.save(tmp_path / "study")
    with served(tmp_path / "study") as (process, address):
        before = asyncio.run(together(address, 2))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with served(tmp_path / "study") as (_, address):
        both = asyncio.run(together(address, 3))
    assert [len(one.kept) for one in both] == [0, 0, 4]
    check_kept(study, tmp_path / "study" / "votes.sqlite3", [*before, both[2]])


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("count", "seconds", "patience"), [(200, 5.0, 60.0), (2000, 20.0, 300.0)])
def test_thousands_of_concurrent_listeners(tmp_path: Path, count: int, seconds: float, patience: float) -> None:
    study = a_study(count, items=12, per_listener=6, headphones="huggins") if count == 200 else a_study(count)
    study.save(tmp_path / "study")
    with served(tmp_path / "study") as (_, address):
        listeners = asyncio.run(together(address, count, seconds=seconds, patience=patience))
    check_kept(study, tmp_path / "study" / "votes.sqlite3", listeners)
    waits = sorted(wait for one in listeners for wait in one.waits)
    p95 = waits[int(0.95 * len(waits))]
    spread = f"p50 {1000 * waits[len(waits) // 2]:.0f} ms, p95 {1000 * p95:.0f} ms, longest {waits[-1]:.2f} s"
    assert p95 <= 0.150 or count > 200, f"{len(waits)} answers: {spread}"


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_repeatedly_killed_server_loses_no_response(tmp_path: Path) -> None:
    test = listening_test("AB", items=120, lufs=None)
    study = Study(test, 60, consent="Agreed?", questions=QUESTIONS)
    study.save(tmp_path / "study")
    port = 20_000 + os.getpid() % 20_000
    listeners = [
        Listener(f"http://127.0.0.1:{port}", f"p{number}", seconds=6.0, patience=300.0) for number in range(60)
    ]

    async def kill_and_vote() -> None:
        going = asyncio.gather(*(listener.take_part() for listener in listeners))
        for _ in range(100):
            serving = served(tmp_path / "study", port)
            await asyncio.to_thread(serving.__enter__)
            await asyncio.sleep(0.2 + random.random())
            assert not going.done(), "the votes were over before the kills"
            serving.__exit__(None, None, None)
        for listener in listeners:
            listener.seconds = 0.0
        with served(tmp_path / "study", port):
            await going

    asyncio.run(kill_and_vote())
    check_kept(study, tmp_path / "study" / "votes.sqlite3", listeners)
