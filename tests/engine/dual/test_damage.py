"""Damaged folders of open weights: whatever is in them, speech or an error of ours that names a file, soon and in bounds."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.engine.dual.damage import write_folders
from tests.engine.dual.tiny import VOCABULARY, config_json
from voicelab.engine.local import LocalBackend
from voicelab.errors import WeightsError

HUNG_S, HUNGER_MB = 5.0, 500.0
_BEGIN_S = 120.0
"""For the imports and the first speech on a busy machine."""
ROOT = Path(__file__).parents[3]


def _tried(home: Path, first: int, last: int) -> list[dict[str, Any]]:
    """What came of the damages until one hangs, or kills the process: that one with nothing but its number."""
    command = [sys.executable, "-m", "tests.engine.dual.damage", str(home), str(first), str(last - first)]
    environment = os.environ | {"VOICELAB_HOME": str(home), "VOICELAB_ACCEPT_LICENSE": "1", "OMP_NUM_THREADS": "1"}
    outcomes, lines = list[dict[str, Any]](), queue.SimpleQueue[str]()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_put, args=(process.stdout, lines))
        reader.start()
        try:
            while line := lines.get(timeout=_BEGIN_S if not outcomes else 4 * HUNG_S):
                outcomes.append(json.loads(line))
        except queue.Empty:
            process.kill()
        reader.join()
    assert all(one["came"] == "speech" for one in outcomes if one["healthy"])
    damaged = [one for one in outcomes if not one["healthy"]]
    assert damaged, "it did not begin"
    return damaged if len(damaged) == last - first else [*damaged, {"number": first + len(damaged)}]


def _put(out: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in out:
        lines.put(line)
    lines.put("")


def _try(home: Path, first: int, last: int) -> None:
    outcomes = list[dict[str, Any]]()
    while first < last:
        outcomes += _tried(home, first, last)
        first = outcomes[-1]["number"] + 1
    raw = [one for one in outcomes if not one.get("came", "RAW").startswith(("speech", "error"))]
    hung = [one for one in outcomes if one.get("seconds", 0.0) > HUNG_S]
    hungry = [one for one in outcomes if one.get("mb", 0.0) > HUNGER_MB]
    assert (raw, hung, hungry) == ([], [], [])
    assert sum(one["came"].startswith("error") for one in outcomes) > len(outcomes) / 2  # the others are harmless


def test_two_hundred_damages(tmp_path: Path) -> None:
    _try(tmp_path, 0, 200)


@pytest.mark.thorough
def test_two_thousand_damages(tmp_path: Path) -> None:
    _try(tmp_path, 0, 2000)


Spoil = Callable[[Path], object]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    write_folders(folder)
    return folder


def _write(name: str, text: str) -> Spoil:
    return lambda folder: (folder / name).write_text(text)


def _config(part: str = "", **values: object) -> Spoil:
    def spoil(folder: Path) -> None:
        whole = json.loads((folder / "config.json").read_text())
        (whole[part] if part else whole).update(values)
        (folder / "config.json").write_text(json.dumps(whole))

    return spoil


def _pth(name: str, change: Callable[[dict[Any, Any]], object] | dict[Any, object]) -> Spoil:
    """Changes what a ``.pth`` holds, whose names are as in the file, or puts more into it."""

    def spoil(folder: Path) -> None:
        stored = torch.load(folder / name)
        tensors = stored.get("state_dict", stored)
        change(tensors) if callable(change) else tensors.update(change)
        torch.save(stored, folder / name)

    return spoil


def _tensor(name: str, change: Callable[[Tensor], Tensor]) -> Spoil:
    """Changes a tensor of the one safetensors file, or all of them."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = {one: change(tensor).contiguous() if name in one else tensor for one, tensor in tensors.items()}
        save_file(changed, folder / "model.safetensors")

    return spoil


