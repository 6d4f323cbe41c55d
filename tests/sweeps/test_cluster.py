"""Sweeps on real Dask clusters, whose workers and schedulers are ended by real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voicelab as vl
from tests.sweeps.clusters import ROOT, Processes, picky, tones
from tests.sweeps.test_sweep import sweep
from tests.tones import ToneBackend, until
from voicelab.errors import ExecutorError, RequestInvalid
from voicelab.runs.cache import Cache
from voicelab.sweeps import cluster
from voicelab.sweeps.run import SweepRun
from voicelab.takes.collection import load


class SlowTones(ToneBackend):
    def __init__(self) -> None:
        super().__init__(lambda _: time.sleep(0.01))


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_equal_takes_are_made_each_for_itself(client: Any, tmp_path: Path) -> None:
    # Without seeds only the number of the repeat tells the takes of a cell apart; Dask takes equal calls for one.
    backend = ToneBackend(seed="none")
    made = sweep(backend, repeats=5, factories={"lab": SlowTones}, cache=Cache(tmp_path)).run(executor=client)
    assert (made.state, len(made.takes)) == ("done", 30)
    assert len({take.timing.total_s for take in made.takes}) == 30
    assert backend.asked == []


def test_a_function_of_the_caller_runs_on_the_workers(client: Any) -> None:
    gain = 0.5
    lab: Any = vl.connect(lambda text, pitch=220.0: (np.full(2400, gain * pitch / 1000, np.float32), 24_000))
    there, here = (lab.sweep("Hello.", pitch=[110, 220]).run(executor=executor) for executor in (client, None))
    assert (there.state, len(there.takes)) == ("done", 2)
    assert [take.digest for take in there.takes] == [take.digest for take in here.takes]


def test_a_worker_that_is_lost_in_the_middle(client: Any, tmp_path: Path) -> None:
    pids = list(client.run(os.getpid).values())
    work = sweep(ToneBackend(), repeats=10, factories={"lab": SlowTones}, cache=Cache(tmp_path)).start(executor=client)
    killer = threading.Timer(0.0, os.kill, (pids[0], signal.SIGKILL))
    until(lambda: work.progress.rendered >= 5, 60)
    killer.start()
    assert work.wait(60)
    assert (work.state, work.progress.rendered, work.progress.failed) == ("done", 60, 0)
    here = sweep(ToneBackend(), repeats=10, cache=Cache(tmp_path / "here")).run()
    there = sweep(ToneBackend(), repeats=10).table(work)
    assert [take.digest for take in there.takes] == [take.digest for take in here.takes]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    pytest.importorskip("distributed")
    with Processes(tmp_path) as processes:
        yield processes


def connected(processes: Processes, workers: int = 0) -> Any:
    import distributed

    client = distributed.Client(processes.address, timeout="5s")  # type: ignore[no-untyped-call]
    if workers:
        client.wait_for_workers(workers, timeout=60)
    return client


def begun(client: Any, cache: Path, repeats: int = 10, factory: Any = tones) -> SweepRun:
    return sweep(ToneBackend(), repeats=repeats, factories={"lab": factory}, cache=Cache(cache)).start(executor=client)


UNFIT: dict[str, tuple[dict[str, str], str, str]] = {
    "other": (
        {"TONES_FINGERPRINT": "other-weights"},
        "",
        "its backend has the fingerprint other-weights, the sweep's has tones-1",
    ),
    "older": (
        {},
        "from voicelab import distribution as d; d.__version__ = '0.0.1'",
        "it has voicelab 0.0.1, the sweep",
    ),
    "bare": (
        {},
        "import sys; sys.modules['voicelab'] = None",
        "it cannot open the backend: ModuleNotFoundError: No module",
    ),
    "torchless": ({"TONES_REFUSED": "there is no torch"}, "", "it cannot open the backend: there is no torch"),
}
"""Workers that get no takes: their environment, what they run first, and why they are left out."""


def test_workers_that_would_make_another_voice_are_left_out_by_name(processes: Processes, tmp_path: Path) -> None:
    processes.worker("fit")
    for name, (environment, preload, _) in UNFIT.items():
        processes.worker(name, preload, environment=environment)
    with connected(processes, 1 + len(UNFIT)) as client:
        work = begun(client, tmp_path / "cache")
        assert work.wait(60)
    made = sweep(ToneBackend(), repeats=10).table(work)
    assert (made.state, len(made.takes), made.failures) == ("done", 60, ())
    assert {take.fingerprint for take in made.takes} == {"tones-1"}
    assert len(made.notes) == len(UNFIT)
    for name, (_, _, reason) in UNFIT.items():
        assert any(f"The worker {name} (tcp://" in note and reason in note for note in made.notes), (name, made.notes)
    assert repr(made).endswith("60 takes; 4 notes)")
    assert "The worker older" in made._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("name", UNFIT)
def test_a_sweep_with_unfit_workers_only_ends_with_an_error_that_names_them(
    processes: Processes, tmp_path: Path, name: str
) -> None:
    environment, preload, reason = UNFIT[name]
    processes.worker(name, preload, environment=environment)
    with connected(processes) as client:
        work = begun(client, tmp_path / "cache")
        with pytest.raises(
            ExecutorError, match="no worker of the cluster can synthesize the takes of the sweep"
        ) as raised:
            work.wait(60)
    assert f"{name} (tcp://" in str(raised.value)
    assert reason in str(raised.value)
    assert (work.state, work.progress.failed) == ("failed", 60)


def test_workers_that_join_later_are_asked_too(processes: Processes, tmp_path: Path) -> None:
    processes.worker("slow", environment={"TONES_NOTE_S": "0.2"})  # until the others have joined
    with connected(processes, 1) as client:
        work = begun(client, tmp_path / "cache", 30)
        until(lambda: work.progress.rendered, 60)
        processes.worker("other", environment={"TONES_FINGERPRINT": "other"})
        processes.worker("second", threads=2)
        until(lambda: work.notes, 60)
        until(lambda: work._context.workers.concurrency == 16, 60)
        assert work.wait(60)
    made = sweep(ToneBackend(), repeats=30).table(work)
    assert {take.fingerprint for take in made.takes} == {"tones-1"}
    assert (work.state, work.progress.failed, len(work.notes)) == ("done", 0, 1)
    table = made.frame(also=["host", "fingerprint"])
    assert set(table["fingerprint"]) == {"tones-1"}
    assert set(table["host"]) == {os.uname().nodename}
    assert "host" not in made.frame()
    with pytest.raises(ValueError, match="must be columns of a take, got 'hots'; did you mean host"):
        made.frame(also=["hots"])


def test_a_worker_that_fails_everything_is_left_out_after_three_takes(processes: Processes, tmp_path: Path) -> None:
    processes.worker("fit", environment={"TONES_NOTE_S": "0.02"})
    processes.worker("broken", environment={"TONES_BROKEN": "yes"})
    with connected(processes, 2) as client:
        work = begun(client, tmp_path / "cache")
        assert work.wait(60)
    assert (work.state, work.progress.failed) == ("done", 0)
    (note,) = work.notes
    assert "The worker broken (tcp" in note
    assert "it failed 3 consecutive takes that others completed: the disk is full" in note


def test_a_single_worker_that_fails_everything_ends_the_sweep(processes: Processes, tmp_path: Path) -> None:
    processes.worker("broken", environment={"TONES_BROKEN": "yes"})
    with connected(processes, 1) as client:
        work = begun(client, tmp_path / "cache", 50)
        with pytest.raises(ExecutorError, match=r"takes failed on every worker .*broken \(tcp.*: the disk is full"):
            work.wait(60)
    assert (work.state, work.progress.rendered, work.progress.failed) == ("failed", 0, 300)


def test_takes_that_fail_everywhere_cost_no_worker_its_work(processes: Processes, tmp_path: Path) -> None:
    processes.worker("first")
    processes.worker("second")
    axes: dict[str, object] = {"text": [*(f"Five {n}" for n in range(10)), *(f"Oh{n}" for n in range(10))]}
    with connected(processes, 2) as client:
        work = sweep(ToneBackend(), axes, repeats=2, factories={"lab": picky}, cache=Cache(tmp_path / "c")).start(
            executor=client
        )
        assert work.wait(60)
    failures = [outcome.error for outcome in work.outcomes if outcome.error]
    assert (work.state, len(failures), work.notes) == ("done", 20, ())
    assert all(isinstance(error, RequestInvalid) for error in failures)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_scheduler_that_is_gone_ends_the_sweep(
    processes: Processes, tmp_path: Path, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SILENCE_S", 6.0)
    processes.worker("fit")
    client = connected(processes, 1)
    work = begun(client, tmp_path / "cache", 50)
    until(lambda: work.progress.rendered > 10, 60)
    processes.scheduler.send_signal(how)
    with pytest.raises(ExecutorError, match="connection to the Dask scheduler was lost") as raised:
        work.wait(60)
    made = work.progress.rendered
    assert 10 < made < 300
    assert f"{made} of 300 takes are stored" in str(raised.value)
    assert (work.state, work.progress.failed, work.progress.running) == ("failed", 300 - made, 0)
    processes.scheduler.kill()
    client.close(timeout=2)
    rest = ToneBackend()
    again = sweep(rest, repeats=50, cache=Cache(tmp_path / "cache")).run()
    assert (again.state, len(again.takes), len(rest.asked)) == ("done", 300, 300 - made)


def test_a_cluster_without_workers_is_not_waited_for_for_ever(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "NO_WORKER_S", 3.0)
    with connected(processes) as client:
        work = begun(client, tmp_path / "never")
        with pytest.raises(ExecutorError, match="has had no worker for 3 s"):
            work.wait(60)
        monkeypatch.setattr(cluster, "NO_WORKER_S", 60.0)
        late = begun(client, tmp_path / "late", 2)
        time.sleep(1)
        processes.worker("late")
        assert late.wait(60)
        cancelled = begun(client, tmp_path / "cancelled", 500)
        until(lambda: cancelled.progress.rendered, 60)
        cancelled.cancel()
        assert cancelled.wait(10)
    assert (late.state, late.progress.rendered, cancelled.state) == ("done", 12, "cancelled")


def test_the_command_says_that_the_scheduler_is_gone_and_goes_on_afterwards(
    processes: Processes, tmp_path: Path
) -> None:
    processes.worker("fit")
    spec = tmp_path / "study.toml"
    spec.write_text('text = "Oh."\nrepeats = 40\n[axes]\ntemperature = [0.2, 0.6]\n')
    program = [sys.executable, "-c", "from voicelab.cli import app; app()", "sweep", str(spec)]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen([*program, "--dask", processes.address], stdout=log, stderr=log, cwd=ROOT)
        takes = tmp_path / "study" / "takes"
        until(lambda: running.poll() is not None or (takes.is_dir() and len(list(takes.iterdir())) > 3), 120)
        processes.scheduler.kill()
        assert running.wait(90) == 1
    text = (tmp_path / "log").read_text()
    kept = len(load(tmp_path / "study"))
    assert f"connection to the Dask scheduler was lost. {kept} of 80 takes are stored" in text
    assert f"80 of 80 takes, failed, {80 - kept} failed" in text
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT)
    assert f"80 of 80 takes, done, {kept} cached" in done.stdout
