"""What the teacher is asked to say, by whom, and in which mood: one plan, the same from the same packages.

Texts are WordNet's examples and glosses as in `corpus`, alone, joined to passages, asked, put into dialogue, and templates
for numbers, dates, lists, names and acronyms. Speakers are stock voices and blends of them. The sentences of
``data/heldout.txt`` are in no text, and `HELD_OUT_STOCK` and the last `HELD_OUT_BLENDS` blends speak nothing of the plan.
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
"""Spoken by nobody in training, not even as a part of a blend: for tests of cloning."""
MORE = "af_aoede af_heart af_jessica af_nova af_river am_fenrir am_onyx am_puck bf_lily bm_george bm_lewis".split()
"""Blended with the others. Left out are voices rated low (af_bella, bf_alice, bf_isabella), a whisper (af_nicole) and
am_santa, which nobody tried."""
MANDARIN = "zf_xiaoxiao zm_yunjian zf_xiaobei zm_yunxi zf_xiaoni zf_xiaoyi zm_yunxia zm_yunyang".split()
BLENDS, HELD_OUT_BLENDS = 1080, 20
_PER_SECOND = {"en": 14.5, "zh": 4.3}
"""Characters of text in a second of speech, about: what the plan reckons lengths with."""
_UTTERANCE_S = 4.0
"""What an utterance lasts, about."""
LONGEST_TEXT = 300
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
_NAMED = (
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
"""How examples begin that are whole sentences, mostly."""


@dataclass(frozen=True)
class Request:
    """One utterance of the plan."""

    number: int
    part: str
    """``stock``, ``blend`` or ``mandarin``."""
    speaker: str
    """A stock voice, or ``blend017``."""
    recipe: Recipe
    """Stock voices with their weights, which add up to 1."""
    language: str
    text: str
    speed: float
    offset: int
    """Rows of the style table from the text's own: see `kokoro.style_row`."""
    prosody: Recipe = ()
    """Whose durations, F0 and energy these are, where they are not the recipe's own."""


def normalised(text: str) -> str:
    """Lower-case words alone: what two spellings of one sentence have in common."""
    return " ".join(re.findall(r"[a-z']+", text.lower()))


def held_out() -> set[str]:
    """The normalised test sentences."""
    return {normalised(line) for line in corpus.HELDOUT.read_text(encoding="utf-8").splitlines() if line.strip()}


def _begun(text: str) -> str:
    return text[0].upper() + text[1:]


