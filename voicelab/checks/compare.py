"""What a notebook shows now, compared with what it showed.

Strict, except for clips (by their printed figures, within tolerances where asked for), for pictures (coarsely), for sounds
(by their content), for timings (they only have to be there) and for figures made on another kind of processor, where
floating-point sums round differently. nbval's own comparison is not used: it knows equal or not equal, so it can neither say
how far a clip moved nor tolerate it, and it compares pictures byte by byte. ``pytest --nbval notebooks/`` works beside it
with the same masks (see notebooks/conftest.py).
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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicelab.audio.analysis import Digest
from voicelab.checks.lint import WIDGET, mime_texts
from voicelab.checks.sounds import moved_sound, sounds_in
from voicelab.checks.timings import without_timings
from voicelab.errors import RequestInvalid
from voicelab.takes.replay import Tolerance

_NUMBER: Final = r"-?(?:\d+(?:\.\d+)?|inf)"
_CLIP: Final = re.compile(
    rf"Clip\((?P<duration>{_NUMBER}) s, \d+ Hz, (?P<level>{_NUMBER}) dBFS, "
    rf"(?:unvoiced|F0 (?P<f0>{_NUMBER}) Hz), mel (?P<mel>{_NUMBER}(?: {_NUMBER})*) dB"
)


def digests_in(text: str) -> list[Digest]:
    """Return the figures of every ``Clip(…)`` in a text, in order, as they were rounded there."""
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
    """What differs, in words; ``tolerable`` when it is only the figures of clips, and all are within tolerance."""

    words: str
    tolerable: bool = False

    def __str__(self) -> str:
        return self.words


def moved(was: Digest, now: Digest, tolerance: Tolerance) -> OutputDifference:
    """Say which figures differ and by how much, each against what is tolerated: "level +2 dB (tolerance 1.5)"."""
    differences = list(_differences(was, now, tolerance))
    if not differences:
        return OutputDifference("the figures are the same", tolerable=True)
    beyond = any(over for _, over in differences)
    verdict = "beyond" if beyond else "within"
    return OutputDifference(f"{', '.join(words for words, _ in differences)}: {verdict} tolerance", not beyond)


def _differences(was: Digest, now: Digest, tolerance: Tolerance) -> Iterator[tuple[str, bool]]:
    def compared(name: str, difference: float, unit: str, bound: float, digits: int = 0) -> tuple[str, bool]:
        # The figures are rounded; what is just at a bound may be over it or under it.
        return f"{name} {difference:+.{digits}f} {unit} (tolerance {bound:g})", abs(difference) > bound + 1e-9

    if was.duration != now.duration:
        yield compared("duration", now.duration - was.duration, "s", tolerance.seconds, 2)
    if was.level != now.level:
        yield compared("level", now.level - was.level, "dB", tolerance.db)
    if (was.f0 is None) != (now.f0 is None):
        yield f"F0 {'gone' if now.f0 is None else 'where there was none'}", True
    elif was.f0 and now.f0 and was.f0 != now.f0:
        yield compared("F0", 1200.0 * math.log2(now.f0 / was.f0), "cents", tolerance.cents)
    if len(was.mel) != len(now.mel):
        yield f"{len(now.mel)} mel bands instead of {len(was.mel)}", True
    elif was.mel != now.mel:
        apart = enumerate(b - a for a, b in zip(was.mel, now.mel, strict=True))
        band, largest = max(apart, key=lambda item: abs(item[1]))
        yield compared(f"mel band {band + 1} of {len(now.mel)}", largest, "dB", tolerance.mel_db)


# A picture is looked at in this many fields a side; what is drawn alike differs by a few grey levels in none of them.
_FIELDS: Final = 64
_GREY: Final = 0.12
_MOST: Final = 2


def moved_picture(was: str, now: str) -> str | None:
    """Say in what two pictures (base64 of PNG or JPEG) differ; None when they show the same.

    They differ when their sizes do, or when more than 2 of 64 × 64 fields differ by more than 12% of the range from
    black to white in their mean.
    """
    if was == now:
        return None
    from PIL.Image import Resampling

    try:
        old, new = _opened(was), _opened(now)
    except (OSError, binascii.Error) as error:
        return f"a picture that cannot be read: {error}"
    if old.size != new.size:
        return "{} × {} pixels where it was {} × {}".format(*new.size, *old.size)
    small = [image.resize((_FIELDS, _FIELDS), Resampling.BOX) for image in (old, new)]
    before, after = (np.asarray(image, np.float64) / 255.0 for image in small)
    apart = np.abs(before - after).max(axis=2) > _GREY
    if apart.sum() <= _MOST:
        return None
    rows, columns = np.nonzero(apart)
    place = f"{_third(rows.mean(), 'top', 'middle', 'bottom')} {_third(columns.mean(), 'left', 'centre', 'right')}"
    return f"the picture shows something else: {apart.mean():.1%} of it differs, around the {place}"


def _opened(data: str) -> Any:
    """Return a picture on white, as RGB."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _third(place: float, first: str, second: str, third: str) -> str:
    return (first, second, third)[min(2, int(3 * place / _FIELDS))]


