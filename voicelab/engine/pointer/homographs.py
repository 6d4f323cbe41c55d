"""Homographs by part of speech: context rules over the words of a clause.

A word is classified as noun or verb by weighted evidence from its neighbors (determiners, auxiliaries, pronouns,
prepositions, suffixes); words with several meanings (bow, lead, minute) also have cues among the words of the sentence. These
are rules, not a trained tagger, because no tagged corpus has a license and a size suitable for the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from voicelab.text.clean import rows, word_lists

_TABLE: Final = {word: (noun, verb) for word, noun, verb in rows("english/homographs")}
_SENSES: Final = {word: tuple(senses) for word, *senses in rows("english/senses")}
HOMOGRAPHS: Final = frozenset({*_TABLE, *_SENSES})
"""Words that have several readings."""
_CUES: Final = word_lists("english/cues")
_DETERMINERS, _AUXILIARIES, _SUBJECTS = _CUES["determiners"], _CUES["auxiliaries"], _CUES["subjects"]
_BE, _HAVE, _PREPOSITIONS, _ADVERBS = _CUES["be"], _CUES["have"], _CUES["prepositions"], _CUES["adverbs"]
_TRANSITIVES: Final = _CUES["transitives"]
_OBJECTS: Final = _CUES["object"] | {"myself", "yourself", "himself", "herself", "itself", "ourselves", "themselves"}
_ADJECTIVAL: Final = ("al", "ive", "ous", "ful", "ic", "less", "able", "ible", "ary", "est", "ish", "ern")


class Context:
    """The words around position `i` of `words`, in lower case; "" represents punctuation."""

    def __init__(self, words: Sequence[str], i: int, surface: str) -> None:
        begin, end = i, i + 1
        while begin and words[begin - 1]:
            begin -= 1
        while end < len(words) and words[end]:
            end += 1
        self.word, self.surface, self.left, self.right = words[i], surface, words[begin:i], words[i + 1 : end]
        self.all, self.clause = frozenset(words), frozenset((*self.left, *self.right))
        self.skipped = [w for w in self.left if w not in _ADVERBS and not (w.endswith("ly") and len(w) > 4)]
        if self.skipped[-2:] == ["no", "longer"]:
            del self.skipped[-2:]

    @property
    def before(self) -> str:
        """Previous word."""
        return self.left[-1] if self.left else ""

    @property
    def subject(self) -> str:
        """Previous word that is not an adverb."""
        return self.skipped[-1] if self.skipped else ""

    @property
    def after(self) -> str:
        """Next word."""
        return self.right[0] if self.right else ""

    def has(self, cue: str) -> bool:
        """Test whether the sentence contains a word of a cue list."""
        return not _CUES[cue].isdisjoint(self.all)

    def verb(self) -> float:
        """Return the evidence that the word is a verb; negative values indicate a noun or adjective."""
        before, subject, after = self.before, self.subject, self.after
        score = 0.0
        if subject == "to":
            score += -1 if len(self.skipped) > 1 and self.skipped[-2] in _CUES["before_noun_to"] else 4
        elif subject in _AUXILIARIES or (
            subject.endswith("n't") and subject not in ("isn't", "wasn't", "aren't", "weren't")
        ):
            score += 4
        elif subject in _SUBJECTS and not (subject in ("it", "you") and len(self.skipped) > 1 and after in _BE):
            score += 3
        if subject in ("that", "which") and len(self.skipped) > 1 and after and after not in _BE:
            score += 2 if after in _OBJECTS or after in _PREPOSITIONS or after in _DETERMINERS else 0
        elif subject in _DETERMINERS or subject.endswith("'s"):
            score -= 4
        elif subject in _PREPOSITIONS:
            score -= 3
        elif subject in _BE or subject in _HAVE or before.endswith(_ADJECTIVAL) or before in _CUES["adjectives"]:
            score -= 2
        elif subject.endswith("s") and not subject.endswith("ss") and len(subject) > 3 and before not in _TRANSITIVES:
            score += 1.5
        if len(self.skipped) > 1 and self.skipped[-2] in _DETERMINERS and not before.endswith("s"):
            score -= 1.5
        if before in _TRANSITIVES or before in _CUES["degree"]:
            score -= 2
        if (
            self.left
            and self.left[0] in _CUES["question_verbs"]
            and len(self.left) > 2
            and after in _OBJECTS | _CUES["quantifiers"]
        ):
            score += 4  # did the firm appropriate the idea
        if self.word.endswith("s") and before and not before.endswith("s") and after in _OBJECTS:
            score += 2  # the law confines the debate
        if not self.left:
            score += (
                3 if after in _OBJECTS else 1.2 if after and not after.endswith("s") and len(self.right) > 1 else -0.5
            )
        elif after in _OBJECTS:
            score += 2
        if (after in _BE or after in _HAVE or after in _AUXILIARIES or after == "of") and subject != "who":
            score -= 2
        if subject in ("and", "or", "but") and len(self.skipped) > 2:
            score += 2 if after in _OBJECTS else 0 if after or _BE.isdisjoint(self.left) else -2  # slow and deliberate
        return score


def homograph(words: Sequence[str], i: int, surface: str) -> tuple[str, ...] | None:
    """Pronounce a homograph by its context, or return None for the lexicon's pronunciation.

    Args:
        words: the words of a segment in lower case, "" for punctuation.
        i: the position of the word.
        surface: the word as written, since "Polish" and "polish" differ.
    """
    word = words[i]
    if word in _SENSES:
        context = Context(words, i, surface)
        return tuple(_SENSES[word][_SENSE_OF[word](context)].split(" "))
    entry = _TABLE.get(word)
    evidence = Context(words, i, surface).verb() if entry else 0.0
    if entry is None or (abs(evidence) <= 1 and word not in ("use", "house")):
        return None
    return tuple(entry[evidence > 0].split(" "))


def _lives(c: Context) -> int:
    if c.before in _CUES["who_lives"]:
        return 0
    return int(c.before in _CUES["noun"] | _CUES["saved"] or c.before.endswith("'s") or c.after not in _CUES["place"])


def _read(c: Context) -> int:
    subject, earlier = c.subject, c.skipped[-2:-1]
    if earlier and earlier[0] in ("have", "had", "haven't", "hadn't"):
        return 1
    if earlier and earlier[0] in ("let", "help", "hear", "heard", "see", "saw") and subject in _OBJECTS:
        return 0
    if (
        subject == "to"
        or subject in _AUXILIARIES
        or subject.endswith("n't")
        or subject in _DETERMINERS
        or "let's" in c.left[-2:]
    ):
        return int(subject in _BE or subject in _HAVE)
    if subject in _HAVE or subject in _BE or subject.endswith("'ve") or "been" in c.left[-2:]:
        return 1
    if not _AUXILIARIES.isdisjoint(c.skipped[-3:-1]) and subject in _SUBJECTS:
        return 0  # did you read
    if c.after == "by" and subject not in _SUBJECTS:
        return 1
    if not c.left or subject in ("and", "or", "please"):
        return int(subject == "and" and (c.has("past") or any(w.endswith("ed") for w in c.left)))
    if subject in ("he", "she", "it"):
        return 1  # not "reads"
    for words in (c.clause, c.all):
        if not (_CUES["habit"] | _CUES["past"]).isdisjoint(words):
            return int(_CUES["habit"].isdisjoint(words))
    plural_subject = subject in ("i", "you", "we", "they", "who") or (
        subject.endswith("s") and not subject.endswith("ss")
    )
    if plural_subject or subject in _CUES["plurals"]:
        return int(any(w.endswith("ed") for w in c.all))
    return int(subject not in _PREPOSITIONS)


def _lead(c: Context) -> int:
    return int(
        c.after in _CUES["after_lead"]
        or c.before in ("of", "molten", "melted")
        or (c.before in ("with", "from", "contains", "containing") and (not c.after or c.after in _BE))
        or (c.verb() <= 0 and c.has("metal"))
    )


def _live(c: Context) -> int:
    before, subject, after = c.before, c.subject, c.after
    if subject in ("to", "not", "i", "you", "we", "they", "who") or subject in _AUXILIARIES or subject.endswith("n't"):
        return 0
    if subject in ("that", "which") and len(c.skipped) > 1 and c.skipped[-2].endswith("s"):
        return 0
    if before in _CUES["goes_live"] or subject in _BE or subject in _DETERMINERS or after in _CUES["live_shows"]:
        return 1
    if subject in _SUBJECTS or subject in _CUES["plurals"] or subject.endswith("s"):
        return 0
    return int(not c.left or (not after and c.has("broadcast")) or before in _PREPOSITIONS)


def _tear(c: Context) -> int:
    if c.verb() > 0 and c.surface != "tears":
        return 1
    if c.surface.lower() == "tears":
        verb = c.verb() > 0 and c.before in ("he", "she", "it", "who", "that")
        return int(verb or (c.after in _OBJECTS and c.subject not in _DETERMINERS))
    return int((c.has("rip") and c.after not in _CUES["weep"]) or (c.after in ("in", "up") and not c.has("weep")))


def _bow(c: Context) -> int:
    bends = c.has("ship") or c.verb() > 0 or c.after in ("to", "down", "before") or c.has("stage")
    return int(bends and not c.has("ribbon"))


def _minute(c: Context) -> int:
    if c.before == "more" and not _DETERMINERS.isdisjoint(c.left[-2:-1]):
        return 0  # one more minute
    if c.before in _CUES["degree"] or c.after in _CUES["tiny"]:
        return 1
    return int(
        (c.subject in _BE and not c.after) or (c.before in ("in", "of", "with", "only") and c.after.endswith("s"))
    )


def _content(c: Context) -> int:
    if c.after in ("with", "to") and c.subject not in _DETERMINERS | _PREPOSITIONS:
        return 1
    states = _BE | _CUES["states"]
    return int((c.subject in states and c.after not in _BE) or c.before in _CUES["degree"])


def _polish(c: Context) -> int:
    if c.surface[:1].islower():
        return 0
    return int(bool(c.left) or c.after not in _OBJECTS)


def _wound(c: Context) -> int:
    subject = c.subject
    if subject == "to" or subject in _AUXILIARIES or subject in _DETERMINERS or c.has("blood"):
        return 0
    if c.before in _PREPOSITIONS or c.before in _CUES["adjectives"] or not c.left:
        return 0
    turns = _CUES["turned"] | _OBJECTS | _PREPOSITIONS | {"tightly", "slowly", "its"}
    return int(c.after in turns and c.after not in ("of", "is"))


def _dove(c: Context) -> int:
    if c.subject in _DETERMINERS or c.before in _PREPOSITIONS or c.before in _CUES["adjectives"]:
        return 0
    return int(
        bool(c.left) and c.after in _PREPOSITIONS | {"to", "deep", "headfirst", "straight", "right", "deeper", "down"}
    )


def _row(c: Context) -> int:
    return int(c.verb() <= 0 and (c.has("quarrel") or c.after in ("over", "about", "between")))


def _wind(c: Context) -> int:
    return int(c.verb() > 1.3 or (not c.left and c.after in ("up", "down")))


def _bass(c: Context) -> int:
    return int((c.has("angling") or c.after in ("are", "were")) and not c.has("music"))


def _close(c: Context) -> int:
    if (c.after in _OBJECTS and c.before not in _BE) or (c.before == "to" and c.after != "friends"):
        return 1
    if (
        c.subject not in _BE
        and c.before not in _CUES["degree"]
        and c.after in ("early", "late", "at", "on", "down", "for")
    ):
        return 1
    if c.before in _CUES["degree"] or c.after in ("to", "by", "friend", "friends", "enough"):
        return int(c.after != "by" and c.subject in _AUXILIARIES)
    if c.before in ("the", "a") and c.after in ("of", ""):
        return 1  # at the close of day
    return int(c.verb() > 0)


def _invalid(c: Context) -> int:
    nouns_end = _PREPOSITIONS | _BE | _HAVE | _AUXILIARIES
    return int(c.subject not in _DETERMINERS or bool(c.after and c.after not in nouns_end))


def _upset(c: Context) -> int:
    states = _BE | _CUES["states"] | _CUES["degree"] - {"too"}
    return int(c.verb() > 0 or c.before in states or (c.subject in _BE and c.before != "too"))


_SENSE_OF: Final = {
    "read": _read, "lead": _lead, "live": _live, "lives": _lives, "tear": _tear, "tears": _tear, "bow": _bow, "bows": _bow,
    "minute": _minute, "content": _content, "polish": _polish, "wound": _wound, "dove": _dove, "row": _row, "wind": _wind,
    "bass": _bass, "close": _close, "invalid": _invalid, "upset": _upset,
}  # fmt: skip
