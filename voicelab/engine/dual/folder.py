"""A folder of open weights: its models, their licenses, their memory needs, and verification of its files.

Licenses are shown and accepted once, and named wherever the speech is recorded or served. Sizes and digests are those of the
published files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from voicelab.engine.dual.codec import CodecFile, CodecSizes
from voicelab.engine.dual.config import CONFIG, DualConfig
from voicelab.engine.dual.files import digests, naming, shards_of
from voicelab.engine.dual.model import model_file, model_tensors
from voicelab.engine.dual.prompt import tokenizer_files
from voicelab.engine.dual.runner import PREFILL
from voicelab.engine.dual.tower import bytes_of
from voicelab.errors import EngineError, LicenseRequired, WeightsError
from voicelab.schema import Model
from voicelab.storage import data_home, make_folder, write_atomic

CODEC = "codec.pth"
MAX_POSITIONS = 4096
"""Maximum positions of a row, which hold 3 minutes of references, text and speech."""


@dataclass(frozen=True)
class ModelFolder:
    """Folder of a model, with its configuration and the path of its codec."""

    folder: Path
    config: DualConfig
    codec: Path

    @property
    def files(self) -> list[Path]:
        """Files that affect the codes that the model generates."""
        folder = self.folder
        weights = model_file(folder)
        return [folder / name for name in (CONFIG, *tokenizer_files(folder), weights.name, *shards_of(weights))]

    @property
    def positions(self) -> int:
        """Maximum number of positions (tokens and frames) of a sequence."""
        return min(MAX_POSITIONS, self.config.slow.positions)


def model_folders(path: Path) -> list[ModelFolder]:
    """Find the models in a folder and its subfolders; S2-Pro comes first.

    Raises:
        WeightsError: a model or codec is missing, or a model is present twice.
    """
    with naming(path):
        folders = [path] if (path / CONFIG).exists() else sorted(folder.parent for folder in path.glob(f"*/{CONFIG}"))
    models: dict[Model, ModelFolder] = {}
    for folder in folders:
        config = DualConfig.read(folder)
        codec = next((parent / CODEC for parent in (folder, path) if (parent / CODEC).exists()), None)
        if codec is None:
            raise WeightsError(f"the weights {folder.name}: there is no {CODEC}")
        if config.model in models:
            raise WeightsError(f"{models[config.model].folder.name} and {folder.name} both contain {config.model}")
        models[config.model] = ModelFolder(folder, config, codec)
    if not models:
        raise WeightsError(f"no model in the folder {path}: neither a {CONFIG} nor a subfolder with one")
    return [models[name] for name in sorted(models, reverse=True)]


ACCEPT_VARIABLE = "VOICELAB_ACCEPT_LICENSE"
"""Comma-separated ids of licenses that the user of a script has read and accepts; ``1`` accepts all."""


@dataclass(frozen=True)
class License:
    """License of a model's weights."""

    id: str
    weights: str
    """Name of the weights."""
    name: str
    terms: str
    """Summary of the terms; the full text comes with the weights."""
    notice: str
    """Attribution required where the weights are served to others."""

    @property
    def accepted(self) -> str | None:
        """Date or means of acceptance; None if not accepted."""
        listed = {license_id.strip() for license_id in os.environ.get(ACCEPT_VARIABLE, "").split(",")}
        if listed & {self.id, "1"}:
            return f"by {ACCEPT_VARIABLE}"
        return _acceptances().get(self.id)

    def accept(self) -> None:
        """Record in VOICELAB_HOME that the license was accepted today. Raises StoreError if the file cannot be written."""
        today = datetime.now(UTC).date().isoformat()
        make_folder(_acceptance_file().parent)
        write_atomic(_acceptance_file(), json.dumps(_acceptances() | {self.id: today}).encode())

    def __str__(self) -> str:
        return f"{self.weights} is under the {self.name}. {self.terms}"


