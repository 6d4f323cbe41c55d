from __future__ import annotations

from pathlib import Path

import panels
import pytest

from tests.browser.figures import VARIABLE

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
def test_figures_of_tests_are_collected(tmp_path: Path) -> None:
    assert panels.VARIABLE == VARIABLE
    test = tmp_path / "test_measuring.py"
    test.write_text(
        "from tests.browser.figures import figure\n"
        "def test_first(): figure('a_ms', 1.5)\n"
        "def test_second(): figure('a_ms', 2.5)\n"
    )
    assert panels.measured((str(test),)) == {"a_ms": [1.5, 2.5]}


@pytest.mark.thorough
def test_failing_test_exits(tmp_path: Path) -> None:
    test = tmp_path / "test_failing.py"
    test.write_text("def test_first(): assert False\n")
    with pytest.raises(SystemExit, match="failed"):
        panels.measured((str(test),))


@pytest.mark.parametrize("test", panels.TESTS)
def test_tests_exist(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name or 'test_'}" in (ROOT / path).read_text(encoding="utf-8")
