"""Tags in a text: what is sent, and what is meant to be heard.

A text may hold tags for the model between its words. `read_tags` is the one place that tells both apart: requests, cache
keys and run folders hold what is sent; word errors, alignment, estimates, captions and plots go by what is said.

Two grammars, by the name of the model. "s1" has styles of a fixed list in round brackets, ``(whispering)``; any other
model takes free words in square brackets, ``[whispering]``, ``[in a hurry, out of breath]``. Both have pauses (``[pause]``,
``(break)``, ``<break time="500ms"/>``), speakers (``<|speaker:0|>``) and phoneme spans:
``<|phoneme_start|>R IY1 D<|phoneme_end|>``, and with the word that they stand for ``[read](/ɹid/)`` or
``<phoneme ph="R IY1 D">read</phoneme>``. What else looks like a tag stays in the text, and a note says so.
Sources: docs.fish.audio, "Emotion control" and "Fine-grained control"; W3C SSML 1.1, sections 3.1.10 and 3.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from voicelab.errors import shortened
from voicelab.schema import DEFAULT_MODEL

TagKind = Literal["style", "pause", "emphasis", "phonemes", "speaker"]

S1_STYLES: Final = frozenset(
    (
        "angry, sad, excited, surprised, satisfied, delighted, scared, worried, upset, nervous, frustrated, depressed, "
        "empathetic, embarrassed, disgusted, moved, proud, relaxed, grateful, confident, interested, curious, confused, "
        "joyful, happy, calm, disdainful, unhappy, anxious, hysterical, indifferent, impatient, guilty, scornful, panicked, "
        "furious, reluctant, keen, disapproving, negative, denying, astonished, serious, sarcastic, conciliative, "
        "comforting, sincere, sneering, hesitating, yielding, painful, awkward, amused, in a hurry tone, shouting, "
        "screaming, whispering, soft tone, laughing, chuckling, sobbing, crying loudly, sighing, panting, groaning, "
        "crowd laughing, background laughter, audience laughing, breath, laugh, cough, lip-smacking, sigh"
    ).split(", ")
)
"""Words that s1 takes in round brackets; pauses are apart."""

PAUSE_S: Final = {"short pause": 0.3, "pause": 0.6, "break": 0.6, "long pause": 1.2, "long-break": 1.2}
"""Seconds of the pauses that have a name, as the embedded voice makes them; the models' documentation gives none."""
_LONGEST_PAUSE_S: Final = 10.0
_MOST_LISTED: Final = 8
_LONGEST_LISTED: Final = 60

_COMMON: Final = (
    r"<\|phoneme_start\|>(?P<span>[^<>]*)<\|phoneme_end\|>"
    r"|<phoneme\b[^<>]*?\bph=(?P<q>[\"'])(?P<ph>[^<>]*?)(?P=q)[^<>]*>(?P<phword>[^<>]*)</phoneme>"
    r"|\[(?P<word>[^\[\]\n]+)\]\(/(?P<slashed>[^/()\n]+)/\)"
    r"|(?P<speaker><\|speaker:\d+\|>)"
    r"|<break\b(?P<break>[^<>]*)>"
)
_SQUARE: Final = re.compile(_COMMON + r"|\[(?P<name>[^\W\d_][^\[\]\n]{0,98})\]")
_ROUND: Final = re.compile(
    _COMMON + rf"|\((?P<name>{'|'.join(map(re.escape, sorted({*S1_STYLES, *PAUSE_S})))})\)", re.IGNORECASE
)
_LIKE_A_TAG: Final = re.compile(
    r"\[[^\[\]\n]*\]|<\|(?!phoneme_start)[^|<>]*\|>|</?(?:break|emphasis|phoneme|prosody|say-as|speak|sub|voice)\b[^<>]*>"
    rf"|\((?:{'|'.join(map(re.escape, sorted(S1_STYLES)))}|long-break)\)"
)
_UNCLOSED: Final = re.compile(
    r"<\|phoneme_start\|>[^<\n]*|\[(?=[^\W\d_])[^\[\]\n]*|<\|(?:[^|<>]|\|(?!>))*|<(?:break|phoneme)\b[^<>]*"
)
_SECONDS: Final = re.compile(r"\btime=[\"']?\s*(\d+\.?\d*|\.\d+)\s*(ms|s)\b")
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")  # written without spaces between words
_OPENING: Final = re.compile(r"(?:^|[\s(])[\"'(“‘«「（]$|[(“‘«「（]$")


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag of a text.

    `name` is what stands in it: "whispering", the phonemes, a speaker's number. `start` and `end` are its place in what
    is sent, `at` the place in what is said that it stands before. `seconds` is a pause's length; `word` what a phoneme
    span stands for, "" where it does not say.
    """

    text: str
    kind: TagKind
    name: str
    start: int
    end: int
    at: int
    seconds: float = 0.0
    word: str = ""


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text as it is sent and as it is said, its tags in order, and notes on what only looks like a tag."""

    sent: str
    said: str
    tags: tuple[Tag, ...] = ()
    notes: tuple[str, ...] = ()


