"""English sentences: WordNet's glosses and examples (Debian's wordnet-base), and templates for other kinds of text.

Sampling is deterministic by seed. The 300 sentences of ``data/heldout.txt`` are held out; they are examples, which are closer
to speech than glosses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np

WORDNET = Path("/usr/share/wordnet")
HELDOUT = Path(__file__).parent / "data" / "heldout.txt"
_PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z',;\- ]*[.?!]?")
# Offensive words, excluded from sentences.
_UNWANTED = re.compile(
    r"sex|rape|porn|genital|penis|vagin|anus|\banal\b|fuck|shit|whore|prostitut|slut|nigg|copulat|intercourse|orgasm|"
    r"masturbat|erotic|incest|\bcunt|\bdick\b|nazi|suicid|semen|scrot|ejacul|breast|excre|urin|feces|faeces|slave|"
    r"abort|uterus|uterine|murder|corpse|cocaine|heroin|testic|bowel|offensive|derogat|disparag|ethnic slur|\bnaked\b|\bnude",
    re.IGNORECASE,
)
ONES = "zero one two three four five six seven eight nine ten eleven twelve".split()
ONES += "thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_UNITS = "dollars euros percent miles kilometers degrees minutes hours seconds pounds people years days points".split()
_OPENINGS = (
    "What is",
    "Where is",
    "Who found",
    "Why did they want",
    "How do you use",
    "Have you seen",
    "Do you know",
    "Can you find",
    "Is this",
    "When did you see",
    "Would you like",
    "Did anyone mention",
    "Are you sure about",
    "Which one is",
)
_LISTS = ("We have", "There were", "She wants", "They sold", "It comes with", "He spoke of", "Bring", "Choose between")
_FRAMES = (
    "Is it true that",
    "Did you say",
    "Do you mean",
    "Does it say",
    "Would you say that",
    "Why did he write",
    "Who said",
)


def recognizable_words() -> set[str]:
    """Return the words of the recognizer's dictionary (CMUdict, from the pocketsphinx wheel)."""
    text = (files("pocketsphinx") / "model" / "en-us" / "cmudict-en-us.dict").read_text(encoding="utf-8")
    return {line.split()[0] for line in text.splitlines() if line and "(" not in line.split()[0]}


def wordnet(words: set[str]) -> tuple[list[str], list[str]]:
    """Return (glosses, examples): unique sentences in file order whose words are all in `words`."""
    glosses: dict[str, None] = {}
    examples: dict[str, None] = {}
    for part_of_speech in _PARTS_OF_SPEECH:
        for line in (WORDNET / f"data.{part_of_speech}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  ") or " | " not in line:
                continue
            gloss = line.split(" | ", 1)[1].strip()
            for candidate in re.findall(r'"([^"]+)"', gloss):
                if sentence := _usable(candidate, words, 3, 16):
                    examples[sentence] = None
            for candidate in re.sub(r'"[^"]*"|\([^)]*\)', "", gloss).split(";"):
                if sentence := _usable(candidate, words, 4, 18):
                    glosses[sentence] = None
    return list(glosses), list(examples)


def _usable(text: str, words: set[str], min_words: int, max_words: int) -> str | None:
    text = re.sub(r"\s+", " ", text).strip(" ,;-")
    if not _PLAIN.fullmatch(text) or _UNWANTED.search(text):
        return None
    parts = re.findall(r"[a-z']+", text.lower())
    if not min_words <= len(parts) <= max_words or any(p not in words for p in parts):
        return None
    return text if text[-1] in ".?!" else text + "."


def vocabulary(words: set[str]) -> list[str]:
    """Return the words that fill templates."""
    return sorted(w for w in words if len(w) > 2 and w.isalpha() and not _UNWANTED.search(w))


