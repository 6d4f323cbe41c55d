"""Compare the outputs of an executed notebook with the saved ones.

Text is compared exactly, clips by their printed digests (optionally within tolerances), pictures at low resolution, and
audio by content. Timings are masked. If the saved outputs are from a different kind of processor, which rounds
floating-point sums differently, numbers are masked too. nbval compares everything for equality; ``pytest --nbval
notebooks/`` uses the same masks (notebooks/conftest.py).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import math
import platform
import re
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass, replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicelab.audio.analysis import Digest
from voicelab.checks.displays import VIEW, States, models, properties
from voicelab.checks.lint import mime_texts
from voicelab.checks.sounds import audible_change, audio_difference, embedded_audio
from voicelab.errors import RequestInvalid
from voicelab.takes.replay import Tolerance

TIMINGS: Final = ("first_audio_s", "total_s", "rtf", "underruns", "stalled_s", "buffer_needed_s")
"""Names of columns with times, or values computed from times."""

_TIME: Final = "TIME"
_CELL_NUMBER: Final = r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?%?"
_VALUE: Final = re.compile(rf"(?<![\w.]){_CELL_NUMBER}")
_BLOCK: Final = re.compile(r"(?:[^\n]*\S[^\n]*(?:\n|$))+")
_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_TR: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"(<(t[hd])\b([^>]*)>)(.*?)(</\2>)", re.DOTALL)
_SPAN: Final = re.compile(r"colspan=[\"']?(\d+)")


class TimingMask:
    """Mask of the timing columns and rows with the given names."""

    def __init__(self, names: Iterable[str]) -> None:
        any_name = "|".join(map(re.escape, names))
        self._name = re.compile(rf"(?<!\S)(?:{any_name})(?!\S)")
        self._series = re.compile(rf"^Name: (?:{any_name}),", re.MULTILINE)
        # A row label, optionally after an index, followed by numbers only.
        self._row = re.compile(rf"^(\s*(?:\d+\s+)?(?:{any_name}))((?:\s+(?:{_CELL_NUMBER}|NaN|None))+)\s*$")
        self._labels = set(map(_label, names))

    def __call__(self, mime: str, text: str) -> str:
        """Replace the numbers in timing rows and columns of an output's tables with TIME."""
        if mime == "text/html":
            return _TABLE.sub(lambda table: self._html(table.group()), text)
        if self._name.search(text) is None and self._series.search(text) is None:
            return text
        return _BLOCK.sub(lambda block: "\n".join(self._lines(block.group().split("\n"))), text)

    def _lines(self, lines: list[str]) -> Iterator[str]:
        """Yield the masked lines of a block of text; a table starts at the line with its column names."""
        if any(map(self._series.match, lines)):
            lines = [re.sub(rf"(?<=\s){_CELL_NUMBER}$", _TIME, line) for line in lines]
        elif not any(map(self._name.search, lines)):
            yield from lines
            return
        ends: list[int] = []
        mixed = any(map(self._row.match, lines))
        for line in lines:
            if row := self._row.match(line):
                masked = f"{row[1]} {_VALUE.sub(_TIME, row[2])}"
            elif self._name.search(line):
                ends, masked = [name.end() for name in self._name.finditer(line)], line
            else:
                masked = _trim_zeros(_mask_columns(line, ends)) if mixed else _mask_columns(line, ends)
            yield " ".join(masked.split())  # column widths depend on the masked numbers

    def _html(self, table: str) -> str:
        """Mask the timings of an HTML table; columns are counted from the right, because row labels may have a rowspan."""
        rows = [list(_CELL.finditer(row)) for row in _TR.findall(table)]
        headers = [cells for cells in rows if not any(cell[2] == "td" for cell in cells)]
        columns = {column for cells in headers for column in self._columns(cells)}
        mixed = any(self._is_timing(cell[4]) for cells in rows if cells not in headers for cell in cells)

        def replace_row(match: re.Match[str]) -> str:
            cells = list(_CELL.finditer(match.group()))
            timing_row = any(self._is_timing(cell[4]) for cell in cells)
            numbers = {cell.start(): len(cells) - index for index, cell in enumerate(cells, start=1)}

            def replace(cell: re.Match[str]) -> str:
                if cell[2] == "th":
                    return cell.group()
                content = _trim_zeros(cell[4]) if mixed else cell[4]
                if timing_row or numbers[cell.start()] in columns:
                    content = _VALUE.sub(_TIME, content)
                return cell[1] + content + cell[5]

            return _CELL.sub(replace, match.group())

        return _TR.sub(replace_row, table) if columns or mixed else table

    def _columns(self, cells: list[re.Match[str]]) -> Iterator[int]:
        """Yield the indices of the timing columns of a header row, counted from 0 at the right."""
        index = 0
        for cell in reversed(cells):
            span = _SPAN.search(cell[3])
            width = int(span[1]) if span else 1
            if self._is_timing(cell[4]):
                yield from range(index, index + width)
            index += width

    def _is_timing(self, html: str) -> bool:
        """Return True for the name of a timing column or its display label ("First audio s, s", "total, s")."""
        return _label(unescape(re.sub(r"<[^>]*>", " ", html)).strip()) in self._labels