@cache
def processor() -> str:
    """Name the kind of processor here, "x86_64 AuthenticAMD 5f3a9c01".

    The last part is a digest of a product of two matrices. It tells how the libraries round here, which the name alone
    does not: they choose their arithmetic by what else the processor can.
    """
    # So small that BLAS takes one thread for it, however many it may have.
    left, right = np.random.default_rng(0).standard_normal((2, 32, 256), dtype=np.float32)
    products = (left @ right.T).tobytes() + (left @ right[0]).tobytes()
    return f"{platform.machine()} {_vendor()} {hashlib.sha256(products).hexdigest()[:8]}"


def _vendor() -> str:
    try:
        vendor = re.search(r"^vendor_id\s*:\s*(\S+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        vendor = None
    return vendor[1] if vendor else platform.processor() or "unknown"


MASKS: Final = Path(__file__).with_name("masks.cfg")
"""The masks that always apply, in nbval's format (``--nbval-sanitize-with`` takes the file as it is)."""
FIGURES: Final = MASKS.with_name("figures.cfg")
"""Masks for all figures, where they were made on another kind of processor; in the same format.

Every number becomes ``#``, and every gap one space wide: columns are as wide as their figures.
"""

_PICTURES: Final = ("image/png", "image/jpeg")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]{6,}\b")
_LONGEST: Final = 100

_Shown = dict[str, str]
"""What an output shows, by media type."""


