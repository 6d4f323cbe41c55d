from __future__ import annotations

import io
import json
import math
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import playwright
import pytest
from scipy.io import wavfile

from tests.listening.test_design import listening_test, sound
from tests.listening.test_votes import anything
from tests.tones import there
from voicelab.errors import ArgumentError, NotFound, RequestInvalid, StoreError
from voicelab.listening.design import KINDS, MULTIPLE, Kind
from voicelab.listening.plan import Plan
from voicelab.listening.results import analyze
from voicelab.listening.study import (
    CHECKS,
    BlindStudy,
    Headphones,
    Question,
    Study,
    answer_hash,
    check_answer,
    check_wav,
)
from voicelab.listening.votes import Ballot
from voicelab.stats import SequentialTest

QUESTIONS = (
    Question("age", "How old are you?", "number", low=18, high=99),
    Question("tongue", "Your first language?", "choice", ("English", "another"), accept=("English",)),
    Question("work", "Your work?", required=False),
)
SECRET = "0123456789abcdef-"
CLOCK = [1000.0]
"""Seconds of the clock by which a study measures idle times and the playing of sounds."""
FIRST: dict[str, dict[str, Any]] = {
    "consent": {"agreed": True},
    "questionnaire": {"age": 44, "tongue": "English"},
    "volume": {},
    "training": {},
}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    # The module's name alone: another clock for all would let event loops of other threads sleep for hours.
    monkeypatch.setattr("voicelab.listening.study.time", SimpleNamespace(monotonic=lambda: CLOCK[0]))


def a_study(kind: Kind = "AB", **fields: Any) -> Study:
    plain = (*MULTIPLE, "transcription")
    test = replace(
        listening_test(kind, items=4, checks=int(kind not in plain)),
        training=int(kind != "transcription"),
        per_listener=2,
    )
    return Study(test, **{"listeners": 8, "consent": "We keep\nyour answers.", "questions": QUESTIONS, **fields})


def reach(page: BlindStudy, state: dict[str, Any], *until: str) -> dict[str, Any]:
    """Go through the steps of a listener until one of these, or the end."""
    while "end" not in state and state["steps"][0] not in until:
        step, number = state["steps"][0], state["listener"]
        answers: Mapping[str, Any] = FIRST.get(step, {})
        if step == "headphones":
            asked = [trial["id"].split("-headphones") for trial in state["headphones"]]
            answers = {"answers": [check_answer(int(block), int(place)) for block, place in asked]}
        if step == "trials":
            while (trial := page.trial(number)) is not None:
                vote_on(page, number, trial)
        state = page.step(number, step, answers)
    return state


def vote_on(page: BlindStudy, number: int, trial: dict[str, Any]) -> dict[str, Any]:
    """Fetch and play all sounds of a trial, and answer it."""
    asked = next(one for one in page.ballot.trials(number) if one.id == trial["id"])
    sounds = [letter["sound"] for letter in trial["letters"]] + [trial["reference"]] * bool(trial["reference"])
    for name in sounds:
        page.sound(name)
    CLOCK[0] += 2 * len(sounds)
    played = {"seconds": 2.0 * len(sounds), "plays": len(sounds)}
    return page.vote(number, {"trial": trial["id"], "answers": anything(asked), **played})


def test_questions_at_breaks(tmp_path: Path) -> None:
    tired = Question("tired", "How tired are you, from 1 to 5?", "number", low=1, high=5, when="breaks")
    study = a_study("MOS", questions=(*QUESTIONS, tired), breaks=2)
    study = Study.load(study.save(tmp_path / "study"))
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        number = reach(page, page.enter(SECRET, "p"), "trials")["listener"]
        for place in range(len(study.test.trials(0))):
            trial = there(page.trial(number))
            assert trial["place"] == place
            if place and place % 2 == 0:
                with pytest.raises(RequestInvalid, match="'trials' is not the current step"):
                    vote_on(page, number, trial)
                with pytest.raises(RequestInvalid, match="from 1 to 5, got 9"):
                    page.step(number, f"break {place}", {"tired": 9})
                with pytest.raises(RequestInvalid, match="not the current step"):
                    page.step(number, f"break {place + 2}", {"tired": 3})
                assert page.step(number, f"break {place}", {"tired": place})["steps"] == ["trials"]
            vote_on(page, number, trial)
        assert page.step(number, "trials", {})["end"] == "finished"
        people = ballot.people()
        assert people[["questionnaire.age", "break 2.tired", "break 4.tired"]].to_numpy().tolist() == [[44, 2, 4]]
        assert "questionnaire.tired" not in people
        counted = analyze(study.test, ballot).report().listeners
        assert "tired (break 2)" in set(counted["question"])
    with pytest.raises(ArgumentError, match=r"breaks: must be above 0 .* got 0"):
        a_study("MOS", questions=(tired,))
    with pytest.raises(ArgumentError, match="accept"):
        Question("ok", "Well?", "choice", ("yes", "no"), accept=("yes",), when="breaks")


