"""Every sentence has a test, and docs/interface.md says which."""

from __future__ import annotations

import pytest

from tests.interface import table
from tests.interface.rules import RULES, each, part, proves
from tests.interface.where import WHERE, home

PACKAGE = table.ROOT / "voicelab"


def test_every_sentence_is_proved() -> None:
    assert [rule for rule, tests in table.proofs().items() if not tests] == []


def test_every_module_that_is_named_is_there() -> None:
    for names in WHERE.values():
        assert names
        for name in names:
            assert (PACKAGE / name).exists(), name
    assert [start for start in WHERE if not any(rule.startswith(start) for rule in RULES)] == []
    assert all(home(rule) for rule in RULES)


def test_every_part_has_its_table() -> None:
    assert {part(rule) for rule in RULES} == set(table.PARTS)


def test_the_page_is_up_to_date() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), "run python tests/interface/table.py"


def test_a_sentence_that_is_not_in_the_document_cannot_be_proved() -> None:
    with pytest.raises(pytest.fail.Exception, match="pitch:type"):
        proves("2.1/pitch:type")(table.page)
    with pytest.raises(pytest.fail.Exception, match="pitch:type"):
        each("2.1/{}:type", ["pitch"])(table.page)