def _instead(name: str, put: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        put(folder / name)

    return spoil


def _bomb(folder: Path) -> None:
    """A few kilobytes of file, and more than a hundred megabytes of numbers."""
    with zipfile.ZipFile(folder / "model.pth", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("model/data/0", bytes(1 << 27))


def _flip_shard(folder: Path) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    data = bytearray(path.read_bytes())
    data[20] ^= 0xFF
    path.write_bytes(data)


def _narrow_stride(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if "encoder.block.1.block.4.conv.par" in name]:
        tensors[name] = tensors[name][..., :1].clone()


class Planted:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, ("exit 1",)


def _older(folder: Path) -> None:
    """fish-speech 1.5: no norms of queries and keys, no scaled frames; its codec is another one, or lies beside."""
    old = {"attention_qk_norm": False, "fast_attention_qk_norm": False, "scale_codebook_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config_json("s1", **old)))


def _older_without_codec(folder: Path) -> None:
    _older(folder)
    (folder / "codec.pth").unlink()


FAULTS: dict[str, tuple[str, Spoil, str]] = {
    "an index of nothing": (
        "shards",
        _write("model.safetensors.index.json", '{"weight_map":{}}'),
        r"index\.json: weight_map",
    ),
    "a tensor is missing": (
        "pth",
        _pth("model.pth", lambda tensors: tensors.pop("embeddings.weight")),
        r"model\.pth: .*embeddings",
    ),
    "no heads": ("shards", _config("text_config", n_head=0), r"config\.json: heads: "),
    "a size that is no whole number": ("pth", _config(dim=32.0), r"config\.json: width: "),
    "a size as text": ("pth", _config(n_layer="2"), r"config\.json: layers: "),
    "a number as text": ("shards", _config("text_config", rope_base="1e6"), r"config\.json: rope_base: "),
    "a billion layers": ("shards", _config("audio_decoder_config", n_layer=10**9), r"config\.json: layers: "),
    "lists in lists": (
        "pth",
        _write("config.json", '{"model_type":' + "[" * 10**5),
        r"config\.json: JSON: .*recursion",
    ),
    "special tokens as a list": (
        "pth",
        _write("special_tokens.json", "[]"),
        r"special_tokens\.json: JSON: Input should be an object",
    ),
    "whole numbers as names": ("pth", _pth("model.pth", {5: torch.ones(1)}), r"model\.pth: 5 is no named"),
    "a stride of 0": ("pth", _pth("codec.pth", _narrow_stride), r"codec\.pth: encoder_strides\.0: "),
    "a window of 0": ("pth", _write("sizes.json", '{"window": 0}'), r"sizes\.json: window: "),
    "heads of no width": ("pth", _write("sizes.json", '{"head_dim": -64}'), r"sizes\.json: head_dim: "),
    "a window of a billion": (
        "pth",
        _write("sizes.json", '{"encoder_window": 1000000000}'),
        r"sizes\.json: encoder_window: ",
    ),
    "a bomb": ("pth", _bomb, r"model\.pth: it is packed"),
    "a link to a device": (
        "pth",
        _instead("codec.pth", lambda at: at.symlink_to("/dev/zero")),
        r"codec\.pth: it is no regular",
    ),
    "a pipe": ("single", _instead("model.safetensors", os.mkfifo), r"model\.safetensors: it is no regular"),
    "a folder": ("single", _instead("tokenizer.json", Path.mkdir), r"tokenizer\.json: it is no regular"),
    "numbers of 64 bits": (
        "single",
        _tensor("", Tensor.double),
        r"model\.safetensors: the tensor .* is of the type F64",
    ),
    "whole numbers": ("single", _tensor("wo.weight", Tensor.int), r"the tensor .*wo\.weight is of the type I32"),
    "mixed types": ("single", _tensor("wo.weight", Tensor.half), "is of the type float16, not float32"),
    "complex numbers": (
        "pth",
        _pth("codec.pth", lambda tensors: tensors.update({name: tensors[name] * 1j for name in [*tensors][:1]})),
        "complex64",
    ),
    "a shard that is damaged": ("shards", _flip_shard, r"/model-00002-of-00002\.safetensors: "),
    "a pickle that does something": ("pth", _pth("model.pth", {"x": Planted()}), "more than plain tensors"),
    "a pickle that fills the memory": (
        "pth",
        _pth("model.pth", {"x": bytearray(10)}),
        r"model\.pth: it holds more than plain tensors \(\S* bytearray\)",
    ),
    "ids that the model lacks": ("pth", _config(vocab_size=VOCABULARY - 1), "the highest id is .*, the model has"),
    "codes that the model lacks": (
        "shards",
        _config("audio_decoder_config", vocab_size=32),
        r"of 32 codes, codec\.pth \(64",
    ),
    "fish-speech 1.5": ("pth", _older, r"config\.json: it is of fish-speech 1\.5 or older, which is not supported"),
    "fish-speech 1.5, no codec": ("pth", _older_without_codec, r"fish-speech 1\.5 or older, which is not supported"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, home: Path, tmp_path: Path) -> None:
    base, spoil, what = FAULTS[fault]
    folder = Path(shutil.copytree(home / base, tmp_path / "weights"))
    spoil(folder)
    with pytest.raises(WeightsError, match=what) as caught:
        LocalBackend("cpu", weights=folder)
    assert len(str(caught.value)) < 600
    assert "weights_only" not in str(caught.value)
