from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.speechlike import speech_file
from tests.tones import VOICES, ToneBackend
from voicelab.backend import SpeechStream
from voicelab.errors import RequestInvalid
from voicelab.schema import Author, Model, TTSRequest, VoiceCreate, VoiceModel
from voicelab.views.recorder import Recorder
from voicelab.views.voicework import VoiceWork
from voicelab.voices.intake import MAX_FILES

SPEECH = speech_file(2)


class Keeper(ToneBackend):
    """Tones that also keep voices, and say which."""

    created: VoiceCreate | None = None

    def __init__(self) -> None:
        super().__init__()
        self.made: list[VoiceModel] = []

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        self.created = request
        now = datetime.now(UTC)
        about: dict[str, Any] = {"title": request.title, "visibility": request.visibility, "author": Author(id="me")}
        self.made.insert(
            0, VoiceModel(id=f"{len(self.made):032x}", state="trained", created_at=now, updated_at=now, **about)
        )
        return self.made[0]

    def list_voices(self) -> tuple[VoiceModel, ...]:
        return tuple(self.made)

    def synthesize(self, request: TTSRequest, *, model: Model = "s2-pro", seed: int | None = None) -> SpeechStream:
        if request.reference_id in {voice.id for voice in self.made}:
            stream = super().synthesize(request.replace(reference_id=VOICES[0].id), model=model, seed=seed)
            self.asked[-1] = (request, model, seed)
            return stream
        return super().synthesize(request, model=model, seed=seed)


class Maker:
    """Hears what a voice would be made of."""

    def create_voice(self, title: str, voices: Sequence[bytes], *, texts: Sequence[str], **fields: Any) -> VoiceModel:
        self.heard = (title, voices, {"texts": texts, **fields})
        return Keeper().create_voice(VoiceCreate.build(title=title, voices=tuple(voices), visibility="private"))


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
def work(told: list[int]) -> VoiceWork:
    return VoiceWork(Maker(), told.append)


def test_what_is_added_is_listened_to(work: VoiceWork, told: list[int]) -> None:
    added = work.add("a.wav", SPEECH)
    assert work.wait()
    (one,) = work.recordings
    assert (one.id, one.name, one.state, told) == (added, "a.wav", "ready", [added, added])
    assert one.clip is not None
    assert any("shorter than" in note for note in one.notes)
    assert any("no transcript" in note for note in one.notes)


def test_a_transcript_that_was_written_is_kept_and_goes_along(work: VoiceWork) -> None:
    first, second = work.add("a.wav", SPEECH), work.add("b.wav", SPEECH)
    work.write(first, "Written before it was heard.")
    assert work.wait()
    work.write(second, "Corrected.")
    assert work.wait()
    assert [one.written for one in work.recordings] == [True, True]
    work.create("Ada")
    maker = work._lab
    assert isinstance(maker, Maker)
    title, voices, fields = maker.heard
    assert (title, voices) == ("Ada", [SPEECH, SPEECH])
    assert fields == {"texts": ["Written before it was heard.", "Corrected."], "enhance_audio_quality": False}


def test_what_is_said_is_recognised_and_a_correction_compared_with_the_sound(
    work: VoiceWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "pocketsphinx")
    added = work.add("a.wav", SPEECH)
    assert work.wait()
    (one,) = work.recordings
    assert one.text
    assert not one.written
    assert any("its transcript was recognised" in note for note in one.notes)
    work.write(added, "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background.")
    assert work.recordings[0].state == "listening"
    assert work.wait()
    assert any("does not match" in note for note in work.recordings[0].notes)
    # Blank, it is recognised again.
    work.write(added, " ")
    assert work.wait()
    assert (work.recordings[0].text, work.recordings[0].written) == (one.text, False)


def test_what_was_too_large_stays_refused_when_noise_is_taken_away(work: VoiceWork) -> None:
    work.refuse("b.wav", "it is too large")
    work.enhanced = True
    assert work.wait()
    assert work.recordings[0].trouble == "it is too large"


def test_what_cannot_be_used_is_told_and_stands_in_the_way(work: VoiceWork) -> None:
    bad = work.add("a.txt", b"no audio at all")
    assert work.wait()
    (one,) = work.recordings
    assert one.state == "refused"
    assert one.trouble
    assert "Voice file" not in one.trouble
    large = work.refuse("b.wav", "it is too large")
    for unusable in (bad, large):
        with pytest.raises(RequestInvalid, match="remove it"):
            work.create("Ada")
        work.drop(unusable)
    with pytest.raises(RequestInvalid, match="voices"):
        work.create("Ada")


def test_too_many_are_told_before_anything_is_made(work: VoiceWork) -> None:
    work._listen = lambda *_, **__: {}  # type: ignore[method-assign]
    for _ in range(MAX_FILES + 1):
        work.add("a.wav", SPEECH)
    assert work.wait()
    with pytest.raises(RequestInvalid, match=f"at most {MAX_FILES}"):
        work.check("Ada")


def test_nothing_is_told_of_what_was_dropped_or_after_the_end(work: VoiceWork, told: list[int]) -> None:
    work._one_at_a_time.acquire()
    dropped, closed = work.add("a.wav", SPEECH), work.add("b.wav", SPEECH)
    work.drop(dropped)
    work.close()
    work._one_at_a_time.release()
    assert work.wait()
    assert told == [dropped, closed, dropped]


class Heard(Recorder):
    """Says what it sends."""

    def __init__(self) -> None:
        self.came: list[tuple[str, bytes]] = []
        self.refused: list[tuple[str, str]] = []
        self.sent: list[object] = []
        super().__init__(lambda *file: self.came.append(file), lambda *why: self.refused.append(why))

    def send(self, content: object, buffers: object = None) -> None:
        self.sent.append(content)

    def piece(self, data: bytes, **fields: object) -> None:
        told = {"kind": "piece", "file": "f", "name": "a.wav", "size": 5, "at": 0, **fields}
        self._on_message(self, told, [memoryview(data)])


def test_a_file_comes_in_pieces_each_once() -> None:
    recorder = Heard()
    recorder.piece(b"abc")
    recorder.piece(b"abc")
    assert recorder.came == []
    recorder.piece(b"de", at=3)
    assert recorder.came == [("a.wav", b"abcde")]
    assert recorder.sent == [{"kind": "got", "file": "f", "at": at} for at in (3, 3, 5)]
    recorder.piece(b"", file="g", size=0)
    assert recorder.came[-1] == ("a.wav", b"")


@pytest.mark.parametrize("wrong", [{"file": 3}, {"size": "5"}, {"at": None}, {"kind": "other"}, {"name": None}])
def test_a_message_that_is_none_is_passed_over(wrong: dict[str, object]) -> None:
    recorder = Heard()
    recorder.piece(b"abcde", **wrong)
    assert (recorder.came, recorder.sent) == ([], [])


def test_a_file_that_is_too_large_is_refused_before_it_has_come() -> None:
    recorder = Heard()
    recorder.piece(b"abc", size=2**40)
    assert recorder.sent == [{"kind": "got", "file": "f", "at": -1}]
    ((name, why),) = recorder.refused
    assert name == "a.wav"
    assert "at most 52 MB" in why
