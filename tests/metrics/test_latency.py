from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from voicelab.errors import ArgumentError
from voicelab.metrics import measure, underruns_at

Figure = Callable[..., tuple[float, str]]


def test_first_audio_and_real_time_factor(sounds: Any, figure: Figure) -> None:
    clip = sounds.arrived((0.12, 24_000), (0.5, 24_000))
    assert figure(clip, "first_audio_s")[0] == 0.12
    assert figure(clip, "rtf")[0] == 0.5


def test_underruns_are_counted(sounds: Any, figure: Figure) -> None:
    # Quarters of a second of audio. Playback begins at 0.1 and has 0.25 s: it runs dry at 0.35, goes on at 0.5 until
    # 0.75, stands until 0.9, and then has enough.
    clip = sounds.arrived((0.1, 12_000), (0.5, 12_000), (0.9, 12_000), (1.0, 12_000))
    assert figure(clip, "underruns")[0] == 2
    assert figure(clip, "stalled_s")[0] == pytest.approx(0.3)
    # Half a second behind at 0.9 of what began at 0.1: playback must begin 0.3 s later.
    assert figure(clip, "buffer_needed_s")[0] == pytest.approx(0.3)
    needed = measure([clip], [underruns_at(0.25), underruns_at(0.5), underruns_at(5.0)])
    assert needed.iloc[0, :3].tolist() == [2, 0, 0]
    assert list(needed)[:2] == ["underruns_250ms", "underruns_500ms"]


def test_fast_stream_has_no_underruns_and_wav_header_is_not_audio(sounds: Any, figure: Figure) -> None:
    # The header comes at 0.0, its audio half a second later: nothing ran dry before there was anything.
    header = sounds.arrived((0.0, 44), (0.5, 24_000), (0.6, 24_000), format="wav")
    for clip in (sounds.arrived(*((0.1 + 0.05 * n, 4800) for n in range(10))), header):
        assert figure(clip, "underruns")[0] == 0
        assert figure(clip, "buffer_needed_s")[0] == pytest.approx(0.0)


def test_clip_without_take_has_no_latency(sounds: Any, figure: Figure) -> None:
    for metric in ("first_audio_s", "rtf", "underruns", "stalled_s", "buffer_needed_s"):
        value, reason = figure(sounds.sine(100, -6, 1.0), metric)
        assert math.isnan(value)
        assert "no take" in reason
    assert "empty" in figure(sounds.arrived((0.1, 10), seconds=0.0), "rtf")[1]


def test_invalid_buffer_is_rejected() -> None:
    with pytest.raises(ArgumentError, match="buffer_s"):
        underruns_at(-0.1)
