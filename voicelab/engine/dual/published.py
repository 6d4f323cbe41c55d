"""The open weights as they were published: sizes and digests of files, and what a folder's files can be held to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from voicelab.engine.dual.codec import check_codec
from voicelab.engine.dual.family import ModelFolder, model_folders
from voicelab.engine.dual.files import digests
from voicelab.engine.dual.model import model_file, model_tensors, shapes_of
from voicelab.errors import WeightsError
from voicelab.schema import Model


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
        size, digest = path.stat().st_size, digests([path])[0]
        tensors = list(_tensors(folder, path))
    except (OSError, WeightsError) as error:
        return FileReport(path, problem=str(error))
    if published.bytes not in {None, size}:
        return FileReport(path, problem=f"it has {size:,} bytes, {published.bytes:,} were published")
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
        yield f"{check_codec(path)} tensors of the codec's shapes"
    elif path == model_file(folder.folder):
        files = model_tensors(folder.folder)
        files.check(shapes_of(folder.config))
        yield f"{len(files.entries)} tensors of the shapes that config.json gives"
