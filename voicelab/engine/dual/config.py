"""What a checkpoint of the family is made of: both forms of ``config.json`` become one value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicelab.errors import WeightsError
from voicelab.schema import Model

CONFIG = "config.json"
REAL_CODES = 1024
"""Entries of the codec's codebooks after the first; the language model's tables are wider, and nothing is trained there."""


@dataclass(frozen=True)
class TowerConfig:
    """One causal transformer: pre-norm, grouped heads, rotary positions, gated MLP."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    """Width of the gated MLP."""
    qk_norm: bool
    """Whether queries and keys are normed before they are rotated."""
    positions: int
    rope_base: float
    eps: float
    """Of the RMS norms."""


@dataclass(frozen=True)
class DualConfig:
    """A slow transformer over text and frames, a fast one over the codes of a frame."""

    model: Model
    """The interface's name of it."""
    slow: TowerConfig
    fast: TowerConfig
    vocabulary: int
    codebooks: int
    entries: int
    """Of each codebook's table."""
    tied: bool
    """Whether the slow head is the embedding."""
    norm_state: bool
    """Whether the fast transformer is given the slow one's state after its last norm."""
    scaled: bool
    """Whether the embedding of a frame is divided by the root of its parts' number."""
    speech: tuple[int, int, int] | None
    """Ids of the first and the last speech token, and of the end of speech; None: the tokenizer's files say."""

    @property
    def choices(self) -> int:
        """How many entries of the codebooks after the first can be chosen."""
        return min(self.entries, REAL_CODES)

    @classmethod
    def read(cls, folder: Path) -> DualConfig:
        """The configuration of a folder's ``config.json``.

        Raises:
            WeightsError: it is missing, or describes what this version does not know.
        """
        try:
            values = json.loads((folder / CONFIG).read_bytes())
            return cls.of(values)
        except (OSError, ValueError) as error:
            raise WeightsError(f"the weights {folder.name}: {CONFIG} cannot be read: {error}") from error
        except KeyError as error:
            raise WeightsError(f"the weights {folder.name}: {CONFIG} has no field {error}") from error
        except (AttributeError, TypeError) as error:
            raise WeightsError(f"the weights {folder.name}: {CONFIG} describes no model: {error}") from error

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DualConfig:
        """The configuration that the file's values describe. Raises WeightsError; KeyError for a field that is missing."""
        kind = values["model_type"]
        if kind == "fish_qwen3_omni":
            return _two_parts(values)
        if kind == "dual_ar":
            return _flat(_given(values))
        raise WeightsError(f"{CONFIG}: this version does not know the model_type {kind!r}")


def _two_parts(values: Mapping[str, Any]) -> DualConfig:
    text, audio = _given(values["text_config"]), _given(values["audio_decoder_config"])
    slow = _tower(text, "text_config")
    fast = _tower({**audio, "rope_base": slow.rope_base, "norm_eps": slow.eps}, "audio_decoder_config")
    if audio.get("text_dim", slow.width) != slow.width:
        raise WeightsError(f"{CONFIG}: audio_decoder_config.text_dim is not text_config.dim")
    return DualConfig(
        model="s2-pro",
        slow=slow,
        fast=fast,
        vocabulary=text["vocab_size"],
        codebooks=audio["num_codebooks"],
        entries=audio["vocab_size"],
        tied=text["tie_word_embeddings"],
        norm_state=True,
        scaled=True,
        speech=(values["semantic_start_token_id"], values["semantic_end_token_id"], values["eos_token_id"]),
    )


def _flat(values: Mapping[str, Any]) -> DualConfig:
    slow = _tower(values, "")
    # The fast transformer has what it says of itself, and all else of the slow one.
    shared = {"dim": slow.width, "n_head": slow.heads, "n_local_heads": slow.kv_heads, "head_dim": slow.head_width}
    shared |= {"intermediate_size": slow.hidden, "attention_qk_norm": slow.qk_norm, "n_layer": values["n_fast_layer"]}
    own = {name.removeprefix("fast_"): value for name, value in values.items() if name.startswith("fast_")}
    same = {"rope_base": slow.rope_base, "norm_eps": slow.eps, "max_seq_len": slow.positions}
    return DualConfig(
        model="s1",
        slow=slow,
        fast=_tower({**shared, **own, **same}, "fast"),
        vocabulary=values["vocab_size"],
        codebooks=values["num_codebooks"],
        entries=values["codebook_size"],
        tied=values["tie_word_embeddings"],
        norm_state=values.get("norm_fastlayer_input", False),
        scaled=values.get("scale_codebook_embeddings", False),
        speech=None,
    )


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without fields that are null, which are as good as missing."""
    return {name: value for name, value in values.items() if value is not None}


def _tower(values: Mapping[str, Any], part: str) -> TowerConfig:
    for name in ("attention_qkv_bias", "attention_o_bias"):
        if values.get(name, False):
            raise WeightsError(f"{CONFIG}: {part} has {name}, which this version does not know")
    width, heads, kv_heads = values["dim"], values["n_head"], values.get("n_local_heads", -1)
    hidden = values.get("intermediate_size")
    tower = TowerConfig(
        layers=values["n_layer"],
        width=width,
        heads=heads,
        kv_heads=heads if kv_heads == -1 else kv_heads,
        head_width=values.get("head_dim", width // heads),
        hidden=-(-(2 * 4 * width // 3) // 256) * 256 if hidden is None else hidden,
        qk_norm=values.get("attention_qk_norm", False),
        positions=values["max_seq_len"],
        rope_base=values["rope_base"],
        eps=values["norm_eps"],
    )
    sizes = (tower.layers, width, heads, tower.kv_heads, tower.head_width, tower.hidden, tower.positions)
    if min(sizes) < 1 or heads % tower.kv_heads or tower.head_width % 2:
        raise WeightsError(f"{CONFIG}: {part or 'the model'} is of an impossible size")
    return tower
