from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kept import ask, spoil
from tests.tones import ToneBackend, there
from voicelab.audio.analysis import digest
from voicelab.backends.runs import CachedBackend, RecordingBackend, ReplayBackend
from voicelab.call import Call
from voicelab.capabilities import SeedSupport
from voicelab.engine.local import LocalBackend
from voicelab.errors import EngineError, RequestInvalid, StoreError
from voicelab.runs.cache import Cache
from voicelab.runs.failures import Failed
from voicelab.runs.folder import RUN_FILE, RunFolder
from voicelab.runs.run import Journal, read_run
from voicelab.takes.collection import load
from voicelab.takes.replay import Tolerance, check_seed_claim, compare, replay
from voicelab.takes.table import TakeTable


class Wavering(ToneBackend):
    """Adds something of its own to every rendering: ``noise`` hiss, ``gain`` level, ``more`` samples at the end."""

    def __init__(self, noise: float = 0.0, gain: float = 1.0, more: int = 0, seed: SeedSupport = "exact") -> None:
        super().__init__(seed=seed)
        self._change = (noise, gain, more)
        self._calls = itertools.count(1)

    def _notes(self, call: Call) -> Iterator[bytes]:
        noise, gain, more = self._change
        count = next(self._calls)
        audio = b"".join(super()._notes(call))
        samples = np.frombuffer(audio, "<i2").astype(np.float64) * gain
        samples = np.concatenate((samples, np.zeros(more * count)))
        rng = np.random.default_rng(count)
        yield np.clip(samples + rng.normal(0.0, 32768 * noise, samples.size), -32768, 32767).astype("<i2").tobytes()


def _run(path: Path, backend: ToneBackend, *, seed: int | None = 3) -> TakeTable:
    with Journal(path, [backend.capabilities]) as journal:
        for number in range(3):
            journal.add(backend.synthesize(Call(ask(f"Take {number} of a run"), seed=seed)).take(repeat=number))
    table: TakeTable = load(path)
    return table


@pytest.fixture
def run(tmp_path: Path, tones: ToneBackend) -> TakeTable:
    return _run(tmp_path / "run", tones)


def test_an_exact_backend_is_identical(run: TakeTable, tones: ToneBackend) -> None:
    told: list[str] = []
    report = replay(run, tones, progress=lambda item: told.append(item.verdict))
    assert report.same
    assert report.counts == {"identical": 3, "within tolerance": 0, "different": 0, "failed": 0, "no original": 0}
    assert (told, report.notes, str(report)) == (["identical"] * 3, (), "3 takes: 3 identical")
    assert [item.before for item in report.comparisons] == list(run)
    assert [(model, seed) for _, model, seed in tones.asked] == [("s2-pro", 3)] * 6
    assert replay(there(run.run).folder, tones).same


def test_the_embedded_voice_repeats_a_run_exactly_alone_and_in_a_batch(tmp_path: Path) -> None:
    backend = LocalBackend(device="cpu")
    try:
        with Journal(tmp_path / "run", [backend.capabilities]) as journal:
            for seed in (3, None):  # a seed that was given, and one that the engine drew
                journal.add(backend.synthesize(Call(ask("Hello.", sample_rate=None, temperature=1), seed=seed)).take())
        report = replay(tmp_path / "run", backend, threads=2)
        assert report.counts["identical"] == 2
        assert report.notes == ()
        assert check_seed_claim(backend, call=Call(ask("Hello.", temperature=1))).observed == "exact"
    finally:
        backend.close()


def test_a_little_noise_is_within_tolerance_and_the_claim_of_exact_seeds_is_doubted(run: TakeTable) -> None:
    report = replay(run, Wavering(noise=0.0003))
    assert report.same
    assert {item.verdict for item in report.comparisons} == {"within tolerance"}
    for item in report.comparisons:
        assert item.duration == 0.0
        assert item.level is not None
        assert 0.0 <= abs(item.level) < 0.1
        assert item.mel is not None
        assert item.mel < 3.0
    assert "declares exact seeds, and 3 of its takes" in report.notes[0]
    assert not replay(run, Wavering(noise=0.0003), tolerance=Tolerance(mel_db=-1.0)).same


def test_differences_on_another_device_are_no_broken_claim(tmp_path: Path, tones: ToneBackend) -> None:
    with Journal(tmp_path / "run", [tones.capabilities]) as journal:
        journal.add(replace(tones.synthesize(Call(ask(), seed=3)).take(), device="cuda:0 NVIDIA H100"))
    note = "The run was made on cuda; cpu rounds differently, so a few takes may have other codes."
    assert replay(tmp_path / "run", Wavering(noise=0.0003)).notes == (note,)


