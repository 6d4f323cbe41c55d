"""Weights in safetensors: codec, language model, preset voices, and the configurations that say how to read them.

A folder holds `voice.safetensors`, which is all of that, and may hold `s1.safetensors` beside it: a language model alone, on
the same codec, so that speakers, which are statistics of the codec's latents, serve both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from voicelab.call import VoicePreset
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import ALL_PHONES, LANGUAGES, PHONES, CodecConfig, LMConfig
from voicelab.engine.pointer.lm import LM, STATISTICS
from voicelab.engine.pointer.unfilled import Unfilled
from voicelab.errors import WeightsError

EMBEDDED = "voice.safetensors"
SMALL = "s1.safetensors"
_METADATA, _SCALES = "voicelab", ".row_scales"
_ROUNDED = ("lm.", "codec.encoder.")
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Checkpoint:
    """Models ready to run, on one device."""

    codec: Codec
    lm: LM
    presets: tuple[VoicePreset, ...]
    """The first is the default speaker."""
    speakers: Mapping[str, Tensor]
    """Preset id → (STATISTICS * latent,) statistics."""
    languages: tuple[str, ...]
    """What it has learned to speak: ``("en",)`` where the file says nothing."""
    digest: str
    """The first 16 hexadecimal digits of the file's SHA-256."""
    codec_digest: str
    """The same of the codec's own tensors and configuration: what speakers and language models must fit."""
    small: Path | None = None
    """The second language model's file, if there is one."""
    small_digest: str | None = None


def load(path: Path | None = None, device: torch.device | None = None) -> Checkpoint:
    """Reads a checkpoint, a file or a folder; the embedded voice when no path is given.

    Raises:
        WeightsError: the file is missing, damaged, or of another version; or the one beside it is on another codec.
    """
    if path is None:
        with as_file(files("voicelab.engine") / "weights") as embedded:
            return load(embedded, device)
    if path.is_dir():
        loaded, small = load(path / EMBEDDED, device), path / SMALL
        if not small.exists():
            return loaded
        with _reading(small):
            about, digest = _metadata(small, {"codec_digest", "lm"}), _digest(small)
            if about["codec_digest"] != loaded.codec_digest:
                raise WeightsError(f"its language model is on another codec than {EMBEDDED}")
        return replace(loaded, small=small, small_digest=digest)
    with _reading(path):
        meta = _metadata(path, {"codec", "lm", "voices"})
        return _build(meta, load_file(path), _digest(path), device or torch.device("cpu"))


