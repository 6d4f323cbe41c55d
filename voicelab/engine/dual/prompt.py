"""What a model is given before it speaks, as ids and codes: references, the turns said so far, the text to be said.

A position is a column of a token id and a frame's codes, zeros where it is text. The parts of a prompt are tokenised each by
itself: joined as text, other ids would come of it. Ids come of S2-Pro's ``tokenizer.json``, or of S1-mini's table of byte
pairs with its special tokens; both need the library ``tokenizers``, the second for its pattern of words only.
"""

from __future__ import annotations

import base64
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

import msgpack  # type: ignore[import-untyped]  # it publishes no types
import numpy as np
import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.files import LONGEST, naming, read_bytes, read_json
from voicelab.errors import MissingExtra, WeightsError

HUB, TABLE, SPECIAL = "tokenizer.json", "tokenizer.tiktoken", "special_tokens.json"
_LONGEST_TABLE = 8_000_000
_IDS = TypeAdapter(
    Annotated[dict[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1)]
)
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

    def special(self, token: str) -> int:
        """The id of a special token. Raises WeightsError: there is none of this name."""


class HubTokenizer:
    """What ``tokenizer.json`` describes."""

    def __init__(self, path: Path) -> None:
        self._path, self._tokenizer = path, _library().Tokenizer.from_buffer(read_bytes(path, LONGEST))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.highest = max(self._tokenizer.get_vocab().values(), default=0)
        if not self.encode("Is it so?"):
            raise WeightsError("it has no ids for a sentence")

    def encode(self, text: str) -> list[int]:
        """See Tokenizer."""
        with naming(self._path):
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def special(self, token: str) -> int:
        """See Tokenizer."""
        return _known_id(token, self._tokenizer.token_to_id(token))


class TableTokenizer:
    """A table of byte strings, one a line as base64 with its rank, and special tokens behind it."""

    def __init__(self, table: Path, special: Path) -> None:
        self._special = read_json(special, _IDS)
        lines = (line.split() for line in read_bytes(table, _LONGEST_TABLE).splitlines())
        # The line of padding alone is none of the table's.
        self._ranks = {base64.b64decode(line[0]): int(line[1]) for line in lines if len(line) == 2 and line[0] != b"="}
        library = _library()
        self._words = library.pre_tokenizers.Split(library.Regex(_WORDS), "isolated")
        if not {bytes([byte]) for byte in range(256)} <= self._ranks.keys() or min(self._ranks.values()) < 0:
            raise WeightsError("it is no table of all bytes with their ids")
        self.highest = max(*self._ranks.values(), *self._special.values())
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


def tokenizer_files(folder: Path) -> tuple[str, ...]:
    """The names of the files that make a folder's tokenizer."""
    return (HUB,) if (folder / HUB).exists() else (TABLE, SPECIAL)


def load_tokenizer(folder: Path, vocabulary: int) -> Tokenizer:
    """The tokenizer of a model's folder.

    Raises:
        WeightsError: its files are missing or damaged, or there are ids that a model of this vocabulary does not have.
        MissingExtra: the library is not installed.
    """
    names = tokenizer_files(folder)
    if not all((folder / name).exists() for name in names):
        raise WeightsError(f"the weights {folder.name}: there is no {HUB}, nor {TABLE} with {SPECIAL}")
    _library()
    with naming(folder / names[0]):
        tokenizer = HubTokenizer(folder / HUB) if names == (HUB,) else TableTokenizer(folder / TABLE, folder / SPECIAL)
        if tokenizer.highest >= vocabulary:
            raise WeightsError(f"the highest id is {tokenizer.highest}, the model has {vocabulary}")
        return tokenizer


