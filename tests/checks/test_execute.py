from __future__ import annotations

import subprocess
import sys

from voicelab.checks.execution import MemoryPeak

# Says that it holds the memory, and lets it go when it is told to.
HOLD = "import sys; held = bytearray(b'x') * (80 * 2**20); print('ready', flush=True); sys.stdin.readline(); del held; "
CHILD = HOLD + "print('gone', flush=True); sys.stdin.readline()"
PARENT = (
    "import subprocess, sys; held = bytearray(b'x') * (80 * 2**20); "
    f"subprocess.run([sys.executable, '-c', {HOLD!r}], check=True)"
)


def _peak(code: str, *, lets_go: bool) -> int:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        peak = MemoryPeak(process.pid)
        assert process.stdout.readline() == "ready\n"
        if lets_go:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "gone\n"
        held = peak.stop()
        process.communicate("\n", timeout=60)
    return held


def test_the_peak_stays_after_the_memory_was_let_go() -> None:
    assert 80 * 2**20 < _peak(CHILD, lets_go=True) < 150 * 2**20


def test_what_a_process_started_counts() -> None:
    assert 160 * 2**20 < _peak(PARENT, lets_go=False) < 280 * 2**20


def test_a_process_that_ended_before_the_first_interval_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        peak = MemoryPeak(process.pid)
        process.kill()
        process.wait()
    assert peak.stop() > 80 * 2**20
