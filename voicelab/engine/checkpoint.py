"""Weights in one safetensors file: codec, language model, preset voices, and the configurations that say how to read them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from voicelab.backend import VoicePreset
from voicelab.engine.codec import Codec
from voicelab.engine.config import CodecConfig, LMConfig
from voicelab.engine.lm import LM
from voicelab.engine.text.phones import LANGUAGES, PHONES
from voicelab.errors import WeightsError

EMBEDDED = "voice.safetensors"
_METADATA = "voicelab"
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Checkpoint:
    """Models ready to run, on one device."""

    codec: Codec
    lm: LM
    presets: tuple[VoicePreset, ...]
    """The first is the default speaker."""
    speakers: Mapping[str, Tensor]
    """Preset id → (2 * latent,) statistics."""
    languages: tuple[str, ...]
    """What it has learned to speak: ``("en",)`` where the file says nothing."""
    digest: str
    """The first 16 hexadecimal digits of the file's SHA-256."""


def load(path: Path | None = None, device: torch.device | None = None) -> Checkpoint:
    """Reads a checkpoint; the embedded voice when no path is given.

    Raises:
        WeightsError: the file is missing, damaged, or of another version.
    """
    if path is None:
        with as_file(files("voicelab.engine") / "weights" / EMBEDDED) as embedded:
            return load(embedded, device)
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {}).get(_METADATA, "null"))
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise WeightsError(f"the weights {path.name} cannot be read: {error}") from error
    if not isinstance(meta, dict) or not {"codec", "lm", "voices"} <= set(meta):
        raise WeightsError(
            f"the weights {path.name} say nothing of their configuration; they were not written by voicelab"
        )
    try:
        return _build(meta, tensors, digest, device or torch.device("cpu"))
    except WeightsError as error:
        raise WeightsError(f"the weights {path.name}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise WeightsError(f"the weights {path.name} describe themselves wrongly: {error!r}") from error


def _build(meta: Mapping[str, Any], tensors: Mapping[str, Tensor], digest: str, device: torch.device) -> Checkpoint:
    of_codec, of_lm = CodecConfig.of(meta["codec"]), LMConfig.of(meta["lm"])
    if (of_codec.codebooks, of_codec.latent) != (of_lm.codebooks, of_lm.latent):
        raise WeightsError("its codec and its language model are not of one kind")
    if of_lm.phones != len(PHONES):
        raise WeightsError(f"it knows {of_lm.phones} phones; this version has {len(PHONES)}")
    languages = tuple(meta.get("languages", ("en",)))
    if not languages or not set(languages) <= set(LANGUAGES):
        raise WeightsError(f"it speaks {list(languages)}; this version reads {list(LANGUAGES)}")
    codec = _fill(Codec(of_codec), tensors, "codec.").to(device)
    lm = _fill(LM(of_lm), tensors, "lm.").to(device)
    presets = tuple(VoicePreset(v["id"], v["title"], v["description"]) for v in meta["voices"])
    if not presets:
        raise WeightsError("it holds no voice")
    speakers = {p.id: tensors[f"voices.{p.id}"].float() for p in presets}
    for name, statistics in speakers.items():
        if statistics.shape != (2 * of_lm.latent,) or not torch.isfinite(statistics).all():
            raise WeightsError(f"its voice {name!r} is damaged")
    return Checkpoint(codec, lm, presets, speakers, languages, digest)


def save(
    path: Path,
    codec: Codec,
    lm: LM,
    voices: Mapping[VoicePreset, Tensor],
    about: Mapping[str, Any],
    languages: tuple[str, ...] = ("en",),
) -> None:
    """Writes a checkpoint in half precision; `about` (how it was made) and the `languages` learned go into its metadata."""
    tensors = {f"codec.{k}": v for k, v in codec.state_dict().items()} | {
        f"lm.{k}": v for k, v in lm.state_dict().items()
    }
    tensors |= {f"voices.{preset.id}": v for preset, v in voices.items()}
    described = [{"id": p.id, "title": p.title, "description": p.description} for p in voices]
    meta = {"codec": codec.config.to_dict(), "lm": lm.config.to_dict(), "voices": described, "about": dict(about)}
    meta["languages"] = list(languages)
    path.parent.mkdir(parents=True, exist_ok=True)
    halves = {k: v.detach().to(torch.float16).contiguous() for k, v in tensors.items()}
    save_file(halves, path, metadata={_METADATA: json.dumps(meta, sort_keys=True)})


def _fill(model: M, tensors: Mapping[str, Tensor], prefix: str) -> M:
    mine = {k[len(prefix) :]: v.float() for k, v in tensors.items() if k.startswith(prefix)}
    for name, tensor in mine.items():
        if not torch.isfinite(tensor).all():
            raise WeightsError(f"{prefix}{name} holds numbers that are not finite")
    try:
        model.load_state_dict(mine)
    except RuntimeError as error:
        raise WeightsError(f"they do not fit their configuration: {error}") from error
    return model.eval().requires_grad_(False)
