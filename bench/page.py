"""Generate docs/performance.md from the results in bench/results/, and rerun benchmarks.

    python bench/page.py                                            # write the page
    python bench/page.py --measure bench/speed.py --repeats 20      # run that benchmark, store its result, write the page
    python bench/page.py --all                                      # run all benchmarks, for hours: make performance
    python bench/page.py --all --only speed,voice

A result is the last line that a benchmark prints, with the command and the date. The text above a table is the first
paragraph of the benchmark's docstring. Other pages refer to single figures by their path in a result, as
`<!-- figure speed/peak_mib -->484 MiB<!-- / -->`; the text between the comments is generated. A test fails if a page is out
of date.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
HEAD = """# Performance

The command above a table printed its figures, on the machine named next to the command. `python bench/page.py` generates this
page from `bench/results/`, and `python bench/page.py --measure bench/speed.py` repeats a measurement. Intervals are 95 %
intervals. The [model card](../training/README.md) has the figures of the voice itself.

Each result states its date, because not all results come from the same version:

- Results before 2026-11-22 were measured with engine revision 7, which takes 17 µs per layer and frame less than today's
  revision ([reason](decisions/07-the-same-samples.md)).
- Results before 2026-11-26 that depend on the sound of the voice were measured with earlier weights.
- Cloned voices were measured with revision 13.
- In the section on the speed of the embedded voice, the other checkout is the last revision that used torch.
- Speed and memory before 2026-11-27 are those of the voice in torch; it now runs on NumPy.

Compare speeds only within one run: the machine was 2.4 times slower on 2026-11-24 than on other days.
"""
_HELPER_MODULES = ("cases", "judges", "machine", "page", "stats", "systems", "teaching")
_WITHOUT_RESULT = ("inference", "picture", "samples")
"""Benchmarks that write into docs/ themselves and have no result on the page."""
_EXCLUDED = ("dual", "gpu", "other_voices", "same_samples")
"""Benchmarks that need a GPU, environments of other packages, or two checkouts."""
_KEEP = ("--jobs", "2", "--keep", "build/verdicts.jsonl")
_OPTIONS = {"inference": ("--write",), "voice": ("--full", *_KEEP), "syllables": _KEEP, "clone": ("--words",)}
SUITE: Mapping[str, Sequence[str]] = {
    name: (f"bench/{name}.py", *_OPTIONS.get(name, ()))
    for name in sorted({path.stem for path in (ROOT / "bench").glob("*.py")} - {*_HELPER_MODULES, *_EXCLUDED})
}
"""Benchmarks of --all, which run sequentially."""
_FIGURE = re.compile(r"(<!-- figure ([^ ]+) -->)(.*?)(<!-- / -->)")
# Keys printed above the table.
_ABOVE = ("command", "date", "machine", "note", "title", "figure", "bench")
_ENDS = {"smallest": " (minimum)", "largest": " (maximum)"}
_LABELS = {
    "judges": "evaluators",
    "whisper": "WER or SER (Whisper base)",
    "distillmos": "predicted MOS (DistillMOS)",
    "behind": "teacher minus voice",
    "pocketsphinx": "WER (pocketsphinx)",
    "likeness": "speaker similarity",
    "likeness others": "similarity to others",
    "nearest": "top-1",
    "first": "top-1",
    "in five": "top-5",
    "same voice first": "same voice top-1",
    "ran away": "run-on",
    "lost words": "skipped words",
    "fell silent": "silent",
    "right": "correct",
    "right with pitch": "correct where F0 is defined",
    "without pitch": "without F0",
    "heard as": "classified as",
    "refused": "rejected",
    "spoken": "synthesized",
    "over old": "relative to the other checkout",
    "old": "other checkout",
    "took": "duration of the measurement",
    "ms a text": "time per text (ms)",
    "at each": "value at each level",
    "takes each": "takes per setting",
    "sentences each": "sentences per speaker",
    "f0 error semitones": "F0 error (semitones)",
    "f0 error others": "F0 error of other speakers (semitones)",
    "spectrum db others": "spectrum of other speakers (dB)",
    "requests a second": "requests per second",
    "refused p50": "time to rejection, p50",
    "refused p95": "time to rejection, p95",
    "refused last": "time to the last rejection",
    "first audio p50": "time to first audio, p50",
    "first audio last": "time to first audio, maximum",
    "here": "voicelab",
    "first audio low": "time to first audio, latency low",
    "first audio balanced": "time to first audio, latency balanced",
    "first audio normal": "time to first audio, latency normal",
    "8 streams against one": "throughput of 8 streams relative to one",
    "model load": "time to load the model",
    "of 1000 takes failed": "failures in 1,000 takes",
    "growth per 1000": "memory growth per 1,000 requests",
    "first sound": "delay from the first bytes of the engine to the first sound",
    "click to sound": "delay from the click on Speak to the first sound",
    "longest task while streaming": "longest task of the page while audio arrives, 0 below 50 ms",
    "first paint compact": "delay from running a cell to its compact panel",
    "first paint explore": "delay from running a cell to its exploration panel",
    "first paint sweep": "delay from running a cell to its sweep panel",
    "first paint voices": "delay from running a cell to its voice panel",
    "switching": "delay from a key press to the other clip",
    "grid of 100": "time to draw a grid of 100 takes",
    "frame while 1000 scroll as facets": "frame time while 1,000 takes scroll, facets",
    "frame while 1000 scroll as list": "frame time while 1,000 takes scroll, list",
    "slowest of 20 frames as facets": "slowest of 20 frames, facets",
    "slowest of 20 frames as list": "slowest of 20 frames, list",
    "our part of a frame as facets": "frame time of voicelab's scripts, facets",
    "our part of a frame as list": "frame time of voicelab's scripts, list",
}
"""Labels of figures whose key in the results is not a term."""
_GOAL = re.compile(r"(.*?)(?:, (s|MiB))?, (at most|at least)")
"""Name of a goal: figure, unit, and kind of limit."""
_RATES = {"whisper", "pocketsphinx", "first", "in_five", "same_voice_first", "nearest", "right", "right_with_pitch"}
"""Figures printed in percent."""
_UNITS = {"mb": "MB", "ms": "ms", "s": "s", "mib": "MiB", "db": "dB", "percent": "%"}


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the page of results by name."""
    parts = [HEAD]
    for name, result in sorted(results.items()):
        parts += [f"## {_title(name, result)}\n", *_above(result), *_tables(_figures(result))]
    return "\n".join(parts)


