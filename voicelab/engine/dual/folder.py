"""A folder of open weights: its models, their terms, the memory they will take, and what its files can be held to.

The terms are shown and accepted once, and named wherever the speech is recorded or served. Sizes and digests are those of the
files as they were published.
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
POSITIONS = 4096
"""Of a row, at most: 3 minutes of references, text and speech."""


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk."""

    folder: Path
    config: DualConfig
    codec: Path

    @property
    def files(self) -> list[Path]:
        """All that the model's codes depend on."""
        folder = self.folder
        weights = model_file(folder)
        return [folder / name for name in (CONFIG, *tokenizer_files(folder), weights.name, *shards_of(weights))]

    @property
    def positions(self) -> int:
        """Of a row."""
        return min(POSITIONS, self.config.slow.positions)


def model_folders(path: Path) -> list[ModelFolder]:
    """The models of a folder: its own, or those of the folders in it; S2-Pro first.

    Raises:
        WeightsError: there is none, or one twice, or a codec is missing.
    """
    with naming(path):
        places = [path] if (path / CONFIG).exists() else sorted(one.parent for one in path.glob(f"*/{CONFIG}"))
    models: dict[Model, ModelFolder] = {}
    for folder in places:
        config = DualConfig.read(folder)
        codec = next((one / CODEC for one in (folder, path) if (one / CODEC).exists()), None)
        if codec is None:
            raise WeightsError(f"the weights {folder.name}: there is no {CODEC}")
        if config.model in models:
            raise WeightsError(f"{models[config.model].folder.name} and {folder.name} are both {config.model}")
        models[config.model] = ModelFolder(folder, config, codec)
    if not models:
        raise WeightsError(f"there is no model in the folder {path}: neither a {CONFIG} nor a folder with one")
    return [models[name] for name in sorted(models, reverse=True)]


ACCEPT_VARIABLE = "VOICELAB_ACCEPT_LICENSE"
"""Ids of licenses, separated by commas, that whoever runs a script has read and accepts; ``1`` is all of them."""


@dataclass(frozen=True)
class License:
    """What binds who uses a model's weights."""

    id: str
    weights: str
    """As their makers call them."""
    name: str
    terms: str
    """What it asks, in short; the full text comes with the weights."""
    notice: str
    """What has to be shown where the weights serve others."""

    @property
    def accepted(self) -> str | None:
        """When or how it was accepted here; None where it was not."""
        listed = {one.strip() for one in os.environ.get(ACCEPT_VARIABLE, "").split(",")}
        if listed & {self.id, "1"}:
            return f"by {ACCEPT_VARIABLE}"
        return _accepted().get(self.id)

    def accept(self) -> None:
        """Writes down, in VOICELAB_HOME, that it was accepted today. Raises StoreError: it cannot be kept."""
        today = datetime.now(UTC).date().isoformat()
        make_folder(_path().parent)
        write_atomic(_path(), json.dumps(_accepted() | {self.id: today}).encode())

    def __str__(self) -> str:
        return f"{self.weights} is under the {self.name}. {self.terms}"


LICENSES: dict[Model, License] = {
    "s2-pro": License(
        id="fish-audio-research",
        weights="S2-Pro",
        name="Fish Audio Research License of 2026-03-07",
        terms="It permits research and non-commercial use. Who offers a product or service that uses the weights passes "
        "the license on, keeps its notice and shows “Built with Fish Audio”. The speech belongs to you; it may not be "
        "used to make or improve another foundational generative model.",
        notice="Built with Fish Audio. This model is licensed under the Fish Audio Research License, "
        "Copyright © 39 AI, INC. All Rights Reserved.",
    ),
    "s1": License(
        id="cc-by-nc-sa-4.0",
        weights="S1-mini",
        name="license CC BY-NC-SA 4.0",
        terms="It permits non-commercial use that names the makers; what is adapted from the weights is shared under "
        "the same license.",
        notice="OpenAudio S1-mini by Fish Audio, CC BY-NC-SA 4.0.",
    ),
}
"""By the interface's name of the model."""


def require_accepted(models: Iterable[Model], folder: Path) -> tuple[str, str]:
    """Sees that the licenses of a folder's models were accepted.

    Returns:
        What was accepted and when, for manifests; and the notices, for those whom the speech is offered to.

    Raises:
        LicenseRequired: one was not; the error states its terms and how to accept them.
    """
    licenses = [LICENSES[model] for model in models]
    if waiting := [one for one in licenses if one.accepted is None]:
        ids = ",".join(one.id for one in waiting)
        raise LicenseRequired(
            f"{' '.join(map(str, waiting))} The full text comes with the weights. To accept it: "
            f"voicelab weights accept {folder}, or in a script the environment variable {ACCEPT_VARIABLE}={ids}"
        )
    accepted = "; ".join(f"{one.name} (accepted {one.accepted})" for one in licenses)
    return accepted, " ".join(one.notice for one in licenses)


