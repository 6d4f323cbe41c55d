"""Tensors of open weights on disk, by name: safetensors, alone or in shards with an index, and ``.pth`` files.

The only module that opens a ``.pth``, and only as plain tensors (``weights_only=True``), mapped rather than read. Every
tensor goes from the file to its device by itself, so that a checkpoint is never in memory twice.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import pickletools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from voicelab.errors import WeightsError

INDEX = "model.safetensors.index.json"
_HEADER = 8
"""Bytes of a safetensors file that say how long its header is."""
_LONGEST_HEADER = 100_000_000
_ENTRY, _AFTER_ENTRY = b"PK\x03\x04", b"PK\x07\x08"
"""What stands before and after each file in an archive."""

Rename = Callable[[str], str | None]


@dataclass(frozen=True)
class TensorEntry:
    """One tensor that is still on disk."""

    file: str
    """Name of the file that holds it."""
    name: str
    """Its name there."""
    shape: tuple[int, ...]
    bytes: int
    """There, and wherever it is loaded in the type that it has."""
    load: Callable[[], Tensor]
    """Maps it; nothing is copied, unless it is joined of several."""


@dataclass(frozen=True)
class TensorFiles:
    """The tensors of one model's files."""

    path: Path
    entries: Mapping[str, TensorEntry]
    """By the name that they are asked for."""

    @classmethod
    def open(cls, path: Path) -> TensorFiles:
        """Lists what is in a file (``.safetensors``, ``.pth``) or in all files of an index (``.json``).

        A ``.pth`` may hold its tensors under ``state_dict``.

        Raises:
            WeightsError: a file is missing, truncated or of another kind, or the index and the files differ; the error names
                the tensor where one is at fault.
        """
        with _reading(path):
            if path.suffix == ".json":
                return cls(path, dict(_indexed(path)))
            entries = _safetensors(path) if path.suffix == ".safetensors" else _pth(path)
            return cls(path, {entry.name: entry for entry in entries})

    def renamed(self, rename: Rename) -> TensorFiles:
        """The same tensors under other names; those that get None are left out.

        Raises:
            WeightsError: two would have one name.
        """
        entries: dict[str, TensorEntry] = {}
        for old, entry in self.entries.items():
            new = rename(old)
            if new in entries:
                raise WeightsError(f"the weights {self.path.name}: {old} and {entries[new].name} are both {new}")
            if new is not None:
                entries[new] = entry
        return replace(self, entries=entries)

    def joined(self, parts: Sequence[str], whole: str) -> TensorFiles:
        """The same with tensors whose names end with `parts` as one, with `whole` instead: their rows in that order."""
        entries = dict(self.entries)
        for name in self.entries:
            stem = name.removesuffix(parts[0])
            names = [stem + part for part in parts]
            if stem != name and all(one in entries for one in names):
                pieces = [entries.pop(one) for one in names]
                shape = (sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:])
                size = sum(piece.bytes for piece in pieces)
                entries[stem + whole] = TensorEntry(pieces[0].file, stem + whole, shape, size, partial(_rows, pieces))
        return replace(self, entries=entries)

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Sees to it that there are these tensors, of these shapes, and no others.

        Raises:
            WeightsError: one is missing, is of another shape, or is not among them; the error names it.
        """
        for name, shape in shapes.items():
            if name not in self.entries:
                raise WeightsError(f"the weights {self.path.name}: the tensor {name} is missing")
            if self.entries[name].shape != shape:
                raise WeightsError(
                    f"the weights {self.path.name}: the tensor {name} has the shape {self.entries[name].shape}, not {shape}"
                )
        if surplus := sorted(set(self.entries) - set(shapes)):
            raise WeightsError(f"the weights {self.path.name}: this version does not know the tensor {surplus[0]}")

    def read(self, name: str, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor on its device, by default of the type that it has in the file.

        Raises:
            WeightsError: it is missing, cannot be read, or holds numbers that are not finite; the error names it.
        """
        if name not in self.entries:
            raise WeightsError(f"the weights {self.path.name}: the tensor {name} is missing")
        entry = self.entries[name]
        with _reading(self.path.with_name(entry.file), name):
            tensor = entry.load().to(device=device, dtype=dtype)
            # Neither needs memory of the tensor's size; both ends are nan where any number is.
            if (
                tensor.is_floating_point()
                and tensor.numel()
                and not torch.isfinite(torch.stack(tensor.aminmax())).all()
            ):
                raise WeightsError("it holds numbers that are not finite")
        return tensor


def _rows(pieces: Sequence[TensorEntry]) -> Tensor:
    return torch.cat([piece.load() for piece in pieces])


def shards_of(path: Path) -> list[str]:
    """The names of the files that an index names; none for another file. Raises WeightsError: it is no index."""
    with _reading(path):
        return sorted(set(_places(path).values())) if path.suffix == ".json" else []