class English:
    """Draws texts; all in one order from one seed."""

    def __init__(self, seed: int) -> None:
        words = corpus.recognisable_words()
        glosses, examples = corpus.wordnet(words)
        held = held_out()
        self._rng = np.random.default_rng(seed)
        pools = [[s for s in pool if normalised(s) not in held] for pool in (examples, glosses)]
        self._pool = pools[0] + pools[1]
        self._clauses = [s for s in pools[0] if _CLAUSE.match(s) and len(s.split()) >= 4]
        clauses = set(self._clauses)
        weights = np.array([6.0 if s in clauses else 3.0 for s in pools[0]] + [1.0] * len(pools[1]))
        # Every sentence once, whole ones rather early: sampling by weight, without replacement (Efraimidis, 2006).
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
            if "." not in text[:-1]:  # letters with full stops would be read as words
                return text

    def _named(self) -> str:
        people = [self._pick(_NAMES) for _ in range(3)]
        places = [self._pick(_PLACES) for _ in range(3)]
        drawn = dict(zip("nmopqr", people + places, strict=True))
        drawn |= {"s": self._pick(_SURNAMES), "u": self._pick(_SURNAMES)}
        drawn |= {"d": self._pick(corpus.DAYS), "h": self._pick(corpus.ONES[1:13])}
        drawn["t"] = self._pick(("o'clock", "fifteen", "twenty", "thirty", "forty five"))
        return self._pick(_NAMED).format(**drawn)

    def _acronym(self) -> str:
        letters = "".join(chr(65 + int(self._rng.integers(26))) for _ in range(int(self._rng.integers(2, 5))))
        return f"The {letters} {self._pick(self._vocabulary)}."

    def _dialogue(self) -> str:
        who = self._pick((*_NAMES, "he", "she", "they"))
        said = self._clause()
        if self._rng.random() < 0.5:
            return f"“{_begun(said).rstrip('.')}{'' if said[-1] in '?!' else ','}” {who} {self._pick(_VERBS)}."
        answer = self._pick(("Yes", "No", "Well", "Perhaps", "Of course", "I see", "Oh", "Really", "Not at all"))
        lines = f"{_begun(who)} {self._pick(_VERBS)}, “{_begun(said)}”"
        return lines if self._rng.random() < 0.5 else f"{lines} “{answer}, {self._pick(_NAMES)}.”"

    def _passage(self) -> str:
        parts = [self._sentence() for _ in range(int(self._rng.integers(2, 5)))]
        return " ".join(map(_begun, parts))

    def one(self) -> str:
        """A text of at most `LONGEST_TEXT` characters."""
        kinds: list[tuple[float, Callable[[], str]]] = [
            (0.40, self._sentence),
            (0.20, self._passage),
            (0.10, lambda: corpus.asked(self._clause(), self._rng)),
            (0.10, self._dialogue),
            (0.11, self._numbers),
            (0.06, self._named),
            (0.03, self._acronym),
        ]
        shares = np.array([share for share, _ in kinds])
        while True:
            text = _begun(kinds[int(self._rng.choice(len(kinds), p=shares / shares.sum()))][1]())
            if len(text) <= LONGEST_TEXT:
                return text


def blends(seed: int = 31) -> list[Recipe]:
    """Virtual speakers: `BLENDS` to train on, then `HELD_OUT_BLENDS`; pairs within and across the sexes, and triples.

    Weights stay inside the hull: extrapolated styles are rated lower and are the nearer voice again.
    """
    rng = np.random.default_rng(seed)
    pool = [v for v in (*STOCK, *MORE) if v not in HELD_OUT_STOCK]
    made: list[Recipe] = []
    while len(made) < BLENDS + HELD_OUT_BLENDS:
        kind = rng.random()
        chosen = [str(v) for v in rng.choice(pool, size=2 if kind < 0.65 else 3, replace=False)]
        alike = chosen[0][1] == chosen[1][1]
        if len(chosen) == 2:
            if alike != (kind < 0.4):
                continue
            first = float(rng.uniform(0.35, 0.65))
            weights = [first, 1 - first]
        else:
            weights = rng.dirichlet([4.0] * 3).tolist()
        rounded = [round(w, 3) for w in weights[:-1]]
        recipe = tuple(zip(chosen, [*rounded, round(1 - sum(rounded), 3)], strict=True))
        if min(w for _, w in recipe) > 0.05:
            made.append(recipe)
    return made


def speakers(part: str) -> list[tuple[str, Recipe]]:
    """Names and recipes of a part's speakers."""
    if part == "blend":
        return [(f"blend{i:03d}", recipe) for i, recipe in enumerate(blends()[:BLENDS])]
    names: dict[str, Sequence[str]] = {"stock": STOCK, "mandarin": MANDARIN}
    return [(name, ((name, 1.0),)) for name in names[part]]


@dataclass(frozen=True)
class Part:
    """Some speakers, and how much each says."""

    name: str
    minutes: float
    """Of each speaker, reckoned by the lengths of texts."""
    language: str
    seed: int
    speeds: tuple[float, float] = (0.9, 1.1)
    """Least and greatest pace."""
    rows: int = 20
    """From the text's own style, at most, either way."""
    steady: float = 0.0
    """How far a speaker keeps to a pace and a style of his own: 0 not at all, 1 altogether."""


