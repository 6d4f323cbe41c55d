from __future__ import annotations

import io
import wave
from collections.abc import Callable

import numpy as np
import pytest

from tests.audio.sounds import libsndfile_bytes
from tests.speechlike import RATE, speech_file, speechlike
from tests.utterances import Utterance
from voicelab.asr.recognizers import Recognizer
from voicelab.audio.denoise import survey
from voicelab.audio.samples import Samples, dbfs
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.schema import VoiceCreate
from voicelab.voices.intake import RATE as KEPT_RATE
from voicelab.voices.intake import prepare_samples
from voicelab.voices.store import Sample


class Ear:
    """A recognizer that hears how long it listened to."""

    def recognise(self, samples: Samples, rate: int) -> str:
        return f"{round(samples.size / rate)} seconds"


class Deaf:
    def recognise(self, samples: Samples, rate: int) -> str:
        return ""


def _never() -> Recognizer | None:
    raise AssertionError("nobody asked for a recognizer")


def _request(*voices: bytes, **fields: object) -> VoiceCreate:
    return VoiceCreate.build(**{"title": "Ada", "voices": voices, "visibility": "private", **fields})


def _file(samples: Samples) -> bytes:
    return Clip(samples, RATE).to_bytes("wav", sample_rate=RATE)


def _heard(sample: Sample) -> Clip:
    return Clip.load(sample.audio)


@pytest.mark.parametrize(
    "data",
    [
        speech_file(2),
        speech_file(2, format="mp3"),
        speech_file(2, format="opus"),
        libsndfile_bytes(np.stack((speechlike(2), np.zeros(2 * RATE)), axis=1), RATE),
    ],
    ids=["wav", "mp3", "opus", "stereo"],
)
def test_recordings_are_stored_as_mono_wav_at_44100_hz(data: bytes) -> None:
    (sample,) = prepare_samples(_request(data, texts="said"), _never)
    with wave.open(io.BytesIO(sample.audio)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, KEPT_RATE)
    assert _heard(sample).duration == pytest.approx(1.8, abs=0.3)
    assert sample.text == "said"


@pytest.mark.parametrize("gain", [0.02, 0.3, 2.0])
def test_silence_is_trimmed_and_the_level_set(gain: float) -> None:
    sound = np.clip(speechlike(3, silence=2) * gain, -1, 1).astype(np.float32)
    (sample,) = prepare_samples(_request(_file(sound), texts="said"), _never)
    clip = _heard(sample)
    assert clip.duration == pytest.approx(3.2, abs=0.35)
    active = clip.samples[np.abs(clip.samples) > 0.005]
    assert dbfs(active) == pytest.approx(-22, abs=2.5)
    assert clip.peak < 0.9
    reference = prepare_samples(_request(_file(speechlike(3, silence=2)), texts="said"), _never)[0]
    if gain < 1:
        assert clip.level == pytest.approx(_heard(reference).level, abs=0.5)


def test_transcripts_are_stored_in_order() -> None:
    files = [speech_file(2, pitch) for pitch in (100, 200, 300)]
    samples = prepare_samples(_request(*files, texts=("one", "two", "three")), _never)
    assert [sample.text for sample in samples] == ["one", "two", "three"]
    assert len({sample.audio for sample in samples}) == 3
    assert [sample.title.partition(",")[0] for sample in samples] == ["Sample 1", "Sample 2", "Sample 3"]


def test_missing_transcripts_are_recognized() -> None:
    (sample,) = prepare_samples(_request(speech_file(5)), Ear)
    assert sample.text == "5 seconds"
    assert "transcript by" in sample.title


def test_transcription_is_limited_to_a_minute() -> None:
    (sample,) = prepare_samples(_request(speech_file(70)), Ear)
    assert sample.text == "60 seconds"
    assert "of the first 60 s" in sample.title


@pytest.mark.parametrize(("recognizer", "why"), [(lambda: None, "jupyter-voicelab[recognition]"), (Deaf, "no words")])
def test_missing_transcript_is_noted(recognizer: Callable[[], Recognizer | None], why: str) -> None:
    (sample,) = prepare_samples(_request(speech_file(2)), recognizer)
    assert sample.text == ""
    assert why in sample.title


