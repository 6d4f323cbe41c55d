"""Damaged folders of open weights: speech, or a bounded error that names a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.engine.dual.damage import write_folders
from tests.engine.dual.tiny import VOCABULARY, write_model
from tests.engine.dual.tiny_codec import save_codec, tiny_tensors
from voicelab.engine.dual.files import INDEX
from voicelab.engine.local import LocalBackend
from voicelab.errors import WeightsError

HUNG_S, HUNGER_MB = 5.0, 500.0
ROOT = Path(__file__).parents[3]


def _try(home: Path, count: int) -> None:
    command = [sys.executable, "-m", "tests.engine.dual.damage", str(home), "0", str(count)]
    environment = os.environ | {"VOICELAB_HOME": str(home), "VOICELAB_ACCEPT_LICENSE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    damaged = [one for one in outcomes if not one["healthy"]]
    assert all(one["came"] == "speech" for one in outcomes if one["healthy"])
    raw = [one for one in damaged if not one["came"].startswith(("speech", "error"))]
    hung = [one for one in damaged if one["seconds"] > HUNG_S]
    hungry = [one for one in damaged if one["mb"] > HUNGER_MB]
    assert (raw, hung, hungry) == ([], [], [])
    assert len(damaged) == count, f"damage {len(damaged)} ended the process, or hung"
    assert sum(one["came"].startswith("error") for one in damaged) > count / 2  # the others are harmless


def test_two_hundred_damages(tmp_path: Path) -> None:
    _try(tmp_path, 200)


@pytest.mark.thorough
def test_two_thousand_damages(tmp_path: Path) -> None:
    _try(tmp_path, 2000)


Spoil = Callable[[Path], object]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    write_folders(folder)
    for name in ("shards", "pth"):
        shutil.copytree(folder / name, folder / "both" / name)
    return folder


def _write(name: str, text: str) -> Spoil:
    return lambda folder: (folder / name).write_text(text)


def _json(name: str, change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        change(value)
        (folder / name).write_text(json.dumps(value))

    return spoil


def _config(part: str = "", **values: object) -> Spoil:
    return _json("config.json", lambda whole: (whole[part] if part else whole).update(values))


def _index(change: Callable[[dict[str, str]], object]) -> Spoil:
    """Change the index."""
    return _json(INDEX, lambda value: change(value["weight_map"]))


def _pth(name: str, change: Callable[[dict[Any, Any]], object]) -> Spoil:
    """Change the tensors of a ``.pth``."""

    def spoil(folder: Path) -> None:
        stored = torch.load(folder / name)
        change(stored.get("state_dict", stored))
        torch.save(stored, folder / name)

    return spoil


def _codec(name: str, tensor: Tensor | None) -> Spoil:
    """Add or remove a tensor of the codec."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors.pop(f"generator.{name}", None)
        if tensor is not None:
            tensors[f"generator.{name}"] = tensor

    return _pth("codec.pth", change)


