"""Piper with a tiny graph and config."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends import graphs
from voicelab.backends.phonemes import espeak_ipa
from voicelab.backends.piper import PiperBackend, open_piper
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, RequestInvalid, WeightsError

SYMBOLS = "_^$ abdefhijklmnoprstuvwzæðŋɐɑɔəɚɛɡɪɹɾʃʊʌʒθˈˌː.,?!"
JSON: dict[str, Any] = {
    "audio": {"sample_rate": 22050, "quality": "tiny"},
    "espeak": {"voice": "en-us"},
    "inference": {"noise_scale": 0.5, "length_scale": 1.5, "noise_w": 0.7},
    "phoneme_type": "espeak",
    "phoneme_id_map": {symbol: [number] for number, symbol in enumerate(SYMBOLS)},
    "num_speakers": 1,
    "speaker_id_map": {},
}
TWO_SPEAKERS: dict[str, Any] = {"num_speakers": 2, "speaker_id_map": {"ann": 0, "bob": 1}}


def voice(folder: Path, graph: bytes | None = None, **changes: Any) -> Path:
    """Write a voice; return the path of its graph."""
    path = folder / "tiny.onnx"
    path.write_bytes(graphs.piper("sid" in changes or "speaker_id_map" in changes) if graph is None else graph)
    path.with_name("tiny.onnx.json").write_text(json.dumps(JSON | changes), encoding="utf-8")
    return path


def say(backend: PiperBackend, text: str, **fields: Any) -> Clip:
    call = Call.of(text, knobs=backend.capabilities.knobs, **fields)
    return backend.synthesize(call).clip()


def length(symbols: str, scale: float) -> int:
    """Return the sample count of the tiny graph: BEGIN, END, and a pad after each id but the last."""
    return int(np.float32(256 * (2 * len(symbols) + 3)) * np.float32(scale))


def test_ids_are_separated_by_pads(tmp_path: Path) -> None:
    backend = PiperBackend(voice(tmp_path))
    utterances, notes = backend.utterances("hello")
    assert utterances[0].symbols == espeak_ipa("hello") == "həlˈoʊ"
    assert notes == ()
    samples, _ = backend.say(utterances[0], None, Call.of("hello"), backend.session.new_run())
    assert samples.size == length("həlˈoʊ", 1.5)
    clip = say(backend, "hello", noise_scale=0.0)
    assert clip.duration == pytest.approx(length("həlˈoʊ", 1.5) / 22050, abs=1e-3)


def test_knobs_and_speed_act_and_temperature_is_ignored(tmp_path: Path) -> None:
    backend = PiperBackend(voice(tmp_path))
    assert [(knob.name, knob.default) for knob in backend.capabilities.knobs] == [
        ("noise_scale", 0.5),
        ("noise_w", 0.7),
    ]
    still, repeat = (say(backend, "hello", noise_scale=0.0) for _ in range(2))
    assert np.array_equal(still.samples, repeat.samples)
    noisy = say(backend, "hello")
    assert np.std(noisy.samples - still.samples) > 0.02
    assert say(backend, "hello", speed=2.0).duration == pytest.approx(still.duration / 2, abs=0.01)
    assert backend.capabilities.ignored("temperature")
    assert any("temperature" in note for note in (say(backend, "hello", temperature=0.2).take or noisy.take).notes)  # type: ignore[union-attr]
    with pytest.raises(RequestInvalid, match="seed"):
        say(backend, "hello", seed=1)
    with pytest.raises(RequestInvalid, match="noise_w"):
        say(backend, "hello", noise_w=3.0)


def test_speakers_are_voices(tmp_path: Path) -> None:
    backend = PiperBackend(voice(tmp_path, **TWO_SPEAKERS))
    assert [preset.id for preset in backend.capabilities.voices] == ["ann", "bob"]
    ann, bob, default = (say(backend, "hello", voice=name, noise_scale=0.0) for name in ("ann", "bob", None))
    assert not np.allclose(ann.samples, bob.samples)
    assert np.array_equal(ann.samples, default.samples)
    with pytest.raises(RequestInvalid, match="ann, bob"):
        say(backend, "hello", voice="eve")


def test_phonemizer_command(tmp_path: Path) -> None:
    path = voice(tmp_path, espeak={"voice": "de"})
    with pytest.raises(RequestInvalid, match=r"voice for de .*phonemizer command"):
        PiperBackend(path)
    program = "import sys; print(sys.stdin.read().lower().replace('ü', 'y'))"
    backend = open_piper(f'{path}?{sys.executable} -c "{program}"')
    assert "".join(backend.utterances("Hallo Tür")[0][0].symbols) == "hallo tr"
    assert backend.utterances("Hallo Tür")[1] == ("phones skipped, because the voice has no id for them: y",)
    assert say(backend, "Hallo 3").duration > 0.1
    for command in ("false", "no-such-program --ipa"):
        with pytest.raises(ArgumentError, match="phonemizer: the command"):
            say(PiperBackend(path, phonemizer=command), "Hallo")


def test_text_based_voice_takes_letters(tmp_path: Path) -> None:
    backend = PiperBackend(voice(tmp_path, espeak={"voice": "fi"}, phoneme_type="text"))
    assert "".join(backend.utterances("hei")[0][0].symbols) == "hei"
    assert backend.capabilities.ignored("normalize")
    with pytest.raises(RequestInvalid, match="no word"):
        say(backend, "…")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph": b"<html>not found</html>"}, "not an ONNX graph"),
        ({"graph": graphs.kokoro()}, "must be input, input_lengths, scales, got"),
        ({"audio": {"sample_rate": 7}}, "audio.sample_rate: must be between 8000 and 48000 Hz, got 7"),
        ({"audio": {"sample_rate": "fast"}}, "sample_rate: must be a number"),
        ({"audio": []}, "must be between"),
        ({"audio": [1]}, "audio: must be an object"),
        ({"inference": {"length_scale": 0}}, "inference: length_scale must be above 0"),
        ({"phoneme_id_map": {"a": [1]}}, "missing: _, \\^"),
        ({"phoneme_id_map": {"a": "x"}}, "a list of integers"),
        ({"phoneme_id_map": JSON["phoneme_id_map"] | {"x": [500]}}, "rejects id 500"),
        ({"num_speakers": 2, "graph": graphs.piper()}, "num_speakers: is 2, but the graph has one speaker"),
        ({"graph": graphs.piper(speakers=True)}, "num_speakers: is 1, but the graph has several"),
    ],
)
def test_invalid_configs_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message) as raised:
        PiperBackend(voice(tmp_path, **changes))
    assert "tiny.onnx" in str(raised.value)


def test_missing_or_malformed_config_is_named(tmp_path: Path) -> None:
    path = voice(tmp_path)
    config = path.with_name("tiny.onnx.json")
    for text, message in (("{", "not valid JSON"), ("[]", "must be a JSON object")):
        config.write_text(text)
        with pytest.raises(WeightsError, match=message):
            PiperBackend(path)
    config.unlink()
    with pytest.raises(WeightsError, match=r"tiny.onnx.json cannot be read.*NAME.onnx.json"):
        PiperBackend(path)
    with pytest.raises(WeightsError, match="path must be"):
        open_piper("")
