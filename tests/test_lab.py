from __future__ import annotations

import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.served import serving
from tests.tones import ToneBackend
from voicelab.backends.runs import RecordingBackend
from voicelab.call import Knob
from voicelab.capabilities import FieldSupport
from voicelab.errors import RequestInvalid, StoreError
from voicelab.lab import Lab, connect
from voicelab.runs.cache import Cache
from voicelab.schema import ProsodyControl, ReferenceAudio
from voicelab.session import BackendFactory
from voicelab.sweeps.spec import axes_for, retyped, typed_axes
from voicelab.takes.collection import load


def test_lists_ranges_and_mappings_are_axes_and_the_rest_is_fixed(tmp_path: Path) -> None:
    lab = Lab(ToneBackend(), top_p=0.9, model="s1")
    sweep = lab.sweep(
        ["One.", "Two."],
        temperature="0..1 step 0.5",
        seed=[3, 5],
        voice={"her": "ada", "him": "ben"},
        speed=1.5,
        format="pcm",
        cache=Cache(tmp_path),
    )
    assert [axis.name for axis in sweep.axes] == ["text", "temperature", "reference_id", "seed"]
    assert (len(sweep), sweep.base.model) == (24, "s1")
    request = sweep.base.request
    assert (request.top_p, request.format, request.prosody) == (0.9, "pcm", ProsodyControl(speed=1.5))
    assert {cell.call.request.reference_id for cell in sweep.grid.cells} == {"ada", "ben"}
    assert {job.seed for job in sweep.jobs()} == {3, 5}
    assert len(sweep.run().takes) == 24


def test_one_text_is_no_axis_and_a_list_of_references_is_one_value() -> None:
    references = [ReferenceAudio(audio=b"x", text="")]
    sweep = Lab(ToneBackend()).sweep("2..3", references=references, speed=[1, 2])
    assert [axis.name for axis in sweep.axes] == ["prosody.speed"]
    assert sweep.base.request.references == tuple(references)
    assert sweep.base.request.text == "2..3"


def test_a_wrong_field_is_named_before_anything_runs() -> None:
    backend = ToneBackend()
    for fields, name in (
        ({"temperture": [1]}, "temperture"),
        ({"temperature": [0, 2]}, "temperature"),
        ({"top_p": []}, "top_p"),
        ({"latency": "quick"}, "latency"),
    ):
        with pytest.raises(RequestInvalid) as caught:
            Lab(backend).sweep("One.", **fields)
        assert caught.value.errors[0].field == name
    assert backend.asked == []


@pytest.mark.parametrize(
    ("voice", "message"),
    [
        (["ada", "Bne"], "voice: the backend 'tones' has no voice 'Bne'; did you mean ben?"),
        ("nobody", "voice: the backend 'tones' has no voice 'nobody'; available: ada, ben"),
        (
            [{"ada": 0.5, "eva": 0.5}],
            "voice: the backend 'tones' has no voice 'ada(0.5)+eva(0.5)'; available: ada, ben",
        ),
    ],
)
def test_a_voice_that_the_backend_has_not_is_named_before_anything_runs(voice: Any, message: str) -> None:
    with pytest.raises(RequestInvalid, match=re.escape(message)):
        Lab(ToneBackend()).sweep("One.", voice=voice)
    Lab(ToneBackend()).sweep("One.", voice=["ada", {"ada": 0.5, "ben": 0.5}])
    Lab(ToneBackend(voices=())).sweep("One.", voice=voice)  # it has no list and no records: it is asked when it speaks


def test_numbers_of_numpy_are_numbers() -> None:
    lab, number, numbers = Lab(ToneBackend()), cast("Any", np.int64), cast("Any", np.arange)
    sweep = lab.sweep("One.", seed=numbers(3, 6), temperature=np.linspace(0, 1, 3), chunk_length=np.array([100, 200]))
    assert [len(axis) for axis in sweep.axes] == [3, 2, 3]
    assert sweep.axes[2].labels == ("3", "4", "5")
    assert {type(job.seed) for job in sweep.jobs()} == {int}
    assert len(lab.sweep("One.", repeats=number(2), seed=number(7))) == 2


def test_a_folder_is_a_cache_and_a_stranger_is_no_lab(tmp_path: Path) -> None:
    lab = Lab(ToneBackend())
    lab.sweep("One.", cache=tmp_path / "takes").run()
    assert len(Cache(tmp_path / "takes")) == 1
    with pytest.raises(RequestInvalid, match="lab: 'other' must be a Lab, got ToneBackend"):
        lab.sweep("One.", lab={"other": ToneBackend()})  # type: ignore[dict-item]


