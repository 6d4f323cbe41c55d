"""What a checkpoint of the family is made of: both forms of ``config.json`` become one value, its sizes within bounds."""

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
"""Entries of the codec's codebooks after the first; the language model's tables are wider, and nothing is trained there."""


Count = Annotated[int, Field(ge=1, le=1 << 10)]
Width = Annotated[int, Field(ge=1, le=1 << 18)]
HeadWidth = Annotated[int, Field(ge=2, le=1 << 10, multiple_of=2)]
_Id = Annotated[int, Field(ge=0, lt=1 << 22)]
STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@dataclass(frozen=True, config=STRICT)
class TowerConfig:
    """One causal transformer: pre-norm, grouped heads, rotary positions, gated MLP."""

    layers: Count
    width: Width
    heads: Count
    kv_heads: Count
    head_width: HeadWidth
    hidden: Width
    """Width of the gated MLP."""
    qk_norm: bool
    """Whether queries and keys are normed before they are rotated."""
    positions: Annotated[int, Field(ge=1, le=1 << 24)]
    rope_base: Annotated[float, Field(ge=1, le=1e12)]
    eps: Annotated[float, Field(gt=0, le=1)]
    """Of the RMS norms."""


@dataclass(frozen=True, config=STRICT)
class DualConfig:
    """A slow transformer over text and frames, a fast one over the codes of a frame."""

    model: Model
    """The interface's name of it."""
    slow: TowerConfig
    fast: TowerConfig
    vocabulary: _Id
    codebooks: Count
    entries: Annotated[int, Field(ge=1, le=1 << 15)]
    """Of each codebook's table; a stored voice keeps them in 16 bits."""
    tied: bool
    """Whether the slow head is the embedding."""
    norm_state: bool
    """Whether the fast transformer is given the slow one's state after its last norm."""
    scaled: bool
    """Whether the embedding of a frame is divided by the root of its parts' number."""
    speech: tuple[_Id, _Id, _Id] | None
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
        with naming(folder / CONFIG):
            return cls.of(read_json(folder / CONFIG, TypeAdapter(dict[str, Any])))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DualConfig:
        """The configuration that the file's values describe. Raises WeightsError, which names the field."""
        try:
            kind = values["model_type"]
            if kind == "fish_qwen3_omni":
                return _two_parts(values)
            if kind == "dual_ar":
                return _flat(_given(values))
        except KeyError as error:
            raise WeightsError(f"there is no field {error}") from error
        except ValidationError as error:
            raise WeightsError(first_error(error)) from error
        except (ArithmeticError, AttributeError, TypeError) as error:
            raise WeightsError(f"it describes no model: {error}") from error
        raise WeightsError(f"this version does not know the model_type {kind!r}")


def _two_parts(values: Mapping[str, Any]) -> DualConfig:
    text, audio = _given(values["text_config"]), _given(values["audio_decoder_config"])
    slow = _tower(text, "text_config")
    fast = _tower({**audio, "rope_base": slow.rope_base, "norm_eps": slow.eps}, "audio_decoder_config")
    if audio.get("text_dim", slow.width) != slow.width:
        raise WeightsError("audio_decoder_config.text_dim is not text_config.dim")
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
    if not any(map(values.get, ("attention_qk_norm", "fast_attention_qk_norm", "scale_codebook_embeddings"))):
        raise WeightsError("it is of fish-speech 1.5 or older, which is not supported; S2-Pro and S1-mini are")
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
            raise WeightsError(f"{part} has {name}, which this version does not know")
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
        raise WeightsError(f"{part or 'the model'} has {heads} heads for {tower.kv_heads} of keys and values")
    return tower
