"""Tables of what is written and what is said, by groups."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

Table = Mapping[str, Mapping[str, str]]


def each_row(table: Table) -> pytest.MarkDecorator:
    """Let a test of (written, said) run for each row."""
    rows = [(group, written, said) for group, of_group in table.items() for written, said in of_group.items()]
    return pytest.mark.parametrize(
        ("written", "said"), [pytest.param(w, s, id=f"{group}-{w[:24]!a}") for group, w, s in rows]
    )
