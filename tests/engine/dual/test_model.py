"""The language model against a float64 reimplementation (twin), sensitivity to changed arithmetic, and sampling."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.dual import twin as plain
from tests.engine.dual.tiny import (
    CODEBOOKS,
    ENTRIES,
    SPEECH,
    config_json,
    config_of,
    model_of,
    speech_of,
    tensors_of,
    twin_of,
    write_model,
)
from tests.engine.dual.twin import turned_round
from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.model import (
    WINDOW,
    DualLM,
    Likeliest,
    choose,
    choose_main,
    common_name,
    draw_steps,
    model_tensors,
    uniform,
)
from voicelab.engine.dual.tower import Slots, rotary, rotate
from voicelab.schema import Model

CLOSE = 1e-5
"""Tolerance of float32 logits; a float32 rotary table instead of bf16 changes them by over 100 times as much."""
CPU = torch.device("cpu")


def _s2(text: dict[str, Any], audio: dict[str, Any], **whole: int) -> tuple[Model, dict[str, Any]]:
    return "s2-pro", {"text_config": text, "audio_decoder_config": audio, **whole}


CASES: list[tuple[Model, dict[str, Any]]] = [
    _s2({}, {}),
    _s2({"n_local_heads": 4}, {"n_local_heads": 1, "head_dim": 6}),
    _s2({"attention_qk_norm": False}, {"attention_qk_norm": True, "n_layer": 3}),
    _s2({"tie_word_embeddings": False, "n_layer": 1}, {"dim": 24}),
    _s2({"rope_base": 1e4, "norm_eps": 1e-4}, {"rope_base": 7.0, "norm_eps": 0.5}),
    _s2({"vocab_size": 400}, {}, semantic_start_token_id=300, semantic_end_token_id=363),
    _s2({}, {"num_codebooks": 10}, eos_token_id=3),
    ("s1", {}),
    ("s1", {"fast_dim": 24}),  # narrower than the slow transformer: its input is projected
    ("s1", {"norm_fastlayer_input": True, "tie_word_embeddings": True}),
    ("s1", {"vocab_size": 1500, "codebook_size": 1100, "num_codebooks": 2}),
    ("s1", {"fast_attention_qk_norm": True, "attention_qk_norm": False, "scale_codebook_embeddings": False}),
    ("s1", {**dict.fromkeys(("fast_dim", "fast_head_dim", "fast_n_local_heads", "head_dim")), "n_local_heads": -1}),
]


def columns(count: int = 24, seed: int = 1, config: DualConfig | None = None) -> Tensor:
    """Alternating text and frames."""
    codebooks, entries, begin = CODEBOOKS, ENTRIES, SPEECH[0]
    if config is not None:
        codebooks, entries, begin = config.codebooks, config.entries, speech_of(config)[0]
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(0, 256, (count, 1 + codebooks), generator=generator) * torch.tensor([1] + [0] * codebooks)
    frames = torch.randint(0, entries, (count, 1 + codebooks), generator=generator)
    frames[:, 0] = begin + frames[:, 1]
    return torch.where((torch.arange(count) % 3 == 0)[:, None], text, frames)


@cache
def tiny(name: Model) -> tuple[DualConfig, dict[str, Tensor], DualLM, Tensor, Tensor]:
    """A model's configuration and tensors, the model, and its logits and states of `columns`."""
    config = config_of(name)
    tensors = tensors_of(config)
    model = model_of(config, tensors)
    return config, tensors, model, *slow(model, columns())


