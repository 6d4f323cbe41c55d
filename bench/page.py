"""Write docs/performance.md from the results in bench/results/; measure one of them anew.

    python bench/page.py                                            # write the page
    python bench/page.py --measure bench/speed.py --repeats 20      # run that command, keep its result, write the page
    python bench/page.py --all                                      # all of them in turn, for hours: make performance
    python bench/page.py --all --only speed,voice

A result is what a command of bench/ prints as its last line, with the command and the date. The words over a table are
the first paragraph of the command's own docstring. Other pages name single figures by their place in a result, as
`<!-- figure speed/peak_mib -->484 MiB<!-- / -->`: what stands between is written from it. A test fails when a page is not
what this would write.
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

Every figure here was printed by the command above it, on the machine that is named. `python bench/page.py` writes this
page from `bench/results/`; `python bench/page.py --measure bench/speed.py` measures one of them anew. Intervals are 95 %
intervals. The figures of the voice itself are in the [model card](../training/README.md).

What is dated before 2026-11-22 was measured with revision 7 of the engine. Revision 8 adds up attention in another order, so
that its samples are alike on more processors; it costs 17 µs more a layer and frame
([measured](decisions/07-the-same-samples.md)). Revisions 9 and 10 read more kinds of text, make MP3 as loud as WAV and let
speech that is cut fade; the 300 sentences measured here are read into the same phones as before. The voice is another since
2026-11-23, and has learned from five times as much since 2026-11-26: what has an earlier date and depends on how it sounds
tells of the one before. Revision 11 has another vocoder, which older weights are heard through too where they stand beside
it; revision 12 changes clones alone, revision 13 where long texts are cut, revision 14 how weights in 8 bits
are rounded, and how long the first sound of a sentence lasts at least. Speed was
measured before that last rule, and clones with revision 13.
Speed of 2026-11-24 and of days before cannot be compared, only what was measured in one run: that machine was 2.4 times
slower.
"""
_HELPERS = ("judges", "machine", "page", "stats", "systems", "teaching")
_DRAWN = ("inference", "picture", "samples")
"""These write into docs/ by themselves, and their figures are on no page."""
_APART = ("dual", "gpu", "other_voices", "same_samples")
"""The first two need a GPU; the other voices' own packages have environments of their own, which not everybody has; the
samples are of two checkouts."""
_KEEP = ("--jobs", "2", "--keep", "build/verdicts.jsonl")
_OPTIONS = {"inference": ("--write",), "voice": ("--full", *_KEEP), "syllables": _KEEP, "clone": ("--words",)}
SUITE: Mapping[str, Sequence[str]] = {
    name: (f"bench/{name}.py", *_OPTIONS.get(name, ()))
    for name in sorted({path.stem for path in (ROOT / "bench").glob("*.py")} - {*_HELPERS, *_APART})
}
"""What --all runs, one after the other, so that nothing else is measured with it: every command of bench/."""
_FIGURE = re.compile(r"(<!-- figure ([^ ]+) -->)(.*?)(<!-- / -->)")
# What stands over the table, and not in it.
_ABOVE = ("command", "date", "machine", "note", "title", "figure", "bench")
_UNITS = {"ms": "ms", "s": "s", "mib": "MiB", "db": "dB", "percent": "%"}


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page for results by their names."""
    parts = [HEAD]
    for name, result in sorted(results.items()):
        parts += [f"## {_title(name, result)}\n", *_above(result), *_tables(_figures(result))]
    return "\n".join(parts)


def measured(command: Sequence[str]) -> dict[str, Any]:
    """Run a command of bench/ and return its result, with the command and today's date. Ends when it fails."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    printed: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    today = datetime.now(UTC).date().isoformat()
    return {"command": " ".join(["python", *command]), "date": today, **printed}


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return all results of a folder by their names."""
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


def _machine(found: Mapping[str, Any]) -> str:
    told = [str(found.get("cpu", "machine not named")), f"{found.get('cores', '?')} cores"]
    told += [f"{name} {found[key]}" for key, name in (("python", "Python"), ("torch", "torch")) if found.get(key)]
    if found.get("load") is not None:
        told.append(f"load before it {found['load']}")
    return ", ".join(told)


def _figures(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in _ABOVE}


def _tables(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield one table of the plain figures, and one for each group that has columns of its own."""
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
    """Return the rows of what is a table: a list of objects, or an object of objects that are alike."""
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
    unit = next((f" {shown}" for key, shown in _UNITS.items() if name.endswith(f"_{key}") or f"_{key}:" in name), "")
    if isinstance(value, Mapping) and "low" in value:
        return f"{_number(value['value'])} ({_number(value['low'])} to {_number(value['high'])}){unit}"
    if isinstance(value, Mapping) and "median" in value:
        count = f", {value['repeats']} times" if "repeats" in value else ""
        return f"{_number(value['median'])}{unit} (95 % within {_number(value['p95'])}{unit}{count})"
    if isinstance(value, list):
        return ", ".join(_number(item) for item in value)
    return "" if value is None else f"{_number(value)}{unit}"


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _words(name: str) -> str:
    for key in _UNITS:
        name = name.removesuffix(f"_{key}").replace(f"_{key}:", ":")
    return name.replace("_", " ")