def test_another_level_or_duration_is_different_and_says_by_how_much(run: TakeTable) -> None:
    louder = replay(run, Wavering(gain=2.0)).comparisons[0]
    assert louder.verdict == "different"
    assert louder.level == pytest.approx(6.02, abs=0.05)
    assert louder.mel is not None
    assert louder.mel > 3.0
    assert louder.duration == 0.0
    assert louder.f0 == pytest.approx(0.0, abs=1.0)
    longer = replay(run, Wavering(more=4000), threads=1).comparisons[0]
    assert longer.verdict == "different"
    assert longer.duration == pytest.approx(0.5)
    assert longer.level is not None
    assert longer.level < 0


def test_one_bad_take_is_enough(run: TakeTable) -> None:
    def step(number: int) -> None:
        if number == 4:
            raise EngineError("planted")

    report = replay(run, ToneBackend(step), threads=1)
    assert report.counts["failed"] == 3
    assert report.comparisons[0].after is None
    assert report.comparisons[0].reason == "planted"
    assert not report.same


def test_unseeded_takes_differ_by_chance_and_it_says_so(tmp_path: Path) -> None:
    blind = Wavering(noise=0.1, seed="none")
    report = replay(_run(tmp_path / "run", blind, seed=None), blind)
    assert not report.same
    assert "sampling is random" in report.comparisons[0].reason


def test_a_drawn_seed_is_used_again(tmp_path: Path, tones: ToneBackend) -> None:
    take = tones.synthesize(Call(ask(), seed=11)).take()
    with Journal(tmp_path / "run", [tones.capabilities]) as journal:
        journal.add(replace(take, call=take.call.replace(seed=None)))
    assert replay(tmp_path / "run", tones).counts["identical"] == 1
    assert tones.asked[-1][2] == 11


def test_another_backend_is_named(run: TakeTable) -> None:
    report = replay(run, ToneBackend(name="other", fingerprint="tones-2"))
    assert report.same
    assert report.notes == ("The run was made by tones; other is another backend, or has other weights.",)


def test_failures_of_the_run_are_counted(run: TakeTable, tones: ToneBackend) -> None:
    with Journal(there(run.run).folder, [tones.capabilities]) as journal:
        journal.fail(Failed.of(Call(ask("x"), "s1", 1), tones.capabilities, EngineError("planted")))
    assert "1 failures of the run" in replay(there(run.run).folder, tones).notes[0]


def test_a_take_whose_sound_is_gone_or_changed_has_no_original(run: TakeTable, tones: ToneBackend) -> None:
    gone, changed, _ = (take.key for take in run)
    kept = RunFolder(there(run.run).folder)
    (kept.takes.folder / (kept.record(gone) or {})["sound"]).unlink()
    spoil(kept, changed)
    report = replay(run, tones)
    assert [item.verdict for item in report.comparisons] == ["no original", "no original", "identical"]
    assert not report.same
    assert [problem.partition("…")[0] for problem in report.problems] == [f"Take {key[:12]}" for key in (gone, changed)]


def _sweep(folder: Path, tones: ToneBackend, about: object, off: float = 0.0) -> None:
    with Journal(folder, [tones.capabilities], about={"sweep": about}) as journal:
        for cell, temperature in enumerate((0.2, 0.8)):
            take = tones.synthesize(Call(ask("Hi", temperature=temperature), seed=3)).take()
            journal.add(take, cell=cell, temperature=temperature + off)


PLAN = {"axes": {"temperature": ["0.2", "0.8"]}, "repeats": 1, "seed": 0}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda whole: whole.replace(b'{"line": "take"', b'{"line": "lake"', 1), "Line 2 of run.jsonl is damaged"),
        (
            lambda whole: whole.replace(b'"temperature": 0.2}', b'"temperature": 0.5}', 1),
            "Line 2 of run.jsonl is damaged",
        ),
        (lambda whole: whole[:-1], "is truncated"),
        (lambda whole: whole[: whole.index(b"\n") + 1], "The run has no take."),
    ],
)
def test_a_folder_that_is_no_full_record_is_never_the_same(
    tmp_path: Path, tones: ToneBackend, change: Callable[[bytes], bytes], problem: str
) -> None:
    _sweep(tmp_path, tones, PLAN)
    assert replay(tmp_path, tones).same
    whole = (tmp_path / RUN_FILE).read_bytes()
    assert change(whole) != whole
    (tmp_path / RUN_FILE).write_bytes(change(whole))
    report = replay(tmp_path, tones)
    assert not report.same
    assert any(problem in each for each in report.problems), report.problems


