"""Parse control tags in request texts.

`read_tags` separates the spoken text from the control tags of the request text. Requests, cache keys and run folders
contain the request text; WER, alignment, duration estimates, captions and plots use the spoken text.

The model selects the grammar. "s1" has a fixed list of styles in round brackets, ``(whispering)``; any other model takes
free text in square brackets, ``[whispering]``, ``[in a hurry, out of breath]``, ``[/whispering]``, and ``[voice:ann]`` for
a speaker. Models other than "s1" and "s2-pro" also have paired tags, ``<whisper>so</whisper>``. All models support pauses
(``[pause]``, ``(break)``, ``<break time="500ms"/>``), speakers (``<|speaker:0|>``) and phoneme spans:
``<|phoneme_start|>R IY1 D<|phoneme_end|>``, or with the word, ``[read](/ɹid/)`` and
``<phoneme ph="R IY1 D">read</phoneme>``. Other markup remains in the text, with a note.
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
"""Styles of s1 in round brackets, without pauses."""

PAUSE_S: Final = {"short pause": 0.3, "pause": 0.6, "break": 0.6, "long pause": 1.2, "long-break": 1.2}
"""Duration in seconds of named pauses in the embedded voice; the models' documentation states none."""
_MAX_PAUSE_S: Final = 10.0
_MAX_LISTED: Final = 8
_MAX_LISTED_LENGTH: Final = 60

_COMMON: Final = (
    r"<\|phoneme_start\|>(?P<span>[^<>]*)<\|phoneme_end\|>"
    r"|<phoneme\b[^<>]*?\bph=(?P<q>[\"'])(?P<ph>[^<>]*?)(?P=q)[^<>]*>(?P<phword>[^<>]*)</phoneme>"
    r"|\[(?P<word>[^\[\]\n]+)\]\(/(?P<slashed>[^/()\n]+)/\)"
    r"|(?P<speaker><\|speaker:\d+\|>)"
    r"|<break\b(?P<break>[^<>]*)>"
)
_SQUARE: Final = re.compile(
    # Not the alternative text of an image, a task's check box, or the text of a link.
    _COMMON + r"|(?<![!\\])\[(?![xX]\] )(?P<name>/?[^\W\d_][^\[\]\n]{0,98})\](?!\([^()\s]*[.:/#])"
)
# Other names are markup of SSML.
_PAIR: Final = (
    r"<(?P<slash>/?)(?P<pair>(?!(?:break|emphasis|phoneme|prosody|say-as|speak|sub|voice)\b)[A-Za-z][\w -]{0,40})>"
)
_PAIRED: Final = re.compile(f"{_SQUARE.pattern}|{_PAIR}")
_ROUND: Final = re.compile(
    _COMMON + rf"|\((?P<name>{'|'.join(map(re.escape, sorted({*S1_STYLES, *PAUSE_S})))})\)", re.IGNORECASE
)
_LIKE_A_TAG: Final = re.compile(
    r"(?<!\\)\[(?![ xX]\] |\d\d?:[\d:.,]*\])[^\[\]\n]*\](?!\()"
    r"|<\|(?!phoneme_start)[^|<>]*\|>|</?(?:break|emphasis|phoneme|prosody|say-as|speak|sub|voice)\b[^<>]*>"
    rf"|\((?:{'|'.join(map(re.escape, sorted(S1_STYLES)))}|long-break)\)"
)
_UNCLOSED: Final = re.compile(
    r"<\|phoneme_start\|>[^<\n]*"
    r"|(?<!\\)\[(?=[^\W\d_])(?!x\] |X\] |[^\[\]\n]*\]\()[^\[\]\n]*|<\|(?:[^|<>]|\|(?!>))*|<(?:break|phoneme)\b[^<>]*"
)
_SECONDS: Final = re.compile(r"\btime=[\"']?\s*(\d+\.?\d*|\.\d+)\s*(ms|s)\b")
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")  # written without spaces between words
_DEFINED: Final = re.compile(r"^ {0,3}\[([^\]\n]{1,99})\]:[ \t]*\S", re.MULTILINE)  # [name]: address
_OPENING: Final = re.compile(r"(?:^|[\s(])[\"'(“‘«「（]$|[(“‘«「（]$")


