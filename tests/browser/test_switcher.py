"""Switching between sounds, on an audio context that renders instead of sounding: in step, and without a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from voicelab.views.scripts import STATIC, inlined

if TYPE_CHECKING:
    from playwright.sync_api import Page

RATE = 24_000
SOURCE = (STATIC / "switcher.js").read_text(encoding="utf-8")
# Two sounds that tell where they are: `low` counts up from 0.1, `high` is 0.4 above it at every moment.
SETUP = f"""
const url = URL.createObjectURL(new Blob([source], {{ type: "text/javascript" }}));
const {{ Switcher, FADE }} = await import(url);
const audio = new OfflineAudioContext(1, {2 * RATE}, {RATE});
const ramp = (base, seconds) => {{
  const buffer = audio.createBuffer(1, seconds * {RATE}, {RATE});
  buffer.getChannelData(0).forEach((_, i, data) => (data[i] = base + (0.2 * i) / {RATE}));
  return buffer;
}};
const at = (seconds, work) => audio.suspend(seconds).then(() => (work(), audio.resume()));
"""


def render(page: Page, body: str) -> tuple[Any, dict[str, Any]]:
    page.goto("about:blank")
    script = f"async (source) => {{{SETUP}{body}}}"
    result: dict[str, Any] = page.evaluate(script, SOURCE)
    return np.array(result.pop("sound"), np.float64), result


def test_another_sound_takes_over_at_the_same_moment_without_a_gap(page: Page) -> None:
    sound, told = render(
        page,
        """
        const player = new Switcher(audio);
        player.add("low", ramp(0.1, 2));
        player.add("high", ramp(0.5, 2));
        player.play(0);
        const lead = player.began;
        at(0.5, () => player.select("high"));
        const rendered = await audio.startRendering();
        return { sound: Array.from(rendered.getChannelData(0)), lead, fade: FADE, current: player.current };
        """,
    )
    lead, fade = round(told["lead"] * RATE), round(told["fade"] * RATE)
    time = np.arange(len(sound))
    low = 0.1 + 0.2 * (time - lead) / RATE
    # The switch was asked for at the first block that begins at or after 0.5 s.
    switch = int(np.argmax(np.abs(sound - low)[lead:] > 1e-3)) + lead
    assert 0.5 * RATE <= switch <= (0.5 + 0.02) * RATE
    assert np.abs(sound - low)[lead:switch].max() < 1e-3
    after = slice(switch + fade + 2, len(sound) - 1)
    assert np.abs(sound - low - 0.4)[after].max() < 1e-3
    # In between it only rises: nothing is left out, nothing is heard twice.
    assert np.diff(sound[switch - 1 : switch + fade + 2]).min() > -1e-4
    assert told["current"] == "high"


def test_a_loop_comes_back(page: Page) -> None:
    sound, told = render(
        page,
        """
        const player = new Switcher(audio);
        player.add("low", ramp(0.1, 2));
        player.loop([0.5, 0.75]);
        player.play(0.5);
        let position = 0;
        at(1.4, () => (position = player.position));
        const rendered = await audio.startRendering();
        return { sound: Array.from(rendered.getChannelData(0)), position };
        """,
    )
    heard = sound[int(0.1 * RATE) :]
    assert heard.min() >= 0.2 - 1e-3
    assert heard.max() <= 0.25 + 1e-3
    assert 0.5 <= told["position"] < 0.75


def test_pause_and_seek(page: Page) -> None:
    _, told = render(
        page,
        """
        const player = new Switcher(audio);
        player.add("low", ramp(0.1, 2));
        player.play(0);
        let paused = 0;
        at(0.5, () => { player.pause(); paused = player.position; player.seek(1.5); player.select("none"); });
        await audio.startRendering();
        return { sound: [], paused, position: player.position, playing: player.playing, current: player.current };
        """,
    )
    assert told["paused"] == pytest.approx(0.5, abs=0.02)
    assert (told["position"], told["playing"], told["current"]) == (1.5, False, "low")


def test_a_loop_of_all_is_of_all_of_each(page: Page) -> None:
    sound, told = render(
        page,
        """
        const player = new Switcher(audio);
        player.add("short", ramp(0.1, 1));
        player.add("long", ramp(0.1, 1.5));
        player.loopAll();
        player.play(0.75);
        at(0.1, () => player.select("long"));
        const rendered = await audio.startRendering();
        const long = player.region;
        player.select("short");
        return { sound: Array.from(rendered.getChannelData(0)), long, short: player.region, position: player.position };
        """,
    )
    assert (told["long"], told["short"]) == ([0, 1.5], [0, 1])
    # 0.75 s after it began it is at the end of the long one, and begins again.
    assert sound.max() == pytest.approx(0.1 + 0.2 * 1.5, abs=0.01)
    assert sound[int(1.0 * RATE)] == pytest.approx(0.1 + 0.2 * 0.25, abs=0.01)


def test_a_moment_outside_a_loop_is_its_beginning(page: Page) -> None:
    sound, told = render(
        page,
        """
        const player = new Switcher(audio);
        player.add("low", ramp(0.1, 2));
        player.add("brief", ramp(0.1, 0.8));
        player.loop([1, 1.5]);
        player.play(0);
        let sought = 0;
        at(0.3, () => { player.seek(1.9); sought = player.position; });
        const rendered = await audio.startRendering();
        player.pause();
        // There is no such part of the brief one; of the other there is still.
        player.select("brief");
        const none = player.region;
        player.select("low");
        return { sound: Array.from(rendered.getChannelData(0)), sought, none, back: player.region };
        """,
    )
    heard = sound[sound > 0]  # it takes a moment to go elsewhere
    assert heard.min() >= 0.1 + 0.2 * 1.0 - 1e-3
    assert heard.max() <= 0.1 + 0.2 * 1.5 + 1e-3
    assert told["sought"] == pytest.approx(1.0, abs=0.02)
    assert (told["none"], told["back"]) == (None, [1, 1.5])


HEARD = {  # what is done while two seconds are rendered, and how many of the first sound's 1.8 were heard then
    "to its end": ("", 1.8),
    "begun": ("at(0.2, () => player.pause());", 0.2),
    "its end after a seek": ("at(0.1, () => player.seek(1.5));", 0.4),
    "in two parts": ("at(0.5, () => player.pause()); at(0.6, () => player.play());", 1.8),
    "one part twice": ("at(0.5, () => player.seek(0)); at(1, () => player.pause());", 0.5),
    "its beginning, then another": ("at(0.5, () => player.select('other'));", 0.5),
    "its middle again and again": ("player.loop([0.5, 0.75]);", 0.25),
    "all of it as a loop": ("player.loopAll();", 1.8),
}


@pytest.mark.parametrize("how", HEARD)
def test_a_sound_was_heard_when_all_of_it_has_sounded(page: Page, how: str) -> None:
    body, seconds = HEARD[how]
    _, told = render(
        page,
        f"""
        const player = new Switcher(audio);
        player.add("low", ramp(0.1, 1.8));
        player.add("other", ramp(0.1, 2));
        player.play(0);
        {body}
        await audio.startRendering();
        return {{ sound: [], heard: player.heard("low"), other: player.heard("other") }};
        """,
    )
    assert told["heard"] == pytest.approx(seconds / 1.8, abs=0.02)
    assert (told["heard"] == 1) == (seconds == 1.8)
    assert told["other"] < 1


def test_modules_are_inlined_once_and_whole() -> None:
    text = inlined("listening.js")
    assert text.count("class Switcher") == 1
    assert "import {" not in text
    assert "export default" in text
    assert text.index("class Switcher") < text.index("class Test")