@pytest.mark.parametrize(
    ("kind", "more", "answers"),
    [
        ("MOS", {"scales": {"naturalness": "How natural?", "style": "How lively?"}}, ("A naturalness", "A style")),
        ("MUSHRA-NMR", {"scales": {"b c": "How natural?", "style": "How lively?"}}, ("A b c", "B b c")),
        ("transcription", {}, ("A",)),
        ("BWS", {}, ("best", "worst")),
    ],
)
def test_a_static_page_of_every_kind_is_collected(
    tmp_path: Path, kind: Kind, more: dict[str, Any], answers: tuple[str, ...]
) -> None:
    test = replace(listening_test(kind, items=4), **more)
    study = Study.load(Study(test, listeners=3).save(tmp_path / "study"))
    assert study.test.digest == test.digest
    study.export(study.export(tmp_path / "page"))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("Mine.")
    with pytest.raises(StoreError, match=r"got index\.html without study\.json; choose another folder$"):
        study.export(tmp_path / "site")
    block = json.loads((tmp_path / "page" / "blocks" / "1.json").read_text())
    assert [trial["scales"] for trial in block["trials"]] == [list(map(list, test.scales.items()))] * len(
        block["trials"]
    )
    votes = [{"trial": trial.id, "answers": anything(trial, test.scales)} for trial in test.trials(1)]
    assert {*answers} <= {*votes[0]["answers"]}
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"listener": "x", "block": 1, "steps": {}, "votes": votes, "design": test.digest}))
    with Ballot(test, tmp_path / "votes") as ballot:
        assert study.collect(ballot, file) == 1
        frame = ballot.frame()
        assert len(frame) == len(votes) * len(test.trials(0)[0].slots) * max(1, len(test.scales))
        if kind == "transcription":
            # "the table talked through", of the table walked through the blue truth
            assert set(frame["rating"].round(6)) == {round(100 * 3 / 7, 6)}
            volume = BlindStudy(study, ballot).stimulus("1-volume-")
            first = test.trials(1)[0].slots["A"]
            assert np.array_equal(volume.source.samples, first.source.samples[::-1])


@pytest.mark.parametrize("kind", KINDS)
def test_listener_completes_a_study(tmp_path: Path, kind: Kind) -> None:
    study = a_study(
        kind, headphones="huggins", comment="Anything else?", code="C0DE", return_to="https://crowd.example"
    )
    steps = (
        "consent",
        "questionnaire",
        "headphones",
        "volume",
        *["training"] * (kind != "transcription"),
        "trials",
        "comment",
    )
    assert study.steps == steps
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        state = page.enter(SECRET, "person 7")
        assert state["steps"] == list(steps)
        assert reach(page, state) == {"end": "finished", "code": "C0DE", "return_to": "https://crowd.example"}
        # Who comes again has taken part.
        assert page.enter("another-browser-17", "person 7")["end"] == "finished"
        assert len(ballot.votes()) == len(study.test.trials(0))
        people = ballot.people()
        assert people["questionnaire.age"].tolist() == [44.0]
        assert people["questionnaire.work"].isna().all()
        assert study.finished(ballot) == (people["listener"][0],)
        assert ballot.frame()["listener"].unique().tolist() == list(study.finished(ballot))
        assert "person 7" not in json.dumps(people.astype(str).to_dict())
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"person 7" not in files
    assert (tmp_path / "votes.key").stat().st_mode & 0o777 == 0o600