def _tensor(name: str, change: Callable[[Tensor], Tensor]) -> Spoil:
    """Change tensors of the single safetensors file by name."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = {one: change(tensor).contiguous() if name in one else tensor for one, tensor in tensors.items()}
        save_file(changed, folder / "model.safetensors")

    return spoil


def _instead(name: str, put: Spoil = lambda _: None) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        put(folder / name)

    return spoil


def _bomb(folder: Path) -> None:
    """A zip bomb: kilobytes that unpack to more than 100 MB."""
    with zipfile.ZipFile(folder / "model.pth", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("model/data/0", bytes(1 << 27))


def _flip_shard(folder: Path) -> None:
    path = folder / SHARDS[1]
    data = bytearray(path.read_bytes())
    data[20] ^= 0xFF
    path.write_bytes(data)


def _narrow_stride(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if "encoder.block.1.block.4.conv.par" in name]:
        tensors[name] = tensors[name][..., :1].clone()


def _no_codec(folder: Path) -> None:
    for path in folder.rglob("codec.pth"):
        path.unlink()


def _all(*spoils: Spoil) -> Spoil:
    return lambda folder: [spoil(folder) for spoil in spoils]


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SPECIAL = "special_tokens.json"
GAIN = "decoder.model.0.conv.parametrizations.weight.original0"
OLD = "config.json: fish-speech 1.5 and older are not supported"
OLDER: dict[str, Any] = {
    "attention_qk_norm": False,
    "fast_attention_qk_norm": False,
    "scale_codebook_embeddings": False,
}
"""fish-speech 1.5: no QK norm, no scaled embeddings, another codec."""
FAULTS: list[tuple[str, Spoil, str]] = [
    # The configuration.
    ("pth", _config(model_type="other"), "model_type 'other'"),
    ("pth", _config(attention_qkv_bias=True), "config.json: the model has attention_qkv_bias"),
    ("pth", _config(n_local_heads=3), "4 heads are not a multiple of 3"),
    ("pth", _config(dim=32.0), "config.json: width: "),
    ("pth", _config(n_layer="2"), "config.json: layers: Input should be"),
    ("pth", _json("config.json", lambda whole: whole.pop("dim")), "/config.json: the field 'dim' is missing"),
    ("pth", _write("config.json", '{"model_type":' + "[" * 10**5), "config.json: JSON: .*recursion"),
    ("pth", _config(**OLDER), OLD),
    ("pth", _all(_config(**OLDER), _no_codec), OLD),
    ("shards", _config("text_config", n_head=0), "config.json: heads: "),
    ("shards", _config("text_config", rope_base="1e6"), "config.json: rope_base: "),
    ("shards", _config("audio_decoder_config", n_layer=10**9), "config.json: layers: "),
    # The tokenizer.
    (
        "pth",
        _config(vocab_size=VOCABULARY - 1),
        f"tiktoken: the highest id must be below the vocabulary size {VOCABULARY - 1}, got {VOCABULARY - 1}",
    ),
    ("pth", _write(SPECIAL, "[]"), "special_tokens.json: JSON: Input should be an object"),
    ("pth", _json(SPECIAL, lambda ids: ids.pop("<|semantic:63|>")), "no token <.semantic:63"),
    ("pth", _json(SPECIAL, lambda ids: ids.update({"<|semantic:0|>": 261})), "speech tokens must have 64 ids"),
    ("shards", _config(eos_token_id=5), "the speech tokens of the tokenizer"),
    ("shards", _instead("tokenizer.json"), "no tokenizer.json, nor tokenizer.tiktoken"),
    ("shards", _write("tokenizer.json", "{"), "/tokenizer.json: it is damaged"),
    ("single", _instead("tokenizer.json", Path.mkdir), "tokenizer.json: it is not a regular"),
    # The index, and files of tensors.
    ("shards", _write(INDEX, "{}"), "index.json: weight_map: Field required"),
    ("shards", _index(dict.clear), "index.json: weight_map"),
    ("shards", _index(dict.popitem), "of model-0000.-of-00002.safetensors is not in the index"),
    ("shards", _index(lambda places: places.update(d=SHARDS[0])), "the tensor d is missing in model-00001"),
    ("shards", _index(lambda places: places.update(a="../" + SHARDS[0])), "weight_map.a: String should match"),
    ("shards", _index(lambda places: places.update(a="three.safetensors")), "three.safetensors.*cannot be read"),
    ("shards", _flip_shard, "/model-00002-of-00002.safetensors: "),
    ("shards", lambda folder: os.truncate(folder / SHARDS[0], 5000), "truncated"),
    ("single", _instead("model.safetensors", os.mkfifo), "model.safetensors: it is not a regular"),
    ("single", _tensor("", Tensor.double), "model.safetensors: the tensor .* must be of type .*, got F64"),
    ("single", _tensor("wo.weight", Tensor.int), "the tensor .*wo.weight must be of type .*, got I32"),
    ("single", _tensor("wo.weight", Tensor.half), "must be of type float32, got float16"),
    ("pth", _pth("model.pth", lambda tensors: tensors.pop("embeddings.weight")), "model.pth: .*embeddings"),
    ("pth", _pth("model.pth", lambda tensors: tensors.update({5: torch.ones(1)})), "model.pth: 5 is not a named"),
    (
        "pth",
        _pth("model.pth", lambda tensors: tensors.update(x=bytearray(10))),
        r"model.pth: it contains more than plain tensors \(\S* bytearray\)",
    ),
    ("pth", _bomb, "model.pth: it was not written by torch.save"),
    # The codec.
    ("pth", _no_codec, "there is no codec.pth"),
    ("pth", _instead("codec.pth", lambda at: at.symlink_to("/dev/zero")), "codec.pth: it is not a regular"),
    ("pth", _pth("codec.pth", _narrow_stride), "codec.pth: encoder_strides.0: "),
    ("pth", _write("sizes.json", '{"window": 0}'), "sizes.json: window: "),
    ("pth", _write("sizes.json", '{"head_dim": -64}'), "sizes.json: head_dim: "),
    ("pth", _write("sizes.json", '{"encoder_window": 1000000000}'), "sizes.json: encoder_window: "),
    ("pth", _codec("decoder.model.0.conv.bias", torch.ones(24) * 1j), "complex64"),
    ("pth", _codec("decoder.model.2.alpha", None), "the tensor decoder.model.2.alpha is missing"),
    (
        "pth",
        _codec("decoder.model.2.alpha", torch.full((1, 12, 1), torch.nan)),
        "2.alpha: it has values that are not",
    ),
    (
        "pth",
        _codec("decoder.model.0.conv.bias", torch.zeros(25)),
        r"conv.bias must have the shape \(24,\), got \(25,\)",
    ),
    ("pth", _codec(GAIN, None), "the tensor decoder.model.0.conv.weight_g is missing"),
    ("pth", _codec(GAIN, torch.ones(24, 1)), r"conv.weight_g must have the shape \(24, 1, 1\), got \(24, 1\)"),
    ("pth", _codec("decoder.model.7.alpha", torch.ones(1)), "unknown tensor decoder.model.7.alpha"),
    (
        "pth",
        _codec("quantizer.semantic_quantizer.quantizers.0.codebook.weight", None),
        "no tensor 'quantizer.semantic_quantizer",
    ),
    ("shards", _config("audio_decoder_config", vocab_size=32), r"of 32 codes, but codec.pth has codebooks of \(64"),
    # Models and codec that do not fit together.
    ("both", _instead("pth/codec.pth", lambda at: save_codec(at, tiny_tensors())), "codec.pth of s2-pro and s1 differ"),
    ("both", lambda folder: shutil.copytree(folder / "pth", folder / "again"), "again and pth both contain s1"),
    ("both", lambda folder: [*map(shutil.rmtree, folder.iterdir())], "no model in the folder"),
    ("both", lambda folder: write_model(folder / "pth", "s1", num_codebooks=5), "pth has 5 codebooks"),
]


@pytest.mark.parametrize(("base", "spoil", "what"), FAULTS, ids=[what for *_, what in FAULTS])
def test_error_names_the_fault(base: str, spoil: Spoil, what: str, home: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(home / base, tmp_path / "weights"))
    spoil(folder)
    with pytest.raises(WeightsError, match=what) as caught:
        LocalBackend("cpu", weights=folder)
    assert len(str(caught.value)) < 600
    assert "weights_only" not in str(caught.value)
