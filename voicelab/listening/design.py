"""Design of a listening test: blinded and balanced trials of loudness-matched sounds, in a seeded order."""

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
from typing import Any, Final, Literal, get_args

import numpy as np

from voicelab.asr.normalization import words_correct
from voicelab.audio.samples import resample
from voicelab.clip import Clip
from voicelab.errors import ArgumentError
from voicelab.listening.blocks import block_of, check_connected
from voicelab.listening.plan import Plan
from voicelab.metrics.level import amplified_levels, loudness, true_peak
from voicelab.metrics.metric import Results, Subject, Undefined
from voicelab.stats.estimate import between, one_of, whole

Kind = Literal["AB", "ABX", "MOS", "SMOS", "DMOS", "CMOS", "MUSHRA", "MUSHRA-NMR", "BWS", "transcription"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
SINGLE: Final = ("MOS", "SMOS", "DMOS")
"""Kinds with one rated sound per trial."""

MULTIPLE: Final = ("MUSHRA", "MUSHRA-NMR", "BWS")
"""Kinds with several rated sounds per trial."""

BY_SYSTEM: Final = (*SINGLE, *MULTIPLE, "transcription")
"""Kinds in which single systems are rated; the other kinds compare pairs of systems."""

SCALED: Final = (*SINGLE, "CMOS", "MUSHRA", "MUSHRA-NMR")
"""Kinds whose sounds may be rated on several scales."""

WITH_REFERENCE: Final = ("SMOS", "DMOS", "MUSHRA")
"""Kinds whose trials have an open (labeled) reference."""

REFERENCE: Final = "reference"
"""System name of the reference of an item."""

NOISE_MASKED: Final = "buried in noise"
"""System name of the noise-masked sound of an attention check."""

SCALES: Final[Mapping[Kind, tuple[int, int]]] = {
    "MOS": (1, 5), "SMOS": (1, 5), "DMOS": (1, 5), "CMOS": (-3, 3), "MUSHRA": (0, 100),
    "MUSHRA-NMR": (0, 100), "BWS": (-1, 1), "transcription": (0, 100),
}  # fmt: skip
"""Minimum and maximum rating by kind, from ITU-T P.800 (annexes B, D and E) and ITU-R BS.1534. SMOS uses the scale of
MOS. In BWS the best sound of a trial is scored 1, the worst -1, and the others 0. A transcription is scored by its
percentage of correct words."""

SETTINGS: Final = ("name", "kind", "question", "seed", "lufs", "checks", "instructions", "training", "per_listener")
"""Fields of a test other than its sounds."""

MAPPINGS: Final = ("scales", "texts")
"""Fields that map names to text. The record of a test omits them if they are empty."""

TEST_OPTIONS: Final = (*(name for name in SETTINGS if name not in {"name", "kind"}), "traps", *MAPPINGS)
"""Options of a test other than name, kind and items."""

_QUESTIONS: Final[Mapping[Kind, str]] = {
    "AB": "Which one do you prefer?",
    "ABX": "Is X the same as A or as B?",
    "MOS": "How do you rate the quality of the speech?",
    "SMOS": "Is the speaker of A the same as the speaker of the reference?",
    "DMOS": "How do you rate the degradation of A compared with the reference?",
    "CMOS": "How is the quality of the second compared with that of the first?",
    "MUSHRA": "Rate each against the reference; one of them is the reference itself.",
    "MUSHRA-NMR": "How do you rate the quality of each?",
    "BWS": "Which one is the best, and which one is the worst?",
    "transcription": "Type the words that you hear.",
}
_SCALES_QUESTION: Final = "Answer each question."
# BS.1534-3 allows at most 12 signals per trial, including reference and anchors.
_MAX_SOUNDS: Final = 12
_LETTERS: Final = "ABCDEFGHIJKL"
# In best-worst scaling, a trial has four systems, or all systems if there are at most five.
_TUPLE: Final = 4
_MAX_COMPLETE: Final = 5
_MAX_MASKED_RATING: Final = 2
_MAX_DRAWS: Final = 50

_ORDER_VERSION: Final = 3
"""Incremented when a release changes the trials or their order, since responses are stored by the index of the
trial."""

TARGET_LUFS: Final = -23.0
"""Target loudness of EBU R 128."""

# The absolute gate of ITU-R BS.1770, below which there is no loudness, and full scale.
_LUFS: Final = (-70.0, 0.0)

ANCHORS: Final = {"anchor35": 3500.0, "anchor70": 7000.0}
"""Anchors of Recommendation ITU-R BS.1534-3: cutoff frequency in Hz by name."""

_MAX_PEAK_DBTP: Final = -1.0


@dataclass(frozen=True, slots=True)
class Stimulus:
    """Sound of a trial: ``source`` at ``gain_db``. ``id`` is blinded; ``system`` and ``item`` identify the sound."""

    id: str
    system: str
    item: str
    source: Clip = field(repr=False, compare=False)
    gain_db: float = field(default=0.0, repr=False, compare=False)

    @property
    def clip(self) -> Clip:
        """The sound with the gain applied; computed on each access, since a study may have hundreds of sounds."""
        return self.source if self.gain_db == 0.0 else _with_gain(self.source, self.gain_db)


@dataclass(frozen=True, slots=True)
class Trial:
    """Trial of a listener. ``slots`` are the sounds by letter, in display order.

    AB and CMOS have A and B; ABX has A, B and X, which equals A or B; MOS, SMOS and DMOS have A. MUSHRA has a letter
    for each system, each anchor and the hidden reference, MUSHRA-NMR and BWS a letter for each system. SMOS, DMOS and
    MUSHRA have the open ``reference``. A ``check`` is an attention check, which is not analyzed: either a noise-masked
    sound or a trapping question, which requests the rating ``wanted``. ``text`` is the spoken text of a transcription
    trial.
    """

    id: str
    kind: Kind
    item: str
    slots: Mapping[str, Stimulus]
    reference: Stimulus | None = None
    check: bool = False
    wanted: int | None = None
    text: str = field(default="", repr=False)

    @property
    def answer(self) -> str | None:
        """Correct letter of an ABX trial, or of a check that is a choice; None for preferences and ratings."""
        if self.kind == "ABX":
            return "A" if self.slots["X"].system == self.slots["A"].system else "B"
        if self.check and self.kind == "AB":
            return "B" if self.slots["A"].system == NOISE_MASKED else "A"
        return None

    def passed(self, answer: str | float) -> bool:
        """Return whether the answer passes an attention check; True for other trials."""
        if not self.check:
            return True
        if self.answer is not None:
            return answer == self.answer
        return check_passed(float(answer), self.kind, self.wanted, self.slots["A"].system)


def check_passed(rating: float, kind: str, wanted: int | None, first: str) -> bool:
    """Return whether a rating passes an attention check; CMOS rates B relative to A, whose system is ``first``."""
    if wanted is not None:
        return rating == wanted
    if kind in SINGLE:
        return rating <= _MAX_MASKED_RATING
    return rating > 0 if first == NOISE_MASKED else rating < 0


@dataclass(frozen=True)
class ListeningTest:
    """Complete design of a listening test.

    Args:
        name: title, visible to listeners; must not name systems.
        kind: AB, ABX, MOS (ACR), SMOS (similarity of speakers), DMOS (DCR), CMOS, MUSHRA, MUSHRA-NMR ("no mentioned
            reference", that is, without an open reference, anchors and post-screening; a recording may be one of the
            systems; P. S. Varadhan et al., "Rethinking MUSHRA", TMLR 2025), BWS (best-worst scaling: listeners choose
            the best and the worst sound of a trial; J. J. Louviere, T. N. Flynn & A. A. J. Marley, "Best-Worst
            Scaling", 2015) or transcription (percentage of correct words, for example in semantically unpredictable
            sentences). A trial of BWS has all systems. If there are more than five, it has four of them, in balanced
            incomplete blocks (S. Kiritchenko & S. M. Mohammad, "Best-worst scaling more reliable than rating scales",
            ACL 2017). In a transcription test a listener hears each item once, and systems rotate over listeners and
            items.
        items: clips by item and system; lengths and sample rates may differ.
        references: reference clips by item, for SMOS, DMOS and MUSHRA.
        seed: seed of all random orders.
        question: text of the question; "" for the default of the kind.
        lufs: target loudness from -70 to 0 LUFS, to which the clips of an item are matched; None leaves the levels
            unchanged.
        checks: number of attention checks with a noise-masked sound per listener, spread over the test. Not available
            for MUSHRA, where the hidden reference and the anchors serve as checks, nor for MUSHRA-NMR, BWS and
            transcription.
        instructions: text before the test; each line is a paragraph. "" for the default of the kind.
        training: number of training trials, which ITU-R BS.1534 and ITU-T P.800 require. Responses to them are not
            stored. To cover all systems, set it to the number of systems, or to half of it for kinds that compare
            pairs. MUSHRA's training trials include the anchors.
        per_listener: number of items per listener, assigned in balanced incomplete blocks; 0 for all items. Each
            listener rates all systems of an assigned item.
        traps: trapping questions of MOS, SMOS, DMOS and CMOS: for each rating, a sound in which a voice requests that
            rating.
        scales: question by scale, such as ``{"naturalness": "How natural is the speech?"}``, if each sound is rated on
            several scales (MOS, SMOS, DMOS, CMOS, MUSHRA, MUSHRA-NMR). ``analyze`` analyzes the scales separately;
            attention checks and the post-screening of MUSHRA use the first scale.
        texts: spoken text of each item; default: that of a clip of the item. Items with the same text are repeated takes
            of one sentence, which ``analyze`` does not treat as independent. Stored if several texts are repeated, and in
            a transcription test.

    Raises ArgumentError if an item lacks a system, there are too few systems, a reference is missing, or the loudness
    of a sound cannot be matched.
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
    scales: Mapping[str, str] = field(default_factory=dict, repr=False)
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    gains: Mapping[str, Mapping[str, float]] = field(init=False, repr=False, compare=False)
    _stimuli: Mapping[tuple[str, str], Stimulus] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "texts", _texts(self.kind, self.items, self.texts))
        clips_by_item: dict[str, Mapping[str, Clip]] = dict(self.items)
        for item, clips in self.items.items() if self.kind in WITH_REFERENCE else ():
            reference = self.references[item]
            anchors = _anchors(item, reference) if self.kind == "MUSHRA" else {}
            clips_by_item[item] = {**clips, REFERENCE: reference, **anchors}
        clips_by_item |= {f"trap {rating}": {NOISE_MASKED: clip} for rating, clip in self.traps.items()}
        lufs = self.lufs
        gains = {} if lufs is None else {item: _gains(item, clips, lufs) for item, clips in clips_by_item.items()}
        sounds = {
            (item, system): Stimulus(
                self._blind(item, system), system, item, clip, gains.get(item, {}).get(system, 0.0)
            )
            for item, clips in clips_by_item.items()
            for system, clip in clips.items()
        }
        question = self.question or (_SCALES_QUESTION if self.scales else _QUESTIONS[self.kind])
        object.__setattr__(self, "question", question)
        object.__setattr__(self, "gains", MappingProxyType({item: gains[item] for item in self.items if item in gains}))
        object.__setattr__(self, "_stimuli", MappingProxyType(sounds))
        count = len(self._order(0, np.random.default_rng(0)))
        for name in ("checks", "training"):
            if getattr(self, name) > count:
                rule = f"must be at most {count}, the number of a listener's trials, got {getattr(self, name)}"
                raise ArgumentError.of(name, rule)

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems in the order of the first item."""
        return tuple(next(iter(self.items.values())))

    @property
    def sounds(self) -> tuple[Stimulus, ...]:
        """All sounds: those of the systems, the references, MUSHRA's anchors and the trapping questions."""
        return tuple(self._stimuli.values())

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All pairs of systems."""
        return tuple(itertools.combinations(self.systems, 2))

    def trials(self, listener: int) -> tuple[Trial, ...]:
        """Return the trials of a listener (index from 0) in order; they depend only on design, seed and index.

        The order of trials is random for each listener. The order within pairs alternates over listeners, items and
        pairs: it is balanced over consecutive listeners of an item, and a listener who is assigned all items has each
        order of a pair equally often if the number of items is even. X equals A in half of the ABX trials with each
        order of the pair. The trials of MOS, SMOS and DMOS are divided into blocks of all systems, which are ordered by
        the rows of a Williams square (E. J. Williams, 1949) to balance first-order carry-over between systems over
        listeners. Raises ArgumentError unless ``listener`` is a non-negative integer.
        """
        whole(listener, "listener", 0)
        rng = np.random.default_rng((self.seed, listener))
        order = self._order(listener, rng)
        checks = self._attention(rng)
        for number, check in enumerate(checks, start=1):
            order.insert(round(number * (len(order) + 1) / (len(checks) + 1)), check)
        return tuple(replace(trial, id=f"{listener}-{index}") for index, trial in enumerate(order))

    def training_trials(self, listener: int) -> tuple[Trial, ...]:
        """Return the training trials of a listener, which precede ``trials``, in random order.

        They cover the range of quality, as ITU-T P.800 and ITU-R BS.1534 require: systems named like MUSHRA's reference
        and anchors come first, then the systems that have occurred least, until all have occurred.
        """
        candidates = self._order(listener, np.random.default_rng((self.seed, listener, 1)))
        counts, chosen = Counter[str](), list[Trial]()

        def priority(trial: Trial) -> tuple[int, int]:
            systems = _systems_in(trial)
            return sum(counts[system] for system in systems), -len(systems & {REFERENCE, *ANCHORS})

        while candidates and len(chosen) < self.training:
            trial = min(candidates, key=priority)
            candidates.remove(trial)
            counts.update(_systems_in(trial))
            chosen.append(replace(trial, id=f"{listener}-training{len(chosen)}"))
        return tuple(chosen)

    def to_record(self) -> dict[str, Any]:
        """Return the design as a JSON-serializable object, without the sounds."""
        gains = {item: dict(gains) for item, gains in self.gains.items()}
        record: dict[str, Any] = {name: getattr(self, name) for name in SETTINGS}
        record |= {"items": list(self.items), "systems": list(self.systems)}
        # A list of pairs, so that the digest covers their order.
        record |= {name: list(map(list, pairs.items())) for name in MAPPINGS if (pairs := getattr(self, name))}
        return record | {"traps": sorted(self.traps), "gains_db": gains}

    @property
    def digest(self) -> str:
        """SHA-256 of the trials and their order, which identifies the design to which responses belong.

        It covers the names of the sounds, not the samples.
        """
        record = {
            **self.to_record(),
            "order": _ORDER_VERSION,
            "gains_db": None,
        }  # excludes measured values, which may differ between machines
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()

    def register(
        self, path: str | Path, *, hypothesis: str, primary: tuple[str, str], listeners: int, **options: Any
    ) -> Plan:
        """Register the analysis before data collection, so that ``analyze(…, plan=path)`` reports deviations.

        The TOML file contains the fields of ``Plan``, the design, the time of registration and a digest of all of
        these. ``options`` are the optional fields claim, margin, alpha, exclusions and stopping. Deposit the digest
        with a public timestamp. Raises ArgumentError for an invalid plan or unconnected items, StoreError if the file
        exists.
        """
        check_connected(listeners, tuple(self.items), self.per_listener or len(self.items), self.seed)
        if not set(primary) <= set(self.systems) or len(set(primary)) != 2:
            raise ArgumentError.of(
                "primary", f"must be two of {', '.join(self.systems)}, got {', '.join(map(repr, primary))}"
            )
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        design = json.loads(json.dumps(self.to_record()))
        options = {"claim": "different" if self.kind == "ABX" else "better", **options}
        plan = Plan(hypothesis, (primary[0], primary[1]), listeners, **options, design=design, registered=time)
        plan.save(path)
        return plan

    def _order(self, listener: int, rng: np.random.Generator) -> list[Trial]:
        if self.kind in SINGLE:
            return self._single(listener, rng)
        trials = (self._pairwise if self.kind not in BY_SYSTEM else self._multiple)(listener, rng)
        return [trials[index] for index in rng.permutation(len(trials))]

    def _block(self, listener: int) -> dict[str, tuple[int, int]]:
        """Map the items of a listener to the index of the item and the number of earlier listeners who had it."""
        names = list(self.items)
        block = block_of(listener, len(names), self.per_listener or len(names), self.seed)
        return {names[row]: (row, turn) for row, turn in block.items()}

    def _pairwise(self, listener: int, rng: np.random.Generator) -> list[Trial]:
        trials = []
        block = self._block(listener).items()
        for (item, (row, turn)), (index, pair) in itertools.product(block, enumerate(self.pairs)):
            # The order alternates between consecutive listeners of an item, consecutive items and consecutive pairs.
            first, second = pair if (turn + row + index + self.seed) % 2 == 0 else pair[::-1]
            slots = {"A": self._stimuli[item, first], "B": self._stimuli[item, second]}
            trials.append(Trial("", self.kind, item, slots))
        return self._with_x(trials, rng) if self.kind == "ABX" else trials

    def _with_x(self, trials: Sequence[Trial], rng: np.random.Generator) -> list[Trial]:
        """Add X to ABX trials. X equals A and B equally often for each order of the pair."""
        index = self.systems.index
        orders = [tuple(index(trial.slots[letter].system) for letter in "AB") for trial in trials]
        forward = [number for number, (a, b) in enumerate(orders) if a < b]
        reverse = [number for number in range(len(trials)) if number not in forward]
        # In groups of odd size, one trial is unpaired; its X differs between the two groups.
        letter = "AB"[int(rng.integers(2))]
        complete = list(trials)
        for group, unpaired in ((forward, letter), (reverse, "B" if letter == "A" else "A")):
            letters = ["A", "B"] * (len(group) // 2) + [unpaired] * (len(group) % 2)
            for number, x in zip(group, rng.permutation(letters), strict=True):
                slots = trials[number].slots
                complete[number] = replace(trials[number], slots={**slots, "X": self._copy(slots[str(x)])})
        return complete

    def _single(self, listener: int, rng: np.random.Generator) -> list[Trial]:
        """Return the trials of MOS, SMOS or DMOS, in as many blocks as items.

        Each block has all systems; the items are in random order.
        """
        square = _williams(len(self.systems))
        names = list(self._block(listener))
        rows: list[int] = []
        drawn: list[int] | None = None
        # With few items, using consecutive rows of the square may repeat an item immediately; other strides avoid this.
        for stride, _ in itertools.product(range(1, len(square) + 1), range(_MAX_DRAWS)):
            turns = [(listener + block * stride) % len(square) for block in range(len(names))]
            rows = [system for turn in turns for system in square[turn]]
            drawn = _sentences(rows, len(names), rng)
            if drawn is not None:
                break
        if drawn is None:  # one item
            drawn = [index // len(self.systems) for index in range(len(rows))]
        sequence = [(names[item], self.systems[system]) for item, system in zip(drawn, rows, strict=True)]
        return [self._rated(self._stimuli[item, system]) for item, system in sequence]

    def _rated(self, sound: Stimulus, reference: Stimulus | None = None, **options: Any) -> Trial:
        """Return the rating trial of a sound, with ``reference`` or, if the kind has references, that of the item."""
        if self.kind in WITH_REFERENCE:
            options["reference"] = self._copy(reference or self._stimuli[sound.item, REFERENCE])
        return Trial("", self.kind, sound.item, {"A": sound}, **options)

    def _multiple(self, listener: int, rng: np.random.Generator) -> list[Trial]:
        trials, systems = [], self.systems
        size = _TUPLE if self.kind == "BWS" and len(systems) > _MAX_COMPLETE else len(systems)
        for item, (row, turn) in self._block(listener).items():
            if self.kind == "transcription":
                sound = self._stimuli[item, systems[(row + turn) % len(systems)]]
                trials.append(Trial("", self.kind, item, {"A": sound}, text=self.texts[item]))
                continue
            # The listeners of an item, and the items of a listener, are assigned consecutive blocks of systems.
            names = [systems[index] for index in block_of(turn + row, len(systems), size, self.seed)]
            names += [REFERENCE, *ANCHORS] * (self.kind == "MUSHRA")
            order = [names[index] for index in rng.permutation(len(names))]
            slots = {letter: self._stimuli[item, name] for letter, name in zip(_LETTERS, order, strict=False)}
            reference = self._copy(self._stimuli[item, REFERENCE]) if self.kind == "MUSHRA" else None
            trials.append(Trial("", self.kind, item, slots, reference=reference))
        return trials

    def _attention(self, rng: np.random.Generator) -> list[Trial]:
        checks = []
        sounds = self._clean()
        for _ in range(self.checks):
            clean = sounds[int(rng.integers(len(sounds)))]
            masked = self._masked(clean)
            if self.kind in SINGLE:
                checks.append(self._rated(masked, check=True))
                continue
            pair = (clean, masked) if rng.integers(2) else (masked, clean)
            slots = dict(zip("AB", pair, strict=True))
            if self.kind == "ABX":
                slots["X"] = self._copy(slots["AB"[int(rng.integers(2))]])
            checks.append(Trial("", self.kind, clean.item, slots, check=True))
        for rating in self.traps:
            trap = self._stimuli[f"trap {rating}", NOISE_MASKED]
            if self.kind in SINGLE:
                checks.append(self._rated(trap, trap, check=True, wanted=rating))
            else:
                slots = {"A": trap, "B": self._copy(trap)}
                checks.append(Trial("", self.kind, trap.item, slots, check=True, wanted=rating))
        return [checks[index] for index in rng.permutation(len(checks))] if self.traps else checks

    def _clean(self) -> list[Stimulus]:
        return [sound for sound in self._stimuli.values() if sound.system != NOISE_MASKED]

    def _masked(self, clean: Stimulus) -> Stimulus:
        """Mask a sound with noise drawn from the test's seed.

        The noise has half of the original level and the sound a quarter of it, so that listeners are not startled.
        """
        sound = clean.clip.samples
        level = float(np.sqrt(np.mean(np.square(sound, dtype=np.float64))))
        noise = np.random.default_rng(self.seed).standard_normal(sound.size) * level
        samples = np.clip(0.25 * sound + 0.5 * noise, -1.0, 1.0).astype(np.float32)
        name = f"{clean.system}\0{NOISE_MASKED}"
        return Stimulus(self._blind(clean.item, name), NOISE_MASKED, clean.item, replace(clean.clip, samples=samples))

    def _copy(self, sound: Stimulus) -> Stimulus:
        """Return the sound with a new id, so that ids do not reveal equal sounds."""
        return replace(sound, id=self._blind(sound.item, f"{sound.id}\0again"))

    def _blind(self, item: str, system: str) -> str:
        return hashlib.sha256(f"{self.seed}\0{self.name}\0{item}\0{system}".encode()).hexdigest()[:16]

    def _check(self) -> None:
        one_of(self.kind, "kind", KINDS)
        for name in ("name", "question", "instructions"):
            text, default = getattr(self, name), ' or "" for the default' * (name != "name")
            if not isinstance(text, str) or not (text.strip() or (default and text == "")):
                raise ArgumentError.of(name, f"must be a text{default}, got {text!r}")
        if self.lufs is not None:
            between(self.lufs, "lufs", *_LUFS)
        if not self.items:
            raise ArgumentError.of("items", "at least one item is required")
        self._check_clips()
        systems = list(self.systems)
        minimum = 3 if self.kind == "BWS" else 1 if self.kind in BY_SYSTEM else 2
        if len(systems) < minimum:
            raise ArgumentError.of("items", f"{self.kind} needs at least {minimum} systems, got {len(systems)}")
        for item, clips in self.items.items():
            if set(clips) != set(systems):
                names = ", ".join(sorted(clips)) or "none"
                raise ArgumentError.of(
                    "items", f"item {item!r} must have the systems {', '.join(systems)}, got {names}"
                )
        if self.kind in WITH_REFERENCE and (missing := [item for item in self.items if item not in self.references]):
            raise ArgumentError.of(
                "references", f"{self.kind} must have a reference clip for every item, got none for {missing}"
            )
        added = {"MUSHRA": {REFERENCE, *ANCHORS}, "SMOS": {REFERENCE}, "DMOS": {REFERENCE}}.get(self.kind, set())
        if reserved := sorted(added & set(systems)):
            raise ArgumentError.of("items", f"{reserved[0]!r} is reserved in {self.kind}; rename the system")
        if self.kind.startswith("MUSHRA") and len(systems) + len(added) > _MAX_SOUNDS:
            message = f"a trial must have at most {_MAX_SOUNDS} sounds, got {len(systems)} systems"
            raise ArgumentError.of("items", message + ", the reference and two anchors" * bool(added))
        impossible: dict[str, tuple[str, ...]] = {
            "checks": (*MULTIPLE, "transcription"),
            "training": ("transcription",),
        }
        for name, kinds in impossible.items():
            if self.kind in kinds and getattr(self, name):
                reason = ", whose hidden reference serves as a check" * (name == "checks" and self.kind == "MUSHRA")
                raise ArgumentError.of(name, f"must be 0 for {self.kind}{reason}, got {getattr(self, name)}")
        if self.scales and self.kind not in SCALED:
            raise ArgumentError.of("scales", f"requires a {' or '.join(SCALED)} test, got {self.kind}")
        if wrong := [scale for scale, text in self.scales.items() if not (str(scale).strip() and str(text).strip())]:
            raise ArgumentError.of(
                "scales", f"must map names to questions, got {wrong[0]!r}: {self.scales[wrong[0]]!r}"
            )
        for name in ("checks", "seed", "training", "per_listener"):
            object.__setattr__(self, name, whole(getattr(self, name), name, 0))
        if self.per_listener > len(self.items):
            raise ArgumentError.of("per_listener", f"must be at most {len(self.items)} items, got {self.per_listener}")
        low, high = SCALES[self.kind] if self.kind in {*SINGLE, "CMOS"} else (1, 0)
        for rating in self.traps:
            if type(rating) is not int or not low <= rating <= high:
                rule = (
                    f"must be ratings from {low} to {high}"
                    if low <= high
                    else "must belong to a MOS, SMOS, DMOS or CMOS test"
                )
                raise ArgumentError.of("traps", f"{rule}, got {rating!r} for {self.kind}")

    def _check_clips(self) -> None:
        for name in (*MAPPINGS, "traps"):
            if not isinstance(given := getattr(self, name), Mapping):
                raise ArgumentError.of(name, f"must be a mapping, got {type(given).__name__}")
        sources: list[tuple[str, str, Any]] = [("references", "", self.references)]
        sources += [("items", f"item {item!r} ", clips) for item, clips in self.items.items()]
        for argument, of, clips in sources:
            if not isinstance(clips, Mapping):
                raise ArgumentError.of(argument, f"{of}must map names to Clips, got {type(clips).__name__}")
            if wrong := [
                f"{type(clip).__name__} for {name!r}" for name, clip in clips.items() if not isinstance(clip, Clip)
            ]:
                rule = "must have Clips (vl.load(path) loads a file)"
                raise ArgumentError.of(argument, f"{of}{rule}, got {', '.join(wrong)}")


def _texts(kind: Kind, items: Mapping[str, Mapping[str, Clip]], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the spoken text of each item, by default that of its takes; {} if the analysis does not need them."""
    by_item: dict[str, Any] = {}
    for item, clips in items.items():
        by_item[item] = next(filter(None, (clip.spoken_text for clip in clips.values())), "")
    by_item |= texts
    wrong = [
        item for item, text in by_item.items() if item not in items or not (isinstance(text, str) and text.strip())
    ]
    if kind == "transcription":
        wrong += [item for item in by_item if item not in wrong and not words_correct(by_item[item], "?") >= 0.0]
    if kind == "transcription" or texts:
        if wrong:
            rule = "must have the spoken text of every item, and of no other"
            raise ArgumentError.of("texts", f"{rule}; missing, empty or unknown: {', '.join(map(str, wrong))}")
        return by_item
    return {} if wrong or not 1 < len({*by_item.values()}) < len(by_item) else by_item


def _systems_in(trial: Trial) -> set[str]:
    return {sound.system for sound in trial.slots.values()}


def _williams(count: int) -> list[list[int]]:
    """Return a Williams square of ``count`` systems; for an odd number of systems, the rows of two squares."""
    zigzag = [(index + 1) // 2 if index % 2 else (count - index // 2) % count for index in range(count)]
    rows = [[(system + shift) % count for system in zigzag] for shift in range(count)]
    return rows if count % 2 == 0 or count == 1 else [*rows, *(row[::-1] for row in rows)]


def _sentences(systems: Sequence[int], count: int, rng: np.random.Generator) -> list[int] | None:
    """Draw an item index below ``count`` for each entry of ``systems``; consecutive entries get different items.

    Each system gets each item once. Returns None if this random draw finds no such order.
    """
    unused = {system: set(range(count)) for system in systems}
    drawn = [-1]
    for system in systems:
        choice = sorted(unused[system] - {drawn[-1]})
        if not choice:
            return None
        drawn.append(choice[int(rng.integers(len(choice)))])
        unused[system].remove(drawn[-1])
    return drawn[1:]


def blind_wav(clip: Clip, id: str, rate: int, length: int) -> bytes:
    """Encode a clip as a 16-bit WAV file of ``length`` samples, zero-padded, with dither seeded by the id.

    Neither the size nor the digest of a file reveals which sounds are equal.
    """
    sound = np.zeros(length)
    samples = resample(clip.samples, clip.rate, rate)
    sound[: min(samples.size, length)] = samples[:length]
    noise = np.random.default_rng(list(id.encode())).uniform(-0.5, 0.5, length)
    return wav_bytes(np.clip(np.round(sound * 32767 + noise), -32768, 32767).astype(np.int16), rate)


def wav_bytes(samples: np.ndarray[Any, Any], rate: int) -> bytes:
    """Encode samples, shape (n,) or (n, channels), as a WAV file of the same sample format."""
    from scipy.io import wavfile

    file = io.BytesIO()
    wavfile.write(file, rate, samples)
    return file.getvalue()


def _anchors(item: str, reference: Clip) -> dict[str, Clip]:
    try:
        return {name: anchor(reference, cutoff) for name, cutoff in ANCHORS.items()}
    except ArgumentError as error:
        raise ArgumentError.of("references", f"{item!r}: {error}") from error


def _gains(item: str, clips: Mapping[str, Clip], lufs: float) -> Mapping[str, float]:
    matched = match_loudness(clips, lufs)
    for name, reason in matched.unmatched.items():
        raise ArgumentError.of("items", f"loudness of {item!r} by {name!r} cannot be matched: {reason}")
    return matched.gains


@dataclass(frozen=True, slots=True)
class MatchedClips:
    """Loudness-matched clips with their ``gains`` in dB and their common loudness ``lufs``.

    ``unmatched`` maps the names of clips with undefined loudness to the reason. ``clips`` includes these clips unchanged.
    ``levels`` has, for each matched clip, the intermediate results for computing its loudness and true peak.
    """

    clips: Mapping[str, Clip]
    gains: Mapping[str, float]
    lufs: float
    unmatched: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, Results] = field(default_factory=dict)


def match_loudness(clips: Mapping[str, Clip], lufs: float = TARGET_LUFS) -> MatchedClips:
    """Match the integrated loudness (ITU-R BS.1770-4) of clips by applying a gain to each clip.

    All clips are matched to ``lufs``, or to a lower loudness if the true peak of a clip would otherwise exceed -1 dBTP;
    no limiter is applied. Clips with undefined loudness (shorter than 0.4 s, or silent) are left unchanged.
    """
    measured: dict[str, float] = {}
    unmatched: dict[str, str] = {}
    limits: list[float] = [lufs]
    subjects = {name: Subject(clip) for name, clip in clips.items()}
    for name, subject in subjects.items():
        try:
            level = loudness(subject)
            limits.append(level + _MAX_PEAK_DBTP - true_peak(subject))
            measured[name] = level
        except Undefined as error:
            unmatched[name] = str(error)
    target = min(limits)
    gains = {name: target - level for name, level in measured.items()}
    amplified = {name: _with_gain(clip, gains[name]) if name in gains else clip for name, clip in clips.items()}
    levels = {name: amplified_levels(subjects[name], gain) for name, gain in gains.items()}
    return MatchedClips(amplified, gains, target, unmatched, levels)


def _with_gain(clip: Clip, gain_db: float) -> Clip:
    return replace(clip, samples=(clip.samples * np.float32(10.0 ** (gain_db / 20.0))).clip(-1.0, 1.0))


def anchor(clip: Clip, cutoff: float) -> Clip:
    """Low-pass a clip for use as an anchor: Recommendation ITU-R BS.1534-3 (2015), section 5.1.

    The passband extends to ``cutoff`` Hz with a ripple of at most 0.1 dB. The attenuation is at least 25 dB at 8/7 of
    the cutoff and 50 dB at 9/7 (for a cutoff of 3.5 kHz: at 4 and 4.5 kHz). The filter has linear phase and its delay
    is compensated. Raises ArgumentError if the clip's rate is too low.
    """
    from scipy.signal import fftconvolve, firwin, kaiserord

    if cutoff * 9 / 7 >= clip.rate / 2:
        message = f"rate must be above {cutoff * 18 / 7:.0f} Hz for an anchor at {cutoff:.0f} Hz, got {clip.rate} Hz"
        raise ArgumentError.of("clip", message)
    # Designed for an attenuation of 60 dB at 8/7 of the cutoff, which leaves a ripple far below 0.1 dB.
    width = cutoff / 7
    taps, beta = kaiserord(60.0, 2 * width / clip.rate)
    taps |= 1  # odd, for an integer delay
    kernel = firwin(taps, cutoff + width / 2, window=("kaiser", beta), fs=clip.rate)
    filtered = fftconvolve(clip.samples.astype(np.float64), kernel, mode="full")
    half = taps // 2
    return replace(clip, samples=np.clip(filtered[half : half + len(clip)], -1.0, 1.0).astype(np.float32))
