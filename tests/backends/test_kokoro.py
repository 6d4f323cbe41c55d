"""Kokoro with a tiny graph and the packaged voices; the real graph in a thorough test."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.backends import graphs
from voicelab.backends.kokoro import (
    BOUNDARY_DELAY,
    FRAME,
    MAX_TOKENS,
    RATE,
    STYLE_ROWS,
    STYLE_SIZE,
    KokoroBackend,
    load_voice_tables,
    parse_blend,
)
from voicelab.backends.onnx import split_text
from voicelab.backends.phonemes import espeak_ipa, kokoro_tokens
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import Cancelled, EngineError, NotFound, RequestInvalid, WeightsError
from voicelab.schema import ReferenceAudio, TTSRequest, VoiceCreate

TEXT = "Hello there, my friend. The birch canoe slid on the smooth planks of a boat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kokoro")
    (folder / "tiny.onnx").write_bytes(graphs.kokoro())
    (folder / "flat.bin").write_bytes(np.full((STYLE_ROWS, STYLE_SIZE), 0.5, "<f4").tobytes())
    np.savez(folder / "more.npz", deep=np.zeros((STYLE_ROWS, 1, STYLE_SIZE), np.float32))
    return folder


@pytest.fixture(scope="module")
def kokoro(folder: Path) -> KokoroBackend:
    return KokoroBackend(folder, threads=1)


def say(backend: KokoroBackend, text: str = TEXT, **fields: Any) -> Clip:
    return backend.synthesize(Call.of(text, sample_rate=24000, **fields)).clip()


def pitch(clip: Clip) -> float:
    spectrum = np.abs(np.fft.rfft(clip.samples * np.hanning(clip.samples.size)))
    return float(np.argmax(spectrum) * clip.rate / clip.samples.size)


def test_audio_length_and_word_times_follow_the_durations(kokoro: KokoroBackend) -> None:
    clip = say(kokoro, "Hello.")
    symbols = "".join(token.symbols for token in kokoro_tokens("Hello."))
    frames = [5, *(2 + (kokoro._tokens[symbol] + 3) % 4 for symbol in symbols), 5]
    skipped = 5 - BOUNDARY_DELAY - 2  # two frames of the pad remain
    assert clip.samples.size == (sum(frames) - skipped) * FRAME
    (word,) = clip.words
    assert word.text == "Hello"
    assert word.start == 2 * FRAME / RATE
    assert word.end == pytest.approx((sum(frames[:-2]) - BOUNDARY_DELAY - skipped) * FRAME / RATE, abs=0.005)


def test_word_times_are_ordered_across_segments(kokoro: KokoroBackend) -> None:
    clip = say(kokoro, TEXT * 3)
    assert [word.text for word in clip.words[:6]] == ["Hello", "there", "my", "friend", "The", "birch"]
    assert len(clip.words) == 3 * 15 - 2 * 1 + 2  # "boat.Hello" is one word
    starts = [word.start for word in clip.words]
    assert starts == sorted(starts)
    assert clip.words[-1].end <= clip.duration


def test_blend_is_the_weighted_sum_of_style_tables(kokoro: KokoroBackend) -> None:
    request = Call.of(TEXT, voice="flat(3)+deep(1)").request
    assert np.array_equal(kokoro.speaker(request), np.full((STYLE_ROWS, STYLE_SIZE), 0.375, np.float32))
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
def test_blends_are_parsed(voice: str, parts: tuple[tuple[str, float], ...]) -> None:
    assert [name for name, _ in parse_blend(voice)] == [name for name, _ in parts]
    assert [weight for _, weight in parse_blend(voice)] == pytest.approx([weight for _, weight in parts])


@pytest.mark.parametrize(
    "voice", ["a(0)+b", "a(-1)+b(2)", "a+a", "a++b", "a(1.2.3)", "a(.6", "nobody", "af_heart(.5)+nobody"]
)
def test_unknown_voices_and_invalid_blends_are_rejected(kokoro: KokoroBackend, voice: str) -> None:
    with pytest.raises(RequestInvalid, match="reference_id"):
        kokoro.synthesize(Call.of(TEXT, voice=voice))


def test_speed_and_volume(kokoro: KokoroBackend) -> None:
    plain, fast, quiet = say(kokoro), say(kokoro, speed=2.0), say(kokoro, volume=-20)
    assert fast.duration < 0.6 * plain.duration
    assert pitch(fast) == pytest.approx(pitch(plain), abs=2)
    assert np.allclose(quiet.samples, plain.samples * 0.1, atol=1e-4)


@pytest.mark.parametrize(
    ("latency", "opening"),
    [("normal", TEXT), ("balanced", "Hello there, my friend."), ("low", "Hello there, my friend.")],
)
def test_first_segment_depends_on_latency(latency: str, opening: str) -> None:
    text = f"{TEXT} And more."
    assert next(split_text(TTSRequest.build(text=text, latency=latency), text)).startswith(opening)
    clause = "When all the sunlight strikes raindrops in the air, they act as a prism and form a wide rainbow."
    begun = next(split_text(TTSRequest.build(text=clause, latency=latency), clause))
    assert begun == (clause if latency != "low" else "When all the sunlight strikes raindrops in the air,")
    assert " ".join(split_text(TTSRequest.build(text=text, latency=latency), text)) == text


def test_first_segment_is_sent_before_the_second_run(kokoro: KokoroBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Mock(side_effect=kokoro.session.run)
    monkeypatch.setattr(kokoro.session, "run", run)
    stream = kokoro.synthesize(Call.of(f"{TEXT} Then ☺.", latency="balanced", format="pcm", sample_rate=24000))
    assert len(next(stream)) > 10_000
    run.assert_called_once()
    assert stream.notes == ("emoji left out: ☺",)  # known before the first audio: a service sends them in a header
    stream.close()


def test_closing_the_stream_stops_the_graph(kokoro: KokoroBackend) -> None:
    stream = kokoro.synthesize(Call.of(TEXT * 20))
    threading.Timer(0.02, stream.close).start()
    with pytest.raises(Cancelled):
        stream.take()
    options, call = kokoro.session.new_run(), Call.of("x")
    options.terminate = True
    with pytest.raises(Cancelled):  # during a run
        kokoro.say(kokoro.utterances("Hello")[0][0], kokoro.speaker(call.request), call, options)


def test_long_texts_are_split_at_punctuation(kokoro: KokoroBackend) -> None:
    digits = "0123456789" * 28
    utterances, _ = kokoro.utterances("one two three, " * 60)
    assert all(len(utterance.symbols) <= MAX_TOKENS for utterance in utterances)
    assert all(utterance.symbols[-1] == "," for utterance in utterances)
    assert sum(len(utterance.words) for utterance in utterances) == 180
    assert all(len(utterance.symbols) <= MAX_TOKENS for utterance in kokoro.utterances("x" * 600)[0])
    assert len(say(kokoro, digits, normalize=False).words) == 280


def test_mandarin_and_english_in_one_text(kokoro: KokoroBackend) -> None:
    clip = say(kokoro, "苹果 and 吗", voice="zf_xiaoxiao")
    assert [word.text for word in clip.words] == ["苹果", "and", "吗"]
    assert "".join(token.symbols for token in kokoro_tokens("苹果")) == "pʰi↗ŋkwo↓ "


def test_unsupported_requests_are_rejected(kokoro: KokoroBackend, folder: Path) -> None:
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
        ("a.onnx", b"<html>no graph</html>", "not an ONNX graph"),
        ("a.onnx", graphs.piper(), "must be tokens, style and speed, got"),
        ("short.bin", b"x" * 100, "short.bin: a Kokoro voice must have 510 × 256"),
        ("broken.npz", b"PK\x03\x04", "broken.npz"),
    ],
)
def test_invalid_files_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / "tiny.onnx").write_bytes(graphs.kokoro())
    (tmp_path / name).write_bytes(data)
    with pytest.raises(WeightsError, match=message):
        KokoroBackend(tmp_path)
    with pytest.raises(WeightsError, match="must be a folder or an"):
        KokoroBackend(tmp_path / "nowhere")


def test_graphs_with_wrong_or_without_durations(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(graphs.kokoro(frame=601))
    with pytest.raises(EngineError, match="durations do not match"):
        say(KokoroBackend(tmp_path / "a.onnx"))
    (tmp_path / "a.onnx").write_bytes(graphs.kokoro(durations="elsewhere"))
    clip = say(KokoroBackend(tmp_path / "a.onnx"))
    assert clip.duration > 1
    assert clip.words == ()


def test_fingerprint_depends_on_graph_and_voices(kokoro: KokoroBackend, folder: Path, tmp_path: Path) -> None:
    fingerprint = kokoro.capabilities.fingerprint
    assert KokoroBackend(folder).capabilities.fingerprint == fingerprint
    (tmp_path / "tiny.onnx").write_bytes(graphs.kokoro())
    assert KokoroBackend(tmp_path).capabilities.fingerprint != fingerprint
    assert list(load_voice_tables(None)) == ["af_heart", "am_michael", "bm_fable", "zf_xiaoxiao"]


@pytest.mark.thorough
def test_real_graph_is_deterministic() -> None:
    backend = KokoroBackend()
    clip, repeat = (say(backend, "The birch canoe slid on the smooth planks.") for _ in range(2))
    assert np.array_equal(clip.samples, repeat.samples)
    assert 2.0 < clip.duration < 4.0
    assert [word.text for word in clip.words] == "The birch canoe slid on the smooth planks".split()
    middle = {word.text: (word.start + word.end) / 2 for word in clip.words}

    def level(at: float) -> float:
        return float(np.abs(clip.samples[int((at - 0.03) * RATE) : int((at + 0.03) * RATE)]).max())

    assert all(level(middle[word]) > 0.02 for word in ("birch", "canoe", "smooth", "planks"))
    assert level(clip.duration - 0.05) < 0.01


def test_loan_words_are_pronounced_as_written(kokoro: KokoroBackend) -> None:
    words, _ = kokoro.normalize_text("“Touché”, sang Beyoncé’s band: two résumés, resume the café.", True)
    tokens = {token.word: token.symbols.strip() for token in kokoro_tokens(words)}
    loans = {"Touche": "tuʃˈA", "Beyonce's": "biˈɑnsAz", "resumes": "ɹˈɛzəmAz", "resume": "ɹəzˈum", "cafe": "kæfˈA"}
    assert {word: tokens[word] for word in loans} == loans
    assert "".join(token.symbols for token in kokoro_tokens(words)).count(" ") == 8
    assert espeak_ipa(words).startswith("tuːʃˈeɪ, sˈæŋ biːˈɑːnseɪz bˈænd")