class Masks:
    """Replacements in outputs before they are compared: those of voicelab, then those of ``files``.

    Each file has sections with ``regex`` and ``replace``, as nbval's do. Raises RequestInvalid for one that has not.
    """

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._rules: list[tuple[re.Pattern[str], str]] = []
        for file in (MASKS, *files):
            parser = ConfigParser(interpolation=None)
            try:
                parser.read_string(file.read_text(encoding="utf-8"), str(file))
                for name in parser.sections():
                    shape, replacement = re.compile(parser[name]["regex"]), parser[name]["replace"]
                    shape.sub(replacement, "")
                    self._rules.append((shape, replacement))
            except (ConfigError, KeyError, re.error, IndexError, UnicodeDecodeError) as error:
                raise RequestInvalid.of("masks", f"{file} is no file of masks: {error}", in_="query") from None

    def __call__(self, text: str) -> str:
        """Return ``text`` with everything replaced that a mask fits."""
        for shape, replacement in self._rules:
            text = shape.sub(replacement, text)
        return text


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Rules for comparing outputs: masks, the tolerance of clips, and whether pictures and sounds count."""

    masks: Masks
    tolerance: Tolerance
    pictures: bool = True
    sounds: bool = True

    def differences(self, was: list[Any], now: list[Any]) -> Iterator[OutputDifference]:
        """Yield what differs between the outputs of a cell, as committed and as they are now."""
        before, after = _merged(was), _merged(now)
        if list(before) != list(after):
            gone = [f"{place} ({' and '.join(shown)})" for place, shown in before.items() if place not in after]
            new = [f"{place} ({' and '.join(shown)})" for place, shown in after.items() if place not in before]
            changes = [f"{word}: {', '.join(places)}" for word, places in (("missing", gone), ("new", new)) if places]
            yield OutputDifference("; ".join(changes))
        for place in filter(after.__contains__, before):
            old, now_shown = before[place], after[place]
            if list(old) != list(now_shown):
                yield OutputDifference(f"{place} is {' and '.join(now_shown)} where it was {' and '.join(old)}")
            else:
                yield from self._in_one(place, old, now_shown)

    def _in_one(self, place: str, old: _Shown, new: _Shown) -> Iterator[OutputDifference]:
        pairs = [(mime, text, new[mime]) for mime, text in old.items() if mime != WIDGET]
        texts = [(mime, self._masked(mime, a), self._masked(mime, b)) for mime, a, b in pairs if _is_text(mime)]
        changed = [(mime, a, b) for mime, a, b in texts if a != b]
        tolerable = True
        if changed:
            # What is plain comes first: the same figures stand in the HTML beside it.
            explained = {mime: self._explained(a, b) for mime, a, b in changed}
            mime = min(explained, key=lambda mime: mime != "text/plain")
            name = place if mime == place else f"{place} ({mime})"
            tolerable = all(difference.tolerable for difference in explained.values())
            yield OutputDifference(f"{name}: {explained[mime]}", tolerable)
        if not tolerable:
            return
        for mime, a, b in pairs:
            if self.sounds:
                yield from self._sounds(f"{place} ({mime})", sounds_in(mime, a), sounds_in(mime, b))
            if self.pictures and not changed and mime in _PICTURES and (message := moved_picture(a, b)):
                yield OutputDifference(f"{place} ({mime}): {message}")

    def _masked(self, mime: str, text: str) -> str:
        return self.masks(without_timings(mime, text))

    def _sounds(self, output: str, old: list[str], new: list[str]) -> Iterator[OutputDifference]:
        for number, (before, after) in enumerate(zip(old, new, strict=False), start=1):
            if message := moved_sound(before, after):
                name = f"sound {number}" if len(old) > 1 else "the sound"
                words = f"{output}: {name} is another: {message}"
                yield OutputDifference(words, moved_sound(before, after, self.tolerance) is None)

    def _explained(self, was: str, now: str) -> OutputDifference:
        old, new = digests_in(was), digests_in(now)
        if old and len(old) == len(new) and old != new:
            pairs = enumerate(zip(old, new, strict=True), start=1)
            moves = {number: moved(a, b, self.tolerance) for number, (a, b) in pairs if a != b}
            clips = (f"clip {number}" if len(old) > 1 else "the clip" for number in moves)
            words = "; ".join(f"{clip} moved: {move}" for clip, move in zip(clips, moves.values(), strict=True))
            alike = _CLIP.sub("Clip(", was) == _CLIP.sub("Clip(", now)
            return OutputDifference(words, alike and all(move.tolerable for move in moves.values()))
        if _ADDRESS.sub("", was) == _ADDRESS.sub("", now):
            return OutputDifference("only addresses in memory differ: show something that has a name of its own")
        lines, lines_now = was.splitlines(), now.splitlines()
        for line, line_now in zip(lines, lines_now, strict=False):
            if line != line_now:
                return OutputDifference(f"{_short(line_now, line)!r} where it was {_short(line, line_now)!r}")
        if len(lines) == len(lines_now):
            return OutputDifference("only the ends of lines differ")
        return OutputDifference(f"{len(lines_now)} lines where there were {len(lines)}")


def _is_text(mime: str) -> bool:
    return mime not in _PICTURES and not mime.startswith("audio/")


def _merged(outputs: list[Any]) -> dict[str, _Shown]:
    """Return what each output shows, by its name; streams first, each in one piece: how they mingle depends on chance."""
    streams: dict[str, str] = {}
    others: list[_Shown] = []
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] = streams.get(output.name, "") + output.text
        elif output.output_type == "error":
            others.append({"error": f"{output.ename}: {output.evalue}"})
        else:
            others.append(dict(sorted(mime_texts(output))))
    named = {name: {name: streams[name]} for name in sorted(streams, reverse=True)}
    return named | {f"output {number}": shown for number, shown in enumerate(others, start=1)}


def _short(text: str, beside: str) -> str:
    """Return the part of a line around the first character in which it differs from the other."""
    first = next((place for place, (a, b) in enumerate(zip(text, beside, strict=False)) if a != b), 0)
    begin = max(0, first - _LONGEST // 2) if len(text) > _LONGEST else 0
    part = text[begin : begin + _LONGEST]
    return ("…" if begin else "") + part + ("…" if begin + _LONGEST < len(text) else "")
