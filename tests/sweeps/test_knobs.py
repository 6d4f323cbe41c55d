"""What acts, what does nothing, and what is declared otherwise: on tones that are known to the last sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import voicelab as vl
from tests.tones import ToneBackend
from voicelab.backend import Backend
from voicelab.call import Call, Knob
from voicelab.capabilities import FieldSupport, SeedSupport
from voicelab.engine.local import LocalBackend
from voicelab.errors import ArgumentError
from voicelab.lab import Lab
from voicelab.sweeps.knobs import KnobCheck, check_knobs

KNOBS = (Knob("longer", "int", 0, bounds=(0, 12)), Knob("dead", "float", 0.5, bounds=(0.0, 1.0)))


class Knobbed(ToneBackend):
    """Says more notes the longer it is told; ``dead`` does nothing, and temperature only what ``hears`` lets it."""

    def __init__(self, seed: SeedSupport, *fields: FieldSupport, hears: bool = True) -> None:
        super().__init__(seed=seed, knobs=KNOBS, fields=fields)
        self.hears = hears

    def _notes(self, call: Call) -> Iterator[bytes]:
        longer = self.capabilities.knob_values(call)["longer"]
        text = call.request.text + "." * int(longer)
        fields = {} if self.hears else {"temperature": 0.7}
        return super()._notes(replace(call, knobs=(), request=call.request.replace(text=text, **fields)))


def checked(backend: Backend, *names: str, repeats: int = 3) -> KnobCheck:
    with Lab(backend) as lab:
        return lab.check_knobs(*names, repeats=repeats)


def test_exact_seeds_prove_what_acts_and_what_does_not() -> None:
    found = checked(Knobbed("exact", hears=False), "longer", "dead", "temperature", "speed")
    assert {item.name: item.verdict for item in found.findings} == {
        "temperature": "contradicts",
        "prosody.speed": "acts",
        "longer": "acts",
        "dead": "contradicts",
    }
    longer = found["longer"]
    assert (longer.values, longer.changed, longer.takes) == ((0, 12), 1.0, 12)
    assert longer.effect == pytest.approx({"duration": 0.6, "bytes": 0.6 * 88_200}[longer.metric])
    assert math.isnan(longer.p)  # seeds repeat: the takes of one value do not vary
    assert "(no variance, no p)" in str(longer)
    assert found["dead"].reason == "declared to have an effect, but the samples are the same"
    assert not found.honest
    assert "dead" in found._repr_mimebundle_()["text/html"]
    assert list(found.frame["name"]) == [item.name for item in found.findings]


def test_without_seeds_the_statistics_decide_and_say_what_they_could_have_seen() -> None:
    found = checked(Knobbed("none"), "longer", "dead")
    assert found["longer"].verdict == "acts"
    assert found["longer"].changed == 1.0, "repeats are identical, and differ from those of the other value"
    assert found["dead"].verdict == "no effect found", "which is no proof that it is declared wrongly"
    assert found["dead"].changed is None
    assert found.honest


def test_a_model_whose_audio_is_the_same_for_all_texts() -> None:
    tone = np.sin(np.arange(2_400) / 10)
    found = vl.connect(lambda text, gain=0.3: (gain * tone, 24_000)).check_knobs("gain")
    assert (found["gain"].verdict, found["gain"].changed) == ("acts", 1.0)


def test_a_difference_without_variance_between_repeats_that_differ_is_an_effect() -> None:
    # The takes differ in pitch by the seed, but neither in their duration nor in the size of the file.
    def tone(text: str, longer: bool = False, seed: int = 0) -> tuple[np.ndarray, int]:
        return 0.3 * np.sin(np.arange(2_400 + 1_200 * longer) * (0.1 + seed % 7 / 50)), 24_000

    found = vl.connect(tone).check_knobs("longer")["longer"]
    assert (found.verdict, found.changed) == ("acts", None)
    assert "no variance, no p" in str(found)


@pytest.mark.parametrize(("hears", "verdict"), [(False, "ignored"), (True, "contradicts")])
def test_what_is_declared_to_do_nothing_is_held_to_that(hears: bool, verdict: str) -> None:
    ignored = FieldSupport("temperature", ignored="tones are not sampled")
    found = checked(Knobbed("exact", ignored, hears=hears), "temperature")
    assert found["temperature"].verdict == verdict
    assert found["temperature"].declared == "ignored: tones are not sampled"


def test_a_value_that_is_refused_is_not_tried_and_a_name_that_there_is_not_is_refused() -> None:
    found = checked(Knobbed("exact", FieldSupport("latency", values=("normal",))), "latency", repeats=2)
    assert found["latency"].verdict == "not tried"
    assert "'low' was rejected: latency: must be normal, got low" in found["latency"].reason
    with pytest.raises(ArgumentError, match=r"must be one of .*longer, dead, got 'pep'"):
        checked(Knobbed("exact"), "pep")
    with pytest.raises(ArgumentError, match="repeats"):
        check_knobs(Knobbed("exact"), Call.of("a"), repeats=1)


class OneRate(ToneBackend):
    """Says raw samples of 24 kHz, whatever rate it is asked for."""

    def _notes(self, call: Call) -> Iterator[bytes]:
        return super()._notes(replace(call, request=call.request.replace(sample_rate=24000)))


@pytest.mark.parametrize("seed", ["exact", "none"])
def test_raw_samples_of_another_rate_than_asked_for_are_noticed(seed: SeedSupport) -> None:
    finding = checked(OneRate(seed=seed), "sample_rate", repeats=2)["sample_rate"]
    assert finding.verdict == "contradicts"
    assert "at 44100 Hz and 8000 Hz the durations differ by a factor of 5.5" in finding.reason
    assert checked(ToneBackend(seed=seed), "sample_rate", repeats=2).honest
    headed = ToneBackend(seed=seed, fields=(FieldSupport("format", values=("wav",)),))
    assert checked(headed, "sample_rate", repeats=2).honest


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_embedded_voice_is_as_it_declares() -> None:
    found = checked(LocalBackend("cpu"), repeats=2)
    assert found.honest, str(found)
    assert {item.verdict for item in found.findings} == {"acts"}, str(found)
