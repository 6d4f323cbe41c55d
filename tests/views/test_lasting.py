"""What a panel leaves in the notebook: two outputs, the second of which follows what the panel holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import voicelab as vl
from tests.tones import ToneBackend
from voicelab.lab import Lab
from voicelab.views.panel import SpeechPanel
from voicelab.views.player import Player

WIDGET = "application/vnd.jupyter.widget-view+json"


class Noting:
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


def say(panel: SpeechPanel) -> None:
    job = panel.speak()
    assert job is not None
    assert job.wait(60)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    shell: Any = InteractiveShell.instance()
    publisher = Noting()
    monkeypatch.setattr(shell, "display_pub", publisher)
    yield publisher
    InteractiveShell.clear_instance()


def names(outputs: list[dict[str, Any]]) -> set[str]:
    return {one["transient"]["display_id"] for one in outputs}


def test_the_notebook_gets_what_was_said_last(published: Noting) -> None:
    panel = Lab(ToneBackend()).panel()
    panel._ipython_display_()
    widget, held = published.wait(2)
    assert WIDGET in widget["data"]
    assert "Run this cell" in widget["data"]["text/html"]
    assert "<audio" not in held["data"]["text/html"]
    assert not held["update"]
    say(panel)
    panel.text.value = "Other words."
    say(panel)
    after = published.wait(3)[-1]
    assert after["update"]
    assert names([held, after]) == names([held])
    assert after["data"]["text/html"].count("<audio controls") == 1
    assert {"image/png", "text/plain"} < set(after["data"])
    panel.close()


def test_what_nobody_displays_is_not_drawn(published: Noting, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Player] = []
    monkeypatch.setattr(Player, "lasting", drawn.append)
    panel = Lab(ToneBackend()).panel()
    panel._ipython_display_()
    say(panel)
    published.wait(3)
    assert drawn == []
    assert len(published.outputs) == 3
    panel.close()


@pytest.mark.parametrize("kind", ["player", "comparison", "result", "explore"])
def test_a_panel_of_sounds_leaves_sounds(kind: str, published: Noting) -> None:
    lab = Lab(ToneBackend())
    clip = lab.speak("Notes", seed=1)
    if kind == "explore":
        panel: Any = lab.explore("Notes")
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