def load_small(checkpoint: Checkpoint) -> LM:
    """Reads the second language model of a folder, onto the device of the first.

    Raises:
        WeightsError: there is none, or it is damaged or of another version.
    """
    path = checkpoint.small
    if path is None:
        raise WeightsError(f"there is no {SMALL} beside the weights")
    with _reading(path):
        config = LMConfig.of(_metadata(path, {"codec_digest", "lm"})["lm"])
        _check_kinds(checkpoint.codec.config, config, checkpoint.languages)
        with Unfilled():
            lm = LM(config)
        return _fill(lm, load_file(path), "lm.").to(checkpoint.lm.begin.device)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Every error becomes a WeightsError that names the file."""
    try:
        yield
    except WeightsError as error:
        raise WeightsError(f"the weights {path.name}: {error}") from error
    except (OSError, SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise WeightsError(f"the weights {path.name} cannot be read: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise WeightsError(f"the weights {path.name} describe themselves wrongly: {error!r}") from error


def _metadata(path: Path, needed: set[str]) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        meta = json.loads((file.metadata() or {}).get(_METADATA, "null"))
    if not isinstance(meta, dict) or not needed <= set(meta):
        raise WeightsError("they say nothing of their configuration; they were not written by voicelab")
    return meta


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _codec_digest(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name in sorted(name for name in tensors if name.startswith("codec.")):
        digest.update(name.encode() + tensors[name].to(torch.float16).contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _check_kinds(of_codec: CodecConfig, of_lm: LMConfig, languages: tuple[str, ...]) -> None:
    if (of_codec.codebooks, of_codec.latent) != (of_lm.codebooks, of_lm.latent):
        raise WeightsError("its codec and its language model are not of one kind")
    if of_lm.phones not in (len(PHONES), len(ALL_PHONES)):
        here = f"{len(PHONES)}, with Mandarin {len(ALL_PHONES)}"
        raise WeightsError(f"it knows {of_lm.phones} phones; this version has {here}")
    if "zh" in languages and of_lm.phones == len(PHONES):
        raise WeightsError("it speaks Mandarin, and knows no phone of it")


def _build(meta: Mapping[str, Any], tensors: Mapping[str, Tensor], digest: str, device: torch.device) -> Checkpoint:
    of_codec, of_lm = CodecConfig.of(meta["codec"]), LMConfig.of(meta["lm"])
    languages = tuple(meta.get("languages", ("en",)))
    if not languages or not set(languages) <= set(LANGUAGES):
        raise WeightsError(f"it speaks {list(languages)}; this version reads {list(LANGUAGES)}")
    _check_kinds(of_codec, of_lm, languages)
    with Unfilled():
        codec, lm = Codec(of_codec), LM(of_lm)
    codec, lm = _fill(codec, tensors, "codec.").to(device), _fill(lm, tensors, "lm.").to(device)
    presets = tuple(VoicePreset(v["id"], v["title"], v["description"]) for v in meta["voices"])
    if not presets:
        raise WeightsError("it holds no voice")
    speakers = {p.id: tensors[f"voices.{p.id}"].float() for p in presets}
    for name, statistics in speakers.items():
        if statistics.shape != (STATISTICS * of_lm.latent,) or not torch.isfinite(statistics).all():
            raise WeightsError(f"its voice {name!r} is damaged")
    return Checkpoint(codec, lm, presets, speakers, languages, digest, _codec_digest(meta["codec"], tensors))


def save(
    path: Path,
    codec: Codec,
    lm: LM,
    voices: Mapping[VoicePreset, Tensor],
    about: Mapping[str, Any],
    languages: tuple[str, ...] = ("en",),
) -> None:
    """Writes a checkpoint: matrices of language model and encoder in 8 bits by rows, all else in half precision.

    `about` (how it was made) and the `languages` learned go into its metadata.
    """
    tensors = {f"voices.{preset.id}": v for preset, v in voices.items()}
    for part, model in (("codec", codec), ("lm", lm)):
        tensors |= {f"{part}.{k}": v for k, v in model.state_dict().items()}
    described = [{"id": p.id, "title": p.title, "description": p.description} for p in voices]
    meta = {"codec": codec.config.to_dict(), "lm": lm.config.to_dict(), "voices": described, "about": dict(about)}
    meta["languages"] = list(languages)
    _write(path, tensors, meta)


def save_small(path: Path, lm: LM, beside: Checkpoint, about: Mapping[str, Any]) -> None:
    """Writes a second language model on a checkpoint's codec, as `s1.safetensors` in its folder; `about` as in `save`."""
    meta = {"lm": lm.config.to_dict(), "codec_digest": beside.codec_digest, "about": dict(about)}
    _write(path, {f"lm.{k}": v for k, v in lm.state_dict().items()}, meta)


def _write(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written: dict[str, Tensor] = {}
    for name, tensor in ((name, tensor.detach()) for name, tensor in tensors.items()):
        if name.startswith(_ROUNDED) and tensor.dim() == 2:
            # What 1 stands for in each row, as half precision holds it.
            scales = (tensor.abs().amax(1).clamp_min(1e-3) / 127).half().float()
            written[name] = (tensor / scales[:, None]).round().clamp(-127, 127).to(torch.int8)
            written[name + _SCALES] = scales.to(torch.float16)
        else:
            written[name] = tensor.to(torch.float16).contiguous()
    save_file(written, path, metadata={_METADATA: json.dumps(meta, sort_keys=True)})


def _fill(model: M, tensors: Mapping[str, Tensor], prefix: str) -> M:
    own = {k[len(prefix) :]: v.float() for k, v in tensors.items() if k.startswith(prefix)}
    for name in [name for name in own if name.endswith(_SCALES)]:
        scales = own.pop(name)
        matrix = name.removesuffix(_SCALES)
        # Rounded to 16 bits, which the quick product of a CPU takes.
        own[matrix] = (own[matrix] * scales[:, None]).half().float()
    for name, tensor in own.items():
        if not torch.isfinite(tensor).all():
            raise WeightsError(f"{prefix}{name} holds numbers that are not finite")
    try:
        model.load_state_dict(own)
    except RuntimeError as error:
        raise WeightsError(f"they do not fit their configuration: {error}") from error
    return model.eval().requires_grad_(False)
