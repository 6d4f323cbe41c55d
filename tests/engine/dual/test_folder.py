"""A folder of open weights: verification of files, and license acceptance."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.dual.tiny import write_model
from tests.engine.dual.tiny_codec import save_codec, tiny_tensors
from voicelab.engine.dual.folder import (
    ACCEPT_VARIABLE,
    LICENSES,
    PUBLISHED,
    PublishedFile,
    check_weights,
    require_accepted,
)
from voicelab.errors import LicenseRequired
from voicelab.schema import Model

PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny S2-Pro with listed sizes and digests."""
    model = write_model(tmp_path / "s2-pro", "s2-pro")
    save_codec(model / "codec.pth", tiny_tensors())
    _list(model, monkeypatch, *PARTS, "codec.pth")
    return model


def _list(model: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    files = {name: (model / name).read_bytes() for name in names}
    listed = {name: PublishedFile(len(data), hashlib.sha256(data).hexdigest()[:8]) for name, data in files.items()}
    monkeypatch.setitem(PUBLISHED, "s2-pro", listed)


def _problems(path: Path) -> dict[str, str]:
    return {report.path.name: report.problem for report in check_weights(path) if report.problem}


def test_report_separates_verified_from_unverified(folder: Path) -> None:
    reports = {report.path.name: report for report in check_weights(folder)}
    assert _problems(folder) == {}
    assert set(reports) == {"config.json", "tokenizer.json", "model.safetensors.index.json", *PARTS, "codec.pth"}
    assert not any(reports[name].unverified for name in (*PARTS, "codec.pth"))
    assert "of which the first 8 digits are listed" in reports["codec.pth"].verified[-1]
    assert "tensors of the codec's shapes" in str(reports["codec.pth"])
    assert "tensors of the shapes that config.json gives" in str(reports["model.safetensors.index.json"])
    assert str(reports["config.json"]).count("not listed") == 2


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (lambda data: data[:-4], "truncated|bytes as published"),
        (lambda data: data + b"\0", "bytes as published, got"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "must begin with .* as published"),
    ],
)  # fmt: skip
def test_a_changed_file_is_named(folder: Path, harm: Callable[[bytes], bytes], error: str) -> None:
    path = folder / PARTS[1]
    path.write_bytes(harm(path.read_bytes()))
    assert re.search(error, _problems(folder)[path.name])


def test_disputed_digest_is_not_a_problem(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (folder / "codec.pth").stat().st_size
    monkeypatch.setitem(PUBLISHED["s2-pro"], "codec.pth", PublishedFile(size, "00000000", disputed=True))
    (report,) = [one for one in check_weights(folder) if one.path.name == "codec.pth"]
    assert not report.problem
    assert report.unverified[0].endswith("in which the lists differ")


def test_wrong_tensor_shape_is_named(folder: Path) -> None:
    tensors = load_file(folder / PARTS[0])
    name = next(name for name in tensors if name.endswith("wo.weight"))
    save_file({**tensors, name: torch.zeros(3, 3)}, folder / PARTS[0])
    assert "wo.weight must have the shape" in _problems(folder)["model.safetensors.index.json"]


def test_published_sizes_equal_tensors_plus_headers() -> None:
    files = PUBLISHED["s2-pro"]
    weights = sum(files[name].bytes or 0 for name in PARTS)
    assert weights - 2 * 4_561_852_416 == 44_256


FOLDER = Path("weights")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(ACCEPT_VARIABLE, raising=False)


def test_unaccepted_license_shows_terms_and_command() -> None:
    with pytest.raises(LicenseRequired) as raised:
        require_accepted(["s2-pro", "s1"], FOLDER)
    for part in (
        "research and non-commercial",
        "Built with Fish Audio",
        "CC BY-NC-SA 4.0",
        "voicelab weights accept weights",
    ):
        assert part in str(raised.value)
    assert str(raised.value).endswith(f"{ACCEPT_VARIABLE}=fish-audio-research,cc-by-nc-sa-4.0")


def test_training_opens_no_backend() -> None:
    """The embedded voice is trained on recordings and other models; its training opens no backend."""
    for path in (Path(__file__).parents[3] / "training").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"engine\.(dual|local|speech)|LocalBackend|open_backend|\bconnect\(", text), path.name


def test_acceptance_is_saved(tmp_path: Path) -> None:
    LICENSES["s2-pro"].accept()
    accepted, notice = require_accepted(["s2-pro"], FOLDER)
    assert accepted == f"Fish Audio Research License of 2026-03-07 (accepted {datetime.now(UTC).date()})"
    assert notice.startswith(
        "Built with Fish Audio. This model is licensed under the Fish Audio Research License, Copyright ©"
    )
    with pytest.raises(LicenseRequired, match=r"^S1-mini is under"):
        require_accepted(["s2-pro", "s1"], FOLDER)
    (tmp_path / "home" / "licenses.json").write_text("{")
    with pytest.raises(LicenseRequired):
        require_accepted(["s2-pro"], FOLDER)


@pytest.mark.parametrize(
    ("value", "models"),
    [
        ("fish-audio-research", ["s2-pro"]),
        ("cc-by-nc-sa-4.0", ["s1"]),
        ("fish-audio-research, cc-by-nc-sa-4.0", ["s2-pro", "s1"]),
        ("1", ["s2-pro", "s1"]),
        ("0", []),
    ],
)
def test_license_acceptance_by_environment_variable(
    monkeypatch: pytest.MonkeyPatch, value: str, models: list[Model]
) -> None:
    monkeypatch.setenv(ACCEPT_VARIABLE, value)
    assert [model for model in LICENSES if LICENSES[model].accepted] == models
    accepted, _ = require_accepted(models, FOLDER)
    assert accepted.count(f"(accepted by {ACCEPT_VARIABLE})") == len(models)
