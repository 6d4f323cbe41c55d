"""Tensors of open weights on disk, by name: safetensors, alone or in shards with an index, and ``.pth`` files.

The only module that opens a ``.pth``, and only as plain tensors (``weights_only=True``), mapped rather than read. Every
tensor goes from the file to its device by itself, so that a checkpoint is never in memory twice.

A file may hold anything: only regular ones are opened, what is read whole has a bound, JSON is held to a form, and every
error is a WeightsError that names the file.
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
"""Bytes of a safetensors file that say how long its header is."""
LONGEST, _LONGEST, _LONGEST_MESSAGE = 32_000_000, 1_000_000, 400
"""Bytes of any file without tensors; of JSON, and of what is beside tensors in a file. The published have a third at most."""
_BUILDERS = {"collections", "torch", "torch._utils", "torch.storage"}
"""Modules that a pickle of plain tensors names."""
_FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_ENTRY, _AFTER_ENTRY = b"PK\x03\x04", b"PK\x07\x08"
"""What stands before and after each file in an archive."""
_FAR = 1 << 28
"""Bytes from the end of an archive that is cut off, in which the beginning of its last tensor is looked for."""

Rename = Callable[[str], str | None]
Form = TypeVar("Form")


class _Header(BaseModel):
    """A tensor, as a safetensors file describes it."""

    dtype: str
    shape: Annotated[tuple[NonNegativeInt, ...], Field(max_length=8)]
    data_offsets: tuple[NonNegativeInt, NonNegativeInt]


class _Index(BaseModel):
    """The file of each tensor, beside the index."""

    weight_map: Annotated[dict[str, Annotated[str, Field(pattern=r"^[^/\\]+\.safetensors$")]], Field(min_length=1)]


_HEADERS, _INDEX = TypeAdapter(dict[str, _Header]), TypeAdapter(_Index)


@dataclass(frozen=True)
class TensorEntry:
    """One tensor that is still on disk."""

    file: str
    """Name of the file that holds it."""
    name: str
    """Its name there."""
    shape: tuple[int, ...]
    dtype: str
    """As torch names it, or the file what torch does not."""
    bytes: int
    """There, and wherever it is loaded in the type that it has."""
    load: Callable[[], Tensor]
    """Maps it; nothing is copied."""


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
        with naming(path):
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

    def check(self, shapes: Mapping[str, tuple[int, ...]], *, one_type: bool = False) -> None:
        """Sees to it that there are these tensors, of these shapes, and no others; all of floats, or of one type of them.

        Raises:
            WeightsError: one is missing, is of another shape or type, or is not among them; the error names it.
        """
        with naming(self.path):
            for name, shape in shapes.items():
                if name not in self.entries:
                    raise WeightsError(f"the tensor {name} is missing")
                entry, first = self.entries[name], self.entries[next(iter(shapes))]
                if entry.shape != shape:
                    raise WeightsError(f"the tensor {name} has the shape {entry.shape}, not {shape}")
                types = (first.dtype,) if one_type and first.dtype in _FLOATS.values() else tuple(_FLOATS.values())
                if entry.dtype not in types:
                    raise WeightsError(f"the tensor {name} is of the type {entry.dtype}, not {' or '.join(types)}")
            if surplus := sorted(set(self.entries) - set(shapes)):
                raise WeightsError(f"this version does not know the tensor {surplus[0]}")

    def read(self, name: str, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor on its device, by default of the type that it has in the file.

        Raises:
            WeightsError: it cannot be read, or holds numbers that are not finite; the error names it.
        """
        entry = self.entries[name]
        with naming(self.path.with_name(entry.file), name):
            tensor = entry.load().to(device=device, dtype=dtype)
            # Neither needs memory of the tensor's size; both ends are nan where any number is.
            ends = tensor.aminmax() if tensor.is_floating_point() and tensor.numel() else ()
            if not all(map(torch.isfinite, ends)):
                raise WeightsError("it holds numbers that are not finite")
        return tensor


def shards_of(path: Path) -> list[str]:
    """The names of the files that an index names; none for another file. Raises WeightsError: it is no index."""
    return sorted(set(read_json(path, _INDEX).weight_map.values())) if path.suffix == ".json" else []


def digests(paths: list[Path]) -> tuple[str, ...]:
    """The SHA-256 of each file, in hexadecimal digits; large files are read side by side.

    Raises:
        WeightsError: a file cannot be read.
    """
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(_digest, paths))