LICENSES: dict[Model, License] = {
    "s2-pro": License(
        id="fish-audio-research",
        weights="S2-Pro",
        name="Fish Audio Research License of 2026-03-07",
        terms="It permits research and non-commercial use. Products and services that use the weights must pass the "
        "license on, keep its notice and show “Built with Fish Audio”. The speech belongs to you; it may not be "
        "used to make or improve another foundational generative model.",
        notice="Built with Fish Audio. This model is licensed under the Fish Audio Research License, "
        "Copyright © 39 AI, INC. All Rights Reserved.",
    ),
    "s1": License(
        id="cc-by-nc-sa-4.0",
        weights="S1-mini",
        name="license CC BY-NC-SA 4.0",
        terms="It permits non-commercial use with attribution; adaptations of the weights must be shared under the same "
        "license.",
        notice="OpenAudio S1-mini by Fish Audio, CC BY-NC-SA 4.0.",
    ),
}
"""Licenses by the model's name in the API."""


def require_accepted(models: Iterable[Model], folder: Path) -> tuple[str, str]:
    """Check that the licenses of a folder's models were accepted.

    Returns:
        The accepted licenses with dates, for manifests, and the notices to display to users of the speech.

    Raises:
        LicenseRequired: a license was not accepted; the error states its terms and how to accept it.
    """
    licenses = [LICENSES[model] for model in models]
    if unaccepted := [terms for terms in licenses if terms.accepted is None]:
        ids = ",".join(terms.id for terms in unaccepted)
        raise LicenseRequired(
            f"{' '.join(map(str, unaccepted))} The full text comes with the weights. To accept it: "
            f"voicelab weights accept {folder}, or in a script the environment variable {ACCEPT_VARIABLE}={ids}"
        )
    accepted = "; ".join(f"{terms.name} (accepted {terms.accepted})" for terms in licenses)
    return accepted, " ".join(terms.notice for terms in licenses)


def _acceptance_file() -> Path:
    return data_home() / "licenses.json"


def _acceptances() -> dict[str, str]:
    try:
        return dict(json.loads(_acceptance_file().read_bytes()))
    except (OSError, ValueError, TypeError):  # missing or damaged: acceptance is requested again
        return {}


_GB = 1e9


@dataclass(frozen=True)
class MemoryPlan:
    """Memory needed by a model on its device, in bytes, estimated before loading."""

    model: str
    """Name of the model, with the file that defines its sizes."""
    rows: int
    positions: int
    weights: int
    codec: int
    """Bytes of the codec; 0 if it is already loaded."""
    slots: int
    """Bytes of the keys and values of all rows, of cached references, and of a frame in the fast transformer."""
    work: int
    """Bytes for attention in the largest prefill chunk, rotary tables, and audio blocks."""

    @classmethod
    def of(cls, folder: ModelFolder, rows: int, codec: CodecSizes | None = None) -> MemoryPlan:
        """Estimate the memory of a folder's model, including its codec if given. Raises WeightsError."""
        config, positions = folder.config, folder.positions
        tensors = model_tensors(folder.folder, config).entries
        width = tensors["norm.weight"].bytes // config.slow.width
        fast = bytes_of(config.fast, config.codebooks, width)
        attention = config.slow.heads * PREFILL * positions * (3 * 4 + width) + positions * config.slow.head_width * 2
        return cls(
            model=f"the weights {folder.folder.name}/{CONFIG}: {config.model}",
            rows=rows,
            positions=positions,
            weights=sum(tensor.bytes for tensor in tensors.values()),
            codec=folder.codec.stat().st_size if codec else 0,
            slots=(rows + 1) * bytes_of(config.slow, positions, width) + rows * fast,
            work=attention + (codec.work if codec else 0),
        )

    @property
    def total(self) -> int:
        """Total bytes."""
        return self.weights + self.codec + self.slots + self.work

    def check(self, device: torch.device) -> None:
        """Compare the estimate with the device's free memory, if that is known.

        Raises:
            EngineError: the memory does not suffice; the error states the estimate and how to reduce it.
        """
        free = free_memory(device)
        if free is not None and self.total > free:
            raise EngineError(f"{self}, but {device} has {free / _GB:.2f} GB free; use fewer rows: rows=…")

    def __str__(self) -> str:
        return (
            f"{self.model} needs {self.total / _GB:.2f} GB: weights {self.weights / _GB:.2f}, codec {self.codec / _GB:.2f}, "
            f"{self.rows} rows of {self.positions} positions {self.slots / _GB:.2f}, work {self.work / _GB:.2f}"
        )


