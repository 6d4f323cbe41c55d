"""Prompts of open weights (references, previous turns, the text to synthesize) as ids and codes, and the tokenizers.

A position is a column: a token id, then a frame's codes, or zeros for text. The parts of a prompt are tokenized
separately: tokenized jointly, they would have other ids. Ids are from S2-Pro's ``tokenizer.json``, or from S1-mini's table of
byte pairs with its special tokens; both need the library ``tokenizers``, the second only for its word pattern.
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
from voicelab.engine.dual.files import MAX_FILE_BYTES, naming, read_bytes, read_json
from voicelab.errors import MissingExtra, WeightsError

HUB, TABLE, SPECIAL = "tokenizer.json", "tokenizer.tiktoken", "special_tokens.json"
_MAX_TABLE_BYTES = 8_000_000
_IDS = TypeAdapter(
    Annotated[dict[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1)]
)
EXTRA = "open-weights"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{P}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(\?!\S)"  # a look-ahead with a typo, kept as in the model's training
    r"|\s+"
)


class Tokenizer(Protocol):
    """Converts text to ids; recognizes special tokens in the text, and adds none."""

    def encode(self, text: str) -> list[int]:
        """Convert text to ids."""

    def special(self, token: str) -> int:
        """Return the id of a special token. Raises WeightsError if the tokenizer has no such token."""


class HubTokenizer:
    """A tokenizer described by ``tokenizer.json``."""

    def __init__(self, path: Path) -> None:
        self._path, self._tokenizer = path, _library().Tokenizer.from_buffer(read_bytes(path, MAX_FILE_BYTES))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.highest = max(self._tokenizer.get_vocab().values(), default=0)
        if not self.encode("Is it so?"):
            raise WeightsError("it gives no ids for a sentence")

    def encode(self, text: str) -> list[int]:
        """Convert text to ids."""
        with naming(self._path):
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def special(self, token: str) -> int:
        """Return the id of a special token. Raises WeightsError if the tokenizer has no such token."""
        return _require_id(token, self._tokenizer.token_to_id(token))


class TableTokenizer:
    """A tokenizer with a byte-pair table (one base64 token and its rank per line) and special tokens."""

    def __init__(self, table: Path, special: Path) -> None:
        self._special = read_json(special, _IDS)
        lines = (line.split() for line in read_bytes(table, _MAX_TABLE_BYTES).splitlines())
        # The file also has a line that contains only padding.
        self._ranks = {base64.b64decode(line[0]): int(line[1]) for line in lines if len(line) == 2 and line[0] != b"="}
        library = _library()
        self._words = library.pre_tokenizers.Split(library.Regex(_WORDS), "isolated")
        if not {bytes([byte]) for byte in range(256)} <= self._ranks.keys() or min(self._ranks.values()) < 0:
            raise WeightsError("the table must have an id for every byte")
        self.highest = max(*self._ranks.values(), *self._special.values())
        self._split = re.compile("(" + "|".join(map(re.escape, sorted(self._special, key=len, reverse=True))) + ")")

    def encode(self, text: str) -> list[int]:
        """Convert text to ids."""
        ids: list[int] = []
        for span in self._split.split(text):
            if span in self._special:
                ids.append(self._special[span])
            elif span:
                for word, _ in self._words.pre_tokenize_str(span):
                    ids.extend(self._merge_bytes(word.encode()))
        return ids

    def special(self, token: str) -> int:
        """Return the id of a special token. Raises WeightsError if the tokenizer has no such token."""
        return _require_id(token, self._special.get(token))

    def _merge_bytes(self, word: bytes) -> list[int]:
        """Merge adjacent byte strings in order of rank until no pair is in the table."""
        if word in self._ranks:
            return [self._ranks[word]]
        tokens = [word[i : i + 1] for i in range(len(word))]
        while True:
            joined = (a + b for a, b in pairwise(tokens))
            ranked = [(self._ranks[pair], i) for i, pair in enumerate(joined) if pair in self._ranks]
            if not ranked:
                return [self._ranks[token] for token in tokens]
            _, i = min(ranked)
            tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]


def tokenizer_files(folder: Path) -> tuple[str, ...]:
    """List the files of a folder's tokenizer."""
    return (HUB,) if (folder / HUB).exists() else (TABLE, SPECIAL)


def load_tokenizer(folder: Path, vocabulary: int) -> Tokenizer:
    """Load the tokenizer of a model's folder.

    Raises:
        WeightsError: its files are missing or damaged, or have ids beyond the model's vocabulary.
        MissingExtra: the library is not installed.
    """
    names = tokenizer_files(folder)
    if not all((folder / name).exists() for name in names):
        raise WeightsError(f"the weights {folder.name}: there is no {HUB}, nor {TABLE} with {SPECIAL}")
    _library()
    with naming(folder / names[0]):
        tokenizer = HubTokenizer(folder / HUB) if names == (HUB,) else TableTokenizer(folder / TABLE, folder / SPECIAL)
        if tokenizer.highest >= vocabulary:
            raise WeightsError(
                f"the highest id must be below the vocabulary size {vocabulary}, got {tokenizer.highest}"
            )
        return tokenizer


