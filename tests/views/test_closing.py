"""What panels leave behind when they are closed, and how much they tell a page while they work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import ipywidgets as w
import pytest
from ipywidgets.widgets import widget as registry

from tests.speechlike import speech_file
from tests.tones import ToneBackend
from tests.views.test_voicework import Keeper
from voicelab.audio.clip import Clip
from voicelab.lab import Lab

TEXT = "Eight notes, then some more, to hear for three seconds or so; and then as many again, and a few on top of that."


def _left(before: set[str]) -> list[str]:
    """Return what a page could still talk to, except how the panel itself looked."""
    return sorted(type(one).__name__ for name, one in registry._instances.items() if name not in before)


def _at_work(before: set[threading.Thread]) -> list[str]:
    """Return our threads that are newer; other tests in this process may have left some."""
    new = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("voicelab")]
    for thread in new:
        thread.join(20)
    return [thread.name for thread in new if thread.is_alive()]


@pytest.mark.parametrize("kind", ["panel", "voice_panel"])
def test_a_panel_that_is_closed_in_mid_speech_leaves_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")
    before, threads = set(registry._instances), set(threading.enumerate())
    gate, entered = threading.Event(), threading.Event()

    def step(number: int) -> None:
        if number == 3:
            entered.set()
            gate.wait(20)

    backend = ToneBackend(step)
    lab = Lab(backend)
    panel: Any = lab.panel() if kind == "panel" else lab.voice_panel(Clip.load(speech_file(1)))
    speaking = panel if kind == "panel" else panel.trial
    job = speaking.speak()
    assert entered.wait(20)
    assert len(set(registry._instances) - before) > 20
    panel.close()
    gate.set()
    assert job.wait(20)
    if kind == "voice_panel":
        assert panel.work.wait()
    assert _left(before) == ["Layout"]
    assert _at_work(threads) == []
    assert backend.open == 0
    assert not speaking.running


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When any widget said anything to the page."""
    times: list[float] = []
    send: Callable[..., None] = w.Widget._send

    def noted(self: w.Widget, *arguments: Any, **options: Any) -> None:
        times.append(time.monotonic())
        send(self, *arguments, **options)

    monkeypatch.setattr(w.Widget, "_send", noted)
    return times


def test_a_panel_that_speaks_tells_its_page_at_most_20_things_a_second(told: list[float]) -> None:
    # A note of 50 ms every 5 ms: 200 chunks a second, were each told.
    panel = Lab(ToneBackend(lambda _: time.sleep(0.005))).panel()
    panel.text.value = TEXT * 3
    told.clear()
    job = panel.speak()
    assert job is not None
    assert job.wait(60)
    assert told[-1] - told[0] > 1.2
    assert len(panel.player) == len(panel.clip or ())
    most = max(sum(first <= other < first + 1 for other in told) for first in told)
    assert most <= 20
    assert most > 6, "eight times a second is what sound needs"
    panel.close()


def test_a_trial_of_a_voice_tells_as_little(told: list[float]) -> None:
    panel = Lab(Keeper()).voice_panel()
    panel.trial.text.value = TEXT
    told.clear()
    job = panel.trial.speak()
    assert job is not None
    assert job.wait(60)
    assert max(sum(first <= other < first + 1 for other in told) for first in told) <= 20
    panel.close()