def test_response_files_are_private(tmp_path: Path) -> None:
    study = a_study(code="C0DE")
    folder = study.save(tmp_path / "new" / "study")
    modes = {path: path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    assert set(modes.values()) == {0o700, 0o600}
    old = tmp_path / "old.sqlite3"
    for path in (folder / "votes.sqlite3", old, tmp_path / "votes" / "here.sqlite3"):
        with Ballot(study.test, path) as ballot:
            BlindStudy(study, ballot)
        key = path.with_name(f"{path.name}.key")
        assert {one.stat().st_mode & 0o777 for one in (path, key)} == {0o600}
        for one in (path, key):
            one.chmod(0o644)
        with Ballot(study.test, path) as ballot:
            BlindStudy(study, ballot)
        assert {one.stat().st_mode & 0o777 for one in (path, key)} == {0o600}
    assert (tmp_path / "votes").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "answers",
    [
        {"block": math.inf}, {"block": "one"}, {"steps": [1]}, {"steps": {"\ud800": {}}}, {"steps": {"comment": 3}},
        {"votes": [3]}, {"votes": {"trial": 1}}, {"listener": "\x00"}, {"votes": [{"trial": "0-0", "seconds": 10**400}]},
    ],
)  # fmt: skip
def test_invalid_answer_files_are_rejected(tmp_path: Path, answers: dict[str, Any]) -> None:
    study = a_study()
    qualified = {"questionnaire": FIRST["questionnaire"]}
    whole = {"listener": "a", "block": 0, "steps": qualified, "votes": [], "design": study.test.digest, **answers}
    (tmp_path / "answers.json").write_text(json.dumps(whole))
    with Ballot(study.test, tmp_path / "votes") as ballot:
        with pytest.raises((StoreError, RequestInvalid, NotFound)):
            study.collect(ballot, tmp_path / "answers.json")
        assert not ballot.votes()


def test_steps_are_ordered_and_idempotent(tmp_path: Path) -> None:
    study = a_study()
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        state = page.enter(SECRET)
        number = state["listener"]
        for late in ("trials", "questionnaire", "nonsense", 3):
            with pytest.raises(RequestInvalid, match="not the current step"):
                page.step(number, late, {"age": 20})
        with pytest.raises(RequestInvalid, match="not the current step"):
            page.trial(number)
        with pytest.raises(RequestInvalid, match="not the current step"):
            page.vote(number, {"trial": "0-0", "answers": {"choice": "A"}})
        state = page.step(number, "consent", {"agreed": True})
        assert page.step(number, "consent", {"agreed": False}) == state
        for answers, field in (
            ({"tongue": "English"}, "age"),
            ({"age": 17, "tongue": "English"}, "age"),
            ({"age": math.nan, "tongue": "English"}, "age"),
            ({"age": 20, "tongue": "Esperanto"}, "tongue"),
            ({"age": 20, "tongue": "English", "work": "x" * 6000}, "work"),
            ([], "answers"),
        ):
            with pytest.raises(RequestInvalid, match=f"^{field}: "):
                page.step(number, "questionnaire", answers)
        reach(page, state, "trials")
        with pytest.raises(RequestInvalid, match="unanswered"):
            page.step(number, "trials", {})
        # An answer whose acknowledgement was lost comes twice; the second is no error and changes nothing.
        trial = there(page.trial(number))
        assert vote_on(page, number, trial) == {"kept": True}
        assert page.vote(number, {"trial": trial["id"], "answers": {"choice": "B"}}) == {"kept": False}
        assert [vote.answers for vote in ballot.votes()] == [{"choice": "A"}]


@pytest.mark.parametrize(
    ("step", "answers", "reason"),
    [
        ("consent", {}, "consent"),
        ("questionnaire", {"age": 30, "tongue": "another"}, "qualification"),
    ],
)
def test_unqualified_listener_is_screened_out(tmp_path: Path, step: str, answers: dict[str, Any], reason: str) -> None:
    study = a_study()
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        state = reach(page, page.enter(SECRET), step)
        end = {"end": "left", "reason": reason}
        assert page.step(state["listener"], step, answers) == end
        assert page.step(state["listener"], "volume", {}) == end
        assert page.enter(SECRET) == end
        with pytest.raises(RequestInvalid, match="not the current step"):
            page.trial(state["listener"])
        # Those trials are the next one's.
        after = page.enter("another-browser-17")
        assert (after["listener"], after["volume"]) == (1, state["volume"])
        assert study.finished(ballot) == ()


