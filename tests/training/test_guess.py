"""The guess learns the lexicon that it is given, and goes on where it was cut off."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from training import common, guess

WORDS = {a + b + c: f"{a} ax0 {b} ih0 {c}" for a in "bdfgk" for b in "lmnpst" for c in "bdfgklmn"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(guess, "HELD", 20)
    lines = "".join(f"{word}\t{phones}\n" for word, phones in WORDS.items())
    (tmp_path / "lexicon.txt.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def test_it_goes_on_where_it_was_cut_off(folder: Path) -> None:
    guess.train(folder, None, 5, batch_size=16)
    first = common.read_meta(folder / "guess-run.safetensors")
    assert first["step"] == 5
    made = load_file(folder / "guess.safetensors")
    guess.train(folder, None, 5, batch_size=16)
    assert common.read_meta(folder / "guess-run.safetensors") == first
    assert all(torch.equal(made[k], v) for k, v in load_file(folder / "guess.safetensors").items())
    guess.train(folder, None, 8, batch_size=16)
    second = common.read_meta(folder / "guess-run.safetensors")
    assert second["step"] == 8
    assert second["spent"] > first["spent"]


@pytest.mark.thorough
def test_it_learns_the_lexicon_in_the_folder(folder: Path) -> None:
    figures = guess.train(folder, None, 250, batch_size=32)
    assert figures["phone_error"] < 0.25