def test_each_lab_of_an_axis_speaks_with_its_own_voice_model_and_knobs(tmp_path: Path) -> None:
    pep = Knob("pep", "float", 0.5, bounds=(0.0, 1.0))
    one, two = ToneBackend(), ToneBackend(fingerprint="tones-2", models=("tones",), knobs=(pep,))
    labs = {"one": Lab(one, voice="ada"), "two": Lab(two, voice="ben", pep=0.75)}
    made = Lab(one).sweep("One.", lab=labs, temperature=[0, 1], cache=Cache(tmp_path)).run()
    spoken = {(take.fingerprint, take.request.reference_id, take.model, take.call.knobs) for take in made.takes}
    assert spoken == {("tones-1", "ada", "s2-pro", ()), ("tones-2", "ben", "tones", (("pep", 0.75),))}
    assert (set(made.frame()["backend"]), len(one.asked), len(two.asked)) == ({"one", "two"}, 2, 2)
    with pytest.raises(RequestInvalid, match="pep: the backend 'tones' has no knob 'pep'"):
        Lab(one).sweep("One.", lab=labs, extra={"pep": [0.1, 0.9]})


def test_a_knob_is_an_axis_where_the_backend_has_it(tmp_path: Path) -> None:
    pep, mood = Knob("pep", "float", 0.5, bounds=(0.0, 1.0)), Knob("mood", "str", "calm", choices=("calm", "glad"))
    backend = ToneBackend(knobs=(pep, mood), fields=(FieldSupport("top_p", ignored="tones are not sampled"),))
    lab = Lab(backend)
    sweep = lab.sweep("One.", extra={"pep": "0.1..0.5 step 0.2", "mood": ["calm", "glad"]}, cache=tmp_path / "takes")
    assert typed_axes(sweep) == [("pep", "0.1..0.5 step 0.2"), ("mood", "calm, glad")]
    assert [axis.values for axis in retyped(sweep, "One.", [("pep", "0..1 step 0.5")]).axes] == [(0.0, 0.5, 1.0)]
    assert axes_for(sweep)[-2:] == ("pep", "mood")
    assert "top_p" not in axes_for(sweep)
    result = sweep.run(tmp_path / "run")
    assert result.frame()[["pep", "mood"]].drop_duplicates().shape == (6, 2)
    run = load(tmp_path / "run")
    assert run.run.problems == ()
    assert {take.call.knobs for take in run} >= {(("mood", "glad"),), (("mood", "glad"), ("pep", 0.1))}
    assert run.run.backends[0].knobs == (pep, mood)
    assert len(sweep.run().takes) == len(backend.asked) == 6, "what is kept is found again"
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"pep": [0.1, 2]}, "pep: must be between 0 and 1, got 2"),
        ({"pepp": [0.1]}, "unknown field 'pepp'"),
        ({"pep": 0.1, "extra": {"pep": [0.2]}}, r"pep: pass pep or extra\['pep'\], not both"),
        ({"top_p": [0.1, 0.9]}, "top_p: the backend 'tones' ignores it: tones are not sampled; leave it out"),
    )
    for fields, message in refused:
        with pytest.raises(RequestInvalid, match=message):
            lab.sweep("One.", **fields)
    with pytest.raises(RequestInvalid, match="unknown field 'pep'"):
        Lab(ToneBackend()).sweep("One.", pep=[0.1])  # type: ignore[call-arg]
    assert len(backend.asked) == 6, "nothing is asked for what is refused"


def test_other_processes_open_the_service_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as service:
        monkeypatch.setenv("VOICELAB_API_KEY", service.secret)
        with connect(service.url) as lab, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            assert lab.factory == BackendFactory(service.url)
            assert service.secret.encode() not in pickle.dumps(lab.factory)
            sweep = lab.sweep("One.", temperature=[0, 1], cache=Cache(tmp_path / "cache"))
            made = sweep.run(executor=pool)
            assert (made.state, len(made.takes)) == ("done", 2), made.failures
            assert lab.with_defaults(top_p=0.5).factory == lab.factory


def test_other_processes_open_a_recording_again(tmp_path: Path) -> None:
    with Lab(RecordingBackend(ToneBackend(), tmp_path / "recording")) as recorder:
        said = recorder.sweep("One.", temperature=[0, 1], repeats=2, cache=Cache(tmp_path / "first")).run()
    with connect(replay=tmp_path / "recording") as lab, ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert lab.factory == BackendFactory(f"replay:{tmp_path / 'recording'}")
        sweep = lab.sweep("One.", temperature=[0, 1], repeats=2, cache=Cache(tmp_path / "second"))
        made = sweep.run(executor=pool)
        assert made.state == "done", made.failures
        assert [take.digest for take in made.takes] == [take.digest for take in said.takes]
        # What was not recorded fails there as it would here, with its own error.
        (failure,) = lab.sweep("Two.", cache=Cache(tmp_path / "third")).run(executor=pool).failures
        assert isinstance(failure.error, StoreError)
