"""bench/samples.py: the page of the voice shows what there is, all of it, and it stays small."""

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


def test_the_page_shows_every_file_and_no_other() -> None:
    page = samples.PAGE.read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(\.\./((?:sounds|images)/voice/[^)]+)\)", page))
    there = {path for kind in ("sounds", "images") for path in (DOCS / kind / "voice").iterdir()}
    assert {path.relative_to(DOCS).as_posix() for path in there} == shown
    assert len(shown) > 20
    assert sum(path.stat().st_size for path in there) <= samples.MOST_BYTES


def test_what_is_made_goes_between_its_comments_however_often() -> None:
    page = f"# A\n\n{samples.BEGIN}\n\nold\n{samples.END}\n\nrest\n"
    made = samples.markdown([SECTION])
    once = samples.placed(page, made)
    assert samples.placed(once, made) == once
    assert "old" not in once
    assert once.startswith("# A\n")
    assert once.endswith("rest\n")
    assert "- [0.7, take 1](../sounds/voice/kinds-0.7-take-1.mp3)\n" in once
    assert "- [a man](../sounds/voice/kinds-a-man.mp3): deep\n" in once


def test_a_picture_of_a_section_is_small(tmp_path: Path) -> None:
    samples.draw(SECTION.samples, tmp_path / "kinds.png")
    assert (tmp_path / "kinds.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "kinds.png").stat().st_size < 40_000
