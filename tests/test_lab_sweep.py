from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.tones import ToneBackend
from voicelab.errors import RequestInvalid, StoreError
from voicelab.experiments.cache import Cache
from voicelab.experiments.recording import RecordingBackend
from voicelab.lab import BackendFactory, Lab, connect
from voicelab.schema import ProsodyControl, ReferenceAudio
from voicelab.service.keys import KeyStore
from voicelab.service.run import running


def test_lists_ranges_and_mappings_are_axes_and_the_rest_is_fixed(tmp_path: Path) -> None:
    lab = Lab(ToneBackend(), top_p=0.9, model="s1")
    sweep = lab.sweep(
        ["One.", "Two."],
        temperature="0..1 step 0.5",
        latency=["low", "normal"],
        voice={"her": "ada", "him": "ben"},
        speed=1.5,
        format="pcm",
        cache=Cache(tmp_path),
    )
    assert [axis.name for axis in sweep.axes] == ["text", "temperature", "latency", "reference_id"]
    assert (len(sweep), sweep.base.model) == (24, "s1")
    request = sweep.base.request
    assert (request.top_p, request.format, request.prosody) == (0.9, "pcm", ProsodyControl(speed=1.5))
    assert {cell.call.request.reference_id for cell in sweep.grid.cells} == {"ada", "ben"}
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


def test_a_list_of_seeds_is_an_axis() -> None:
    sweep = Lab(ToneBackend()).sweep("One.", seed=[3, 5])
    assert [job.seed for job in sweep.jobs()] == [3, 5]


def test_numbers_of_numpy_are_numbers() -> None:
    lab, number, numbers = Lab(ToneBackend()), cast(Any, np.int64), cast(Any, np.arange)
    sweep = lab.sweep("One.", seed=numbers(3, 6), temperature=np.linspace(0, 1, 3), chunk_length=np.array([100, 200]))
    assert [len(axis) for axis in sweep.axes] == [3, 2, 3]
    assert sweep.axes[2].labels == ("3", "4", "5")
    assert {type(job.seed) for job in sweep.jobs()} == {int}
    assert len(lab.sweep("One.", repeats=number(2), seed=number(7))) == 2


def test_a_folder_is_a_cache_and_a_stranger_is_no_lab(tmp_path: Path) -> None:
    lab = Lab(ToneBackend())
    lab.sweep("One.", cache=tmp_path / "takes").run()
    assert len(Cache(tmp_path / "takes")) == 1
    with pytest.raises(RequestInvalid, match="labs: 'other' is a ToneBackend, not a Lab"):
        lab.sweep("One.", labs={"other": ToneBackend()})  # type: ignore[dict-item]


def test_several_labs(tmp_path: Path) -> None:
    one, two = ToneBackend(), ToneBackend(fingerprint="tones-2")
    made = Lab(one).sweep("One.", labs={"other": Lab(two)}, temperature=[0, 1], cache=Cache(tmp_path)).run()
    assert set(made.frame()["backend"]) == {"lab", "other"}
    assert (len(one.asked), len(two.asked)) == (2, 2)


def test_other_processes_open_the_service_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with KeyStore(tmp_path / "keys.sqlite3") as keys, running(ToneBackend(), keys=keys) as url:
        secret = keys.create("sweep").secret
        monkeypatch.setenv("VOICELAB_API_KEY", secret)
        with connect(url) as lab, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            assert lab.factory == BackendFactory(url)
            assert secret.encode() not in pickle.dumps(lab.factory)
            sweep = lab.sweep("One.", temperature=[0, 1], cache=Cache(tmp_path / "cache"))
            made = sweep.run(executor=pool)
            assert (made.state, len(made.takes)) == ("done", 2), made.failures
            assert lab.with_defaults(top_p=0.5).factory == lab.factory


def test_other_processes_open_a_recording_again(tmp_path: Path) -> None:
    with Lab(RecordingBackend(ToneBackend(), tmp_path / "recording")) as recorder:
        said = recorder.sweep("One.", temperature=[0, 1], repeats=2, cache=Cache(tmp_path / "first")).run()
    with (
        connect(replay=tmp_path / "recording") as lab,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
    ):
        assert lab.factory == BackendFactory(f"replay:{tmp_path / 'recording'}")
        sweep = lab.sweep("One.", temperature=[0, 1], repeats=2, cache=Cache(tmp_path / "second"))
        made = sweep.run(executor=pool)
        assert made.state == "done", made.failures
        assert [take.digest for take in made.takes] == [take.digest for take in said.takes]
        # What was not recorded fails there as it would here, with its own error.
        (failure,) = lab.sweep("Two.", cache=Cache(tmp_path / "third")).run(executor=pool).failures
        assert isinstance(failure.error, StoreError)
