"""What anybody may send as a recording or a cover: bombs, forged headers, scripts, addresses, damage, pickles."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.audio.sounds import libsndfile_bytes
from tests.speechlike import RATE, speech_file, speechlike
from tests.voices.conftest import SAMPLES
from tests.voices.test_cover import picture
from voicelab.engine.pointer.checkpoint import load
from voicelab.errors import RequestInvalid, VoicelabError, WeightsError
from voicelab.schema import VoiceCreate
from voicelab.voices.intake import prepare_samples
from voicelab.voices.store import Sample, VoiceStore


def _take(voice: bytes, cover: bytes | None = None) -> tuple[Sample, ...]:
    request = VoiceCreate.build(title="Ada", voices=(voice,), texts="x", visibility="private", cover_image=cover)
    return prepare_samples(request, lambda: None, lambda: None)


def _flac_bomb() -> bytes:
    return libsndfile_bytes(np.zeros(48_000 * 310, np.int16), 48_000, "FLAC")


def _forged_rate() -> bytes:
    data = bytearray(speech_file(2))
    data[24:28] = struct.pack("<I", 4_000_000_000)
    return bytes(data)


def _forged_mp3() -> bytes:
    return b"\xff\xfb\x90\xc4" + bytes(413) + bytes.fromhex("fffb10c4") * 20_000


@pytest.mark.parametrize("make", [_flac_bomb, _forged_rate, _forged_mp3])
def test_bombs_and_forged_rates_are_rejected(make: object) -> None:
    with pytest.raises(RequestInvalid, match="Voice file 1"):
        _take(make())  # type: ignore[operator]


@pytest.fixture(scope="module")
def wholes() -> list[bytes]:
    kinds = (("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"))
    rated = [libsndfile_bytes(speechlike(0.9), RATE, *kind) for kind in kinds]
    return [*rated, speech_file(0.9, format="mp3"), speech_file(0.9, format="opus")]


def _mutations(wholes: list[bytes], count: int) -> Iterator[bytes]:
    chance = np.random.default_rng(count)
    for number in range(count):
        whole = wholes[number % len(wholes)]
        data = bytearray(whole[: int(chance.integers(8, len(whole)))] if number % 5 == 0 else whole)
        # Headers are where damage does most.
        for _ in range(int(chance.integers(1, 9))):
            at = int(chance.integers(0, min(200, len(data)) if chance.random() < 0.7 else len(data)))
            data[at] = int(chance.integers(0, 256))
        yield bytes(data)


def _bear(wholes: list[bytes], count: int) -> int:
    refused = []
    for data in _mutations(wholes, count):
        try:
            (sample,) = _take(data)
        except RequestInvalid as error:
            refused.append(error.errors[0].ctx)
        else:
            assert sample.audio[:4] == b"RIFF"
    assert set(refused) == {"index: 0"}
    return len(refused)


def test_damage_is_a_422_or_audio(wholes: list[bytes]) -> None:
    assert 20 < _bear(wholes, 200) <= 200


@pytest.mark.thorough
def test_much_damage_is_a_422_or_audio(wholes: list[bytes]) -> None:
    assert 500 < _bear(wholes, 5000) <= 5000


def test_urls_are_never_requested() -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0.2)
        port = canary.getsockname()[1]
        for text in (
            f"http://127.0.0.1:{port}/voice.wav",
            f"tcp://127.0.0.1:{port}",
            f"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:{port}/a.wav\n",
            f"ffconcat version 1.0\nfile 'http://127.0.0.1:{port}/a.wav'\n",
            f"concat:http://127.0.0.1:{port}/a.wav",
        ):
            for data in (text.encode(), b"RIFF\x00\x00\x00\x00WAVE" + text.encode(), b"fLaC" + text.encode()):
                with pytest.raises(RequestInvalid, match="Voice file 1"):
                    _take(data)
            for cover in (text.encode(), b"\x89PNG\r\n\x1a\n" + text.encode(), b"\xff\xd8\xff" + text.encode()):
                with pytest.raises(RequestInvalid, match="cover_image"):
                    _take(speech_file(2), cover)
        with pytest.raises(TimeoutError):
            canary.accept()


class _Canary:
    """Makes a file of this name when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    payload = pickle.dumps(_Canary(canary))
    pickle.loads(payload)  # noqa: S301 - the canary sings when it can
    assert canary.exists()
    canary.unlink()
    with pytest.raises(RequestInvalid):
        _take(payload)
    with pytest.raises(RequestInvalid):
        _take(speech_file(2), payload)
    weights = tmp_path / "voice.safetensors"
    weights.write_bytes(payload)
    with pytest.raises(WeightsError):
        load(weights)
    with VoiceStore(tmp_path / "voices") as store:
        request = VoiceCreate(title="Ada", voices=(payload,), visibility="private", cover_image=picture())
        voice = store.begin(request, (Sample(payload, "", ""), *SAMPLES), "ann")
        store.train(voice)
        store.finish(voice, "weights", payload)
        assert store.embedding(voice, "ann", "weights") == payload
        assert store.samples(voice, "ann")[0].audio == payload
    (tmp_path / "voices" / "voices.sqlite3").write_bytes(payload)
    with VoiceStore(tmp_path / "voices") as store, pytest.raises(VoicelabError):
        store.get(voice, "ann")
    assert not canary.exists()
