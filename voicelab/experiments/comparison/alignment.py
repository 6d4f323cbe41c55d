"""Where in one clip the same moment of another is: by the times of the words, or by warping features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.experiments.metrics.activity import HOP_S
from voicelab.experiments.metrics.compare import warped_frames
from voicelab.experiments.metrics.metric import Subject, Undefined
from voicelab.experiments.metrics.words import other_words

__all__ = ["Alignment", "align", "in_step"]

_Floats = npt.NDArray[np.float64]

_KNOT_S: Final = 0.05
"""Distance of the knots of a warping path: finer steps are jitter of the path, not of the speech."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Moments that belong together: ``first[i]`` and ``second[i]``, seconds, (knots,), both rising.

    ``method`` says how they were found: "words" (both clips know their words, and they are the same), "features"
    (dynamic time warping), or "time" where neither could be done; ``reason`` then says why.
    """

    first: _Floats = field(repr=False)
    second: _Floats = field(repr=False)
    method: Literal["words", "features", "time"]
    reason: str = ""

    def to_second(self, seconds: float) -> float:
        """Return where in the second clip the moment ``seconds`` of the first is."""
        return float(np.interp(seconds, self.first, self.second))

    def to_first(self, seconds: float) -> float:
        """Return where in the first clip the moment ``seconds`` of the second is."""
        return float(np.interp(seconds, self.second, self.first))

    @property
    def knots(self) -> list[tuple[float, float]]:
        """The pairs, to be drawn or sent."""
        return [(round(float(a), 4), round(float(b), 4)) for a, b in zip(self.first, self.second, strict=True)]


def align(first: Clip, second: Clip) -> Alignment:
    """Align two clips of the same text.

    By their words where both know them and they are the same; else along the path of dynamic time warping
    over mel-cepstra that ``mcd`` describes. Clips that cannot be aligned (silence, too long) run in step, and the
    result says so. Raises RequestInvalid, which names ``text``, for clips that were asked to say different words.
    """
    told = other_words(first, second)
    if told:
        raise RequestInvalid.of("text", f"clips are compared word by word, and {told}", in_="query")
    ends = (first.duration, second.duration)
    said = [[word.text.casefold() for word in clip.words] for clip in (first, second)]
    if said[0] and said[0] == said[1]:
        pairs = [
            (getattr(one, edge), getattr(two, edge))
            for one, two in zip(first.words, second.words, strict=True)
            for edge in ("start", "end")
        ]
        return Alignment(*_rising(np.array(pairs, np.float64), ends), "words")
    try:
        frames = warped_frames(Subject(first, reference=Subject(second)))
    except Undefined as error:
        return in_step(first, second, str(error))
    seconds = np.asarray(frames, np.float64) * HOP_S
    # One knot every 50 ms of the path: the mean of what falls into it.
    bins = (seconds.sum(axis=1) / 2 / _KNOT_S).astype(np.intp)
    knots = np.array([seconds[bins == place].mean(axis=0) for place in np.unique(bins)])
    return Alignment(*_rising(knots, ends), "features")


def in_step(first: Clip, second: Clip, reason: str) -> Alignment:
    """Return the alignment of clips of which nothing more is known than their lengths."""
    ends = np.array([(0.0, 0.0), (first.duration, second.duration)], np.float64)
    return Alignment(ends[:, 0], ends[:, 1], "time", reason)


def _rising(pairs: _Floats, ends: tuple[float, float]) -> tuple[_Floats, _Floats]:
    """Return the pairs with the clips' ends, both sides rising strictly, so that the way back is defined too."""
    whole = np.vstack([(0.0, 0.0), pairs, ends])
    kept = [whole[0]]
    for pair in whole[1:-1]:
        if (pair > kept[-1] + 1e-3).all() and (pair < np.array(ends) - 1e-3).all():
            kept.append(pair)
    kept.append(whole[-1])
    made = np.array(kept)
    return made[:, 0], made[:, 1]
