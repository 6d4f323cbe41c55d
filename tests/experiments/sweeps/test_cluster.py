"""Sweeps on a real Dask cluster of two worker processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.sweeps.test_sweep import sweep
from tests.tones import ToneBackend, until
from voicelab.experiments.runs.cache import Cache


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


def test_a_worker_that_is_lost_in_the_middle(client: Any, tmp_path: Path) -> None:
    pids = list(client.run(os.getpid).values())
    work = sweep(ToneBackend(), repeats=10, factories={"lab": SlowTones}, cache=Cache(tmp_path)).start(executor=client)
    killer = threading.Timer(0.0, os.kill, (pids[0], signal.SIGKILL))
    until(lambda: work.progress.rendered >= 5, 60)
    killer.start()
    assert work.wait(60)
    assert (work.state, work.progress.rendered, work.progress.failed) == ("done", 60, 0)
    here = sweep(ToneBackend(), repeats=10, cache=Cache(tmp_path / "here")).run()
    there = sweep(ToneBackend(), repeats=10).result(work)
    assert [take.digest for take in there.takes] == [take.digest for take in here.takes]