def _digest(path: Path) -> str:
    if path.suffix not in {".safetensors", ".pth"}:
        return hashlib.sha256(read_bytes(path, LONGEST)).hexdigest()
    with naming(path), regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def naming(path: Path, tensor: str = "") -> Iterator[None]:
    """Every error becomes a WeightsError that names the file and its folder, and the tensor if it is of one."""
    what = f"the weights {path.parent.name}/{path.name}: " + (f"the tensor {tensor}: " if tensor else "")
    try:
        yield
    except WeightsError as error:
        message = str(error)[:_LONGEST_MESSAGE]
        raise error if message.startswith("the weights ") else WeightsError(what + message) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise WeightsError(f"{what}there is no memory for it") from error
    except ValidationError as error:
        raise WeightsError(f"{what}{first_error(error)}") from error
    except (OSError, SafetensorError, EOFError) as error:
        raise WeightsError(f"{what}cannot be read: {error}"[:_LONGEST_MESSAGE]) from error
    except BaseException as error:  # libraries raise errors of their own kinds; what panics in Rust is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # Not in their words: torch's of a refused pickle end with how to run it nevertheless.
        raise WeightsError(f"{what}it is damaged, or of another kind ({type(error).__name__})") from error


def first_error(error: ValidationError) -> str:
    """Which field is wrong first, and why."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['msg']}"[:_LONGEST_MESSAGE]


def regular(path: Path) -> Path:
    """The path. Raises WeightsError: it is of no regular file, but of a pipe, which waits, or a device, which has no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise WeightsError("it is no regular file")
    return path


def read_bytes(path: Path, longest: int) -> bytes:
    """All of a small file. Raises WeightsError: it cannot be read, or has more than `longest` bytes."""
    with naming(path), regular(path).open("rb") as file:
        data = file.read(longest + 1)
        if len(data) > longest:
            raise WeightsError(f"it has more than {longest:,} bytes")
        return data


def read_json(path: Path, form: TypeAdapter[Form]) -> Form:
    """What a JSON file says, held to a form. Raises WeightsError: it cannot be read, or has another form."""
    with naming(path):
        return form.validate_json(read_bytes(path, _LONGEST))


def _indexed(path: Path) -> Iterator[tuple[str, TensorEntry]]:
    places = read_json(path, _INDEX).weight_map
    files: dict[str, dict[str, TensorEntry]] = {}
    for file in sorted(set(places.values())):
        with naming(path.with_name(file)):
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
    size = regular(path).stat().st_size
    with path.open("rb") as opened:
        length = int.from_bytes(opened.read(_HEADER), "little")
        if not 2 <= length <= min(size - _HEADER, _LONGEST):
            raise WeightsError("the file is cut off in its header, or is no safetensors file")
        header = from_json(opened.read(length))
    header.pop("__metadata__", None)
    headers = _HEADERS.validate_python(header)
    for name, about in headers.items():
        if _HEADER + length + about.data_offsets[1] > size:
            raise WeightsError(f"the tensor {name}: the file is cut off before its end")
    file = safe_open(path, framework="pt")
    for name, about in headers.items():
        (begin, end), dtype = about.data_offsets, _FLOATS.get(about.dtype, about.dtype)
        yield TensorEntry(path.name, name, about.shape, dtype, end - begin, partial(file.get_tensor, name))


def _pth(path: Path) -> Iterator[TensorEntry]:
    with regular(path).open("rb") as opened:
        if not is_zipfile(opened):  # a cut file has lost the list of its contents, which stands at the end
            if name := _cut_tensor(path):
                raise WeightsError(f"the tensor {name}: the file is cut off before its end")
            raise WeightsError("the file is cut off, or of another kind than torch.save writes today")
    _check_archive(path)
    stored = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    tensors = stored.get("state_dict", stored) if isinstance(stored, Mapping) else stored
    if not isinstance(tensors, Mapping):
        raise WeightsError("there are no named tensors in it")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise WeightsError(f"{name!r} is no named tensor")
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_nested
        if not plain or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise WeightsError(f"the tensor {name} is not there as plain numbers")
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield TensorEntry(path.name, name, tuple(tensor.shape), dtype, tensor.nbytes, tensor.detach)


def _check_archive(path: Path) -> None:
    """Sees that unpacking takes no more than the file has, nearly all of it tensors, and that nothing else is built of it."""
    with ZipFile(path) as archive:
        members, size = archive.infolist(), path.stat().st_size
        beside = sum(one.file_size for one in members if "/data/" not in one.filename)
        spare = size - sum(one.file_size for one in members)
        if any(one.compress_type != ZIP_STORED for one in members) or beside > _LONGEST or not 0 <= spare <= _LONGEST:
            raise WeightsError("it is packed in another way than torch.save does")
        (words,) = (one for one in members if one.filename.endswith("data.pkl"))
        # Torch lets some through that fill the memory.
        for code, argument, _ in pickletools.genops(archive.read(words)):
            if "GLOBAL" in code.name and str(argument).split(" ")[0] not in _BUILDERS:
                raise WeightsError(f"it holds more than plain tensors ({argument}); nothing in it was run")


def _cut_tensor(path: Path) -> str:
    """The tensor in which a ``.pth`` was cut off: that of the last data which begin in it. "" where nothing near tells it."""
    # The pickle, which stands first, is looked at as a list of words, never run.
    names, words, memo, word = dict[str, str](), list[object](), dict[int, object](), None
    try:
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = len(data)
            while (at := data.rfind(_ENTRY, max(0, len(data) - _FAR), at)) >= 0:
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
