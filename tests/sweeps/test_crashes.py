"""Sweeps that are cut off: killed, cancelled, out of disk; and what is found and gone on with afterwards."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.sweeps.test_sweep import slowly, sweep
from tests.tones import ToneBackend
from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.clip import take_key
from voicelab.errors import RequestInvalid, StoreError
from voicelab.runs.cache import Cache
from voicelab.runs.run import Run, read_run
from voicelab.schema import TTSRequest
from voicelab.takes.collection import load

# In an interpreter of its own, which has no threads yet when it forks; a fork is quicker than an interpreter.
_KILL = """
import sys
from pathlib import Path
from tests.sweeps.test_crashes import kill_and_resume
kill_and_resume(Path(sys.argv[1]), *map(int, sys.argv[2:]))
"""


class DiaryBackend(ToneBackend):
    """Writes down every take that it begins, and whether that take was there already."""

    def __init__(self, cache: Cache, diary: Path) -> None:
        super().__init__(slowly(0.02))
        self.cache = cache
        self.diary = diary

    def synthesize(self, call: Call) -> SpeechStream:
        request = call.request
        keys = (take_key(call, "tones-1", repeat) for repeat in range(3))
        again = "again" if any(key in self.cache for key in keys) else "new"
        with self.diary.open("a") as file:
            file.write(f"{again} {request.temperature} {request.latency} {call.seed}\n")
        return super().synthesize(call)


def run_until_killed(cache: Cache, diary: Path, random: Random) -> bool:
    """Run a sweep in a process that is killed at a random point after its first take began; say whether it ended."""
    begun = diary.stat().st_size if diary.exists() else 0
    child = os.fork()
    if child == 0:
        status = 1
        try:
            sweep(DiaryBackend(cache, diary), repeats=3).run(cache.folder, concurrency=2)
            status = 0
        finally:
            os._exit(status)
    until = None
    while until is None or time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return True
        if until is None and diary.exists() and diary.stat().st_size > begun:
            until = time.monotonic() + random.uniform(0.0, 0.4)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def killed_and_resumed(folder: Path, random: Random) -> int:
    """Run a sweep to its end through kills at random points; return how many there were."""
    cache, diary = Cache(folder / "cache"), folder / "diary"
    kept: set[str] = set()
    kills = 0
    while not run_until_killed(cache, diary, random):
        kills += 1
        assert kills < 40, "what was kept is done again, for ever"
        now = {take.key for take in cache}
        assert kept <= now, "a take that was kept is gone"
        kept = now
    kept = {take.key for take in cache}
    assert {take.key for take in read_run(cache.folder).takes} == kept
    work = sweep(ToneBackend(), repeats=3)
    assert {work.key(job) for job in work.jobs()} == kept
    begun_takes = diary.read_text().splitlines()
    assert not [line for line in begun_takes if line.startswith("again")], "a take that was kept was done again"
    assert len(set(begun_takes)) == 18
    # Made again is only what was not kept yet when a kill came: two at a time.
    assert len(begun_takes) <= 18 + 2 * kills
    return kills


def kill_and_resume(folder: Path, seed: int, least: int) -> None:
    """Go through whole sweeps until there were so many kills."""
    random, kills, number = Random(seed), 0, 0
    while kills < least:
        (folder / str(number)).mkdir()
        kills += killed_and_resumed(folder / str(number), random)
        number += 1


@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=[pytest.mark.thorough, pytest.mark.timeout(900)])])
def test_killed_and_resumed(tmp_path: Path, kills: int) -> None:
    program = [sys.executable, "-c", _KILL, str(tmp_path), "1", str(kills)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr


def lines(run: Run) -> set[tuple[object, ...]]:
    return {(take.key, take.digest, *labels.items()) for take, labels in zip(run.takes, run.labels, strict=True)}


def test_the_run_of_a_sweep_that_was_cut_off_equals_that_of_one_that_was_not(tmp_path: Path) -> None:
    backend = ToneBackend(slowly(0.02))
    work = sweep(backend, repeats=3).start(tmp_path / "cut", concurrency=2)
    while work.progress.rendered < 3:
        time.sleep(0.01)
    work.cancel()
    assert work.wait(5)
    kept = read_run(tmp_path / "cut")
    assert 3 <= len(kept.takes) < 18
    rest = ToneBackend()
    assert sweep(rest, repeats=3).run(tmp_path / "cut").state == "done"
    assert len(rest.asked) == 18 - len(kept.takes)
    sweep(ToneBackend(), repeats=3).run(tmp_path / "whole")
    cut, whole = read_run(tmp_path / "cut"), read_run(tmp_path / "whole")
    assert lines(cut) == lines(whole)
    assert len(cut.takes) == 18
    assert set(load(tmp_path / "whole").frame()["temperature"]) == {0.0, 0.5, 1.0}
    assert whole.about["sweep"]["axes"] == {"temperature": ["0", "0.5", "1"], "latency": ["low", "normal"]}


def test_failures_are_written_down_and_tried_again(tmp_path: Path) -> None:
    def fail(number: int) -> None:
        if number == 4:
            raise RequestInvalid.of("text", "five notes are too many")

    axes: dict[str, object] = {"text": ["Oh.", "Hello."]}
    sweep(ToneBackend(fail), axes).run(tmp_path / "m")
    (failed,) = read_run(tmp_path / "m").failures
    assert failed.call.request.text == "Hello."
    assert failed.failure.fields[0].field == "text"
    made = sweep(ToneBackend(), axes).run(tmp_path / "m")
    assert (made.failures, read_run(tmp_path / "m").failures) == ((), ())


def test_a_run_on_a_full_disk_keeps_what_is_written_and_goes_on(tmp_path: Path) -> None:
    short, limits = Call(TTSRequest(text="Oh.", format="wav")), resource.getrlimit(resource.RLIMIT_FSIZE)
    # Each take fits, the lines of all of them do not. Python ignores SIGXFSZ.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        work = sweep(ToneBackend(), repeats=8, base=short).start(tmp_path / "run")
        with pytest.raises(StoreError, match="no space left on the disk"):
            work.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert work.state == "failed"
    kept = read_run(tmp_path / "run")
    assert 5 < len(kept.takes) < 48
    assert kept.notes == ()
    rest = ToneBackend()
    assert sweep(rest, repeats=8, base=short).run(tmp_path / "run").state == "done"
    # A take or two more may have been kept than were written down.
    assert 48 - len(kept.takes) - 8 <= len(rest.asked) <= 48 - len(kept.takes)
    assert len(read_run(tmp_path / "run").takes) == 48


_FORKED = """
import os, signal, sys, time
from tests.tones import ToneBackend
from voicelab.runs.run import Journal
tones = ToneBackend()
journal = Journal(sys.argv[1], [tones.capabilities])
worker = os.fork()
if worker == 0:
    time.sleep(60)
    os._exit(0)
try:
    journal.close()
    Journal(sys.argv[1], [tones.capabilities]).close()
finally:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_pool_that_was_forked_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _FORKED, str(tmp_path / "run")], check=True, timeout=120)
