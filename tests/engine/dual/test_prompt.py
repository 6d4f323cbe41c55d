"""Prompts column by column, and the tokenizers of both models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.engine.dual.tiny import CODEBOOKS, IDS, SPEECH, VOCABULARY, config_of, write_model, write_table
from voicelab.engine.dual.prompt import (
    ChatPrompts,
    InterleavedPrompts,
    Reference,
    TableTokenizer,
    load_tokenizer,
    speech_ids,
)
from voicelab.errors import MissingExtra

CODES = torch.tensor([[3, 1, 2], [4, 5, 6]])
SYSTEM = "<|im_start|>system\nconvert the provided text to speech"
REFERRING = SYSTEM + " reference to the following:\n\nText:\n"
SPEAK = "<|im_end|>\n<|im_start|>assistant\n<|voice|>"


@pytest.fixture
def chat(tmp_path: Path) -> ChatPrompts:
    return ChatPrompts(load_tokenizer(write_model(tmp_path, "s2-pro"), VOCABULARY), SPEECH[0], CODEBOOKS)


def shown(columns: Tensor) -> str:
    """Format columns: text as is, frames as codes in braces."""
    names = {number: token for token, number in IDS.items()}
    out = ""
    for token, *codes in columns.tolist():
        if SPEECH[0] <= token <= SPEECH[1]:
            assert token - SPEECH[0] == codes[0]
            out += "{" + ",".join(map(str, codes)) + "}"
        else:
            assert not any(codes)
            out += names.get(token) or chr(token)
    return out


def test_chat_prompt_without_references(chat: ChatPrompts) -> None:
    assert shown(chat.start(())) == SYSTEM + "<|im_end|>\n"
    assert shown(chat.turn("Hello.")) == "<|im_start|>user\nHello." + SPEAK
    assert shown(chat.end()) == "<|im_end|>\n"


def test_chat_prompt_with_references(chat: ChatPrompts) -> None:
    untagged = [Reference("One.", CODES[:1]), Reference("Two.", CODES)]
    numbered = "<|speaker:0|>One.\n<|speaker:1|>Two.\n\nSpeech:\n{3,1,2}{3,1,2}{4,5,6}<|im_end|>\n"
    assert shown(chat.start(untagged)) == REFERRING + numbered
    tagged = [Reference("<|speaker:0|>One.", CODES[:1]), Reference("<|speaker:0|>Two.", CODES[1:])]
    assert shown(chat.start(tagged)) == (
        REFERRING + "<|speaker:0|>One.\n<|speaker:0|>Two.\n\nSpeech:\n{3,1,2}{4,5,6}<|im_end|>\n"
    )


def test_interleaved_prompt(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_model(tmp_path, "s1"), VOCABULARY)
    interleaved = InterleavedPrompts(tokenizer, SPEECH[0], CODEBOOKS)
    assert shown(interleaved.start(())) == "<|interleave|>"
    whole = torch.cat((interleaved.start([Reference("One.", CODES)]), interleaved.turn("Hello.")))
    assert shown(whole) == "<|interleave|><|speaker:0|>One.{3,1,2}{4,5,6}<|im_end|><|speaker:0|>Hello."


def test_parts_are_tokenized_separately(tmp_path: Path) -> None:
    """No token spans two parts."""
    write_table(tmp_path, (b">H", b"He"))
    prompts = InterleavedPrompts(load_tokenizer(tmp_path, VOCABULARY + 2), SPEECH[0] + 2, CODEBOOKS)
    assert prompts.turn("He")[:, 0].tolist()[-2:] == [ord(">"), 257]


PAIRS = (b"lo", b"hel", b"he", b" h", b"hello", b"  ", b"ab", b"bc", b"e4", b"??")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hello", [b"hello"]),  # a whole word of the table, whatever its parts
        ("helo", [b"he", b"lo"]),  # the pair of the lowest rank first: lo, then he
        ("abc", [b"ab", b"c"]),
        ("he42", [b"he", b"4", b"2"]),  # every figure is a word, so nothing spans it
        ("??", [b"?", b"?"]),  # and so is every mark
        ("a  b", [b"a", b"  ", b"b"]),  # no look-ahead leaves a space to the next word
        ("a b", [b"a", b" ", b"b"]),
        ("é", [b"\xc3", b"\xa9"]),
        ("<|im_end|>he<|voice|>", ["<|im_end|>", b"he", "<|voice|>"]),
        ("<|speaker:0|>", [bytes([c]) for c in b"<|speaker:0|>"]),
    ],
)
def test_table_tokenizer(text: str, pieces: list[bytes | str], tmp_path: Path) -> None:
    write_table(tmp_path, PAIRS)
    table = [*(bytes([i]) for i in range(256)), *PAIRS]
    ids = [IDS[p] + len(PAIRS) if isinstance(p, str) else table.index(p) for p in pieces]
    assert TableTokenizer(tmp_path / "tokenizer.tiktoken", tmp_path / "special_tokens.json").encode(text) == ids


def test_speech_ids(tmp_path: Path) -> None:
    for name in ("s2-pro", "s1"):
        tokenizer = load_tokenizer(write_model(tmp_path / name, name), VOCABULARY)
        assert speech_ids(config_of(name), tokenizer) == SPEECH


def test_missing_tokenizers_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "s2-pro")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match="open-weights"):
        load_tokenizer(tmp_path, VOCABULARY)
