"""What the comparison's panel sends to its page, and what stays of it without one."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from typing import Any

import numpy as np
import pytest

from tests.tones import ToneBackend, until
from voicelab.clip import Clip
from voicelab.lab import Lab
from voicelab.metrics.level import loudness
from voicelab.metrics.metric import Subject
from voicelab.schema import ReferenceAudio
from voicelab.takes.comparison import Comparison, compare
from voicelab.views.comparison_panel import ComparePanel, comparison_bundle


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    lab = Lab(ToneBackend())
    return compare(lab.speak("Eight notes.", seed=1), fast=lab.speak("Eight notes.", seed=2, speed=2))


def open_page(panel: ComparePanel, monkeypatch: pytest.MonkeyPatch, messages: int) -> list[tuple[dict[str, Any], Any]]:
    """Open a page of the panel and return what it is sent."""
    sent: list[tuple[dict[str, Any], Any]] = []
    monkeypatch.setattr(panel, "send", lambda *message: sent.append(message))
    panel._on_message(panel, {"kind": "ready"}, [])
    until(lambda: len(sent) >= messages, 60)
    return sent


def test_audio_is_sent_before_figures(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = ComparePanel(comparison)
    (clips, sounds), (figures, lines) = open_page(panel, monkeypatch, 2)
    assert [clip["name"] for clip in clips["clips"]] == ["A", "fast"]
    assert len(sounds) == 4
    pitch, level = (np.frombuffer(line, np.float32) for line in lines)
    assert np.array_equal(pitch, comparison.contours["fast"].f0.astype(np.float32), equal_nan=True)
    assert pitch.shape == level.shape
    asked, measured = figures["tables"]
    assert asked["heads"] == ["", "A", "fast"]
    assert asked["rows"] == [["speed", "1.0", "2.0"], ["seed", "1", "2"]]
    assert measured["rows"][0][0] == "Duration, s"
    assert ["Pauses", "0", "0"] in measured["rows"]
    assert [row[0] for row in measured["rows"][-2:]] == ["F0 median, Hz", "F0 range, semitones"]
    panel.close()


def test_request_differences_show_reference_counts_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(ToneBackend())
    spoken = lab.speak("Eight notes.", references=[ReferenceAudio(audio=b"x", text="")])
    panel = ComparePanel(compare(spoken, lab.speak("Others.")))
    _, (figures, _) = open_page(panel, monkeypatch, 2)
    (asked, _) = figures["tables"]
    (recordings,) = (row for row in asked["rows"] if row[0] == "references")
    assert recordings[1] == f"1 recording (#{hashlib.sha256(b'x').hexdigest()[:4]})"
    assert recordings[2] == "–"
    assert "aligned by time: the clips have different texts" in figures["middles"][0]
    panel.close()


def test_clips_without_a_request_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(ToneBackend())
    noise = Clip(np.ones(24_000, np.float32) * 0.1, 24_000)
    clips = {"one": lab.speak("Eight.", seed=1), "two": lab.speak("Eight.", seed=2), "file": noise}
    for names, title, rows, empty in (
        (("one", "two", "file"), "Request differences (without a request: file)", [["seed", "1", "2"]], None),
        (("one", "file"), None, [], "Without a request: file."),
    ):
        panel = ComparePanel(compare(**{name: clips[name] for name in names}))
        _, (figures, _) = open_page(panel, monkeypatch, 2)
        asked, measured = figures["tables"]
        assert asked["rows"] == rows
        assert title in {asked["title"], None}
        assert empty in {asked["empty"], None}
        assert measured["heads"] == ["", *names]
        panel.close()


def test_a_failure_is_sent_to_the_page(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Comparison) -> tuple[dict[str, Any], list[bytes]]:
        raise MemoryError("too long")

    monkeypatch.setattr("voicelab.views.comparison_panel._sounds", fail)
    panel = ComparePanel(comparison)
    assert open_page(panel, monkeypatch, 1)[0][0] == {"kind": "failed", "text": "MemoryError: too long"}
    panel.close()


def test_closed_panel_sends_nothing(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = ComparePanel(comparison)
    panel.close()
    sent: list[object] = []
    monkeypatch.setattr(panel, "send", lambda *message: sent.append(message))
    panel._on_message(panel, {"kind": "ready"}, [])
    for thread in threading.enumerate():
        if thread.name == "voicelab-comparison":
            thread.join(30)
    assert sent == []


def tone(level: float, seconds: float = 2.0) -> Clip:
    return Clip(
        (level * np.sin(2 * np.pi * 1000 * np.arange(int(seconds * 24_000)) / 24_000)).astype(np.float32), 24_000
    )


def test_static_output_is_loudness_matched() -> None:
    html = comparison_bundle(compare(loud=tone(0.4), quiet=tone(0.1)))["text/html"]
    kept = [Clip.load(base64.b64decode(found)) for found in re.findall(r"data:audio/mpeg;base64,([^\"]+)", html)]
    loud, quiet = (loudness(Subject(clip)) for clip in kept)
    assert loud == pytest.approx(quiet, abs=0.2)
    assert re.search(r"-12\.[01] dB, matched to", html)


def test_clip_without_loudness_stays_unmatched(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compare(loud=tone(0.4), short=tone(0.1, 0.2), quiet=tone(0.1))
    html = comparison_bundle(comparison)["text/html"].partition("<img")[0]
    assert (html.count("matched to"), html.count("level unmatched: ")) == (2, 1)
    panel = ComparePanel(comparison)
    (clips, _), _ = open_page(panel, monkeypatch, 2)
    loud, short, quiet = (clip["gain"] for clip in clips["clips"])
    assert (clips["lufs"] is None, short) == (False, None)
    assert quiet - loud == pytest.approx(12.04, abs=0.02)
    panel.close()


def test_clips_without_loudness_are_all_unmatched(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compare(silent=tone(0.0), short=tone(0.1, 0.2))
    html = comparison_bundle(comparison)["text/html"].partition("<img")[0]
    assert (html.count("matched to"), html.count("level unmatched: ")) == (0, 2)
    panel = ComparePanel(comparison)
    (clips, _), _ = open_page(panel, monkeypatch, 2)
    assert (clips["lufs"], [clip["gain"] for clip in clips["clips"]]) == (None, [None, None])
    panel.close()


def test_silence_is_dark_and_dollar_signs_are_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = compare(**{"$x_$": tone(0.0), "$1_a$": tone(0.1)})
    assert comparison_bundle(comparison)["image/png"]
    panel = ComparePanel(comparison)
    (_, buffers), _ = open_page(panel, monkeypatch, 2)
    silent, loud = (np.frombuffer(buffer, np.uint8) for buffer in buffers[1::2])
    assert silent.max() < 255 / 3
    assert loud.max() == 255
    panel.close()