@pytest.mark.parametrize(
    ("seconds", "note"), [(4.0, "shorter than the 10"), (15.0, ""), (40.0, "longer than the 10 to 30")]
)
def test_lengths_that_clone_badly_are_noted(seconds: float, note: str) -> None:
    (sample,) = prepare_samples(_request(speech_file(seconds), texts="x"), _never, lambda: None)
    assert note in sample.title
    assert (";" in sample.title) == bool(note)


def test_noise_is_noted() -> None:
    clean, noisy = _file(speechlike(12)), _file(speechlike(12, noise=0.05))
    first, second = prepare_samples(_request(clean, noisy, texts=("a", "b")), _never)
    assert "noisy" not in first.title
    assert "noisy" in second.title


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"nothing", "must be WAV"),
        (b"RIFF\x10\x00\x00\x00WAVEfmt ", "cut off"),
        (_file(np.zeros(RATE, np.float32)), "silent"),
        (_file((0.3 * np.sin(np.arange(RATE))).astype(np.float32)), "no speech"),
        (b"ffconcat version 1.0\nfile 'secret.wav'", "must be WAV"),
        (b"#EXTM3U\nhttp://127.0.0.1:1/canary.wav", "must be WAV"),
        (b"https://example.org/voice.wav", "must be WAV"),
        (_file(np.zeros(301 * RATE, np.float32)), "at most 300 s long"),
        (b"RIFF\x00\x00\x00\x00WAVE" + bytes(50 * 2**20), "at most 52428800"),
    ],
    ids=["rubbish", "cut", "silence", "tone", "concat", "playlist", "url", "long", "large"],
)
def test_files_without_speech_are_rejected_with_their_index(bad: bytes, why: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        prepare_samples(_request(speech_file(2), bad), _never)
    (error,) = caught.value.errors
    assert error.loc == ("body", "voices")
    assert error.ctx == "index: 1"
    assert "Voice file 2" in error.msg
    assert why in error.msg


def test_errors_of_all_files_are_reported_together() -> None:
    with pytest.raises(RequestInvalid) as caught:
        prepare_samples(_request(b"one", speech_file(2), b"three"), _never)
    assert [error.ctx for error in caught.value.errors] == ["index: 0", "index: 2"]


def test_enhancement_reduces_noise_and_is_noted() -> None:
    noisy = _file(speechlike(12, noise=0.02))
    (plain,) = prepare_samples(_request(noisy, texts="x"), _never)
    (enhanced,) = prepare_samples(_request(noisy, texts="x", enhance_audio_quality=True), _never)
    assert "enhanced" not in plain.title
    assert "enhanced, original SNR" in enhanced.title
    before, after = (survey(_heard(one).samples, KEPT_RATE).snr for one in (plain, enhanced))
    assert after > before + 8
    assert _heard(enhanced).duration == pytest.approx(_heard(plain).duration, abs=0.5)
    assert _heard(enhanced).level == pytest.approx(_heard(plain).level, abs=2)


def test_enhanced_noise_is_not_speech() -> None:
    noise = (0.1 * np.random.default_rng(4).standard_normal(3 * RATE)).astype(np.float32)
    with pytest.raises(RequestInvalid, match="no speech"):
        prepare_samples(_request(_file(noise), enhance_audio_quality=True), _never)


def test_mismatched_transcripts_are_noted_and_stored(utterances: tuple[Utterance, ...]) -> None:
    first, second = utterances[0], utterances[-1]
    files = [Clip(one.samples, one.rate).to_bytes("wav") for one in (first, second, first)]
    samples = prepare_samples(
        _request(*files, texts=(first.text, first.text, "Das weiß der Kuckuck, glaube ich.")), _never
    )
    assert "text" not in samples[0].title
    assert "text does not match" in samples[1].title
    assert "text not checked" in samples[2].title
    assert [sample.text for sample in samples[:2]] == [first.text, first.text]


def test_transcripts_are_not_checked_without_an_aligner() -> None:
    (sample,) = prepare_samples(_request(speech_file(12), texts="this is no word of it"), _never, lambda: None)
    assert "text" not in sample.title
