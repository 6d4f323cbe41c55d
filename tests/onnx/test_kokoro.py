"""Kokoro by a tiny graph of the same form, with the voices inside the package; the real one in a thorough test."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.onnx import graphs
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import Cancelled, EngineError, NotFound, RequestInvalid, WeightsError
from voicelab.onnx.backend import reading
from voicelab.onnx.kokoro import FRAME, LATE, LONGEST, RATE, ROWS, STYLE, KokoroBackend, blend_parts, voice_tables
from voicelab.onnx.phonemes import pieces
from voicelab.schema import ReferenceAudio, TTSRequest, VoiceCreate

TEXT = "Hello there, my friend. The birch canoe slid on the smooth planks of a boat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kokoro")
    (folder / "tiny.onnx").write_bytes(graphs.kokoro())
    (folder / "flat.bin").write_bytes(np.full((ROWS, STYLE), 0.5, "<f4").tobytes())
    np.savez(folder / "more.npz", deep=np.zeros((ROWS, 1, STYLE), np.float32))
    return folder


@pytest.fixture(scope="module")
def kokoro(folder: Path) -> KokoroBackend:
    return KokoroBackend(folder, threads=1)


def say(backend: KokoroBackend, text: str = TEXT, **fields: Any) -> Clip:
    return backend.synthesize(Call.of(text, sample_rate=24000, **fields)).clip()


def pitch(clip: Clip) -> float:
    spectrum = np.abs(np.fft.rfft(clip.samples * np.hanning(clip.samples.size)))
    return float(np.argmax(spectrum) * clip.rate / clip.samples.size)


def test_the_audio_is_as_long_as_the_durations_and_words_are_two_frames_early(kokoro: KokoroBackend) -> None:
    clip = say(kokoro, "Hello.")
    symbols = "".join(token.symbols for token in pieces("Hello."))
    frames = [5, *(2 + (kokoro._tokens[symbol] + 3) % 4 for symbol in symbols), 5]
    skipped = 5 - LATE - 2  # of the pad two frames before the first sound are kept
    assert clip.samples.size == (sum(frames) - skipped) * FRAME
    (word,) = clip.words
    assert word.text == "Hello"
    assert word.start == 2 * FRAME / RATE
    assert word.end == pytest.approx((sum(frames[:-2]) - LATE - skipped) * FRAME / RATE, abs=0.005)


def test_words_follow_each_other_over_segments(kokoro: KokoroBackend) -> None:
    clip = say(kokoro, TEXT * 3)
    assert [word.text for word in clip.words[:6]] == ["Hello", "there", "my", "friend", "The", "birch"]
    assert len(clip.words) == 3 * 15 - 2 * 1 + 2  # "boat.Hello" is read as it is written
    starts = [word.start for word in clip.words]
    assert starts == sorted(starts)
    assert clip.words[-1].end <= clip.duration


def test_a_blend_is_made_of_whole_tables(kokoro: KokoroBackend) -> None:
    request = Call.of(TEXT, voice="flat(3)+deep(1)").request
    assert np.array_equal(kokoro.speaker(request), np.full((ROWS, STYLE), 0.375, np.float32))
    low, middle, high = (pitch(say(kokoro, voice=voice)) for voice in ("deep", "flat+deep", "flat"))
    assert (low, middle, high) == pytest.approx((191, 239, 286), abs=2)  # 24,000 × .05 × (1 + mean) / 2 π


@pytest.mark.parametrize(
    ("voice", "parts"),
    [
        ("af_heart", (("af_heart", 1.0),)),
        ("a+b", (("a", 0.5), ("b", 0.5))),
        ("a(3) + b(1)", (("a", 0.75), ("b", 0.25))),
        ("a(.6)+b(.4)", (("a", 0.6), ("b", 0.4))),
    ],
)
def test_a_blend_is_read(voice: str, parts: tuple[tuple[str, float], ...]) -> None:
    assert [name for name, _ in blend_parts(voice)] == [name for name, _ in parts]
    assert [weight for _, weight in blend_parts(voice)] == pytest.approx([weight for _, weight in parts])


@pytest.mark.parametrize(
    "voice", ["a(0)+b", "a(-1)+b(2)", "a+a", "a++b", "a(1.2.3)", "a(.6", "nobody", "af_heart(.5)+nobody"]
)
def test_a_voice_that_there_is_not_is_refused(kokoro: KokoroBackend, voice: str) -> None:
    with pytest.raises(RequestInvalid, match="reference_id"):
        kokoro.synthesize(Call.of(TEXT, voice=voice))


def test_speed_acts_in_the_graph_and_volume_after_it(kokoro: KokoroBackend) -> None:
    plain, fast, quiet = say(kokoro), say(kokoro, speed=2.0), say(kokoro, volume=-20)
    assert fast.duration < 0.6 * plain.duration
    assert pitch(fast) == pytest.approx(pitch(plain), abs=2)
    assert np.allclose(quiet.samples, plain.samples * 0.1, atol=1e-4)


@pytest.mark.parametrize(
    ("latency", "first"),
    [("normal", TEXT), ("balanced", "Hello there, my friend."), ("low", "Hello there, my friend.")],
)
def test_latency_says_how_much_is_made_before_the_first_audio(latency: str, first: str) -> None:
    text = f"{TEXT} And more."
    assert next(reading(TTSRequest.build(text=text, latency=latency), text)).startswith(first)
    clause = "When all the sunlight strikes raindrops in the air, they act as a prism and form a wide rainbow."
    begun = next(reading(TTSRequest.build(text=clause, latency=latency), clause))
    assert begun == (clause if latency != "low" else "When all the sunlight strikes raindrops in the air,")
    assert " ".join(reading(TTSRequest.build(text=text, latency=latency), text)) == text


def test_the_first_segment_is_heard_before_the_second_is_made(
    kokoro: KokoroBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Mock(side_effect=kokoro.session.run)
    monkeypatch.setattr(kokoro.session, "run", run)
    stream = kokoro.synthesize(Call.of(TEXT, latency="balanced", format="pcm", sample_rate=24000))
    assert len(next(stream)) > 10_000
    run.assert_called_once()
    stream.close()


def test_a_stream_that_is_closed_stops_the_graph(kokoro: KokoroBackend) -> None:
    stream = kokoro.synthesize(Call.of(TEXT * 20))
    threading.Timer(0.02, stream.close).start()
    with pytest.raises(Cancelled):
        stream.take()
    options, call = kokoro.session.new_run(), Call.of("x")
    options.terminate = True
    with pytest.raises(Cancelled):  # in the midst of a run
        kokoro.say(kokoro.utterances("Hello")[0][0], kokoro.speaker(call.request), call, options)


def test_long_texts_are_cut_where_they_may_be(kokoro: KokoroBackend) -> None:
    digits = "0123456789" * 28
    utterances, _ = kokoro.utterances("one two three, " * 60)
    assert all(len(one.symbols) <= LONGEST for one in utterances)
    assert all(one.symbols[-1] == "," for one in utterances)
    assert sum(len(one.words) for one in utterances) == 180
    assert all(len(one.symbols) <= LONGEST for one in kokoro.utterances("x" * 600)[0])
    assert len(say(kokoro, digits, normalize=False).words) == 280


def test_mandarin_and_english_are_read_in_one_text(kokoro: KokoroBackend) -> None:
    clip = say(kokoro, "苹果 and 吗", voice="zf_xiaoxiao")
    assert [word.text for word in clip.words] == ["苹果", "and", "吗"]
    assert "".join(piece.symbols for piece in pieces("苹果")) == "pʰi↗ŋkwo↓ "


def test_what_the_backend_does_not_do_is_refused(kokoro: KokoroBackend, folder: Path) -> None:
    for raises, act in (
        (RequestInvalid, lambda: say(kokoro, "…")),
        (RequestInvalid, lambda: say(kokoro, references=[ReferenceAudio(audio=b"RIFF", text="x")])),
        (RequestInvalid, lambda: kokoro.create_voice(VoiceCreate(title="x", voices=(b"x",), visibility="private"))),
        (NotFound, lambda: kokoro.get_voice("x")),
    ):
        with pytest.raises(raises):
            act()
    with KokoroBackend(folder) as backend:
        pass
    with pytest.raises(EngineError, match="closed"):
        say(backend)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.onnx", b"<html>no graph</html>", "no ONNX graph"),
        ("a.onnx", graphs.piper(), "not tokens, style and speed"),
        ("short.bin", b"x" * 100, "short.bin: a voice of Kokoro's is 510 × 256"),
        ("broken.npz", b"PK\x03\x04", "broken.npz"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / "tiny.onnx").write_bytes(graphs.kokoro())
    (tmp_path / name).write_bytes(data)
    with pytest.raises(WeightsError, match=message):
        KokoroBackend(tmp_path)
    with pytest.raises(WeightsError, match="neither"):
        KokoroBackend(tmp_path / "nowhere")


def test_a_graph_whose_durations_lie_is_caught_and_one_without_speaks_without_word_times(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(graphs.kokoro(frame=601))
    with pytest.raises(EngineError, match="durations do not fit"):
        say(KokoroBackend(tmp_path / "a.onnx"))
    (tmp_path / "a.onnx").write_bytes(graphs.kokoro(durations="elsewhere"))
    clip = say(KokoroBackend(tmp_path / "a.onnx"))
    assert clip.duration > 1
    assert clip.words == ()


def test_the_fingerprint_is_of_graph_and_voices(kokoro: KokoroBackend, folder: Path, tmp_path: Path) -> None:
    fingerprint = kokoro.capabilities.fingerprint
    assert KokoroBackend(folder).capabilities.fingerprint == fingerprint
    (tmp_path / "tiny.onnx").write_bytes(graphs.kokoro())
    assert KokoroBackend(tmp_path).capabilities.fingerprint != fingerprint
    assert list(voice_tables(None)) == ["af_heart", "am_michael", "bm_fable", "zf_xiaoxiao"]


@pytest.mark.thorough
def test_the_real_voice_speaks_and_is_deterministic() -> None:
    backend = KokoroBackend()
    first, again = (say(backend, "The birch canoe slid on the smooth planks.") for _ in range(2))
    assert np.array_equal(first.samples, again.samples)
    assert 2.0 < first.duration < 4.0
    assert [word.text for word in first.words] == "The birch canoe slid on the smooth planks".split()
    middle = {word.text: (word.start + word.end) / 2 for word in first.words}

    def level(at: float) -> float:
        return float(np.abs(first.samples[int((at - 0.03) * RATE) : int((at + 0.03) * RATE)]).max())

    assert all(level(middle[word]) > 0.02 for word in ("birch", "canoe", "smooth", "planks"))
    assert level(first.duration - 0.05) < 0.01
