"""The shell of the panels: what stays in a saved notebook, what is left when they close, how much they tell a page."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets as w
import pytest
from IPython.core.interactiveshell import InteractiveShell
from ipywidgets.widgets import widget as registry

import voicelab as vl
from tests.speechlike import speech_file
from tests.tones import ToneBackend
from voicelab.clip import Clip
from voicelab.lab import Lab
from voicelab.views.explore_panel import ExplorePanel
from voicelab.views.player import Player
from voicelab.views.scripts import Scripts

WIDGET = "application/vnd.jupyter.widget-view+json"


class Publisher:
    """A display publisher that keeps what is published."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def publish(self, data: Any, metadata: Any = None, *, transient: Any = None, update: bool = False) -> None:
        with self._changed:
            self.outputs.append({"data": data, "transient": transient, "update": update})
            self._changed.notify_all()

    def wait(self, count: int) -> list[dict[str, Any]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.outputs) >= count, 120)
            return list(self.outputs)


def say(panel: ExplorePanel) -> None:
    panel.speak()
    assert panel.wait(60)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    shell: Any = InteractiveShell.instance()
    publisher = Publisher()
    monkeypatch.setattr(shell, "display_pub", publisher)
    yield publisher
    InteractiveShell.clear_instance()


def test_a_user_does_not_wait_for_the_saved_output(published: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end with a user accepts input; a program that runs notebooks does not, and may end with the last cell."""
    lab = Lab(ToneBackend())
    for waiting in (True, False):
        request = {"content": {"allow_stdin": waiting}}
        monkeypatch.setattr(InteractiveShell.instance(), "get_parent", lambda got=request: got, raising=False)
        before = len(published.outputs)
        panel = Player(lab.speak("Notes"))
        panel._ipython_display_()
        assert ("<audio" in published.outputs[before + 1]["data"]["text/html"]) != waiting
        if waiting:
            assert "<audio" in published.wait(before + 3)[before + 2]["data"]["text/html"]
        panel.close()


def test_a_panel_without_a_take_does_not_change_a_saved_notebook(
    published: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"content": {"allow_stdin": True}}
    monkeypatch.setattr(InteractiveShell.instance(), "get_parent", lambda: request, raising=False)
    panel = Lab(ToneBackend()).panel(compact=True)
    panel._ipython_display_()
    assert panel._updates is not None
    assert panel._updates.settled(10)
    assert len(published.outputs) == 2
    say(panel)
    assert published.wait(3)[-1]["update"]
    panel.close()


def names(outputs: list[dict[str, Any]]) -> set[str]:
    return {one["transient"]["display_id"] for one in outputs}


def test_saved_output_has_the_latest_take(published: Publisher) -> None:
    panel = Lab(ToneBackend()).panel(compact=True)
    panel._ipython_display_()
    widget, held = published.wait(2)
    assert WIDGET in widget["data"]
    assert "Run this cell" in widget["data"]["text/html"]
    assert "<audio" not in held["data"]["text/html"]
    assert not held["update"]
    say(panel)
    panel.controls.set(text="Other words.")
    say(panel)
    after = published.wait(3)[-1]
    assert after["update"]
    assert names([held, after]) == names([held])
    assert after["data"]["text/html"].count("<audio controls") == 1
    assert {"image/png", "text/plain"} < set(after["data"])
    panel.close()


def test_undisplayed_panel_renders_no_saved_output(published: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Player] = []
    monkeypatch.setattr(Player, "saved_output", drawn.append)
    panel = Lab(ToneBackend()).panel(compact=True)
    panel._ipython_display_()
    say(panel)
    published.wait(3)
    assert drawn == []
    assert len(published.outputs) == 3
    panel.close()


@pytest.mark.parametrize("kind", ["player", "comparison", "result", "explore"])
def test_saved_output_of_panels_has_audio(kind: str, published: Publisher) -> None:
    lab = Lab(ToneBackend())
    clip = lab.speak("Notes", seed=1)
    if kind == "explore":
        panel: Any = lab.panel("Notes")
        panel._ipython_display_()
        panel.speak()
        assert panel.wait()
        held = published.wait(3)[-1]["data"]
        assert "lab.speak(&#x27;Notes&#x27;" in held["text/html"]
    else:
        made: dict[str, Any] = {
            "player": lambda: Player(clip),
            "comparison": lambda: vl.compare(clip, clip).panel(),
            "result": lambda: lab.sweep("Notes", temperature=[0.2, 0.8]).run().panel(),
        }
        panel = made[kind]()
        panel._ipython_display_()
        held = published.wait(2)[1]["data"]
    assert "<audio controls" in held["text/html"]
    panel.close()


TEXT = "Eight notes, then some more, to hear for three seconds or so; and then as many again, and a few on top of that."


def _left(before: set[str]) -> list[str]:
    """Return what a page could still talk to, except the scripts that all panels share."""
    new = [one for name, one in registry._instances.items() if name not in before]
    return sorted(type(one).__name__ for one in new if not isinstance(one, Scripts))


def _at_work(before: set[threading.Thread]) -> list[str]:
    """Return our threads that are newer; other tests in this process may have left some."""
    new = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("voicelab")]
    for thread in new:
        thread.join(20)
    return [thread.name for thread in new if thread.is_alive()]


@pytest.mark.parametrize("kind", ["panel", "compact", "voice_panel"])
def test_panel_closed_during_synthesis_leaves_no_threads_or_widgets(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", "none")
    before, threads = set(registry._instances), set(threading.enumerate())
    gate, entered = threading.Event(), threading.Event()

    def step(number: int) -> None:
        if number == 3:
            entered.set()
            gate.wait(20)

    backend = ToneBackend(step)
    lab = Lab(backend)
    panel: Any = (
        lab.voice_panel(Clip.load(speech_file(1))) if kind == "voice_panel" else lab.panel(compact=kind == "compact")
    )
    speaking = getattr(panel, "trial", panel)
    speaking.speak()
    assert entered.wait(20)
    assert len(set(registry._instances) - before) > 5
    panel.close()
    gate.set()
    assert speaking.wait(20)
    if kind == "voice_panel":
        assert panel.draft.wait()
    assert _left(before) == ["Layout"]
    assert _at_work(threads) == []
    assert backend.open == 0


def test_removed_rows_leave_no_widgets() -> None:
    panel = Lab(ToneBackend()).sweep("A.", temperature=[0.2, 0.4]).panel()
    before = set(registry._instances)
    for _ in range(2):
        panel.form.add_axis()
        panel.form.remove(panel.form.axes.children[-1])
    assert _left(before) == []
    panel.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When any widget said anything to the page."""
    times: list[float] = []
    send: Callable[..., None] = w.Widget._send

    def record(self: w.Widget, *arguments: Any, **options: Any) -> None:
        times.append(time.monotonic())
        send(self, *arguments, **options)

    monkeypatch.setattr(w.Widget, "_send", record)
    return times


def test_panel_sends_at_most_20_messages_a_second(sent: list[float]) -> None:
    # A note of 50 ms every 5 ms: 200 chunks a second, were each sent.
    panel = Lab(ToneBackend(lambda _: time.sleep(0.005))).panel(compact=True)
    panel.controls.set(text=TEXT * 3)
    sent.clear()
    panel.speak()
    assert panel.wait(60)
    assert sent[-1] - sent[0] > 1.2
    assert len(panel.player) == len(panel.clip or ())
    most = max(sum(first <= other < first + 1 for other in sent) for first in sent)
    assert most <= 20
    assert most > 6, "eight times a second is what sound needs"
    panel.close()


def saved_size() -> int:
    """Return the number of characters that JupyterLab saves of all widgets."""
    return len(json.dumps(w.Widget.get_manager_state(drop_defaults=True), indent=1))


def test_panels_share_their_scripts() -> None:
    """What JupyterLab saves of six panels: their scripts, of 300 KB each, would be 1 MB."""
    w.Widget.close_all()
    lab = Lab(ToneBackend())
    clip = lab.speak("Four.")
    panels = [
        *(lab.panel(), lab.panel(compact=True), lab.knob_panel(), lab.voice_panel()),
        *(lab.sweep("A.", temperature=[0.2, 0.4]).panel(), vl.compare(a=clip, b=lab.speak("Five.")).panel()),
    ]
    assert saved_size() < 200_000
    saved = w.Widget.get_manager_state(drop_defaults=True)
    states = [one["state"] for one in saved["state"].values()]
    assert sum("packed" in state for state in states) == 1
    before = set(registry._instances)
    for panel in panels:
        lab.sweep("A.", temperature=[0.2, 0.4]).panel().close()
        assert before - set(registry._instances) == set(), "a closed panel closes nothing of the others"
        panel.close()
        before = set(registry._instances)
    assert len([lab.sweep("A.", temperature=[0.2, 0.4]).panel() for _ in range(6)]) == 6
    assert saved_size() < 200_000
    w.Widget.close_all()
