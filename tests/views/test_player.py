from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voicelab.views
from tests.tones import ToneBackend, there
from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, AudioError
from voicelab.lab import Lab
from voicelab.views.player import Player, SpectrogramScale, clip_arrivals, pcm_bytes, spectrum_bytes
from voicelab.views.scripts import inlined


class Heard(Player):
    """A player that also keeps what it sends to its front end."""

    def __init__(self, clip: Clip | None = None) -> None:
        self.sent: list[tuple[dict[str, Any], bytes]] = []
        super().__init__(clip)

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self.sent.append((content, b"".join(buffers or ())))

    def kinds(self) -> list[str]:
        return [message["kind"] for message, _ in self.sent]


def tone(rate: int = 24_000) -> Clip:
    return Clip((0.5 * np.sin(np.arange(rate // 10) / 9)).astype(np.float32), rate)


def ready(player: Heard) -> None:
    player._handle_custom_msg({"kind": "ready"}, [])


def test_pcm_bytes_are_16_bit_samples() -> None:
    assert (
        pcm_bytes(np.array([0.0, 0.5, -1.0, 1.0], np.float32)) == np.array([0, 16384, -32768, 32767], "<i2").tobytes()
    )


def test_fed_samples_are_sent_in_order_with_their_offsets() -> None:
    player, clip = Heard(), tone()
    player.begin(clip.rate)
    player.feed(clip.samples[:1000])
    player.feed(clip.samples[1000:])
    player.end()
    assert player.kinds() == ["begin", "audio", "audio", "end"]
    assert [message.get("start") for message, _ in player.sent] == [None, 0, 1000, None]
    assert b"".join(data for _, data in player.sent) == pcm_bytes(clip.samples)
    assert player.sent[-1][0]["samples"] == len(player) == len(clip)
    assert {message["take"] for message, _ in player.sent} == {1}


def test_late_view_gets_all_content_without_autoplay() -> None:
    player = Heard(tone())
    player.sent.clear()
    ready(player)
    assert player.kinds() == ["begin", "audio", "end"]
    assert player.sent[1][1] == pcm_bytes(tone().samples)
    assert not player.sent[0][0]["autoplay"]


def test_view_opened_during_streaming_continues_playback() -> None:
    player = Heard()
    player.begin(24_000)
    player.feed(tone().samples)
    player.sent.clear()
    ready(player)
    assert player.kinds() == ["begin", "audio"]
    assert player.sent[0][0]["autoplay"]


def test_arrivals_exclude_the_wav_header() -> None:
    pcm, wav = (Lab(ToneBackend()).speak("Three.", format=name) for name in ("pcm", "wav"))
    samples = [size // 2 for _, size in there(pcm.take).timing.arrivals]
    assert [count for _, count in clip_arrivals(wav)] == samples
    assert [count for _, count in clip_arrivals(pcm)] == samples


def test_empty_player_and_unknown_messages_send_nothing() -> None:
    player = Heard()
    ready(player)
    player._handle_custom_msg({"kind": "nonsense"}, [])
    assert player.sent == []
    assert player


def test_begin_replaces_the_content() -> None:
    player = Heard(tone())
    player.begin(8_000)
    assert (len(player), player.rate) == (0, 8_000)
    assert player.sent[-1][0]["take"] == 2


@pytest.mark.parametrize("rate", [4_000, 192_000])
def test_unsupported_sample_rates_are_resampled(rate: int) -> None:
    player = Heard(tone(rate))
    assert player.rate == 44_100
    assert player.duration == pytest.approx(0.1, abs=0.001)


def test_invalid_samples_and_rates_raise() -> None:
    player = Player()
    with pytest.raises(AudioError, match="samples"):
        player.feed(np.zeros((2, 2), np.float32))
    with pytest.raises(AudioError, match="rate"):
        player.begin(0)


def test_regions_are_saved_and_cut(tmp_path: Path) -> None:
    player = Player(tone())
    player.regions = [("click", 0.02, 0.05), WordTime("hum", 0.06, 0.1)]
    assert player.regions == Words((WordTime("click", 0.02, 0.05), WordTime("hum", 0.06, 0.1)))
    assert Words.load(player.regions.save(tmp_path / "marked.TextGrid")) == player.regions
    assert player.cut("hum") == player.cut(1)
    assert player.cut().duration == pytest.approx(0.03)
    np.testing.assert_array_equal(player.cut().samples, player.clip.samples[480:1200])
    for wrong in ("hiss", 2):
        with pytest.raises(ArgumentError, match=r"region: unknown region.*'click', 'hum'"):
            player.cut(wrong)
    with pytest.raises(AudioError, match=r"regions: the end of 'late' must be at most 0\.10+ s, got 0\.2 s"):
        player.regions = [("late", 0.0, 0.2)]
    player.show(tone())
    assert player.regions == ()


@pytest.mark.parametrize(
    ("scale", "part", "window", "columns"),
    [("mel", (0.5, 2.5), 0.04, 1600), ("linear", (1.0, 1.5), 0.01, 500), ("mel", (2.95, 3.0), 0.005, 50)],
)
def test_zoomed_spectrogram_has_a_shorter_window(
    scale: SpectrogramScale, part: tuple[float, float], window: float, columns: int
) -> None:
    rate = 24_000
    samples = np.zeros(3 * rate, np.float32)
    samples[int(1.25 * rate)] = samples[int(2.97 * rate)] = 1.0  # clicks: as wide in the picture as its window
    about, levels = spectrum_bytes(Clip(samples, rate), scale, part)
    assert about["window"] == pytest.approx(window)
    inside = (part[1] - part[0]) / about["hop"]
    assert inside == pytest.approx(columns, rel=0.1)
    assert about["start"] <= part[0]
    level = np.frombuffer(levels, np.uint8).reshape(about["bands"], about["columns"]).max(axis=0).astype(float)
    loud = np.flatnonzero(level > level.max() - 10)
    assert about["start"] + loud.mean() * about["hop"] == pytest.approx(2.97 if part[0] > 2 else 1.25, abs=0.002)
    assert loud.size * about["hop"] < window


def test_repr_is_reproducible() -> None:
    assert repr(Player(tone())) == "Player(0.10 s, 24000 Hz)"


def test_widgets_load_no_external_resources() -> None:
    static = Path(voicelab.views.__file__).parent / "static"
    files = sorted(static.iterdir())
    assert {"player.css", "player.js"} <= {file.name for file in files}
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "http" not in text
        assert not re.search(r"import\((?!url\))", text), "url is a blob's"
        assert "@import" not in text
        assert len(text.splitlines()) <= 400


@pytest.mark.parametrize(
    "widget", ["player", "compare", "controls", "takes", "listening", "recorder", "message", "code"]
)
def test_bundled_modules_have_distinct_names(widget: str) -> None:
    """They become one file, in which a second ``const FONT`` is a syntax error that shows nothing."""
    names = re.findall(r"^(?:const|let|(?:async )?function|class) (\w+)", inlined(f"{widget}.js"), re.MULTILINE)
    assert len(names) > 1
    assert [name for name in set(names) if names.count(name) > 1] == []
