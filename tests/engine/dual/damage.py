"""Damage a tiny folder of open weights at random, repeatedly, and report the outcomes; run as a program.

    python -m tests.engine.dual.damage FOLDER FIRST COUNT

prints a line of JSON for each damage as soon as it was tried. FOLDER is empty, or from a run before. The damage of a number
is always the same.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.engine.dual.tiny import write_model
from tests.engine.dual.tiny_codec import TINY, save_codec, tiny_tensors
from voicelab.call import Call
from voicelab.engine.dual.folder import check_weights
from voicelab.engine.local import LocalBackend
from voicelab.errors import VoicelabError
from voicelab.voices.store import VoiceStore

HOSTILE: list[Any] = [None, True, -1, 0, 1, 3, 10**9, -(10**30), 10**30, 0.5, 1e999, float("nan"), "", "x", "7", "../x"]
HOSTILE += [[], {}, [0], {"a": 1}]
SIZES = (1, 8, 512, 8192)
STATUS = Path("/proc/self/status")
HEALTHY_S, HANGS_S = 120.0, 20.0
"""Timeouts with a stack dump: for imports and the first synthesis on a busy machine, and for a damaged folder."""


def write_folders(home: Path) -> None:
    """Write healthy folders: indexed shards, one safetensors file, a ``.pth`` with a byte-pair table."""
    small = replace(TINY, encoder_strides=(4,), decoder_strides=(4,), encoder_layers=1, layers=1, halvings=1)
    for name in ("shards", "single", "pth"):
        folder = write_model(home / name, "s1" if name == "pth" else "s2-pro")
        save_codec(folder / "codec.pth", tiny_tensors(small), sizes=small)
    shards = sorted((home / "single").glob("model-*"))
    merged = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    save_file(merged, home / "single" / "model.safetensors")
    for path in (*shards, home / "single" / "model.safetensors.index.json"):
        path.unlink()


def damage(folder: Path, chance: random.Random) -> str:
    """Damage a file of a folder; return a description."""
    path = chance.choice(sorted(folder.iterdir()))
    data = path.read_bytes()
    path.unlink()
    kinds: list[Callable[[Path, bytes, random.Random], object]] = [*[_bytes] * 5, _another_thing]
    if path.suffix == ".json":
        kinds += [_json, _json, _json, _json, _nest]
    elif path.suffix == ".safetensors":
        kinds += [_header, _header, _header]
    elif path.suffix == ".pth":
        kinds += [_pth, _pth, _pth]
    kind = chance.choice(kinds)
    return f"{path.name}: {kind.__name__[1:]} {kind(path, data, chance) or ''}"


def _place(data: bytes, chance: random.Random) -> int:
    """Draw an offset, often near the beginning or end, where headers are."""
    near = min(len(data), 4096)
    return chance.choice([chance.randrange(len(data)), chance.randrange(near), len(data) - 1 - chance.randrange(near)])


def _bytes(path: Path, data: bytes, chance: random.Random) -> str:
    """Flip bits, truncate, zero or repeat a region."""
    kind, start, size = (
        chance.choice(["flip", "flip", "cut", "zero", "double"]),
        _place(data, chance),
        chance.choice(SIZES),
    )
    spoilt = bytearray(data)
    if kind == "flip":
        for _ in range(chance.choice([1, 1, 4, 64])):
            spoilt[_place(data, chance)] ^= 1 << chance.randrange(8)
    elif kind == "zero":
        spoilt[start : start + size] = bytes(min(size, len(data) - start))
    else:
        spoilt[start:] = b"" if kind == "cut" else data[start : start + size] + data[start:]
    path.write_bytes(spoilt)
    return kind


def _another_thing(path: Path, data: bytes, chance: random.Random) -> str:
    kind = chance.choice(["missing", "empty", "folder", "pipe", "endless", "huge", "other"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "other":
        shutil.copy(chance.choice(sorted(path.parent.iterdir())), path)
    elif kind != "missing":
        path.write_bytes(b"" if kind == "empty" else data)
        if kind == "huge":
            os.truncate(path, 1 << 40)
    return kind


def _nest(path: Path, _: bytes, chance: random.Random) -> None:
    depth = chance.choice([50, 100_000])
    path.write_text('{"model_type":' + "[" * depth + "]" * depth + "}")


def _spoil(value: Any, chance: random.Random) -> str:
    """Change one value of a JSON document."""
    at, name = value, None
    while isinstance(at, dict | list) and at:
        name = chance.choice(list(at) if isinstance(at, dict) else list(range(len(at))))
        if not isinstance(at[name], dict | list) or not at[name] or chance.random() < 0.1:
            break
        at = at[name]
    if name is None:
        return "nothing"
    kind = chance.choice(["set", "set", "set", "large", "remove", "rename"])
    if kind == "remove" or (kind == "rename" and isinstance(at, list)):
        del at[name]
        return f"remove {name}"
    if kind == "rename":
        at[chance.choice(["x", "", "weight", f"{name} "])] = at.pop(name)
        return f"rename {name}"
    old = at[name]
    at[name] = (
        chance.choice(HOSTILE) if kind == "set" or not isinstance(old, int) else old * chance.choice([2, 3, 10, 1000])
    )
    return f"{name} = {at[name]!r}"


def _json(path: Path, data: bytes, chance: random.Random) -> str:
    value = json.loads(data)
    how = _spoil(value, chance)
    path.write_text(json.dumps(value))
    return how


def _header(path: Path, data: bytes, chance: random.Random) -> str:
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    if chance.random() < 0.5:
        name = chance.choice(list(header))
        header[name]["dtype"] = chance.choice(["I32", "F64", "F16", "BF16", "C64", "BOOL", "F8_E4M3", "U8", "?"])
        how = f"{name} is {header[name]['dtype']}"
    else:
        how = _spoil(header, chance)
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data[end:])
    return how


def _pth(path: Path, data: bytes, chance: random.Random) -> str:
    path.write_bytes(data)
    stored = torch.load(path, weights_only=True)
    tensors = stored.get("state_dict", stored)
    name = chance.choice(list(tensors))
    tensor = tensors[name]
    changes: dict[str, Callable[[], object]] = {
        **{name: getattr(tensor, name) for name in ("double", "int", "bfloat16", "bool", "to_sparse", "flatten")},
        "complex64": lambda: tensor.to(torch.complex64),
        "meta": lambda: tensor.to("meta"),
        "expanded": lambda: torch.zeros(1).expand(10**9, 10**3),
        "scalar": lambda: torch.zeros(()),
        "none": lambda: torch.zeros(10**6, 0),
        "longer": lambda: torch.cat((tensor, tensor)),
        "nan": lambda: tensor.float() * torch.nan,
        "large": lambda: tensor.float() * 1e30,
        "zeros": lambda: torch.zeros_like(tensor),
        "number": lambda: 3,
        "list": lambda: [tensor],
        "text": lambda: "x",
    }
    how = chance.choice([*changes, "integer name", "rename", "remove"])
    if how in changes:
        tensors[name] = changes[how]()
    else:
        del tensors[name]
        if how != "remove":
            tensors[5 if how == "integer name" else f"{name}.x"] = tensor
    torch.save(stored, path)
    return f"{name}: {how}"


def _memory(field: str) -> float:
    """Read a line of the process status in MB; 0 if unavailable."""
    if not STATUS.exists():
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(field))


def use(folder: Path, store: VoiceStore, *, check: bool) -> str:
    """Check, open, encode and synthesize with a folder; return the outcome."""
    files = {path.name for path in folder.iterdir()} | {folder.name, "codec", "tokenizer"}
    try:
        if check:
            list(check_weights(folder))
        with LocalBackend("cpu", weights=folder, rows=2, voices=store) as backend:
            sound = torch.sin(torch.arange(200) / 3)
            backend._family._encode(sound)  # type: ignore[attr-defined]
            backend.synthesize(Call.of("So it is.", {}, seed=1, max_new_tokens=4)).clip()
    except VoicelabError as error:
        named = any(name in str(error) for name in files) or "not finite" in str(error) or "silence" in str(error)
        return f"{'error' if named else 'NAMELESS'} {type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - any of it is what is looked for
        return f"RAW {error!r:.300}"
    return "speech"


def outcomes(home: Path, first: int, count: int) -> Iterator[dict[str, Any]]:
    """Run damages; yield each outcome with its seconds and additional memory."""
    if not (home / "pth").exists():
        write_folders(home)
    with VoiceStore(home / "voices") as store:
        for number in range(first - 3, first + count):
            healthy = number < first  # and what is loaded only once is loaded
            chance = random.Random(number)
            folder = home / "damaged"
            shutil.rmtree(folder, ignore_errors=True)
            kinds = ("shards", "single", "pth")
            shutil.copytree(home / (kinds[first - number - 1] if healthy else chance.choice(kinds)), folder)
            how = "nothing" if healthy else damage(folder, chance)
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            before, began = _memory("VmRSS"), time.monotonic()
            faulthandler.dump_traceback_later(HEALTHY_S if healthy else HANGS_S, exit=True)
            came = use(folder, store, check=number % 4 == 0)
            faulthandler.cancel_dump_traceback_later()
            seconds, memory = time.monotonic() - began, _memory("VmHWM") - before
            yield {"number": number, "damage": how, "came": came, "seconds": seconds, "mb": memory, "healthy": healthy}


if __name__ == "__main__":
    for outcome in outcomes(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])):
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()