def _number(rng: np.random.Generator) -> str:
    def below_hundred(n: int) -> str:
        return ONES[n] if n < 20 else _TENS[n // 10 - 2] + ("" if n % 10 == 0 else " " + ONES[n % 10])

    n = int(10 ** rng.uniform(0, 5))
    words = []
    if n >= 1000:
        thousands, n = divmod(n, 1000)
        words.append(
            (below_hundred(thousands) if thousands < 100 else ONES[thousands // 100] + " hundred") + " thousand"
        )
    if n >= 100:
        hundreds, n = divmod(n, 100)
        words.append(ONES[hundreds] + " hundred")
    if n or not words:
        words.append(below_hundred(n))
    return " ".join(words)


def template(rng: np.random.Generator, vocabulary: list[str]) -> str:
    """Draw a question, number, date, letters, names or a list, with words of `vocabulary`."""

    def pick(values: list[str] | tuple[str, ...]) -> str:
        return values[int(rng.integers(len(values)))]

    kind = rng.random()
    if kind < 0.25:
        return f"{pick(_OPENINGS)} the {pick(vocabulary)}{' ' + pick(vocabulary) if rng.random() < 0.5 else ''}?"
    if kind < 0.40:
        return f"{_number(rng).capitalize()} {pick(_UNITS)}, {_number(rng)} point {pick(ONES[:10])} {pick(_UNITS)}."
    if kind < 0.50:
        return f"{pick(DAYS)}, {pick(_MONTHS)} {_number(rng)}, {_number(rng)} {pick(_TENS)} {pick(ONES[1:10])}."
    if kind < 0.60:  # letters, so that acronyms can be spelled
        return (
            " ".join(chr(65 + int(rng.integers(26))) + "." for _ in range(int(rng.integers(2, 6))))
            + f" {pick(vocabulary)}."
        )
    if kind < 0.75:  # names and rare words, in lists with commas
        return ", ".join(pick(vocabulary).capitalize() for _ in range(int(rng.integers(2, 6)))) + "."
    if kind < 0.88:
        things = [pick(vocabulary) for _ in range(int(rng.integers(3, 6)))]
        return f"{pick(_LISTS)} {', '.join(things[:-1])}, and {things[-1]}."
    return f"{pick(vocabulary).capitalize()} {pick(vocabulary)}{pick(('!', '.'))}"


def as_question(text: str, rng: np.random.Generator) -> str:
    """Turn a sentence into a question or an exclamation."""
    if rng.random() < 0.4:
        return text[:-1] + "!"
    body = text[:-1]
    if body.split()[0] not in {"I", "I'm", "I've"}:
        body = body[0].lower() + body[1:]
    return f"{_FRAMES[int(rng.integers(len(_FRAMES)))]} {body}?"


def sentences(count: int, seed: int = 1) -> Iterator[str]:
    """Yield `count` training texts: examples, glosses, questions, passages, and templates (1 in 6)."""
    words = recognizable_words()
    glosses, examples = wordnet(words)
    held = set(HELDOUT.read_text(encoding="utf-8").splitlines())
    pool = [s for s in (*examples, *glosses) if s not in held]
    template_words = vocabulary(words)
    rng = np.random.default_rng(seed)
    weights = np.array([2.0] * (len(pool) - len(glosses)) + [1.0] * len(glosses))
    order = rng.choice(len(pool), size=count * 2 + 8, p=weights / weights.sum())
    drawn = (pool[int(i)] for i in order)
    for _ in range(count):
        kind = rng.random()
        if kind < 1 / 6:
            yield template(rng, template_words)
        else:
            text = next(drawn)
            if kind < 0.25:
                yield as_question(text, rng)
            elif kind < 0.33:
                more = [next(drawn) for _ in range(int(rng.integers(1, 4)))]
                yield " ".join(t[0].upper() + t[1:] for t in [text, *more])
            else:
                yield text if len(text) > 70 or kind < 0.72 else text[:-1] + ", " + next(drawn)


def choose_heldout(count: int = 300, seed: int = 7) -> list[str]:
    """Choose the held-out sentences among examples of 5 to 14 words."""
    _, examples = wordnet(recognizable_words())
    fit = [s for s in examples if 5 <= len(s.split()) <= 14 and "," not in s and ";" not in s and "-" not in s]
    rng = np.random.default_rng(seed)
    return [fit[int(i)] for i in rng.choice(len(fit), size=count, replace=False)]
