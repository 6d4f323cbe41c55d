"""ListeningTest: who is asked what about which sounds, in which order; blinded, balanced, and fixed by a seed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from voicelab.audio.clip import Clip
from voicelab.errors import FieldError, RequestInvalid
from voicelab.experiments.listening.stimuli import ANCHORS, TARGET_LUFS, anchor, match_loudness

__all__ = ["KINDS", "REFERENCE", "SCALES", "SPOILED", "Kind", "ListeningTest", "Stimulus", "Trial"]

Kind = Literal["AB", "ABX", "MOS", "CMOS", "MUSHRA"]
KINDS: Final[tuple[Kind, ...]] = ("AB", "ABX", "MOS", "CMOS", "MUSHRA")
REFERENCE: Final = "reference"
"""Name of the hidden reference of a MUSHRA test among the systems."""

SPOILED: Final = "buried in noise"
"""Name of the sound of an attention check that nobody who listens takes for good."""

SCALES: Final[Mapping[Kind, tuple[int, int]]] = MappingProxyType({"MOS": (1, 5), "CMOS": (-3, 3), "MUSHRA": (0, 100)})
"""Lowest and highest rating: ITU-T P.800 annexes B and E, ITU-R BS.1534."""

_QUESTIONS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "AB": "Which one do you prefer?",
        "ABX": "Is X the same as A or as B?",
        "MOS": "How do you rate the quality of the speech?",
        "CMOS": "How is the quality of the second compared with that of the first?",
        "MUSHRA": "Rate each against the reference; one of them is the reference itself.",
    }
)
# BS.1534-3 asks for no more than 12 signals in a trial, the reference and the anchors among them.
_MOST_IN_A_TRIAL: Final = 12
_LETTERS: Final = "ABCDEFGHIJKL"
_SPOILED_MOS: Final = 2


@dataclass(frozen=True, slots=True)
class Stimulus:
    """A sound as a listener meets it: ``id`` says nothing about what it is; ``system`` and ``item`` do."""

    id: str
    system: str
    item: str
    clip: Clip = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Trial:
    """One question to one listener. ``slots`` have the letters under which the sounds are shown, in order.

    AB and CMOS have A and B; ABX has A, B and X, where X is one of the two; MOS has A; MUSHRA has one for each
    system, its anchors and the hidden reference, beside the open ``reference``. A ``check`` has a sound buried
    in noise: it tells whether the listener listens, and counts for nothing else.
    """

    id: str
    kind: Kind
    item: str
    slots: Mapping[str, Stimulus]
    reference: Stimulus | None = None
    check: bool = False

    @property
    def answer(self) -> str | None:
        """The right letter: of an ABX trial, and of a check by letters; None where taste decides."""
        if self.kind == "ABX":
            return "A" if self.slots["X"].system == self.slots["A"].system else "B"
        if self.check and self.kind == "AB":
            return "B" if self.slots["A"].system == SPOILED else "A"
        return None

    def passed(self, answer: str | float) -> bool:
        """Whether a check was answered as by somebody who listens; of other trials always."""
        if not self.check:
            return True
        if self.answer is not None:
            return answer == self.answer
        rating = float(answer)
        if self.kind == "MOS":
            return rating <= _SPOILED_MOS
        # CMOS rates the second against the first.
        return rating > 0 if self.slots["A"].system == SPOILED else rating < 0


@dataclass(frozen=True)
class ListeningTest:
    """A listening test, complete before anybody is asked.

    Args:
        name: what it is called.
        kind: AB, ABX, MOS (ACR), CMOS or MUSHRA.
        items: by its name, what is said: the clips of all systems, by their names. Lengths and rates may differ.
        references: for MUSHRA, the clip of each item that the others are rated against.
        seed: decides every order; the same for ever.
        question: what is asked.
        lufs: the loudness that all clips of an item are brought to; None leaves them as they are.
        checks: attention checks for each listener, spread over the test: one of the sounds is buried in noise, so
            that the answer is plain. MUSHRA has none: there the hidden reference and the anchors tell.

    Raises RequestInvalid: an item without one of the systems, fewer systems than the kind needs, no reference
    where it is needed, sounds whose loudness cannot be matched.
    """

    name: str
    kind: Kind
    items: Mapping[str, Mapping[str, Clip]] = field(repr=False)
    references: Mapping[str, Clip] = field(default_factory=dict, repr=False)
    seed: int = 0
    question: str = ""
    lufs: float | None = TARGET_LUFS
    checks: int = 0
    gains: Mapping[str, Mapping[str, float]] = field(init=False, repr=False, compare=False)
    _stimuli: Mapping[tuple[str, str], Stimulus] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        sounds, gains = {}, {}
        for item, clips in self.items.items():
            heard = dict(clips)
            if self.kind == "MUSHRA":
                heard[REFERENCE] = self.references[item]
                heard |= _anchors(item, heard[REFERENCE])
            if self.lufs is not None:
                matched = _matched(item, heard, self.lufs)
                heard, gains[item] = dict(matched.clips), matched.gains
            for system, clip in heard.items():
                sounds[item, system] = Stimulus(self._blind(item, system), system, item, clip)
        object.__setattr__(self, "question", self.question or _QUESTIONS[self.kind])
        object.__setattr__(self, "gains", MappingProxyType(gains))
        object.__setattr__(self, "_stimuli", MappingProxyType(sounds))

    @property
    def systems(self) -> tuple[str, ...]:
        """The names of what is compared, in the order in which they were given."""
        return tuple(next(iter(self.items.values())))

    @property
    def sounds(self) -> tuple[Stimulus, ...]:
        """Every sound of every item once: the systems', and of MUSHRA the reference and the anchors."""
        return tuple(self._stimuli.values())

    @property
    def stimuli(self) -> Mapping[str, Stimulus]:
        """Every sound by its blind id, those of attention checks among them."""
        sounds = list(self._stimuli.values())
        if self.checks:
            sounds += [self._spoiled(sound) for sound in sounds]
        if self.kind in {"ABX", "MUSHRA"}:
            sounds += [self._again(sound) for sound in sounds]
        return {stimulus.id: stimulus for stimulus in sounds}

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of systems that AB, ABX and CMOS compare: all of them."""
        return tuple(itertools.combinations(self.systems, 2))

    def trials(self, listener: int) -> tuple[Trial, ...]:
        """Return what the listener of this number (from 0) is asked, in order; always the same for a seed.

        Orders are drawn for each listener; which of a pair comes first alternates over listeners, items and pairs:
        every two listeners in a row are balanced, and a listener hears each pair either way round, as often as the
        number of items allows. The systems of MOS follow a Latin square over listeners.
        Raises RequestInvalid when ``listener`` is no whole number from 0.
        """
        if type(listener) is not int or listener < 0:
            raise RequestInvalid.of("listener", "Input should be a whole number from 0")
        draw = np.random.default_rng((self.seed, listener))
        if self.kind == "MOS":
            order = self._single(listener, draw)
        else:
            trials = self._mushra(draw) if self.kind == "MUSHRA" else self._pairwise(listener, draw)
            order = [trials[place] for place in draw.permutation(len(trials))]
        checks = self._attention(draw)
        for number, check in enumerate(checks, start=1):
            order.insert(round(number * (len(order) + 1) / (len(checks) + 1)), check)
        return tuple(replace(trial, id=f"{listener}-{place}") for place, trial in enumerate(order))

    def to_record(self) -> dict[str, Any]:
        """Return the design as a JSON-able object: what a paper has to tell, without the sounds."""
        return {
            "name": self.name,
            "kind": self.kind,
            "question": self.question,
            "items": list(self.items),
            "systems": list(self.systems),
            "seed": self.seed,
            "lufs": self.lufs,
            "checks": self.checks,
            "gains_db": {item: dict(gains) for item, gains in self.gains.items()},
        }

    def _pairwise(self, listener: int, draw: np.random.Generator) -> list[Trial]:
        trials = []
        for (row, item), (place, pair) in itertools.product(enumerate(self.items), enumerate(self.pairs)):
            # Listeners 0 and 1 hear a pair the two ways round, and so does a listener in two items in a row.
            first, second = pair if (listener + row + place + self.seed) % 2 == 0 else pair[::-1]
            slots = {"A": self._stimuli[item, first], "B": self._stimuli[item, second]}
            if self.kind == "ABX":
                slots["X"] = self._again(slots["AB"[int(draw.integers(2))]])
            trials.append(Trial("", self.kind, item, slots))
        return trials

    def _single(self, listener: int, draw: np.random.Generator) -> list[Trial]:
        systems = self.systems
        rows = []
        for place, item in enumerate(self.items):
            shift = (listener + place) % len(systems)
            rows.append([(item, systems[(step + shift) % len(systems)]) for step in range(len(systems))])
        # A round has every item once: the same sentence never comes twice in a row, as P.800 asks.
        asked: list[tuple[str, str]] = []
        for step in range(len(systems)):
            order = draw.permutation(len(rows))
            if asked and len(rows) > 1 and rows[order[0]][0][0] == asked[-1][0]:
                order = np.roll(order, 1)
            asked += [rows[place][step] for place in order]
        return [Trial("", "MOS", item, {"A": self._stimuli[item, system]}) for item, system in asked]

    def _mushra(self, draw: np.random.Generator) -> list[Trial]:
        trials = []
        for item in self.items:
            names = [*self.systems, REFERENCE, *ANCHORS]
            shown = [names[place] for place in draw.permutation(len(names))]
            slots = {letter: self._stimuli[item, name] for letter, name in zip(_LETTERS, shown, strict=False)}
            trials.append(Trial("", "MUSHRA", item, slots, reference=self._again(self._stimuli[item, REFERENCE])))
        return trials

    def _attention(self, draw: np.random.Generator) -> list[Trial]:
        checks = []
        sounds = list(self._stimuli.values())
        for _ in range(self.checks):
            clean = sounds[int(draw.integers(len(sounds)))]
            spoiled = self._spoiled(clean)
            if self.kind == "MOS":
                slots = {"A": spoiled}
            else:
                pair = (clean, spoiled) if draw.integers(2) else (spoiled, clean)
                slots = dict(zip("AB", pair, strict=True))
            if self.kind == "ABX":
                slots["X"] = self._again(slots["AB"[int(draw.integers(2))]])
            checks.append(Trial("", self.kind, clean.item, slots, check=True))
        return checks

    def _spoiled(self, clean: Stimulus) -> Stimulus:
        """Bury a sound in noise, always the same: at half the level it was, so that it does not startle."""
        sound = clean.clip.samples
        level = float(np.sqrt(np.mean(np.square(sound, dtype=np.float64))))
        noise = np.random.default_rng(self.seed).standard_normal(sound.size) * level
        samples = np.clip(0.25 * sound + 0.5 * noise, -1.0, 1.0).astype(np.float32)
        name = f"{clean.system}\0{SPOILED}"
        return Stimulus(self._blind(clean.item, name), SPOILED, clean.item, replace(clean.clip, samples=samples))

    def _again(self, sound: Stimulus) -> Stimulus:
        """Return the same sound under another id, so that ids do not tell which letters are the same."""
        return replace(sound, id=self._blind(sound.item, f"{sound.id}\0again"))

    def _blind(self, item: str, system: str) -> str:
        return hashlib.sha256(f"{self.seed}\0{self.name}\0{item}\0{system}".encode()).hexdigest()[:16]

    def _check(self) -> None:
        if self.kind not in KINDS:
            raise RequestInvalid.of("kind", f"{self.kind!r} is none of {', '.join(KINDS)}", type="literal_error")
        if not self.items:
            raise RequestInvalid.of("items", "there is nothing to listen to", type="too_short")
        systems = list(self.systems)
        least = 1 if self.kind in {"MOS", "MUSHRA"} else 2
        if len(systems) < least:
            raise RequestInvalid.of("items", f"{self.kind} compares {least} systems or more", type="too_short")
        troubles = []
        for item, clips in self.items.items():
            if set(clips) != set(systems):
                message = (
                    f"item {item!r} has {', '.join(sorted(clips)) or 'nothing'}; the first has {', '.join(systems)}"
                )
                troubles.append(FieldError(("body", "items"), "systems_differ", message))
            if self.kind == "MUSHRA" and item not in self.references:
                message = f"item {item!r} has no reference, which MUSHRA rates against"
                troubles.append(FieldError(("body", "references"), "missing", message))
        if self.kind == "MUSHRA":
            taken = sorted({REFERENCE, *ANCHORS} & set(systems))
            if taken:
                troubles.append(FieldError(("body", "items"), "name_taken", f"{taken[0]!r} is added by itself"))
            if len(systems) + 1 + len(ANCHORS) > _MOST_IN_A_TRIAL:
                message = f"a trial has at most {_MOST_IN_A_TRIAL} sounds, the reference and two anchors among them"
                troubles.append(FieldError(("body", "items"), "too_long", message))
        if self.checks and self.kind == "MUSHRA":
            message = "a MUSHRA test has its hidden reference and anchors to tell who listens"
            troubles.append(FieldError(("body", "checks"), "unsupported", message))
        if type(self.checks) is not int or self.checks < 0:
            troubles.append(FieldError(("body", "checks"), "int_type", "Input should be a whole number from 0"))
        if type(self.seed) is not int or self.seed < 0:
            troubles.append(FieldError(("body", "seed"), "int_type", "Input should be a whole number from 0"))
        if troubles:
            raise RequestInvalid(troubles)


def _anchors(item: str, reference: Clip) -> dict[str, Clip]:
    try:
        return {name: anchor(reference, cutoff) for name, cutoff in ANCHORS.items()}
    except RequestInvalid as error:
        raise RequestInvalid.of("references", f"{item!r}: {error.errors[0].msg}") from error


def _matched(item: str, clips: Mapping[str, Clip], lufs: float) -> Any:
    try:
        return match_loudness(clips, lufs)
    except RequestInvalid as error:
        (first,) = error.errors
        raise RequestInvalid.of("items", f"{item!r} by {first.field!r}: {first.msg}") from error