def read_tags(text: str, model: str = DEFAULT_MODEL, spell: Callable[[Tag], str] | None = None) -> TaggedText:
    """Tell what is said from the tags of a text. Never raises; a text without tags is said as it is.

    Args:
        text: as it is sent.
        model: whose grammar it is written in.
        spell: what is said for a phoneme span; by default the word that it names, or nothing.
    """
    grammar, end, over_tag = _ROUND if model == "s1" else _SQUARE, 0, False
    said, rest, tags, inside = "", "", list[Tag](), list[str]()
    for match in grammar.finditer(text):
        part = text[end : match.start()]
        said, rest, end = _join(said, part, over_tag), f"{rest}{part}\n", match.end()
        tag, over_tag = _tag(match, len(said.rstrip(" \t"))), True
        before, after = part[-1:], text[match.end() :][:1]
        if before.isalnum() and after.isalnum() and not _UNSPACED.search(before + after):
            if tag.kind != "speaker":
                inside.append(tag.text)
            if tag.kind in ("pause", "speaker"):
                said += " "
        tags.append(tag)
        if tag.kind == "phonemes" and (word := spell(tag) if spell else tag.word):
            said, over_tag = said + word, False
    said = _join(said, text[end:], over_tag)
    if over_tag and end == len(text):
        said = said.rstrip(" \t")
    notes = _noted(inside, "stands in the middle of a word")
    return TaggedText(text, said, tuple(tags), (*notes, *_stay(rest + text[end:], model)))


def said(text: str, model: str = DEFAULT_MODEL) -> str:
    """Return what is meant to be heard of a text: see `read_tags`."""
    return read_tags(text, model).said


def ignored(text: TaggedText, acting: Collection[str] = (), but: Collection[Tag] = ()) -> Iterator[str]:
    """Yield a note on the tags of a text that do nothing: those of no kind in `acting`, and those in `but`."""
    idle = [tag.text for tag in text.tags if tag.kind not in acting or tag in but]
    if idle:
        names = {"pause": "pauses", "phonemes": "phoneme spans", "emphasis": "emphasis"}
        acts = ", ".join(names[kind] for kind in acting) or "no tags"
        yield f"{listed(idle)} did nothing: this voice acts on {acts}"


def listed(items: Iterable[str]) -> str:
    """Return different items as a note lists them: the first ones, each shortened, and how many more there are."""
    different = list(dict.fromkeys(" ".join(item.split()) for item in items))
    more = [f"and {len(different) - _MOST_LISTED} more"] * (len(different) > _MOST_LISTED)
    return ", ".join([*(shortened(item, _LONGEST_LISTED) for item in different[:_MOST_LISTED]), *more])


def _join(said: str, part: str, over_tag: bool) -> str:
    """`said` with what follows it, the spaces mended where a tag was taken out between the two."""
    if not over_tag or not part:
        return said + part
    if not said.strip():
        return part.lstrip(" \t")
    if _OPENING.search(said):
        return said + part.lstrip(" \t")
    if part[0].isspace() or part[0] in ",.;:!?…)]”’»":
        return said.rstrip(" \t") + part
    return f"{said} {part}" if said[-1] in ",.;:!?…" and part[0].isalnum() else said + part


def _tag(match: re.Match[str], at: int) -> Tag:
    start, end = match.span()
    for span, word in (("span", ""), ("ph", match["phword"]), ("slashed", match["word"])):
        if match[span] is not None:
            return Tag(match[0], "phonemes", match[span].strip(), start, end, at, word=(word or "").strip())
    if match["speaker"]:
        return Tag(match[0], "speaker", match["speaker"][10:-2], start, end, at)
    if match["break"] is not None:
        time = _SECONDS.search(match["break"])
        seconds = float(time[1]) * (0.001 if time[2] == "ms" else 1.0) if time else PAUSE_S["pause"]
        return Tag(match[0], "pause", "break", start, end, at, min(_LONGEST_PAUSE_S, seconds))
    name = match["name"].strip()
    if name.lower() in PAUSE_S:
        return Tag(match[0], "pause", name, start, end, at, PAUSE_S[name.lower()])
    return Tag(match[0], "emphasis" if name.lower() == "emphasis" else "style", name, start, end, at)


def _noted(texts: Iterable[str], what: str, unless_ssml: str = "") -> Iterator[str]:
    """Yield a note on each of the first different texts, and how many more there are."""
    different = list(dict.fromkeys(texts))
    for text in different[:_MOST_LISTED]:
        ssml = text.startswith("<") and not text.startswith("<|")
        yield f"{shortened(text, _LONGEST_LISTED)} {what}{unless_ssml * (not ssml)}"
    if len(different) > _MOST_LISTED:
        yield f"{len(different) - _MOST_LISTED} more texts: each {what}"


def _stay(rest: str, model: str) -> Iterator[str]:
    """Notes on what looks like a tag in the text between the tags."""
    # SSML in angle brackets is left out by some voices, which note it themselves.
    yield from _noted(_LIKE_A_TAG.findall(rest), f"is no tag of {model}", ": it stays in the text")
    if unclosed := _UNCLOSED.search(_LIKE_A_TAG.sub("\n", rest)):
        begun = " ".join(unclosed[0].split())
        yield f"{begun if len(begun) < 30 else begun[:28] + '…'} is a tag that is never closed: it stays in the text"
