from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.speechlike import RATE, speech_file, speechlike
from tests.tones import ToneBackend
from tests.views.test_voicework import Keeper
from voicelab.audio.clip import Clip
from voicelab.lab import Lab
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.views.voices import VoicePanel

SPEECH = speech_file(2)


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")


def press(panel: VoicePanel) -> None:
    work = panel.make()
    assert work is not None
    work.join(60)
    assert not work.is_alive()


def test_a_clip_becomes_a_voice_that_can_be_tried_at_once() -> None:
    backend = Keeper()
    lab = Lab(backend)
    clip = Clip.load(SPEECH)
    panel = lab.voice_panel(clip)
    assert panel.make_button.disabled, "before it has been listened to there is nothing to make a voice of"
    assert panel.work.wait()
    (row,) = panel.list.children
    assert f"{row.player.clip.duration:.1f} s" in row.name.value
    assert row.player.clip.duration == pytest.approx(clip.duration, abs=1)
    row.text.value = "As I say it."
    assert panel.make_button.disabled, "what was written has not been compared with the sound"
    assert panel.work.wait()
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
    job = panel.trial.speak()
    assert job is not None
    assert job.wait(20)
    assert panel.trial.clip is not None
    assert backend.asked[-1][0].reference_id == panel.voice.id
    panel.close()


def test_a_blank_title_and_what_is_no_speech_are_named_and_nothing_can_be_made() -> None:
    panel = Lab(Keeper()).voice_panel(Clip.load(SPEECH))
    assert panel.work.wait()
    panel.title.value = " "
    assert panel.make_button.disabled
    assert "title" in panel.message.value
    assert panel.title.layout.border_top is not None
    panel.title.value = "Ada"
    assert panel.message.value == ""
    assert panel.title.layout.border_top is None
    panel.add(Clip(np.zeros(48_000, np.float32), 24_000), "nothing.wav")
    assert panel.work.wait()
    row = panel.list.children[-1]
    assert "no speech" in row.notes.value
    assert "nothing.wav" in panel.message.value
    assert panel.make_button.disabled
    row.remove.click()
    assert not panel.make_button.disabled
    assert len(panel.list.children) == 1


def test_an_error_of_the_backend_is_shown_whole_and_nothing_is_lost() -> None:
    panel = Lab(ToneBackend()).voice_panel(Clip.load(SPEECH))
    assert panel.work.wait()
    press(panel)
    assert panel.status.value == "failed"
    assert "tones have no voice like" in panel.message.value
    assert len(panel.list.children) == 1
    assert not panel.make_button.disabled


def test_a_file_names_the_voice_and_a_variable_holds_a_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ben.wav").write_bytes(SPEECH)
    panel = Lab(Keeper()).voice_panel(tmp_path / "ben.wav")
    assert panel.title.value == "ben"
    monkeypatch.setattr("voicelab.views.voices._clips", lambda: {"mine": Clip.load(SPEECH)})
    for typed, said in (("yours", "yours"), ("", "name of a variable")):
        panel.name.value = typed
        panel.add_button.click()
        assert said in panel.message.value
    panel.name.value = "mine"
    panel.add_button.click()
    assert [one.name for one in panel.work.recordings] == ["ben.wav", "mine"]
    with pytest.raises(FileNotFoundError):
        panel.add(tmp_path / "none.wav")
    panel.work.wait()


def test_the_voices_of_the_lab_are_listed_also_without_a_kernel() -> None:
    backend = Keeper()
    lab = Lab(backend)
    made = lab.create_voice("<Ada>", SPEECH)
    panel = lab.voice_panel()
    labels: list[Any] = [label for label, _ in panel.choice.options]
    assert labels[0].startswith("<Ada> (trained")
    assert {"Ada (low and calm)", "Ben", "Default speaker"} <= set(labels)
    html = panel.lasting()["text/html"]
    assert "&lt;Ada&gt;" in html
    assert made.id in html
    # One that the backend brings with it is tried too.
    panel.choice.value = "ben"
    assert panel.voice is None
    job = panel.trial.speak()
    assert job is not None
    assert job.wait(20)
    assert backend.asked[-1][0].reference_id == "ben"


def test_noise_is_taken_away_when_it_is_asked_for() -> None:
    backend = Keeper()
    sound = speechlike(3)
    noisy = (0.8 * sound + np.random.default_rng(1).normal(0, 0.02, sound.size)).clip(-1, 1).astype(np.float32)
    panel = Lab(backend).voice_panel(Clip(noisy, RATE))
    assert panel.work.wait()
    (row,) = panel.list.children
    row.text.value = "kept"
    assert panel.work.wait()
    panel.enhance.value = True
    assert panel.make_button.disabled
    assert panel.work.wait()
    assert "enhanced" in row.notes.value
    assert row.text.value == "kept"
    press(panel)
    assert backend.created is not None
    assert backend.created.enhance_audio_quality


def test_what_is_added_while_a_voice_is_made_is_not_lost() -> None:
    class Slow(Keeper):
        """Makes a voice once it may."""

        may = threading.Event()

        def create_voice(self, request: VoiceCreate) -> VoiceModel:
            assert self.may.wait(20)
            return super().create_voice(request)

    backend = Slow()
    panel = Lab(backend).voice_panel(Clip.load(SPEECH))
    assert panel.work.wait()
    panel.title.value = "Ada"
    making = panel.make()
    assert making is not None
    added = panel.add(Clip.load(speech_file(3)), "meanwhile")
    panel.title.value = "Ben"
    backend.may.set()
    making.join(20)
    assert panel.work.wait()
    assert [one.id for one in panel.work.recordings] == [added]
    assert len(panel.list.children) == 1
    assert panel.title.value == "Ben"
    assert panel.voice is not None
    assert panel.voice.title == "Ada"
    panel.close()
