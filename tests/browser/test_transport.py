"""The scheduler of the player, on an audio context that renders instead of sounding: gap-free to the sample."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import voicelab.views

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCE = (Path(voicelab.views.__file__).parent / "static" / "player.js").read_text(encoding="utf-8")
RATE = 24_000
MODULE = """
const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
const { Samples, Transport } = await import(url);
const pcm = Uint8Array.from(atob(data), (c) => c.charCodeAt(0)).buffer;
"""


def run(page: Page, body: str, samples: np.ndarray[Any, np.dtype[np.int16]]) -> Any:
    """Run JavaScript with the module's classes and ``pcm`` at hand, and return its value."""
    data = base64.b64encode(samples.astype("<i2").tobytes()).decode("ascii")
    page.goto("about:blank")
    return page.evaluate(f"async ([source, data]) => {{{MODULE}{body}}}", [SOURCE, data])


def noise(length: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.random.default_rng(1).integers(-30_000, 30_000, length).astype(np.int16)


def test_what_sounds_is_what_came_without_a_gap(page: Page) -> None:
    body = f"""
    const audio = new OfflineAudioContext(1, {RATE}, {RATE});
    const samples = new Samples({RATE});
    const transport = new Transport(samples, audio);
    transport.play(0);
    // Uneven pieces, as they come over a network.
    for (let at = 0, n = 0; at < pcm.byteLength; n += 1) {{
      const size = 2 * (101 + 977 * (n % 5));
      samples.add(at / 2, pcm.slice(at, at + size));
      transport.schedule();
      at += size;
    }}
    const rendered = await audio.startRendering();
    return {{ start: transport.anchor.frame, sound: Array.from(rendered.getChannelData(0)) }};
    """
    sent = noise(15_000)
    result = run(page, body, sent)
    sound = np.array(result["sound"], np.float32)
    start = int(result["start"])
    assert np.array_equal(sound[start : start + len(sent)], sent.astype(np.float32) / 32768)
    assert not sound[:start].any()
    assert not sound[start + len(sent) :].any()


def test_pieces_that_come_twice_or_too_early(page: Page) -> None:
    body = f"""
    const samples = new Samples({RATE});
    const first = samples.add(0, pcm.slice(0, 2000));
    const early = samples.add(1500, pcm.slice(3000, 4000));
    const again = samples.add(0, pcm);
    const twice = samples.add(500, pcm.slice(1000, 2000));
    return [first, early, again, twice, samples.length, Array.from(samples.data.subarray(0, samples.length))];
    """
    sent = noise(2_000)
    *answers, length, data = run(page, body, sent)
    assert answers == [True, False, True, True]
    assert length == len(sent)
    assert np.array_equal(np.array(data, np.float32), sent.astype(np.float32) / 32768)


def test_playing_goes_on_from_where_it_was_sought(page: Page) -> None:
    body = f"""
    const audio = new OfflineAudioContext(1, {RATE}, {RATE});
    const samples = new Samples({RATE});
    samples.add(0, pcm);
    const transport = new Transport(samples, audio);
    transport.seek(4000);
    transport.play();
    const rendered = await audio.startRendering();
    return {{ start: transport.anchor.frame, sound: Array.from(rendered.getChannelData(0)) }};
    """
    sent = noise(6_000)
    result = run(page, body, sent)
    heard = np.array(result["sound"], np.float32)[int(result["start"]) :][:2_000]
    assert np.array_equal(heard, sent[4_000:].astype(np.float32) / 32768)
