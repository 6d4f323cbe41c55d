"""Comparison of loudness-matched clips of one text: word alignment, contours, differences and measurements."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from voicelab.asr.alignment import align_words
from voicelab.audio.analysis import Contour, energy, f0, stable_f0
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
"""Interval between the knots of a warping path; finer steps would follow the path's jitter."""

MAX_CLIPS: Final = 8
"""Maximum number of clips of a comparison, one for each of the keyboard's keys 1 to 8."""

# Range of levels below the maximum of a clip; lower levels are pauses, which differ between takes.
_DYNAMIC_DB = 40.0


@dataclass(frozen=True, eq=False)
class Comparison(Shown):
    """Named clips to compare, in order. ``matched`` has the loudness-matched clips, with their gains."""

    clips: Mapping[str, Clip] = field(repr=False)

    def __post_init__(self) -> None:
        if not 2 <= len(self.clips) <= MAX_CLIPS:
            raise ArgumentError.of("clips", f"must be 2 to {MAX_CLIPS} clips, got {len(self.clips)}")
        object.__setattr__(self, "clips", MappingProxyType(dict(self.clips)))

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} {clip.duration:.2f} s" for name, clip in self.clips.items())
        note = "" if self.same_text else "; different texts, aligned by time"
        return f"Comparison({listed}{note})"

    def panel(self) -> Any:
        """Return the panel that plays the clips; it is displayed if it is the last value of a cell.

        Raises MissingExtra if widgets are not installed.
        """
        return view("Comparison.panel")(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clips, in order."""
        return tuple(self.clips)

    @cached_property
    def matched(self) -> MatchedClips:
        """Clips with matched loudness (ITU-R BS.1770-4), without a limiter; clips of undefined loudness are unchanged."""
        return match_loudness(self.clips)

    @cached_property
    def worded(self) -> Mapping[str, Clip]:
        """Clips with word times; if the backend returned none, they come from forced alignment.

        A clip that cannot be aligned (another language, other words, no aligner installed) is unchanged.
        """
        clips = self.clips.values()
        texts = [" ".join(word.text for word in clip.words) for clip in clips if clip.words]
        texts += [clip.take.call.said for clip in clips if clip.take is not None]
        text = next(iter(texts), "") if self.same_text else ""
        return MappingProxyType({name: with_words(clip, text) for name, clip in self.clips.items()})

    @cached_property
    def alignments(self) -> Mapping[str, Alignment]:
        """Alignments of the first clip with each other clip, by name; clips of other texts are aligned by time."""
        (_, reference), *clips = self.worded.items()
        aligned = {
            name: _by_time(reference, clip, reason)
            if (reason := other_words(reference, clip))
            else align(reference, clip)
            for name, clip in clips
        }
        return MappingProxyType(aligned)

    @cached_property
    def contours(self) -> Mapping[str, ContourDifference]:
        """Differences in F0 and level of each other clip from the first, at aligned times, by name.

        Short F0 jumps, such as octave errors, are excluded: see ``stable_f0``.
        """
        reference, *contours = [
            (stable_f0(f0(clip, hop_s=HOP_S)), energy(clip, hop_s=HOP_S)) for clip in self.clips.values()
        ]
        pairs = zip(self.alignments.items(), contours, strict=True)
        return MappingProxyType({name: _difference(reference, pair, aligned) for (name, aligned), pair in pairs})

    @property
    def same_text(self) -> bool:
        """Whether all clips have the same text; clips of unknown text are ignored."""
        clips = [clip for clip in self.clips.values() if clip.take is not None]
        return not any(other_words(clips[0], clip) for clip in clips[1:])

    def differences(self) -> pd.DataFrame:
        """Return the fields in which the clips' calls differ: a row per field, a column per clip.

        Rows include model, backend, fingerprint and seed. Values are None for a clip without a call.
        """
        import pandas as pd

        settings = {name: _settings(clip) for name, clip in self.clips.items()}
        fields = list(dict.fromkeys(field for fields in settings.values() for field in fields))
        every = {field: {name: values.get(field) for name, values in settings.items()} for field in fields}
        differing = {field: row for field, row in every.items() if len({repr(value) for value in row.values()}) > 1}
        # Objects, so that seeds stay integers.
        rows = [list(row.values()) for row in differing.values()]
        return pd.DataFrame(rows, index=list(differing), columns=list(self.names), dtype=object)

    def metrics(self, *names: str) -> pd.DataFrame:
        """Measure the clips: a row per clip, with the columns of ``measure``.

        ``names`` selects metrics, by default the basic ones and pitch. The reference is the first clip, also in its own row,
        where ``mfcc_distance`` is 0 and ``stoi`` 1. Raises the errors of ``measure``.
        """
        chosen = names or (*BASIC, "f0_median", "f0_sd")
        clips = list(self.clips.values())
        frame = measure(clips, chosen, reference=clips[0])
        frame.index = list(self.names)
        return frame

    def listening_test(self, kind: Kind = "AB", *, name: str = "Listening test", **options: Any) -> ListeningTest:
        """Create a blind test of these clips, with one item. ``options`` are those of ListeningTest."""
        check_options(options, ("kind", "name", *TEST_OPTIONS))
        return ListeningTest(name, kind, {"clips": dict(self.clips)}, **options)


def with_words(clip: Clip, text: str = "") -> Clip:
    """Add word times to a clip, by forced alignment with ``text`` or the text of its take.

    A clip that cannot be aligned (another language, other words, no aligner installed) is unchanged.
    """
    if clip.words or not (text or clip.take):
        return clip
    try:
        return align_words(clip, text)
    except (ArgumentError, MissingExtra):
        return clip


def compare(*clips: Clip | Mapping[str, Clip] | Sequence[Clip], **keywords: Clip) -> Comparison:
    """Compare clips: ``vl.compare(a, b)`` or ``vl.compare([a, b])`` as A and B, ``vl.compare(cold=a, hot=b)`` by name.

    ``vl.compare({"take 1": a, "take 2": b})`` allows names that are not identifiers.

    Raises ArgumentError for fewer than 2 or more than 8 clips, repeated names, or a value that is not a Clip.
    """
    plain: list[Any] = []
    for item in clips:
        plain += item if isinstance(item, list | tuple) else [] if isinstance(item, Mapping) else [item]
    pairs = [*zip(string.ascii_uppercase, plain, strict=False), *keywords.items()]
    for item in clips:
        pairs += item.items() if isinstance(item, Mapping) else ()
    by_name = dict(pairs)
    if len(by_name) != len(pairs):
        raise ArgumentError.of("clips", f"names of clips must be unique, got {', '.join(name for name, _ in pairs)}")
    for name, clip in by_name.items():
        if not isinstance(clip, Clip):
            raise ArgumentError.of(str(name), f"must be a Clip (vl.load(path) loads a file), got {type(clip).__name__}")
    return Comparison(by_name)


def _settings(clip: Clip) -> dict[str, Any]:
    if clip.take is None or clip.take.device == "file":
        return {}
    request = clip.take.request.canonical()
    prosody = {f"prosody.{name}": request["prosody"][name] for name in ("speed", "volume")}
    beside = {name: getattr(clip.take, name) for name in ("model", "backend", "fingerprint", "seed")}
    return {**{name: value for name, value in request.items() if name != "prosody"}, **prosody, **beside}


@dataclass(frozen=True, eq=False)
class Alignment:
    """Corresponding times of two clips in seconds: ``first[i]`` and ``second[i]``, increasing, of shape (knots,).

    ``method`` is "words" (the times of equal words), "features" (dynamic time warping), or "time" (time scaled by the
    durations, because of ``reason``).
    """

    first: _Floats = field(repr=False)
    second: _Floats = field(repr=False)
    method: Literal["words", "features", "time"]
    reason: str = ""

    @property
    def knots(self) -> list[tuple[float, float]]:
        """Pairs of corresponding times in seconds, rounded, for plots and messages."""
        return [(round(float(a), 4), round(float(b), 4)) for a, b in zip(self.first, self.second, strict=True)]


def align(first: Clip, second: Clip) -> Alignment:
    """Align two clips of the same text.

    The alignment uses word times if both clips have them for the same words, else dynamic time warping of mel-cepstra, as in
    ``mfcc_distance``. Clips that cannot be aligned (silence, too long) are aligned by time. Raises ArgumentError, which names
    ``second``, for clips with different texts.
    """
    if reason := other_words(first, second):
        raise ArgumentError.of("second", f"must have the words of the first clip: {reason}")
    ends = (first.duration, second.duration)
    words = [[word.text.casefold() for word in clip.words] for clip in (first, second)]
    if words[0] and words[0] == words[1]:
        pairs = [
            (getattr(word, edge), getattr(pair, edge))
            for word, pair in zip(first.words, second.words, strict=True)
            for edge in ("start", "end")
        ]
        return Alignment(*_rising(np.array(pairs, np.float64), ends), "words")
    try:
        frames = warped_frames(Subject(first, reference=Subject(second)))
    except Undefined as error:
        return _by_time(first, second, str(error))
    seconds = np.asarray(frames, np.float64) * HOP_S
    # One knot per 50 ms of the path: the mean within each bin.
    bins = (seconds.sum(axis=1) / 2 / _KNOT_S).astype(np.intp)
    knots = np.array([seconds[bins == index].mean(axis=0) for index in np.unique(bins)])
    return Alignment(*_rising(knots, ends), "features")


def _by_time(first: Clip, second: Clip, reason: str) -> Alignment:
    """Align two clips by scaling time with the ratio of their durations."""
    ends = np.array([(0.0, 0.0), (first.duration, second.duration)], np.float64)
    return Alignment(ends[:, 0], ends[:, 1], "time", reason)


def _rising(pairs: _Floats, ends: tuple[float, float]) -> tuple[_Floats, _Floats]:
    """Add the start and the clips' ends to the pairs, and drop pairs so that both columns increase by at least 1 ms."""
    path = np.vstack([(0.0, 0.0), pairs, ends])
    increasing = [path[0]]
    for pair in path[1:-1]:
        if (pair > increasing[-1] + 1e-3).all() and (pair < np.array(ends) - 1e-3).all():
            increasing.append(pair)
    increasing.append(path[-1])
    knots = np.array(increasing)
    return knots[:, 0], knots[:, 1]


@dataclass(frozen=True, eq=False)
class ContourDifference:
    """Difference of a clip from a reference: ``times`` in seconds of the reference, (frames,), every 10 ms.

    ``f0`` is in semitones, and NaN unless both frames are voiced. ``energy`` is in dB; levels are limited to 40 dB below
    each clip's maximum.
    """

    times: _Floats = field(repr=False)
    f0: _Floats = field(repr=False)
    energy: _Floats = field(repr=False)


def _difference(
    first: tuple[Contour, Contour], second: tuple[Contour, Contour], alignment: Alignment
) -> ContourDifference:
    """Return F0 and level of the second clip relative to the first at corresponding times."""
    times = np.arange(first[1].values.size, dtype=np.float64) * HOP_S
    second_times = np.asarray(np.interp(times, alignment.first, alignment.second), np.float64)
    pitch = 12.0 * np.log2(_at(second[0], second_times) / _at(first[0], times))
    return ContourDifference(times, pitch, _level(second[1], second_times) - _level(first[1], times))


def _level(contour: Contour, times_s: _Floats) -> _Floats:
    floor = contour.values.max(initial=-_DYNAMIC_DB) - _DYNAMIC_DB
    return _at(contour, times_s).clip(floor)


def _at(contour: Contour, times_s: _Floats) -> _Floats:
    """Return the values of the frames nearest to the given times, NaN if there are no frames."""
    if not contour.values.size:
        return np.full(times_s.shape, np.nan)
    indices = np.clip(np.round(times_s / HOP_S).astype(np.intp), 0, contour.values.size - 1)
    return np.asarray(contour.values[indices], np.float64)
