from __future__ import annotations

import threading

import pytest

from tests.tones import ToneBackend
from voicelab.backend import SpeechStream
from voicelab.errors import ServiceUnavailable
from voicelab.lab import Lab
from voicelab.schema import Model, TTSRequest
from voicelab.views.panel import SpeechPanel

TEXT = "Twelve notes"


def panel(backend: ToneBackend | None = None, **defaults: object) -> SpeechPanel:
    return SpeechPanel(Lab(backend or ToneBackend()).with_defaults(**defaults), TEXT)


def test_it_begins_with_the_defaults_of_the_lab_and_says_the_plain_call() -> None:
    form = panel(temperature=0.3, latency="low", voice="ben", seed=4)
    assert (form.temperature.value, form.latency.value, form.voice.value, form.seed.value) == (0.3, "low", "ben", "4")
    assert form.code == f"lab.speak({TEXT!r})"


def test_the_tooltips_and_bounds_are_the_schemas() -> None:
    form = panel()
    assert (form.temperature.min, form.temperature.max) == (0.0, 1.0)
    assert "Nucleus" in form.top_p.tooltip


def test_speak_makes_the_clip_that_the_code_makes() -> None:
    form = panel()
    form.temperature.value = 0.55
    form.voice.value = "ada"
    form.latency.value = "low"
    form.seed.value = "7"
    job = form.speak()
    assert job is not None
    assert job.wait(20)
    assert form.code == f"lab.speak({TEXT!r}, voice='ada', temperature=0.55, latency='low', seed=7)"
    assert form.code in form.code_view.value.replace("&#x27;", "'")
    assert form.clip == eval(form.code, {"lab": Lab(ToneBackend())})  # noqa: S307 (the code is what is tested)
    assert len(form.player) == len(form.clip or ())
    assert (form.progress.value, form.progress.bar_style) == (1.0, "success")
    assert "RTF" in form.status.value
    assert (form.speak_button.disabled, form.cancel_button.disabled) == (False, True)


def test_the_default_speaker_can_be_chosen_over_the_labs_own_voice() -> None:
    backend = ToneBackend()
    form = panel(backend, voice="ben")
    form.voice.value = ""
    job = form.speak()
    assert job is not None
    assert job.wait(20)
    assert backend.asked[0][0].reference_id is None
    assert form.code == f"lab.speak({TEXT!r}, reference_id=None)"


@pytest.mark.parametrize(("control", "value", "field"), [("seed", "seven", "seed"), ("text", "  ", "text")])
def test_a_wrong_field_is_named_and_nothing_runs(control: str, value: str, field: str) -> None:
    backend = ToneBackend()
    form = panel(backend)
    good = getattr(form, control).value
    getattr(form, control).value = value
    assert f"<b>{field}</b>" in form.message.value
    assert form.speak_button.disabled
    assert form.speak() is None
    assert backend.asked == []
    getattr(form, control).value = good
    assert form.message.value == ""
    assert not form.speak_button.disabled


def test_an_error_of_the_backend_is_shown_and_escaped() -> None:
    def step(number: int) -> None:
        if number == 2:
            raise ServiceUnavailable("the service <is> away")

    form = panel(ToneBackend(step))
    job = form.speak()
    assert job is not None
    assert job.wait(20)
    assert "the service &lt;is&gt; away" in form.message.value
    assert form.progress.bar_style == "danger"
    assert form.clip is None
    assert not form.speak_button.disabled


def test_cancel_stops_and_a_second_press_while_it_runs_starts_nothing() -> None:
    gate = threading.Event()
    backend = ToneBackend(lambda number: gate.wait(20) if number == 2 else None)
    form = panel(backend)
    job = form.speak()
    assert form.speak() is job
    assert form.speak_button.disabled
    form.temperature.value = 0.1
    assert form.speak_button.disabled, "a change of a knob must not enable it"
    form.cancel()
    gate.set()
    assert job is not None
    assert job.wait(20)
    assert form.status.value.startswith("cancelled")
    assert backend.open == 0
    assert len(backend.asked) == 1


def test_what_was_cancelled_before_it_was_accepted_has_said_nothing() -> None:
    gate = threading.Event()
    gate.set()

    class Late(ToneBackend):
        """Accepts a call once it may."""

        def synthesize(self, request: TTSRequest, *, model: Model = "s2-pro", seed: int | None = None) -> SpeechStream:
            assert gate.wait(20)
            return super().synthesize(request, model=model, seed=seed)

    form = panel(Late())
    first = form.speak()
    assert first is not None
    assert first.wait(20)
    assert form.player.duration > 0
    gate.clear()
    second = form.speak()
    assert second is not None
    form.cancel()
    gate.set()
    assert second.wait(20)
    assert form.status.value == "cancelled after 0.0 s"


def test_a_form_that_went_wrong_meanwhile_stays_off() -> None:
    gate = threading.Event()
    form = panel(ToneBackend(lambda number: gate.wait(20) if number == 2 else None))
    job = form.speak()
    form.seed.value = "seven"
    gate.set()
    assert job is not None
    assert job.wait(20)
    assert form.clip is not None
    assert form.speak_button.disabled


def test_closing_the_panel_stops_the_work() -> None:
    gate = threading.Event()
    backend = ToneBackend(lambda number: gate.wait(20) if number == 2 else None)
    form = panel(backend)
    job = form.speak()
    form.close()
    gate.set()
    assert job is not None
    assert job.wait(20)
    assert backend.open == 0


def test_without_seeds_the_field_is_off() -> None:
    assert panel(ToneBackend(seed="none")).seed.disabled


def test_the_texts_of_the_output_are_stable_and_hold_no_ids() -> None:
    (first, _), (second, _) = panel()._repr_mimebundle_(), panel()._repr_mimebundle_()
    assert first["text/plain"] == "SpeechPanel(tones on cpu, 2 voices)"
    assert [first[kind] for kind in ("text/plain", "text/html")] == [second[k] for k in ("text/plain", "text/html")]
    assert "application/vnd.jupyter.widget-view+json" in first