def _path() -> Path:
    return data_home() / "licenses.json"


def _accepted() -> dict[str, str]:
    try:
        return dict(json.loads(_path().read_bytes()))
    except (OSError, ValueError, TypeError):  # none yet, or damaged: it is asked for again
        return {}


_GB = 1e9


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that a model needs on its device, before any of it is there."""

    model: str
    """Its name, after the file that says its sizes."""
    rows: int
    positions: int
    weights: int
    codec: int
    """0 where it is there already."""
    slots: int
    """Keys and values of all rows, and of the references that are kept; and those of a frame in the fast transformer."""
    work: int
    """Attention of the largest piece of a prompt, and what it is rotated by; pieces of audio."""

    @classmethod
    def of(cls, folder: ModelFolder, rows: int, codec: CodecSizes | None = None) -> MemoryPlan:
        """The plan for a folder's model, with its codec if that is given. Raises WeightsError: see model_tensors."""
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
        """All of it."""
        return self.weights + self.codec + self.slots + self.work

    def check(self, device: torch.device) -> None:
        """Sees that there is room, where the device says how much it has left.

        Raises:
            EngineError: there is not; the error says what is needed, and what would need less.
        """
        free = free_memory(device)
        if free is not None and self.total > free:
            raise EngineError(f"{self}, and {device} has {free / _GB:.2f} GB left; fewer rows need less: rows=…")

    def __str__(self) -> str:
        return (
            f"{self.model} needs {self.total / _GB:.2f} GB: weights {self.weights / _GB:.2f}, codec {self.codec / _GB:.2f}, "
            f"{self.rows} rows of {self.positions} positions {self.slots / _GB:.2f}, work {self.work / _GB:.2f}"
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that a device has left; None where nobody knows."""
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
    """A file as several public lists have it."""

    bytes: int | None
    """None where the lists have none."""
    sha256: str = ""
    """How its digest begins; "" where the lists have none."""
    disputed: bool = False
    """Whether the lists differ in the digest: another one is then no error."""


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
    """What was seen of one file."""

    path: Path
    verified: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        parts = [*self.verified, *(f"not verified: {what}" for what in self.unverified)]
        return f"{self.path}: " + (f"PROBLEM: {self.problem}" if self.problem else "; ".join(parts))


def check_weights(path: Path) -> Iterator[FileReport]:
    """Compares a folder's files with those published, and their tensors' names and shapes with the configuration.

    Raises:
        WeightsError: there is no model in the folder.
    """
    for folder in model_folders(path):
        for file in dict.fromkeys([*folder.files, folder.codec]):
            yield _file(folder, file)


def _file(folder: ModelFolder, path: Path) -> FileReport:
    published = PUBLISHED[folder.config.model].get(path.name, PublishedFile(None))
    try:
        size = path.stat().st_size
        if published.bytes not in {None, size}:
            return FileReport(path, problem=f"it has {size:,} bytes, {published.bytes:,} were published")
        tensors, digest = list(_tensors(folder, path)), digests([path])[0]
    except (OSError, WeightsError) as error:
        return FileReport(path, problem=str(error))
    verified = [f"{size:,} bytes as published", *tensors] if published.bytes else tensors
    unverified = [] if published.bytes else ["its size, which no list has"]
    if published.sha256 and digest.startswith(published.sha256):
        verified.append(f"SHA-256 {digest}, of which the first {len(published.sha256)} digits are listed")
    elif published.sha256 and not published.disputed:
        return FileReport(path, problem=f"its SHA-256 is {digest}, the published one begins with {published.sha256}")
    else:
        why = "in which the lists differ" if published.disputed else "which no list has"
        unverified.append(f"its SHA-256 {digest}, {why}")
    return FileReport(path, tuple(verified), tuple(unverified))


def _tensors(folder: ModelFolder, path: Path) -> Iterator[str]:
    """What can be said of a file's tensors. Raises WeightsError, which names the tensor at fault."""
    if path == folder.codec:
        yield f"{len(CodecFile.open(path).files.entries)} tensors of the codec's shapes"
    elif path == model_file(folder.folder):
        files = model_tensors(folder.folder, folder.config)
        yield f"{len(files.entries)} tensors of the shapes that config.json gives"
