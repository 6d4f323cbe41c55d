"""A checkpoint of two language models on one codec, of different sizes and with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.tiny import LANGUAGE, make_codec, make_lm, speaker, write_weights
from tests.speechlike import speech_file
from voicelab.backend import SpeechStream
from voicelab.call import Call, VoicePreset
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer import checkpoint
from voicelab.errors import EngineError
from voicelab.schema import TTSRequest, VoiceCreate

ADA = VoicePreset("ada", "Ada")
TEXT = "The birch canoe slid on the smooth planks."


def _request(**fields: object) -> TTSRequest:
    return TTSRequest.build(text=TEXT, **{"format": "pcm", "sample_rate": 44100, **fields})


def _bytes(stream: SpeechStream) -> bytes:
    return b"".join(stream)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[LocalBackend]:
    """Two models of different sizes on one codec."""
    main = tmp_path / checkpoint.EMBEDDED
    codec = make_codec()
    codec.decoder.leave.bias[1:].sub_(3)
    larger = replace(LANGUAGE, slow=replace(LANGUAGE.slow, layers=3, hidden=64))
    checkpoint.save(main, codec, make_lm(5, larger), {ADA: speaker(1)}, {})
    checkpoint.save_small(tmp_path / checkpoint.S1_FILE, make_lm(), checkpoint.load(main), {})
    made = LocalBackend("cpu", weights=tmp_path, rows=3)
    yield made
    made.close()


def test_two_models_differ_and_share_voices(two: LocalBackend, tmp_path: Path) -> None:
    assert two.capabilities.one_model is False
    large, small = (two.synthesize(Call(_request(), model=model, seed=3)).clip() for model in ("s2-pro", "s1"))
    assert large != small
    assert (large.notes, small.notes) == ((), ())
    again = two.synthesize(Call(_request(reference_id="ada"), model="s1", seed=3)).clip()
    assert again == small
    path = write_weights(tmp_path / "alone.safetensors", checkpoint.load_codec(tmp_path / checkpoint.EMBEDDED))
    alone = LocalBackend("cpu", weights=path)
    assert alone.synthesize(Call(_request(), seed=3)).clip() == small
    assert alone.capabilities.one_model is True
    assert alone.capabilities.fingerprint != two.capabilities.fingerprint
    alone.close()


def test_second_model_is_loaded_on_first_request(two: LocalBackend) -> None:
    _bytes(two.synthesize(Call(_request(), seed=3)))
    assert two._models._parts.keys() == {"s2-pro"}
    threads = [two.synthesize(Call(_request(), model="s1", seed=3)) for _ in range(3)]
    assert len({_bytes(stream) for stream in threads}) == 1
    assert two._models.parts("s1") is two._models.parts("s1")
    two.close()
    with pytest.raises(EngineError, match="closed"):
        two.synthesize(Call(_request(), model="s1"))


def test_second_model_changes_the_fingerprint(two: LocalBackend, tmp_path: Path) -> None:
    checkpoint.save_small(tmp_path / checkpoint.S1_FILE, make_lm(7), checkpoint.load(tmp_path), {})
    other = LocalBackend("cpu", weights=tmp_path)
    assert other.capabilities.fingerprint != two.capabilities.fingerprint
    other.close()


def test_stored_voice_works_with_both_models(two: LocalBackend) -> None:
    voice = two.create_voice(VoiceCreate(title="Mine", voices=(speech_file(2),), texts=("said",), visibility="private"))
    said = [
        _bytes(two.synthesize(Call(_request(reference_id=voice.id), model=model, seed=1))) for model in ("s1", "s2-pro")
    ]
    assert said[0] != said[1]
    assert said[0] != _bytes(two.synthesize(Call(_request(), model="s1", seed=1)))
