"""Clips of one text side by side, at one loudness, and at the same word: alignment, contours, differences, figures."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from voicelab.asr.alignment import align_words
from voicelab.audio.analysis import Contour, energy, f0
from voicelab.clip import Clip
from voicelab.display import Shown, view
from voicelab.errors import ArgumentError, MissingExtra, check_options
from voicelab.listening.design import TEST_OPTIONS, Kind, ListeningTest, MatchedClips, match_loudness
from voicelab.metrics import BASIC, measure
from voicelab.metrics.distances import warped_frames
from voicelab.metrics.level import HOP_S
from voicelab.metrics.metric import Subject, Undefined
from voicelab.metrics.words import other_words

if TYPE_CHECKING:
    import pandas as pd

_Floats = npt.NDArray[np.float64]

_KNOT_S: Final = 0.05
"""Distance of the knots of a warping path: finer steps are jitter of the path, not of the speech."""

MOST: Final = 8
"""Clips of one comparison: more than keys 1 to 8 are not told apart by ear either."""

# As far below a clip's loudest moment its level counts: what is fainter is its pauses, on which no two takes agree.
_DYNAMIC_DB = 40.0


@dataclass(frozen=True, eq=False)
class Comparison(Shown):
    """Clips by their names, in order. ``matched`` has them at one loudness, with the gains that it took."""

    clips: Mapping[str, Clip] = field(repr=False)

    def __post_init__(self) -> None:
        if not 2 <= len(self.clips) <= MOST:
            raise ArgumentError.of("clips", f"a comparison has 2 to {MOST} clips, not {len(self.clips)}")
        object.__setattr__(self, "clips", MappingProxyType(dict(self.clips)))

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} {clip.duration:.2f} s" for name, clip in self.clips.items())
        apart = "" if self.same_text else "; different texts, which run in step"
        return f"Comparison({listed}{apart})"

    def panel(self) -> Any:
        """Return the panel in which it is heard: shown as the last value of a notebook's cell.

        Raises MissingExtra when what it needs is not installed.
        """
        return view("Comparison.panel")(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self.clips)

    @cached_property
    def matched(self) -> MatchedClips:
        """The clips at one loudness (ITU-R BS.1770-4), nothing limited; a clip without a loudness as it is."""
        return match_loudness(self.clips)

    @cached_property
    def worded(self) -> Mapping[str, Clip]:
        """The clips with word times: where a backend gave none, by forced alignment with the words of the others.

        One that cannot be aligned (another language, other words, no aligner installed) stays as it is.
        """
        clips = self.clips.values()
        spoken = [" ".join(word.text for word in clip.words) for clip in clips if clip.words]
        spoken += [clip.take.call.said for clip in clips if clip.take is not None]
        text = next(iter(spoken), "") if self.same_text else ""

        return MappingProxyType({name: with_words(clip, text) for name, clip in self.clips.items()})

    @cached_property
    def alignments(self) -> Mapping[str, Alignment]:
        """Where the moments of the first clip are in each other one, by its name; of another text, in step with it."""
        (_, first), *others = self.worded.items()
        aligned = {
            name: _in_step(first, clip, reason) if (reason := other_words(first, clip)) else align(first, clip)
            for name, clip in others
        }
        return MappingProxyType(aligned)

    @cached_property
    def contours(self) -> Mapping[str, ContourDifference]:
        """How far pitch and level of each other clip are above the first one's, at the same word, by its name."""
        first, *others = [(f0(clip, hop_s=HOP_S), energy(clip, hop_s=HOP_S)) for clip in self.clips.values()]
        pairs = zip(self.alignments.items(), others, strict=True)
        return MappingProxyType({name: _difference(first, other, aligned) for (name, aligned), other in pairs})

    @property
    def same_text(self) -> bool:
        """Whether all say the same text; loaded clips, whose text is unknown, do not count."""
        spoken = [clip for clip in self.clips.values() if clip.take is not None]
        return not any(other_words(spoken[0], clip) for clip in spoken[1:])

    def differences(self) -> pd.DataFrame:
        """Return the fields in which the clips' requests differ: a row for each, a column for each clip.

        Besides the fields of the request: model, backend, fingerprint, seed. None where a clip was not asked for.
        """
        import pandas as pd

        settings = {name: _settings(clip) for name, clip in self.clips.items()}
        fields = list(dict.fromkeys(field for own in settings.values() for field in own))
        every = {field: {name: own.get(field) for name, own in settings.items()} for field in fields}
        differing = {field: row for field, row in every.items() if len({repr(value) for value in row.values()}) > 1}
        # As they are: a seed among floats is still a whole number.
        rows = [list(row.values()) for row in differing.values()]
        return pd.DataFrame(rows, index=list(differing), columns=list(self.names), dtype=object)

    def metrics(self, *names: str) -> pd.DataFrame:
        """Return measurements, a row for each clip, and the column ``undefined``: those of ``measure``.

        ``names`` chooses metrics; the basic ones and pitch when not given. Those that compare take the first clip for the
        reference; its own row compares it with itself: an ``mfcc_distance`` of 0, a ``stoi`` of 1. Raises what
        ``measure`` does.
        """
        chosen = names or (*BASIC, "f0_median", "f0_sd")
        clips = list(self.clips.values())
        frame = measure(clips, chosen, reference=clips[0])
        frame.index = list(self.names)
        return frame

    def listening_test(self, kind: Kind = "AB", *, name: str = "comparison", **options: Any) -> ListeningTest:
        """Return a blind test of these clips: one item. ``options`` are those of ListeningTest."""
        check_options(options, TEST_OPTIONS)
        return ListeningTest(name, kind, {"clips": dict(self.clips)}, **options)


