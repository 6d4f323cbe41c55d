from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.served import serving, tiny_engine
from tests.speechlike import speech_file
from tests.voices.test_cover import picture
from voicelab.schema import VoiceCreate
from voicelab.service.keys import KeyStore
from voicelab.voices.store import LOCAL_OWNER, Sample, VoiceStore


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a service that keeps voices, with a key in the environment."""
    with tiny_engine(tmp_path) as engine, serving(tmp_path, engine) as service:
        monkeypatch.setenv("VOICELAB_API_KEY", service.secret)
        yield service.url


@pytest.fixture
def recordings(run: Any) -> None:
    """Two files in the folder that commands run in."""
    Path("a.wav").write_bytes(speech_file(2))
    Path("b.mp3").write_bytes(speech_file(2, 200, "mp3"))
    Path("cover.png").write_bytes(picture("png"))
    Path("noise.wav").write_bytes(b"this is no audio")


def test_a_voice_is_made_and_its_id_is_last_on_stdout(run: Any, host: str, recordings: None) -> None:
    done = run.well(
        *("voices", "create", "Ada", "a.wav", "b.mp3", "--base-url", host, "--text", "one", "--text", "two"),
        *("--tag", "calm", "--tag", "low", "--description", "deep", "--visibility", "public", "--cover", "cover.png"),
    )
    (made,) = done.stdout.splitlines()
    assert "Ada: trained, public, 2 recordings" in done.stderr
    record = json.loads(run.well("voices", "show", made, "--base-url", host).stdout)
    assert (record["_id"], record["title"], record["description"]) == (made, "Ada", "deep")
    assert (record["visibility"], record["tags"]) == ("public", ["calm", "low"])
    assert [sample["text"] for sample in record["samples"]] == ["one", "two"]
    run.well("say", "Hello.", "-o", "hello.wav", "--voice", made, "--base-url", host)
    done = run.well("voices", "create", "Ben", "a.wav", "--text", "one", "--enhance", "--base-url", host)
    assert ": trained, private, 1 recording" in done.stderr  # unless something else is said


def test_operator_lists_shows_and_deletes_voices_of_keys(run: Any) -> None:
    with KeyStore() as keys:
        ada, ben = (keys.create(name).key for name in ("ada", "ben"))
    request = VoiceCreate.build(title="Low", voices=[speech_file(2)], visibility="private")
    with VoiceStore() as store:
        ids = []
        for owner in (ada.owner, ben.owner, ben.owner, LOCAL_OWNER):
            ids.append(store.begin(request, [Sample(speech_file(2), "one", "2 s")], owner))
            store.train(ids[-1])
            store.finish(ids[-1], "f", b"")
    assert [line.split()[0] for line in run.well("voices", "list").stdout.splitlines()] == ids[3:]
    assert f"Low  ada ({ada.prefix}…)" in run.well("voices", "list", "--owner", "ada").stdout
    everything = run.well("voices", "list", "--owner", "all").stdout
    assert all(voice in everything for voice in ids[:3])
    assert json.loads(run.well("voices", "show", ids[1], "--owner", "ben").stdout)["title"] == "Low"
    assert "there is no voice" in run.refused("voices", "delete", ids[1], "--owner", "ada")
    assert "no key" in run.refused("voices", "list", "--owner", "nobody")
    run.well("voices", "delete", ids[1], "--owner", "all")
    assert "voices of this key that remain: 1; --delete-voices" in run.well("keys", "revoke", "ben").stderr
    assert f"deleted the voice {ids[2]}" in run.well("keys", "revoke", "ben", "--delete-voices").stderr
    with VoiceStore() as store:
        assert store.usage(ben.owner) == (0, 0)
        assert store.usage(ada.owner)[0] == store.usage(LOCAL_OWNER)[0] == 1


def test_invalid_arguments_are_one_line_with_the_field(run: Any, host: str, recordings: None) -> None:
    for arguments, said in (
        (("Ada", "missing.wav"), "missing.wav: "),
        (("Ada", "a.wav", "--cover", "missing.png"), "missing.png: "),
        ((" ", "a.wav"), "title: "),
        (("Ada", "a.wav", "--text", "one", "--text", "two"), "texts: "),
        (("Ada", "a.wav", "--visibility", "secret"), "visibility: "),
        (("Ada", "a.wav", "--visibility", "public"), "cover_image: "),
        (("Ada", "noise.wav"), "voices"),
        (("Ada", "a.wav", "--text", "one", "--visibility", "public", "--cover", "noise.wav"), "cover_image: "),
    ):
        assert said in run.refused("voices", "create", *arguments, "--base-url", host)
    assert "404" in run.refused("voices", "show", "nobody", "--base-url", host)


def test_the_embedded_voice_keeps_it_and_speaks_with_it(run: Any, tmp_path: Path) -> None:
    Path("a.wav").write_bytes(speech_file(4))
    made = run.well("voices", "create", "Ada", "a.wav", "--text", "said in it")
    name = made.stdout.splitlines()[-1]
    assert (tmp_path / "home").is_dir()
    assert json.loads(run("voices", "show", name).stdout)["title"] == "Ada"
    (line,) = run("voices", "list").stdout.splitlines()
    assert (line.split()[:2], line.split()[3:]) == ([name, "trained"], ["Ada"])
    for file, *voice in (("plain.pcm",), ("ada.pcm", "--voice", name)):
        run.well("say", "A seed repeats.", "-o", file, "--seed", "7", *voice)
    assert Path("ada.pcm").stat().st_size > 20_000
    assert Path("ada.pcm").read_bytes() != Path("plain.pcm").read_bytes()


def test_voices_of_this_machine_are_listed_and_deleted_whatever_service_is_set(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICELAB_BASE_URL", "http://127.0.0.1:9")
    assert run("voices", "list").stdout == ""
    with VoiceStore() as store:
        made = store.begin(
            VoiceCreate(title="Ada", voices=(b"a",), visibility="private"),
            (Sample(b"a", "said", "Sample 1"),),
            LOCAL_OWNER,
        )
        store.train(made)
        store.finish(made, "weights-1", b"speaker")
    assert run("voices", "list").stdout.split()[0] == made
    done = run("voices", "delete", made)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"deleted {made} and its recordings\n")
    assert run("voices", "list").stdout == ""
    assert run.refused("voices", "delete", made).startswith("voicelab: there is no voice model")
