"""What two clips differ in, told in words from the lines of figures that notebooks show for them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from voicelab.audio.analysis import Digest
from voicelab.experiments.replay import Tolerance

__all__ = ["Move", "digests_in", "moved", "without_digests"]

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
class Move:
    """What moved between two clips, in words, and whether any of it is beyond what is tolerated."""

    words: str
    beyond: bool

    def __str__(self) -> str:
        return self.words


def without_digests(text: str) -> str:
    """Return a text with the figures of its clips left out."""
    return _CLIP.sub("Clip(", text)


def moved(was: Digest, now: Digest, tolerance: Tolerance) -> Move:
    """Say which figures differ and by how much, each against what is tolerated: "level +2 dB (tolerance 1.5)"."""
    told = list(_differences(was, now, tolerance))
    if not told:
        return Move("the figures are the same", beyond=False)
    # The figures are rounded; what is just at a bound may be over it or under it.
    beyond = any(over for _, over in told)
    verdict = "beyond" if beyond else "within"
    return Move(f"{', '.join(words for words, _ in told)}: {verdict} tolerance", beyond)


def _differences(was: Digest, now: Digest, tolerance: Tolerance) -> Iterator[tuple[str, bool]]:
    def told(name: str, difference: float, unit: str, bound: float, digits: int = 0) -> tuple[str, bool]:
        return f"{name} {difference:+.{digits}f} {unit} (tolerance {bound:g})", abs(difference) > bound + 1e-9

    if was.duration != now.duration:
        yield told("duration", now.duration - was.duration, "s", tolerance.seconds, 2)
    if was.level != now.level:
        yield told("level", now.level - was.level, "dB", tolerance.db)
    if (was.f0 is None) != (now.f0 is None):
        yield f"F0 {'gone' if now.f0 is None else 'where there was none'}", True
    elif was.f0 and now.f0 and was.f0 != now.f0:
        yield told("F0", 1200.0 * math.log2(now.f0 / was.f0), "cents", tolerance.cents)
    if len(was.mel) != len(now.mel):
        yield f"{len(now.mel)} mel bands instead of {len(was.mel)}", True
    elif was.mel != now.mel:
        band, largest = max(
            enumerate(b - a for a, b in zip(was.mel, now.mel, strict=True)), key=lambda item: abs(item[1])
        )
        yield told(f"mel band {band + 1} of {len(now.mel)}", largest, "dB", tolerance.mel_db)
