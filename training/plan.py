"""Plan of the corpus: texts, speakers and speaking styles of all utterances, deterministic by package versions.

Texts are WordNet's examples and glosses of `corpus`, as sentences, passages, questions and dialogue, and templates for
numbers, dates, lists, names and acronyms. Speakers are stock voices and blends. The sentences of ``data/heldout.txt``,
`HELD_OUT_STOCK` and the last `HELD_OUT_BLENDS` blends are held out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from training import corpus

Recipe = tuple[tuple[str, float], ...]

STOCK = "am_michael af_alloy bm_fable af_kore am_eric bf_emma am_adam af_sky am_echo bm_daniel".split()
"""The teachers of the ten English presets."""
HELD_OUT_STOCK = ("af_sarah", "am_liam")
"""Held-out stock voices, also excluded from blends, for tests of cloning."""
BLEND_VOICES = (
    "af_aoede af_heart af_jessica af_nova af_river am_fenrir am_onyx am_puck bf_lily bm_george bm_lewis".split()
)
"""Voices used only in blends. Excluded are voices with a low predicted MOS (af_bella, bf_alice, bf_isabella), a whispering
voice (af_nicole), and am_santa."""
MANDARIN = "zf_xiaoxiao zm_yunjian zf_xiaobei zm_yunxi zf_xiaoni zf_xiaoyi zm_yunxia zm_yunyang".split()
BLENDS, HELD_OUT_BLENDS = 1080, 20
_PER_SECOND = {"en": 14.5, "zh": 4.3}
"""Approximate characters per second of speech, to estimate durations."""
_UTTERANCE_S = 4.0
"""Approximate duration of an utterance."""
MAX_TEXT_LENGTH = 300
HELD_OUT_MANDARIN = corpus.HELDOUT.with_name("heldout_zh.txt")
_NAMES = (
    "Alice Anna Arthur Ben Carl Clara Daniel Diana Edward Ellen Emma Frank George Grace Hannah Harold Henry Ida Jack James "
    "Jane Julia Kate Laura Leo Linda Louis Lucy Maria Mark Martha Mary Max Michael Nina Nora Oliver Oscar Paul Peter Rachel "
    "Robert Rosa Ruth Samuel Sarah Simon Sophie Thomas Victor Walter William"
).split()
_SURNAMES = (
    "Adams Bailey Baker Bennett Brooks Carter Clark Collins Cooper Davis Edwards Evans Fisher Foster Gray Green Hall Harris "
    "Hughes Jackson Johnson King Lewis Marshall Miller Morgan Murphy Nelson Parker Phillips Reed Roberts Russell Scott Shaw "
    "Stone Taylor Turner Walker Watson Webb White Wilson Wood Young"
).split()
_PLACES = (
    "Amsterdam Athens Berlin Boston Brussels Cairo Chicago Dublin Edinburgh Florence Geneva Hamburg Helsinki Jakarta Kyoto "
    "Lisbon London Madrid Melbourne Montreal Moscow Mumbai Munich Nairobi Oslo Paris Prague Rome Seattle Shanghai Stockholm "
    "Sydney Tokyo Toronto Vienna Warsaw Zurich"
).split()
_VERBS = "said asked answered replied whispered shouted wondered murmured added insisted".split()
_NAME_TEMPLATES = (
    "{n} {s} lives in {p}.|Have you met {n} {s} from {p}?|{n} and {m} went to {p} on {d}.|Ask {n} whether {m} is in {p}.|"
    "My name is {n} {s}.|The train from {p} to {q} leaves at {h} {t}.|{n}, {m}, and {o} are waiting outside.|"
    "Doctor {s} will see you on {d}.|Good morning, {n}!|{n}, could you please call {m}?|We flew from {p} to {q} with {n}.|"
    "{s} and {u} opened an office in {p}.|Miss {s} teaches in {p}.|Is {n} {s} your brother?|Thank you, {n}.|"
    "It was {n} who told {m} about {p}.|{p}, {q}, and {r} are on the list.|Dear {n}, I am writing from {p}."
).split("|")

_CLAUSE = re.compile(
    r"(i|i'm|i've|he|she|it|we|you|they|there|this|that|these|those|the|his|her|our|my|your|their|its|all|some|many|"
    r"nobody|everyone|everybody|somebody|nothing|what|who|no one) ",
    re.IGNORECASE,
)
"""Beginnings of examples that are usually complete sentences."""


@dataclass(frozen=True)
class Request:
    """An utterance of the plan."""

    number: int
    part: str
    """``stock``, ``blend`` or ``mandarin``."""
    speaker: str
    """Name of a stock voice, or ``blend017``."""
    recipe: Recipe
    """Stock voices with weights that sum to 1."""
    language: str
    text: str
    speed: float
    offset: int
    """Offset of the style row, see `kokoro.style_row`."""
    prosody: Recipe = ()
    """Blend for durations, F0 and energy, if not `recipe`."""


def normalize_words(text: str) -> str:
    """Reduce a sentence to lower-case words, for comparison."""
    return " ".join(re.findall(r"[a-z']+", text.lower()))


def held_out() -> set[str]:
    """Return the held-out sentences, normalized."""
    return {normalize_words(line) for line in corpus.HELDOUT.read_text(encoding="utf-8").splitlines() if line.strip()}


def _capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


class English:
    """Random generator of English texts."""

    def __init__(self, seed: int) -> None:
        words = corpus.recognizable_words()
        glosses, examples = corpus.wordnet(words)
        held = held_out()
        self._rng = np.random.default_rng(seed)
        pools = [[s for s in pool if normalize_words(s) not in held] for pool in (examples, glosses)]
        self._pool = pools[0] + pools[1]
        self._clauses = [s for s in pools[0] if _CLAUSE.match(s) and len(s.split()) >= 4]
        clauses = set(self._clauses)
        weights = np.array([6.0 if s in clauses else 3.0 for s in pools[0]] + [1.0] * len(pools[1]))
        # Weighted sampling without replacement (Efraimidis, 2006): complete sentences tend to come early.
        self._order: Iterator[int] = iter(np.argsort(self._rng.exponential(size=weights.size) / weights).tolist())
        counts = Counter(word for s in self._pool for word in s.lower().strip(".?!").split())
        self._vocabulary = [word for word in corpus.vocabulary(words) if counts[word] >= 4]

    def _pick(self, values: Sequence[str]) -> str:
        return values[int(self._rng.integers(len(values)))]

    def _clause(self) -> str:
        return self._pick(self._clauses)

    def _sentence(self) -> str:
        return self._pool[next(self._order)]

    def _numbers(self) -> str:
        while True:
            text = corpus.template(self._rng, self._vocabulary)
            if "." not in text[:-1]:  # exclude letters with periods
                return text

    def _names(self) -> str:
        people = [self._pick(_NAMES) for _ in range(3)]
        places = [self._pick(_PLACES) for _ in range(3)]
        drawn = dict(zip("nmopqr", people + places, strict=True))
        drawn |= {"s": self._pick(_SURNAMES), "u": self._pick(_SURNAMES)}
        drawn |= {"d": self._pick(corpus.DAYS), "h": self._pick(corpus.ONES[1:13])}
        drawn["t"] = self._pick(("o'clock", "fifteen", "twenty", "thirty", "forty five"))
        return self._pick(_NAME_TEMPLATES).format(**drawn)

    def _acronym(self) -> str:
        letters = "".join(chr(65 + int(self._rng.integers(26))) for _ in range(int(self._rng.integers(2, 5))))
        return f"The {letters} {self._pick(self._vocabulary)}."

    def _dialogue(self) -> str:
        speaker = self._pick((*_NAMES, "he", "she", "they"))
        clause = self._clause()
        if self._rng.random() < 0.5:
            return f"“{_capitalize(clause).rstrip('.')}{'' if clause[-1] in '?!' else ','}” {speaker} {self._pick(_VERBS)}."
        reply = self._pick(("Yes", "No", "Well", "Perhaps", "Of course", "I see", "Oh", "Really", "Not at all"))
        lines = f"{_capitalize(speaker)} {self._pick(_VERBS)}, “{_capitalize(clause)}”"
        return lines if self._rng.random() < 0.5 else f"{lines} “{reply},  {self._pick(_NAMES)}.”"

    def _passage(self) -> str:
        parts = [self._sentence() for _ in range(int(self._rng.integers(2, 5)))]
        return " ".join(map(_capitalize, parts))

    def draw(self) -> str:
        """Draw a text of at most `MAX_TEXT_LENGTH` characters."""
        kinds: list[tuple[float, Callable[[], str]]] = [
            (0.40, self._sentence),
            (0.20, self._passage),
            (0.10, lambda: corpus.as_question(self._clause(), self._rng)),
            (0.10, self._dialogue),
            (0.11, self._numbers),
            (0.06, self._names),
            (0.03, self._acronym),
        ]
        shares = np.array([share for share, _ in kinds])
        while True:
            text = _capitalize(kinds[int(self._rng.choice(len(kinds), p=shares / shares.sum()))][1]())
            if len(text) <= MAX_TEXT_LENGTH:
                return text


def blends(seed: int = 31) -> list[Recipe]:
    """Draw virtual speakers, `BLENDS` for training and `HELD_OUT_BLENDS`: same-gender and mixed pairs, and triples.

    Weights are convex: extrapolated styles have a lower predicted MOS and resemble the nearer voice.
    """
    rng = np.random.default_rng(seed)
    pool = [v for v in (*STOCK, *BLEND_VOICES) if v not in HELD_OUT_STOCK]
    recipes: list[Recipe] = []
    while len(recipes) < BLENDS + HELD_OUT_BLENDS:
        kind = rng.random()
        chosen = [str(v) for v in rng.choice(pool, size=2 if kind < 0.65 else 3, replace=False)]
        same_gender = chosen[0][1] == chosen[1][1]
        if len(chosen) == 2:
            if same_gender != (kind < 0.4):
                continue
            weight = float(rng.uniform(0.35, 0.65))
            weights = [weight, 1 - weight]
        else:
            weights = rng.dirichlet([4.0] * 3).tolist()
        rounded = [round(w, 3) for w in weights[:-1]]
        recipe = tuple(zip(chosen, [*rounded, round(1 - sum(rounded), 3)], strict=True))
        if min(w for _, w in recipe) > 0.05:
            recipes.append(recipe)
    return recipes


def speakers(part: str) -> list[tuple[str, Recipe]]:
    """Return the names and recipes of the speakers of a part."""
    if part == "blend":
        return [(f"blend{i:03d}", recipe) for i, recipe in enumerate(blends()[:BLENDS])]
    names: dict[str, Sequence[str]] = {"stock": STOCK, "mandarin": MANDARIN}
    return [(name, ((name, 1.0),)) for name in names[part]]


@dataclass(frozen=True)
class Part:
    """A part of the plan: a group of speakers, and the amount of speech of each."""

    name: str
    minutes: float
    """Minutes per speaker, estimated from text lengths."""
    language: str
    seed: int
    speeds: tuple[float, float] = (0.9, 1.1)
    """Minimum and maximum speed."""
    rows: int = 20
    """Maximum offset of the style row."""
    steady: float = 0.0
    """Consistency of a speaker's speed and style: 0 for random, 1 for constant."""


