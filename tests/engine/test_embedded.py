"""The embedded voice: batching, tags, tones and resource use."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from voicelab.audio.analysis import f0
from voicelab.call import Call
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer.family import PointerFamily
from voicelab.errors import RequestInvalid
from voicelab.schema import TTSRequest

TEXTS = ("The birch canoe slid on the smooth planks.", "Rice is served.", "Glue the sheet to the dark blue background.")


@pytest.fixture(scope="module")
def embedded() -> Iterator[LocalBackend]:
    with LocalBackend() as backend:
        yield backend


def test_batch_equals_single_requests(embedded: LocalBackend) -> None:
    requests = [TTSRequest(text=text, format="wav") for text in TEXTS]
    alone = [embedded.synthesize(Call(request, seed=3)).clip().samples for request in requests]
    together = [embedded.synthesize(Call(request, seed=3)) for request in requests]
    for single, stream in zip(alone, together, strict=True):
        samples = stream.clip().samples
        assert samples.shape == single.shape
        assert float(np.abs(samples - single).max()) <= 1e-4
        assert float(np.abs(samples).max()) > 0.05


def test_pause_and_phoneme_tags_act_and_others_have_notes(embedded: LocalBackend) -> None:
    def said(text: str, **fields: Any) -> Any:
        return embedded.synthesize(Call(TTSRequest(text=text, format="wav", **fields), seed=3)).clip()

    plain, paused = said("One, two."), said('One <break time="800ms"/> two.[pause]')
    assert [word.text for word in paused.words] == ["One", "two"]
    assert 0.75 < paused.words[1].start - plain.words[1].start < 1.3
    assert not paused.samples[-round(0.59 * paused.rate) :].any()
    assert np.count_nonzero(paused.samples == 0) / paused.rate == pytest.approx(1.4, abs=0.1)
    assert paused.samples[round((paused.words[1].start + 0.05) * paused.rate) :][: paused.rate // 10].any()
    low = said('One <break time="800ms"/> two.[pause]', latency="low")
    assert low.samples == pytest.approx(paused.samples, abs=1e-3)
    assert low.words == paused.words

    span = said("The <|phoneme_start|>R EH1 D<|phoneme_end|> [angry] one.")
    assert np.array_equal(span.samples, said("The red one.").samples)
    assert [word.text for word in span.words] == ["The", "read", "one"]
    assert span.notes == ("[angry] had no effect: this voice supports only pauses, phoneme spans, emphasis",)
    with pytest.raises(RequestInvalid, match="never closed"):
        said("The <|phoneme_start|>R EH1 D one.")


def test_emphasis_tag_lengthens_the_word(embedded: LocalBackend) -> None:
    text = "They paid $25. We {}never agreed<break/> to {}green tables."

    def said(first: str, second: str) -> Any:
        clips = [
            embedded.synthesize(Call(TTSRequest(text=text.format(first, second), format="wav"), seed=seed)).clip()
            for seed in range(3)
        ]
        assert {clip.notes for clip in clips} == {()}
        durations: dict[str, list[float]] = {word: [] for word in ("never", "green")}
        for clip in clips:
            for word in clip.words:
                durations.get(word.text, []).append(word.end - word.start)
        return {word: sum(each) for word, each in durations.items()}

    plain, emphasized = said("", ""), said("[emphasis]", "")
    assert emphasized["never"] > 1.25 * plain["never"]
    assert emphasized["green"] < 1.25 * plain["green"]
    assert said("", "[emphasis] ")["green"] > 1.15 * plain["green"]
    late = embedded.synthesize(Call(TTSRequest(text="[emphasis]Never.[emphasis]"))).take().notes
    assert late == ("[emphasis] had no effect: no word follows it",)


def test_pinyin_span_sets_the_pronunciation(embedded: LocalBackend) -> None:
    def said(text: str) -> Any:
        return embedded.synthesize(Call(TTSRequest(text=text, reference_id="mei", format="wav"), seed=3)).clip()

    span = said("[行](/hang2/)<|phoneme_start|>cheng2 gong1<|phoneme_end|>。")
    assert np.array_equal(span.samples, said("航城公。").samples)
    assert span.notes == ()
    assert said("<|phoneme_start|>xyz1<|phoneme_end|>好。").notes == (
        "<|phoneme_start|>xyz1<|phoneme_end|> had no effect: this voice supports only pauses, phoneme spans, emphasis",
        "<|phoneme_start|>xyz1<|phoneme_end|>: xyz1 must be English IPA, Arpabet or pinyin",
    )
    unknown = said("<|phoneme_start|>HH QQ ZX2<|phoneme_end|>好。").notes[1]
    assert unknown.endswith(": QQ, ZX2 must be English IPA, Arpabet or pinyin")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_new_tokens": 14, "chunk_length": 100},
        {"condition_on_previous_chunks": False, "chunk_length": 100, "early_stop_threshold": 0.1},
    ],
)
def test_cut_speech_fades_out(embedded: LocalBackend, fields: dict[str, Any]) -> None:
    longer = "These days a chicken leg is a rare dish, and nobody in the whole of this long street knows why."
    request = TTSRequest(text=f"{TEXTS[0]} {TEXTS[1]} {longer}", format="wav", **fields)
    clip = embedded.synthesize(Call(request, seed=3)).clip()
    why = "early_stop_threshold=0.1" if "early_stop_threshold" in fields else "max_new_tokens=14"
    assert f"segment 2 was cut off by {why}" in clip.notes
    assert float(np.abs(clip.samples[-4410:-441]).max()) > 0.02  # in the middle of speech
    assert float(np.abs(clip.samples[-11:]).max()) < 1e-3  # the last quarter of a millisecond


def test_unreferenced_backend_finishes_and_frees_threads_and_model(embedded: LocalBackend) -> None:
    """As when a notebook cell with `lab = vl.connect()` is rerun."""
    request = TTSRequest(text=TEXTS[0], format="wav")
    whole = b"".join(embedded.synthesize(Call(request, seed=3)))
    threads = set(threading.enumerate())
    backend = LocalBackend()
    family = backend._family
    assert isinstance(family, PointerFamily)
    model, stream = weakref.ref(family.checkpoint.lm), backend.synthesize(Call(request, seed=3))
    del backend, family
    gc.collect()
    assert b"".join(stream) == whole
    del stream
    end = time.monotonic() + 30
    while (model() is not None or not set(threading.enumerate()) <= threads) and time.monotonic() < end:
        time.sleep(0.01)
        gc.collect()
    assert model() is None
    assert set(threading.enumerate()) <= threads


def test_the_four_tones_differ_in_pitch(embedded: LocalBackend) -> None:
    """For a Mandarin speaker: tone 1 is higher than 3, and 4 falls relative to 2; means over syllables, in semitones."""
    if "zh" not in embedded.capabilities.languages:
        pytest.skip("this voice speaks no Mandarin")
    tones = _tones(embedded)
    mean = {tone: np.mean(found, axis=0) for tone, found in tones.items()}
    assert mean[1][0] > mean[3][0] + 2
    assert mean[4][1] < mean[2][1] - 1


def _tones(backend: LocalBackend) -> dict[int, list[tuple[float, float]]]:
    """Tone → (mean pitch, second half minus first half) of voiced syllables."""
    found: dict[int, list[tuple[float, float]]] = {tone: [] for tone in (1, 2, 3, 4)}
    sets = ("妈麻马骂", "八拔把爸", "衣移椅意", "书熟鼠树", "汤糖躺烫", "威围伟卫")
    for number, (letters, order) in enumerate(zip(sets, ("1234", "4321", "2413", "3142", "1432", "2341"), strict=True)):
        text = ", ".join(letters[int(tone) - 1] for tone in order) + "."
        clip = backend.synthesize(Call(TTSRequest(text=text, format="wav", reference_id="mei"), seed=number)).clip()
        contour = f0(clip)
        middle = np.nanmedian(12 * np.log2(contour.values))
        for word in clip.words:
            inside = (contour.times > word.start) & (contour.times < word.end)
            pitch = 12 * np.log2(contour.values[inside]) - middle
            pitch = pitch[np.abs(pitch) < 9]  # beyond that it is an octave's error, and NaN is no pitch
            if pitch.size >= 6:
                half = pitch.size // 2
                slope = float(pitch[half:].mean() - pitch[:half].mean())
                found[letters.index(word.text) + 1].append((float(pitch.mean()), slope))
    return found
