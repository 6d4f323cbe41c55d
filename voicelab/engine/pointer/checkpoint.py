"""Checkpoints in safetensors: codec, language model, preset voices and their configurations.

A checkpoint folder holds `voice.safetensors` with all of these, and optionally `s1.safetensors`: a second language model on
the same codec, so speakers, which are statistics of the codec's latents, are shared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from voicelab.call import VoicePreset
from voicelab.engine.pointer.arrays import ROW_SCALES, Floats, Weights, widened
from voicelab.engine.pointer.config import ALL_PHONES, LANGUAGES, PHONES, CodecConfig, LMConfig
from voicelab.engine.pointer.numpy_codec import NumpyCodec, SpeechCodec
from voicelab.engine.pointer.numpy_step import NumpyLM
from voicelab.engine.pointer.rows import STATISTICS, LanguageModel
from voicelab.errors import WeightsError

if TYPE_CHECKING:
    from voicelab.engine.pointer import codec as torch_codec
    from voicelab.engine.pointer import lm as torch_lm

EMBEDDED = "voice.safetensors"
S1_FILE = "s1.safetensors"
_METADATA = "voicelab"
_HEADER_LENGTH = 8
"""Bytes at the start of a safetensors file that hold the length of its header."""
_TYPES: Mapping[str, Any] = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8}
_ROUNDED = ("lm.", "codec.encoder.")
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Checkpoint:
    """Models ready for inference on one device."""

    codec: SpeechCodec
    lm: LanguageModel
    presets: tuple[VoicePreset, ...]
    """The first preset is the default speaker."""
    speakers: Mapping[str, Floats]
    """Preset id → (STATISTICS * latent,) statistics."""
    languages: tuple[str, ...]
    """Languages of the training data: ``("en",)`` if the file names none."""
    digest: str
    """First 16 hexadecimal digits of the file's SHA-256."""
    codec_digest: str
    """Digest of the codec's tensors and configuration, which speakers and language models must match."""
    small: Path | None = None
    """File of the second language model, if there is one."""
    small_digest: str | None = None


def load(path: Path | None = None, device: str = "cpu") -> Checkpoint:
    """Read a checkpoint file or folder, by default the embedded checkpoint.

    Raises:
        WeightsError: a file is missing, damaged or of another version, or the second language model is for another codec.
    """
    if path is None:
        with as_file(files("voicelab.engine") / "weights") as embedded:
            return load(embedded, device)
    if path.is_dir():
        loaded, small = load(path / EMBEDDED, device), path / S1_FILE
        if not small.exists():
            return loaded
        with _reading(small):
            about, _, digest = _open(small, {"codec_digest", "lm"})
            if about["codec_digest"] != loaded.codec_digest:
                raise WeightsError(f"the language model is for another codec than that of {EMBEDDED}")
        return replace(loaded, small=small, small_digest=digest)
    with _reading(path):
        return _build(*_open(path, {"codec", "lm", "voices"}), device)


def load_small(checkpoint: Checkpoint, device: str = "cpu") -> LanguageModel:
    """Read the second language model of a checkpoint folder.

    Raises:
        WeightsError: the folder has no second model, or it is damaged or of another version.
    """
    path = checkpoint.small
    if path is None:
        raise WeightsError(f"no {S1_FILE} found next to the weights")
    with _reading(path):
        meta, tensors, _ = _open(path, {"codec_digest", "lm"})
        config = LMConfig.of(meta["lm"])
        _check_compatible(checkpoint.codec.config, config, checkpoint.languages)
        return _language_model(config, tensors, device)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert errors to a WeightsError that names the file."""
    try:
        yield
    except WeightsError as error:
        raise WeightsError(f"the weights {path.name}: {error}") from error
    except (OSError, SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise WeightsError(f"the weights {path.name} cannot be read: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise WeightsError(f"the weights {path.name} have an invalid configuration: {error!r}") from error


def _open(path: Path, needed: set[str]) -> tuple[dict[str, Any], Arrays, str]:
    """Return the configuration, the tensors and the digest of a file. The tensors are mapped, not copied."""
    with safe_open(path, framework="np"):
        pass  # checks the header
    data = np.memmap(path, np.uint8, "r").view(np.ndarray)
    begin = _HEADER_LENGTH + int.from_bytes(data[:_HEADER_LENGTH].tobytes(), "little")
    header = json.loads(data[_HEADER_LENGTH:begin].tobytes())
    meta = json.loads(header.pop("__metadata__", {}).get(_METADATA, "null"))
    if not isinstance(meta, dict) or not needed <= set(meta):
        raise WeightsError("the metadata has no voicelab configuration; the file was not written by voicelab")
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in _TYPES:
            raise WeightsError(f"the type of {name} must be among {list(_TYPES)}, got {entry['dtype']}")
        values = data[slice(*(begin + offset for offset in entry["data_offsets"]))].view(_TYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return meta, tensors, hashlib.sha256(data.data).hexdigest()[:16]


def _codec_digest(config: Mapping[str, Any], tensors: Arrays) -> str:
    """Compute the digest of the codec's configuration and tensors, in float16."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    halves = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float16)
    for name in sorted(name for name in tensors if name.startswith("codec.")):
        tensor = tensors[name]
        digest.update(name.encode())
        # Bytes are converted by a table, because numpy converts single bytes slowly.
        half = halves[tensor.view(np.uint8)] if tensor.dtype == np.int8 else tensor.astype(np.float16, copy=False)
        digest.update(np.ascontiguousarray(half).data)
    return digest.hexdigest()[:16]


