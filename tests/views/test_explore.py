"""The exploratory panel without a page: a knob that is let go speaks, the newest counts, every take stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from ipywidgets.widgets import widget as registry

from tests.tones import ToneBackend
from voicelab.errors import ServiceUnavailable
from voicelab.lab import Lab
from voicelab.schema import ProsodyControl
from voicelab.views.explore import ExplorePanel
from voicelab.views.knobs import MORE, SLIDERS

TEXT = "Twelve notes"


@pytest.fixture
def explore() -> Iterator[Callable[..., ExplorePanel]]:
    made: list[ExplorePanel] = []

    def make(backend: ToneBackend | None = None, **defaults: object) -> ExplorePanel:
        panel = Lab(backend or ToneBackend()).with_defaults(**{"seed": 1, **defaults}).explore(TEXT)
        made.append(panel)
        return panel

    yield make
    for panel in made:
        panel.close()


def turn(panel: ExplorePanel, name: str, value: object) -> None:
    panel.knobs.controls[name].value = value


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_field_of_the_schema_has_a_knob_with_its_bounds(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore(temperature=0.3, voice="ben", prosody={"speed": 1.5})
    controls = panel.knobs.controls
    assert set(controls) == {"voice", "model", "latency", "seed", *SLIDERS, *MORE}
    assert (controls["temperature"].value, controls["voice"].value, controls["prosody.speed"].value) == (
        0.3,
        "ben",
        1.5,
    )
    assert (controls["prosody.volume"].min, controls["prosody.volume"].max) == (-100.0, 100.0)
    assert (controls["chunk_length"].min, controls["chunk_length"].max) == (100, 300)
    assert "Nucleus" in controls["top_p"].tooltip
    assert not any(control.continuous_update for control in controls.values() if hasattr(control, "continuous_update"))
    assert panel.code == f"lab.speak({TEXT!r})"


def test_no_seed_is_the_labs_own(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore()
    assert panel.knobs.controls["seed"].placeholder == "1, the lab's own"
    assert explore(seed=None).knobs.controls["seed"].placeholder == "new every time"
    turn(panel, "seed", "")
    assert panel.code == f"lab.speak({TEXT!r})"
    turn(panel, "seed", "3")
    assert panel.code == f"lab.speak({TEXT!r}, seed=3)"


def test_letting_go_speaks_what_the_code_says(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore()
    turn(panel, "temperature", 0.9)
    assert panel.wait()
    assert panel.code == f"lab.speak({TEXT!r}, temperature=0.9)"
    lab = Lab(ToneBackend(), seed=1)
    assert panel.clip == lab.speak(TEXT, temperature=0.9)
    for name, value in (("voice", "ada"), ("latency", "low"), ("prosody.speed", 1.2), ("model", "s1"), ("seed", "7")):
        turn(panel, name, value)
    assert panel.wait()
    assert panel.code == (
        f"lab.speak({TEXT!r}, voice='ada', model='s1', latency='low', seed=7, temperature=0.9, speed=1.2)"
    )
    assert panel.clip == eval(panel.code, {"lab": lab})  # noqa: S307 (the code is what is tested)
    assert panel.code.replace("'", "&#x27;") in panel.code_view.value


def test_a_labs_own_prosody_can_be_taken_back(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend, prosody={"speed": 1.5})
    turn(panel, "prosody.speed", 1.0)
    assert panel.wait()
    assert panel.code == f"lab.speak({TEXT!r}, speed=1.0)"
    assert backend.asked[0][0].prosody == ProsodyControl()


def test_the_newest_release_breaks_off_the_take_before(explore: Callable[..., ExplorePanel]) -> None:
    hold = threading.Event()
    backend = ToneBackend(lambda _: hold.wait(0.2))
    panel = explore(backend)
    turn(panel, "temperature", 0.1)
    until(lambda: backend.open == 1)
    turn(panel, "temperature", 0.9)
    until(lambda: len(backend.asked) == 2)
    hold.set()
    assert panel.wait()
    until(lambda: backend.open == 0)
    assert [request.temperature for request, _, _ in backend.asked] == [0.1, 0.9]
    assert panel.takes.grid.work.settled(10)
    assert [row.labels for row in panel.takes.grid.work.rows] == [{"take": "2", "temperature": "0.9"}]
    assert panel.clip is not None
    assert len(panel.player) == len(panel.clip)


def test_many_turns_at_once_are_one_take(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    for value in (0.1, 0.2, 0.3, 0.4):
        turn(panel, "temperature", value)
    assert panel.wait()
    assert [request.temperature for request, _, _ in backend.asked] == [0.4]


def test_takes_stay_are_compared_and_called_back(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore()
    for value in (0.1, 0.5, 0.9):
        turn(panel, "temperature", value)
        assert panel.wait()
    panel.text.value = "Other words."
    assert panel.wait()
    rows = panel.takes.grid.work.rows
    assert [row.name for row in rows] == [
        "take=1, temperature=0.1",
        "take=2, temperature=0.5",
        "take=3, temperature=0.9",
        "take=4, text=Other words., temperature=0.9",
    ]
    panel.takes.grid.selected = [1, 2]
    panel.takes.compare()
    assert panel.takes.stage.children[0].comparison.names == ("take=1, temperature=0.1", "take=2, temperature=0.5")
    panel.recall()
    assert (panel.text.value, panel.knobs.controls["temperature"].value) == (TEXT, 0.1)
    assert panel.code == f"lab.speak({TEXT!r}, temperature=0.1)"
    assert panel.wait()
    assert len(panel.takes.grid.work.rows) == 4, "calling back does not speak"


@pytest.mark.parametrize(("name", "value", "field"), [("seed", "seven", "seed"), ("seed", "-1", "seed")])
def test_a_wrong_field_is_named_and_nothing_is_spoken(
    explore: Callable[..., ExplorePanel], name: str, value: str, field: str
) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    turn(panel, name, value)
    assert f"<b>{field}</b>" in panel.message.value
    assert panel.speak_button.disabled
    assert "error-color" in panel.knobs.controls[name].layout.border_top
    panel.speak()
    assert panel.wait()
    assert backend.asked == []
    turn(panel, name, "3")
    assert panel.wait()
    assert (panel.message.value, len(backend.asked)) == ("", 1)
    assert panel.knobs.controls[name].layout.border_top is None


def test_an_empty_text_and_a_failing_backend_are_said(explore: Callable[..., ExplorePanel]) -> None:
    def fail(_: int) -> None:
        raise ServiceUnavailable("the service is away")

    panel = explore(ToneBackend(fail))
    panel.text.value = " "
    assert "<b>text</b>" in panel.message.value
    panel.text.value = TEXT + "!"
    assert panel.wait()
    until(lambda: "the service is away" in panel.message.value)
    assert "failed" in panel.status.value


def test_cancel_and_a_page_that_has_gone_stop_the_take(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend(lambda _: time.sleep(0.05))
    panel = explore(backend)
    for stop in (panel.cancel, lambda: panel.takes.grid._on_message(None, {"kind": "gone"}, [])):
        panel.speak()
        until(lambda: backend.open == 1)
        stop()
        until(lambda: backend.open == 0)
        until(lambda: "cancelled" in panel.status.value)
    assert panel.takes.grid.work.rows == ()


def test_cancel_takes_back_what_has_not_begun(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    panel.speak()
    panel.cancel()
    assert panel.wait()
    assert backend.asked == []


def test_closing_leaves_nothing_running(explore: Callable[..., ExplorePanel]) -> None:
    before = set(registry._instances)
    backend = ToneBackend(lambda _: time.sleep(0.05))
    panel = explore(backend)
    panel.speak()
    until(lambda: backend.open == 1)
    panel.close()
    assert [type(one).__name__ for name, one in registry._instances.items() if name not in before] == ["Layout"]
    until(lambda: backend.open == 0)
    names = ("voicelab-speech", "voicelab-takes", "voicelab-later")
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)])


def test_without_speaking_at_once_only_the_button_speaks(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    panel.at_once.value = False
    turn(panel, "top_p", 0.2)
    assert panel.wait()
    assert backend.asked == []
    panel.speak()
    assert panel.wait()
    assert [request.top_p for request, _, _ in backend.asked] == [0.2]
