from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.speechlike import RATE, speech_file, speechlike
from tests.tones import Keeper, ToneBackend, there
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.lab import Lab
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.views import voice_panel
from voicelab.views.voice_panel import Recorder, VoiceDraft, VoicePanel
from voicelab.voices.intake import MAX_FILES, prepare_samples

SPEECH = speech_file(2)


class Listing(Keeper):
    """Tones that also say which voices they keep."""

    def list_voices(self) -> tuple[VoiceModel, ...]:
        return tuple(self.made)


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")


@pytest.fixture
def changed_ids() -> list[int]:
    return []


@pytest.fixture
def keeper() -> Listing:
    return Listing()


@pytest.fixture
def work(changed_ids: list[int], keeper: Keeper) -> VoiceDraft:
    return VoiceDraft(Lab(keeper), changed_ids.append)


def test_added_recording_is_analyzed(work: VoiceDraft, changed_ids: list[int]) -> None:
    added = work.add("a.wav", SPEECH)
    assert work.wait()
    (one,) = work.recordings
    assert (one.id, one.name, one.state, changed_ids) == (added, "a.wav", "ready", [added, added])
    assert one.clip is not None
    assert any("shorter than" in note for note in one.notes)
    assert any("no transcript" in note for note in one.notes)


def test_typed_transcript_is_sent_with_the_voice(work: VoiceDraft, keeper: Keeper) -> None:
    first, second = work.add("a.wav", SPEECH), work.add("b.wav", SPEECH)
    work.write(first, "Written before it was heard.")
    assert work.wait()
    work.write(second, "Corrected.")
    assert work.wait()
    assert [one.typed for one in work.recordings] == [True, True]
    work.create("Ada")
    made = there(keeper.created)
    assert (made.title, made.voices) == ("Ada", (SPEECH, SPEECH))
    assert (made.texts, made.enhance_audio_quality) == (("Written before it was heard.", "Corrected."), False)


def test_transcript_is_recognized_and_a_correction_is_checked(
    work: VoiceDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "pocketsphinx")
    added = work.add("a.wav", SPEECH)
    assert work.wait()
    (one,) = work.recordings
    assert one.text
    assert not one.typed
    assert any("transcript by" in note for note in one.notes)
    work.write(added, "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background.")
    assert work.recordings[0].state == "analyzing"
    assert work.wait()
    assert any("does not match" in note for note in work.recordings[0].notes)
    # Blank, it is recognized again.
    work.write(added, " ")
    assert work.wait()
    assert (work.recordings[0].text, work.recordings[0].typed) == (one.text, False)


def test_oversized_file_stays_rejected_with_noise_reduction(work: VoiceDraft) -> None:
    work.refuse("b.wav", "it is too large")
    work.enhance(True)
    assert work.wait()
    assert work.recordings[0].problem == "it is too large"


def test_too_many_recordings_are_reported_before_creation(work: VoiceDraft) -> None:
    work._analyze = lambda recording: recording  # type: ignore[method-assign]
    for _ in range(MAX_FILES + 1):
        work.add("a.wav", SPEECH)
    assert work.wait()
    with pytest.raises(RequestInvalid, match=f"at most {MAX_FILES}"):
        work.check("Ada")


def test_removed_recordings_and_closed_drafts_report_nothing(work: VoiceDraft, changed_ids: list[int]) -> None:
    work._analysis_lock.acquire()
    dropped, closed = work.add("a.wav", SPEECH), work.add("b.wav", SPEECH)
    work.drop(dropped)
    work.close()
    work._analysis_lock.release()
    assert work.wait()
    assert changed_ids == [dropped, closed, dropped]


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
        message = {"kind": "piece", "file": "f", "name": "a.wav", "size": 5, "at": 0, **fields}
        self._on_message(self, message, [memoryview(data)])


