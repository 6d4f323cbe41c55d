"""How fast the panels are in a browser: the first sound, switching in a comparison, a grid of a hundred takes.

    python bench/panels.py
    python bench/panels.py --repeats 5

JupyterLab with a real kernel, and Chromium without a GPU, by the tests in tests/browser, which measure on their way.
``first_sound_ms`` is from the moment when the embedded voice's first bytes leave the engine to the first sample at the
page's output (goal: 100 ms), ``click_to_sound_ms`` from the click on Speak (goal: 150 ms); ``switching_ms`` from a key
to the output of the other clip alone, in the samples that a recording node got (goal: 20 ms, without a gap);
``grid_of_100_ms`` from running a cell to a hundred takes with their first players drawn (goal: 2,000 ms). While a
thousand takes scroll, a frame lasts ``frame_while_1000_scroll_as_facets_ms``, or ``as_list`` (goal: 16.7 ms), the
slowest of twenty ``slowest_of_20_frames_as_…_ms``, and ``our_part_of_a_frame_as_…_ms`` of it is ours. Each is the
median of all repeats, with the largest beside it.
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
"""What the tests are told by where to write what they measure (tests/browser/figures.py)."""


def measured(tests: tuple[str, ...]) -> dict[str, list[float]]:
    """Run tests and return the figures they measured, by name. Ends when one fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, VARIABLE: str(path)}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
        if done.returncode or not path.exists():
            raise SystemExit("the tests of the panels failed, or there is no Chromium here")
        found: dict[str, list[float]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            figure = json.loads(line)
            found.setdefault(figure["name"], []).append(figure["value"])
        return found


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    where = machine()
    found: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for name, values in measured(TESTS).items():
            found.setdefault(name, []).extend(values)
    figures: dict[str, float] = {}
    for name, values in found.items():
        figures[name] = round(statistics.median(values), 1)
        figures[f"largest_{name}"] = round(max(values), 1)
    report({"bench": "panels", "repeats": options.repeats, **figures, "machine": where})


if __name__ == "__main__":
    main()
