"""Tiny checkpoints in the published layouts, with random weights and byte tokenizers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from tests.engine.dual import twin
from tests.engine.dual.twin import Twin
from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.model import DualLM, shapes_of
from voicelab.schema import Model

CODEBOOKS, ENTRIES = 3, 64
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|voice|>", "<|interleave|>", *(f"<|semantic:{i}|>" for i in range(ENTRIES))]
IDS = {token: 256 + i for i, token in enumerate(SPECIAL)}
SPEECH = IDS["<|semantic:0|>"], IDS[f"<|semantic:{ENTRIES - 1}|>"], IDS["<|im_end|>"]
VOCABULARY = 256 + len(SPECIAL)
POSITIONS = 512
_SHARED: dict[str, Any] = {"rope_base": 1e6, "norm_eps": 1e-6, "dropout": 0.0}
_SHARED |= {"attention_qkv_bias": False, "attention_o_bias": False}
_SLOW = {"n_layer": 2, "n_head": 4, "n_local_heads": 2, "dim": 32, "head_dim": 16, "intermediate_size": 48}
_FAST = {"n_layer": 2, "n_head": 4, "n_local_heads": 2, "dim": 32, "head_dim": 8, "intermediate_size": 40}


def config_json(model: Model, **changes: Any) -> dict[str, Any]:
    """Make the values of ``config.json``; `changes` override fields of the top level or of a section."""
    if model == "s2-pro":
        slow = {**_SHARED, **_SLOW, "vocab_size": VOCABULARY, "max_seq_len": POSITIONS, "attention_qk_norm": True}
        fast = {**_SHARED, **_FAST, "head_dim": 16, "vocab_size": ENTRIES, "max_seq_len": CODEBOOKS + 1}
        fast |= {"attention_qk_norm": False, "text_dim": 32, "num_codebooks": CODEBOOKS}
        ids: dict[str, Any] = dict(
            zip(("semantic_start_token_id", "semantic_end_token_id", "eos_token_id"), SPEECH, strict=True)
        )
        text = {**slow, "tie_word_embeddings": True}
        whole = {"model_type": "fish_qwen3_omni", "text_config": text, "audio_decoder_config": fast, **ids}
        return whole | {
            name: {**whole[name], **value} if isinstance(value, dict) else value for name, value in changes.items()
        }
    fast = {f"fast_{name}": value for name, value in _FAST.items() if name != "n_layer"}
    flat: dict[str, Any] = {**_SHARED, **_SLOW, **fast, "n_fast_layer": 2}
    flat |= {"fast_attention_qk_norm": False, "attention_qk_norm": True}
    flat |= {"vocab_size": VOCABULARY, "max_seq_len": POSITIONS, "codebook_size": ENTRIES, "num_codebooks": CODEBOOKS}
    flat |= {"tie_word_embeddings": False, "scale_codebook_embeddings": True, "model_type": "dual_ar"}
    return {**flat, **changes}


def config_of(model: Model, **changes: Any) -> DualConfig:
    """Parse `config_json`."""
    return DualConfig.of(config_json(model, **changes))


def tensors_of(config: DualConfig, seed: int = 0) -> dict[str, Tensor]:
    """Make random weights by common name, large enough that every change of the arithmetic changes the logits."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes_of(config).items():
        normal = torch.randn(shape, generator=generator)
        tensors[name] = 1 + 0.3 * normal if "norm" in name else 0.25 * normal
    return tensors


def model_of(config: DualConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> DualLM:
    """Make the model of the tensors."""
    return DualLM(config, lambda name, *_: tensors[name].to(dtype), speech_of(config), config.slow.positions)


def speech_of(config: DualConfig) -> tuple[int, int, int]:
    """Return the ids of the first and last speech token, and of the end."""
    return config.speech or (SPEECH[0], SPEECH[0] + config.entries - 1, SPEECH[2])


def twin_of(
    config: DualConfig, tensors: Mapping[str, Tensor], of: Any = twin, speech: tuple[int, int, int] | None = None
) -> Twin:
    """Make the twin of the same tensors, from module `of`; `speech` overrides the ids of `config_json`."""
    made: Twin = of.Twin(config, tensors, speech or speech_of(config))
    return made


def write_model(folder: Path, model: Model, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """Write a model's folder in the published layout, without the codec."""
    folder.mkdir(parents=True, exist_ok=True)
    values = config_json(model, **changes)
    (folder / "config.json").write_text(json.dumps(values))
    tensors = {name: tensor.to(dtype) for name, tensor in tensors_of(DualConfig.of(values), seed).items()}
    if model == "s2-pro":
        hub = {_hub_name(name): tensor for name, tensor in tensors.items()}
        places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(hub)}
        for file in set(places.values()):
            save_file({name: tensor for name, tensor in hub.items() if places[name] == file}, folder / file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        _hub_tokenizer().save(str(folder / "tokenizer.json"))
    else:
        torch.save({**tensors, "extra_audio_encoder": torch.ones(2)}, folder / "model.pth")
        write_table(folder)
    return folder


def write_table(folder: Path, pairs: tuple[bytes, ...] = ()) -> None:
    """Write S1-mini's tokenizer: all bytes, then merges by rank, then special tokens."""
    pieces = [*(bytes([i]) for i in range(256)), *pairs]
    lines = [base64.b64encode(piece) + b" %d" % rank for rank, piece in enumerate(pieces)]
    (folder / "tokenizer.tiktoken").write_bytes(b"\n".join([*lines, b"= 99999"]))
    special = {token: number + len(pairs) for token, number in IDS.items()}
    (folder / "special_tokens.json").write_text(json.dumps(special))


def _hub_name(name: str) -> str:
    if name.startswith("codebook_embeddings"):
        return f"audio_decoder.{name}"
    fast = name.removeprefix("fast_")
    return f"text_model.model.{name}" if fast == name else f"audio_decoder.{fast}"


def _hub_tokenizer() -> tokenizers.Tokenizer:
    """Write a byte tokenizer."""
    letters = _byte_letters()
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def _byte_letters() -> list[str]:
    """Map bytes to the letters of GPT-2's byte-level vocabulary."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]
