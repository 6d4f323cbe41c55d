from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tones import ToneBackend, there, until
from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.errors import ArgumentError, AudioError, NotFound, RequestInvalid
from voicelab.runs.cache import Cache
from voicelab.runs.run import read_run
from voicelab.schema import TTSRequest
from voicelab.sweeps.axes import Axis, Job
from voicelab.sweeps.run import Budget, Outcome
from voicelab.sweeps.sweep import Sweep
from voicelab.takes.collection import load

BASE = Call(TTSRequest(text="Hello.", format="wav"))
AXES: dict[str, object] = {"temperature": "0..1 step 0.5", "latency": ["low", "normal"]}


def sweep_over(backend: ToneBackend, base: Call, axes: Mapping[str, object], **options: Any) -> Sweep:
    """A sweep over one backend, of values as people write them."""
    knobs = backend.capabilities.knobs
    return Sweep(
        base, tuple(Axis.of(name, values, knobs) for name, values in axes.items()), {"lab": backend}, **options
    )


def sweep(backend: ToneBackend, axes: dict[str, object] | None = None, **options: Any) -> Sweep:
    return sweep_over(backend, options.pop("base", BASE), AXES if axes is None else axes, **options)


def counted(backend: ToneBackend) -> Counter[tuple[TTSRequest, str, int | None]]:
    return Counter(backend.asked)


def test_every_take_is_made_once_and_is_what_the_backend_says(cache: Cache) -> None:
    backend = ToneBackend()
    made = sweep(backend, repeats=2, cache=cache).run()
    assert (made.state, len(made), len(made.takes), made.failures) == ("done", 12, 12, ())
    assert set(counted(backend).values()) == {1}
    assert backend.open == 0
    for row in made.rows:
        take = there(row.take)
        direct = b"".join(ToneBackend().synthesize(row.call))
        assert take.audio == direct
    assert repr(made) == "TakeTable(temperature: 3, latency: 2, repeat: 2; 12 takes)"


def test_what_is_there_is_not_made_again(cache: Cache) -> None:
    sweep(ToneBackend(), repeats=2, cache=cache).run()
    backend = ToneBackend()
    again = sweep(backend, repeats=3, cache=cache).run()
    assert len(backend.asked) == 6
    assert sum(row.cached for row in again.rows) == 12
    assert {row.repeat for row in again.rows if not row.cached} == {2}


def test_a_run_resumes_on_another_device(tmp_path: Path) -> None:
    assert sweep(ToneBackend()).run(tmp_path / "run").notes == ()
    gpu = ToneBackend(device="cuda:0 NVIDIA H100")
    made = sweep(gpu, repeats=2).run(tmp_path / "run")
    assert len(gpu.asked) == 6
    assert set(made.frame(also=["device"])["device"]) == {"cpu", "cuda:0 NVIDIA H100"}
    (note,) = made.notes
    assert note.startswith("Takes of tones are from several devices (cpu: 6, cuda: 6), which round differently")
    assert load(tmp_path / "run").notes == (note,)


def test_a_backend_without_seeds_repeats_by_number(cache: Cache) -> None:
    backend = ToneBackend(seed="none")
    sweep(backend, repeats=3, cache=cache).run()
    assert {seed for _, _, seed in backend.asked} == {None}
    assert len(backend.asked) == 18
    assert sweep(ToneBackend(seed="none"), repeats=3, cache=cache).run().rows[0].cached


def test_a_failing_cell_does_not_end_the_grid(cache: Cache) -> None:
    def fail(number: int) -> None:
        if number == 3 and threading.current_thread().name.startswith("voicelab-take"):
            raise OSError("the third note is broken")

    made = sweep(ToneBackend(fail), {"text": ["Oh.", "Hello.", "Ah."]}, cache=cache).run()
    assert made.state == "done"
    assert [row.labels["text"] for row in made.failures] == ["Hello."]
    assert "third note" in str(made.failures[0].error)
    assert len(made.takes) == 2
    frame = made.frame()
    assert list(frame["error"].isna()) == [True, False, True]
    assert made.frame()["duration_s"].notna().sum() == 2


