"""What a model is given before it speaks: references, the turns said so far, the text to be said.

A position is a column of a token id and a frame's codes, zeros where it is text. The parts of a prompt are tokenised each by
itself: joined as text, other ids would come of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from voicelab.engine.dual.tokens import Tokenizer

SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
FIRST_SPEAKER = "<|speaker:0|>"


@dataclass(frozen=True)
class Reference:
    """A recording of a voice, as the models read it."""

    text: str
    """What is said in it; "" where nobody knows."""
    codes: Tensor
    """(frames, codebooks) int64 on the CPU."""


class Prompts(Protocol):
    """How one of the models is spoken to; columns (n, 1 + codebooks) int64."""

    tagged: bool
    """Whether a turn's text says who speaks it."""

    def start(self, references: Sequence[Reference]) -> Tensor:
        """What stands before the first turn."""
        ...

    def turn(self, text: str) -> Tensor:
        """A text to be said; the model goes on with speech."""
        ...

    def end(self) -> Tensor:
        """What follows the speech of a turn when another turn comes."""
        ...


class _Columns:
    """Builds columns from text and codes."""

    def __init__(self, tokenizer: Tokenizer, begin: int, codebooks: int) -> None:
        self._tokenizer, self._begin, self._codebooks = tokenizer, begin, codebooks

    def text(self, *parts: str) -> Tensor:
        ids = [number for part in parts for number in self._tokenizer.encode(part)]
        columns = torch.zeros(len(ids), 1 + self._codebooks, dtype=torch.int64)
        columns[:, 0] = torch.tensor(ids, dtype=torch.int64)
        return columns

    def codes(self, codes: Tensor) -> Tensor:
        return torch.cat((codes[:, :1] + self._begin, codes), 1)


class ChatPrompts:
    """S2-Pro's: a system message with the references, then turns of a user and an assistant."""

    tagged = True

    def __init__(self, tokenizer: Tokenizer, begin: int, codebooks: int) -> None:
        self._columns = _Columns(tokenizer, begin, codebooks)

    def start(self, references: Sequence[Reference]) -> Tensor:
        """See Prompts. A reference's text without a tag is said to be by the speaker of its number."""
        columns = self._columns
        if not references:
            return columns.text("<|im_start|>system\n", "convert the provided text to speech", "<|im_end|>\n")
        texts = [
            one.text if SPEAKER_TAG.search(one.text) else f"<|speaker:{i}|>{one.text}"
            for i, one in enumerate(references)
        ]
        task = "convert the provided text to speech reference to the following:\n\nText:\n"
        before = columns.text("<|im_start|>system\n", task, "\n".join(texts), "\n\nSpeech:\n")
        return torch.cat((before, *(columns.codes(one.codes) for one in references), self.end()))

    def turn(self, text: str) -> Tensor:
        """See Prompts."""
        return self._columns.text("<|im_start|>user\n", text, "<|im_end|>\n", "<|im_start|>assistant\n<|voice|>")

    def end(self) -> Tensor:
        """See Prompts."""
        return self._columns.text("<|im_end|>\n")


class InterleavedPrompts:
    """S1-mini's: text and speech in turn. What was said before is one more reference."""

    tagged = False

    def __init__(self, tokenizer: Tokenizer, begin: int, codebooks: int) -> None:
        self._columns = _Columns(tokenizer, begin, codebooks)

    def start(self, references: Sequence[Reference]) -> Tensor:
        """See Prompts."""
        columns = [self._columns.text("<|interleave|>")]
        for one in references:
            columns += [self.turn(one.text), self._columns.codes(one.codes), self.end()]
        return torch.cat(columns)

    def turn(self, text: str) -> Tensor:
        """See Prompts."""
        return self._columns.text(FIRST_SPEAKER, text)

    def end(self) -> Tensor:
        """See Prompts."""
        return self._columns.text("<|im_end|>")
