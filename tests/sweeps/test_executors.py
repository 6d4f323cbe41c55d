"""Executors that break in the middle of a sweep: what was not made is failed or cancelled, and is made by the next run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.clusters import ROOT, tones
from tests.sweeps.test_sweep import slowly, sweep
from tests.tones import ToneBackend, until
from voicelab.errors import ExecutorError
from voicelab.runs.cache import Cache
from voicelab.sweeps.run import SweepRun
from voicelab.sweeps.workers import _let_fail
from voicelab.takes.collection import load


def spawned(processes: int = 2) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))


def begun(folder: Path, executor: Any, backend: ToneBackend | None = None) -> SweepRun:
    work = sweep(backend or ToneBackend(), repeats=10, factories={"lab": tones}).start(folder, executor=executor)
    until(lambda: work.progress.rendered > 4, 60)
    return work


def check_resumed(work: SweepRun, folder: Path) -> None:
    """A further run makes exactly the takes that this one has not."""
    made = work.progress.rendered
    assert made < 60
    assert len(load(folder)) == made
    rest = ToneBackend()
    again = sweep(rest, repeats=10).run(folder)
    assert (again.state, len(again.takes), len(rest.asked)) == ("done", 60, 60 - made)
    assert len(load(folder)) == 60


def test_a_process_that_is_killed_fails_what_is_missing(tmp_path: Path) -> None:
    with spawned() as pool:
        work = begun(tmp_path / "run", pool)
        os.kill(next(iter(pool._processes)), signal.SIGKILL)
        with pytest.raises(
            ExecutorError, match=r"(process of the executor was killed|executor accepts no work).* takes are stored"
        ):
            work.wait(60)
    assert (work.state, work.progress.done, work.progress.running) == ("failed", 60, 0)
    assert {type(outcome.error) for outcome in work.outcomes if outcome.take is None} == {ExecutorError}
    check_resumed(work, tmp_path / "run")


@pytest.mark.parametrize("kind", [spawned, ThreadPoolExecutor])
def test_an_executor_that_is_shut_down_fails_what_is_missing(tmp_path: Path, kind: Any) -> None:
    pool = kind(2)
    work = begun(tmp_path / "run", pool, ToneBackend(slowly(0.01)))
    pool.shutdown(cancel_futures=True)
    with pytest.raises(ExecutorError, match="the executor accepts no work"):
        work.wait(60)
    assert (work.state, work.progress.done) == ("failed", 60)
    check_resumed(work, tmp_path / "run")


def test_takes_that_somebody_else_broke_off_are_failures(tmp_path: Path) -> None:
    class Closing(ToneBackend):
        """Closes its streams in the middle, as closing a lab does."""

        def synthesize(self, call: Any) -> Any:
            stream = super().synthesize(call)
            if len(self.asked) > 20:
                stream.close()
            return stream

    work = sweep(Closing(), repeats=10).start(tmp_path / "run")
    assert work.wait(60)
    assert (work.state, work.progress.rendered, work.progress.failed) == ("done", 20, 40)
    check_resumed(work, tmp_path / "run")


def interrupted() -> ToneBackend:
    """Return a backend whose process gets Ctrl-C at the second note."""

    def step(number: int) -> None:
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    return ToneBackend(step)


def test_an_interrupt_of_the_processes_alone_is_a_failure_of_their_takes(tmp_path: Path) -> None:
    with spawned(1) as pool:
        work = sweep(ToneBackend(), factories={"lab": interrupted}).start(tmp_path / "run", executor=pool)
        assert work.wait(60)
    assert (work.state, work.progress.failed) == ("done", 6)
    assert all(" was interrupted" in str(outcome.error) for outcome in work.outcomes)


def other() -> ToneBackend:
    return ToneBackend(fingerprint="other-weights")


def test_a_process_with_other_weights_makes_no_take(tmp_path: Path) -> None:
    with spawned(1) as pool:
        work = sweep(ToneBackend(), factories={"lab": other}).start(tmp_path / "run", executor=pool)
        assert work.wait(60)
    assert work.progress.failed == 6
    assert all("fingerprint other-weights, the sweep's has tones-1" in str(outcome.error) for outcome in work.outcomes)


def test_takes_of_processes_carry_their_host_and_keep_it(tmp_path: Path) -> None:
    with spawned(1) as pool:
        made = sweep(ToneBackend(), factories={"lab": tones}).run(tmp_path / "run", executor=pool)
    here = os.uname().nodename
    assert {take.host for take in made.takes} == {here}
    assert {take.host for take in load(tmp_path / "run")} == {here}
    assert set(load(tmp_path / "run").frame()["host"]) == {here}
    assert {take.host for take in sweep(ToneBackend(), cache=Cache(tmp_path / "c")).run().takes} == {""}


_CTRL_C = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from tests.sweeps.clusters import tones
from tests.sweeps.test_sweep import sweep
from tests.tones import ToneBackend
if __name__ == "__main__":
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        try:
            sweep(ToneBackend(), repeats=100, factories={"lab": tones}).run(sys.argv[1], executor=pool)
        except KeyboardInterrupt:
            print("interrupted")
"""


def test_cancelled_future_takes_the_error_of_a_broken_pool() -> None:
    # As concurrent.futures.process sets it, in a thread that must not end by the answer of a cancelled future.
    future: Future[Any] = Future()
    _let_fail(future)
    future.cancel()
    future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
    assert future.cancelled()


def test_ctrl_c_reaches_the_caller_though_it_ends_the_processes_too(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(_CTRL_C)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, str(tmp_path / "main.py"), str(tmp_path / "run")]
    running = subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True, env=environment)
    takes = tmp_path / "run" / "takes"
    until(lambda: takes.is_dir() and len(list(takes.iterdir())) > 4, 60)
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate(timeout=60)[0].decode() == "interrupted\n"
    assert 4 < len(load(tmp_path / "run")) < 600
