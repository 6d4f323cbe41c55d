"""The panel that compares systems, without a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import voicelab as vl
from tests.backends.test_piper import voice as piper_voice
from tests.tones import ToneBackend, until
from voicelab.errors import ArgumentError
from voicelab.views.systems_panel import SystemsPanel

TEXTS = ["One two three.", "Four\n{five}."]


@pytest.fixture
def panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemsPanel]:
    monkeypatch.chdir(tmp_path)
    quiet = vl.Lab(ToneBackend(fingerprint="tones-2"), volume=-12)
    panel = vl.systems_panel(
        TEXTS, metrics=("duration", "loudness"), cache=tmp_path / "takes", plain=vl.Lab(ToneBackend()), quiet=quiet
    )
    assert panel.form.settled()
    yield panel
    panel.close()


def run(panel: SystemsPanel) -> None:
    assert panel.form.settled()
    panel.run_button.click()
    assert panel.wait(60)


def test_it_runs_what_was_chosen_and_compares_at_one_loudness(panel: SystemsPanel) -> None:
    assert panel.form.texts.value == "One two three.\nFour\\n{five}."
    assert "2 systems, 4 takes" in panel.form.estimate.value
    run(panel)
    assert panel.result.systems == ("plain", "quiet")
    assert panel.result.column("text").labels == tuple(TEXTS)
    assert list(panel.result.summary().columns)[:2] == ["plain", "quiet"]
    panel.takes.tabs.selected_index = panel.takes.tabs.titles.index("Systems")
    shown = panel.saved_output()["text/html"]
    assert "duration" in shown
    assert "loudness-matched; differences from plain" in shown
    cells = re.findall(r"<td[^>]*>(.*?)</td>", shown)
    assert "0" in cells, "what is nothing but rounding is 0"
    assert not [cell for cell in cells if "e-" in cell or "nan" in cell]
    panel.takes.test_button.click()
    assert panel.ballot is not None
    assert len(panel.ballot.test.items) == len(TEXTS)
    assert {name for clips in panel.ballot.test.items.values() for name in clips} == {"plain", "quiet"}


def test_systems_are_left_out_and_others_opened_by_their_address(panel: SystemsPanel, tmp_path: Path) -> None:
    panel.form.systems.children[1].value = False
    assert panel.form.settled()
    assert "choose at least two systems" in panel.form.problem.value
    assert panel.run_button.disabled
    panel.form.address.value = f"piper:{piper_voice(tmp_path)}"
    panel.form.add_button.click()
    until(lambda: not panel.form.add_button.disabled, 30)
    panel.form.texts.value = "Hello."
    run(panel)
    assert panel.result.systems == ("plain", "piper")
    assert panel.form.systems.children[2].description.startswith("piper: tiny on cpu")
    for address, message in (("kolibri:", "unknown backend"), ("piper:nowhere.onnx", "cannot be read")):
        panel.form.address.value = address
        panel.form.add().wait(30)
        assert message in panel.form.problem.value


def test_fewer_than_two_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at least two systems"):
        vl.systems_panel(TEXTS, one=vl.Lab(ToneBackend()))
