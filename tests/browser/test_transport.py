"""The scheduler of the player, on an audio context that renders instead of sounding: gap-free to the sample."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from voicelab.views.scripts import inlined

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCE = "\n".join(
    [*(inlined(f"player-{name}.js").replace("export ", "") for name in ("samples", "transport", "timeline")), ""]
)
EXPORTS = "export { Samples, Transport, Timeline };"
RATE = 24_000
MODULE = """
const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
const { Samples, Transport, Timeline } = await import(url);
const pcm = Uint8Array.from(atob(data), (c) => c.charCodeAt(0)).buffer;
"""


def run(page: Page, body: str, samples: np.ndarray[Any, np.dtype[np.int16]], *, touch: bool = False) -> Any:
    """Run JavaScript with the module's classes and ``pcm`` at hand, and return its value."""
    data = base64.b64encode(samples.astype("<i2").tobytes()).decode("ascii")
    page.goto("about:blank")
    if touch:
        page.mouse.click(5, 5)  # a page may sound only after a touch
    return page.evaluate(f"async ([source, data]) => {{{MODULE}{body}}}", [SOURCE + EXPORTS, data])


def noise(length: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.random.default_rng(1).integers(-30_000, 30_000, length).astype(np.int16)


def same(heard: np.ndarray[Any, np.dtype[np.float32]], sent: np.ndarray[Any, np.dtype[np.int16]]) -> bool:
    """Whether what was heard is what was sent, but for the last bit: a frame's time in seconds is rounded."""
    return len(heard) == len(sent) and bool(np.abs(heard - sent.astype(np.float32) / 32768).max() < 1e-6)


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
    assert same(sound[start : start + len(sent)], sent)
    assert not sound[:start].any()
    assert not sound[start + len(sent) :].any()


def arriving(page: Page, pieces: int, seconds: str, *, silent: int = 0) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Play pieces of 50 ms, each there ``seconds`` (of its number ``n``) after the first: the context stops when one comes.

    The first ``silent`` samples are silent. Returns the frame of the first sample, or of the piece that playback went on
    with after a gap, the underruns, what sounded, and what was sent.
    """
    body = f"""
    const audio = new OfflineAudioContext(1, 2 * {RATE}, {RATE});
    const samples = new Samples({RATE});
    const transport = new Transport(samples, audio);
    const size = {RATE} / 20;
    transport.play(0);
    for (let n = 0; n < {pieces}; n++) {{
      void audio.suspend(0.05 + {seconds}).then(() => {{
        samples.add(n * size, pcm.slice(2 * n * size, 2 * (n + 1) * size));
        transport.schedule();
        void audio.resume();
      }});
    }}
    const rendered = await audio.startRendering();
    return {{ start: transport.anchor.frame, gaps: transport.underruns, sound: Array.from(rendered.getChannelData(0)) }};
    """
    sent = noise(RATE // 20 * pieces)
    sent[:silent] = 50  # below what is audible
    result = run(page, body, sent)
    return int(result["start"]), int(result["gaps"]), np.array(result["sound"], np.float32), sent


def test_speech_that_comes_unevenly_but_faster_than_it_sounds_has_no_gap(page: Page) -> None:
    start, gaps, sound, sent = arriving(page, 24, "0.045 * n + (n % 3 === 2 ? 0.037 : 0)")
    assert gaps == 0
    assert same(sound[start:][: len(sent)], sent)


def test_speech_that_comes_fast_begins_sooner_than_its_first_piece_let_expect(page: Page) -> None:
    """Two pieces are the reserve: the wait for more is over."""
    start, gaps, sound, sent = arriving(page, 12, "0.013 * n")
    assert start / RATE == pytest.approx(0.05 + 0.013 + 0.01, abs=0.011)  # a context stops at whole blocks
    assert gaps == 0
    assert not sound[:start].any()
    assert same(sound[start:][: len(sent)], sent)


@pytest.mark.parametrize("seconds", ["0.02 * n", "0.045 * n", "(n < 2 ? 0.1 * n : 0.055 * n)"])
def test_silence_at_the_start_is_played_at_once_and_the_first_word_waits_for_the_reserve(
    page: Page, seconds: str
) -> None:
    """A gap in the silence is not heard, so it is no underrun, and what is audible has none."""
    silent = 2_760  # samples, within the third piece
    _, gaps, sound, sent = arriving(page, 12, seconds, silent=silent)
    first = int(np.argmax(sound > 0))
    assert first / RATE == pytest.approx(0.06, abs=0.011)
    assert gaps == 0
    audible = int(np.argmax(np.abs(sound) > 0.003))
    assert same(sound[audible:][: len(sent) - silent], sent[silent:])
    assert audible >= first + silent


def test_what_has_come_need_not_be_waited_for(page: Page) -> None:
    """The first piece is what there is to play until the next: the longer it is, the sooner it sounds."""
    body = f"""
    const waits = [];
    for (const size of [240, 1200, 12000]) {{
      const samples = new Samples({RATE});
      const transport = new Transport(samples, new OfflineAudioContext(1, {RATE}, {RATE}));
      transport.play(0);
      samples.add(0, pcm.slice(0, 2 * size));
      transport.schedule();
      waits.push(transport.anchor.frame / {RATE});
    }}
    return waits;
    """
    assert run(page, body, noise(12_000)) == pytest.approx([0.09, 0.05, 0.01], abs=1e-3)


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


@pytest.mark.parametrize("start", [0, 3_000, 2_345])
def test_a_region_repeats_to_the_sample(page: Page, start: int) -> None:
    body = f"""
    const audio = new OfflineAudioContext(1, {RATE}, {RATE});
    const samples = new Samples({RATE});
    samples.add(0, pcm);
    samples.complete = true;
    const transport = new Transport(samples, audio);
    transport.loop([2000, 4001]);
    transport.seek({start});
    transport.play();
    const rendered = await audio.startRendering();
    return {{ start: transport.anchor.frame, sound: Array.from(rendered.getChannelData(0)), at: transport.position }};
    """
    sent = noise(6_000)
    result = run(page, body, sent)
    heard = np.array(result["sound"], np.float32)[int(result["start"]) :]
    first = start if 2_000 <= start < 4_001 else 2_000
    wanted = np.resize(np.roll(sent[2_000:4_001], 2_000 - first), len(heard))
    assert same(heard, wanted)
    assert 2_000 <= result["at"] < 4_001


def test_a_region_of_nothing_is_none_and_the_end_of_a_region_goes_on(page: Page) -> None:
    body = f"""
    const samples = new Samples({RATE});
    samples.add(0, pcm);
    const transport = new Transport(samples, new OfflineAudioContext(1, {RATE}, {RATE}));
    transport.loop([100, 101]);
    const none = transport.region;
    transport.loop([-5, 1e9]);
    const all = transport.region;
    transport.loop(null);
    return [none, all, transport.region];
    """
    assert run(page, body, noise(6_000)) == [None, [0, 6_000], None]


def test_zoom_keeps_the_place_and_stays_within_the_recording(page: Page) -> None:
    body = f"""
    const samples = new Samples({RATE});
    samples.add(0, pcm);
    const timeline = new Timeline(samples);
    const before = timeline.x(4000, 600);
    timeline.zoom(4, 4000);
    const zoomed = [timeline.x(4000, 600) - before, timeline.width];
    timeline.pan(1e9);
    const last = timeline.first + timeline.width;
    timeline.zoom(1e9, 5000);
    const closest = timeline.width;
    timeline.follow(100);
    const followed = [timeline.first <= 100, timeline.ticks(600, 90).length > 1];
    timeline.zoom(1e-9, 0);
    return [...zoomed, last, closest, ...followed, timeline.zoomed, timeline.ticks(600, 90)[1][1]];
    """
    moved, width, last, closest, *rest = run(page, body, noise(12_000))
    assert abs(moved) < 1e-6
    assert [width, last, closest] == [3_000, 12_000, RATE * 0.01]
    assert rest == [True, True, False, "0.1 s"]


def test_a_picture_of_a_long_recording_has_its_peaks(page: Page) -> None:
    body = f"""
    const samples = new Samples({RATE});
    for (let at = 0; at < pcm.byteLength; at += 1002) samples.add(at / 2, pcm.slice(at, at + 1002));
    const low = [], high = [];
    for (let n = 0; n < 10; n++) {{
      const [least, most] = samples.extremes(n * 5120, (n + 1) * 5120);
      low.push(least), high.push(most);
    }}
    return [low, high, samples.extremes(7, 100)];
    """
    sent = noise(51_200)
    low, high, close = run(page, body, sent)
    scaled = sent.astype(np.float64) / 32768
    assert np.allclose(low, scaled.reshape(10, -1).min(axis=1))
    assert np.allclose(high, scaled.reshape(10, -1).max(axis=1))
    assert np.allclose(close, [scaled[7:100].min(), scaled[7:100].max()])


def test_another_speed_keeps_the_pitch(page: Page) -> None:
    body = f"""
    const samples = new Samples({RATE});
    samples.add(0, pcm);
    samples.complete = true;
    const transport = new Transport(samples);
    transport.hasten(0.5);
    transport.play();
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    for (let n = 0; n < 100 && (transport.level() < 0.2 || transport.position < {RATE} / 4); n++) await wait(50);
    const lines = new Float32Array(transport.meter.frequencyBinCount);
    transport.meter.getFloatFrequencyData(lines);
    const loudest = (lines.indexOf(Math.max(...lines)) * {RATE}) / transport.meter.fftSize;
    const place = transport.position / {RATE};
    transport.close();
    const states = [...globalThis[Symbol.for("voicelab.contexts")].values()].map((entry) => entry.users.size);
    return [loudest, place, transport.playing, states];
    """
    tone = (16_000 * np.sin(2 * np.pi * 1000 * np.arange(4 * RATE) / RATE)).astype(np.int16)
    loudest, place, playing, users = run(page, body, tone, touch=True)
    assert abs(loudest - 1000) < 30, "half as fast must not be an octave lower"
    assert place > 0.2
    assert not playing
    assert users == [0]
