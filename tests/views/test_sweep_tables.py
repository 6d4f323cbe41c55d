"""What a sweep and its result show without a widget."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest

from tests.tones import DECLARED, ToneBackend
from voicelab.capabilities import Price
from voicelab.clip import Clip
from voicelab.lab import Lab
from voicelab.runs.cache import Cache
from voicelab.takes.table import TakeTable
from voicelab.views.bundles import BUDGET, embedded_audios
from voicelab.views.sweep_tables import table_bundle

AUDIO = re.compile(r'src="data:audio/mpeg;base64,([0-9A-Za-z+/=]+)"')


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TakeTable:
    lab = Lab(ToneBackend(voices=DECLARED))
    cache = Cache(tmp_path_factory.mktemp("cache"))
    return lab.sweep(["Hello there.", "a <b> & c"], voice=["ada", "nobody"], repeats=2, cache=cache).run()


def noise(seconds: float, seed: int = 0) -> Clip:
    samples = np.random.default_rng(seed).uniform(-0.5, 0.5, int(seconds * 24_000))
    return Clip(samples.astype(np.float32), 24_000)


def test_a_sweep_tells_its_axes_its_takes_and_what_they_need() -> None:
    backend = ToneBackend(prices=(Price(1000.0),))
    sweep = Lab(backend).sweep(["Hello there.", "a <b> & c"], temperature="0..1 step 0.25", repeats=2)
    bundle = sweep._repr_mimebundle_()
    assert repr(sweep) == "Sweep(text: 2, temperature: 5; 20 takes)"
    assert "20 requests, 210 characters, about 14 s of audio, costs 0.21" in bundle["text/plain"]
    for part in ("0 · 0.25 · 0.5 · 0.75 · 1", "Hello there. · a &lt;b&gt; &amp; c", "20 requests", "repeats"):
        assert part in bundle["text/html"]
    assert backend.asked == []


def test_a_result_is_a_table_that_plays(made: TakeTable) -> None:
    bundle = made._repr_mimebundle_()
    assert bundle["text/plain"] == "TakeTable(text: 2, voice: 2, repeat: 2; 4 takes, 4 failed)"
    html = bundle["text/html"]
    heard = AUDIO.findall(html)
    assert [Clip.load(base64.b64decode(data)).duration for data in heard] == pytest.approx(
        [take.clip().duration for take in made.takes], abs=0.05
    )
    assert html.count("<tr>") == 1 + len(made.rows)
    assert "a &lt;b&gt; &amp; c" in html
    assert html.count("<b>reference_id</b>: There is no such voice") == 4
    assert "duration, s" in html
    assert f"{made.takes[0].clip().duration:.2f}" in html


def test_a_result_shows_nothing_that_another_run_would_change(made: TakeTable, tmp_path: Path) -> None:
    lab = Lab(ToneBackend(voices=DECLARED))
    again = lab.sweep(["Hello there.", "a <b> & c"], voice=["ada", "nobody"], repeats=2, cache=Cache(tmp_path)).run()
    assert again.takes[0].timing != made.takes[0].timing
    assert again._repr_mimebundle_() == made._repr_mimebundle_()


def test_all_sounds_together_keep_to_the_budget() -> None:
    clips = [noise(2.0, seed) for seed in range(4)]
    all_of_them, note = embedded_audios(clips, BUDGET)
    assert all(all_of_them)
    assert note.startswith("mp3, 128 kbit/s,")
    whole, note = embedded_audios(clips, 100_000)
    assert all(whole)
    assert note.startswith("mp3, 64 kbit/s,")
    few, note = embedded_audios(clips, 50_000)
    assert [data is not None for data in few] == [True, True, False, False]
    assert sum(len(data or "") for data in few) <= 50_000
    assert "only the first 2 of 4 takes fit" in note


def test_a_large_result_shows_its_first_rows_and_says_so(tmp_path: Path) -> None:
    made = Lab(ToneBackend()).sweep("Hi.", temperature="0..0.99 step 0.01", cache=Cache(tmp_path)).run()
    html = table_bundle(made)["text/html"]
    assert html.count("<tr>") == 61
    assert "40 more takes are not shown" in html


def test_a_take_whose_audio_is_gone_says_so(tmp_path: Path) -> None:
    made = Lab(ToneBackend()).sweep("Hi.", temperature=[0, 1], cache=Cache(tmp_path)).run()
    assert Cache(tmp_path).remove(made.takes[1].key)
    html = table_bundle(made)["text/html"]
    assert len(AUDIO.findall(html)) == 1
    assert 'role="alert"' in html