def test_headphone_check_has_two_attempts(tmp_path: Path) -> None:
    study = a_study(headphones="antiphase")
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        state = reach(page, page.enter(SECRET), "headphones")
        again = page.step(state["listener"], "headphones", {"answers": [0] * 6})
        assert again["steps"] == state["steps"]
        first, second = ({trial["id"] for trial in one["headphones"]} for one in (state, again))
        assert len(first | second) == CHECKS
        with pytest.raises(RequestInvalid, match="list of 6"):
            page.step(state["listener"], "headphones", {"answers": [1]})
        # Five of six are enough for this one, and not for the other.
        right = [check_answer(0, place) for place in range(6, 12)]
        assert page.step(state["listener"], "headphones", {"answers": [*right[:5], 0]})["steps"][0] == "volume"
        sent = page.sound(again["headphones"][0]["letters"][0]["sound"])
        assert wavfile.read(io.BytesIO(sent))[1].shape[1] == 2
        with pytest.raises(NotFound):
            page.sound("7-headphone0")
    strict = replace(study, headphones="huggins")
    with Ballot(study.test, tmp_path / "strict") as ballot:
        page = BlindStudy(strict, ballot)
        number = reach(page, page.enter(SECRET), "headphones")["listener"]
        page.step(number, "headphones", {"answers": [0] * 6})
        assert page.step(number, "headphones", {"answers": [*right[:5], 0]}) == {"end": "left", "reason": "headphones"}


def test_person_has_one_attempt_in_one_browser(tmp_path: Path) -> None:
    study = a_study()
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        state = reach(page, page.enter(SECRET, "p1"), "trials")
        page.check(state["listener"], SECRET)
        moved = page.enter("another-browser-17", "p1")
        assert moved["listener"] == state["listener"]
        page.check(state["listener"], "another-browser-17")
        for secret in (SECRET, "", None):
            with pytest.raises(NotFound, match="another window"):
                page.check(state["listener"], secret)
        # A restart of the server forgets nothing.
        assert BlindStudy(study, ballot).enter("another-browser-17", "p1")["steps"][0] == "trials"
        assert page.enter(SECRET)["listener"] == 1
        for session, person in (
            ("short", ""),
            (3, ""),
            (SECRET, 3),
            (SECRET, "x" * 300),
            ("ä" * 20, ""),
            (SECRET, "\ud800"),
        ):
            with pytest.raises(RequestInvalid):
                page.enter(session, person)


def test_trials_of_idle_listeners_are_reassigned(tmp_path: Path) -> None:
    study = a_study(idle_minutes=30)
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        gone = reach(page, page.enter(SECRET, "gone"), "trials")
        reach(page, page.enter(SECRET, "finished"))
        trial = there(page.trial(gone["listener"]))
        vote_on(page, gone["listener"], trial)
        CLOCK[0] += 29 * 60
        assert page.enter(SECRET, "soon")["volume"].startswith("2-")
        CLOCK[0] += 2 * 60
        late = page.enter(SECRET, "late")
        assert late["volume"] == gone["volume"]
        # Nobody else gets them now, and who comes back after all goes on where they were.
        assert page.enter(SECRET, "later")["volume"].startswith("3-")
        back = page.enter(SECRET, "gone")
        assert (back["listener"], back["steps"][0]) == (0, "trials")
        assert reach(page, back) == reach(page, late)
        names = study.finished(ballot)
        frame = ballot.frame()
        assert len(names) == 3
        assert frame[frame["listener"].isin(names)].groupby("listener").size().nunique() == 1
        assert study.progress(ballot).finished == 3


def test_no_more_listeners_are_admitted_than_the_study_needs(tmp_path: Path) -> None:
    study = a_study(questions=())
    study = replace(study, test=replace(study.test, per_listener=3, checks=0), listeners=2)
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        reach(page, page.enter(SECRET, "slow"), "trials")
        reach(page, page.enter(SECRET, "a"))
        assert page.enter(SECRET, "b") == {"end": "busy"}
        CLOCK[0] += 60 * study.idle_minutes + 1
        assert reach(page, page.enter(SECRET, "b"))["end"] == "finished"
        assert page.enter(SECRET, "c") == {"end": "full"}
        # The idle listener may still finish.
        assert reach(page, page.enter(SECRET, "slow"))["end"] == "finished"


