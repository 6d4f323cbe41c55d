"""The license of open weights: without acceptance nothing speaks, and what was accepted is written down."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from voicelab.engine.dual.terms import ACCEPT_VARIABLE, LICENSES, require_accepted
from voicelab.errors import LicenseRequired
from voicelab.schema import Model

FOLDER = Path("weights")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(ACCEPT_VARIABLE, raising=False)


def test_who_has_not_accepted_reads_the_terms_and_how_to() -> None:
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


def test_no_speech_of_these_models_gets_into_training() -> None:
    """The embedded voice is made of recordings and of other voices: its training opens no backend at all."""
    for path in (Path(__file__).parents[3] / "training").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"engine\.(dual|local|speech)|LocalBackend|open_backend|\bconnect\(", text), path.name


def test_what_was_accepted_stays_so(tmp_path: Path) -> None:
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
def test_a_script_accepts_by_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, models: list[Model]) -> None:
    monkeypatch.setenv(ACCEPT_VARIABLE, value)
    assert [model for model in LICENSES if LICENSES[model].accepted] == models
    accepted, _ = require_accepted(models, FOLDER)
    assert accepted.count(f"(accepted by {ACCEPT_VARIABLE})") == len(models)
