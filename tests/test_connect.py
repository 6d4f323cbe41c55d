"""The one argument of ``connect`` that keeps, records or plays back; with a real service, and its key planted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.served import serving
from tests.tones import ToneBackend
from voicelab.backends.runs import RecordingBackend, ReplayBackend
from voicelab.call import Call
from voicelab.errors import AuthenticationError, RequestInvalid, ServiceUnavailable, StoreError
from voicelab.lab import Lab, connect
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.schema import TTSRequest
from voicelab.takes.collection import load


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with serving(tmp_path_factory.mktemp("keys")) as service:
        yield service.url, service.secret


def test_a_recording_is_one_argument_and_so_is_its_replay(service: tuple[str, str], tmp_path: Path) -> None:
    url, secret = service
    with connect(url, api_key=secret, record=tmp_path / "take") as lab:
        said = [lab.speak("Hello", seed=3), lab.speak("Hello"), lab.speak("Bye", voice="ben", format="mp3")]
        capabilities = lab.capabilities
    with connect(replay=tmp_path / "take") as lab:
        assert lab.capabilities == capabilities
        again = [lab.speak("Hello", seed=3), lab.speak("Hello"), lab.speak("Bye", voice="ben", format="mp3")]
        assert again == said
        for clip, before in zip(again, said, strict=True):
            assert clip.take == before.take
        with pytest.raises(StoreError, match="most similar"):
            lab.speak("Hello?", seed=3)


def test_no_key_enters_a_recording_a_cache_or_a_sweep(
    service: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, secret = service
    wrong = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    for key in (secret, wrong):
        monkeypatch.setenv("VOICELAB_API_KEY", key)
        for given in (key, None):
            with connect(url, api_key=given, record=tmp_path / "take", cache=tmp_path / "cache") as lab:
                with Journal(tmp_path / "run", [lab.capabilities]) as journal:
                    try:
                        journal.add(
                            Cache(tmp_path / "other").get_or_render(lab.backend, Call(lab.request("Hello"), seed=3))
                        )
                        lab.speak("Hello", seed=4)
                    except AuthenticationError:
                        assert key == wrong
                with pytest.raises((RequestInvalid, AuthenticationError)):
                    lab.speak("Hello", voice="nobody")
                assert key not in repr(lab) + repr(lab.backend)
    assert len(load(tmp_path / "run")) == 1
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        data = path.read_bytes()
        for key in (secret, wrong):
            assert key.encode() not in data, path
            assert key[3:-6].encode() not in data, path
    # The search can find: what was asked is there.
    assert any(b"Hello" in path.read_bytes() for path in files)


def test_a_cache_is_one_argument(service: tuple[str, str], tmp_path: Path) -> None:
    url, secret = service
    with connect(url, api_key=secret, cache=tmp_path / "cache") as lab:
        first, second = lab.speak("Hello", seed=3), lab.speak("Hello", seed=3)
        assert first == second
        assert first.notes == ()
        assert "cached take" in second.notes[0]
        assert second.take == first.take
    cache = Cache(tmp_path / "cache")
    assert len(cache) == 1
    with connect(url, api_key="vl_wrong", cache=cache, record=tmp_path / "take") as lab:
        assert lab.speak("Hello", seed=3) == first  # a hit asks nobody
    assert cache.stats().hits == 1
    with connect(replay=tmp_path / "take") as lab:
        assert lab.speak("Hello", seed=3) == first


def test_true_is_the_cache_in_voicelabs_data_and_the_default_is_none(service: tuple[str, str]) -> None:
    url, secret = service
    before = len(Cache())
    for cache, count in ((None, 0), (False, 0), (True, 1)):
        with connect(url, api_key=secret, cache=cache) as lab:
            lab.speak("Only here", seed=3)
        assert len(Cache()) - before == count


def test_a_replay_needs_no_key_and_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab(ToneBackend()) as lab:
        assert lab.voices
    with pytest.raises(StoreError, match="no recording"):
        connect(replay=tmp_path)
    others: tuple[dict[str, Any], ...] = (
        {"backend": "http://127.0.0.1:9"},
        {"api_key": "vl_x"},
        {"device": "cpu"},
        {"record": tmp_path},
        {"cache": True},
    )
    for other in others:
        with pytest.raises(RequestInvalid, match=next(iter(other))):
            connect(replay=tmp_path, **other)
    connect("http://127.0.0.1:9", record=tmp_path / "take").close()
    monkeypatch.setenv("VOICELAB_BASE_URL", "http://127.0.0.1:9")
    assert isinstance(connect(replay=tmp_path / "take").backend, ReplayBackend)


def test_what_cannot_be_recorded_is_said_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        connect("http://127.0.0.1:9", record=tmp_path / "file" / "take")


def test_a_recording_can_stand_behind_the_service(tmp_path: Path) -> None:
    recorder = RecordingBackend(ToneBackend(), tmp_path / "take")
    said = [recorder.synthesize(Call(TTSRequest(text="Hello", format="pcm"), seed=seed)).clip() for seed in (1, None)]
    with (
        serving(tmp_path, ReplayBackend(tmp_path / "take", "at once")) as service,
        connect(service.url, api_key=service.secret, format="pcm") as lab,
    ):
        assert [lab.speak("Hello", seed=seed) for seed in (1, None)] == said
        # What the recording lacks is the service's trouble, not the caller's; its log says what.
        with pytest.raises(ServiceUnavailable):
            lab.speak("Bye", seed=1)
