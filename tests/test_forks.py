"""Forked processes, multiprocessing's default on Linux up to Python 3.13: each use works, or is an error at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import serving

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def lines(kind: str, home: Path, **environment: str) -> list[str]:
    environment = {**os.environ, "VOICELAB_HOME": str(home), "OMP_NUM_THREADS": "2", **environment}
    program = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.forked", kind]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def refused(line: str) -> bool:
    start, what = "EngineError: ", "does not work in a fork of it: call vl.connect() in the child"
    return line.startswith(start) and what in line and "get_context('spawn')" in line and "executor=" in line


def test_a_lab_that_has_not_spoken_speaks_in_the_child(tmp_path: Path) -> None:
    child, parent = lines("unused", tmp_path)
    assert child == parent
    assert child.startswith("spoke ")


def test_a_lab_that_has_spoken_is_refused_in_the_child_at_once(tmp_path: Path) -> None:
    before, child, after = lines("used", tmp_path)
    assert refused(child)
    assert before == after


def test_a_lab_that_is_opened_in_the_child_speaks_there(tmp_path: Path) -> None:
    child, parent = lines("anew", tmp_path)
    assert child == f"spoke cloned, {parent}"


def test_a_fork_while_another_thread_speaks(tmp_path: Path) -> None:
    *answers, idle = lines("speaking", tmp_path)
    used, anew = answers[::2], answers[1::2]
    assert len(used) == len(anew) == 5
    assert all(map(refused, used))
    message = "EngineError: this process was forked while another thread of its parent synthesized"
    # Between two calls of the thread nothing is in progress.
    assert all(line.startswith((message, "spoke ")) for line in anew)
    assert anew[0].startswith(message)
    assert idle.startswith("spoke ")


def test_a_stream_of_the_parent_is_refused_and_goes_on_there(tmp_path: Path) -> None:
    child, parent = lines("stream", tmp_path)
    assert refused(child)
    assert parent == "parent: True"


def test_a_pool_that_forks_is_refused(tmp_path: Path) -> None:
    (answer,) = lines("pool", tmp_path)
    assert refused(answer)


def test_a_sweep_on_processes_that_are_forked_is_made(tmp_path: Path) -> None:
    assert lines("sweep", tmp_path) == ["ended: True, 2 of 2 takes, done"]


def test_waiting_in_the_child_for_a_sweep_of_the_parent_is_an_error_until_it_has_ended(tmp_path: Path) -> None:
    child, parent, ended = lines("sweep_of_parent", tmp_path)
    assert child.startswith("ExecutorError: the sweep runs in the process that started it, not in a fork of it")
    assert (parent, ended) == ("ended: True", "True")


def test_a_cache_is_read_in_the_child_and_refused_what_it_lacks(tmp_path: Path) -> None:
    kept, missing = lines("cache", tmp_path)
    assert kept == "True"
    assert refused(missing)


def test_stored_voices_are_read_and_made_in_the_child(tmp_path: Path) -> None:
    assert lines("store", tmp_path) == ["Ada", "True", "Ben", "['Ada', 'Ben']"]


def test_parent_and_child_call_a_service_by_connections_of_their_own(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        answers = lines("service", tmp_path, SERVICE=service.url, VOICELAB_API_KEY=service.secret)
    assert answers[:-1] == ["right: True", "right: True"]
    assert answers[-1] == "parent: True, right: True"