def test_excluded_listeners_do_not_keep_a_place(tmp_path: Path) -> None:
    study = a_study("MOS", questions=())
    study = replace(study, test=replace(study.test, per_listener=3), listeners=2)
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        state = reach(page, page.enter(SECRET, "careless"), "trials")
        for trial in ballot.trials(state["listener"]):
            ballot.vote(state["listener"], trial.id, {"A": 5})
        assert reach(page, state)["end"] == "finished"
        reach(page, page.enter(SECRET, "careful"), "trials")
        assert (len(study.finished(ballot)), study.counted(ballot)) == (1, ())
        assert "end" not in page.enter(SECRET, "instead")
        assert page.enter(SECRET, "more") == {"end": "busy"}


@pytest.mark.parametrize("kind", KINDS)
def test_response_counts_after_every_sound_was_fetched_and_played(tmp_path: Path, kind: Kind) -> None:
    study = a_study(kind)
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        number = reach(page, page.enter(SECRET), "trials")["listener"]
        trial, later = there(page.trial(number)), ballot.trials(number)[1]
        ids = [letter["sound"] for letter in trial["letters"]] + [trial["reference"]] * bool(trial["reference"])
        body = {"trial": trial["id"], "answers": anything(ballot.trials(number)[0]), "seconds": 60.0, "plays": len(ids)}
        with pytest.raises(RequestInvalid, match="must be the current trial"):
            page.vote(number, {**body, "trial": later.id, "answers": anything(later)})
        CLOCK[0] += 60
        with pytest.raises(RequestInvalid, match=f"without {trial['letters'][0]['letter']}"):
            page.vote(number, body)
        for name in ids:
            page.sound(name)
        for wrong in ({"plays": len(ids) - 1}, {"seconds": 0.5 * len(ids)}):
            with pytest.raises(RequestInvalid, match="from "):
                page.vote(number, {**body, **wrong})
        assert page.vote(number, body) == {"kept": True}
        following = there(page.trial(number))
        for letter in following["letters"]:
            page.sound(letter["sound"])
        with pytest.raises(RequestInvalid, match=r"got them after 0\.0 s"):
            page.vote(number, {**body, "trial": following["id"], "answers": anything(later)})
        # After a restart the server knows only what the page states.
        assert BlindStudy(study, ballot).vote(number, {**body, "trial": later.id, "answers": anything(later)})["kept"]


@pytest.mark.parametrize("kind", KINDS)
def test_study_folder_round_trip(tmp_path: Path, kind: Kind) -> None:
    study = a_study(kind, headphones="huggins", comment="Anything “else”?\nOr more?", code="C", breaks=3)
    if kind in {"MOS", "DMOS"}:
        study = replace(study, test=replace(study.test, traps={2: sound(7)}))
    if kind == "AB":
        study = replace(study, test=replace(study.test, lufs=None))
    again = Study.load(study.save(tmp_path / "study"))
    assert again.test.to_record() == study.test.to_record()
    assert [again.test.trials(number) for number in range(3)] == [study.test.trials(number) for number in range(3)]
    assert replace(again, test=study.test) == study
    text = (tmp_path / "study" / "study.toml").read_text()
    (tmp_path / "study" / "study.toml").write_text(text.replace("listeners = 8", 'listeners = "many"'))
    with pytest.raises(ArgumentError, match="listeners"):
        Study.load(tmp_path / "study")
    (tmp_path / "study" / "study.toml").write_text(text.replace("breaks = 3", "brakes = 3"))
    with pytest.raises(StoreError, match="brakes"):
        Study.load(tmp_path / "study")
    with pytest.raises(StoreError):
        Study.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"listeners": 0}, "listeners"),
        ({"listeners": 1}, "unconnected"),
        ({"headphones": "loud"}, "huggins"),
        ({"breaks": -1}, "breaks"),
        ({"idle_minutes": 0}, "idle_minutes"),
        ({"return_to": "javascript:alert(1)"}, "return_to"),
        ({"questions": (QUESTIONS[0], QUESTIONS[0])}, "names must be unique, got"),
    ],
)
def test_invalid_studies_are_rejected(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        a_study(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "two words"},
        {"kind": "date"},
        {"kind": "choice"},
        {"options": ("a",)},
        {"kind": "choice", "options": ("a",), "accept": ("b",)},
    ],
)
def test_invalid_questions_are_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Question(**{"name": "n", "text": "?", **fields})