def _mask_columns(line: str, ends: list[int]) -> str:
    """Mask the numbers of a line that are right-aligned with the names of timing columns."""
    for end in reversed(ends):
        value = re.search(rf"(?<!\S){_CELL_NUMBER}$", line[:end])
        if value and not line[end : end + 1].strip():
            line = f"{line[: value.start()]}{_TIME}{line[end:]}"
    return line


def _trim_zeros(text: str) -> str:
    """Remove trailing zeros.

    pandas formats all numbers of a column with the same number of digits, which depends on its times.
    """
    return _VALUE.sub(lambda figure: re.sub(r"(\.\d*?)0+$", r"\1", figure.group()).rstrip("."), text)


def _label(name: str) -> str:
    """Return the letters and digits of a column name or display label, without its unit."""
    return re.sub(r"[\W_]", "", re.sub(r"(?:[_ ]s)?(?:, s)?$", "", name.lower()))


_NUMBER: Final = r"-?(?:\d+(?:\.\d+)?|inf)"
_CLIP: Final = re.compile(
    rf"Clip\((?P<duration>{_NUMBER}) s, \d+ Hz, (?P<level>{_NUMBER}) dBFS, "
    rf"(?:unvoiced|F0 (?P<f0>{_NUMBER}) Hz), mel (?P<mel>{_NUMBER}(?: {_NUMBER})*) dB"
)


# Characters deleted by a backspace, and text overwritten after a carriage return, by the rules of nbclient and JupyterLab.
_DELETED: Final = re.compile(r"[^\n\x08]\x08")
_OVERWRITTEN: Final = re.compile(r"[^\n]*\r(?=[^\r\n])")
_RETURN: Final = re.compile(r"\r+(?=\n|$)")
# A nested progress bar is drawn below the outer one, and then the cursor moves up. A later state overwrites such a state.
_UP: Final = re.compile(r"[^\n]*?\x1b\[\d*A")
_BAR: Final = re.compile(r"^(?P<name>[^\n|]*?) *\d+%\|[^|]*\| (?P<count>[\d.]+\w*)/(?P<total>[\d.]+\w*) ")


_COUNT: Final = re.compile(r"\s*(?:\d+%|[\d.]+\w?(?=/|it\b))")


def _is_hidden_bar(models: list[Any]) -> bool:
    """Return whether models are a tqdm bar that was hidden at its end (``leave=False``) with outdated texts."""
    states = [model["state"] for model in models if model["model_name"] in ("HTMLModel", "FloatProgressModel")]
    return (
        len(states) == 3
        and states[1].get("bar_style") == ""
        and re.search(r"\[\d+:\d\d", str(states[2].get("value"))) is not None
    )


def visible_text(text: str) -> str:
    """Apply backspaces and carriage returns; of nested progress bars, keep the last state of each bar.

    The function is idempotent, because JupyterLab and nbclient have already applied some of these characters in a saved
    notebook.
    """
    if not re.search(r"[\r\x08\x1b]", text):
        return text
    while (shorter := _DELETED.sub("", text)) != text:
        text = shorter
    text = _RETURN.sub("", _OVERWRITTEN.sub("", text))
    if not _UP.search(text):
        return re.sub(r"(?m)^ +$", "", text)
    lines = [line for line in _UP.sub("", text).split("\n") if line.strip()]
    return "\n".join(_last_states(lines)) + "\n"


def _last_states(lines: list[str]) -> Iterator[str]:
    bars = [_BAR.match(line) for line in lines]
    for index, (line, bar) in enumerate(zip(lines, bars, strict=True)):
        later_bars = (later for later in bars[index + 1 :] if later and bar)
        if not bar or not any(_overwrites(bar, later) for later in later_bars):
            yield line


