"""The comparison's aligner by itself: between the knots in a straight line, there and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voicelab.views.scripts import STATIC

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCE = (STATIC / "compare-aligner.js").read_text(encoding="utf-8")
FIRST = [0.0, 0.4, 1.0, 1.1, 3.0]
CLIPS = ([0.0, 0.5, 0.9, 1.9, 2.5], [0.1, 0.2, 1.4, 1.5, 6.0])
"""Moments of two clips that belong to those of the first."""


def warp(page: Page, asked: list[tuple[int, int, float]]) -> list[float]:
    page.goto("about:blank")
    script = """async ([source, knots, asked]) => {
      const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
      const { warped } = await import(url);
      const clips = knots.map((pairs) => ({ knots: pairs }));
      return asked.map(([from, to, seconds]) => warped(clips, from, to, seconds));
    }"""
    knots = [list(zip(FIRST, moments, strict=True)) for moments in (FIRST, *CLIPS)]
    found: list[Any] = page.evaluate(script, [SOURCE, knots, asked])
    return [float(moment) for moment in found]


def test_moments_are_where_interpolation_puts_them(page: Page) -> None:
    moments = np.random.default_rng(1).uniform(0, 3, 200)
    there = warp(page, [(0, 1, float(moment)) for moment in moments])
    assert np.allclose(there, np.interp(moments, FIRST, CLIPS[0]))
    between = np.random.default_rng(2).uniform(0.1, 6, 200)
    across = warp(page, [(2, 1, float(moment)) for moment in between])
    assert np.allclose(across, np.interp(np.interp(between, CLIPS[1], FIRST), FIRST, CLIPS[0]))


def test_there_and_back_and_beyond_the_ends(page: Page) -> None:
    moments = [0.0, 0.4, 0.7, 1.05, 2.999, 3.0]
    there = warp(page, [(0, 2, moment) for moment in moments])
    assert np.allclose(warp(page, [(2, 0, moment) for moment in there]), moments)
    assert warp(page, [(0, 2, -1.0), (0, 2, 9.0), (2, 0, 0.0), (1, 0, 99.0)]) == [0.1, 6.0, 0.0, 3.0]
    # From a clip to itself nothing is moved, not even beyond its knots.
    assert warp(page, [(2, 2, 7.5), (0, 0, 0.3)]) == [7.5, 0.3]
