"""What the lanes of a player write beside their pictures: labels that can be read, and none where there is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from voicelab.clip import Clip
from voicelab.views.player import SpectrogramScale, spectrum_bytes
from voicelab.views.scripts import inlined

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCE = "\n".join(inlined(f"player-{name}.js").replace("export ", "") for name in ("samples", "timeline", "lanes"))
MODULE = """
const code = source + "\\nexport { Samples, Timeline, Spectrum, Arrivals, drawWaveform };";
const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
const { Samples, Timeline, Spectrum, Arrivals, drawWaveform } = await import(url);
const canvas = Object.assign(document.createElement("canvas"), { style: "width:600px;height:128px;display:block" });
document.body.append(canvas);
const written = [];
canvas.getContext("2d").fillText = (text, x, y) => written.push([text, x, y]);
const samples = new Samples(24000);
const timeline = new Timeline(samples);
"""


def run(page: Page, body: str, **given: Any) -> Any:
    """Run JavaScript with the classes of the lanes, a canvas, and what it ``written``; return its value."""
    page.goto("about:blank")
    return page.evaluate(f"async ({{ source, given }}) => {{{MODULE}{body}}}", {"source": SOURCE, "given": given})


@pytest.mark.parametrize(("scale", "rate"), [("mel", 44_100), ("mel", 8_000), ("linear", 44_100), ("linear", 16_000)])
def test_labels_of_frequencies_neither_touch_nor_leave_the_picture(
    page: Page, scale: SpectrogramScale, rate: int
) -> None:
    told, levels = spectrum_bytes(Clip((0.1 * np.sin(np.arange(rate) / 5)).astype(np.float32), rate), scale)
    body = """
    const spectrum = new Spectrum();
    spectrum.set(given.told, Uint8Array.from(given.levels).buffer);
    samples.add(0, new Int16Array(24000).buffer);
    spectrum.draw(canvas, { samples, timeline }, 80, "");
    return written;
    """
    written = run(page, body, told={**told, "scale": scale}, levels=list(levels))
    assert len(written) >= 2
    lines = sorted(y for _, _, y in written)
    assert min(np.diff(lines)) >= 10
    assert lines[0] >= 8
    assert lines[-1] <= 128 - 2
    assert {"2 kHz", "5 kHz"} & {text for text, _, _ in written}


def test_a_player_with_nothing_in_it_shows_no_times(page: Page) -> None:
    body = """
    drawWaveform(canvas, { samples, timeline, position: 0, ink: {} });
    const before = written.length;
    samples.add(0, new Int16Array(24000).buffer);
    drawWaveform(canvas, { samples, timeline, position: 0, ink: {} });
    new Spectrum().draw(canvas, { samples, timeline }, 80, "being made");
    return [before, written.map(([text]) => text)];
    """
    before, after = run(page, body)
    assert before == 0
    assert {"0.0 s", "0.4 s", "being made"} <= set(after)
    assert "1.0 s" not in after, "it would stand beyond the edge"


def test_chunks_are_early_or_late_by_what_had_sounded_by_then(page: Page) -> None:
    body = """
    const arrivals = new Arrivals();
    samples.add(0, new Int16Array(72000).buffer);
    arrivals.add([[0.5, 0, 24000], [1.0, 24000, 24000], [2.75, 48000, 24000]]);
    arrivals.add([[1.0, 24000, 24000]]);
    return [
      arrivals.figures(samples, 1), arrivals.told(30000, 24000), arrivals.told(60000, 24000), arrivals.told(72000, 24000),
    ];
    """
    figures, early, late, none = run(page, body)
    assert figures == "first audio 0.50 s · RTF 0.92 · 3 chunks · 1 underrun"
    assert early == "Chunk 2, 1.00 to 2.00 s: arrived 1.000 s after the call, 0.500 s early"
    assert late.endswith("arrived 2.750 s after the call, 0.250 s late")
    assert none == ""