def speech_ids(config: DualConfig, tokenizer: Tokenizer) -> tuple[int, int, int]:
    """Look up the ids of the first and the last speech token, and of the end of speech.

    Raises:
        WeightsError: the tokenizer and ``config.json`` differ, or the number of speech tokens is not the codebook size.
    """
    names = ("<|semantic:0|>", f"<|semantic:{config.entries - 1}|>", "<|im_end|>")
    first_id, last_id, end_id = (tokenizer.special(name) for name in names)
    if config.speech not in (None, (first_id, last_id, end_id)):
        ids = (first_id, last_id, end_id)
        raise WeightsError(f"the speech tokens of the tokenizer, {ids}, differ from config.json, {config.speech}")
    if last_id - first_id + 1 != config.entries:
        raise WeightsError(f"speech tokens must have {config.entries} ids, got {first_id} to {last_id}")
    return first_id, last_id, end_id


def _require_id(token: str, number: int | None) -> int:
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
    """A recording of a voice, as model input."""

    text: str
    """Its transcript; "" if unknown."""
    codes: Tensor
    """Codes (frames, codebooks), int64 on the CPU."""


@dataclass(frozen=True)
class DualVoice:
    """The voice of a request: recordings of one speaker, or none for a voice chosen by the model."""

    references: tuple[Reference, ...] = ()

    @cached_property
    def key(self) -> str:
        """Cache key, equal for equal references."""
        return hashlib.sha256(self.to_bytes()).hexdigest() if self.references else ""

    def to_bytes(self) -> bytes:
        """Serialize the references, for storage."""
        items = [(reference.text, reference.codes.numpy().astype("<i2").tobytes()) for reference in self.references]
        return cast("bytes", msgpack.packb([_FORM, *items]))

    @classmethod
    def from_bytes(cls, packed: bytes, codebooks: Sequence[int]) -> DualVoice | None:
        """Restore a voice from `to_bytes`; return None for another format, or for codes outside these codebook sizes."""
        try:
            form, *items = msgpack.unpackb(packed)
            if form != _FORM:
                return None
            codes = [np.frombuffer(raw, "<i2").astype(np.int64).reshape(-1, len(codebooks)) for _, raw in items]
            if any((code < 0).any() or (code >= codebooks).any() for code in codes):
                return None
            texts = (text for text, _ in items)
            return cls(tuple(map(Reference, texts, map(torch.from_numpy, codes))))
        except (ValueError, TypeError, msgpack.UnpackException):
            return None


class Prompts(ABC):
    """Prompt format of a model; columns are (n, 1 + codebooks) int64."""

    tagged: bool
    """Whether texts have speaker tags."""

    def __init__(self, tokenizer: Tokenizer, begin: int, codebooks: int) -> None:
        self._tokenizer, self._begin, self._codebooks = tokenizer, begin, codebooks

    @abstractmethod
    def start(self, references: Sequence[Reference]) -> Tensor:
        """Return the columns before the first turn."""

    @abstractmethod
    def turn(self, text: str) -> Tensor:
        """Return the columns of a text to synthesize; the model then generates its speech."""

    def end(self) -> Tensor:
        """Return the columns between the speech of a turn and the next turn."""
        return self._text("<|im_end|>" + ("\n" if self.tagged else ""))

    def _text(self, *texts: str) -> Tensor:
        ids = [number for text in texts for number in self._tokenizer.encode(text)]
        columns = torch.zeros(len(ids), 1 + self._codebooks, dtype=torch.int64)
        columns[:, 0] = torch.tensor(ids, dtype=torch.int64)
        return columns

    def _speech(self, reference: Reference) -> Tensor:
        return torch.cat((reference.codes[:, :1] + self._begin, reference.codes), 1)


class ChatPrompts(Prompts):
    """Prompt format of S2-Pro: a system message with the references, then turns of user and assistant."""

    tagged = True

    def start(self, references: Sequence[Reference]) -> Tensor:
        """Return the system message with the references; a text without a speaker tag gets the tag of its index."""
        if not references:
            return self._text("<|im_start|>system\n", "convert the provided text to speech", "<|im_end|>\n")
        tags = (
            "" if SPEAKER_TAG.search(reference.text) else f"<|speaker:{i}|>" for i, reference in enumerate(references)
        )
        texts = [tag + reference.text for tag, reference in zip(tags, references, strict=True)]
        task = "convert the provided text to speech reference to the following:\n\nText:\n"
        before = self._text("<|im_start|>system\n", task, "\n".join(texts), "\n\nSpeech:\n")
        return torch.cat((before, *map(self._speech, references), self.end()))

    def turn(self, text: str) -> Tensor:
        """Return the columns of a user message, and of the beginning of the answer."""
        return self._text("<|im_start|>user\n", text, "<|im_end|>\n", "<|im_start|>assistant\n<|voice|>")


class InterleavedPrompts(Prompts):
    """Prompt format of S1-mini: alternating text and speech. Previous turns have the format of references."""

    tagged = False

    def start(self, references: Sequence[Reference]) -> Tensor:
        """Return the texts of the references, each followed by its speech."""
        columns = [self._text("<|interleave|>")]
        for reference in references:
            columns += [self.turn(reference.text), self._speech(reference), self.end()]
        return torch.cat(columns)

    def turn(self, text: str) -> Tensor:
        """Return the columns of a text to synthesize."""
        return self._text(FIRST_SPEAKER, text)
