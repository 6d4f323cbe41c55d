"""bench/samples.py: the page of the voice shows all samples, and their size is limited."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import samples

from voicelab.clip import Clip

DOCS = samples.ROOT / "docs"
CLIP = Clip(samples=(np.sin(np.arange(22050) / 20) / 2).astype(np.float32), rate=44100)
SECTION = samples.Section(
    "kinds", "Kinds", "Two of them.", (samples.Sample("0.7, take 1", CLIP), samples.Sample("a man", CLIP, "deep"))
)


def test_page_links_every_file() -> None:
    page = samples.PAGE.read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(\.\./((?:sounds|images)/voice/[^)]+)\)", page))
    files = {path for kind in ("sounds", "images") for path in (DOCS / kind / "voice").iterdir()}
    assert {path.relative_to(DOCS).as_posix() for path in files} == linked
    assert len(linked) > 20
    assert sum(path.stat().st_size for path in files) <= samples.MAX_BYTES


def test_insert_is_idempotent() -> None:
    page = f"# A\n\n{samples.BEGIN}\n\nold\n{samples.END}\n\nrest\n"
    generated = samples.markdown([SECTION])
    filled = samples.insert(page, generated)
    assert samples.insert(filled, generated) == filled
    assert "old" not in filled
    assert filled.startswith("# A\n")
    assert filled.endswith("rest\n")
    assert "- [0.7, take 1](../sounds/voice/kinds-0.7-take-1.mp3)\n" in filled
    assert "- [a man](../sounds/voice/kinds-a-man.mp3): deep\n" in filled


def test_figure_of_a_section_is_small(tmp_path: Path) -> None:
    samples.draw(SECTION.samples, tmp_path / "kinds.png")
    assert (tmp_path / "kinds.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "kinds.png").stat().st_size < 40_000