@pytest.mark.parametrize("kind", ["huggins", "antiphase"])
def test_headphone_check_sounds(kind: Headphones) -> None:
    for number in range(8):
        rate, samples = wavfile.read(io.BytesIO(check_wav(kind, 3, number)))
        sounds = [samples[start : start + rate].astype(float) for start in (0, rate * 3 // 2, rate * 3)]
        right = check_answer(3, number) - 1
        if kind == "huggins":
            # Each ear alone hears noise that is like that of the others; the two differ around 600 Hz in one.
            apart = [np.abs(np.fft.rfft(one[:, 0] - one[:, 1])) for one in sounds]
            assert [
                spectrum.max() > 1000 * one.shape[0] ** 0.5 for spectrum, one in zip(apart, sounds, strict=True)
            ] == [place == right for place in range(3)]
            assert abs(int(apart[right].argmax()) - 600) <= 36
            power = [np.square(one).mean(axis=0) for one in sounds]
            np.testing.assert_allclose(power, np.mean(power), rtol=0.1)
        else:
            level = [np.square(one[:, 0]).mean() for one in sounds]
            assert int(np.argmin(level)) == right
            assert max(level) / min(level) == pytest.approx(4.0, rel=0.01)
            mixed = [np.square(one.sum(axis=1)).mean() for one in sounds]
            assert int(np.argmin(mixed)) != right


def test_p808_preset(tmp_path: Path) -> None:
    plain = listening_test("MOS", items=4)
    with pytest.raises(ArgumentError, match="trapping"):
        Study.preset("P.808", plain, 8)
    with pytest.raises(ArgumentError, match="ACR"):
        Study.preset("P.808", listening_test("AB"), 8)
    study = Study.preset("P.808", replace(plain, traps={2: sound(5)}), 8, code="C")
    checks = [trial for trial in study.test.trials(0) if trial.check]
    assert sorted(trial.wanted is None for trial in checks) == [False, True]
    assert len(study.test.training_trials(0)) == 5
    assert (study.headphones, study.code, study.questions[0].accept) == ("antiphase", "C", ("yes",))
    assert "overall quality" in study.test.question


def test_progress_and_stopping(tmp_path: Path) -> None:
    study = a_study("AB", questions=(), consent="")
    plan = Plan("", ("a", "b"), listeners=6)
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        assert str(study.progress(ballot)) == "0 of 8 listeners"
        assert str(study.progress(ballot, rule=SequentialTest())) == "0 of 8 listeners, stopping rule: continue"
        rng = np.random.default_rng(1)
        for person in range(6):
            state = reach(page, page.enter(SECRET, f"p{person}"), "trials")
            number = state["listener"]
            while (trial := ballot.next_trial(number)) is not None:
                better = "A" if trial.slots["A"].system == "a" or trial.check else "B"
                choice = trial.answer if trial.check else better if rng.random() < 0.9 else "AB".replace(better, "")
                ballot.vote(number, trial.id, {"choice": choice})
            reach(page, state)
        now = study.progress(ballot)
        assert not now.enough
        assert now.width is not None
        assert str(now) == f"6 of 8 listeners, interval ±{now.width:.2f}".replace("±0.", "±.")
        assert str(study.progress(ballot, plan=plan)).endswith(
            "6 of 6 listeners, interval " + f"±{now.width:.2f}".replace("0.", ".") + ", enough"
        )
        sequential = study.progress(ballot, rule=SequentialTest(alpha=0.4))
        assert (sequential.decision, sequential.enough) == ("effect", True)
        cautious = study.progress(ballot, rule=SequentialTest())
        assert cautious.width is not None
        assert cautious.width > now.width
        undecided = study.progress(ballot, rule=SequentialTest(alpha=1e-6))
        assert (undecided.decision, undecided.enough) == ("continue", False)
        assert "stopping rule: continue, more " in str(undecided)


def test_jsonl_answers_of_several_listeners(tmp_path: Path) -> None:
    study, lines = a_study(), []
    for block in range(3):
        votes = [
            {"trial": trial.id, "answers": {"choice": trial.answer or "A"}, "seconds": 1, "plays": 1}
            for trial in study.test.trials(block)
        ]
        steps = {**FIRST, "questionnaire": {"age": 30 + block, "tongue": "English"}, "comment": {"comment": "a\u2028b"}}
        who = {"listener": f"{block}", "design": study.test.digest, "block": block}
        lines.append(json.dumps({**who, "steps": steps, "votes": votes}, ensure_ascii=False))
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(lines[:2]) + "\n", encoding="utf-8")
    with Ballot(study.test, tmp_path / "votes") as ballot:
        assert study.collect(ballot, file) == 2
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert study.collect(ballot, file) == 1
        joined = ballot.frame().merge(ballot.people(), on="listener")
        assert joined.groupby("listener")["questionnaire.age"].unique().explode().tolist() == [30, 31, 32]
        file.write_text("\n".join([*lines, "{"]), encoding="utf-8")
        with pytest.raises(StoreError, match="cannot be read as a listener's answers"):
            study.collect(ballot, file)
        with pytest.raises(StoreError, match=r"none\.json"):
            study.collect(ballot, tmp_path / "none.json")
        # The same items and systems, asked in another order.
        other = replace(study, test=replace(study.test, seed=1))
        with (
            Ballot(other.test, tmp_path / "other") as empty,
            pytest.raises(StoreError, match=r"answers\.jsonl, listener 0: answers to another design"),
        ):
            other.collect(empty, file)
        assert empty.listeners == ()


def test_static_page_has_no_accepted_answers_and_collect_checks_them(tmp_path: Path) -> None:
    hearing = Question("hearing", "Normal?", "choice", ("Zürich yes", "no"), accept=("Zürich yes",))
    study = a_study(questions=(hearing,), headphones="huggins")
    folder = study.export(tmp_path / "page")
    (question,) = json.loads((folder / "study.json").read_text())["test"]["study"]["questions"]
    assert question["options"] == ["Zürich yes", "no"]
    assert question["accept"] == [answer_hash("hearing", "Zürich yes")]
    right = json.loads((folder / "blocks" / "0.json").read_text())["right"]
    assert min(right) > 3
    assert len(set(right)) == len(right)
    program = f"import {{ answerHash }} from {str(folder / 'listening-study.js')!r};"
    program += "console.log(answerHash('hearing', 'Zürich yes'), answerHash('headphones 3', 2))"
    node = Path(playwright.__file__).parent / "driver" / "node"
    done = subprocess.run([node, "--input-type=module"], input=program, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(question["accept"][0]), str(answer_hash("headphones 3", 2))]

    def answers(name: str, hears: str | None) -> str:
        votes = [
            {"trial": trial.id, "answers": {"choice": trial.answer or "A"}, "seconds": 1, "plays": 1}
            for trial in study.test.trials(0)
        ]
        steps = {**FIRST, "questionnaire": {"hearing": hears}, "headphones": {"right": 6}, "trials": {}}
        if hears is None:
            del steps["questionnaire"]
        who = {"listener": name, "design": study.test.digest, "block": 0}
        return json.dumps({**who, "steps": steps, "votes": votes})

    # Listeners who changed the page answer every question without qualifying, or without the questionnaire.
    lines = [answers("fits", "Zürich yes"), answers("changed", "no"), answers("skipped", None)]
    (tmp_path / "answers.jsonl").write_text("\n".join(lines) + "\n")
    with Ballot(study.test, tmp_path / "votes") as ballot:
        assert study.collect(ballot, tmp_path / "answers.jsonl") == 3
        assert study.finished(ballot) == ("fits",)
        assert set(ballot.frame()["listener"]) == {"fits"}
        assert ballot.people()["left.reason"].dropna().tolist() == ["qualification"] * 2


def test_listeners_without_all_responses_are_not_counted(tmp_path: Path) -> None:
    study = a_study("MOS", questions=())
    trials, lines = study.test.trials(0), []
    for name, count in (("full", len(trials)), ("half", len(trials) // 2)):
        votes = [
            {"trial": trial.id, "answers": {"A": 1 if trial.check else 3 + index % 2}, "seconds": 1, "plays": 1}
            for index, trial in enumerate(trials[:count])
        ]
        steps = {step: FIRST.get(step, {}) for step in study.steps}
        lines.append({"listener": name, "design": study.test.digest, "block": 0, "steps": steps, "votes": votes})
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with Ballot(study.test, tmp_path / "votes") as ballot:
        study.collect(ballot, tmp_path / "answers.jsonl")
        assert list(analyze(study.test, ballot).excluded) == ["half"]
        assert study.finished(ballot) == ("full", "half")
        assert study.counted(ballot) == ("full",)