PARTS = (
    Part("stock", 30, "en", 51),
    Part("blend", 1 / 6, "en", 52, (0.8, 1.25), 40, 0.7),
    Part("mandarin", 30, "zh", 53),
)
"""Estimated five hours by the presets' teachers, three by blends, four of Mandarin."""
SUPPLEMENT = (Part("stock", 3, "en", 54), Part("mandarin", 7, "zh", 55))
"""Additional 10 % and 20 %, to compensate for trimmed silence and unintelligible utterances."""


def texts(part: Part, chinese: Callable[[], Path]) -> Callable[[], str]:
    """Return the text generator of a part; `chinese` returns the folder of Debian's Chinese texts."""
    if part.language == "en":
        return English(part.seed).draw
    from training.mandarin_text import Sentences

    generator = Sentences(chinese(), seed=part.seed)
    held = set(HELD_OUT_MANDARIN.read_text(encoding="utf-8").split())

    def draw() -> str:
        while (text := generator.draw()) in held:
            pass
        return text

    balanced = evenly(draw, initial)
    return lambda: balanced() + (draw() if generator.rng.random() < 0.3 else "")


def initial(text: str) -> str:
    """Return the pinyin initial of the first syllable of a Mandarin text; "" for none."""
    from pypinyin import Style, lazy_pinyin

    return next(iter(lazy_pinyin(text[:1], style=Style.INITIALS, strict=False)), "")