def _overwrites(bar: re.Match[str], later: re.Match[str]) -> bool:
    """Return True if ``later`` is a later state of the same bar; a bar of the same name after a complete one is a new bar."""
    same = (bar["name"], bar["total"]) == (later["name"], later["total"])
    return same and bar["count"] != bar["total"]


def digests_in(text: str) -> list[Digest]:
    """Parse the digests of every ``Clip(…)`` in a text, in order."""
    return [
        Digest(
            duration=float(match["duration"]),
            level=float(match["level"]),
            f0=None if match["f0"] is None else float(match["f0"]),
            mel=tuple(map(float, match["mel"].split())),
        )
        for match in _CLIP.finditer(text)
    ]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """Description of a difference. It is ``tolerable`` if only clip digests differ, by less than the tolerance.

    A difference is ``negligible``, and reported as a note, if only memory addresses differ, or only pixels that the
    comparison at low resolution ignores.
    """

    message: str
    tolerable: bool = False
    negligible: bool = False

    def __str__(self) -> str:
        return self.message


def digest_difference(expected: Digest, actual: Digest, tolerance: Tolerance) -> OutputDifference:
    """Describe the differences between two clip digests, with tolerances: "level +2 dB (tolerance 1.5): beyond tolerance"."""
    differences = list(_differences(expected, actual, tolerance))
    if not differences:
        return OutputDifference("equal digests", tolerable=True)
    exceeded = any(exceeds for _, exceeds in differences)
    verdict = "beyond" if exceeded else "within"
    return OutputDifference(f"{', '.join(text for text, _ in differences)}: {verdict} tolerance", not exceeded)


def _differences(expected: Digest, actual: Digest, tolerance: Tolerance) -> Iterator[tuple[str, bool]]:
    def describe(name: str, difference: float, unit: str, bound: float, digits: int = 0) -> tuple[str, bool]:
        # The margin allows for rounding, because digests are decimal numbers.
        return f"{name} {difference:+.{digits}f} {unit} (tolerance {bound:g})", abs(difference) > bound + 1e-9

    if expected.duration != actual.duration:
        yield describe("duration", actual.duration - expected.duration, "s", tolerance.seconds, 2)
    if expected.level != actual.level:
        yield describe("level", actual.level - expected.level, "dB", tolerance.db)
    if (expected.f0 is None) != (actual.f0 is None):
        yield ("unvoiced, expected voiced" if actual.f0 is None else "voiced, expected unvoiced"), True
    elif expected.f0 and actual.f0 and expected.f0 != actual.f0:
        yield describe("F0", 1200.0 * math.log2(actual.f0 / expected.f0), "cents", tolerance.cents)
    if len(expected.mel) != len(actual.mel):
        yield f"{len(actual.mel)} mel bands, expected {len(expected.mel)}", True
    elif expected.mel != actual.mel:
        band_differences = enumerate(b - a for a, b in zip(expected.mel, actual.mel, strict=True))
        band, largest = max(band_differences, key=lambda item: abs(item[1]))
        yield describe(f"mel band {band + 1} of {len(actual.mel)}", largest, "dB", tolerance.mel_db)


# Pictures are averaged over a grid of 64 × 64 fields; antialiasing changes a field by a few gray levels only.
_GRID: Final = 64
_GRAY_THRESHOLD: Final = 0.12
_MAX_FIELDS: Final = 2


def picture_difference(expected: str, actual: str) -> OutputDifference | None:
    """Describe the difference between two pictures (base64 of PNG or JPEG); None for equal pixels.

    Pictures are different if their sizes differ, or if the means of more than 2 of 64 × 64 fields differ by more than 12%
    of the range from black to white. Smaller differences are negligible.
    """
    if expected == actual:
        return None
    from PIL.Image import Resampling

    try:
        saved, new = _open_picture(expected), _open_picture(actual)
    except (OSError, binascii.Error):
        return OutputDifference("the picture cannot be read")
    if saved.size != new.size:
        return OutputDifference("got {} × {} pixels, expected {} × {}".format(*new.size, *saved.size))
    grids = [image.resize((_GRID, _GRID), Resampling.BOX) for image in (saved, new)]
    before, after = (np.asarray(image, np.float64) / 255.0 for image in grids)
    changed = np.abs(before - after).max(axis=2) > _GRAY_THRESHOLD
    if changed.sum() <= _MAX_FIELDS:
        pixels = (np.asarray(saved) != np.asarray(new)).any(axis=2).mean()
        message = f"{max(pixels, 1e-4):.2%} of the pixels differ, within tolerance"
        return OutputDifference(message, negligible=True) if pixels else None
    rows, columns = np.nonzero(changed)
    row = ("top", "middle", "bottom")[min(2, int(3 * rows.mean() / _GRID))]
    column = ("left", "center", "right")[min(2, int(3 * columns.mean() / _GRID))]
    return OutputDifference(f"the picture differs in {changed.mean():.1%} of its area, around the {row} {column}")