def test_upload_chunks_are_appended_once() -> None:
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
def test_malformed_messages_are_ignored(wrong: dict[str, object]) -> None:
    recorder = Heard()
    recorder.piece(b"abcde", **wrong)
    assert (recorder.came, recorder.sent) == ([], [])


def test_oversized_upload_is_rejected_early() -> None:
    recorder = Heard()
    recorder.piece(b"abc", size=2**40)
    assert recorder.sent == [{"kind": "got", "file": "f", "at": -1}]
    ((name, why),) = recorder.refused
    assert name == "a.wav"
    assert "at most 52 MB" in why


def opened(backend: ToneBackend, *sources: Any) -> VoicePanel:
    """Open a panel, and wait until it has listened to what is in it."""
    panel: VoicePanel = Lab(backend).voice_panel(*sources)
    assert panel.draft.wait()
    return panel


def press(panel: VoicePanel) -> None:
    work = there(panel.make())
    assert work.wait(60)


def test_voice_created_from_a_clip_is_previewed(monkeypatch: pytest.MonkeyPatch) -> None:
    may = threading.Event()

    def held(*given: Any) -> Any:
        assert may.wait(20)
        return prepare_samples(*given)

    monkeypatch.setattr(voice_panel, "prepare_samples", held)
    backend = Listing()
    lab = Lab(backend)
    clip = Clip.load(SPEECH)
    panel = lab.voice_panel(clip)
    assert panel.make_button.disabled, "before it has been listened to there is nothing to make a voice of"
    may.set()
    assert panel.draft.wait()
    (row,) = panel.list.children
    assert f"{row.player.clip.duration:.1f} s" in row.name.value
    assert row.player.clip.duration == pytest.approx(clip.duration, abs=1)
    may.clear()
    row.text.value = "As I say it."
    assert panel.make_button.disabled, "what was written has not been compared with the sound"
    may.set()
    assert panel.draft.wait()
    assert not panel.make_button.disabled
    panel.title.value = "Ada"
    press(panel)
    assert backend.created is not None
    assert (backend.created.title, backend.created.texts) == ("Ada", ("As I say it.",))
    assert panel.voice is not None
    assert panel.voice.title == "Ada"
    assert panel.voice.id in panel.record.value
    assert panel.list.children == ()
    assert panel.status.value == "Ada: trained"
    panel.trial.speak()
    assert panel.trial.wait(20)
    assert panel.trial.clip is not None
    assert backend.asked[-1][0].reference_id == panel.voice.id
    panel.close()


def test_blank_title_and_recordings_without_speech_disable_creation() -> None:
    panel = opened(Listing(), Clip.load(SPEECH))
    panel.title.value = " "
    assert panel.make_button.disabled
    assert "<b>Title</b>: must not be" in panel.message.value
    assert "voicelab-wrong" in panel.title._dom_classes
    panel.title.value = "Ada"
    assert panel.message.value == ""
    assert "voicelab-wrong" not in panel.title._dom_classes
    panel.add(Clip(np.zeros(48_000, np.float32), 24_000), "nothing.wav")
    assert panel.draft.wait()
    row = panel.list.children[-1]
    assert "no speech" in row.notes.value
    assert "as unusable: nothing.wav" in panel.message.value
    assert not panel.make_button.disabled
    panel.list.children[0].remove.click()
    assert "none of the recordings can be used" in panel.message.value
    assert panel.make_button.disabled


def test_invalid_file_among_valid_files_is_excluded(tmp_path: Path) -> None:
    backend = Listing()
    panel = Lab(backend).voice_panel()
    files = {"notaudio.txt": b"not a sound", "ben.wav": SPEECH, "broken.wav": SPEECH[:60], "ben 2.wav": SPEECH}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        panel.add(tmp_path / name)
    assert panel.draft.wait()
    assert panel.title.value == "ben"
    assert "as unusable: notaudio.txt, broken.wav." in panel.message.value
    assert [bool(row.notes.value.count("alert")) for row in panel.list.children] == [True, False, True, False]
    assert not any("Voice file" in row.notes.value for row in panel.list.children), "that is the service's word"
    press(panel)
    assert backend.created is not None
    assert (backend.created.title, len(backend.created.voices)) == ("ben", 2)
    assert panel.list.children == ()
    assert (panel.title.value, panel.message.value) == ("My voice", "")


