"""Text to ids: S2-Pro's ``tokenizer.json``, and S1-mini's table of byte pairs with its special tokens.

Both need the library ``tokenizers``, the second for the pattern that cuts text into words only.
"""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from voicelab.engine.dual.config import DualConfig
from voicelab.errors import MissingExtra, WeightsError

HUB, TABLE, SPECIAL = "tokenizer.json", "tokenizer.tiktoken", "special_tokens.json"
EXTRA = "open-weights"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{P}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(\?!\S)"  # a look-ahead, misspelt when the model was trained: so it has to stay
    r"|\s+"
)


class Tokenizer(Protocol):
    """Ids of a text; special tokens in it are taken as such, and nothing is added."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        ...

    def special(self, token: str) -> int:
        """The id of a special token. Raises WeightsError: there is none of this name."""
        ...


class HubTokenizer:
    """What ``tokenizer.json`` describes."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = _library().Tokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def special(self, token: str) -> int:
        """See Tokenizer."""
        number: int | None = self._tokenizer.token_to_id(token)
        return _known_id(token, number)


class TableTokenizer:
    """A table of byte strings, one a line as base64 with its rank, and special tokens behind it."""

    def __init__(self, table: Path, special: Path) -> None:
        self._special: dict[str, int] = json.loads(special.read_bytes())
        lines = (line.split() for line in table.read_bytes().splitlines())
        # The line of padding alone is none of the table's.
        self._ranks = {base64.b64decode(line[0]): int(line[1]) for line in lines if len(line) == 2 and line[0] != b"="}
        library = _library()
        self._words = library.pre_tokenizers.Split(library.Regex(_WORDS), "isolated")
        self._split = re.compile("(" + "|".join(map(re.escape, sorted(self._special, key=len, reverse=True))) + ")")

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        ids: list[int] = []
        for part in self._split.split(text):
            if part in self._special:
                ids.append(self._special[part])
            elif part:
                for word, _ in self._words.pre_tokenize_str(part):
                    ids.extend(self._pairs(word.encode()))
        return ids

    def special(self, token: str) -> int:
        """See Tokenizer."""
        return _known_id(token, self._special.get(token))

    def _pairs(self, word: bytes) -> list[int]:
        """Joins the neighbours that are of the lowest rank together, until none are in the table."""
        if word in self._ranks:
            return [self._ranks[word]]
        parts = [word[i : i + 1] for i in range(len(word))]
        while True:
            joined = (a + b for a, b in pairwise(parts))
            ranked = [(self._ranks[pair], i) for i, pair in enumerate(joined) if pair in self._ranks]
            if not ranked:
                return [self._ranks[part] for part in parts]
            _, i = min(ranked)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model's folder.

    Raises:
        WeightsError: its files are missing or damaged.
        MissingExtra: the library is not installed.
    """
    try:
        if (folder / HUB).exists():
            return HubTokenizer(folder / HUB)
        return TableTokenizer(folder / TABLE, folder / SPECIAL)
    except (MissingExtra, WeightsError):
        raise
    except FileNotFoundError as error:
        raise WeightsError(f"the weights {folder.name}: there is no {HUB}, nor {TABLE} with {SPECIAL}") from error
    except Exception as error:  # the library raises plain ones
        raise WeightsError(f"the weights {folder.name}: the tokenizer cannot be read: {error}") from error


def speech_ids(config: DualConfig, tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Ids of the first and the last speech token, and of the end of speech.

    Raises:
        WeightsError: the tokenizer and ``config.json`` differ.
    """
    names = ("<|semantic:0|>", f"<|semantic:{config.entries - 1}|>", "<|im_end|>")
    first, last, end = (tokenizer.special(name) for name in names)
    if config.speech not in (None, (first, last, end)):
        raise WeightsError(f"the tokenizer has the speech tokens {(first, last, end)}, config.json {config.speech}")
    return first, last, end


def _known_id(token: str, number: int | None) -> int:
    if number is None:
        raise WeightsError(f"the tokenizer has no token {token}")
    return number


def _library() -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        raise MissingExtra.of(EXTRA, "the tokenizer of open weights") from error
    return tokenizers
