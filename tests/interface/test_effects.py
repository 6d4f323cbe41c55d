"""What the fields of a request mean, in the sound of the embedded voice: none is accepted and ignored."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.interface.conftest import Voice, Wire
from tests.interface.rules import each, proves
from tests.interface.sound import file, level, pitch, samples, seconds
from tests.interface.uploads import SAID
from tests.interface.wire import JSON, MSGPACK
from voicelab.text import normalize

LONG = "The boy ran. " * 3 + "Rice is often served in round bowls, and the juice of lemons makes fine punch too. " * 2


@pytest.fixture(scope="session")
def low_and_high(voice: Voice) -> tuple[str, str]:
    """The lowest and the highest of some voices of the shared library."""
    named = [one.id for one in voice.backend.capabilities.voices]
    assert len(named) >= 3
    ranked = sorted((pitch(voice.say(reference_id=name)), name) for name in named[:3])
    assert ranked[-1][0] > 1.2 * ranked[0][0]
    return ranked[0][1], ranked[-1][1]


@proves("2.1/text:meaning", "4.1-1", "1-1")
def test_text_is_what_is_said(voice: Voice) -> None:
    short, long = voice.say("Yes."), voice.say(SAID)
    assert 0.2 < seconds(short) < 2
    assert seconds(long) > 3 * seconds(short)
    assert voice.say("No.") != short
    assert level(long) > -45


@proves("2.1/temperature:meaning")
def test_a_higher_temperature_is_more_varied(voice: Voice) -> None:
    cold, warm = ([voice.say(temperature=t, seed=seed) for seed in range(1, 4)] for t in (0, 1))
    assert len(set(cold)) == 1
    assert len(set(warm)) == 3


@proves("2.1/top_p:meaning")
def test_top_p_is_how_much_of_the_nucleus_is_sampled(voice: Voice) -> None:
    # Of an empty nucleus only the likeliest token is left: no seed matters, and it is what greedy choice says.
    narrow = [voice.say(top_p=0, temperature=1, seed=seed) for seed in (1, 2)]
    assert narrow[0] == narrow[1] == voice.say(temperature=0)
    assert len({voice.say(top_p=1, temperature=1, seed=seed) for seed in (1, 2)}) == 2
    assert voice.say(top_p=0.3, temperature=1) != voice.say(top_p=1, temperature=1)


@proves("2.1/references:meaning", "1-5")
def test_references_clone_a_voice_at_once(voice: Voice, low_and_high: tuple[str, str]) -> None:
    cloned = []
    for name in low_and_high:
        references = [{"audio": file(voice.say(SAID, reference_id=name), "WAV"), "text": SAID}]
        cloned.append(pitch(voice.say("Four hours of steady work faced us.", kind=MSGPACK, references=references)))
    low, high = (pitch(voice.say(SAID, reference_id=name)) for name in low_and_high)
    middle = (low * high) ** 0.5
    assert cloned[0] < middle < cloned[1]


@each("2.2/audio={}", ["WAV", "MP3", "FLAC"])
def test_format_of_a_reference(voice: Voice, row: str, low_and_high: tuple[str, str]) -> None:
    said = voice.say(SAID, reference_id=low_and_high[0])
    clone = voice.say(kind=MSGPACK, references=[{"audio": file(said, row), "text": SAID}])
    assert clone != voice.say()
    assert pitch(clone) < 1.25 * pitch(said)


@proves("2.2/audio:meaning")
def test_a_voice_sample_of_10_to_30_seconds_is_taken(voice: Voice, low_and_high: tuple[str, str]) -> None:
    said = voice.say(SAID, reference_id=low_and_high[1])
    for times in (4, 10):
        sample = said * times
        assert 8 < seconds(sample) < 35
        clone = voice.say(kind=MSGPACK, references=[{"audio": file(sample, "WAV"), "text": SAID * times}])
        assert pitch(clone) > pitch(voice.say(reference_id=low_and_high[0]))


@proves("2.2/text:meaning")
def test_the_transcript_of_a_reference_reaches_what_speaks(wire: Wire) -> None:
    """The voice inside the package clones by the sound alone; one that reads transcripts gets each as it was written."""
    said = []
    for text in ("Glue the sheet.", "Glue the sheet!", "糊上  那张纸。\n"):
        value = {"text": "Hi", "references": [{"audio": b"sound", "text": text}]}
        said.append(wire.caller.tts(value, MSGPACK, x_voicelab_seed="1").body)
        (reference,) = wire.backend.asked[-1][0].references or ()
        assert reference.text == text
    assert len(set(said)) == 3


@proves("2.1/references:ignored")
def test_references_are_ignored_beside_a_reference_id(voice: Voice, low_and_high: tuple[str, str]) -> None:
    alone = voice.say(reference_id=low_and_high[0])
    audio = file(voice.say(SAID, reference_id=low_and_high[1]), "WAV")
    for references in ([{"audio": audio, "text": SAID}], [{"audio": b"no audio at all", "text": ""}]):
        both = voice.say(kind=MSGPACK, reference_id=low_and_high[0], references=references)
        assert both == alone


@proves("2.1/reference_id:shared")
def test_reference_id_names_a_voice_of_the_shared_library(voice: Voice, low_and_high: tuple[str, str]) -> None:
    low, high = (voice.say(reference_id=name) for name in low_and_high)
    assert pitch(high) > 1.2 * pitch(low)
    assert voice.say(kind=MSGPACK, reference_id=low_and_high[0]) == low


@proves("2.3/speed:meaning", "2.1/prosody:meaning")
def test_speed_multiplies_the_rate_of_speech(voice: Voice) -> None:
    normal = voice.say()
    assert voice.say(prosody={"speed": 1.0}) == normal == voice.say(prosody={}) == voice.say(prosody=None)
    for speed in (0.5, 1.5, 2.0):
        changed = voice.say(prosody={"speed": speed})
        assert seconds(changed) == pytest.approx(seconds(normal) / speed, rel=0.06)
        assert pitch(changed) == pytest.approx(pitch(normal), rel=0.2)


@proves("2.3/volume:louder")
def test_a_positive_volume_is_louder_by_so_many_db(voice: Voice) -> None:
    normal = voice.say(prosody={"volume": -12})
    assert level(voice.say(prosody={"volume": -6})) - level(normal) == pytest.approx(6, abs=0.1)
    assert level(voice.say(prosody={"volume": 6})) > level(voice.say()) + 3
    loudest = samples(voice.say(prosody={"volume": 30}))
    assert np.abs(loudest).max() <= 1
    assert np.mean(np.abs(loudest) > 0.999) < 0.01  # limited, not clipped


@proves("2.3/volume:quieter")
def test_a_negative_volume_is_quieter_by_so_many_db(voice: Voice) -> None:
    normal = voice.say()
    for volume in (-6, -12.5):
        assert level(voice.say(prosody={"volume": volume})) - level(normal) == pytest.approx(volume, abs=0.2)
    assert seconds(voice.say(prosody={"volume": -6})) == seconds(normal)


@proves("2.1/max_new_tokens:meaning")
def test_max_new_tokens_ends_each_chunk(voice: Voice) -> None:
    whole, some, one = (voice.say(SAID, max_new_tokens=number) for number in (1024, 20, 10))
    assert seconds(some) < seconds(whole) / 2
    # Tokens are of one length; what is not of tokens (silence at an end) is the same for both.
    assert 1.5 < seconds(some) / seconds(one) < 2.5


@proves("2.1/chunk_length:meaning")
def test_chunk_length_is_the_size_of_segments(voice: Voice) -> None:
    # With 12 tokens for each segment, the length of the speech counts the segments.
    one, several = (voice.say(LONG, max_new_tokens=8, chunk_length=n, min_chunk_length=100) for n in (300, 100))
    assert seconds(several) == pytest.approx(3 * seconds(one), rel=0.05)


@proves("2.1/min_chunk_length:meaning")
def test_min_chunk_length_is_where_a_new_chunk_may_begin(voice: Voice) -> None:
    text = "Yes, it is so. " * 8
    counted = [seconds(voice.say(text, max_new_tokens=8, chunk_length=100, min_chunk_length=size)) for size in (0, 100)]
    assert counted[0] > counted[1]


@proves("2.1/condition_on_previous_chunks:meaning")
def test_previous_chunks_are_context(voice: Voice) -> None:
    text = "The boy ran down the long road to the shore in the early morning sun and then he swam. " * 2
    fields: dict[str, Any] = {"chunk_length": 100, "max_new_tokens": 15}
    apart, joined = (voice.say(text, condition_on_previous_chunks=on, **fields) for on in (False, True))
    assert apart != joined
    # Nothing comes before the first chunk, so it is the same.
    first = int(0.35 * len(apart)) // 2 * 2
    assert apart[: first // 2] == joined[: first // 2]


@proves("2.1/early_stop_threshold:meaning")
def test_early_stop_ends_a_batch_when_so_many_of_it_have_ended(voice: Voice) -> None:
    text = "Yes. " + "The boy ran down the long road to the shore in the early morning sun, and then he swam. " * 2
    fields: dict[str, Any] = {"chunk_length": 100, "min_chunk_length": 0, "condition_on_previous_chunks": False}
    all_ended, early = (voice.say(text, early_stop_threshold=share, **fields) for share in (1, 0.1))
    assert seconds(early) < 0.9 * seconds(all_ended)
    assert voice.say(text, **fields) == all_ended


@proves("2.1/repetition_penalty:meaning")
def test_repetition_penalty_reduces_repetition(voice: Voice) -> None:
    text = "No, no, no, no, no, no, no, no, no."
    plain, penalised = (voice.say(text, repetition_penalty=value, temperature=0) for value in (1.0, 2.0))
    assert plain != penalised


@proves("2.1/normalize:english")
def test_numbers_are_normalized_in_english(voice: Voice) -> None:
    assert voice.say("Room 42.") == voice.say("Room forty-two.")
    assert voice.say("Room 42.", normalize=False) != voice.say("Room 42.")
    # Where there is nothing to normalize it changes nothing.
    assert voice.say(normalize=False) == voice.say(normalize=True) == voice.say()


@proves("2.1/normalize:chinese")
def test_numbers_are_normalized_in_chinese() -> None:
    """Below the wire: the voice inside the package speaks English, and leaves out what it cannot say."""
    assert normalize("我有25个苹果。", ("en", "zh")).text.startswith("我有二十五个苹果")
    assert normalize("2026年3月5日", ("en", "zh")).text.startswith("二零二六年三月五日")


@proves("2.1/latency:meaning")
def test_low_latency_speaks_first_and_normal_last(voice: Voice) -> None:
    """By the clock, and by how much must be made before the first audio leaves, which no other work on a machine changes."""
    took: dict[str, list[float]] = {latency: [] for latency in ("low", "balanced", "normal")}
    size: dict[str, int] = {}
    for latency in (*took, *took, *took):
        with voice.caller.open() as line:
            value = {"text": LONG, "format": "pcm", "latency": latency, "max_new_tokens": 40}
            began = time.perf_counter()
            line.sendall(voice.caller.raw(value, JSON))
            received = b""
            while b"\r\n" not in (body := received.partition(b"\r\n\r\n")[2]):
                received += line.recv(65536)
            took[latency].append(time.perf_counter() - began)
        first = int(body.partition(b"\r\n")[0], 16)
        size[latency] = min(size.get(latency, first), first)
    assert size["low"] < size["balanced"] < size["normal"]
    assert min(took["low"]) < min(took["balanced"]) < min(took["normal"])
