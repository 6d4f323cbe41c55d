"""Export to webMUSHRA, and import of its configurations and results.

Formats of webMUSHRA 1.4 (doc/experimenter.md and service/write.php of its repository): YAML pages of type mushra,
paired_comparison (ABX, with X as the reference) and likert_single_stimulus; CSV with a header. AB and CMOS, which
webMUSHRA does not support, become likert_single_stimulus pages: one sound with both clips, half a second apart, as in
ITU-T P.800 annex E. All files of a page must have the same sample rate and length, so clips are resampled and
zero-padded. webMUSHRA's parser (yaml.js) reads a nested list as text unless the dash is alone on a line, so this module
writes the YAML itself.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from voicelab.clip import Clip
from voicelab.errors import ArgumentError, StoreError
from voicelab.listening.design import ANCHORS, REFERENCE, SCALES, Kind, ListeningTest, blind_wav
from voicelab.stats.estimate import one_of
from voicelab.storage import write_atomic
from voicelab.tables import read_cells, read_text

if TYPE_CHECKING:
    import pandas as pd

_TYPES: Final[Mapping[Kind, str]] = {
    "MUSHRA": "mushra",
    "ABX": "paired_comparison",
    "MOS": "likert_single_stimulus",
    "AB": "likert_single_stimulus",
    "CMOS": "likert_single_stimulus",
}
# Points of each scale: a mapping from values in the results to labels.
_POINTS: Final[Mapping[Kind, Mapping[str, str]]] = {
    "MOS": {"1": "Bad", "2": "Poor", "3": "Fair", "4": "Good", "5": "Excellent"},
    "AB": {"A": "The first", "B": "The second"},
    "CMOS": {
        "-3": "Much worse", "-2": "Worse", "-1": "Slightly worse", "0": "About the same",
        "1": "Slightly better", "2": "Better", "3": "Much better",
    },
}  # fmt: skip
_GAP_S: Final = 0.5
_SEPARATOR: Final = " vs "
# Pages of type mushra reject longer sounds unless strict is false.
_MAX_STRICT_S: Final = 12.0
# Values of unanswered questions.
_UNANSWERED: Final = ("unknown", "undecided", "NA")
# A line whose unquoted value contains a colon. This is invalid YAML, but webMUSHRA accepts it and its example has it.
_UNQUOTED: Final = re.compile(r"""^(\s*(?:- +)?\w+:) +([^\s'"|>&*!\[{#].*: .*)$""", re.MULTILINE)


def export_webmushra(test: ListeningTest, folder: str | Path, *, rate: int = 48_000, root: str = "") -> Path:
    """Write the test for webMUSHRA: ``<name>.yaml`` and a folder of WAV files; return the path of the YAML.

    ``root`` is the path of the files relative to webMUSHRA's folder, such as ``"configs/resources/mytest"``. Names, sizes
    and digests of the files do not reveal the systems, but the configuration, which the pages load, reveals them. The order
    of pages is random. The X of ABX, which is the page's reference, alternates between the systems of a pair, and so does
    the first system in AB and CMOS. Training trials are not exported, because webMUSHRA would store their responses. Raises
    ArgumentError for SMOS and DMOS, for which webMUSHRA has no page type, and StoreError if writing fails.
    """
    one_of(test.kind, "kind", tuple(_TYPES))
    folder = Path(folder)
    name = _file_name(test.name)
    audio = folder / f"{name}-audio"
    write = partial(_write_sounds, audio, f"{root.rstrip('/')}/{audio.name}".lstrip("/"), rate, test.seed)
    by_item: dict[str, dict[str, Clip]] = {item: {} for item in test.items}
    for stimulus in test.sounds:
        if stimulus.system not in ANCHORS:  # webMUSHRA makes the anchors
            by_item[stimulus.item][stimulus.system] = stimulus.clip
    pages = [page for index, item in enumerate(by_item) for page in _pages(test, index, by_item[item], write, rate)]
    config = {
        "testname": test.name,
        "testId": name,
        "bufferSize": 2048,
        "stopOnErrors": True,
        "showButtonPreviousPage": True,
        "remoteService": "service/write.php",
        "pages": [
            {"type": "generic", "id": "first_page", "name": test.name, "content": _first_page(test)},
            ["random", *pages],
            {
                "type": "finish",
                "name": "Thank you",
                "content": "Thank you for listening.",
                "showResults": False,
                "writeResults": True,
                "questionnaire": [{"type": "text", "label": "Name", "name": "name"}],
            },
        ],
    }
    path = folder / f"{name}.yaml"
    write_atomic(path, ("\n".join(_lines(config)) + "\n").encode(), sync=False)
    return path


def _first_page(test: ListeningTest) -> str:
    lines = [*test.instructions.splitlines(), test.question]
    return "".join(f"<p>{escape(line)}</p>" for line in lines) if test.instructions else test.question


def import_webmushra(path: str | Path, root: str | Path, **options: Any) -> ListeningTest:
    """Read a test from a webMUSHRA configuration with files below ``root``. All rating pages must have the same type.

    The test is named after the testId, to which results refer. Items are named after page ids, and systems after
    stimuli. ABX compares each stimulus with the reference. ``options`` are options of ListeningTest. Raises StoreError
    for an unreadable file, ArgumentError for pages that do not form a supported test, such as likert_single_stimulus
    with points other than 1 to 5.
    """
    path, root = Path(path), Path(root)
    config = _read(path)
    if not isinstance(config, Mapping) or not isinstance(config.get("pages"), list):
        raise ArgumentError.of("pages", "a configuration of webMUSHRA must have a list of pages")
    pages = [page for page in _flat(config["pages"]) if page.get("type") in _TYPES.values()]
    types = {page["type"] for page in pages}
    if len(types) != 1:
        message = f"rating pages must have one type, got {sorted(types) or 'none'}"
        raise ArgumentError.of("pages", message)
    kind = next(kind for kind, page_type in _TYPES.items() if page_type in types)
    items: dict[str, dict[str, Clip]] = {}
    references: dict[str, Clip] = {}
    for page in pages:
        try:
            clips = {str(name): Clip.load(root / file) for name, file in page["stimuli"].items()}
            item = str(page["id"])
            if kind == "MUSHRA":
                references[item] = Clip.load(root / page["reference"])
            elif kind == "ABX":
                clips = {REFERENCE: Clip.load(root / page["reference"]), **clips}
            elif (
                points := [
                    str(point["value"] if isinstance(point, Mapping) else "several scales")
                    for point in page["response"]
                ]
            ) != list(_POINTS["MOS"]):
                message = f"the points of page {item!r} must be 1, 2, 3, 4, 5, got {', '.join(points)}"
                raise ArgumentError.of("pages", message)
        except (KeyError, AttributeError, TypeError) as error:
            raise ArgumentError.of("pages", f"a page lacks {error}") from error
        except OSError as error:
            raise StoreError(f"a sound cannot be read: {error}") from error
        items[item] = clips
    name = config.get("testId") or config.get("testname") or path.stem
    return ListeningTest(str(name), kind, items, references, **options)


def read_results(test: ListeningTest, path: str | Path) -> pd.DataFrame:
    """Read webMUSHRA's results (mushra.csv, paired_comparison.csv or lss.csv) as responses to ``test``.

    The table has the columns of ``Ballot.frame()``, so that ``analyze`` can read it. Since names may be shared or
    missing, each session is a listener. A session is the rows with the same session id or, if there are no ids,
    consecutive rows in which no question repeats. Its listener is named by the name in the results and the session
    number. Rows of other tests and unanswered questions are skipped. Raises StoreError for an unreadable file,
    ArgumentError for a row that does not match the test, an invalid rating, a repeated question of a session, and a
    file that contains no rows of this test.
    """
    import pandas as pd

    cells_read = read_cells(Path(path))
    heading, *records = cells_read.rows
    rows = [dict(zip(heading, record, strict=False)) for record in records]
    reader = {"ABX": _abx_row, "AB": _pair_row, "CMOS": _pair_row}.get(test.kind, _rating_row)
    names, votes = {_file_name(test.name), test.name}, []
    others = {str(row.get("session_test_id")) for row in rows} - names
    if rows and len(others) == len({row.get("session_test_id") for row in rows}):
        message = f"{path} has results of {', '.join(sorted(others))}, not of {test.name!r}"
        raise ArgumentError.of("results", message)
    cells = set[tuple[str | None, ...]]()
    for number, row, session in zip(cells_read.numbers[1:], rows, _sessions(rows), strict=True):
        if row.get("session_test_id") not in names:
            continue
        if row.get("choice_answer", row.get("stimuli_rating")) in _UNANSWERED:
            continue
        try:
            vote = {"kind": test.kind, "check": False, "passed": True, "plays": 0, **reader(test, row)}
        except (KeyError, ValueError, TypeError) as error:
            raise ArgumentError.of(
                "results", f"line {number} of {path} is not a response to {test.name!r}: {error}"
            ) from error
        cell = (session, *_cell(row))
        if cell in cells:
            raise ArgumentError.of("results", f"line {number} of {path}: {session} answered this question before")
        cells.add(cell)
        votes.append({"listener": session, **vote})
    return pd.DataFrame(votes)


def _read(path: Path) -> Any:
    import yaml

    text = read_text(path)
    try:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return yaml.safe_load(_UNQUOTED.sub(lambda line: f"{line[1]} {json.dumps(line[2])}", text))
    except yaml.YAMLError as error:
        raise StoreError(f"{path} cannot be read as YAML: {error}") from error


def _rating_row(test: ListeningTest, row: Mapping[str, str]) -> dict[str, Any]:
    mushra = test.kind == "MUSHRA"
    system = row["rating_stimulus" if mushra else "stimuli"]
    rating = float(row["rating_score" if mushra else "stimuli_rating"])
    low, high = SCALES[test.kind]
    if system not in {stimulus.system for stimulus in test.sounds} or not low <= rating <= high:
        rule = f"must be from {low} to {high}, for a sound of the test"
        raise ArgumentError.of("rating", f"{rule}, got {rating:g} for {system!r}")
    return {**_common(test, row, row["trial_id"]), "system": system, "rating": rating}


def _abx_row(test: ListeningTest, row: Mapping[str, str]) -> dict[str, Any]:
    other = row["choice_non_reference"]
    item, *pair = _pairs_of(test).get(row["trial_id"], (row["trial_id"], REFERENCE, other))
    x = pair[other == pair[0]]
    answer = row["choice_answer"]
    if answer not in {"correct", "incorrect"} or other not in pair or not {*pair} <= set(test.systems):
        rule = "must be correct or incorrect, for two systems of the test"
        raise ArgumentError.of("choice", f"{rule}, got {answer!r} for {x!r} and {other!r}")
    right = answer == "correct"
    chosen, rejected = (x, other) if right else (other, x)
    return {**_common(test, row, item), "chosen": chosen, "other": rejected, "right": right}


def _pair_row(test: ListeningTest, row: Mapping[str, str]) -> dict[str, Any]:
    """Convert a row of an AB or CMOS page, whose sound has both systems in the order that the page id states."""
    item, first, second = _pairs_of(test)[row["trial_id"]]
    answer = row["stimuli_rating"]
    if answer not in _POINTS[test.kind]:
        raise ArgumentError.of("rating", f"must be one of {', '.join(_POINTS[test.kind])}, got {answer!r}")
    common = _common(test, row, item)
    if test.kind == "CMOS":
        return {**common, "system": second, "against": first, "rating": float(answer)}
    chosen, other = (first, second) if answer == "A" else (second, first)
    return {**common, "chosen": chosen, "other": other, "first": answer == "A"}


def _pairs_of(test: ListeningTest) -> dict[str, tuple[str, str, str]]:
    """Map the id of each pair page to its item and its two systems."""
    pairs = itertools.permutations(test.systems, 2)
    return {_page_of(item, pair): (item, *pair) for pair in pairs for item in test.items}


def _common(test: ListeningTest, row: Mapping[str, str], item: str) -> dict[str, Any]:
    if item not in test.items:
        raise ArgumentError.of("trial_id", f"item {item!r} not found")
    milliseconds = row["choice_time" if test.kind == "ABX" else "rating_time"]
    return {"trial": row["trial_id"], "item": item, "seconds": float(milliseconds or 0) / 1e3}


def _cell(row: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return a key that identifies the question of a row."""
    return tuple(row.get(name) for name in ("trial_id", "rating_stimulus", "choice_non_reference", "stimuli"))


def _sessions(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the session of each row. If there are no ids, a new name or a repeated question starts a session."""
    numbers: dict[str, int] = {}
    sessions: list[str] = []
    name, cells = "", set[tuple[str | None, ...]]()
    for row in rows:
        uuid, other = row.get("session_uuid"), row.get("name") or row.get("email") or "anonymous"
        if not uuid:
            cell = (row.get("session_test_id"), *_cell(row))
            if other != name or cell in cells:
                cells.clear()
                numbers[f" {len(numbers)}"] = len(numbers) + 1
            cells.add(cell)
            name = other
            sessions.append(f"{other} ({len(numbers)})")
        else:
            sessions.append(f"{other} ({numbers.setdefault(uuid, len(numbers) + 1)})")
    return sessions


def _lines(value: Any, indent: str = "") -> Iterable[str]:
    """Yield lines of YAML that yaml.js and YAML 1.2 parsers read equally.

    The dash of a list item is alone on its line, and text is written as in JSON.
    """
    for key, inner in value.items() if isinstance(value, Mapping) else (("-", inner) for inner in value):
        head = indent + ("-" if isinstance(value, list) else f"{json.dumps(key, ensure_ascii=False)}:")
        if isinstance(inner, Mapping | list):
            yield head
            yield from _lines(inner, indent + "  ")
        else:
            yield f"{head} {json.dumps(inner, ensure_ascii=False)}"


def _page_of(item: str, pair: tuple[str, str]) -> str:
    return f"{item}/{_SEPARATOR.join(pair)}"


_Writer = Callable[[str, Mapping[str, Clip]], dict[str, str]]


def _write_sounds(
    folder: Path, root: str, rate: int, seed: int, item: str, clips: Mapping[str, Clip]
) -> dict[str, str]:
    """Write the sounds of a page with equal rates and lengths and blinded names; return their paths for webMUSHRA."""
    length = math.ceil(max(clip.duration for clip in clips.values()) * rate)
    files = {}
    for name, clip in clips.items():
        digest = hashlib.sha256(f"{seed}\0{item}\0{name}".encode()).hexdigest()[:16]
        write_atomic(folder / f"{digest}.wav", blind_wav(clip, digest, rate, length), sync=False)
        files[name] = f"{root}/{digest}.wav"
    return files


def _concatenated(first: Clip, second: Clip, rate: int) -> Clip:
    gap = np.zeros(round(_GAP_S * rate), np.float32)
    return Clip(np.concatenate((first.resample(rate).samples, gap, second.resample(rate).samples)), rate)


def _pages(
    test: ListeningTest, index: int, clips: Mapping[str, Clip], write: _Writer, rate: int
) -> Iterable[dict[str, Any]]:
    item, kind = list(test.items)[index], _TYPES[test.kind]
    page: dict[str, Any] = {"type": kind, "id": item, "name": test.name, "content": test.question}
    page |= {"showWaveform": True, "enableLooping": True}
    # X (in ABX) or the order (in AB and CMOS) alternates over items and pairs.
    orders = [pair if (index + row + test.seed) % 2 == 0 else pair[::-1] for row, pair in enumerate(test.pairs)]
    if test.kind in {"AB", "CMOS"}:
        points = [{"value": value, "label": label} for value, label in _POINTS[test.kind].items()]
        # The waveform display would reveal which clip is longer.
        page["content"] = f"{test.question} The two recordings are played one after the other."
        page |= {"showWaveform": False, "mustRate": True, "mustPlayback": "ended", "response": points}
        sounds = {_page_of(item, (a, b)): _concatenated(clips[a], clips[b], rate) for a, b in orders}
        for name, file in write(item, sounds).items():
            yield {**page, "id": name, "stimuli": {"both": file}}
        return
    files = write(item, clips)
    if kind == "mushra":
        if max(clip.duration for clip in clips.values()) > _MAX_STRICT_S:
            page["strict"] = False
        reference = files.pop(REFERENCE)
        yield {**page, "reference": reference, "createAnchor35": True, "createAnchor70": True, "stimuli": files}
    elif kind == "paired_comparison":
        page["content"] = f"{test.question} X is the sound called reference."
        for pair, (x, other) in zip(test.pairs, orders, strict=True):
            yield {**page, "id": _page_of(item, pair), "reference": files[x], "stimuli": {other: files[other]}}
    else:
        points = [{"value": value, "label": label} for value, label in _POINTS["MOS"].items()]
        yield {**page, "mustRate": True, "stimuli": files, "response": points}


def _flat(pages: Iterable[Any]) -> Iterable[Mapping[str, Any]]:
    for page in pages:
        if isinstance(page, list):
            yield from _flat(page)
        elif isinstance(page, Mapping):
            yield page


def _file_name(name: str) -> str:
    # webMUSHRA's service converts the test's id in the same way.
    return re.sub(r"-{2,}", "-", re.sub(r"[^\w-]+", "-", name)).strip("-").lower() or "test"