def slow(model: DualLM, given: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and states of all positions."""
    slots, at = Slots(model.config.slow, 1, 64, model.embeddings), torch.arange(len(given), device=given.device)[None]
    logits, state = model.first_logits(model.slow(model.embed(given)[None], slots, slice(1), at, len(given))[0])
    return logits, state


def worst(ours: Tensor, twins: Tensor) -> float:
    return float((ours - twins).abs().max())


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_logits_states_and_codes_equal_twin(name: Model, changes: dict[str, Any]) -> None:
    config = config_of(name, **changes)
    tensors = tensors_of(config)
    model, twin, read = model_of(config, tensors), twin_of(config, tensors), columns(config=config)
    logits, state = slow(model, read)
    of_twin, given = twin.slow(read)
    assert worst(logits, of_twin[:, twin.speech]) < CLOSE
    assert worst(state, given) < CLOSE * max(1, float(given.std()))
    fast = Slots(config.fast, 1, config.codebooks, model.embeddings)
    seen: list[Tensor] = []

    def pick(_: int, of: Tensor) -> Tensor:
        seen.append(of[0])
        return of.argmax(-1)

    codes = model.codes(state[-1:], torch.tensor([5]), pick, fast)
    theirs: list[Tensor] = []

    def likeliest(of: Tensor) -> int:
        theirs.append(of[: config.choices])
        return int(theirs[-1].argmax())

    assert codes[0].tolist() == twin.codes(given[-1], 5, likeliest)
    assert max(worst(a, b) for a, b in zip(seen, theirs, strict=True)) < CLOSE


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["s2-pro", "s1"])
def test_cuda_equals_twin(name: Model) -> None:
    config, tensors, *_ = tiny(name)
    model = model_of(config, {name: tensor.cuda() for name, tensor in tensors.items()})
    logits, given = slow(model, columns().cuda())
    twin = twin_of(config, tensors)
    of_twin, of_state = twin.slow(columns())
    assert worst(logits.cpu(), of_twin[:, twin.speech]) < CLOSE
    assert worst(given.cpu(), of_state) < CLOSE


LAYER = {
    "keys and values swapped": ("q, k, v = rows", "q, v, k = rows", 0.5),
    "no norm of queries and keys": (" if tower.qk_norm else x", " if False else x", 0.05),
    "norm after rotation": (
        "rotate(normed(one, name), tower.rope_base)",
        "normed(rotate(one, tower.rope_base), name)",
        0.05,
    ),
    "halves rotated": ("x[..., 0::2], x[..., 1::2]", "x.chunk(2, -1)", 0.1),
    "rotated the other way": ("angles.sin()", "-angles.sin()", 0.1),
    "table in float32": ("one.bfloat16()", "one", 1e-4),
    "key heads tiled": ("head // (heads // kv)", "head % kv", 0.3),
    "scale without root": ("math.sqrt(width)", "width", 0.05),
    "not causal": ("(ahead > 0) | ", "", 0.3),
    "another eps": (" + eps)", " + 1e-3)", 1e-3),
    "gate and value swapped": ('("w1", "w3")', '("w3", "w1")', 0.3),
    "gate without itself": ("(gate / (1 +", "(1 / (1 +", 0.3),
    "heads inside the width": ("(len(x), -1, width)", "(len(x), width, -1).transpose(1, 2)", 0.3),
    "keys before queries": ("([heads, kv, kv], 1)", "([kv, heads, kv], 1)\n    q, k = k, q", 0.3),
    "another base": ("1 / base**", "1 / 500.0**", 0.01),
    "positions from 1": ("(len(x)).float()", "(1, len(x) + 1).float()", 1e-4),
    "no norm before attention": ("attend(before(x))", "attend(x)", 0.05),
    "norm after attention": ("attend(before(x))", "before(attend(x))", 0.1),
    "nothing added to attention": ("z = x + attend", "z = attend", 0.3),
    "branches side by side": ("y = between(z)", "y = between(x)", 0.1),
}
"""Published properties of the models: a change of each, and the resulting difference in logits."""
EMBEDDING = {
    "codes added to text": ("if self.begin <= token <= self.end", "if True", 0.1),
    "tables interleaved": ("code + self.c.entries * i", "code * self.c.codebooks + i", 0.3),
    "no division": ("if self.c.scaled", "if False", 0.05),
    "division without the token": ("(self.c.codebooks + 1)", "(self.c.codebooks)", 0.01),
}


@pytest.mark.parametrize("fact", [*LAYER, *EMBEDDING])
@pytest.mark.parametrize("name", ["s2-pro", "s1"])
def test_changed_arithmetic_changes_logits(name: Model, fact: str) -> None:
    """The float32 table is only visible in logits: greedy codes are the same."""
    config, tensors, _, logits, _ = tiny(name)
    old, new, least = {**LAYER, **EMBEDDING}[fact]
    twin = twin_of(config, tensors, turned_round(old, new))
    assert worst(logits, twin.slow(columns())[0][:, twin.speech]) > max(least, 10 * CLOSE)


@pytest.mark.parametrize("name", ["s2-pro", "s1"])
def test_fast_transformer_input_state(name: Model) -> None:
    config, tensors, *_, state = tiny(name)
    other = turned_round("normed if self.c.norm_state else state", "state if self.c.norm_state else normed")
    assert worst(state, twin_of(config, tensors, other).slow(columns())[1]) > 0.1


DEPTH = {
    "no state": ("[given], [first]", "[], [first]", 0.3),
    "a frame before it": ("[given], [first]", "[given, given], [first]", 0.05),
    "only the last code": ("torch.stack(x)", "torch.stack([given, x[-1]])", 0.05),
    "positions from 1": LAYER["positions from 1"],
}


@pytest.mark.parametrize("fact", DEPTH)
def test_changed_depth_loop_changes_codes(fact: str) -> None:
    """The state is the first position, codes follow, and each frame restarts."""
    config = config_of("s2-pro", audio_decoder_config={"num_codebooks": 6})
    tensors = tensors_of(config)
    given, seen = torch.randn(config.fast.width, generator=torch.Generator().manual_seed(0)), list[Tensor]()

    def always(of: Tensor) -> int:
        seen.append(of)
        return len(seen) % 7

    old, new, least = DEPTH[fact]
    for twins in (plain, turned_round(old, new)):
        seen.clear()
        twin_of(config, tensors, twins).codes(given.double(), 5, always)
        errors = worst(torch.stack(_fast_logits(config, tensors, given)), torch.stack(seen))
        assert errors < CLOSE if twins is plain else errors > least


def _fast_logits(config: DualConfig, tensors: dict[str, Tensor], given: Tensor) -> list[Tensor]:
    model, seen = model_of(config, tensors), list[Tensor]()

    def always(_: int, of: Tensor) -> Tensor:
        seen.append(of[0])
        return torch.tensor([len(seen) % 7])

    model.codes(given[None], torch.tensor([5]), always, Slots(config.fast, 1, config.codebooks, model.embeddings))
    return seen


def test_a_rotation_in_bf16_is_computed_in_float32() -> None:
    config = config_of("s2-pro").slow
    x = torch.randn(1, 50, 4, config.head_width, generator=torch.Generator().manual_seed(0)).bfloat16()
    turn = rotary(torch.arange(50), config.head_width, config.rope_base)[None, :, None]
    assert torch.equal(rotate(x, turn.float()), rotate(x.float(), turn.float()).bfloat16())
    cos, sin = turn.unbind(-1)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    assert not torch.equal(rotate(x, turn.float()), torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2))


def test_the_norm_is_rounded_before_its_weight() -> None:
    config, tensors, *_ = tiny("s2-pro")
    model = model_of(config, tensors, torch.bfloat16)
    x = torch.randn(1000, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight = model.slow.norm_weight
    wide = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + config.slow.eps)
    assert torch.equal(model.slow.norm(x, weight), wide.bfloat16() * weight)
    assert not torch.equal(model.slow.norm(x, weight), (wide * weight.float()).bfloat16())


@pytest.mark.parametrize("name", ["s2-pro", "s1"])
def test_bf16_is_close_to_float32(name: Model) -> None:
    config, tensors, *_ = tiny(name)
    logits, _ = slow(model_of(config, tensors, torch.bfloat16), columns())
    twin = twin_of(config, tensors)
    of_twin = twin.slow(columns())[0][:, twin.speech]
    assert worst(logits, of_twin) < 0.1 * of_twin.std()  # of the published tiny models at most 0.09


def _loaded(folder: Path, config: DualConfig) -> DualLM:
    files = model_tensors(folder, config)
    return DualLM(config, lambda name, *_: files.read(name, CPU), SPEECH, 64)


@pytest.mark.parametrize("name", ["s2-pro", "s1"])
def test_hub_layout_gives_the_same_model(name: Model, tmp_path: Path) -> None:
    config = DualConfig.read(write_model(tmp_path, name))
    loaded = _loaded(tmp_path, config)
    logits, _ = slow(loaded, columns())
    assert torch.equal(logits, tiny(name)[3])


def test_prefixed_pth_gives_the_same_model(tmp_path: Path) -> None:
    config, tensors, _, logits, _ = tiny("s1")
    torch.save({"state_dict": {f"model.{name}": tensor for name, tensor in tensors.items()}}, tmp_path / "model.pth")
    assert torch.equal(slow(_loaded(tmp_path, config), columns())[0], logits)


def test_common_names() -> None:
    assert common_name("text_model.model.layers.3.attention.wo.weight") == "layers.3.attention.wo.weight"
    assert common_name("audio_decoder.codebook_embeddings.weight") == "codebook_embeddings.weight"
    assert common_name("audio_decoder.project_in.bias") == "fast_project_in.bias"
    assert common_name("model.norm.weight") == "norm.weight"
    assert common_name("model.audio_projector.weight") is None


def test_flat_configuration_defaults() -> None:
    values = config_json("s1")
    for name in [name for name in values if name.startswith("fast_")]:
        del values[name]
    for name in ("n_local_heads", "head_dim", "intermediate_size", "scale_codebook_embeddings"):
        del values[name]
    config = DualConfig.of(values)
    assert (config.slow.kv_heads, config.slow.head_width, config.slow.hidden) == (4, 8, 256)
    assert config.fast == dataclasses.replace(config.slow, layers=2)
    assert not config.scaled
    assert not config.norm_state


MASK = 2**64 - 1
SETTINGS = [(1.0, 0.9), (0.7, 0.7), (1.0, 0.3), (0.7, 1.0), (1.0, 0.01), (0.1, 0.5), (0.0, 0.9)]


def _logits(rows: int = 200, size: int = 150) -> Tensor:
    return 2 * torch.randn(rows, size, generator=torch.Generator().manual_seed(0))


def _uniform(rows: int = 200, size: int = 150) -> Tensor:
    return torch.rand(rows, size, generator=torch.Generator().manual_seed(1))


CROSSING = ("total + float(p[entry]) <= top_p", "total <= top_p")
COLDER = ("p = logits", "logits, temperature = logits / max(temperature, 1e-5), 1.0\n    p = logits")


@pytest.mark.parametrize(
    ("top_k", "old", "new"),
    [(5, "", ""), (30, "", ""), (200, "", ""), (5, "rank < top_k", "True"), (30, *CROSSING), (30, *COLDER)],
)
def test_draws_equal_twin(top_k: int, old: str, new: str) -> None:
    """Rows have different settings."""
    logits, u, settings = _logits(), _uniform(), [SETTINGS[i % len(SETTINGS)] for i in range(200)]
    temperature, top_p = torch.tensor(settings).T
    ours = choose(Likeliest.of(logits, top_k), temperature, top_p, u).tolist()
    draw = turned_round(old, new).draw
    theirs = [draw(*of, *given, top_k) for *of, given in zip(logits.double(), u.double(), settings, strict=True)]
    assert (ours == theirs) == (old == new)


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -torch.inf]).expand(20_000, -1)
    ones = torch.ones(20_000)
    chosen = choose(Likeliest.of(logits), ones, ones, _uniform(20_000, 4))
    shares = torch.bincount(chosen, minlength=4) / 20_000
    assert (shares - logits[0].softmax(-1)).abs().max() < 0.015
    assert shares[3] == 0


@pytest.mark.parametrize(
    ("recent", "again", "chosen"),
    [([-1] * WINDOW, True, 1), ([-1] * 9 + [1], True, 0), ([1] + [-1] * 9, True, 0), ([-1] * 9 + [1], False, 1)],
)
def test_repeated_token_is_redrawn(recent: list[int], again: bool, chosen: int) -> None:
    """The redraw has its own settings and random numbers."""
    logits = torch.tensor([[1.1, 1.2, 1.0, -9.0]])
    cold, narrow = torch.tensor([0.0]), torch.tensor([0.0])
    u = torch.full((1, 4), 0.5), torch.tensor([[0.99, 0.01, 0.01, 0.5]])
    got = choose_main(Likeliest.of(logits), cold, narrow, u, torch.tensor([recent]), torch.tensor([again]))
    assert got.item() == chosen


def test_end_of_speech_is_never_redrawn() -> None:
    logits, one = torch.tensor([[0.0, 0.0, 9.0]]), torch.ones(1)
    u = torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[0.99, 0.99, 0.01]])
    assert (
        choose_main(Likeliest.of(logits), one, one, u, torch.tensor([[2] * WINDOW]), torch.tensor([True])).item() == 2
    )


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_uniform_is_splitmix64() -> None:
    seeds, frames = torch.tensor([0, 7, 2**32 - 1]), torch.tensor([0, 3, 1000])
    for row, (seed, frame) in enumerate(zip(seeds.tolist(), frames.tolist(), strict=True)):
        state = _mix((_mix(seed) + frame) & MASK)
        bits = [_mix((state + i * 0x9E3779B97F4A7C15) & MASK) >> 41 for i in range(50)]
        assert uniform(seeds, frames, draw_steps(50, seeds.device))[row].tolist() == [(b + 0.5) / 2**23 for b in bits]
