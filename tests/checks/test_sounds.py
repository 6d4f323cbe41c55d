"""Embedded audio is compared by content, for all encodings and embeddings."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nbformat.v4 import new_output

from voicelab.checks.compare import Masks, OutputComparison
from voicelab.checks.sounds import ENCODING, audible_change, audio_difference
from voicelab.clip import Clip
from voicelab.lab import Lab, connect
from voicelab.takes.replay import Tolerance

TEXT = "The birch canoe slid on the smooth planks."
OTHER = "Glue the sheet to the dark blue background."


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with connect() as opened:
        yield opened


@pytest.fixture(scope="module")
def clip(lab: Lab) -> Clip:
    return lab.speak(TEXT, seed=1)


def coded(clip: Clip, format: Any = "mp3", bitrate: int | None = None) -> str:
    return base64.b64encode(clip.to_bytes(format, bitrate=bitrate)).decode()


@pytest.mark.parametrize(("format", "bitrate"), [("mp3", 64), ("mp3", 192), ("opus", 48), ("opus", 64), ("wav", None)])
def test_encodings_of_a_clip_are_equal(clip: Clip, format: str, bitrate: int | None) -> None:
    encoded = coded(clip, format, bitrate)
    assert encoded != coded(clip)
    assert audio_difference(coded(clip), encoded) is None
    assert audio_difference(encoded, coded(clip)) is None


def test_codec_delay_is_tolerated(clip: Clip) -> None:
    for samples in (600, 1105, 2000):
        late = Clip(np.concatenate((np.zeros(samples, np.float32), clip.samples)), clip.rate)
        assert audio_difference(coded(clip), coded(late)) is None


def test_different_audio(lab: Lab, clip: Clip) -> None:
    others = {
        "voice": lab.speak(TEXT, seed=1, voice="clara"),
        "sentence": lab.speak(OTHER, seed=1),
        "both": lab.speak(OTHER, seed=1, voice="clara"),
        "word": lab.speak(TEXT.replace("planks", "banks"), seed=1),
        "take": lab.speak(TEXT, seed=2),
        "speed": lab.speak(TEXT, seed=1, prosody={"speed": 1.05}),
        "louder": clip.gain(1.5) if hasattr(clip, "gain") else Clip(clip.samples * 1.19, clip.rate),
        "cut": clip.slice(0.0, clip.duration - 0.2),
        "reversed": Clip(clip.samples[::-1].copy(), clip.rate),
        "silence": Clip(np.zeros_like(clip.samples), clip.rate),
    }
    assert [name for name, other in others.items() if audio_difference(coded(clip), coded(other)) is None] == []
    assert [name for name, other in others.items() if audio_difference(coded(other), coded(clip)) is None] == []
    silence = others["silence"]
    assert audio_difference(coded(silence), coded(silence, "wav")) is None
    # The same length and level: only the spectrum tells them apart.
    assert "mel distance" in str(audio_difference(coded(clip), coded(others["reversed"])))


def test_audible_changes(lab: Lab, clip: Clip) -> None:
    take, sentence = lab.speak(TEXT, seed=2), lab.speak(OTHER, seed=1)
    for other, words in (
        (Clip(clip.samples / 2, clip.rate), "softer by 6.0 dB"),  # type: ignore[arg-type]
        (take, ""),
        (sentence, "another sentence"),
    ):
        assert audible_change(coded(clip, "wav"), coded(other, "wav")).startswith(words)
    assert audible_change(coded(Clip(clip.samples / 2, clip.rate)), coded(clip)) == "louder by 6.0 dB"  # type: ignore[arg-type]
    assert audible_change(coded(clip), coded(Clip(clip.samples * 0, clip.rate))) == "silence"
    assert audible_change(coded(clip), coded(take)) == audible_change(coded(clip), "AAAA") == ""


def _page(sound: str) -> dict[str, str]:
    return {"text/html": f'<audio controls src="data:audio/mpeg;base64,{sound}"></audio><p>words</p>'}


def _ipython(sound: str) -> dict[str, str]:
    source = f'<audio  controls="controls" ><source src="data:audio/wav;base64,{sound}" type="audio/wav" /></audio>'
    return {"text/html": source, "text/plain": "<IPython.lib.display.Audio object>"}


def _typed(sound: str) -> dict[str, str]:
    return {"audio/mpeg": sound, "text/plain": "a sound"}


def _script(sound: str) -> dict[str, str]:
    return {"application/javascript": f"new Audio('data:audio/ogg;codecs=opus;base64,{sound}').play()"}


@pytest.mark.parametrize("embed", [_page, _ipython, _typed, _script])
def test_all_embeddings(clip: Clip, embed: Any) -> None:
    other = Clip(clip.samples / 2, clip.rate)  # type: ignore[arg-type]

    def differences(was: str, now: str, **options: Any) -> list[str]:
        outputs = ([new_output("display_data", embed(sound))] for sound in (was, now))
        return [str(one) for one in OutputComparison(Masks(), Tolerance(), **options).differences(*outputs)]

    assert differences(coded(clip), coded(clip, bitrate=64)) == []
    (words,) = differences(coded(clip), coded(other))
    assert "the audio differs: softer by 6.0 dB, level -6.0 dB" in words
    assert differences(coded(clip), coded(other), sounds=False) == []
    (words,) = differences(coded(clip), "AAAA")
    assert "cannot be decoded" in words


def test_audio_within_tolerance_is_tolerable(clip: Clip) -> None:
    softer = Clip(clip.samples * np.float32(10 ** (-1.2 / 20)), clip.rate)
    outputs = ([new_output("display_data", _page(coded(each)))] for each in (clip, softer))
    (difference,) = OutputComparison(Masks(), Tolerance()).differences(*outputs)
    assert difference.tolerable
    assert ENCODING.db < 1.2 < Tolerance().db
