"""The models and their twin against reference outputs in the folder VOICELAB_OPEN_WEIGHTS_GOLDEN."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.engine.dual.tiny import twin_of
from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.files import TensorFiles
from voicelab.engine.dual.model import WINDOW, DualLM, Likeliest, choose, common_name, model_file, shapes_of
from voicelab.engine.dual.prompt import ChatPrompts, InterleavedPrompts, Reference
from voicelab.engine.dual.tower import Slots

VARIABLE = "VOICELAB_OPEN_WEIGHTS_GOLDEN"
FOLDER = Path(os.environ.get(VARIABLE, "."))
CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="names a folder of golden numbers")
BOTH = pytest.mark.parametrize("name", ["s2", "s1"])


class Loop:
    """A model with its slots, stepped by position."""

    def __init__(self, name: str, dtype: torch.dtype | None = None) -> None:
        self.config, ids = DualConfig.read(FOLDER / name), json.loads((FOLDER / name / "ids.json").read_text())
        self.speech = ids["semantic_begin_id"], ids["semantic_end_id"], ids["stop_id"]
        self.files = TensorFiles.open(model_file(FOLDER / name)).renamed(common_name)
        self.files.check(shapes_of(self.config))
        self.model = DualLM(self.config, lambda tensor, *_: self.files.read(tensor, CPU, dtype), self.speech, 256)
        self.slots = Slots(self.config.slow, 1, 256, self.model.embeddings)
        self.fast = Slots(self.config.fast, 1, self.config.codebooks, self.model.embeddings)
        self.chosen = [*range(self.speech[0], self.speech[1] + 1), self.speech[2]]
        self.golden = load_file(FOLDER / name / "golden.safetensors")
        self.position = 0

    def read(self, columns: Tensor) -> Tensor:
        at = torch.arange(self.position, self.position + len(columns))[None]
        self.position += len(columns)
        return self.model.slow(self.model.embed(columns[None]), self.slots, slice(1), at, self.position)

    def run(self, settings: tuple[float, float], frames: int, generator: torch.Generator) -> Tensor:
        """All columns: the prompt's, and those of the frames."""
        columns, recent, (temperature, top_p) = self.golden["prompt"].T, torch.full((1, WINDOW), -1), settings
        state = self.read(columns)[:, -1]
        for frame in range(frames):
            draws = [torch.rand(self.config.vocabulary, generator=generator)[self.chosen] for _ in range(2)]
            draws += [torch.rand(self.config.entries, generator=generator) for _ in range(self.config.codebooks - 1)]
            u, again = torch.cat(draws)[None], torch.tensor([frame > 0 and temperature > 0])
            codes, finite = self.model.frame(
                state, torch.tensor([temperature]), torch.tensor([top_p]), u, recent, again, self.fast
            )
            assert finite.all()
            if codes[0, 0] == self.config.entries:
                break
            columns = torch.cat((columns, torch.cat((codes[:, :1] + self.speech[0], codes), 1)))
            if frame:
                recent = torch.cat((recent[:, 1:], codes[:, :1]), 1)
            state = self.read(columns[-1:])[:, -1]
        return columns


@BOTH
def test_logits_and_states(name: str) -> None:
    loop = Loop(name)
    logits, given = loop.model.first_logits(loop.read(loop.golden["prompt"].T)[0])
    assert (logits - loop.golden["logits_all"][:, loop.chosen]).abs().max() < 1e-5
    assert (given[-1] - loop.golden["hidden_last_projected"]).abs().max() < 1e-5
    seen: list[Tensor] = []

    def pick(codebook: int, of: Tensor) -> Tensor:
        seen.append(of[0])
        return loop.golden["codes"][codebook, :1]

    loop.model.codes(given[-1:], loop.golden["codes"][0, :1], pick, loop.fast)
    assert (torch.stack(seen) - loop.golden["fast_logits"][1:]).abs().max() < 1e-5


