"""Tensor files: layouts, errors that name file and tensor, and no unpickling."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from voicelab.engine.dual.files import INDEX, TensorFiles, digests
from voicelab.errors import WeightsError

CPU = torch.device("cpu")
TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16), "c": torch.arange(3).half()}


def _single(folder: Path) -> Path:
    save_file(TENSORS, folder / "model.safetensors")
    return folder / "model.safetensors"


def _sharded(folder: Path) -> Path:
    places = {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}
    for file in set(places.values()):
        save_file({name: tensor for name, tensor in TENSORS.items() if places[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))
    return folder / INDEX


def _pth(folder: Path, stored: object = TENSORS) -> Path:
    torch.save(stored, folder / "model.pth")
    return folder / "model.pth"


def _state_dict(folder: Path) -> Path:
    return _pth(folder, {"state_dict": TENSORS})


@pytest.mark.parametrize("write", [_single, _sharded, _pth, _state_dict])
def test_all_layouts_hold_the_same_tensors(write: Callable[[Path], Path], tmp_path: Path) -> None:
    files = TensorFiles.open(write(tmp_path))
    files.check({name: tuple(tensor.shape) for name, tensor in TENSORS.items()})
    for name, tensor in TENSORS.items():
        assert torch.equal(files.read(name, CPU), tensor)
        assert files.read(name, CPU).dtype == tensor.dtype
    assert files.read("b", CPU, torch.float32).dtype == torch.float32


def test_renaming_drops_tensors_and_rejects_duplicates(tmp_path: Path) -> None:
    files = TensorFiles.open(_single(tmp_path))
    renamed = files.renamed(lambda name: None if name == "c" else f"x.{name}")
    assert sorted(renamed.entries) == ["x.a", "x.b"]
    assert torch.equal(renamed.read("x.a", CPU), TENSORS["a"])
    with pytest.raises(WeightsError, match="have the same name x"):
        files.renamed(lambda _: "x")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_non_finite_tensor_is_named(bad: float, dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.zeros(3, 5, dtype=dtype)
    tensor[1, 2] = bad
    save_file({"fine": torch.zeros(2), "spoilt": tensor}, tmp_path / "m.safetensors")
    files = TensorFiles.open(tmp_path / "m.safetensors")
    files.read("fine", CPU)
    with pytest.raises(WeightsError, match=r"m\.safetensors: the tensor spoilt: .*not finite"):
        files.read("spoilt", CPU)


def test_truncated_safetensors_names_the_tensor(tmp_path: Path) -> None:
    path = _single(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(WeightsError, match=r"the tensor \w: the file is truncated"):
        TensorFiles.open(path)
    for length in (0, 5, 20):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match="truncated in its header"):
            TensorFiles.open(path)


@pytest.mark.parametrize("write", [_pth, _state_dict])
def test_a_truncated_pth_names_the_tensor(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """Truncated at any length."""
    path, messages = write(tmp_path), dict[str, int]()
    whole = path.read_bytes()
    for length in range(0, len(whole), 16):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError, match=r"model\.pth: .*the file is truncated") as caught:
            TensorFiles.open(path)
        messages.setdefault(str(caught.value), length)
    named = [message.split("the tensor ")[1][0] for message in messages if "the tensor" in message]
    assert named == ["a", "b", "c"]
    first = next(iter(messages))
    assert "was not written by torch.save" in first


class Planted:
    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return Path("planted").touch, ()  # type: ignore[return-value]


@pytest.mark.parametrize("stored", [{"a": Planted()}, {"a": 3}, [TENSORS["a"]], TENSORS["a"]])
def test_only_named_tensors_are_loaded(stored: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError, match=r"model\.pth"):
        TensorFiles.open(_pth(tmp_path, stored))
    assert not (tmp_path / "planted").exists()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists what is mapped")
def test_a_pth_is_mapped_not_read(tmp_path: Path) -> None:
    tensor: Tensor = TensorFiles.open(_pth(tmp_path)).read("a", CPU)
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert str(tmp_path / "model.pth") in mapped
    assert tensor.sum() == 15


def test_digests(tmp_path: Path) -> None:
    for name, content in (("x", b"1"), ("y", b"1"), ("z", b"2")):
        (tmp_path / name).write_bytes(content)
    one, same, other = digests([tmp_path / name for name in "xyz"])
    assert one == same != other
    with pytest.raises(WeightsError, match="cannot be read"):
        digests([tmp_path / "none"])
