"""Comparison: two to eight clips side by side, as a value: gains, alignments, differences, measurements."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from voicelab.audio.clip import Clip
from voicelab.errors import MissingExtra, RequestInvalid
from voicelab.experiments.comparison.alignment import Alignment, align, in_step
from voicelab.experiments.comparison.contours import Difference, contours_of, difference
from voicelab.experiments.listening.stimuli import Matched, match_loudness
from voicelab.experiments.metrics.words import other_words
from voicelab.outputs import bundle, registered

if TYPE_CHECKING:
    import pandas as pd

    from voicelab.experiments.listening.design import Kind, ListeningTest

__all__ = ["MOST", "Comparison", "compare"]

MOST: Final = 8
"""Clips of one comparison: more than keys 1 to 8 are not told apart by ear either."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Clips by their names, in order. ``matched`` has them at one loudness, with the gains that it took."""

    clips: Mapping[str, Clip] = field(repr=False)

    def __post_init__(self) -> None:
        if not 2 <= len(self.clips) <= MOST:
            raise RequestInvalid.of("clips", f"a comparison has 2 to {MOST} clips, not {len(self.clips)}", in_="query")
        object.__setattr__(self, "clips", MappingProxyType(dict(self.clips)))

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} {clip.duration:.2f} s" for name, clip in self.clips.items())
        apart = "" if self.same_text else "; different texts, which run in step"
        return f"Comparison({listed}{apart})"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return bundle("comparison", self)

    def panel(self) -> Any:
        """Return the panel in which it is heard: shown as the last value of a notebook's cell.

        It comes from the group ``voicelab.display`` too, since nothing here knows widgets. Raises MissingExtra when
        what it needs is not installed.
        """
        panel = registered("comparison_panel")
        if panel is None:
            raise MissingExtra.of("notebook", "the panel of a comparison")
        return panel(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self.clips)

    @cached_property
    def matched(self) -> Matched:
        """The clips at one loudness (ITU-R BS.1770-4), nothing limited. Raises RequestInvalid for a clip without."""
        return match_loudness(self.clips)

    @cached_property
    def alignments(self) -> Mapping[str, Alignment]:
        """Where the moments of the first clip are in each other one, by its name; of another text, in step with it."""
        (_, first), *others = self.clips.items()
        told = {name: other_words(first, clip) for name, clip in others}
        return MappingProxyType(
            {name: in_step(first, clip, told[name]) if told[name] else align(first, clip) for name, clip in others}
        )

    @cached_property
    def contours(self) -> Mapping[str, Difference]:
        """How far pitch and level of each other clip are above the first one's, at the same word, by its name."""
        first, *others = map(contours_of, self.clips.values())
        found = zip(self.alignments.items(), others, strict=True)
        return MappingProxyType({name: difference(first, other, aligned) for (name, aligned), other in found})

    @property
    def same_text(self) -> bool:
        """Whether all say the same, as far as is known: clips that were loaded do not tell."""
        known = [clip for clip in self.clips.values() if clip.provenance is not None]
        return not any(other_words(known[0], clip) for clip in known[1:])

    def differences(self) -> pd.DataFrame:
        """Return the fields in which the clips' requests differ: a row for each, a column for each clip.

        Besides the fields of the request: model, backend, fingerprint, seed. None where a clip has no provenance.
        """
        import pandas as pd

        known = {name: _asked(clip) for name, clip in self.clips.items()}
        fields = list(dict.fromkeys(field for asked in known.values() for field in asked))
        every = {field: {name: asked.get(field) for name, asked in known.items()} for field in fields}
        differing = {field: row for field, row in every.items() if len({repr(value) for value in row.values()}) > 1}
        # As they are: a seed among floats is still a whole number.
        rows = [list(row.values()) for row in differing.values()]
        return pd.DataFrame(rows, index=list(differing), columns=list(self.names), dtype=object)

    def metrics(self, *names: str) -> pd.DataFrame:
        """Return measurements, a row for each clip, and the column ``undefined``: those of ``measure``.

        ``names`` chooses metrics; the basic ones and pitch when not given. Those that compare have the first clip for a
        reference; its own row says what they say of a clip and itself: an ``mcd`` of 0, a ``stoi`` of 1. Raises what
        ``measure`` does.
        """
        from voicelab.experiments.metrics import BASIC, measure

        chosen = names or (*BASIC, "f0_median", "f0_sd")
        clips = list(self.clips.values())
        frame = measure(clips, chosen, reference=clips[0])
        frame.index = list(self.names)
        return frame

    def listening_test(self, kind: Kind = "AB", *, name: str = "comparison", **options: Any) -> ListeningTest:
        """Return a blind test of these clips: one item. ``options`` are those of ListeningTest."""
        from voicelab.experiments.listening.design import ListeningTest

        return ListeningTest(name, kind, {"clips": dict(self.clips)}, **options)


def compare(*clips: Clip, **named: Clip) -> Comparison:
    """Compare clips: ``vl.compare(a, b)`` calls them A and B, ``vl.compare(cold=a, hot=b)`` by their names.

    Raises RequestInvalid for fewer than 2 or more than 8 clips, or for what is no Clip.
    """
    together = {**dict(zip(string.ascii_uppercase, clips, strict=False)), **named}
    if len(together) != len(clips) + len(named):
        raise RequestInvalid.of("clips", "a clip by keyword has the name of one without", in_="query")
    for name, clip in together.items():
        if not isinstance(clip, Clip):
            raise RequestInvalid.of(name, f"a comparison is of Clips, not of {type(clip).__name__}", in_="query")
    return Comparison(together)


def _asked(clip: Clip) -> dict[str, Any]:
    if clip.provenance is None:
        return {}
    request = clip.provenance.request.canonical()
    prosody = request.pop("prosody")
    beside = clip.provenance
    return {
        **request,
        "prosody.speed": prosody["speed"],
        "prosody.volume": prosody["volume"],
        "model": beside.model,
        "backend": beside.backend,
        "fingerprint": beside.fingerprint,
        "seed": beside.seed,
    }