@dataclass(frozen=True, slots=True)
class Tag:
    """A control tag of a text.

    `name` is its content: a style, phonemes or a speaker number. `start` and `end` are its offsets in the request text,
    `at` is its offset in the spoken text. `seconds` is the duration of a pause; `word` the word of a phoneme span, "" if
    not given.
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
    """Request text (`sent`), spoken text (`said`), tags in order, and notes on markup that is not a tag."""

    sent: str
    said: str
    tags: tuple[Tag, ...] = ()
    notes: tuple[str, ...] = ()


def read_tags(text: str, model: str = DEFAULT_MODEL, spell: Callable[[Tag], str] | None = None) -> TaggedText:
    """Separate the spoken text from the control tags. Never raises; a text without tags is unchanged.

    Args:
        text: request text.
        model: model whose grammar applies.
        spell: returns the spoken text of a phoneme span; by default the span's word, if given.
    """
    grammar, end, over_tag = {"s1": _ROUND, "s2-pro": _SQUARE}.get(model, _PAIRED), 0, False
    spoken_text, rest, tags, inside = "", "", list[Tag](), list[str]()
    links = set(_DEFINED.findall(text)) if "]:" in text else set()
    paired = _paired(text) if grammar is _PAIRED and "</" in text else set()
    for match in grammar.finditer(text):
        if grammar is _PAIRED and match["pair"] and match.start() not in paired:
            continue
        if links and ({match["name"], text[match.end() + 1 :].partition("]")[0]} & links):
            continue
        chunk = text[end : match.start()]
        spoken_text, rest, end = _join(spoken_text, chunk, over_tag), f"{rest}{chunk}\n", match.end()
        tag, over_tag = _tag(match, len(spoken_text.rstrip(" \t"))), True
        before, after = chunk[-1:], text[match.end() :][:1]
        if before.isalnum() and after.isalnum() and not _UNSPACED.search(before + after):
            if tag.kind != "speaker":
                inside.append(tag.text)
            if tag.kind in ("pause", "speaker"):
                spoken_text += " "
        tags.append(tag)
        if tag.kind == "phonemes" and (word := spell(tag) if spell else tag.word):
            spoken_text, over_tag = spoken_text + word, False
    spoken_text = _join(spoken_text, text[end:], over_tag)
    if over_tag and end == len(text):
        spoken_text = spoken_text.rstrip(" \t")
    breaks = {tag.text: _break_s(tag.text) for tag in tags if tag.name == "break" and re.search(r"\btime\b", tag.text)}
    long = [text for text, seconds in breaks.items() if seconds and seconds > _MAX_PAUSE_S]
    untimed = [text for text, seconds in breaks.items() if seconds is None]
    notes = (
        *_noted(inside, "is inside a word"),
        *_noted(long, f"is limited to {_MAX_PAUSE_S:g} s"),
        *_noted(untimed, f"has no time such as 500ms, and lasts {PAUSE_S['pause']:g} s"),
    )
    return TaggedText(text, spoken_text, tuple(tags), (*notes, *_stay(rest + text[end:], model)))


def _paired(text: str) -> set[int]:
    """Return the offsets of paired tags, which are an opening and a closing tag of the same name."""
    positions: set[int] = set()
    openings: dict[str, list[int]] = {}
    for match in re.finditer(_PAIR, text):
        if not match["slash"]:
            openings.setdefault(match["pair"], []).append(match.start())
        elif openings.get(match["pair"]):
            positions |= {openings[match["pair"]].pop(), match.start()}
    return positions


def said(text: str, model: str = DEFAULT_MODEL) -> str:
    """Return the spoken text of a request text, see `read_tags`."""
    return read_tags(text, model).said


def ignored(text: TaggedText, acting: Collection[str] = (), but: Collection[Tag] = ()) -> Iterator[str]:
    """Yield a note on ignored tags: those of kinds that the voice does not support (not in `acting`), and those in `but`."""
    idle = [tag.text for tag in text.tags if tag.kind not in acting or tag in but]
    if idle:
        names = {"pause": "pauses", "phonemes": "phoneme spans", "emphasis": "emphasis"}
        acts = ", ".join(names[kind] for kind in acting) or "no tags"
        yield f"{listed(idle)} had no effect: this voice supports only {acts}"


def listed(items: Iterable[str]) -> str:
    """Format distinct items for a note: the first ones, each shortened, and the count of the others."""
    different = list(dict.fromkeys(" ".join(item.split()) for item in items))
    more = [f"and {len(different) - _MAX_LISTED} more"] * (len(different) > _MAX_LISTED)
    return ", ".join([*(shortened(item, _MAX_LISTED_LENGTH) for item in different[:_MAX_LISTED]), *more])


def _join(left_text: str, right_text: str, over_tag: bool) -> str:
    """Concatenate two spans of spoken text; if a tag was removed between them, correct the spaces."""
    if not over_tag or not right_text:
        return left_text + right_text
    if not left_text.strip():
        return right_text.lstrip(" \t")
    if _OPENING.search(left_text):
        return left_text + right_text.lstrip(" \t")
    if right_text[0].isspace() or right_text[0] in ",.;:!?…)]”’»":
        return left_text.rstrip(" \t") + right_text
    if left_text[-1] in ",.;:!?…" and right_text[0].isalnum():
        return f"{left_text} {right_text}"
    return left_text + right_text


def _break_s(text: str) -> float | None:
    """Return the duration in seconds of a ``<break>``; None if it has no valid time."""
    time = _SECONDS.search(text)
    return float(time[1]) * (0.001 if time[2] == "ms" else 1.0) if time else None


def _tag(match: re.Match[str], at: int) -> Tag:
    start, end = match.span()
    for span, word in (("span", ""), ("ph", match["phword"]), ("slashed", match["word"])):
        if match[span] is not None:
            return Tag(match[0], "phonemes", match[span].strip(), start, end, at, word=(word or "").strip())
    if match["speaker"]:
        return Tag(match[0], "speaker", match["speaker"][10:-2], start, end, at)
    if match["break"] is not None:
        seconds = _break_s(match[0])
        seconds = PAUSE_S["pause"] if seconds is None else min(_MAX_PAUSE_S, seconds)
        return Tag(match[0], "pause", "break", start, end, at, seconds)
    if match["name"] is None:
        return Tag(match[0], "style", match["pair"], start, end, at)
    name = match["name"].strip()
    if name.lower().startswith("voice:"):
        return Tag(match[0], "speaker", name.partition(":")[2].strip(), start, end, at)
    if name.lower() in PAUSE_S:
        return Tag(match[0], "pause", name, start, end, at, PAUSE_S[name.lower()])
    return Tag(match[0], "emphasis" if name.lower() == "emphasis" else "style", name, start, end, at)


def _noted(texts: Iterable[str], problem: str, unless_ssml: str = "") -> Iterator[str]:
    """Yield a note on each of the first distinct texts, and one on the number of further texts."""
    different = list(dict.fromkeys(texts))
    for text in different[:_MAX_LISTED]:
        ssml = text.startswith("<") and not text.startswith("<|")
        yield f"{shortened(text, _MAX_LISTED_LENGTH)} {problem}{unless_ssml * (not ssml)}"
    if len(different) > _MAX_LISTED:
        yield f"{len(different) - _MAX_LISTED} more texts: each {problem}"


def _stay(rest: str, model: str) -> Iterator[str]:
    """Yield notes on markup that remains in the text because it is not a tag."""
    # Some voices skip SSML in angle brackets with a note of their own.
    yield from _noted(_LIKE_A_TAG.findall(rest), f"is not a tag of {model}", ": it stays in the text")
    if unclosed := _UNCLOSED.search(_LIKE_A_TAG.sub("\n", rest)):
        begun = " ".join(unclosed[0].split())
        yield f"{begun if len(begun) < 30 else begun[:28] + '…'} is an unclosed tag: it stays in the text"
