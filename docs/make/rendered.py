"""Notebooks as offline pages with their committed outputs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# The template's scripts for formulas and old widgets, which our notebooks do not use.
_SCRIPT = re.compile(r"<script[^>]*\bsrc=\"[^\"]*\"[^>]*></script>")
_BACK = '<nav style="margin: 1em 4em; font-family: sans-serif"><a href="../notebooks.html">← all notebooks</a></nav>'
_NOTEBOOK_LINK = re.compile(r'href="([\w-]+)\.ipynb"')


def page(notebook: Path) -> str:
    """Convert a notebook with its saved outputs to HTML; links lead to the pages of the site."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="lab", mathjax_url="", require_js_url="", jquery_url="")  # type: ignore[no-untyped-call]
    html, _ = exporter.from_filename(str(notebook))
    html = _NOTEBOOK_LINK.sub(r'href="\1.html"', _SCRIPT.sub("", html))
    html = html.replace("<main>", f"{_BACK}<main>", 1)
    return html.replace('href="../training/README.md"', 'href="../project/model-card.html"')