def _check_compatible(of_codec: CodecConfig, of_lm: LMConfig, languages: tuple[str, ...]) -> None:
    if (of_codec.codebooks, of_codec.latent) != (of_lm.codebooks, of_lm.latent):
        raise WeightsError("codec and language model do not match: codebooks or latent widths differ")
    if of_lm.phones not in (len(PHONES), len(ALL_PHONES)):
        sizes = f"{len(PHONES)} or, with Mandarin, {len(ALL_PHONES)}"
        raise WeightsError(f"phones must be {sizes}, got {of_lm.phones}")
    if "zh" in languages and of_lm.phones == len(PHONES):
        raise WeightsError("languages include zh, but the model has no Mandarin phones")


def _build(meta: Mapping[str, Any], tensors: Arrays, digest: str, device: str) -> Checkpoint:
    of_codec, of_lm = CodecConfig.of(meta["codec"]), LMConfig.of(meta["lm"])
    languages = tuple(meta.get("languages", ("en",)))
    if not languages or not set(languages) <= set(LANGUAGES):
        raise WeightsError(f"languages must be among {list(LANGUAGES)}, got {list(languages)}")
    _check_compatible(of_codec, of_lm, languages)
    codec_digest = _codec_digest(meta["codec"], tensors)
    lm = _language_model(of_lm, tensors, device)
    if device == "cpu":
        codec: SpeechCodec = NumpyCodec(of_codec, Weights(tensors, "codec."))
    else:
        from voicelab.engine.pointer.codec import TorchCodec

        codec = TorchCodec.of(of_codec, _widened(tensors, "codec."), device)
    presets = tuple(VoicePreset(v["id"], v["title"], v["description"]) for v in meta["voices"])
    if not presets:
        raise WeightsError("voices is empty; a checkpoint needs at least one preset")
    speakers = {p.id: tensors[f"voices.{p.id}"].astype(np.float32) for p in presets}
    for name, statistics in speakers.items():
        if statistics.shape != (STATISTICS * of_lm.latent,) or not np.isfinite(statistics).all():
            raise WeightsError(f"the statistics of voice {name!r} are damaged")
    return Checkpoint(codec, lm, presets, speakers, languages, digest, codec_digest)


def _language_model(config: LMConfig, tensors: Arrays, device: str) -> LanguageModel:
    if device == "cpu":
        return NumpyLM(config, Weights(tensors, "lm."))
    from voicelab.engine.pointer.step import TorchLM

    return TorchLM.of(config, _widened(tensors, "lm."), device)


def save(
    path: Path,
    codec: torch_codec.Codec,
    lm: torch_lm.LM,
    voices: Mapping[VoicePreset, Any],
    about: Mapping[str, Any],
    languages: tuple[str, ...] = ("en",),
) -> None:
    """Write a checkpoint: matrices of the language model and the encoder as int8 with row scales, other tensors in float16.

    `about` (provenance) and the training `languages` go into its metadata.
    """
    tensors = {f"voices.{preset.id}": np.asarray(v) for preset, v in voices.items()}
    tensors |= _arrays(codec, "codec.") | _arrays(lm, "lm.")
    described = [{"id": p.id, "title": p.title, "description": p.description} for p in voices]
    meta = {"codec": codec.config.to_dict(), "lm": lm.config.to_dict(), "voices": described, "about": dict(about)}
    meta["languages"] = list(languages)
    _write(path, tensors, meta)


def save_small(path: Path, lm: torch_lm.LM, beside: Checkpoint, about: Mapping[str, Any]) -> None:
    """Write a second language model for the codec of `beside` as `s1.safetensors`, with its provenance, `about`."""
    meta = {"lm": lm.config.to_dict(), "codec_digest": beside.codec_digest, "about": dict(about)}
    _write(path, _arrays(lm, "lm."), meta)


def _arrays(module: Any, prefix: str) -> dict[str, NDArray[Any]]:
    return {prefix + name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}


def _write(path: Path, tensors: Arrays, meta: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stored: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_ROUNDED) and tensor.ndim == 2:
            # Scales are rounded to half precision, in which they are stored, before the matrix is divided by them.
            scales = (np.abs(tensor).max(1).clip(1e-3) / 127).astype(np.float16)
            rounded = np.rint(tensor / scales.astype(np.float32)[:, None])
            stored[name], stored[name + ROW_SCALES] = rounded.clip(-127, 127).astype(np.int8), scales
        else:
            stored[name] = np.ascontiguousarray(tensor, np.float16)
    save_file(stored, path, metadata={_METADATA: json.dumps(meta, sort_keys=True)})


def read(path: Path) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Read the metadata of a checkpoint file, and its tensors in float32. Raises the same errors as `load`."""
    with _reading(path):
        meta, tensors, _ = _open(path, {"lm"})
        return meta, _widened(tensors, "")


def load_codec(path: Path) -> torch_codec.Codec:
    """Load the codec of a checkpoint file as a torch module, for training. Raises the same errors as `load`."""
    from voicelab.engine.pointer.codec import TorchCodec

    meta, tensors = read(path)
    return TorchCodec.of(CodecConfig.of(meta["codec"]), tensors, "cpu").module


def load_lm(path: Path) -> torch_lm.LM:
    """Load the language model of a checkpoint file as a torch module, for training. Raises the same errors as `load`."""
    from voicelab.engine.pointer.step import TorchLM

    meta, tensors = read(path)
    return TorchLM.of(LMConfig.of(meta["lm"]), tensors, "cpu").module


def _widened(tensors: Arrays, prefix: str) -> dict[str, Floats]:
    """Return, in float32, the tensors whose names begin with a prefix."""
    names = (name for name in tensors if name.startswith(prefix) and not name.endswith(ROW_SCALES))
    return {name: widened(tensors, name) for name in names}