def test_backend_error_is_shown_and_recordings_remain() -> None:
    panel = opened(ToneBackend(), Clip.load(SPEECH))
    press(panel)
    assert panel.status.value == "failed"
    assert "tones have no voice like" in panel.message.value
    assert len(panel.list.children) == 1
    assert not panel.make_button.disabled


def test_title_from_file_name_and_clip_from_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ben.wav").write_bytes(SPEECH)
    panel = opened(Listing(), tmp_path / "ben.wav")
    assert panel.title.value == "ben"
    monkeypatch.setattr("voicelab.views.voice_panel._clips", lambda: {"mine": Clip.load(SPEECH)})
    for typed, said in (("yours", "yours"), ("", "name of a variable")):
        panel.name.value = typed
        panel.add_button.click()
        assert said in panel.message.value
    panel.name.value = "mine"
    panel.add_button.click()
    assert [one.name for one in panel.draft.recordings] == ["ben.wav", "mine"]
    panel.add(Lab(ToneBackend()).speak("[angry] The text of this take is known."), "take")
    assert panel.draft.recordings[-1].text == "The text of this take is known."
    with pytest.raises(FileNotFoundError):
        panel.add(tmp_path / "none.wav")
    panel.draft.wait()


def test_saved_output_lists_the_voices() -> None:
    backend = Listing()
    lab = Lab(backend)
    made = lab.create_voice("<Ada>", SPEECH)
    panel = lab.voice_panel()
    labels: list[Any] = [label for label, _ in panel.trial.controls.fields[0]["options"]]
    assert labels[0].startswith("<Ada> (trained")
    assert {"Ada (low and calm)", "Ben", "Default speaker"} <= set(labels)
    html = panel.saved_output()["text/html"]
    assert "&lt;Ada&gt;" in html
    assert made.id in html
    # One that the backend brings with it is tried too.
    panel.choose("ben")
    assert panel.voice is None
    panel.trial.speak()
    assert panel.trial.wait(20)
    assert backend.asked[-1][0].reference_id == "ben"


def test_noise_reduction_is_optional() -> None:
    backend = Listing()
    sound = speechlike(3)
    noisy = (0.8 * sound + np.random.default_rng(1).normal(0, 0.02, sound.size)).clip(-1, 1).astype(np.float32)
    panel = opened(backend, Clip(noisy, RATE))
    (row,) = panel.list.children
    row.text.value = "kept"
    assert panel.draft.wait()
    panel.enhance.value = True
    assert panel.make_button.disabled
    assert panel.draft.wait()
    assert "enhanced" in row.notes.value
    assert row.text.value == "kept"
    press(panel)
    assert there(backend.created).enhance_audio_quality


def test_recordings_added_during_creation_remain() -> None:
    class Slow(Listing):
        """Makes a voice once it may."""

        may = threading.Event()

        def create_voice(self, request: VoiceCreate) -> VoiceModel:
            assert self.may.wait(20)
            return super().create_voice(request)

    backend = Slow()
    panel = opened(backend, Clip.load(SPEECH))
    panel.title.value = "Ada"
    making = there(panel.make())
    added = panel.add(Clip.load(speech_file(3)), "meanwhile")
    panel.title.value = "Ben"
    backend.may.set()
    making.wait(20)
    assert panel.draft.wait()
    assert [one.id for one in panel.draft.recordings] == [added]
    assert len(panel.list.children) == 1
    assert panel.title.value == "Ben"
    assert there(panel.voice).title == "Ada"
    panel.close()
