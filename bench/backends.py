"""Overhead of calls to own models: the time that voicelab adds to a function, a worker process and a command that return
10 ms of audio, and the time to resume an evaluation whose rows are finished.

    python bench/backends.py
    python bench/backends.py --calls 20 --rows 100

A call is the complete `lab.speak`. The command is `cat`: its overhead includes the start of a process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, report

import voicelab as vl

RATE = 24_000
BLOCK = np.full(RATE // 100, 0.1, np.float32)


def model(text: str) -> tuple[Any, int]:  # noqa: ARG001 - the first parameter is the text
    """Return 10 ms of audio."""
    return BLOCK, RATE


def milliseconds(lab: vl.Lab, calls: int) -> dict[str, float]:
    """Return the median and the 95 % quantile of the duration of a call."""
    times = []
    for _ in range(calls):
        begun = time.perf_counter()
        lab.speak("Hello.")
        times.append((time.perf_counter() - begun) * 1000)
    return {"median_ms": round(statistics.median(times), 3), "p95_ms": round(statistics.quantiles(times, n=20)[-1], 3)}


def resumed(folder: Path, rows: int) -> float:
    """Evaluate rows, and return the seconds in which a second evaluation resumes."""
    items = [{"text": f"Text {number}."} for number in range(rows)]
    options: Mapping[str, Any] = {
        "folder": folder / "run",
        "metrics": ["duration"],
        "repeats": 1,
        "ours": vl.connect(model),
    }
    vl.evaluate(items, **options)
    begun = time.perf_counter()
    vl.evaluate(items, **options)
    return round(time.perf_counter() - begun, 2)


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "script.py"
        script.write_text(f"def tts(text):\n    return [0.1] * {BLOCK.size}, {RATE}\n")
        path = vl.Clip(BLOCK, RATE).save(folder / "a.wav")
        figures: dict[str, Any] = {}
        for kind, backend in (
            ("function", model),
            ("worker", f"worker:{sys.executable} {script}"),
            ("command", f"command:cat {path}"),
        ):
            with vl.connect(backend) as lab:
                milliseconds(lab, 5)
                figures[kind] = milliseconds(lab, options.calls)
        resume = {"rows": options.rows, "resume_s": resumed(folder, options.rows)}
    report({"title": "Own models as backends", "machine": machine(), "overhead": figures, "evaluation": resume})


if __name__ == "__main__":
    main()
