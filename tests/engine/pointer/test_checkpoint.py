"""Checkpoints: round trip, and rejection of invalid files with their names."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import voicelab
from tests.engine.tiny import CODEC, LANGUAGE, make_codec, make_lm, speaker
from voicelab.call import VoicePreset
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.config import ALL_PHONES
from voicelab.errors import WeightsError

ADA, BEN = VoicePreset("ada", "Ada", "calm"), VoicePreset("ben", "Ben")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "tiny.safetensors"
    checkpoint.save(path, make_codec(), make_lm(), {ADA: speaker(1), BEN: speaker(2)}, {"step": 3})
    return path


def _rewrite(path: Path, meta: Any = None, **changes: torch.Tensor | None) -> Path:
    """Rewrite the checkpoint with changed metadata or tensors (None removes one)."""
    with safe_open(path, framework="pt") as file:
        old = json.loads(file.metadata()["voicelab"])
    tensors = load_file(path)
    for name, tensor in changes.items():
        tensors.pop(name)
        if tensor is not None:
            tensors[name] = tensor
    out = path.with_name("changed.safetensors")
    save_file(tensors, out, metadata={"voicelab": json.dumps(old if meta is None else meta(old))})
    return out


def _is_nearly(found: nn.Module, model: nn.Module, rounded: str = "") -> None:
    """Compare up to float16 and int8 quantization."""
    for name, value in model.state_dict().items():
        if value.dim() == 2 and name.startswith(rounded):
            assert ((found.state_dict()[name] - value).abs() <= 0.565 * value.abs().amax(1, keepdim=True) / 127).all()
        else:
            torch.testing.assert_close(found.state_dict()[name], value.half().float())


def test_save_and_load_roundtrip(saved: Path) -> None:
    found = checkpoint.load(saved)
    assert (found.codec.config, found.lm.config) == (CODEC, LANGUAGE)
    assert found.presets == (ADA, BEN)
    codec, lm = checkpoint.load_codec(saved), checkpoint.load_lm(saved)
    _is_nearly(codec, make_codec(), rounded="encoder.")
    _is_nearly(lm, make_lm())
    np.testing.assert_array_equal(found.speakers["ben"], speaker(2).half().float().numpy())
    assert not any(p.requires_grad for p in (*codec.parameters(), *lm.parameters()))
    assert not lm.training
    assert not codec.training
    assert found.codec.open().feed(np.zeros((4, 3), np.int64), final=True).shape == (4 * CODEC.hop,)


def test_digest_depends_on_the_weights(saved: Path) -> None:
    first = checkpoint.load(saved).digest
    assert len(first) == 16
    assert checkpoint.load(saved).digest == first
    other = _rewrite(saved, **{"voices.ada": speaker(5).half()})
    assert checkpoint.load(other).digest != first


def _refused(path: Path, why: str) -> None:
    with pytest.raises(WeightsError, match=why) as caught:
        checkpoint.load(path)
    assert path.name in str(caught.value)


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    _refused(tmp_path / "nowhere.safetensors", "cannot be read")


def test_folder_without_a_checkpoint_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"voice\.safetensors cannot be read"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 8, 100, 3000, -1])
def test_truncated_file_is_rejected(saved: Path, keep: int) -> None:
    cut = saved.with_name("cut.safetensors")
    cut.write_bytes(saved.read_bytes()[:keep])
    _refused(cut, "cannot be read")


def test_pickle_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "pickle.safetensors"
    torch.save({"weight": torch.zeros(3)}, path)
    _refused(path, "cannot be read")


FOREIGN = (None, {"other": "x"}, {"voicelab": "null"}, {"voicelab": '{"codec": {}}'})


@pytest.mark.parametrize(
    ("metadata", "why"),
    [*((one, "not written by voicelab") for one in FOREIGN), ({"voicelab": "{"}, "cannot be read")],
)
def test_foreign_safetensors_are_rejected(tmp_path: Path, metadata: dict[str, str] | None, why: str) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.zeros(3)}, path, metadata=metadata)
    _refused(path, why)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"codec": CODEC.to_dict() | {"flux": 3}}, "flux"),
        ({"lm": LANGUAGE.to_dict() | {"flux": 3}}, "flux"),
        ({"lm": LANGUAGE.to_dict() | {"slow": LANGUAGE.slow.to_dict() | {"rope_theta": 1e6}}}, "rope_theta"),
    ],
)
def test_unknown_field_is_rejected(saved: Path, changed: dict[str, Any], field: str) -> None:
    _refused(_rewrite(saved, lambda old: old | changed), f"unknown fields.*{field}")


@pytest.mark.parametrize(
    "changed",
    [
        {"codec": 5},
        {"lm": []},
        {"voices": 7},
        {"voices": []},
        {"voices": [{"id": "ada"}]},
        {"voices": [{"id": "eve", "title": "", "description": ""}]},
        {"lm": LANGUAGE.to_dict() | {"slow": 3}},
        {"lm": LANGUAGE.to_dict() | {"slow": {"width": 32}}},
        {"lm": LANGUAGE.to_dict() | {"slow": LANGUAGE.slow.to_dict() | {"heads": 0}}},
        {"lm": dataclasses.replace(LANGUAGE, phones=61).to_dict()},
        {"lm": dataclasses.replace(LANGUAGE, latent=9).to_dict()},
        {"lm": dataclasses.replace(LANGUAGE, codebooks=(16, 8)).to_dict()},
        {"codec": CODEC.to_dict() | {"width": "wide"}},
        {"codec": dataclasses.replace(CODEC, width=24).to_dict()},
        {"codec": dataclasses.replace(CODEC, depth=3).to_dict()},
    ],
    ids=str,
)
def test_invalid_metadata_is_rejected(saved: Path, changed: dict[str, Any]) -> None:
    _refused(_rewrite(saved, lambda old: old | changed), "weights")


@pytest.mark.parametrize("name", ["codec.decoder.leave.bias", "lm.begin", "voices.ben"])
def test_missing_tensor_is_rejected(saved: Path, name: str) -> None:
    _refused(_rewrite(saved, **{name: None}), name.rpartition(".")[2])


@pytest.mark.parametrize("name", ["codec.decoder.leave.bias", "lm.begin", "voices.ben"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_non_finite_tensor_is_rejected(saved: Path, name: str, number: float) -> None:
    tensor = load_file(saved)[name]
    tensor[0] = number
    _refused(_rewrite(saved, **{name: tensor}), "finite|damaged")


@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5, 3), (4,)), ((5, 3), ())], ids=str)
def test_scales_that_do_not_match_their_matrix_are_rejected(
    saved: Path, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    name = next(name for name in load_file(saved) if name.startswith("lm.") and name.endswith(".row_scales"))
    matrix, scales = torch.zeros(shapes[0], dtype=torch.int8), torch.ones(shapes[1], dtype=torch.float16)
    changed = {name.removesuffix(".row_scales"): matrix, name: scales}
    _refused(_rewrite(saved, **changed), "must be a matrix with one scale per row, got the shapes")


def test_voice_of_wrong_size_is_rejected(saved: Path) -> None:
    _refused(_rewrite(saved, **{"voices.ben": torch.zeros(3)}), "ben")


UNSAFE = re.compile(
    r"^\s*(import|from) (pickle|cPickle|dill|joblib|marshal|shelve|cloudpickle)\b|allow_pickle"
    r"|torch\.(load|jit\.load|hub)\b|from torch import (\([^)]*|.*)\b(load|jit|hub)\b",
    re.MULTILINE,
)


def test_package_never_unpickles() -> None:
    """Weights are untrusted: the package uses neither pickle nor functions that unpickle."""
    package = Path(voicelab.__file__).parent
    unsafe = {
        (path.relative_to(package), m[0])
        for path in package.rglob("*.py")
        for m in UNSAFE.finditer(path.read_text("utf-8"))
        # Functions of the user, for the user's own workers.
        if path.relative_to(package) != Path("backends/function.py")
    }
    # .ci/house.py checks that it loads plain tensors only.
    assert unsafe == {(Path("engine/dual/files.py"), "torch.load")}


def test_languages_default_to_english(saved: Path) -> None:
    assert checkpoint.load(saved).languages == ("en",)
    assert checkpoint.load(_rewrite(saved, lambda old: {**old, "languages": ["en"]})).languages == ("en",)
    for languages in (["en", "fr"], []):
        _refused(_rewrite(saved, lambda old, said=languages: {**old, "languages": said}), "languages must be among")


def test_mandarin_requires_mandarin_phones(saved: Path, tmp_path: Path) -> None:
    _refused(_rewrite(saved, lambda old: {**old, "languages": ["en", "zh"]}), "no Mandarin phones")
    both = dataclasses.replace(LANGUAGE, phones=len(ALL_PHONES))
    path = tmp_path / "both" / checkpoint.EMBEDDED
    checkpoint.save(path, make_codec(), make_lm(config=both), {ADA: speaker(1)}, {}, ("en", "zh"))
    assert checkpoint.load(path).languages == ("en", "zh")
    checkpoint.save_small(path.with_name(checkpoint.S1_FILE), make_lm(), checkpoint.load(path), {})
    with pytest.raises(WeightsError, match="no Mandarin phones"):
        checkpoint.load_small(checkpoint.load(path.parent))


LARGER = dataclasses.replace(LANGUAGE, slow=dataclasses.replace(LANGUAGE.slow, layers=3, hidden=64))


@pytest.fixture
def folder(saved: Path) -> Path:
    """Two models on one codec; the larger is the primary."""
    main = saved.with_name(checkpoint.EMBEDDED)
    checkpoint.save(main, make_codec(), make_lm(5, LARGER), {ADA: speaker(1), BEN: speaker(2)}, {})
    checkpoint.save_small(main.with_name(checkpoint.S1_FILE), make_lm(), checkpoint.load(main), {"step": 4})
    return main.parent


def test_folder_with_two_models_on_one_codec(folder: Path) -> None:
    found = checkpoint.load(folder)
    alone = checkpoint.load(folder / checkpoint.EMBEDDED)
    assert (alone.small, alone.small_digest) == (None, None)
    assert (found.digest, found.codec_digest) == (alone.digest, alone.codec_digest)
    assert found.lm.config == LARGER
    small = checkpoint.load_small(found)
    assert small.config == LANGUAGE
    _is_nearly(checkpoint.load_lm(folder / checkpoint.S1_FILE), make_lm())
    with pytest.raises(WeightsError, match=r"no s1\.safetensors"):
        checkpoint.load_small(alone)


def test_codec_digest_depends_on_the_codec_only(saved: Path) -> None:
    """Independent of language model and voices."""
    one = checkpoint.load(saved).codec_digest
    others = _rewrite(saved, **{"voices.ada": speaker(5).half(), "lm.begin": torch.ones(32).half()})
    assert checkpoint.load(others).codec_digest == one
    bias = load_file(saved)["codec.decoder.leave.bias"]
    assert checkpoint.load(_rewrite(saved, **{"codec.decoder.leave.bias": bias + 1})).codec_digest != one


def test_second_model_for_another_codec_is_rejected(folder: Path) -> None:
    checkpoint.save(folder / checkpoint.EMBEDDED, make_codec(9), make_lm(), {ADA: speaker(1)}, {})
    with pytest.raises(WeightsError, match=r"s1\.safetensors: the language model is for another codec"):
        checkpoint.load(folder)


def test_damaged_second_model_is_rejected(folder: Path) -> None:
    """Its metadata at once; its tensors when they are loaded."""
    small = folder / checkpoint.S1_FILE
    whole = small.read_bytes()
    small.write_bytes(whole[:50])
    with pytest.raises(WeightsError, match=r"s1\.safetensors cannot be read"):
        checkpoint.load(folder)
    small.write_bytes(whole)
    found = checkpoint.load(folder)
    tensors = load_file(small)
    tensors["lm.begin"][0] = torch.nan
    with safe_open(small, framework="pt") as file:
        metadata = file.metadata()
    save_file(tensors, small, metadata=metadata)
    with pytest.raises(WeightsError, match=r"s1\.safetensors: lm\.begin has values that are not finite"):
        checkpoint.load_small(found)