def test_labels_that_are_not_true_and_takes_that_are_missing_are_named(tmp_path: Path, tones: ToneBackend) -> None:
    _sweep(tmp_path / "labels", tones, PLAN, off=0.1)
    labels = [f"is labeled temperature {0.2 + 0.1}, but was made with 0.2.", "is labeled temperature 0.9, but was made"]
    assert all(label in each for label, each in zip(labels, read_run(tmp_path / "labels").problems, strict=True))
    _sweep(tmp_path / "more", tones, {**PLAN, "repeats": 2})
    assert read_run(tmp_path / "more").problems == ("The run has 2 of the 4 takes of its axes and repeats.",)
    assert not replay(tmp_path / "more", tones).same


@pytest.mark.parametrize("about", ["pilot", {"name": "pilot"}, {"axes": {"temperature": 3}, "repeats": 2}])
def test_what_another_writer_says_of_a_sweep_is_no_plan(tmp_path: Path, tones: ToneBackend, about: object) -> None:
    _sweep(tmp_path / "run", tones, about)
    assert replay(tmp_path / "run", tones).problems == ()


def test_a_recording_replays_a_run(run: TakeTable, tones: ToneBackend, tmp_path: Path) -> None:
    assert replay(run, RecordingBackend(tones, tmp_path / "take")).same
    assert replay(run, ReplayBackend(tmp_path / "take", "at once")).same


def test_the_same_samples_in_another_file_are_identical(tones: ToneBackend) -> None:
    take = tones.synthesize(Call(ask(format="wav"), seed=1)).take()
    exact = replace(take, sound=take.clip().to_bytes("wav"), digest="")
    assert exact.digest != take.digest
    assert compare(take, exact).verdict == "identical"


def test_another_reading_of_the_same_length_and_level_is_different(tones: ToneBackend) -> None:
    # The notes of one take backwards: duration, level, pitch and the mean spectrum are as before.
    take = tones.synthesize(Call(ask("A reading of some length", format="pcm"), seed=1)).take()
    other = replace(take, sound=np.frombuffer(take.audio, "<i2")[::-1].tobytes(), digest="")
    assert digest(take.clip()).close_to(digest(other.clip()))
    compared = compare(take, other)
    assert compared.verdict == "different"
    assert compared.mel is not None
    assert compared.mel > 5.0


def test_two_silences_are_the_same_and_silence_is_not_speech(tones: ToneBackend) -> None:
    take = tones.synthesize(Call(ask(), seed=1)).take()
    silent = replace(take, sound=bytes(len(take.audio)), digest="")
    quiet = compare(take, silent)
    assert (quiet.verdict, quiet.level, quiet.f0) == ("different", float("-inf"), None)
    other = replace(take, sound=bytes(len(take.audio) - 16), digest="")
    assert compare(silent, other).verdict == "within tolerance"


@pytest.mark.parametrize(
    ("backend", "observed", "honest"),
    [
        (ToneBackend(), "exact", True),
        (ToneBackend(seed="best-effort"), "exact", True),
        (ToneBackend(seed="none"), "none", True),
        (Wavering(noise=0.0003), "best-effort", False),
        (Wavering(noise=0.0003, seed="best-effort"), "best-effort", True),
        (Wavering(more=2000, seed="best-effort"), "none", False),
    ],
)
def test_the_claim_about_seeds_is_checked(backend: ToneBackend, observed: str, honest: bool) -> None:
    check = check_seed_claim(backend, call=Call(ask("A claim is checked", temperature=1)))
    assert (check.observed, check.honest) == (observed, honest)


def test_a_cache_does_not_vouch_for_the_backend_behind_it(tmp_path: Path) -> None:
    backend = CachedBackend(Wavering(noise=0.3), Cache(tmp_path / "cache"))
    check = check_seed_claim(backend, call=Call(ask("A claim is checked", temperature=1)))
    assert not check.honest


def test_a_seed_that_changes_nothing_is_none() -> None:
    class Deaf(ToneBackend):
        def _notes(self, call: Call) -> Iterator[bytes]:
            return super()._notes(call.replace(seed=0))

    check = check_seed_claim(Deaf(), call=Call(ask()))
    assert (check.observed, check.honest) == ("none", False)
    assert "the same audio" in check.reason


def test_bad_arguments(run: TakeTable, tones: ToneBackend, tmp_path: Path) -> None:
    with pytest.raises(RequestInvalid, match="threads"):
        replay(run, tones, threads=0)
    with pytest.raises(StoreError):
        replay(tmp_path / "nowhere", tones)
