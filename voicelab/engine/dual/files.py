"""Tensors of open weights on disk, by name, in safetensors files (one, or shards with an index) and ``.pth`` files.

This is the only module that opens a ``.pth`` file. It memory-maps the file and reads only plain tensors
(``weights_only=True``). Tensors are loaded from the file to the device one by one, so that a checkpoint is never in memory
twice.

Files are untrusted: only regular files are opened, reads are bounded, JSON is validated against a schema, and every error is
a WeightsError that names the file.
"""

from __future__ import annotations

import hashlib
import mmap
import pickletools
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import torch
from pydantic import BaseModel, Field, NonNegativeInt, TypeAdapter, ValidationError
from pydantic_core import from_json
from safetensors import SafetensorError, safe_open
from torch import Tensor

from voicelab.errors import WeightsError

INDEX = "model.safetensors.index.json"
_HEADER = 8
"""Number of bytes at the start of a safetensors file that hold the length of its header."""
MAX_FILE_BYTES, _MAX_JSON, _MAX_MESSAGE = 32_000_000, 1_000_000, 400
"""Maximum bytes of a file without tensors, and of JSON and other non-tensor data; maximum length of a message."""
_BUILDERS = {"collections", "torch", "torch._utils", "torch.storage"}
"""Modules that a pickle of plain tensors may name."""
_FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_ENTRY, _AFTER_ENTRY = b"PK\x03\x04", b"PK\x07\x08"
"""Markers before and after each file in an archive."""
_SEARCH_BYTES = 1 << 28
"""Bytes from the end of a truncated archive that are searched for the beginning of its last tensor."""

Rename = Callable[[str], str | None]
Parsed = TypeVar("Parsed")


class _Header(BaseModel):
    """Header of a tensor in a safetensors file."""

    dtype: str
    shape: Annotated[tuple[NonNegativeInt, ...], Field(max_length=8)]
    data_offsets: tuple[NonNegativeInt, NonNegativeInt]


class _Index(BaseModel):
    """An index of shards: file name by tensor name; the files are in the folder of the index."""

    weight_map: Annotated[dict[str, Annotated[str, Field(pattern=r"^[^/\\]+\.safetensors$")]], Field(min_length=1)]


_HEADERS, _INDEX = TypeAdapter(dict[str, _Header]), TypeAdapter(_Index)


@dataclass(frozen=True)
class TensorEntry:
    """A tensor on disk."""

    file: str
    """Name of the tensor's file."""
    name: str
    """Name of the tensor in the file."""
    shape: tuple[int, ...]
    dtype: str
    """Name of its type in torch, or in the file if torch has no such type."""
    bytes: int
    """Size in bytes, in the file and when loaded in its stored type."""
    load: Callable[[], Tensor]
    """Maps the tensor into memory without copying."""