def with_words(clip: Clip, text: str = "") -> Clip:
    """Return a clip with word times: its own, or those of forced alignment with ``text``, or with what its take said.

    One that cannot be aligned (another language, other words, no aligner installed) is returned as it is.
    """
    if clip.words or not (text or clip.take):
        return clip
    try:
        return align_words(clip, text)
    except (ArgumentError, MissingExtra):
        return clip


def compare(*clips: Clip | Mapping[str, Clip], **named: Clip) -> Comparison:
    """Compare clips: ``vl.compare(a, b)`` calls them A and B, ``vl.compare(cold=a, hot=b)`` by their names.

    ``vl.compare({"take 1": a, "take 2": b})`` gives names that no keyword can have.

    Raises ArgumentError for fewer than 2 or more than 8 clips, or for what is no Clip.
    """
    plain = [clip for clip in clips if not isinstance(clip, Mapping)]
    pairs = [*zip(string.ascii_uppercase, plain, strict=False), *named.items()]
    for several in clips:
        pairs += several.items() if isinstance(several, Mapping) else ()
    together = dict(pairs)
    if len(together) != len(pairs):
        raise ArgumentError.of("clips", "a clip by keyword, or in a mapping, has the name of another")
    for name, clip in together.items():
        if not isinstance(clip, Clip):
            raise ArgumentError.of(str(name), f"a comparison is of Clips, not of {type(clip).__name__}")
    return Comparison(together)


def _settings(clip: Clip) -> dict[str, Any]:
    if clip.take is None or clip.take.device == "file":
        return {}
    request = clip.take.request.canonical()
    prosody = {f"prosody.{name}": request["prosody"][name] for name in ("speed", "volume")}
    beside = {name: getattr(clip.take, name) for name in ("model", "backend", "fingerprint", "seed")}
    return {**{name: value for name, value in request.items() if name != "prosody"}, **prosody, **beside}


@dataclass(frozen=True, eq=False)
class Alignment:
    """Moments that belong together: ``first[i]`` and ``second[i]``, seconds, (knots,), both rising.

    ``method`` says how they were aligned: "words" (both clips know their words, and they are the same), "features"
    (dynamic time warping), or "time" where neither could be done; ``reason`` then says why.
    """

    first: _Floats = field(repr=False)
    second: _Floats = field(repr=False)
    method: Literal["words", "features", "time"]
    reason: str = ""

    @property
    def knots(self) -> list[tuple[float, float]]:
        """The pairs, to be drawn or sent."""
        return [(round(float(a), 4), round(float(b), 4)) for a, b in zip(self.first, self.second, strict=True)]


def align(first: Clip, second: Clip) -> Alignment:
    """Align two clips of the same text.

    By their words where both know them and they are the same; else along the path of dynamic time warping
    over mel-cepstra that ``mfcc_distance`` describes. Clips that cannot be aligned (silence, too long) run in step, and the
    result says so. Raises ArgumentError, which names ``second``, for clips that were asked to say different words.
    """
    if reason := other_words(first, second):
        raise ArgumentError.of("second", f"clips are compared word by word, and {reason}")
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
        return _in_step(first, second, str(error))
    seconds = np.asarray(frames, np.float64) * HOP_S
    # One knot every 50 ms of the path: the mean of what falls into it.
    bins = (seconds.sum(axis=1) / 2 / _KNOT_S).astype(np.intp)
    knots = np.array([seconds[bins == place].mean(axis=0) for place in np.unique(bins)])
    return Alignment(*_rising(knots, ends), "features")


def _in_step(first: Clip, second: Clip, reason: str) -> Alignment:
    """Return the alignment of clips by their lengths alone."""
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
    knots = np.array(kept)
    return knots[:, 0], knots[:, 1]


@dataclass(frozen=True, eq=False)
class ContourDifference:
    """How far a clip is above another one: ``times`` in seconds of that one, (frames,), every 10 ms.

    ``f0`` in semitones, NaN unless both are voiced there; ``energy`` in dB, of levels down to 40 dB below the loudest
    of each.
    """

    times: _Floats = field(repr=False)
    f0: _Floats = field(repr=False)
    energy: _Floats = field(repr=False)


def _difference(
    first: tuple[Contour, Contour], second: tuple[Contour, Contour], alignment: Alignment
) -> ContourDifference:
    """Return how far F0 and level of the second are above those of the first wherever the same is said."""
    times = np.arange(first[1].values.size, dtype=np.float64) * HOP_S
    there = np.asarray(np.interp(times, alignment.first, alignment.second), np.float64)
    pitch = 12.0 * np.log2(_at(second[0], there) / _at(first[0], times))
    return ContourDifference(times, pitch, _level(second[1], there) - _level(first[1], times))


def _level(contour: Contour, moments: _Floats) -> _Floats:
    floor = contour.values.max(initial=-_DYNAMIC_DB) - _DYNAMIC_DB
    return _at(contour, moments).clip(floor)


def _at(contour: Contour, moments: _Floats) -> _Floats:
    """Return the values of the frames that are nearest to some moments, NaN where there are none."""
    if not contour.values.size:
        return np.full(moments.shape, np.nan)
    places = np.clip(np.round(moments / HOP_S).astype(np.intp), 0, contour.values.size - 1)
    return np.asarray(contour.values[places], np.float64)
