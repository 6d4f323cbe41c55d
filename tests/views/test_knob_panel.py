"""The panel that turns a backend's knobs, without a page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.tones import ToneBackend
from voicelab.call import Knob
from voicelab.capabilities import FieldSupport
from voicelab.errors import ArgumentError, EngineError
from voicelab.lab import Lab
from voicelab.views.knob_panel import KnobPanel

FIELDS = (FieldSupport("top_p", ignored="tones are not sampled"),)
KNOBS = (Knob("pep", "float", 0.5, bounds=(0.0, 1.0)),)


@pytest.fixture
def panels() -> Iterator[Callable[..., KnobPanel]]:
    made: list[KnobPanel] = []

    def make(*names: str, step: Callable[[int], object] = lambda _: None) -> KnobPanel:
        made.append(Lab(ToneBackend(step, fields=FIELDS, knobs=KNOBS)).knob_panel(*names, repeats=2))
        return made[-1]

    yield make
    for panel in made:
        panel.close()


def test_it_offers_what_there_is_and_shows_what_was_measured(panels: Callable[..., KnobPanel]) -> None:
    panel = panels("speed", "top_p", "pep")
    assert {name for name, box in panel.choices.items() if box.value} == {"prosody.speed", "top_p", "pep"}
    assert panel.choices["top_p"].description == "Top-p (declared: ignored)"
    assert panel.choices["top_p"].tooltip == "top_p: tones are not sampled"
    assert panel.saved_output() == {}
    panel.run_button.click()
    assert panel.wait(30)
    assert panel.check is not None
    # Tones are other tones for every other request: only the knob, which is no part of one, does nothing.
    assert {item.name: item.verdict for item in panel.check.findings} == {
        "top_p": "contradicts",
        "prosody.speed": "acts",
        "pep": "contradicts",
    }
    assert panel.progress.status == "3 checked; contradicts its declaration: top_p, pep"
    assert "tones are not sampled" in panel.table.value
    assert panel.saved_output()["text/html"] == panel.table.value
    assert (panel.run_button.disabled, panel.cancel_button.disabled) == (False, True)


def test_it_is_cancelled_before_the_next_take_and_goes_on_after_an_error(panels: Callable[..., KnobPanel]) -> None:
    going, broken = threading.Event(), threading.Event()

    def step(_: int) -> None:
        if broken.is_set():
            raise EngineError("no more tones")
        assert going.wait(10)

    panel = panels(step=step)
    panel.run_button.click()
    panel.cancel_button.click()
    going.set()
    assert panel.wait(30)
    assert panel.progress.status == "cancelled"
    assert panel.check is None
    broken.set()
    panel.run_button.click()
    assert panel.wait(30)
    assert "no more tones" in panel.message.value
    panel.choices = dict.fromkeys(panel.choices, _off())
    assert panel.run() is None
    assert "choose at least one" in panel.message.value


def _off() -> Any:
    class Off:
        value = False

    return Off()


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"must be one of .* got 'warmth'"):
        Lab(ToneBackend()).knob_panel("warmth")