@dataclass(frozen=True)
class TensorFiles:
    """The tensors of one model's files, by name."""

    path: Path
    entries: Mapping[str, TensorEntry]
    """Tensors by the name that `read` takes."""

    @classmethod
    def open(cls, path: Path) -> TensorFiles:
        """List the tensors of a file (``.safetensors``, ``.pth``) or of all files of an index (``.json``).

        A ``.pth`` may hold its tensors under ``state_dict``.

        Raises:
            WeightsError: a file is missing, truncated or of another kind, or the index and the files differ; the error names
                the tensor concerned.
        """
        with naming(path):
            if path.suffix == ".json":
                return cls(path, dict(_indexed(path)))
            entries = _safetensors(path) if path.suffix == ".safetensors" else _pth(path)
            return cls(path, {entry.name: entry for entry in entries})

    def renamed(self, rename: Rename) -> TensorFiles:
        """Return a copy with renamed tensors, without those that `rename` maps to None.

        Raises:
            WeightsError: two tensors get the same name.
        """
        entries: dict[str, TensorEntry] = {}
        for old, entry in self.entries.items():
            new = rename(old)
            if new in entries:
                raise WeightsError(
                    f"the weights {self.path.name}: the tensors {old} and {entries[new].name} have the same name {new}"
                )
            if new is not None:
                entries[new] = entry
        return replace(self, entries=entries)

    def check(self, shapes: Mapping[str, tuple[int, ...]], *, one_type: bool = False) -> None:
        """Check the names, shapes and types of the tensors. All must be floating-point and, with `one_type`, of one type.

        Raises:
            WeightsError: a tensor is missing, unknown, or of another shape or type; the error names it.
        """
        with naming(self.path):
            for name, shape in shapes.items():
                if name not in self.entries:
                    raise WeightsError(f"the tensor {name} is missing")
                entry, ref = self.entries[name], self.entries[next(iter(shapes))]
                if entry.shape != shape:
                    raise WeightsError(f"the tensor {name} must have the shape {shape}, got {entry.shape}")
                types = (ref.dtype,) if one_type and ref.dtype in _FLOATS.values() else tuple(_FLOATS.values())
                if entry.dtype not in types:
                    raise WeightsError(f"the tensor {name} must be of type {' or '.join(types)}, got {entry.dtype}")
            if surplus := sorted(set(self.entries) - set(shapes)):
                raise WeightsError(f"unknown tensor {surplus[0]}")

    def read(self, name: str, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """Load a tensor onto a device, by default in its stored type.

        Raises:
            WeightsError: the tensor cannot be read, or has values that are not finite; the error names it.
        """
        entry = self.entries[name]
        with naming(self.path.with_name(entry.file), name):
            tensor = entry.load().to(device=device, dtype=dtype)
            # aminmax allocates no memory of the tensor's size, and returns nan if any value is nan.
            ends = tensor.aminmax() if tensor.is_floating_point() and tensor.numel() else ()
            if not all(map(torch.isfinite, ends)):
                raise WeightsError("it has values that are not finite")
        return tensor


def shards_of(path: Path) -> list[str]:
    """List the files named by an index; return [] for any other file. Raises WeightsError if the index is invalid."""
    return sorted(set(read_json(path, _INDEX).weight_map.values())) if path.suffix == ".json" else []


def digests(paths: list[Path]) -> tuple[str, ...]:
    """Compute the SHA-256 of each file, in hexadecimal; files are read concurrently.

    Raises:
        WeightsError: a file cannot be read.
    """
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(_digest, paths))


def _digest(path: Path) -> str:
    if path.suffix not in {".safetensors", ".pth"}:
        return hashlib.sha256(read_bytes(path, MAX_FILE_BYTES)).hexdigest()
    with naming(path), regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def naming(path: Path, tensor: str = "") -> Iterator[None]:
    """Convert errors to a WeightsError that names the file and its folder, and the tensor if given."""
    location = f"the weights {path.parent.name}/{path.name}: " + (f"the tensor {tensor}: " if tensor else "")
    try:
        yield
    except WeightsError as error:
        message = str(error)[:_MAX_MESSAGE]
        raise error if message.startswith("the weights ") else WeightsError(location + message) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise WeightsError(f"{location}not enough memory") from error
    except ValidationError as error:
        raise WeightsError(f"{location}{first_error(error)}") from error
    except (OSError, SafetensorError, EOFError) as error:
        raise WeightsError(f"{location}cannot be read: {error}"[:_MAX_MESSAGE]) from error
    except BaseException as error:  # libraries raise their own types; a panic in Rust is not an Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # The library's message is omitted, because torch's message for a refused pickle explains how to run it.
        raise WeightsError(f"{location}it is damaged, or of another kind ({type(error).__name__})") from error


def first_error(error: ValidationError) -> str:
    """Format the first validation error: field and reason."""
    details = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, details['loc'])) or 'JSON'}: {details['msg']}"[:_MAX_MESSAGE]


def regular(path: Path) -> Path:
    """Return the path of a regular file. Raises WeightsError for others: reading a pipe or a device might never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise WeightsError("it is not a regular file")
    return path


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Read a small file. Raises WeightsError if it cannot be read, or has more than `max_bytes` bytes."""
    with naming(path), regular(path).open("rb") as file:
        data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise WeightsError(f"it has more than {max_bytes:,} bytes")
        return data


def read_json(path: Path, parser: TypeAdapter[Parsed]) -> Parsed:
    """Parse and validate a JSON file. Raises WeightsError if it cannot be read, or is invalid."""
    with naming(path):
        return parser.validate_json(read_bytes(path, _MAX_JSON))


def _indexed(path: Path) -> Iterator[tuple[str, TensorEntry]]:
    weight_map = read_json(path, _INDEX).weight_map
    files: dict[str, dict[str, TensorEntry]] = {}
    for file in sorted(set(weight_map.values())):
        with naming(path.with_name(file)):
            files[file] = {entry.name: entry for entry in _safetensors(path.with_name(file))}
    for name, file in weight_map.items():
        if name not in files[file]:
            raise WeightsError(f"the tensor {name} is missing in {file}, where the index lists it")
        yield name, files[file].pop(name)
    for file, unlisted in files.items():
        for name in unlisted:
            raise WeightsError(f"the tensor {name} of {file} is not in the index")


