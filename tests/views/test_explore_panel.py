"""The panel that speaks, in both its forms, without a page: knobs, takes that stay, the call, what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from ipywidgets.widgets import widget as registry

from tests.tones import ToneBackend
from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.errors import ServiceUnavailable
from voicelab.lab import Lab
from voicelab.schema import ProsodyControl
from voicelab.views.explore_panel import (
    MORE,
    SLIDERS,
    ExplorePanel,
    field_help,
    field_label,
    voice_choices,
)
from voicelab.views.takes import TakesView

TEXT = "Twelve notes"


@pytest.fixture
def explore() -> Iterator[Callable[..., ExplorePanel]]:
    made: list[ExplorePanel] = []

    def make(backend: ToneBackend | None = None, *, compact: bool = False, **defaults: object) -> ExplorePanel:
        lab = Lab(backend or ToneBackend()).with_defaults(**{"seed": 1, **defaults})
        panel = ExplorePanel(lab, TEXT, compact=compact)
        made.append(panel)
        return panel

    yield make
    for panel in made:
        panel.close()


def takes_of(panel: ExplorePanel) -> TakesView:
    assert panel.takes is not None
    return panel.takes


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
    assert controls["latency"].options == ("low", "normal", "balanced")
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
    panel.text.value = 'She said "don\'t".'
    assert panel.wait()
    assert panel.clip == eval(panel.code, {"lab": lab})  # noqa: S307


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
    assert takes_of(panel).grid.work.settled(60)
    assert [row.labels for row in takes_of(panel).grid.work.rows] == [{"take": "2", "temperature": "0.9"}]
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
    rows = takes_of(panel).grid.work.rows
    assert [row.name for row in rows] == [
        "take=1, temperature=0.1",
        "take=2, temperature=0.5",
        "take=3, temperature=0.9",
        "take=4, text=Other words., temperature=0.9",
    ]
    takes_of(panel).grid.selected = [1, 2]
    takes_of(panel).compare()
    assert takes_of(panel).stage.children[0].comparison.names == ("take=1, temperature=0.1", "take=2, temperature=0.5")
    panel.recall()
    assert (panel.text.value, panel.knobs.controls["temperature"].value) == (TEXT, 0.1)
    assert panel.code == f"lab.speak({TEXT!r}, temperature=0.1)"
    assert panel.wait()
    assert len(takes_of(panel).grid.work.rows) == 4, "calling back does not speak"


@pytest.mark.parametrize("value", ["seven", "1.5", "-1", str(2**63)])
def test_a_wrong_seed_is_named_and_nothing_is_spoken(explore: Callable[..., ExplorePanel], value: str) -> None:
    name = field = "seed"
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
    assert "failed" in panel.status


def test_cancel_and_a_page_that_has_gone_stop_the_take(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend(lambda _: time.sleep(0.05))
    panel = explore(backend)
    stops: tuple[Callable[[], object], ...] = (
        panel.cancel,
        lambda: takes_of(panel).grid._on_message(None, {"kind": "gone"}, []),
    )
    for stop in stops:
        panel.speak()
        until(lambda: backend.open == 1)
        stop()
        until(lambda: backend.open == 0)
        until(lambda: "cancelled" in panel.status)
    assert takes_of(panel).grid.work.rows == ()


def test_cancel_takes_back_what_has_not_begun(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    turn(panel, "temperature", 0.1)
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
    names = ("voicelab-speech", "voicelab-takes", "voicelab-debouncer")
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)])


def test_without_speaking_at_once_only_the_button_speaks(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    panel.speak_on_change.value = False
    turn(panel, "top_p", 0.2)
    assert panel.wait()
    assert backend.asked == []
    panel.speak()
    assert panel.wait()
    assert [request.top_p for request, _, _ in backend.asked] == [0.2]


def test_the_default_speaker_can_be_chosen_over_the_labs_own_voice(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend, voice="ben")
    turn(panel, "voice", "")
    assert panel.wait()
    assert backend.asked[0][0].reference_id is None
    assert panel.code == f"lab.speak({TEXT!r}, reference_id=None)"
    assert panel.clip == eval(panel.code, {"lab": Lab(ToneBackend(), seed=1, voice="ben")})  # noqa: S307


def test_the_compact_form_speaks_when_it_is_told_to_and_keeps_one_take(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend, compact=True, seed=None)
    assert panel.takes is None
    turn(panel, "temperature", 0.55)
    turn(panel, "voice", "ada")
    turn(panel, "seed", "7")
    assert panel.wait()
    assert backend.asked == []
    panel.speak()
    assert panel.wait()
    assert panel.code == f"lab.speak({TEXT!r}, voice='ada', seed=7, temperature=0.55)"
    assert panel.clip == Lab(ToneBackend()).speak(TEXT, voice="ada", seed=7, temperature=0.55)
    assert len(panel.player) == len(panel.clip or ())
    assert (panel.progress.bar.value, panel.progress.bar.bar_style) == (1.0, "success")
    assert "RTF" in panel.status
    assert (panel.speak_button.disabled, panel.cancel_button.disabled) == (False, True)
    main, more = panel.children[1], panel.children[2]
    assert [control.description for control in main.children] == ["Voice", "Latency", "Seed", "Temperature", "Top-p"]
    assert len(main.children) + len(more.children[0].children) == len(panel.knobs.controls), "every field has its knob"


def test_what_was_cancelled_before_it_was_accepted_has_said_nothing(explore: Callable[..., ExplorePanel]) -> None:
    gate = threading.Event()
    gate.set()

    class Late(ToneBackend):
        """Accepts a call once it may."""

        def synthesize(self, call: Call) -> SpeechStream:
            assert gate.wait(20)
            return super().synthesize(call)

    panel = explore(Late(), compact=True)
    panel.speak()
    assert panel.wait()
    assert panel.player.duration > 0
    gate.clear()
    panel.speak()
    panel.cancel()
    gate.set()
    assert panel.wait()
    assert panel.status == "cancelled after 0.0 s"


def test_a_form_that_went_wrong_meanwhile_stays_off(explore: Callable[..., ExplorePanel]) -> None:
    gate = threading.Event()
    panel = explore(ToneBackend(lambda number: gate.wait(20) if number == 2 else None), compact=True)
    panel.speak()
    turn(panel, "seed", "seven")
    gate.set()
    assert panel.wait()
    assert panel.clip is not None
    assert panel.speak_button.disabled
    assert "<b>seed</b>" in panel.message.value


def test_without_seeds_the_field_is_off(explore: Callable[..., ExplorePanel]) -> None:
    assert explore(ToneBackend(seed="none"), seed=None).knobs.controls["seed"].disabled


def test_the_texts_of_the_output_are_stable_and_hold_no_ids(explore: Callable[..., ExplorePanel]) -> None:
    (first, _), (second, _) = (explore(compact=True)._repr_mimebundle_() for _ in range(2))
    assert first["text/plain"] == "ExplorePanel(tones on cpu, 2 voices)"
    assert [first[kind] for kind in ("text/plain", "text/html")] == [second[k] for k in ("text/plain", "text/html")]
    assert "application/vnd.jupyter.widget-view+json" in first


def test_labels_are_words_and_tooltips_name_the_field() -> None:
    names = {"top_p": "Top-p", "repetition_penalty": "Repetition penalty", "prosody.volume": "Volume, dB"}
    assert {name: field_label(name) for name in names} == names
    assert field_help("prosody.speed").startswith("speed: Speaking-rate multiplier")
    assert field_help("voice").startswith("voice: Identifier")


def test_the_voices_begin_with_the_default_speaker_and_a_stored_one_stays_selectable() -> None:
    tones = ToneBackend().capabilities
    presets = (("Default speaker", None), ("Ada (low and calm)", "ada"), ("Ben", "ben"))
    assert voice_choices(tones) == voice_choices(tones, "ada") == presets
    assert voice_choices(tones, "0123abcd") == (*presets, ("0123abcd", "0123abcd"))
