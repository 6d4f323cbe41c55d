"""CPU time and duration of a sweep in this process, and on two Dask workers with one thread each.

``python bench/cluster.py [--takes 48]`` prints a table and, as the last line, JSON. Opening the backends is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from typing import Any

import voicelab as vl
from voicelab.runs.cache import Cache

TEXTS = ["The birch canoe slid on the smooth planks.", "Glue the sheet to the dark blue background."]

# Dask's defaults return every freed array to the system, and sample the stacks of all threads 100 times a second.
SETTINGS = {
    "distributed.nanny.pre-spawn-environ": {
        "MALLOC_TRIM_THRESHOLD_": 2**25,
        "MALLOC_MMAP_THRESHOLD_": 2**25,
        "OMP_NUM_THREADS": 1,
    },
    "distributed.worker.profile.enabled": False,
}


def cpu_s() -> float:
    """Return the CPU time of this process in s."""
    times = os.times()
    return times.user + times.system


def measured(lab: Any, repeats: int, client: Any = None) -> dict[str, float]:
    """Run a sweep; return its duration and the CPU time of the processes that synthesize, in s."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = lab.sweep(TEXTS, temperature=[0.2, 0.6], repeats=repeats, cache=Cache(folder))
        before, start = _total(client), time.monotonic()
        table = sweep.run(executor=client)
    result = {"seconds": time.monotonic() - start, "cpu_s": _total(client) - before}
    if table.state != "done":
        raise SystemExit(f"the sweep must be done, got {table.state}: {table.notes}")
    return result


def _total(client: Any) -> float:
    return cpu_s() if client is None else sum(client.run(cpu_s).values())


def main() -> None:
    """Measure and print."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set(SETTINGS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--takes", type=int, default=48)
    repeats = parser.parse_args().takes // 4
    with vl.connect() as lab:
        measured(lab, 1)
        alone = measured(lab, repeats)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,  # type: ignore[no-untyped-call]
            Client(cluster) as client,  # type: ignore[no-untyped-call]
        ):
            measured(lab, 8, client)  # opens the backends of both
            workers = measured(lab, repeats, client)
    for name, result in (("this process", alone), ("two workers", workers)):
        print(f"{name:14} {result['seconds']:6.1f} s, CPU {result['cpu_s']:6.1f} s")
    print(json.dumps({"alone": alone, "workers": workers, "cpu_ratio": workers["cpu_s"] / alone["cpu_s"]}))


if __name__ == "__main__":
    main()