def digests(paths: list[Path]) -> tuple[str, ...]:
    """The SHA-256 of each file, in hexadecimal digits; large files are read side by side.

    Raises:
        WeightsError: a file cannot be read.
    """
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(_digest, paths))


def _digest(path: Path) -> str:
    with _reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _reading(path: Path, tensor: str = "") -> Iterator[None]:
    """Every error becomes a WeightsError that names the file, and the tensor if it is of one."""
    what = f"the weights {path.name}: " + (f"the tensor {tensor}: " if tensor else "")
    try:
        yield
    except WeightsError as error:
        raise error if str(error).startswith("the weights ") else WeightsError(f"{what}{error}") from error
    except torch.OutOfMemoryError as error:
        raise WeightsError(f"{what}there is no memory for it") from error
    except (OSError, SafetensorError, EOFError) as error:
        raise WeightsError(f"{what}cannot be read: {error}") from error
    except Exception as error:  # torch raises errors of its unpickler's own kinds
        raise WeightsError(f"{what}they are damaged, or of another kind: {error!r}") from error


def _places(path: Path) -> Mapping[str, str]:
    places: Mapping[str, str] = json.loads(path.read_bytes())["weight_map"]
    for file in places.values():
        if Path(file).name != file:
            raise WeightsError(f"the index names {file!r}, which is no file beside it")
    return places


def _indexed(path: Path) -> Iterator[tuple[str, TensorEntry]]:
    places = _places(path)
    files: dict[str, dict[str, TensorEntry]] = {}
    for file in sorted(set(places.values())):
        files[file] = {entry.name: entry for entry in _safetensors(path.with_name(file))}
    for name, file in places.items():
        if name not in files[file]:
            raise WeightsError(f"the tensor {name} is missing in {file}, where the index has it")
        yield name, files[file].pop(name)
    for file, rest in files.items():
        for name in rest:
            raise WeightsError(f"the tensor {name} of {file} is not in the index")


def _safetensors(path: Path) -> Iterator[TensorEntry]:
    """The library says of a truncated file only that it is one; its header says which tensor is cut."""
    size = path.stat().st_size
    with path.open("rb") as opened:
        length = int.from_bytes(opened.read(_HEADER), "little")
        if not 2 <= length <= min(size - _HEADER, _LONGEST_HEADER):
            raise WeightsError(f"the weights {path.name}: the file is cut off in its header, or is no safetensors file")
        header: dict[str, Any] = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    for name, about in header.items():
        if _HEADER + length + about["data_offsets"][1] > size:
            raise WeightsError(f"the weights {path.name}: the tensor {name}: the file is cut off before its end")
    file = safe_open(path, framework="pt")
    for name, about in header.items():
        begin, end = about["data_offsets"]
        yield TensorEntry(path.name, name, tuple(about["shape"]), end - begin, partial(file.get_tensor, name))


def _pth(path: Path) -> Iterator[TensorEntry]:
    with path.open("rb") as opened:
        if not is_zipfile(opened):  # a cut file has lost the list of its contents, which stands at the end
            if name := _cut_tensor(path):
                raise WeightsError(f"the weights {path.name}: the tensor {name}: the file is cut off before its end")
            raise WeightsError("the file is cut off, or of another kind than torch.save writes today")
    stored = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    tensors = stored.get("state_dict", stored) if isinstance(stored, Mapping) else stored
    if not isinstance(tensors, Mapping):
        raise WeightsError("there are no named tensors in it")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise WeightsError(f"{name} is no tensor")
        yield TensorEntry(path.name, name, tuple(tensor.shape), tensor.nbytes, tensor.detach)


def _cut_tensor(path: Path) -> str:
    """The tensor in which a ``.pth`` was cut off: that of the last data which begin in it. "" where nothing tells it.

    The pickle, which stands first, is looked at as a list of words, never run.
    """
    names, words, memo, word = dict[str, str](), list[object](), dict[int, object](), None
    try:
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = len(data)
            while (at := data.rfind(_ENTRY, 0, at)) >= 0:
                size = int.from_bytes(data[at + 26 : at + 28], "little")
                if key := re.fullmatch(rb"[^/]+/data/(\d+)", data[at + 30 : at + 30 + size]):
                    break
            else:
                return ""
            begin = 30 + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
            for code, argument, _ in pickletools.genops(data[begin : data.find(_AFTER_ENTRY)]):
                if code.name in {"BINPUT", "LONG_BINPUT"}:
                    memo[int(argument or 0)] = word
                elif code.name == "BINPERSID":  # of: its name, how it is made, and (storage, type, key, device, size)
                    names[str(words[-3])] = str(words[-7])
                elif argument is not None:
                    word = memo[int(argument)] if code.name in {"BINGET", "LONG_BINGET"} else argument
                    words.append(word)
    except (OSError, ValueError, KeyError, IndexError):
        return ""
    return names.get(key[1].decode(), "")