@BOTH
def test_the_twin(name: str) -> None:
    loop = Loop(name)
    tensors = {name: loop.files.read(name, CPU) for name in loop.files.entries}
    logits, given = twin_of(loop.config, tensors, speech=loop.speech).slow(loop.golden["prompt"].T)
    assert (logits - loop.golden["logits_all"]).abs().max() < 1e-5
    assert (given[-1] - loop.golden["hidden_last_projected"]).abs().max() < 1e-5


@BOTH
def test_greedy_and_sampled_runs(name: str) -> None:
    greedy = Loop(name)
    assert torch.equal(greedy.run((0.0, 0.9), 24, torch.Generator()).T, greedy.golden["greedy"])
    sampled = load_file(FOLDER / name / "loop0.safetensors")["seq"]
    columns = Loop(name).run((0.8, 0.9), 60, torch.Generator().manual_seed(0)).T
    length = min(
        columns.shape[1], sampled.shape[1]
    )  # the reference drops the last column, or leaves the end's in place
    assert torch.equal(columns[:, :length], sampled[:, :length])
    assert abs(columns.shape[1] - sampled.shape[1]) <= 1


@BOTH
def test_bf16(name: str) -> None:
    loop = Loop(name, torch.bfloat16)
    logits, _ = loop.model.first_logits(loop.read(loop.golden["prompt"].T)[0])
    golden = load_file(FOLDER / name / "golden_bf16.safetensors")["logits_all_bf16"]
    assert (logits.float() - golden[:, loop.chosen].float()).abs().max() < 0.035
    assert (logits.float() - loop.golden["logits_all"][:, loop.chosen]).abs().max() < 0.05


def test_draws() -> None:
    draws = load_file(FOLDER / "sampling" / "draws.safetensors")
    for i, case in enumerate(json.loads((FOLDER / "sampling" / "cases.json").read_text())):
        settings = torch.tensor([case["temperature"]]), torch.tensor([case["top_p"]])
        chosen = choose(Likeliest.of(draws[f"logits{i}"][None], case["top_k"]), *settings, draws[f"u{i}"][None])
        assert chosen.item() == draws[f"choice{i}"].item()


class Toy:
    """Bytes, four special tokens and speech from 400 on."""

    names = ("<|im_start|>", "<|im_end|>", "<|voice|>", "<|interleave|>")

    def encode(self, text: str) -> list[int]:
        for number, name in enumerate(self.names):
            text = text.replace(name, chr(300 + number))
        return [ord(char) for char in text]

    def special(self, token: str) -> int:
        return 300 + self.names.index(token)


def test_prompts() -> None:
    golden = {
        name: columns.T
        for file in ("prompts", "prompts_s1")
        for name, columns in load_file(FOLDER / "sampling" / f"{file}.safetensors").items()
    }
    chat, interleaved = ChatPrompts(Toy(), 400, 3), InterleavedPrompts(Toy(), 400, 3)
    spoken = golden["two"][(golden["two"][:, 0] >= 400)][:, 1:]
    one, two, later = spoken[:4], spoken[4:], golden["later"][golden["later"][:, 0] >= 400][4:]
    tag = "<|speaker:0|>"
    ours = {
        "plain": (chat.start(()), chat.turn("Hello.")),
        "one": (chat.start([Reference("Ref one.", one)]), chat.turn(f"{tag}Hello.")),
        "two": (
            chat.start([Reference(f"{tag}Ref one.", one), Reference(f"{tag}Two.", two)]),
            chat.turn(f"{tag}Hi.<|speaker:1|>Ho."),
        ),
        "later": (
            chat.start([Reference("Ref one.", one)]),
            *(chat.turn("First."), later, chat.end(), chat.turn("Second.")),
        ),
        "s1_plain": (interleaved.start(()), interleaved.turn("Hello.")),
        "s1_two": (interleaved.start([Reference("One.", one), Reference("Two.", two)]), interleaved.turn("Hello.")),
    }
    assert ours.keys() == golden.keys()
    for name, parts in ours.items():
        assert torch.equal(torch.cat(parts), golden[name]), name