def _open_picture(data: str) -> Any:
    """Decode a picture as RGB on white."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


@cache
def processor() -> str:
    """Identify the kind of processor by machine, vendor and rounding, such as "x86_64 AuthenticAMD 5f3a9c01".

    The last part is a digest of matrix products, because BLAS selects kernels by CPU features and these round differently.
    """
    # The matrices are small enough for BLAS to use a single thread.
    a, b = np.random.default_rng(0).standard_normal((2, 32, 256), dtype=np.float32)
    products = (a @ b.T).tobytes() + (a @ b[0]).tobytes()
    return f"{platform.machine()} {_vendor()} {hashlib.sha256(products).hexdigest()[:8]}"


def _vendor() -> str:
    try:
        vendor = re.search(r"^vendor_id\s*:\s*(\S+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        vendor = None
    return vendor[1] if vendor else platform.processor() or "unknown"


MASKS: Final = Path(__file__).with_name("masks.cfg")
"""Default masks, in nbval's format (for ``--nbval-sanitize-with``)."""
FIGURES: Final = MASKS.with_name("figures.cfg")
"""Masks of all numbers, for outputs from a different kind of processor, in the same format.

Numbers are replaced by ``#``, and runs of spaces by one space, because column widths depend on the numbers.
"""

_PICTURES: Final = ("image/png", "image/jpeg")
_EMBEDDED_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg);base64,((?:[0-9A-Za-z+/=]|\\\n)+)")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
# Random ids of elements (UUIDs and addresses), which scripts in the same output refer to.
_ELEMENT_ID: Final = re.compile(
    r"""\bid=\\?["'][^"'\\]*?([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{12,})"""
)
# The folder of installed packages, in warnings. It is not a mask, since the linter reports paths of this machine.
_PACKAGES: Final = re.compile(r"(?<![^\s\"'<>:])(?:[A-Za-z]:)?[^\s\"'<>:]*[/\\](?:site|dist)-packages[/\\]")
_MAX_EXCERPT: Final = 100

_Contents = dict[str, Any]
"""Contents of an output by media type."""


class Masks:
    """Replacements applied to outputs before comparison: the default masks, then those of ``files``.

    A file has sections with ``regex`` and ``replace``, as in nbval. Raises RequestInvalid for an invalid file.
    """

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._rules: list[tuple[re.Pattern[str], str]] = []
        for file in (MASKS, *files):
            parser = ConfigParser(interpolation=None)
            try:
                parser.read_string(file.read_text(encoding="utf-8"), str(file))
                for name in parser.sections():
                    pattern, replacement = re.compile(parser[name]["regex"]), parser[name]["replace"]
                    pattern.sub(replacement, "")
                    self._rules.append((pattern, replacement))
            except (ConfigError, KeyError, re.error, IndexError, UnicodeDecodeError) as error:
                raise RequestInvalid.of("masks", f"{file} is not a valid mask file: {error}", in_="query") from None

    def __call__(self, text: str) -> str:
        """Apply all masks to ``text``."""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text