PARTS = (
    Part("stock", 30, "en", 51),
    Part("blend", 1 / 6, "en", 52, (0.8, 1.25), 40, 0.7),
    Part("mandarin", 30, "zh", 53),
)
"""Five hours by the presets' teachers, three by blends, four of Mandarin; less where texts are said quicker than reckoned."""
LATER = (Part("stock", 3, "en", 54), Part("mandarin", 7, "zh", 55))
"""What follows: a tenth and a fifth more, for what silence took away and what was not understood."""


def texts(part: Part, chinese: Callable[[], Path]) -> Callable[[], str]:
    """What draws a part's texts; `chinese` gives the folder of Debian's Chinese ones."""
    if part.language == "en":
        return English(part.seed).one
    from training.mandarin_text import Sentences

    drawn = Sentences(chinese(), seed=part.seed)
    held = set(HELD_OUT_MANDARIN.read_text(encoding="utf-8").split())

    def one() -> str:
        while (text := drawn.one()) in held:
            pass
        return text

    first = evenly(one, initial)
    return lambda: first() + (one() if drawn.rng.random() < 0.3 else "")


def initial(text: str) -> str:
    """The consonant that the first syllable of a Mandarin text begins with, as Pinyin writes it; "" for none."""
    from pypinyin import Style, lazy_pinyin

    return next(iter(lazy_pinyin(text[:1], style=Style.INITIALS, strict=False)), "")


def evenly(draw: Callable[[], str], kind: Callable[[str], str], choices: int = 6) -> Callable[[], str]:
    """Draws so that kinds come as evenly as they can: of some `choices` each time the one whose kind came least often."""
    counts: Counter[str] = Counter()

    def one() -> str:
        text = min((draw() for _ in range(choices)), key=lambda text: counts[kind(text)])
        counts[kind(text)] += 1
        return text

    return one


def requests(part: Part, draw: Callable[[], str], scale: float = 1.0) -> Iterator[Request]:
    """The utterances of a part: in every round each speaker who has not said enough says one, in an order of its own.

    Moods (pace, and rows from the text's own style) are drawn within the part's bounds, and nothing in the text tells them.
    Every other blend has the prosody of another. Where `scale` leaves less than an utterance for each speaker, the first of
    them speak alone.
    """
    rng = np.random.default_rng(part.seed + 100)
    people = speakers(part.name)
    own = rng.random((len(people), 2))
    others = blends(seed=32)
    prosody = [others[at] if part.name == "blend" and at % 2 else () for at in range(len(people))]
    people = people[: math.ceil(len(people) * min(1.0, part.minutes * 60 * scale / _UTTERANCE_S))]
    left = np.full(len(people), part.minutes * 60 * scale)
    number = 0
    while (left > 0).any():
        for at in rng.permutation(len(people)).tolist():
            if left[at] <= 0:
                continue
            text = draw()
            place = own[at] * part.steady + rng.random(2) * (1 - part.steady)
            slow, fast = part.speeds
            speed = round(float(slow * (fast / slow) ** place[0]), 3)
            offset = round(float(part.rows * (2 * place[1] - 1)))
            left[at] -= len(text) / _PER_SECOND[part.language] / speed
            name, recipe = people[at]
            yield Request(number, part.name, name, recipe, part.language, text, speed, offset, prosody[at])
            number += 1


def mixed(parts: Sequence[Sequence[Request]]) -> list[Request]:
    """All parts together, each spread evenly over the whole: any beginning of it is balanced."""
    placed = [((at + 0.5) / len(part), request) for part in parts for at, request in enumerate(part)]
    placed.sort(key=lambda pair: pair[0])
    return [request for _, request in placed]


def drawn(chinese: Callable[[], Path], scale: float = 1.0) -> list[Request]:
    """The whole plan, numbered; `chinese` gives the folder of Debian's Chinese texts, `scale` is of the minutes."""
    rounds = [mixed([list(requests(part, texts(part, chinese), scale)) for part in parts]) for parts in (PARTS, LATER)]
    return [replace(request, number=number) for number, request in enumerate(chain.from_iterable(rounds))]