def test_a_take_that_is_no_audio_does_not_end_the_grid(cache: Cache) -> None:
    class Broken(ToneBackend):
        def _notes(self, call: Call) -> Iterator[bytes]:
            whole = b"".join(super()._notes(call))
            yield whole if call.request.temperature else b"<html>busy</html>"

    made = sweep(Broken(), base=BASE.replace(format="mp3"), cache=cache).run()
    assert (made.state, len(made.takes)) == ("done", 4)
    assert [row.call.request.temperature for row in made.failures] == [0, 0]
    assert all(isinstance(row.error, AudioError) for row in made.failures)
    assert len(cache) == 4


def test_cells_that_share_a_take_are_all_written_down(cache: Cache, tmp_path: Path) -> None:
    # Two names of one backend, and a rate that is the format's own.
    one, path = ToneBackend(), tmp_path / "run"
    axes = tuple(
        Axis.of(name, values) for name, values in {"backend": ["a", "b"], "sample_rate": [None, 44100]}.items()
    )
    grid = Sweep(BASE, axes, {"a": one, "b": one}, cache=cache)
    made = grid.run(path)
    assert len(cache) == 1
    written = read_run(path)
    assert [(labels["cell"], labels["backend"]) for labels in written.labels] == [
        (0, "a"),
        (1, "a"),
        (2, "b"),
        (3, "b"),
    ]
    assert [take.key for take in written.takes] == [take.key for take in made.takes]
    before = (path / "run.jsonl").read_bytes()
    grid.run(path)
    assert (path / "run.jsonl").read_bytes() == before


def test_the_order_of_work_is_the_cheap_one(cache: Cache) -> None:
    backend = ToneBackend()
    sweep(backend, {"temperature": [0, 1], "voice": ["ada", "ben"]}, cache=cache).run(concurrency=1)
    assert [request.reference_id for request, _, _ in backend.asked] == ["ada", "ada", "ben", "ben"]


def test_several_backends(cache: Cache) -> None:
    backends = {"a": ToneBackend(), "b": ToneBackend(fingerprint="tones-2", seed="none")}
    made = Sweep(
        BASE, (Axis.of("backend", ["a", "b"]), Axis.of("temperature", [0, 1])), backends, repeats=2, cache=cache
    ).run()
    assert [len(backend.asked) for backend in backends.values()] == [4, 4]
    assert set(made.frame()["backend"]) == {"a", "b"}
    with pytest.raises(RequestInvalid, match="must be one of a, b, got 'c'"):
        Sweep(BASE, (Axis.of("backend", ["c"]),), backends)
    with pytest.raises(RequestInvalid, match="need an axis"):
        Sweep(BASE, (), backends)


def slowly(seconds: float) -> Callable[[int], None]:
    return lambda _: time.sleep(seconds)


@pytest.mark.parametrize(("told", "under_way"), [((4,), 6), ((1,), 1), ((None,), 8), ((16, None), 8), ((16, 4), 6)])
def test_who_ends_a_take_has_the_next_at_hand(told: tuple[int | None, ...], under_way: int, cache: Cache) -> None:
    go = threading.Event()
    backends = {str(place): ToneBackend(lambda _: go.wait(10), at_once=at_once) for place, at_once in enumerate(told)}
    work = Sweep(BASE, (Axis.of("backend", sorted(backends)),), backends, repeats=12, cache=cache).start()
    while work.progress.running < under_way or sum(backend.open for backend in backends.values()) < under_way:
        time.sleep(0.01)
    time.sleep(0.05)  # for one too many to show
    assert work.progress.running == under_way
    go.set()
    assert work.wait(10)
    assert len(work.outcomes) == 12 * len(told)


def test_cancel_stops_looking_for_what_is_kept_too(cache: Cache) -> None:
    sweep(ToneBackend(), repeats=5, cache=cache).run()
    first = threading.Event()

    def slow(_: Outcome) -> None:
        first.set()
        time.sleep(0.05)

    work = sweep(ToneBackend(), repeats=5, cache=cache).start(listener=slow)
    assert first.wait(5)
    work.cancel()
    assert work.wait(5)
    assert (work.state, 0 < len(work.outcomes) < 30) == ("cancelled", True)