def speech_ids(config: DualConfig, tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Ids of the first and the last speech token, and of the end of speech.

    Raises:
        WeightsError: the tokenizer and ``config.json`` differ, or the ids are not those of one token a code.
    """
    names = ("<|semantic:0|>", f"<|semantic:{config.entries - 1}|>", "<|im_end|>")
    first, last, end = (tokenizer.special(name) for name in names)
    if config.speech not in (None, (first, last, end)):
        raise WeightsError(f"the tokenizer has the speech tokens {(first, last, end)}, config.json {config.speech}")
    if last - first + 1 != config.entries:
        wanted = f"the {config.entries} of the first codebook"
        raise WeightsError(f"the speech tokens from {first} to {last} are not {wanted}")
    return first, last, end


def _known_id(token: str, number: int | None) -> int:
    if number is None:
        raise WeightsError(f"the tokenizer has no token {token}")
    return number


def _library() -> Any:
    with MissingExtra.where(EXTRA, "the tokenizer of open weights"):
        import tokenizers
    return tokenizers


SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
FIRST_SPEAKER = "<|speaker:0|>"
_FORM = "dual 1"


@dataclass(frozen=True)
class Reference:
    """A recording of a voice, as the models read it."""

    text: str
    """What is said in it; "" where nobody knows."""
    codes: Tensor
    """(frames, codebooks) int64 on the CPU."""


@dataclass(frozen=True)
class DualVoice:
    """Who is to speak: recordings of one voice, or none for whatever voice the model takes."""

    references: tuple[Reference, ...] = ()

    @cached_property
    def key(self) -> str:
        """Equal for equal references."""
        return hashlib.sha256(self.to_bytes()).hexdigest() if self.references else ""

    def to_bytes(self) -> bytes:
        """As a stored voice keeps it."""
        items = [(one.text, one.codes.numpy().astype("<i2").tobytes()) for one in self.references]
        return cast("bytes", msgpack.packb([_FORM, *items]))

    @classmethod
    def from_bytes(cls, packed: bytes, codebooks: Sequence[int]) -> DualVoice | None:
        """The voice of `to_bytes`; None for bytes of another form, and for codes that codebooks of so many entries lack."""
        try:
            form, *items = msgpack.unpackb(packed)
            if form != _FORM:
                return None
            codes = [np.frombuffer(raw, "<i2").astype(np.int64).reshape(-1, len(codebooks)) for _, raw in items]
            if any((one < 0).any() or (one >= codebooks).any() for one in codes):
                return None
            texts = (text for text, _ in items)
            return cls(tuple(map(Reference, texts, map(torch.from_numpy, codes))))
        except (ValueError, TypeError, msgpack.UnpackException):
            return None


class Prompts(ABC):
    """How one of the models is spoken to; columns (n, 1 + codebooks) int64."""

    tagged: bool
    """Whether a turn's text says who speaks it."""

    def __init__(self, tokenizer: Tokenizer, begin: int, codebooks: int) -> None:
        self._tokenizer, self._begin, self._codebooks = tokenizer, begin, codebooks

    @abstractmethod
    def start(self, references: Sequence[Reference]) -> Tensor:
        """What stands before the first turn."""

    @abstractmethod
    def turn(self, text: str) -> Tensor:
        """A text to be said; the model goes on with speech."""

    def end(self) -> Tensor:
        """What follows the speech of a turn when another turn comes."""
        return self._text("<|im_end|>" + ("\n" if self.tagged else ""))

    def _text(self, *parts: str) -> Tensor:
        ids = [number for part in parts for number in self._tokenizer.encode(part)]
        columns = torch.zeros(len(ids), 1 + self._codebooks, dtype=torch.int64)
        columns[:, 0] = torch.tensor(ids, dtype=torch.int64)
        return columns

    def _speech(self, reference: Reference) -> Tensor:
        return torch.cat((reference.codes[:, :1] + self._begin, reference.codes), 1)


class ChatPrompts(Prompts):
    """S2-Pro's: a system message with the references, then turns of a user and an assistant."""

    tagged = True

    def start(self, references: Sequence[Reference]) -> Tensor:
        """See Prompts. A reference's text without a tag is said to be by the speaker of its number."""
        if not references:
            return self._text("<|im_start|>system\n", "convert the provided text to speech", "<|im_end|>\n")
        tags = ("" if SPEAKER_TAG.search(one.text) else f"<|speaker:{i}|>" for i, one in enumerate(references))
        texts = [tag + one.text for tag, one in zip(tags, references, strict=True)]
        task = "convert the provided text to speech reference to the following:\n\nText:\n"
        before = self._text("<|im_start|>system\n", task, "\n".join(texts), "\n\nSpeech:\n")
        return torch.cat((before, *map(self._speech, references), self.end()))

    def turn(self, text: str) -> Tensor:
        """See Prompts."""
        return self._text("<|im_start|>user\n", text, "<|im_end|>\n", "<|im_start|>assistant\n<|voice|>")


class InterleavedPrompts(Prompts):
    """S1-mini's: text and speech in turn. What was said before is one more reference."""

    tagged = False

    def start(self, references: Sequence[Reference]) -> Tensor:
        """See Prompts."""
        columns = [self._text("<|interleave|>")]
        for one in references:
            columns += [self.turn(one.text), self._speech(one), self.end()]
        return torch.cat(columns)

    def turn(self, text: str) -> Tensor:
        """See Prompts."""
        return self._text(FIRST_SPEAKER, text)
