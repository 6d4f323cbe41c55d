"""Training of the letter-to-sound model: it learns the lexicon, and resumes."""

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
    monkeypatch.setattr(guess, "HELD_OUT", 20)
    lines = "".join(f"{word}\t{phones}\n" for word, phones in WORDS.items())
    (tmp_path / "lexicon.txt.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def test_training_resumes(folder: Path) -> None:
    guess.train(folder, None, 5, batch_size=16)
    completed = common.read_meta(folder / "guess-run.safetensors")
    assert completed["step"] == 5
    weights = load_file(folder / "guess.safetensors")
    guess.train(folder, None, 5, batch_size=16)
    assert common.read_meta(folder / "guess-run.safetensors") == completed
    assert all(torch.equal(weights[k], v) for k, v in load_file(folder / "guess.safetensors").items())
    guess.train(folder, None, 8, batch_size=16)
    resumed = common.read_meta(folder / "guess-run.safetensors")
    assert resumed["step"] == 8
    assert resumed["spent"] > completed["spent"]


@pytest.mark.thorough
def test_lexicon_is_learned(folder: Path) -> None:
    figures = guess.train(folder, None, 250, batch_size=32)
    assert figures["phone_error"] < 0.25