def measured(command: Sequence[str]) -> dict[str, Any]:
    """Run a benchmark and return its result with command and date. Exits if it fails."""
    process = subprocess.run([sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    printed: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    today = datetime.now(UTC).date().isoformat()
    return {"command": " ".join(["python", *command]), "date": today, **printed}


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Load all results of a folder by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def _title(name: str, result: Mapping[str, Any]) -> str:
    words = str(result.get("title") or result.get("figure") or name.replace("_", " "))
    return words[0].upper() + words[1:]


def _above(result: Mapping[str, Any]) -> Iterator[str]:
    command = str(result.get("command", ""))
    script = next((ROOT / word for word in command.split() if word.endswith(".py")), None)
    if script is not None and script.is_file():
        doc = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        yield " ".join(doc.partition("\n\n")[0].split()) + "\n"
    if result.get("note"):
        yield f"{result['note']}\n"
    yield f"`{command}`, {result.get('date', '')}; {_machine(result.get('machine', {}))}\n"


def _machine(details: Mapping[str, Any]) -> str:
    descriptions = [str(details.get("cpu", "machine not named")), f"{details.get('cores', '?')} cores"]
    descriptions += [
        f"{name} {details[key]}" for key, name in (("python", "Python"), ("torch", "torch")) if details.get(key)
    ]
    if details.get("load") is not None:
        descriptions.append(f"system load {details['load']}")
    return ", ".join(descriptions)


def _figures(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in _ABOVE}


def _tables(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield one table of the scalar figures, and one per group with columns."""
    plain = {name: value for name, value in _flat(figures) if not _rows(value)}
    if plain:
        yield "| figure | value |\n|---|---|"
        yield "\n".join(f"| {_words(name)} | {_value(name, value)} |" for name, value in plain.items()) + "\n"
    for name, value in _flat(figures):
        if rows := _rows(value):
            columns = list(dict.fromkeys(column for row in rows.values() for column in row))
            numbered = not isinstance(value, Mapping)
            head = ([] if numbered else [_words(name)]) + [_words(column) for column in columns]
            yield "| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|"
            for label, row in rows.items():
                cells = ([] if numbered else [str(label)]) + [_value(column, row.get(column)) for column in columns]
                yield "| " + " | ".join(cells) + " |"
            yield ""


def _flat(figures: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in figures.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and not _estimate(value) and not _rows(value):
            yield from _flat(value, f"{path}: ")
        else:
            yield path, value


def _rows(value: Any) -> dict[Any, Mapping[str, Any]]:
    """Return the rows of a table: a list of objects, or an object of objects with equal keys."""
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        return {number: dict(_flat(row)) for number, row in enumerate(value)}
    if isinstance(value, Mapping) and len(value) > 1 and not _estimate(value):
        inner = list(value.values())
        if all(isinstance(row, Mapping) and not _estimate(row) and set(row) == set(inner[0]) for row in inner):
            return {label: dict(_flat(row)) for label, row in value.items()}
    return {}


def _estimate(value: Mapping[str, Any]) -> bool:
    return {"value", "low", "high"} <= set(value) or {"median", "p95"} <= set(value)


def _value(name: str, value: Any) -> str:
    if value is not None and name.rpartition(": ")[2] in _RATES:
        return _percent(value)
    if name == "figure" and (goal := _GOAL.fullmatch(str(value))):
        return f"{_words(goal[1])} ({', '.join(filter(None, goal.group(2, 3)))})"
    unit = next((f" {symbol}" for key, symbol in _UNITS.items() if name.endswith(f"_{key}") or f"_{key}:" in name), "")
    if isinstance(value, Mapping) and "low" in value:
        return f"{_number(value['value'])} ({_number(value['low'])} to {_number(value['high'])}){unit}"
    if isinstance(value, Mapping) and "median" in value:
        count = f", {value['repeats']} times" if "repeats" in value else ""
        return f"{_number(value['median'])}{unit} (95 % within {_number(value['p95'])}{unit}{count})"
    if isinstance(value, list):
        return ", ".join(_number(item) for item in value)
    return "" if value is None else f"{_number(value)}{unit}"


def _percent(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{100 * value['value']:.1f} % ({100 * value['low']:.1f} to {100 * value['high']:.1f})"
    return f"{100 * value:.0f} %"


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _words(name: str) -> str:
    for key in _UNITS:
        name = name.removesuffix(f"_{key}").replace(f"_{key}:", ":")
    words = name.replace("_", " ")
    head, separator, last = words.rpartition(": ")
    kind, _, base = last.partition(" ")
    if kind not in _ENDS:
        kind, base = "", last
    head = ": ".join(_LABELS.get(word, word) for word in head.split(": "))
    return f"{head}{separator}{_LABELS.get(base, base)}{_ENDS.get(kind, '')}"


def pages() -> list[Path]:
    """Return the hand-written pages that may contain figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Fill in the single figures of a page; those without a result are unchanged.

    Raises KeyError if a result lacks a figure.
    """

    def replace(match: re.Match[str]) -> str:
        name, *path = match[2].split("/")
        if name not in results:
            return match[0]
        value: Any = results[name]
        for key in path:
            value = value[key]
        return f"{match[1]}{_value(': '.join(path), value)}{match[4]}"

    return _FIGURE.sub(replace, text)


def write() -> None:
    """Write the page, and the single figures on other pages."""
    results = read()
    PAGE.write_text(page(results), encoding="utf-8")
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := filled(text, results)) != text:
            path.write_text(new, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} results")


def keep(name: str, command: Sequence[str]) -> None:
    """Run a benchmark and store its result by name."""
    RESULTS.mkdir(exist_ok=True)
    result = measured(command)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def every(names: Sequence[str]) -> int:
    """Run benchmarks sequentially, then the examples of the documentation; return the number of failures."""
    begun, failed = time.monotonic(), []
    for name in names:
        started = time.monotonic()
        print(f"== {' '.join(SUITE[name])}", flush=True)
        try:
            if name in _WITHOUT_RESULT:
                measured(SUITE[name])
            else:
                keep(name, SUITE[name])
        except SystemExit as error:
            failed.append(str(error))
        write()
        print(f"== {name}: {time.monotonic() - started:.0f} s, {time.monotonic() - begun:.0f} s in all", flush=True)
    print("== examples of the documentation", flush=True)
    page_paths = [str(path) for path in pages()]
    process = subprocess.run([sys.executable, "docs/make/blocks.py", "--write", *page_paths], cwd=ROOT, check=False)
    failed += ["docs/make/blocks.py failed"] if process.returncode else []
    print("\n".join(failed) or f"all {len(names)} done", flush=True)
    return len(failed)


def main() -> int:
    """Write the page, after the selected benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--measure", nargs=argparse.REMAINDER, metavar="COMMAND", help="file in bench/ with its options"
    )
    parser.add_argument("--all", action="store_true", help="run all benchmarks sequentially")
    parser.add_argument("--only", default=",".join(SUITE), help=f"with --all, comma-separated: {', '.join(SUITE)}")
    options = parser.parse_args()
    if options.all:
        names = options.only.split(",")
        if unknown := sorted(set(names) - set(SUITE)):
            parser.error(f"unknown benchmarks: {', '.join(unknown)}")
        return min(1, every(names))
    if options.measure:
        keep(Path(options.measure[0]).stem, options.measure)
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