def free_memory(device: torch.device) -> int | None:
    """Return a device's free memory in bytes; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    memory = Path("/proc/meminfo")
    if device.type != "cpu" or not memory.exists():
        return None
    available = re.search(r"MemAvailable: *(\d+)", memory.read_text(encoding="utf-8"))
    return int(available[1]) * 1024 if available else None


@dataclass(frozen=True)
class PublishedFile:
    """Size and digest of a published file; the values come from several public lists."""

    bytes: int | None
    """None if not listed."""
    sha256: str = ""
    """Leading digits of its digest; "" if not listed."""
    disputed: bool = False
    """Whether the lists disagree on the digest, so that a mismatch is not an error."""


_SHARED_CODEC = 1_871_099_728, "74fc41c5"
PUBLISHED: dict[Model, dict[str, PublishedFile]] = {
    "s2-pro": {
        "model-00001-of-00002.safetensors": PublishedFile(4_986_872_984),
        "model-00002-of-00002.safetensors": PublishedFile(4_136_876_104),
        "codec.pth": PublishedFile(*_SHARED_CODEC, disputed=True),
    },
    "s1": {
        "config.json": PublishedFile(844, "0e46c32f"),
        "model.pth": PublishedFile(1_735_122_974, "9e59be7d"),
        "tokenizer.tiktoken": PublishedFile(2_561_218, "b2b1b8df"),
        "special_tokens.json": PublishedFile(126_275, "efc4b254"),
        "codec.pth": PublishedFile(*_SHARED_CODEC),
    },
}


@dataclass(frozen=True)
class FileReport:
    """Verification result of one file."""

    path: Path
    verified: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        items = [*self.verified, *(f"not verified: {item}" for item in self.unverified)]
        return f"{self.path}: " + (f"PROBLEM: {self.problem}" if self.problem else "; ".join(items))


def check_weights(path: Path) -> Iterator[FileReport]:
    """Compare a folder's files with the published ones, and their tensors' names and shapes with the configuration.

    Raises:
        WeightsError: the folder has no model.
    """
    for folder in model_folders(path):
        for file in dict.fromkeys([*folder.files, folder.codec]):
            yield _check_file(folder, file)


def _check_file(folder: ModelFolder, path: Path) -> FileReport:
    published = PUBLISHED[folder.config.model].get(path.name, PublishedFile(None))
    try:
        size = path.stat().st_size
        if published.bytes not in {None, size}:
            return FileReport(path, problem=f"it must have {published.bytes:,} bytes as published, got {size:,}")
        tensors, digest = list(_check_tensors(folder, path)), digests([path])[0]
    except (OSError, WeightsError) as error:
        return FileReport(path, problem=str(error))
    verified = [f"{size:,} bytes as published", *tensors] if published.bytes else tensors
    unverified = [] if published.bytes else ["its size, which is not listed"]
    if published.sha256 and digest.startswith(published.sha256):
        verified.append(f"SHA-256 {digest}, of which the first {len(published.sha256)} digits are listed")
    elif published.sha256 and not published.disputed:
        return FileReport(path, problem=f"its SHA-256 must begin with {published.sha256} as published, got {digest}")
    else:
        reason = "in which the lists differ" if published.disputed else "which is not listed"
        unverified.append(f"its SHA-256 {digest}, {reason}")
    return FileReport(path, tuple(verified), tuple(unverified))


def _check_tensors(folder: ModelFolder, path: Path) -> Iterator[str]:
    """Describe the verified tensors of a file. Raises WeightsError, which names the tensor concerned."""
    if path == folder.codec:
        yield f"{len(CodecFile.open(path).files.entries)} tensors of the codec's shapes"
    elif path == model_file(folder.folder):
        files = model_tensors(folder.folder, folder.config)
        yield f"{len(files.entries)} tensors of the shapes that config.json gives"