_timing_mask = cache(TimingMask)


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Rules for comparing outputs: masks, tolerance of clip digests, and whether pictures and audio are compared.

    ``timings`` are names of columns whose numbers must exist but are not compared. ``states`` are the saved and the new
    models of widgets.
    """

    masks: Masks
    tolerance: Tolerance
    pictures: bool = True
    sounds: bool = True
    timings: tuple[str, ...] = TIMINGS
    states: tuple[States, States] = ({}, {})

    def differences(self, expected: list[Any], actual: list[Any]) -> Iterator[OutputDifference]:
        """Yield the differences between the saved outputs of a cell and the new ones."""
        before, after = _merged(expected), _merged(actual)
        if list(before) != list(after):
            missing = [f"{name} ({' and '.join(types)})" for name, types in before.items() if name not in after]
            new = [f"{name} ({' and '.join(types)})" for name, types in after.items() if name not in before]
            changes = [f"{kind}: {', '.join(names)}" for kind, names in (("missing", missing), ("new", new)) if names]
            yield OutputDifference("; ".join(changes))
        rich = any(set(types) - {"text/plain"} for name, types in before.items() if name.startswith("output"))
        for name in filter(after.__contains__, before):
            if list(before[name]) != list(after[name]):
                types, expected_types = " and ".join(after[name]), " and ".join(before[name])
                yield OutputDifference(f"{name}: got {types}, expected {expected_types}")
                continue
            for difference in self._content_differences(name, before[name], after[name]):
                # The addresses are in the text of a picture or table, which is itself compared.
                if not (rich and difference is _ADDRESSES):
                    yield (
                        difference
                        if difference is not _ADDRESSES
                        else replace(difference, message=f"{name}: {difference}")
                    )

    def masked_timings(self, outputs: list[Any]) -> set[str]:
        """Return the names of the timing columns in outputs."""
        mask = _timing_mask(self.timings)
        texts = [
            (mime, text) for output in _merged(outputs).values() for mime, text in output.items() if _is_text(mime)
        ]
        masked = [text for mime, text in texts if mime != VIEW and mask(mime, text) != text]
        return {name for name in self.timings for text in masked if re.search(rf"\b{re.escape(name)}\b", text)}

    def _content_differences(self, output: str, before: _Contents, after: _Contents) -> Iterator[OutputDifference]:
        if VIEW in before and "text/html" not in before:
            yield from self._widget_differences(output, before[VIEW], after[VIEW])
        pairs = [(mime, content, after[mime]) for mime, content in before.items() if mime != VIEW]
        texts = [(mime, self._masked(mime, a), self._masked(mime, b)) for mime, a, b in pairs if _is_text(mime)]
        changed = [(mime, a, b) for mime, a, b in texts if a != b]
        tolerable = True
        if changed:
            # Report a difference in plain text rather than in HTML with the same content, and any other difference rather
            # than one of addresses, which are meaningless.
            descriptions = {mime: self._text_difference(a, b) for mime, a, b in changed}
            mime = min(descriptions, key=lambda mime: (descriptions[mime].negligible, mime != "text/plain"))
            name = output if mime == output else f"{output} ({mime})"
            tolerable = all(difference.tolerable for difference in descriptions.values())
            difference = descriptions[mime]
            yield difference if difference.negligible else OutputDifference(f"{name}: {difference}", tolerable)
        if changed and not tolerable and not difference.negligible:
            return
        for mime, a, b in pairs:
            if self.sounds:
                yield from self._audio_differences(
                    f"{output} ({mime})", embedded_audio(mime, a), embedded_audio(mime, b)
                )
            if self.pictures:
                yield from _picture_differences(f"{output} ({mime})", _pictures(mime, a), _pictures(mime, b))

    def _widget_differences(self, output: str, before: Any, after: Any) -> Iterator[OutputDifference]:
        """Compare the saved and new models of a displayed widget, if a state was saved; ``lint`` reports a missing state."""
        saved, new = (
            [model for _, model in models(view.get("model_id", ""), states)]
            for view, states in zip((before, after), self.states, strict=True)
        )
        if not saved:
            return
        names = [[model.get("model_name", "") for model in side] for side in (saved, new)]
        if names[0] != names[1]:
            got, expected = (", ".join(name.removesuffix("Model") for name in side) for side in reversed(names))
            yield OutputDifference(f"{output} (widget): got {got}, expected {expected}")
            return
        hidden = _is_hidden_bar(saved) and _is_hidden_bar(new)
        for a, b in zip(saved, new, strict=True):
            texts = [self._masked("text/plain", "\n".join(properties(model))) for model in (a, b)]
            if hidden and a["model_name"] == "HTMLModel":
                texts = [_COUNT.sub("", text) for text in texts]
            if texts[0] != texts[1]:
                yield OutputDifference(f"{output} (widget): {self._text_difference(*texts)}")
            inner = [[_node(each) for each in model["state"].get("outputs", ())] for model in (a, b)]
            for difference in self.differences(*inner):
                yield replace(difference, message=f"{output} (widget): {difference}")
            media = [[item.get("data", "") for item in model.get("buffers", ())] for model in (a, b)]
            if self.sounds and a["model_name"] == "AudioModel":
                yield from self._audio_differences(f"{output} (widget)", *media)
            elif self.pictures and a["model_name"] == "ImageModel":
                yield from _picture_differences(f"{output} (widget)", *media)

    def _masked(self, mime: str, text: str) -> str:
        if mime == "text/html":
            for number, element_id in enumerate(dict.fromkeys(_ELEMENT_ID.findall(text))):
                text = text.replace(element_id, f"ID{number}")
            text = text.replace("\\\n", "")  # continued lines of scripts
        return self.masks(_timing_mask(self.timings)(mime, _PACKAGES.sub("site-packages/", text)))

    def _audio_differences(self, output: str, before: list[str], after: list[str]) -> Iterator[OutputDifference]:
        for number, (a, b) in enumerate(zip(before, after, strict=False), start=1):
            if message := audio_difference(a, b):
                name = f"audio {number}" if len(before) > 1 else "the audio"
                tolerable = audio_difference(a, b, self.tolerance) is None
                change = "" if tolerable else audible_change(a, b)
                message = f"{name} differs: {', '.join(filter(None, (change, message)))}"
                yield OutputDifference(f"{output}: {message}", tolerable)

    def _text_difference(self, expected: str, actual: str) -> OutputDifference:
        before, after = digests_in(expected), digests_in(actual)
        if before and len(before) == len(after) and before != after:
            pairs = enumerate(zip(before, after, strict=True), start=1)
            clips = {number: digest_difference(a, b, self.tolerance) for number, (a, b) in pairs if a != b}
            names = (f"clip {number}" if len(before) > 1 else "the clip" for number in clips)
            message = "; ".join(f"{name} differs: {text}" for name, text in zip(names, clips.values(), strict=True))
            same_text = _CLIP.sub("Clip(", expected) == _CLIP.sub("Clip(", actual)
            return OutputDifference(message, same_text and all(clip.tolerable for clip in clips.values()))
        if _ADDRESS.sub("", expected) == _ADDRESS.sub("", actual):
            return _ADDRESSES
        expected_lines, actual_lines = expected.splitlines(), actual.splitlines()
        for a, b in zip(expected_lines, actual_lines, strict=False):
            if a != b:
                return OutputDifference(f"got {_excerpt(b, a)!r}, expected {_excerpt(a, b)!r}")
        if len(expected_lines) == len(actual_lines):
            return OutputDifference("only line endings differ")
        return OutputDifference(f"got {len(actual_lines)} lines, expected {len(expected_lines)}")


_ADDRESSES: Final = OutputDifference("only memory addresses differ", negligible=True)


def _is_text(mime: str) -> bool:
    return mime not in _PICTURES and not mime.startswith("audio/")


def _pictures(mime: str, text: str) -> list[str]:
    """Extract base64 pictures from an output: its complete content if it is a picture, else its data URLs."""
    if mime in _PICTURES:
        return [text]
    return [data.replace("\\\n", "") for data in _EMBEDDED_PICTURE.findall(text)]


def _picture_differences(output: str, before: list[str], after: list[str]) -> Iterator[OutputDifference]:
    for number, (a, b) in enumerate(zip(before, after, strict=False), start=1):
        if difference := picture_difference(a, b):
            name = f"{output}: picture {number}" if len(before) > 1 else output
            yield replace(difference, message=f"{name}: {difference}")


def _node(output: Any) -> Any:
    """Convert an output of an Output widget to the type of cell outputs."""
    from nbformat import from_dict

    return from_dict(output)


def _merged(outputs: list[Any]) -> dict[str, _Contents]:
    """Merge outputs by name ("stdout", "output 1"); streams are concatenated, because their interleaving is random."""
    streams: dict[str, str] = {}
    displays: list[_Contents] = []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] = streams.get(output.name, "") + "".join(output.text)
        elif output.output_type == "error":
            displays.append({"error": f"{output.ename}: {output.evalue}"})
        else:
            view = {VIEW: output.data[VIEW]} if VIEW in output.get("data", {}) else {}
            displays.append(dict(sorted(mime_texts(output))) | view)
    contents = {name: {name: visible_text(streams[name])} for name in sorted(streams, reverse=True)}
    return contents | {f"output {number}": display for number, display in enumerate(displays, start=1)}


def _excerpt(text: str, reference: str) -> str:
    """Return up to 100 characters of a line around its first difference from a reference."""
    difference = next((i for i, (a, b) in enumerate(zip(text, reference, strict=False)) if a != b), 0)
    start = max(0, difference - _MAX_EXCERPT // 2) if len(text) > _MAX_EXCERPT else 0
    stop = start + _MAX_EXCERPT
    return ("…" if start else "") + text[start:stop] + ("…" if stop < len(text) else "")
