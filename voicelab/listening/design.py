"""ListeningTest: trials, their order and their sounds at one loudness; blinded, balanced, fixed by a seed."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from voicelab.audio.samples import resample
from voicelab.clip import Clip
from voicelab.errors import ArgumentError
from voicelab.listening.blocks import block_of, check_connected
from voicelab.listening.plan import Plan
from voicelab.metrics.level import loudness, true_peak
from voicelab.metrics.metric import Subject, Undefined
from voicelab.stats.estimate import one_of, whole

Kind = Literal["AB", "ABX", "MOS", "CMOS", "MUSHRA"]
KINDS: Final[tuple[Kind, ...]] = ("AB", "ABX", "MOS", "CMOS", "MUSHRA")
REFERENCE: Final = "reference"
"""Name of the hidden reference of a MUSHRA test among the systems."""

SPOILED: Final = "buried in noise"
"""Name of the sound of an attention check, which an attentive listener rates as bad."""

SCALES: Final[Mapping[Kind, tuple[int, int]]] = {"MOS": (1, 5), "CMOS": (-3, 3), "MUSHRA": (0, 100)}
"""Lowest and highest rating: ITU-T P.800 annexes B and E, ITU-R BS.1534."""

SETTINGS: Final = ("name", "kind", "question", "seed", "lufs", "checks", "instructions", "training", "per_listener")
"""What a test is made with besides sounds."""

TEST_OPTIONS: Final = (*(name for name in SETTINGS if name not in {"name", "kind"}), "traps")
"""Options of a test beside its name, kind and items."""

_QUESTIONS: Final[Mapping[Kind, str]] = {
    "AB": "Which one do you prefer?",
    "ABX": "Is X the same as A or as B?",
    "MOS": "How do you rate the quality of the speech?",
    "CMOS": "How is the quality of the second compared with that of the first?",
    "MUSHRA": "Rate each against the reference; one of them is the reference itself.",
}
# BS.1534-3 asks for no more than 12 signals in a trial, the reference and the anchors among them.
_MOST_IN_A_TRIAL: Final = 12
_LETTERS: Final = "ABCDEFGHIJKL"
_SPOILED_MOS: Final = 2
_TRIES: Final = 50

_ORDER: Final = 3
"""Raised when the same design asks other trials, or in another order: votes are kept by the places of their trials."""

TARGET_LUFS: Final = -23.0
"""Loudness that clips are brought to where their peaks allow: EBU R 128's."""

ANCHORS: Final = {"anchor35": 3500.0, "anchor70": 7000.0}
"""The anchors of Recommendation ITU-R BS.1534-3: names, and the ends of their pass-bands in Hz."""