def pages() -> list[Path]:
    """Return the pages that people write, in which figures may stand."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with its single figures as the results have them; those without a result stay.

    Raises KeyError for a figure that its result does not have.
    """

    def written(found: re.Match[str]) -> str:
        name, *path = found[2].split("/")
        if name not in results:
            return found[0]
        value: Any = results[name]
        for key in path:
            value = value[key]
        return f"{found[1]}{_value(': '.join(path), value)}{found[4]}"

    return _FIGURE.sub(written, text)


def write() -> None:
    """Write the page, and the single figures on others."""
    results = read()
    PAGE.write_text(page(results), encoding="utf-8")
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := filled(text, results)) != text:
            path.write_text(new, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} results")


def keep(name: str, command: Sequence[str]) -> None:
    """Measure, and keep the result under a name."""
    RESULTS.mkdir(exist_ok=True)
    result = measured(command)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def every(names: Sequence[str]) -> int:
    """Measure and draw in turn, say how long each took, then run the examples of the documents; return how many failed."""
    begun, failed = time.monotonic(), []
    for name in names:
        started = time.monotonic()
        print(f"== {' '.join(SUITE[name])}", flush=True)
        try:
            if name in _DRAWN:
                measured(SUITE[name])
            else:
                keep(name, SUITE[name])
        except SystemExit as error:
            failed.append(str(error))
        write()
        print(f"== {name}: {time.monotonic() - started:.0f} s, {time.monotonic() - begun:.0f} s in all", flush=True)
    print("== what the examples of the documents print", flush=True)
    written = [str(path) for path in pages()]
    done = subprocess.run([sys.executable, "docs/make/blocks.py", "--write", *written], cwd=ROOT, check=False)
    failed += ["docs/make/blocks.py failed"] if done.returncode else []
    print("\n".join(failed) or f"all {len(names)} done", flush=True)
    return len(failed)


def main() -> int:
    """Write the page, after measuring what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--measure", nargs=argparse.REMAINDER, metavar="COMMAND", help="a file of bench/ and its options"
    )
    parser.add_argument("--all", action="store_true", help="measure and draw everything, in turn")
    parser.add_argument("--only", default=",".join(SUITE), help=f"with --all: of {', '.join(SUITE)}")
    options = parser.parse_args()
    if options.all:
        names = options.only.split(",")
        if unknown := sorted(set(names) - set(SUITE)):
            parser.error(f"there is no {', '.join(unknown)}")
        return min(1, every(names))
    if options.measure:
        keep(Path(options.measure[0]).stem, options.measure)
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
