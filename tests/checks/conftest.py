"""Small notebooks, written as people's are: with the outputs that they gave when they were run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

Write = Callable[..., Path]


def shown(text: str, html: str = "") -> Any:
    """The output of a cell's last value."""
    data = {"text/plain": text} | ({"text/html": html} if html else {})
    return new_output("execute_result", data, execution_count=1)


def displayed(text: str) -> Any:
    """An output that is shown on the way."""
    return new_output("display_data", {"text/plain": text})


def printed(text: str) -> Any:
    """What a cell printed."""
    return new_output("stream", name="stdout", text=text)


def notebook(path: Path, *cells: tuple[Any, ...], **metadata: Any) -> Path:
    """Write a notebook of (source, output, …) cells, executed from the first to the last; return its path."""
    made = [
        new_code_cell(source, execution_count=count, outputs=list(outputs), id=f"c{count}")
        for count, (source, *outputs) in enumerate(cells, start=1)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=made, metadata={"kernelspec": kernel, **metadata}), path)
    return path


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a notebook into the test's own folder."""
    return lambda *cells, name="n.ipynb", **metadata: notebook(tmp_path / name, *cells, **metadata)
