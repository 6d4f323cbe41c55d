"""Rules: tables of patterns and what is said for them, applied in their order; and the reading of all tables beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, TypeAlias

__all__ = ["Functions", "Match", "Rule", "Rules", "any_of", "pairs", "rows", "word_lists"]


Match: TypeAlias = re.Match[str]
Says: TypeAlias = Callable[[Match], str]
_DIGIT = re.compile(r"\d")
_PART = re.compile(r"\{([a-z_]+)\}")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t"}


def any_of(words: Iterable[str]) -> str:
    """A pattern for one of `words`, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


class Functions(dict[str, Says]):
    """Name of a rule → the function that says its matches."""

    def says(self, function: Says) -> Says:
        """The decorated function is that of the rule of its name."""
        self[function.__name__.strip("_").replace("_", " ")] = function
        return function


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, with a text that it changes and how that text is said in the end; a test tries every example."""

    name: str
    digits: bool
    """Whether it is tried only in texts that hold a digit."""
    example: str
    spoken: str
    said: Says | str
    """What to write for a match: a function of it, or a template of `re.sub`."""
    pattern: re.Pattern[str]


class Rules:
    """A table of rules.

    Args:
        name: of the table, see `rows`. Its columns are those of `Rule`; what is said is ``@`` where a function says it. A row
            of two columns, ``{name}`` and a pattern, defines a part for the patterns below it.
        functions: name of the rule → its function.
        parts: further parts of patterns.
    """

    def __init__(self, name: str, functions: Mapping[str, Says], parts: Mapping[str, str]) -> None:
        self.parts = dict(parts)
        self._rules: dict[str, Rule] = {}
        for row in rows(name):
            pattern = _PART.sub(lambda m: self.parts[m[1]], row[-1])
            if len(row) == 2:
                self.parts[row[0].strip("{}")] = pattern
                continue
            rule, needs, example, spoken, said, _ = row
            for escape, char in _ESCAPES.items():
                example = example.replace(escape, char)
            says = functions[rule] if said == "@" else said
            self._rules[rule] = Rule(rule, needs == "digits", example, spoken, says, re.compile(pattern))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    def apply(self, text: str, without: str = "") -> str:
        """`text` with each rule but `without` applied once, everywhere, in order."""
        digits = _DIGIT.search(text) is not None
        for rule in self._rules.values():
            if (digits or not rule.digits) and rule.name != without:
                text = rule.pattern.sub(rule.said, text)
        return text


def rows(name: str) -> tuple[tuple[str, ...], ...]:
    """The rows of ``voicelab/engine/text/tables/<name>.tsv``, split at tabs; lines that begin with ``# `` are comments."""
    text = files(__package__).joinpath("tables", f"{name}.tsv").read_text(encoding="utf-8")
    return tuple(tuple(line.split("\t")) for line in text.split("\n") if line and not line.startswith("# "))


def pairs(name: str) -> dict[str, str]:
    """A table of two columns."""
    return {row[0]: row[1] for row in rows(name)}


def word_lists(name: str) -> dict[str, frozenset[str]]:
    """A table of named lists: name, words with spaces between."""
    return {key: frozenset(words.split(" ")) for key, words in rows(name)}
