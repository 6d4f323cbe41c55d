"""The panel that speaks, in both its forms, without a page: knobs, takes that stay, the call, what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from tests.tones import ToneBackend, there, until
from voicelab.backend import SpeechStream
from voicelab.call import Call, Knob
from voicelab.capabilities import FieldSupport
from voicelab.errors import ServiceUnavailable
from voicelab.lab import Lab
from voicelab.schema import TTSRequest
from voicelab.views import scripts
from voicelab.views.controls import FIELDS, MAIN, field_help, field_label, voice_choices
from voicelab.views.explore_panel import ExplorePanel
from voicelab.views.takes import TakesView

TEXT = "Twelve notes"


@pytest.fixture
def explore() -> Iterator[Callable[..., ExplorePanel]]:
    made: list[ExplorePanel] = []

    def make(backend: ToneBackend | None = None, *, compact: bool = False, **defaults: object) -> ExplorePanel:
        lab = Lab(backend or ToneBackend()).with_defaults(**dict[str, Any]({"seed": 1, **defaults}))
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
    panel.controls.set(**{name: value})


def say(panel: ExplorePanel, name: str, value: object) -> None:
    """Turn a knob, and wait until what it asks for is said."""
    turn(panel, name, value)
    assert panel.wait()


def fields_of(panel: ExplorePanel) -> dict[str, Any]:
    return {field["name"]: field for field in panel.controls.fields}


def press(panel: ExplorePanel, name: str) -> None:
    panel.controls._on_message(None, {"kind": name}, [])


def test_every_field_of_the_schema_has_a_control_with_its_bounds(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore(temperature=0.3, voice="ben", prosody={"speed": 1.5}, latency="normal")
    fields, values = fields_of(panel), panel.controls.values
    assert list(fields) == ["reference_id", *FIELDS]
    assert set(TTSRequest.model_fields) - set(fields) == {
        *("text", "references", "prosody", "format", "sample_rate", "mp3_bitrate", "opus_bitrate")
    }
    assert (values["temperature"], values["reference_id"], values["prosody.speed"]) == (0.3, "ben", 1.5)
    assert (fields["prosody.volume"]["min"], fields["prosody.volume"]["max"]) == (-100.0, 100.0)
    assert fields["latency"]["options"] == ["low", "normal", "balanced"]
    assert (fields["chunk_length"]["min"], fields["chunk_length"]["max"]) == (100, 300)
    assert "Nucleus" in fields["top_p"]["help"]
    assert panel.code == f"lab.speak({TEXT!r})"


def test_controls_follow_declared_capabilities(explore: Callable[..., ExplorePanel]) -> None:
    knobs = (
        Knob("warmth", "float", 0.5, "How warm it is.", bounds=(0.0, 1.0)),
        Knob("style", "str", "calm", choices=("calm", "bright")),
    )
    fields = (
        FieldSupport("top_p", ignored="it has no sampling"),
        FieldSupport("prosody.speed", bounds=(0.8, 1.2)),
        FieldSupport("latency", values=("normal",)),
    )
    panel = explore(ToneBackend(knobs=knobs, fields=fields))
    shown = fields_of(panel)
    assert shown["top_p"]["disabled"]
    assert "no sampling" in shown["top_p"]["help"]
    assert (shown["prosody.speed"]["min"], shown["prosody.speed"]["max"]) == (0.8, 1.2)
    assert shown["latency"]["options"] == ["normal"]
    assert (shown["warmth"]["kind"], shown["warmth"]["max"], shown["style"]["options"]) == (
        "slider",
        1.0,
        ["calm", "bright"],
    )
    assert panel.code == f"lab.speak({TEXT!r})"
    say(panel, "warmth", 0.75)
    assert panel.code == f"lab.speak({TEXT!r}, warmth=0.75)"
    turn(panel, "warmth", 2.0)
    assert list(panel.controls.problems) == ["warmth"]


def test_ignored_fields_are_disabled_with_the_reason(explore: Callable[..., ExplorePanel]) -> None:
    voiceless = FieldSupport("reference_id", ignored="it has one voice")
    panel = explore(ToneBackend(fields=(voiceless,), models=("own",), seed="none", voices=()), seed=None)
    shown = fields_of(panel)
    assert "seed" not in panel.code
    assert {name: field["help"] for name, field in shown.items() if field.get("disabled")} == {
        "reference_id": "No effect: it has one voice.",
        "model": "No effect: there is only one model.",
        "seed": "No effect: seeds are not supported.",
    }
    same = fields_of(explore(ToneBackend(one_model=True)))
    assert same["model"]["help"] == "No effect: all models share the same weights."
    assert not any(field.get("disabled") for field in fields_of(explore()).values())


def test_seed_is_held_until_a_new_seed_is_drawn(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend, seed=None)
    first = panel.controls.values["seed"]
    assert panel.code.endswith(f"seed={first})")
    say(panel, "temperature", 0.9)
    press(panel, "speak")
    assert panel.wait()
    assert [str(seed) for _, _, seed in backend.asked] == [first, first]
    press(panel, "draw")
    assert panel.wait()
    panel.controls.held = False
    press(panel, "speak")
    assert panel.wait()
    seeds = [seed for _, _, seed in backend.asked[1:]]
    assert len(set(seeds)) == 3
    assert panel.controls.values["seed"] == str(seeds[-1])
    assert takes_of(panel).grid.work.settled(60)
    assert [row.labels["seed"] for row in takes_of(panel).grid.work.rows[1:]] == [str(seed) for seed in seeds]
    for row in takes_of(panel).grid.work.rows:
        assert row.clip() == eval(row.code, {"lab": Lab(ToneBackend())})  # noqa: S307 (the code is what is tested)


@pytest.mark.parametrize(
    ("defaults", "name", "value", "said"),
    [
        # A panel asks with latency low unless the lab says otherwise.
        ({}, "top_p", 0.5, ", top_p=0.5, latency='low'"),
        ({"latency": "balanced"}, "top_p", 0.5, ", top_p=0.5"),
        # An empty seed is the lab's own, and the lab's own prosody and voice can be taken back.
        ({"latency": "low"}, "seed", "", ""),
        ({"latency": "low"}, "seed", "3", ", seed=3"),
        ({"latency": "low", "prosody": {"speed": 1.5}}, "prosody.speed", 1.0, ", speed=1.0"),
        ({"latency": "low", "voice": "ben"}, "voice", "", ", reference_id=None"),
    ],
)
def test_code_has_settings_that_differ_from_the_lab(
    explore: Callable[..., ExplorePanel], defaults: dict[str, Any], name: str, value: object, said: str
) -> None:
    panel = explore(**defaults)
    say(panel, name, value)
    assert panel.code == f"lab.speak({TEXT!r}{said})"
    assert panel.clip == eval(panel.code, {"lab": Lab(ToneBackend(), **{"seed": 1, **defaults})})  # noqa: S307


def test_change_of_a_control_synthesizes_the_call_of_the_code(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore()
    say(panel, "temperature", 0.9)
    assert panel.code == f"lab.speak({TEXT!r}, temperature=0.9, latency='low')"
    lab = Lab(ToneBackend(), seed=1)
    assert panel.clip == lab.speak(TEXT, temperature=0.9, latency="low")
    for name, value in (
        ("voice", "ada"),
        ("latency", "balanced"),
        ("prosody.speed", 1.2),
        ("model", "s1"),
        ("seed", "7"),
    ):
        turn(panel, name, value)
    assert panel.wait()
    assert panel.code == (
        f"lab.speak({TEXT!r}, voice='ada', model='s1', temperature=0.9, latency='balanced', speed=1.2, seed=7)"
    )
    assert panel.clip == eval(panel.code, {"lab": lab})  # noqa: S307 (the code is what is tested)
    assert panel.foot.code == panel.code
    assert panel.player.clip == panel.clip, "what was played as it came is what was said"
    assert there(there(panel.clip).take).seed == 7
    say(panel, "text", 'She said "don\'t".')
    assert panel.clip == eval(panel.code, {"lab": lab})  # noqa: S307


def test_newer_take_cancels_the_previous(explore: Callable[..., ExplorePanel]) -> None:
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
    assert [row.labels for row in takes_of(panel).grid.work.rows] == [{"take": "2", "temperature": "0.9", "seed": "1"}]
    assert panel.clip is not None
    assert len(panel.player) == len(panel.clip)


def test_rapid_changes_are_debounced_to_one_take(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    for value in (0.1, 0.2, 0.3, 0.4):
        turn(panel, "temperature", value)
    assert panel.wait()
    assert [request.temperature for request, _, _ in backend.asked] == [0.4]


def test_takes_are_listed_compared_and_recalled(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore()
    for value in (0.1, 0.5, 0.9):
        say(panel, "temperature", value)
    say(panel, "text", "Other words.")
    rows = takes_of(panel).grid.work.rows
    assert [row.name for row in rows] == [
        "take=1, temperature=0.1, seed=1",
        "take=2, temperature=0.5, seed=1",
        "take=3, temperature=0.9, seed=1",
        "take=4, text=Other words., temperature=0.9, seed=1",
    ]
    takes_of(panel).grid.selected = [1, 2]
    takes_of(panel).compare()
    assert takes_of(panel).content("Compare")[0].comparison.names == (
        "take=1, temperature=0.1",
        "take=2, temperature=0.5",
    )
    panel.recall()
    assert (panel.controls.text, panel.controls.values["temperature"]) == (TEXT, 0.1)
    assert panel.code == f"lab.speak({TEXT!r}, temperature=0.1, latency='low')"
    assert panel.wait()
    assert len(takes_of(panel).grid.work.rows) == 4, "calling back does not speak"


@pytest.mark.parametrize("value", ["seven", "1.5", "-1", str(2**63)])
def test_invalid_seed_is_reported_without_synthesis(explore: Callable[..., ExplorePanel], value: str) -> None:
    name = "seed"
    backend = ToneBackend()
    panel = explore(backend)
    turn(panel, name, value)
    assert list(panel.controls.problems) == [name]
    assert not panel.controls.ready
    panel.speak()
    assert panel.wait()
    assert backend.asked == []
    say(panel, name, "3")
    assert (panel.controls.problems, panel.controls.ready, len(backend.asked)) == ({}, True, 1)


def test_empty_text_and_backend_errors_are_shown(explore: Callable[..., ExplorePanel]) -> None:
    def fail(number: int) -> None:
        if number == 4:
            raise ServiceUnavailable("the service is away")

    panel = explore(ToneBackend(fail))
    turn(panel, "text", " ")
    assert "text" in panel.controls.problems
    say(panel, "text", TEXT + "!")
    until(lambda: "the service is away" in panel.controls.problems.get("", ""))
    assert "failed" in panel.status


def test_cancel_and_close_stop_the_take(explore: Callable[..., ExplorePanel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "_UNSEEN_S", 0.05)
    step = Mock(side_effect=lambda _: time.sleep(0.05))
    backend = ToneBackend(step)
    panel = explore(backend)
    stops: tuple[Callable[[], object], ...] = (
        panel.cancel,
        lambda: panel.controls._on_page(None, {"kind": "views", "count": 0}, []),
    )
    for stop in stops:
        panel.speak()
        until(lambda: backend.open == 1)
        stop()
        until(lambda: backend.open == 0)
        until(lambda: "cancelled" in panel.status)
    assert step.call_count < len(TEXT), "nothing more is said"
    assert takes_of(panel).grid.work.rows == ()


def test_a_number_that_is_not_allowed_is_marked_and_nothing_is_spoken(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    for value, problem in ((1.5, "between 0 and 1, got 1.5"), (None, "must be a number, got no value")):
        turn(panel, "temperature", value)
        panel.speak()
        assert panel.wait()
        assert problem in panel.controls.problems["temperature"]
        assert (panel.controls.values["temperature"], panel.controls.ready) == (value, False)
    assert backend.asked == []


def test_an_empty_parameter_without_a_default_is_left_to_the_backend(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore(ToneBackend(knobs=(Knob("warmth", "float", None), Knob("language", "str", None))))
    assert (panel.controls.problems, panel.controls.ready) == ({}, True)
    panel.controls.set(warmth="hot")
    assert "hot" in panel.controls.problems["warmth"]
    panel.controls.set(warmth="0.5")
    assert "warmth=0.5" in panel.code
    panel.controls.set(warmth="")
    assert "warmth" not in panel.code


def test_code_of_a_lab_with_backend_parameters_gives_the_same_call(explore: Callable[..., ExplorePanel]) -> None:
    knobs = (Knob("warmth", "float", None), Knob("steps", "int", 4), Knob("kind", "str", "a"))
    panel = explore(ToneBackend(knobs=knobs), warmth=0.7, steps=8)
    for values in ({"warmth": "", "steps": 4}, {"warmth": "0.5", "steps": 8}, {"warmth": "0.7", "kind": "b"}):
        panel.controls.set(**values)
        run = eval(panel.code, {"lab": Mock(speak=panel._lab.call)})  # noqa: S307 (code of the panel)
        assert run == panel.controls.call()
    assert panel.controls.call().knobs == (("kind", "b"), ("steps", 8), ("warmth", 0.7))


def test_all_invalid_fields_are_marked_at_once(explore: Callable[..., ExplorePanel]) -> None:
    panel = explore()
    panel.controls.set(text=" ", temperature=1.5, top_p=None, seed="many")
    assert sorted(panel.controls.problems) == ["seed", "temperature", "text", "top_p"]
    panel.controls.set(text=TEXT, top_p=0.5, seed="1")
    assert list(panel.controls.problems) == ["temperature"]


def test_cancel_drops_pending_takes(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    turn(panel, "temperature", 0.1)
    panel.cancel()
    assert panel.wait()
    assert backend.asked == []


def test_without_speak_on_change_only_the_button_synthesizes(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend)
    panel.controls.speak_on_change = False
    say(panel, "top_p", 0.2)
    assert backend.asked == []
    panel.speak()
    assert panel.wait()
    assert [request.top_p for request, _, _ in backend.asked] == [0.2]


def test_compact_form_synthesizes_by_button_and_keeps_one_take(explore: Callable[..., ExplorePanel]) -> None:
    backend = ToneBackend()
    panel = explore(backend, compact=True, seed=None, latency="normal")
    assert panel.takes is None
    turn(panel, "temperature", 0.55)
    turn(panel, "voice", "ada")
    say(panel, "seed", "7")
    assert backend.asked == []
    panel.speak()
    assert panel.wait()
    assert panel.code == f"lab.speak({TEXT!r}, voice='ada', temperature=0.55, seed=7)"
    assert panel.clip == Lab(ToneBackend()).speak(TEXT, voice="ada", seed=7, temperature=0.55)
    assert len(panel.player) == len(panel.clip or ())
    assert (panel.controls.share, panel.controls.tone) == (1.0, "success")
    assert "RTF" in panel.status
    assert (panel.controls.ready, panel.controls.busy) == (True, False)
    assert {name for name, field in fields_of(panel).items() if field.get("front")} == set(MAIN)


def test_take_cancelled_before_acceptance_has_no_audio(explore: Callable[..., ExplorePanel]) -> None:
    gate = threading.Event()
    gate.set()

    class Late(ToneBackend):
        """Accepts a call once it may."""

        def synthesize(self, call: Call) -> SpeechStream:
            assert gate.wait(20)
            return super().synthesize(call)

    panel = explore(backend := Late(), compact=True)
    panel.speak()
    assert panel.wait()
    assert panel.player.duration > 0
    gate.clear()
    panel.speak()
    panel.cancel()
    gate.set()
    assert panel.wait()
    assert panel.status == "cancelled after 0.0 s"
    assert backend.open == 0


def test_speak_stays_disabled_for_an_invalid_form(explore: Callable[..., ExplorePanel]) -> None:
    gate = threading.Event()
    panel = explore(ToneBackend(lambda number: gate.wait(20) if number == 2 else None), compact=True)
    panel.speak()
    turn(panel, "seed", "seven")
    gate.set()
    assert panel.wait()
    assert panel.clip is not None
    assert not panel.controls.ready
    assert "seed" in panel.controls.problems


def test_output_texts_are_reproducible(explore: Callable[..., ExplorePanel]) -> None:
    (first, _), (second, _) = (explore(compact=True)._repr_mimebundle_() for _ in range(2))
    assert first["text/plain"] == "ExplorePanel(tones on cpu, 2 voices)"
    assert [first[kind] for kind in ("text/plain", "text/html")] == [second[k] for k in ("text/plain", "text/html")]
    assert "application/vnd.jupyter.widget-view+json" in first


def test_labels_and_tooltips_of_fields() -> None:
    names = {"top_p": "Top-p", "repetition_penalty": "Repetition penalty", "prosody.volume": "Volume, dB"}
    assert {name: field_label(name) for name in names} == names
    assert field_help("prosody.speed").startswith("speed: Speaking-rate multiplier")
    assert field_help("voice").startswith("voice: Identifier")


def test_voice_choices_start_with_the_default_and_include_a_stored_voice() -> None:
    tones = ToneBackend().capabilities
    presets = [("Default speaker", ""), ("Ada (low and calm)", "ada"), ("Ben", "ben")]
    assert voice_choices(tones) == voice_choices(tones, "ada") == presets
    assert voice_choices(tones, "0123abcd") == [*presets, ("0123abcd", "0123abcd")]
