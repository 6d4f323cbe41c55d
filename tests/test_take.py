from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kept import ask
from tests.tones import ToneBackend
from voicelab.audio.words import WordTime
from voicelab.backend import SpeechStream, StreamSummary
from voicelab.call import Call
from voicelab.clip import Take, take_key
from voicelab.errors import RequestInvalid, StoreError
from voicelab.schema import FORMATS, ProsodyControl, ReferenceAudio, TTSRequest


@pytest.fixture
def tones() -> ToneBackend:
    return ToneBackend()


# Two values of every field that change the request's meaning.
TWO: dict[str, tuple[Any, Any]] = {
    "text": ("Hello", "Hello."),
    "temperature": (0.7, 0.70001),
    "top_p": (0.0, 1.0),
    "references": (None, (ReferenceAudio(audio=b"1", text="a"),)),
    "reference_id": (None, "ada"),
    "prosody": (None, ProsodyControl(speed=1.1)),
    "chunk_length": (300, 299),
    "normalize": (True, False),
    "format": ("wav", "pcm"),
    "sample_rate": (None, 8000),
    "mp3_bitrate": (128, 64),
    "opus_bitrate": (-1000, 24),
    "latency": ("normal", "low"),
    "max_new_tokens": (1024, 1),
    "repetition_penalty": (1.2, 1.0),
    "min_chunk_length": (50, 0),
    "condition_on_previous_chunks": (True, False),
    "early_stop_threshold": (1.0, 0.5),
}
BESIDE: dict[str, tuple[Any, Any]] = {
    "model": ("s1", "s2-pro"),
    "fingerprint": ("f", "g"),
    "seed": (None, 0),
    "repeat": (0, 1),
}


def key(fields: dict[str, Any]) -> str:
    inside = {name: value for name, value in fields.items() if name in TWO}
    beside = {name: value for name, value in fields.items() if name in BESIDE}
    call = Call(TTSRequest.build(**inside), beside.pop("model", "s1"), beside.pop("seed", None))
    return take_key(call, **{"fingerprint": "f", **beside})


def test_the_table_has_every_field() -> None:
    assert set(TWO) == set(TTSRequest.model_fields)


@st.composite
def _fields(draw: st.DrawFn) -> dict[str, Any]:
    fields = {name: draw(st.sampled_from(values)) for name, values in {**TWO, **BESIDE}.items()}
    if fields["reference_id"] is not None:
        fields["references"] = None  # they would be overridden
    return fields


@given(_fields(), st.sampled_from(sorted({**TWO, **BESIDE})))
def test_any_changed_field_changes_the_key(fields: dict[str, Any], name: str) -> None:
    one, other = {**TWO, **BESIDE}[name]
    changed = {**fields, name: other if fields[name] == one else one}
    if changed["reference_id"] is not None and changed["references"] is not None:
        return
    assert key(changed) != key(fields)


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_other_texts_have_other_keys(one: str, other: str) -> None:
    try:
        keys = [key({"text": text}) for text in (one, other)]
    except RequestInvalid:
        return  # half of a surrogate pair
    assert (keys[0] == keys[1]) == (one == other)


def test_what_means_the_same_has_the_same_key() -> None:
    def named(**fields: Any) -> str:
        return take_key(Call(ask(**fields)), "f")

    assert named(sample_rate=None, format="wav") == named(sample_rate=44100, format="wav")
    assert named(prosody=None) == named(prosody=ProsodyControl())
    assert named(references=()) == named(references=None)
    assert named(temperature=1) == named(temperature=1.0)


@pytest.mark.parametrize("repeat", [-1, 1.0, True, None])
def test_a_repeat_is_a_whole_number(repeat: Any) -> None:
    with pytest.raises(RequestInvalid, match="repeat"):
        take_key(Call(ask()), "f", repeat)


@pytest.mark.parametrize("audio_format", FORMATS)
def test_a_take_is_its_stream_kept(tones: ToneBackend, audio_format: str) -> None:
    request = ask(format=audio_format, sample_rate=None)
    clip = tones.synthesize(Call(request, model="s1", seed=3)).clip()
    take = tones.synthesize(Call(request, model="s1", seed=3)).take(repeat=2)
    again = take.clip()
    assert again == clip
    assert again.take is not None
    assert clip.take is not None
    for name in ("request", "model", "backend", "fingerprint", "seed"):
        assert getattr(again.take, name) == getattr(clip.take, name)
    assert again.take.timing == take.timing
    assert b"".join(take.chunks) == take.audio == b"".join(tones.synthesize(Call(request, model="s1", seed=3)))
    assert [len(chunk) for chunk in take.chunks] == [size for _, size in take.timing.arrivals]
    assert 0 < take.timing.first_audio_s <= take.timing.total_s
    assert (take.seed, take.repeat, take.device, take.cached, again.notes) == (3, 2, "cpu", False, ())
    assert take.key == take_key(Call(request, "s1", 3), "tones-1", 2)


def whole_take(tones: ToneBackend, **fields: Any) -> Take:
    """A take with words, notes, a drawn seed and a reference: all that a record has room for."""
    request = ask(references=(ReferenceAudio(audio=b"RIFF", text="Grüß Gott"),), prosody=ProsodyControl(speed=1.5))
    summary = StreamSummary((WordTime("Hello", 0.0, 0.125),), ("Noticed.",), 0.75)
    stream = SpeechStream(
        iter((b"12", b"3456")), call=Call(request, "s1"), backend=tones.capabilities, seed=11, summary=lambda: summary
    )
    return stream.take(**fields)


def test_a_record_is_json_and_holds_all_but_the_audio(tones: ToneBackend) -> None:
    take = whole_take(tones, repeat=4)
    record = json.loads(json.dumps(take.record()))
    again = Take.of_record(
        record, lambda: b"123456", {take.record()["request"]["references"][0]["audio_sha256"]: b"RIFF"}.__getitem__
    )
    assert again == take
    assert (again.audio, again.key, again.call.seed, again.seed) == (take.audio, take.key, None, 11)
    assert again.words == (WordTime("Hello", 0.0, 0.125),)
    assert again.similarity == 0.75
    # Takes that were kept before it was known stay readable.
    del record["similarity"]
    assert Take.of_record(record, b"123456", lambda _: b"RIFF").similarity is None
    assert "RIFF" not in json.dumps(record)


@pytest.mark.parametrize("name", ["request", "arrivals", "digest", "created", "seed_used"])
def test_a_record_that_lacks_something_is_none(tones: ToneBackend, name: str) -> None:
    record = whole_take(tones).record()
    del record[name]
    with pytest.raises(StoreError, match=name):
        Take.of_record(record, b"", lambda _: b"RIFF")