def test_a_pause_is_no_time_at_work(cache: Cache) -> None:
    go = threading.Event()
    work = sweep(ToneBackend(lambda _: go.wait(10)), cache=cache).start(concurrency=2)
    until(lambda: len(work.running) >= 2)
    assert {job.cell.index for job in work.running} == {0, 1}
    work.pause()
    at_pause = work.progress.elapsed_s
    time.sleep(0.3)
    assert work.progress.elapsed_s == at_pause
    work.unpause()
    assert work.progress.elapsed_s < at_pause + 0.25
    go.set()
    assert work.wait(10)
    work.pause()
    assert work.state == "done"


def test_pause_starts_nothing_more(cache: Cache) -> None:
    backend = ToneBackend(slowly(0.02))
    work = sweep(backend, repeats=5, cache=cache).start(concurrency=2)
    until(lambda: work.progress.rendered >= 2)
    work.pause()
    assert work.state == "paused"
    until(lambda: not work.progress.running)
    asked = len(backend.asked)
    time.sleep(0.3)
    assert len(backend.asked) == asked < 30
    assert str(work.progress).startswith(f"{asked} of 30 takes, paused")
    work.unpause()
    assert work.wait(20)
    assert (work.state, work.progress.done, work.progress.remaining_s) == ("done", 30, None)


def test_a_paused_sweep_can_be_cancelled(cache: Cache) -> None:
    work = sweep(ToneBackend(slowly(0.02)), repeats=5, cache=cache).start()
    work.pause()
    work.cancel()
    assert work.wait(2)
    assert work.state == "cancelled"


def test_an_interrupt_while_waiting_does_not_end_the_run(cache: Cache) -> None:
    go = threading.Event()
    work = sweep(ToneBackend(lambda _: there(go.wait(20))), cache=cache).start()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        work.wait(20)
    assert (work.wait(0.1), work.state) == (False, "running")
    go.set()
    assert (work.wait(20), work.state) == (True, "done")


def test_a_budget_is_checked_before_and_kept_while_running(cache: Cache) -> None:
    backend = ToneBackend()
    with pytest.raises(RequestInvalid, match=r"budget\.requests"):
        sweep(backend, cache=cache).run(budget=Budget(requests=5))
    assert backend.asked == []
    # 6 characters are guessed at .4 s, and are .3 s; seconds of work are not known before.
    made = sweep(ToneBackend(slowly(0.01)), repeats=2, cache=cache).run(budget=Budget(compute_s=0.1), concurrency=1)
    assert made.state == "over budget"
    assert 1 <= len(made.takes) < 12


def test_a_budget_counts_only_what_is_missing(cache: Cache) -> None:
    sweep(ToneBackend(), cache=cache).run()
    assert sweep(ToneBackend(), repeats=2).estimate(cache).cached == 6
    assert sweep(ToneBackend(), repeats=2, cache=cache).run(budget=Budget(requests=6)).state == "done"


def test_requests_per_minute(cache: Cache) -> None:
    times: list[float] = []

    class Timed(ToneBackend):
        def synthesize(self, call: Call) -> SpeechStream:
            times.append(time.monotonic())
            return super().synthesize(call)

    begin = time.monotonic()
    sweep(Timed(), cache=cache).run(requests_per_minute=1200)
    assert len(times) > 3
    assert (np.sort(times) - begin >= 0.05 * np.arange(len(times))).all()
    with pytest.raises(RequestInvalid, match="requests_per_minute"):
        sweep(ToneBackend(), {"seed": [1]}).run(requests_per_minute=0)


def test_the_listener_hears_everything_once_and_after_it_is_kept(cache: Cache) -> None:
    heard: list[Outcome] = []

    def listen(outcome: Outcome) -> None:
        assert there(outcome.take).key in cache
        heard.append(outcome)

    made = sweep(ToneBackend(), cache=cache).run(listener=listen)
    heard.sort(key=lambda outcome: outcome.job.cell.index)
    assert [outcome.take for outcome in heard] == list(made.takes)


