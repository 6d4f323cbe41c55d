"""The tables beside the front end: tab-separated files, each with a comment that names its source and licence."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["pairs", "rows", "word_lists"]


def rows(name: str) -> tuple[tuple[str, ...], ...]:
    """The rows of ``voicelab/engine/text/<name>.tsv``, split at tabs; lines that begin with ``# `` are comments."""
    text = files(__package__).joinpath(f"{name}.tsv").read_text(encoding="utf-8")
    return tuple(tuple(line.split("\t")) for line in text.split("\n") if line and not line.startswith("# "))


def pairs(name: str) -> dict[str, str]:
    """A table of two columns."""
    return {row[0]: row[1] for row in rows(name)}


def word_lists(name: str) -> dict[str, frozenset[str]]:
    """A table of named lists: name, words with spaces between."""
    return {key: frozenset(words.split(" ")) for key, words in rows(name)}
