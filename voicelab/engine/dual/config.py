"""Configuration of open weights: both formats of ``config.json`` are parsed to the same type, which limits the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from voicelab.engine.dual.files import first_error, naming, read_json
from voicelab.errors import WeightsError
from voicelab.schema import Model

CONFIG = "config.json"
REAL_CODES = 1024
"""Number of entries of each codebook after the first. The language model's tables are larger, but the rest is untrained."""


Count = Annotated[int, Field(ge=1, le=1 << 10)]
Width = Annotated[int, Field(ge=1, le=1 << 18)]
HeadWidth = Annotated[int, Field(ge=2, le=1 << 10, multiple_of=2)]
_Id = Annotated[int, Field(ge=0, lt=1 << 22)]
STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@dataclass(frozen=True, config=STRICT)
class TowerConfig:
    """Configuration of a causal transformer: pre-norm, grouped-query attention, rotary position embeddings, gated MLP."""

    layers: Count
    width: Width
    heads: Count
    kv_heads: Count
    head_width: HeadWidth
    hidden: Width
    """Width of the gated MLP."""
    qk_norm: bool
    """Whether queries and keys are normalized before rotation."""
    positions: Annotated[int, Field(ge=1, le=1 << 24)]
    rope_base: Annotated[float, Field(ge=1, le=1e12)]
    eps: Annotated[float, Field(gt=0, le=1)]
    """Epsilon of the RMS norms."""


@dataclass(frozen=True, config=STRICT)
class DualConfig:
    """Configuration of a slow transformer over text and frames, and a fast transformer over the codes of a frame."""

    model: Model
    """Model name in the API."""
    slow: TowerConfig
    fast: TowerConfig
    vocabulary: _Id
    codebooks: Count
    entries: Annotated[int, Field(ge=1, le=1 << 15)]
    """Number of entries of each codebook's table; limited because stored voices keep codes in 16 bits."""
    tied: bool
    """Whether the slow head shares the embedding's weights."""
    norm_state: bool
    """Whether the fast transformer's input is the slow transformer's state after the final norm."""
    scaled: bool
    """Whether a frame's embedding is divided by the square root of the number of summed embeddings."""
    speech: tuple[_Id, _Id, _Id] | None
    """Ids of the first and the last speech token, and of the end of speech; None if only the tokenizer has them."""

    @property
    def choices(self) -> int:
        """Number of entries among which the fast transformer chooses."""
        return min(self.entries, REAL_CODES)

    @classmethod
    def read(cls, folder: Path) -> DualConfig:
        """Read a folder's ``config.json``.

        Raises:
            WeightsError: the file is missing or not supported by this version.
        """
        with naming(folder / CONFIG):
            return cls.of(read_json(folder / CONFIG, TypeAdapter(dict[str, Any])))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DualConfig:
        """Parse the values of ``config.json``. Raises WeightsError, which names the field."""
        try:
            kind = values["model_type"]
            if kind == "fish_qwen3_omni":
                return _from_sections(values)
            if kind == "dual_ar":
                return _from_flat(_without_nulls(values))
        except KeyError as error:
            raise WeightsError(f"the field {error} is missing") from error
        except ValidationError as error:
            raise WeightsError(first_error(error)) from error
        except (ArithmeticError, AttributeError, TypeError) as error:
            raise WeightsError(f"invalid model configuration: {error}") from error
        raise WeightsError(f"unknown model_type {kind!r}; supported are fish_qwen3_omni and dual_ar")


def _from_sections(values: Mapping[str, Any]) -> DualConfig:
    text, audio = _without_nulls(values["text_config"]), _without_nulls(values["audio_decoder_config"])
    slow = _tower(text, "text_config")
    fast = _tower({**audio, "rope_base": slow.rope_base, "norm_eps": slow.eps}, "audio_decoder_config")
    if audio.get("text_dim", slow.width) != slow.width:
        raise WeightsError("audio_decoder_config.text_dim must equal text_config.dim")
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


def _from_flat(values: Mapping[str, Any]) -> DualConfig:
    if not any(map(values.get, ("attention_qk_norm", "fast_attention_qk_norm", "scale_codebook_embeddings"))):
        raise WeightsError("fish-speech 1.5 and older are not supported; S2-Pro and S1-mini are")
    slow = _tower(values, "the model")
    # The fast transformer's own fields override those of the slow one.
    shared = {"dim": slow.width, "n_head": slow.heads, "n_local_heads": slow.kv_heads, "head_dim": slow.head_width}
    shared |= {"intermediate_size": slow.hidden, "attention_qk_norm": slow.qk_norm, "n_layer": values["n_fast_layer"]}
    fast_values = {name.removeprefix("fast_"): value for name, value in values.items() if name.startswith("fast_")}
    common = {"rope_base": slow.rope_base, "norm_eps": slow.eps, "max_seq_len": slow.positions}
    return DualConfig(
        model="s1",
        slow=slow,
        fast=_tower({**shared, **fast_values, **common}, "fast"),
        vocabulary=values["vocab_size"],
        codebooks=values["num_codebooks"],
        entries=values["codebook_size"],
        tied=values["tie_word_embeddings"],
        norm_state=values.get("norm_fastlayer_input", False),
        scaled=values.get("scale_codebook_embeddings", False),
        speech=None,
    )


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop fields that are null."""
    return {name: value for name, value in values.items() if value is not None}


def _tower(values: Mapping[str, Any], section: str) -> TowerConfig:
    for name in ("attention_qkv_bias", "attention_o_bias"):
        if values.get(name, False):
            raise WeightsError(f"{section} has {name}, which is not supported")
    width, heads, kv_heads = values["dim"], values["n_head"], values.get("n_local_heads", -1)
    hidden = values.get("intermediate_size")
    tower = TowerConfig(
        layers=values["n_layer"],
        width=width,
        heads=heads,
        kv_heads=heads if kv_heads == -1 else kv_heads,
        head_width=values["head_dim"] if "head_dim" in values else width // heads,
        hidden=-(-(2 * 4 * width // 3) // 256) * 256 if hidden is None else hidden,
        qk_norm=values.get("attention_qk_norm", False),
        positions=values["max_seq_len"],
        rope_base=values["rope_base"],
        eps=values["norm_eps"],
    )
    if heads % tower.kv_heads:
        raise WeightsError(f"{section}: {heads} heads are not a multiple of {tower.kv_heads} key heads")
    return tower