def _safetensors(path: Path) -> Iterator[TensorEntry]:
    """List the tensors of a safetensors file. If it is truncated, the error names the tensor, unlike the library's."""
    size = regular(path).stat().st_size
    with path.open("rb") as opened:
        length = int.from_bytes(opened.read(_HEADER), "little")
        if not 2 <= length <= min(size - _HEADER, _MAX_JSON):
            raise WeightsError("the file is truncated in its header, or is not a safetensors file")
        header = from_json(opened.read(length))
    header.pop("__metadata__", None)
    headers = _HEADERS.validate_python(header)
    for name, about in headers.items():
        if _HEADER + length + about.data_offsets[1] > size:
            raise WeightsError(f"the tensor {name}: the file is truncated")
    file = safe_open(path, framework="pt")
    for name, about in headers.items():
        (begin, end), dtype = about.data_offsets, _FLOATS.get(about.dtype, about.dtype)
        yield TensorEntry(path.name, name, about.shape, dtype, end - begin, partial(file.get_tensor, name))


def _pth(path: Path) -> Iterator[TensorEntry]:
    with regular(path).open("rb") as opened:
        if not is_zipfile(opened):  # a truncated file has lost its directory, which is at the end
            if name := _cut_tensor(path):
                raise WeightsError(f"the tensor {name}: the file is truncated")
            raise WeightsError("the file is truncated, or was not written by torch.save (zip format)")
    _check_archive(path)
    stored = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    tensors = stored.get("state_dict", stored) if isinstance(stored, Mapping) else stored
    if not isinstance(tensors, Mapping):
        raise WeightsError("it has no named tensors")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise WeightsError(f"{name!r} is not a named tensor")
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_nested
        if not plain or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise WeightsError(f"the tensor {name} is not stored as plain numbers")
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield TensorEntry(path.name, name, tuple(tensor.shape), dtype, tensor.nbytes, tensor.detach)


def _check_archive(path: Path) -> None:
    """Check that an archive is uncompressed and nearly all its data are tensors, and that its pickle builds only tensors."""
    with ZipFile(path) as archive:
        members, size = archive.infolist(), path.stat().st_size
        other_bytes = sum(item.file_size for item in members if "/data/" not in item.filename)
        spare = size - sum(item.file_size for item in members)
        if (
            any(item.compress_type != ZIP_STORED for item in members)
            or other_bytes > _MAX_JSON
            or not 0 <= spare <= _MAX_JSON
        ):
            raise WeightsError("it was not written by torch.save (zip format)")
        (pickled,) = (item for item in members if item.filename.endswith("data.pkl"))
        # Checked here, because torch accepts some globals that exhaust memory.
        for code, argument, _ in pickletools.genops(archive.read(pickled)):
            if "GLOBAL" in code.name and str(argument).split(" ")[0] not in _BUILDERS:
                raise WeightsError(f"it contains more than plain tensors ({argument}); no code in it was run")


def _cut_tensor(path: Path) -> str:
    """Return the name of the tensor at which a ``.pth`` file was truncated, the one whose data begin last; "" if unknown."""
    # The pickle at the start is disassembled, never run.
    names, words, memo, word = dict[str, str](), list[object](), dict[int, object](), None
    try:
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = len(data)
            while (at := data.rfind(_ENTRY, max(0, len(data) - _SEARCH_BYTES), at)) >= 0:
                size = int.from_bytes(data[at + 26 : at + 28], "little")
                if key := re.fullmatch(rb"[^/]+/data/(\d+)", data[at + 30 : at + 30 + size]):
                    break
            else:
                return ""
            begin = 30 + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
            for code, argument, _ in pickletools.genops(data[begin : data.find(_AFTER_ENTRY)]):
                if code.name in {"BINPUT", "LONG_BINPUT"}:
                    memo[int(argument or 0)] = word
                elif code.name == "BINPERSID":  # preceded by name, function, and (storage, type, key, device, size)
                    names[str(words[-3])] = str(words[-7])
                elif argument is not None:
                    word = memo[int(argument)] if code.name in {"BINGET", "LONG_BINGET"} else argument
                    words.append(word)
    except (OSError, ValueError, KeyError, IndexError):
        return ""
    return names.get(key[1].decode(), "")