def test_a_listener_that_fails_ends_the_run_with_its_error(cache: Cache) -> None:
    def listen(_: Outcome) -> None:
        raise OSError("nobody listens")

    with pytest.raises(OSError, match="nobody listens"):
        sweep(ToneBackend(), cache=cache).run(listener=listen)


def test_the_table(cache: Cache) -> None:
    axes: dict[str, object] = {"temperature": [0, 1], "voice": [None, "ada"]}
    made = sweep(ToneBackend(), axes, repeats=2, cache=cache).run()
    frame = made.frame(lambda clips: [{"peak": float(np.abs(clip.samples).max())} for clip in clips])
    assert len(frame) == 8
    assert list(frame.columns[:4]) == ["temperature", "reference_id", "repeat", "seed"]
    assert set(frame["reference_id"]) == {"default", "ada"}
    assert frame["temperature"].dtype == float
    assert frame["duration_s"].to_list() == pytest.approx([0.3] * 8, abs=0.01)
    assert (frame["first_audio_s"] <= frame["total_s"]).all()
    assert frame["peak"].between(0.25, 0.35).all()
    assert frame["key"].is_unique


def test_clips_by_their_place(cache: Cache) -> None:
    made = sweep(ToneBackend(), {"temperature": [0, 1], "speed": [1, 2]}, repeats=2, cache=cache).run()
    slow, quick = (made.clip(temperature=1, prosody__speed=speed, repeat=1) for speed in (1, 2))
    assert slow.duration == pytest.approx(0.3, abs=0.01)
    assert quick.rate == slow.rate
    assert len(made.select(temperature="1")) == 4
    with pytest.raises(ArgumentError, match="must select one take, got 2; also specify speed"):
        made.clip(temperature=1)
    with pytest.raises(NotFound):
        made.clip(temperature=0.3, prosody__speed=1)
    with pytest.raises(
        ArgumentError, match="top_p: must be a key column, got 'top_p'; the key columns are temperature, speed, repeat"
    ):
        made.select(top_p=1)


def test_a_damaged_take_is_made_anew(cache: Cache) -> None:
    first = sweep(ToneBackend(), cache=cache).run()
    file = min((cache.folder / "takes").iterdir())
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    backend = ToneBackend()
    again = sweep(backend, cache=cache).run()
    assert len(backend.asked) == 1
    assert [take.digest for take in again.takes] == [take.digest for take in first.takes]
    (anew,) = (row for row in again.rows if not row.cached)
    assert "damaged" in " ".join(there(anew.take).notes)


def test_takes_that_cannot_be_kept_are_there_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    made = sweep(ToneBackend(), cache=Cache(tmp_path / "file" / "cache")).run()
    assert (made.state, len(made.takes)) == ("done", 6)
    assert all("could not be stored" in take.notes[-1] for take in made.takes)


def test_somebodys_own_threads(cache: Cache) -> None:
    with ThreadPoolExecutor(2) as pool:
        made = sweep(ToneBackend(), cache=cache).run(executor=pool)
        assert made.state == "done"
        assert pool.submit(int, "3").result() == 3


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"executor": object()}, "executor"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"requests_per_minute": "3"}, "requests_per_minute"),
        ({"requests_per_minute": True}, "requests_per_minute"),
        ({"budget": {"requests": 3}}, "budget"),
    ],
)
def test_what_cannot_work(cache: Cache, options: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestInvalid, match=f"^{field}: "):
        sweep(ToneBackend(), cache=cache).run(**options)


def test_processes_need_a_factory(cache: Cache) -> None:
    with ProcessPoolExecutor(1) as processes, pytest.raises(RequestInvalid, match="factories: must"):
        sweep(ToneBackend(), cache=cache).run(executor=processes)


def test_jobs_are_plain_values() -> None:
    jobs = sweep(ToneBackend()).jobs()
    assert all(isinstance(job, Job) for job in jobs)
    with pytest.raises(TypeError):
        jobs[0].cell.values["temperature"] = 1  # type: ignore[index]
