"""Start of the embedded voice in new processes: CPU time, wall time and peak memory of first audio, a sentence, a notebook,
and `say`.

    python bench/start.py
    python bench/start.py --environment build/lab      # also measure the size of the environment of `make lab VENV=build/lab`
    python bench/start.py --backend kokoro: --backend piper:VOICE.onnx     # a sentence of other voices, in the same turns

Processes run one at a time, tasks in turn, after one run of each that is not counted; figures are medians and, of CPU time,
also the least. CPU time and memory are those that the operating system reports for the process, interpreter and imports
included; those of the notebook are of its kernel, from `import voicelab` to the end of the sentence. Other load on the
machine lengthens CPU time too, by a third between two runs of this command, and wall time several times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, report

SENTENCE = "The birch canoe slid on the smooth planks."
_CONNECT = f"import voicelab as vl; lab = vl.connect(device='cpu'); text = {SENTENCE!r}; "
_CELL = f"""
import os, time
began_s, cpu_s = time.perf_counter(), sum(os.times()[:2])
{_CONNECT}lab.speak(text, seed=1)
import resource
print(sum(os.times()[:2]) - cpu_s, time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
TASKS = {
    "first audio": [
        sys.executable,
        "-c",
        _CONNECT + "next(iter(lab.stream(text, seed=1, latency='low', format='pcm')))",
    ],
    "sentence": [sys.executable, "-c", _CONNECT + "lab.speak(text, seed=1)"],
    "say": [str(Path(sys.executable).with_name("voicelab")), "say", SENTENCE, "--seed", "1", "--device", "cpu", "-o"],
}
NOTEBOOK = "notebook"
GOALS = {
    "first audio: CPU, s, at most": 0.7,
    "say: CPU, s, at most": 1.0,
    f"{NOTEBOOK}: CPU, s, at most": 1.2,
    "sentence: peak memory, MiB, at most": 260,
}
_UNITS = 1024**2 if sys.platform == "darwin" else 1024
"""Units of the operating system's peak memory per MiB."""


def measured(command: list[str]) -> tuple[float, float, float]:
    """Run a command in a new process; return its CPU time and wall time in s, and its peak memory in MiB."""
    # Compiled modules are kept, as Python does by default: containers switch it off.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} must exit with status 0, got {process.returncode}")
    return usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / _UNITS


def measured_in_a_kernel() -> tuple[float, float, float]:
    """Run `_CELL` in a new kernel; return the same figures as `measured`."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    printed: list[str] = []
    try:
        client.execute_interactive(
            _CELL, output_hook=lambda message: printed.append(message["content"].get("text", ""))
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    cpu_s, wall_s, peak = map(float, "".join(printed).split())
    return cpu_s, wall_s, peak / _UNITS


def size_mb(folder: Path) -> int:
    """Sum the sizes of a folder's files in MB, without bytecode."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".pyc")
    return round(sum(path.stat().st_size for path in files) / 1e6)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--environment", type=Path, metavar="FOLDER", help="environment whose size is measured")
    parser.add_argument("--backend", action="append", default=[], help="address of another voice; may be repeated")
    options = parser.parse_args()
    runs, host = options.runs, machine()
    with tempfile.TemporaryDirectory() as folder:
        commands: dict[str, list[str] | None] = {
            **TASKS,
            "say": [*TASKS["say"], str(Path(folder) / "a.wav")],
            NOTEBOOK: None,
        }
        for address in options.backend:
            code = f"import voicelab as vl; vl.connect({address!r}).speak({SENTENCE!r})"
            commands[f"sentence, {address.partition(':')[0]}"] = [sys.executable, "-c", code]
        turns = [
            [measured_in_a_kernel() if command is None else measured(command) for command in commands.values()]
            for _ in range(runs + 1)
        ][1:]
    medians, minima = np.median(np.array(turns), axis=0), np.min(turns, axis=0)
    values = {
        f"{task}: {figure}": round(float(value), 3)
        for task, row in zip(commands, medians, strict=True)
        for figure, value in zip(("CPU, s", "wall time, s", "peak memory, MiB"), row, strict=True)
    }
    goals: list[dict[str, Any]] = [
        {"figure": name, "value": values[name.removesuffix(", at most")], "goal": goal} for name, goal in GOALS.items()
    ]
    for goal in goals:
        goal["met"] = goal["value"] <= goal["goal"]
    rows = [
        {"CPU s": row[0], "least CPU s": best[0], "wall time s": row[1], "peak memory MiB": row[2]}
        for row, best in zip(medians.round(3).tolist(), minima.round(3).tolist(), strict=True)
    ]
    sizes = {"weights_mb": size_mb(Path(__file__).resolve().parents[1] / "voicelab" / "engine" / "weights")}
    if options.environment:
        sizes["environment_mb"] = size_mb(options.environment)
    report(
        {
            "figure": "start of the embedded voice",
            "runs": runs,
            **sizes,
            "goals": goals,
            "processes": [{"task": task, **row} for task, row in zip(commands, rows, strict=True)],
            "machine": host,
        }
    )


if __name__ == "__main__":
    main()
