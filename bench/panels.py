"""Speed of the panels in a browser: time to first sound, switching in a comparison, a grid of a hundred takes.

    python bench/panels.py
    python bench/panels.py --repeats 5

JupyterLab with a real kernel and Chromium without a GPU, measured by the tests in tests/browser. ``first_sound_ms`` is the
time from the engine's first bytes to the first sample at the output of the page (goal: 100 ms), ``click_to_sound_ms`` from
the click on Speak (goal: 120 ms), ``longest_task_while_streaming_ms`` the longest task of the page meanwhile (goal: 50 ms;
shorter ones count as 0). ``first_paint_…_ms`` is the time from running a cell to its panel (goal: 300 ms), ``switching_ms``
from a key press to the complete switch to the other clip, in the samples of a recording node (goal: 20 ms, without a gap),
and ``grid_of_100_ms`` from running a cell to a hundred takes with the first players drawn (goal: 1,000 ms). While scrolling a
thousand takes, the frame time is ``frame_while_1000_scroll_as_facets_ms`` or ``as_list`` (goal: 16.7 ms), with
``slowest_of_20_frames_as_…_ms`` and voicelab's share ``our_part_of_a_frame_as_…_ms``. Each figure is the median over all
repeats, followed by the minimum, which other processes on the machine affect least, and the maximum.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import machine, report

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/browser/test_first_sound.py",
    "tests/browser/test_compare.py::test_another_clip_is_heard_within_20_ms_without_a_gap_at_the_same_word",
    "tests/browser/test_sweep.py::test_a_hundred_cells_open_at_once",
    "tests/browser/test_sweep.py::test_a_thousand_takes_scroll",
)
VARIABLE = "VOICELAB_FIGURES"
"""Environment variable with the path for the figures of the tests (tests/browser/figures.py)."""


def measured(tests: tuple[str, ...]) -> dict[str, list[float]]:
    """Run tests and return their figures by name. Exits if a test fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, VARIABLE: str(path)}
        process = subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
        if process.returncode or not path.exists():
            raise SystemExit("the browser tests failed, or Chromium is not installed")
        values_by_name: dict[str, list[float]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            figure = json.loads(line)
            values_by_name.setdefault(figure["name"], []).append(figure["value"])
        return values_by_name


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    host = machine()
    values_by_name: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for name, values in measured(TESTS).items():
            values_by_name.setdefault(name, []).extend(values)
    figures: dict[str, float] = {}
    for name, values in values_by_name.items():
        figures[name] = round(statistics.median(values), 1)
        if len(values) > 1:
            figures[f"smallest_{name}"], figures[f"largest_{name}"] = round(min(values), 1), round(max(values), 1)
    report({"bench": "panels", "repeats": options.repeats, **figures, "machine": host})


if __name__ == "__main__":
    main()