_CEILING: Final = -1.0
"""dBTP that no clip is raised above."""


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
    in noise, or one that says which rating is ``wanted``: it tells whether the listener listens, and counts for nothing else.
    """

    id: str
    kind: Kind
    item: str
    slots: Mapping[str, Stimulus]
    reference: Stimulus | None = None
    check: bool = False
    wanted: int | None = None

    @property
    def answer(self) -> str | None:
        """The right letter: of an ABX trial, and of a check by letters; None where taste decides."""
        if self.kind == "ABX":
            return "A" if self.slots["X"].system == self.slots["A"].system else "B"
        if self.check and self.kind == "AB":
            return "B" if self.slots["A"].system == SPOILED else "A"
        return None

    def passed(self, answer: str | float) -> bool:
        """Whether a check was answered as an attentive listener would; of other trials always."""
        if not self.check:
            return True
        if self.answer is not None:
            return answer == self.answer
        rating = float(answer)
        if self.wanted is not None:
            return rating == self.wanted
        if self.kind == "MOS":
            return rating <= _SPOILED_MOS
        # CMOS rates the second against the first.
        return rating > 0 if self.slots["A"].system == SPOILED else rating < 0


@dataclass(frozen=True)
class ListeningTest:
    """A listening test, complete before the first listener.

    Args:
        name: what it is called. Listeners read it, so it names no system.
        kind: AB, ABX, MOS (ACR), CMOS or MUSHRA.
        items: by its name, what is said: the clips of all systems, by their names. Lengths and rates may differ.
        references: for MUSHRA, the clip of each item that the others are rated against.
        seed: decides every order; the same for ever.
        question: what is asked.
        lufs: the loudness that all clips of an item are brought to; None leaves them as they are.
        checks: attention checks for each listener, spread over the test: one of the sounds is buried in noise, so
            that the answer is plain. MUSHRA has none: there the hidden reference and the anchors tell.
        instructions: what listeners read before they begin; each line is a paragraph. "" says what the kind of test needs.
        training: trials to practise on before the first, whose answers are not kept: with them listeners hear what
            differences to expect. ITU-R BS.1534 and ITU-T P.800 ask for it; 0 for none. As many as there are systems, or
            of pairs half as many, play all of them; MUSHRA's have the anchors.
        per_listener: items that each listener hears, with all systems, in balanced incomplete blocks; 0 for all items.
        traps: of MOS and CMOS, for each listener: sounds in which a voice says which answer to choose, by that answer.

    Raises ArgumentError: an item without one of the systems, fewer systems than the kind needs, no reference
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
    instructions: str = field(default="", repr=False)
    training: int = field(default=0, repr=False)
    per_listener: int = field(default=0, repr=False)
    traps: Mapping[int, Clip] = field(default_factory=dict, repr=False)
    gains: Mapping[str, Mapping[str, float]] = field(init=False, repr=False, compare=False)
    _stimuli: Mapping[tuple[str, str], Stimulus] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        heard: dict[str, Mapping[str, Clip]] = dict(self.items)
        if self.kind == "MUSHRA":
            heard = {
                item: {**clips, REFERENCE: self.references[item], **_anchors(item, self.references[item])}
                for item, clips in self.items.items()
            }
        heard |= {f"trap {wanted}": {SPOILED: clip} for wanted, clip in self.traps.items()}
        levels = {} if self.lufs is None else {item: _matched(item, clips, self.lufs) for item, clips in heard.items()}
        sounds = {
            (item, system): Stimulus(self._blind(item, system), system, item, clip)
            for item, clips in heard.items()
            for system, clip in (levels[item].clips if item in levels else clips).items()
        }
        gains = {item: levels[item].gains for item in self.items if item in levels}
        object.__setattr__(self, "question", self.question or _QUESTIONS[self.kind])
        object.__setattr__(self, "gains", MappingProxyType(gains))
        object.__setattr__(self, "_stimuli", MappingProxyType(sounds))

    @property
    def systems(self) -> tuple[str, ...]:
        """The names of what is compared, in the order in which they were given."""
        return tuple(next(iter(self.items.values())))

    @property
    def sounds(self) -> tuple[Stimulus, ...]:
        """Every sound of every item once: the systems', and of MUSHRA the reference and the anchors; then the traps'."""
        return tuple(self._stimuli.values())

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of systems that AB, ABX and CMOS compare: all of them."""
        return tuple(itertools.combinations(self.systems, 2))

    def trials(self, listener: int) -> tuple[Trial, ...]:
        """Return what the listener of this number (from 0) is asked, in order; always the same for a seed.

        Orders are drawn for each listener; which of a pair comes first alternates over listeners, items and pairs:
        every two listeners of an item in a row are balanced, and who hears all items hears each pair either way round, as
        often as their number allows. X is A for one half of a listener's trials of ABX, of those that begin with a pair's
        first system and of the others alike. The systems of MOS come in blocks, each of them once in a block, by the
        rows of a Williams square (E. J. Williams, 1949), so that over listeners each follows each other equally often.
        Raises ArgumentError when ``listener`` is no whole number from 0.
        """
        whole(listener, "listener", 0)
        draw = np.random.default_rng((self.seed, listener))
        order = self._order(listener, draw)
        checks = self._attention(draw)
        for number, check in enumerate(checks, start=1):
            order.insert(round(number * (len(order) + 1) / (len(checks) + 1)), check)
        return tuple(replace(trial, id=f"{listener}-{place}") for place, trial in enumerate(order))

    def training_trials(self, listener: int) -> tuple[Trial, ...]:
        """Return what the listener practises on before ``trials``: as in the test, in an order of its own.

        It plays the range of quality, as ITU-T P.800 and ITU-R BS.1534 ask for: systems that are called as MUSHRA calls its
        reference and anchors come first, then those that were heard least, until each was heard.
        """
        left = self._order(listener, np.random.default_rng((self.seed, listener, 1)))
        heard, chosen = Counter[str](), list[Trial]()

        def times_heard(trial: Trial) -> tuple[int, int]:
            systems = _systems_in(trial)
            return sum(heard[system] for system in systems), -len(systems & {REFERENCE, *ANCHORS})

        while left and len(chosen) < self.training:
            new = min(left, key=times_heard)
            left.remove(new)
            heard.update(_systems_in(new))
            chosen.append(replace(new, id=f"{listener}-training{len(chosen)}"))
        return tuple(chosen)

    def to_record(self) -> dict[str, Any]:
        """Return the design as a JSON-able object: what a paper has to tell, without the sounds."""
        gains = {item: dict(gains) for item, gains in self.gains.items()}
        record: dict[str, Any] = {name: getattr(self, name) for name in SETTINGS}
        record |= {"items": list(self.items), "systems": list(self.systems)}
        return record | {"traps": sorted(self.traps), "gains_db": gains}

    @property
    def digest(self) -> str:
        """SHA-256 of the design, by which votes belong to it: what is asked in which order; of sounds the names alone."""
        record = {
            **self.to_record(),
            "order": _ORDER,
            "gains_db": None,
        }  # another machine may measure other last digits
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

    def register(
        self, path: str | Path, *, hypothesis: str, primary: tuple[str, str], listeners: int, **more: Any
    ) -> Plan:
        """Write down what will be tested before anybody is asked; ``analyze(…, plan=path)`` holds the study to it.

        The TOML file has all that ``Plan`` takes (``more``: claim, margin, alpha, exclusions, stopping), this test's design,
        the time, and a digest of it all, which shows a later change; deposit the digest where others can see its date. Raises
        ArgumentError for a plan that makes no sense, or whose listeners leave items unconnected, StoreError where a file is
        there already.
        """
        check_connected(listeners, tuple(self.items), self.per_listener or len(self.items), self.seed)
        if not set(primary) <= set(self.systems) or len(set(primary)) != 2:
            raise ArgumentError.of("primary", f"Input should be two of {', '.join(self.systems)}")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        design = json.loads(json.dumps(self.to_record()))
        plan = Plan(hypothesis, (primary[0], primary[1]), listeners, **more, design=design, registered=now)
        plan.save(path)
        return plan

    def _order(self, listener: int, draw: np.random.Generator) -> list[Trial]:
        if self.kind == "MOS":
            return self._single(listener, draw)
        trials = self._mushra(listener, draw) if self.kind == "MUSHRA" else self._pairwise(listener, draw)
        return [trials[place] for place in draw.permutation(len(trials))]

    def _heard(self, listener: int) -> dict[str, tuple[int, int]]:
        """Return the items that the listener hears: of each its row, and how many listeners heard it before."""
        names = list(self.items)
        block = block_of(listener, len(names), self.per_listener or len(names), self.seed)
        return {names[row]: (row, turn) for row, turn in block.items()}

    def _pairwise(self, listener: int, draw: np.random.Generator) -> list[Trial]:
        trials = []
        heard = self._heard(listener).items()
        for (item, (row, turn)), (place, pair) in itertools.product(heard, enumerate(self.pairs)):
            # The first two listeners of an item hear a pair the two ways round, and so does a listener in two items in a row.
            first, second = pair if (turn + row + place + self.seed) % 2 == 0 else pair[::-1]
            slots = {"A": self._stimuli[item, first], "B": self._stimuli[item, second]}
            trials.append(Trial("", self.kind, item, slots))
        return self._with_x(trials, draw) if self.kind == "ABX" else trials

    def _with_x(self, trials: Sequence[Trial], draw: np.random.Generator) -> list[Trial]:
        """Add X to ABX: each letter as often as the other, of the pairs that are one way round and of the others."""
        places = self.systems.index
        both = [tuple(places(trial.slots[letter].system) for letter in "AB") for trial in trials]
        given = [place for place, (one, two) in enumerate(both) if one < two]
        turned = [place for place in range(len(trials)) if place not in given]
        # An odd one out in both is A in one of them and B in the other.
        odd = "AB"[int(draw.integers(2))]
        complete = list(trials)
        for group, last in ((given, odd), (turned, "B" if odd == "A" else "A")):
            letters = ["A", "B"] * (len(group) // 2) + [last] * (len(group) % 2)
            for place, letter in zip(group, draw.permutation(letters), strict=True):
                slots = trials[place].slots
                complete[place] = replace(trials[place], slots={**slots, "X": self._again(slots[str(letter)])})
        return complete

    def _single(self, listener: int, draw: np.random.Generator) -> list[Trial]:
        """MOS: a block of all systems for each item there is; which sentences stand in it is drawn."""
        square = _williams(len(self.systems))
        names = list(self._heard(listener))
        rows: list[int] = []
        drawn: list[int] | None = None
        # Of few sentences, some rows after one another would say a sentence twice in a row: then others follow.
        for stride, _ in itertools.product(range(1, len(square) + 1), range(_TRIES)):
            turns = [(listener + block * stride) % len(square) for block in range(len(names))]
            rows = [system for turn in turns for system in square[turn]]
            drawn = _sentences(rows, len(names), draw)
            if drawn is not None:
                break
        if drawn is None:  # one sentence
            drawn = [place // len(self.systems) for place in range(len(rows))]
        sequence = [(names[item], self.systems[system]) for item, system in zip(drawn, rows, strict=True)]
        return [Trial("", "MOS", item, {"A": self._stimuli[item, system]}) for item, system in sequence]

    def _mushra(self, listener: int, draw: np.random.Generator) -> list[Trial]:
        trials = []
        for item in self._heard(listener):
            names = [*self.systems, REFERENCE, *ANCHORS]
            shown = [names[place] for place in draw.permutation(len(names))]
            slots = {letter: self._stimuli[item, name] for letter, name in zip(_LETTERS, shown, strict=False)}
            trials.append(Trial("", "MUSHRA", item, slots, reference=self._again(self._stimuli[item, REFERENCE])))
        return trials

    def _attention(self, draw: np.random.Generator) -> list[Trial]:
        checks = []
        sounds = self._clean()
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
        for wanted in self.traps:
            trap = self._stimuli[f"trap {wanted}", SPOILED]
            slots = {"A": trap} if self.kind == "MOS" else {"A": trap, "B": self._again(trap)}
            checks.append(Trial("", self.kind, trap.item, slots, check=True, wanted=wanted))
        return [checks[place] for place in draw.permutation(len(checks))] if self.traps else checks

    def _clean(self) -> list[Stimulus]:
        return [sound for sound in self._stimuli.values() if sound.system != SPOILED]

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
        one_of(self.kind, "kind", KINDS)
        if not self.items:
            raise ArgumentError.of("items", "there is nothing to listen to")
        systems = list(self.systems)
        least = 1 if self.kind in {"MOS", "MUSHRA"} else 2
        if len(systems) < least:
            raise ArgumentError.of("items", f"{self.kind} compares {least} systems or more")
        for item, clips in self.items.items():
            if set(clips) != set(systems):
                names = ", ".join(sorted(clips)) or "nothing"
                raise ArgumentError.of("items", f"item {item!r} has {names}; the first has {', '.join(systems)}")
            if self.kind == "MUSHRA" and item not in self.references:
                raise ArgumentError.of("references", f"item {item!r} has no reference, which MUSHRA rates against")
        if self.kind == "MUSHRA":
            taken = sorted({REFERENCE, *ANCHORS} & set(systems))
            if taken:
                raise ArgumentError.of("items", f"MUSHRA adds {taken[0]!r} itself: no system can have that name")
            if len(systems) + 1 + len(ANCHORS) > _MOST_IN_A_TRIAL:
                message = f"a trial has at most {_MOST_IN_A_TRIAL} sounds, the reference and two anchors among them"
                raise ArgumentError.of("items", message)
            if self.checks:
                raise ArgumentError.of("checks", "MUSHRA has its hidden reference and anchors to show who listens")
        for name in ("checks", "seed", "training", "per_listener"):
            object.__setattr__(self, name, whole(getattr(self, name), name, 0))
        if self.per_listener > len(self.items):
            raise ArgumentError.of("per_listener", f"there are {len(self.items)} items")
        low, high = SCALES[self.kind] if self.kind in {"MOS", "CMOS"} else (1, 0)
        for wanted in self.traps:
            if type(wanted) is not int or not low <= wanted <= high:
                raise ArgumentError.of("traps", f"{wanted!r} is no rating of {self.kind}")


def _systems_in(trial: Trial) -> set[str]:
    return {sound.system for sound in trial.slots.values()}


def _williams(count: int) -> list[list[int]]:
    """Return orders of ``count`` systems, in which each follows each other equally often: twice as many where it is odd."""
    zigzag = [(place + 1) // 2 if place % 2 else (count - place // 2) % count for place in range(count)]
    rows = [[(system + shift) % count for system in zigzag] for shift in range(count)]
    return rows if count % 2 == 0 or count == 1 else [*rows, *(row[::-1] for row in rows)]


def _sentences(systems: Sequence[int], count: int, draw: np.random.Generator) -> list[int] | None:
    """Return which of ``count`` sentences each system says in turn: each of them once, no sentence twice in a row.

    None when this draw ends where only the last sentence is left.
    """
    left = {system: set(range(count)) for system in systems}
    said = [-1]
    for system in systems:
        choice = sorted(left[system] - {said[-1]})
        if not choice:
            return None
        said.append(choice[int(draw.integers(len(choice)))])
        left[system].remove(said[-1])
    return said[1:]


def blind_wav(clip: Clip, id: str, rate: int, length: int) -> bytes:
    """Return a 16-bit WAV file of ``length`` samples: silence to the end, and noise of half a bit that the id decides.

    So neither the size nor a digest of the file says which sounds are the same.
    """
    sound = np.zeros(length)
    samples = resample(clip.samples, clip.rate, rate)
    sound[: min(samples.size, length)] = samples[:length]
    noise = np.random.default_rng(list(id.encode())).uniform(-0.5, 0.5, length)
    return wav_bytes(np.clip(np.round(sound * 32767 + noise), -32768, 32767).astype(np.int16), rate)


def wav_bytes(samples: np.ndarray[Any, Any], rate: int) -> bytes:
    """Return samples (n,) or (n, channels) as a WAV file of any rate, floats as the floats that they are."""
    from scipy.io import wavfile

    file = io.BytesIO()
    wavfile.write(file, rate, samples)
    return file.getvalue()


def _anchors(item: str, reference: Clip) -> dict[str, Clip]:
    try:
        return {name: anchor(reference, cutoff) for name, cutoff in ANCHORS.items()}
    except ArgumentError as error:
        raise ArgumentError.of("references", f"{item!r}: {error}") from error


def _matched(item: str, clips: Mapping[str, Clip], lufs: float) -> MatchedClips:
    matched = match_loudness(clips, lufs)
    for name, reason in matched.unmatched.items():
        raise ArgumentError.of("items", f"{item!r} by {name!r}: its loudness cannot be matched: {reason}")
    return matched


@dataclass(frozen=True, slots=True)
class MatchedClips:
    """Clips at one loudness: ``gains`` in dB, ``lufs`` their common loudness.

    ``unmatched`` has the reason for each clip without a loudness; it is among ``clips`` unchanged, without a gain.
    """

    clips: Mapping[str, Clip]
    gains: Mapping[str, float]
    lufs: float
    unmatched: Mapping[str, str] = field(default_factory=dict)


def match_loudness(clips: Mapping[str, Clip], lufs: float = TARGET_LUFS) -> MatchedClips:
    """Bring clips to the same integrated loudness (ITU-R BS.1770-4) by one gain each.

    To ``lufs``, or lower where a clip's true peak would rise above -1 dBTP: all go down together, nothing is
    limited. A clip whose loudness is not defined (shorter than 0.4 s, or silent) is left as it is, and the others matched.
    """
    measured: dict[str, float] = {}
    unmatched: dict[str, str] = {}
    rooms: list[float] = [lufs]
    for name, clip in clips.items():
        subject = Subject(clip)
        try:
            level = loudness(subject)
            rooms.append(level + _CEILING - true_peak(subject))
            measured[name] = level
        except Undefined as error:
            unmatched[name] = str(error)
    target = min(rooms)
    gains = {name: target - level for name, level in measured.items()}
    amplified = {
        name: replace(clip, samples=(clip.samples * np.float32(10.0 ** (gains[name] / 20.0))).clip(-1.0, 1.0))
        if name in gains
        else clip
        for name, clip in clips.items()
    }
    return MatchedClips(amplified, gains, target, unmatched)


def anchor(clip: Clip, cutoff: float) -> Clip:
    """Return the clip low-passed for use as an anchor: Recommendation ITU-R BS.1534-3 (2015), section 5.1.

    Pass-band to ``cutoff`` Hz with at most 0.1 dB of ripple; at 8/7 of it at least 25 dB down, at 9/7 at least 50
    (for 3.5 kHz: at 4 and 4.5 kHz). A linear-phase filter whose delay is taken out. Raises ArgumentError when
    the clip's rate leaves nothing to take away.
    """
    from scipy.signal import fftconvolve, firwin, kaiserord

    if cutoff * 9 / 7 >= clip.rate / 2:
        message = f"a clip of {clip.rate} Hz has nothing above {cutoff * 9 / 7:.0f} Hz to take away"
        raise ArgumentError.of("clip", message)
    # 60 dB at the end of the transition, which ends where 25 dB are asked for; its ripple is then far below 0.1 dB.
    width = cutoff / 7
    taps, beta = kaiserord(60.0, 2 * width / clip.rate)
    taps |= 1  # odd: a whole number of samples of delay
    kernel = firwin(taps, cutoff + width / 2, window=("kaiser", beta), fs=clip.rate)
    filtered = fftconvolve(clip.samples.astype(np.float64), kernel, mode="full")
    half = taps // 2
    return replace(clip, samples=np.clip(filtered[half : half + len(clip)], -1.0, 1.0).astype(np.float32))