def evenly(draw: Callable[[], str], kind: Callable[[str], str], choices: int = 6) -> Callable[[], str]:
    """Balance the kinds of drawn texts: of `choices` candidates, take the one of the rarest kind so far."""
    counts: Counter[str] = Counter()

    def draw_balanced() -> str:
        text = min((draw() for _ in range(choices)), key=lambda text: counts[kind(text)])
        counts[kind(text)] += 1
        return text

    return draw_balanced


def requests(part: Part, draw: Callable[[], str], scale: float = 1.0) -> Iterator[Request]:
    """Yield the utterances of a part, in rounds over the speakers that have not reached their minutes, in random order.

    Speed and style-row offset are drawn within the bounds of the part, independently of the text. Every second blend has the
    prosody of another blend. If `scale` leaves less than one utterance per speaker, only the first speakers are used.
    """
    rng = np.random.default_rng(part.seed + 100)
    people = speakers(part.name)
    habits = rng.random((len(people), 2))
    prosody_blends = blends(seed=32)
    prosody = [prosody_blends[i] if part.name == "blend" and i % 2 else () for i in range(len(people))]
    people = people[: math.ceil(len(people) * min(1.0, part.minutes * 60 * scale / _UTTERANCE_S))]
    remaining_s = np.full(len(people), part.minutes * 60 * scale)
    number = 0
    while (remaining_s > 0).any():
        for index in rng.permutation(len(people)).tolist():
            if remaining_s[index] <= 0:
                continue
            text = draw()
            position = habits[index] * part.steady + rng.random(2) * (1 - part.steady)
            slow, fast = part.speeds
            speed = round(float(slow * (fast / slow) ** position[0]), 3)
            offset = round(float(part.rows * (2 * position[1] - 1)))
            remaining_s[index] -= len(text) / _PER_SECOND[part.language] / speed
            name, recipe = people[index]
            yield Request(number, part.name, name, recipe, part.language, text, speed, offset, prosody[index])
            number += 1


def mixed(parts: Sequence[Sequence[Request]]) -> list[Request]:
    """Interleave all parts evenly, so that any prefix is balanced."""
    positioned = [((index + 0.5) / len(part), request) for part in parts for index, request in enumerate(part)]
    positioned.sort(key=lambda pair: pair[0])
    return [request for _, request in positioned]


def draw_plan(chinese: Callable[[], Path], scale: float = 1.0) -> list[Request]:
    """Draw the complete plan; `chinese` returns the folder of Debian's Chinese texts, `scale` is applied to minutes."""
    rounds = [
        mixed([list(requests(part, texts(part, chinese), scale)) for part in parts]) for parts in (PARTS, SUPPLEMENT)
    ]
    return [replace(request, number=number) for number, request in enumerate(chain.from_iterable(rounds))]
