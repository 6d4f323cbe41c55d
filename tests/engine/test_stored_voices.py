"""Stored voices: persistence, re-encoding with other weights, and errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.engine.tiny import make_codec, write_weights
from tests.speechlike import RATE, speech_file, speechlike
from voicelab.backend import Backend
from voicelab.backends.runs import CachedBackend, RecordingBackend
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.engine.local import LocalBackend
from voicelab.errors import NotFound, RequestInvalid, StoreError
from voicelab.lab import Lab
from voicelab.runs.cache import Cache
from voicelab.schema import ReferenceAudio, TTSRequest, VoiceCreate
from voicelab.voices.store import VoiceStore

Open = Callable[..., LocalBackend]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def start(weights: Path, home: Path) -> Iterator[Open]:
    made: list[LocalBackend] = []

    def begin(path: Path = weights) -> LocalBackend:
        made.append(LocalBackend("cpu", weights=path))
        return made[-1]

    yield begin
    for backend in made:
        backend.close()


def _create(backend: Backend, **fields: object) -> str:
    given = {"title": "Ada", "voices": (speech_file(2),), "texts": "said", "visibility": "private", **fields}
    return backend.create_voice(VoiceCreate.build(**given)).id


def _said(backend: Backend, **fields: object) -> bytes:
    return b"".join(backend.synthesize(Call(TTSRequest.build(text="One dog.", format="pcm", **fields), seed=1)))


def test_stored_voice_equals_inline_references(start: Open) -> None:
    backend = start()
    voice = _create(backend, voices=(speech_file(2), speech_file(3, 220)), texts=("one", "two"))
    kept = backend._store.samples(voice, "local")
    inline = _said(backend, references=tuple(ReferenceAudio(audio=one.audio, text=one.text) for one in kept))
    assert _said(backend, reference_id=voice) == inline
    assert inline != _said(backend)


def test_stored_voice_survives_restart_without_encoding(start: Open, home: Path) -> None:
    first = start()
    voice = _create(first, description="low", tags=("calm",))
    record, said = first.get_voice(voice), _said(first, reference_id=voice)
    first.close()
    again = start()
    assert again.get_voice(voice).task_count == 1
    assert again.get_voice(voice).model_copy(update={"task_count": 0}) == record
    shutil.rmtree(home / "voices" / "files")  # the recordings are only for other weights
    assert _said(again, reference_id=voice) == said


def test_telephone_band_is_stored(start: Open, home: Path) -> None:
    narrow = Clip(Clip(speechlike(2), RATE).resample(8_000).samples, 8_000).to_bytes("wav", sample_rate=8_000)
    first = start()
    voice = _create(first, voices=(narrow,))
    (kept,) = first._store.samples(voice, "local")
    band = first._family.speaker([ReferenceAudio(audio=kept.audio, text=kept.text)]).band
    assert band is not None
    shutil.rmtree(home / "voices" / "files")
    again = start()._stored(voice)
    assert again is not None
    assert again.band == band


def test_other_weights_re_encode_once(start: Open, home: Path, tmp_path: Path) -> None:
    voice = _create(start())
    path = write_weights(tmp_path / "other.safetensors", make_codec(9))
    said = _said(start(path), reference_id=voice)
    shutil.rmtree(home / "voices" / "files")
    assert _said(start(path), reference_id=voice) == said


def test_missing_recordings_are_an_error_with_other_weights(start: Open, home: Path, tmp_path: Path) -> None:
    voice = _create(start())
    shutil.rmtree(home / "voices" / "files")
    with pytest.raises(StoreError, match="missing"):
        _said(start(write_weights(tmp_path / "other.safetensors", make_codec(9))), reference_id=voice)


def test_delivered_syntheses_are_counted(start: Open) -> None:
    backend = start()
    voice = _create(backend)
    for _ in range(3):
        _said(backend, reference_id=voice)
    with backend.synthesize(Call(TTSRequest(text="One dog.", format="pcm", reference_id=voice))) as stream:
        next(stream)
    assert backend.get_voice(voice).task_count == 3


def test_synthesis_does_not_access_disk(start: Open, home: Path) -> None:
    backend = start()
    _said(backend, reference_id="ada")
    with pytest.raises(RequestInvalid, match=r"must be a preset \(ada"):
        _said(backend, reference_id="eve")
    with pytest.raises(RequestInvalid):
        _said(backend, reference_id="0" * 32)
    with pytest.raises(NotFound):
        backend.get_voice("0" * 32)
    assert not home.exists()


@pytest.mark.parametrize("bad", [b"nothing", Clip(np.zeros(RATE, np.float32), RATE).to_bytes("wav")])
def test_invalid_recordings_leave_no_voice(start: Open, home: Path, bad: bytes) -> None:
    with pytest.raises(RequestInvalid) as caught:
        _create(start(), voices=(speech_file(2), bad), texts=("a", "b"))
    assert caught.value.errors[0].loc == ("body", "voices")
    assert not home.exists()


def test_engine_error_marks_the_voice_failed(start: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = start()
    short = RequestInvalid.of("references.0.audio", "the reference has less than 0.5 s of sound")
    monkeypatch.setattr(backend._family, "speaker", Mock(side_effect=short))
    with pytest.raises(RequestInvalid) as caught:
        _create(backend)
    assert caught.value.errors[0].loc == ("body", "voices")
    with backend._store._database.reading() as db:
        assert db.execute("SELECT state FROM voices").fetchall() == [("failed",)]


def test_passed_store_is_used_and_stays_open(weights: Path, home: Path, tmp_path: Path) -> None:
    with VoiceStore(tmp_path / "elsewhere") as store:
        backend = LocalBackend("cpu", weights=weights, voices=store)
        voice = _create(backend)
        backend.close()
        assert store.get(voice, "local").title == "Ada"
    assert not home.exists()


def test_local_voices_are_listed_through_cache_and_recorder(start: Open, tmp_path: Path) -> None:
    first, second = (_create(start(), title=title) for title in ("Ada", "Ben"))
    _create(start().acting_for("somebody"), visibility="unlist")
    kept = RecordingBackend(CachedBackend(start(), Cache(tmp_path / "cache")), tmp_path / "recording")
    lab = Lab(kept)
    assert [voice.id for voice in lab.stored_voices()] == [second, first]
    lab.create_voice("Cleo", speech_file(2), texts="said")
    assert [voice.title for voice in lab.stored_voices()] == ["Cleo", "Ben", "Ada"]
    lab.delete_voice(second)
    with pytest.raises(NotFound):
        lab.delete_voice(second)
    assert [voice.title for voice in lab.stored_voices()] == ["Cleo", "Ada"]
    with pytest.raises(RequestInvalid, match=r"must be a preset .* or the id of a stored voice, got "):
        lab.speak("One dog.", voice=second)
