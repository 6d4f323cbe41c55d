"""What "same interface" means: a backend, a service in front of it and a recording of it say the same, byte for byte.

The same requests go to the backend directly, over a real socket through ServiceBackend to the service in
which that backend speaks, and to ReplayBackend, which plays what the backend said directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.tiny import make_codec, make_lm, speaker
from tests.tones import ToneBackend
from voicelab.backend import Backend, SpeechStream, VoicePreset
from voicelab.call import Call
from voicelab.client import ServiceBackend
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer.checkpoint import save
from voicelab.errors import RequestInvalid
from voicelab.experiments.recording import RecordingBackend, ReplayBackend
from voicelab.registry import missing_packages, open_backend
from voicelab.schema import FORMATS, AudioFormat, ProsodyControl, ReferenceAudio, TTSRequest
from voicelab.service.keys import KeyStore
from voicelab.service.run import running

TEXT = "The birch canoe slid on the smooth planks."
# (fields of the request, seed): each says something else.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    **{name: ({"format": name}, 1) for name in FORMATS},
    "another seed": ({"format": "pcm"}, 2**63 - 1),
    "lower rate": ({"format": "wav", "sample_rate": 16000}, 1),
    "mp3 at 192": ({"mp3_bitrate": 192, "sample_rate": 32000}, 1),
    "opus at 24": ({"format": "opus", "opus_bitrate": 24}, 1),
    "greedy": ({"format": "pcm", "temperature": 0}, 1),
    "wild": ({"format": "pcm", "temperature": 1, "top_p": 1, "repetition_penalty": 1.0}, 1),
    "fast and loud": ({"format": "wav", "prosody": ProsodyControl(speed=1.25, volume=3)}, 1),
    "low latency": ({"format": "opus", "latency": "low"}, 1),
    "no normalizing": ({"format": "pcm", "text": "Room 101, at 9:30.", "normalize": False}, 1),
    "two segments": (
        {"format": "pcm", "text": f"{TEXT} " * 4, "chunk_length": 100, "condition_on_previous_chunks": False},
        1,
    ),
}


@dataclass(frozen=True)
class Pair:
    direct: RecordingBackend
    served: ServiceBackend
    said: dict[str, list[bytes]] = field(default_factory=dict)

    def directly(self, case: str) -> bytes:
        """What the backend says by itself; it is asked once."""
        return b"".join(self.chunks(case))

    def chunks(self, case: str) -> list[bytes]:
        if case not in self.said:
            fields, seed = CASES[case]
            self.said[case] = list(self.direct.synthesize(Call(_request(fields), seed=seed)))
        return self.said[case]

    @property
    def replayed(self) -> ReplayBackend:
        """The recording of all that the backend has said by itself until now, played from its beginning."""
        return ReplayBackend(self.direct.entries.folder, "at once")


@pytest.fixture(scope="module", params=["tones", "tiny engine", "embedded voice"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with _paired(request.param, tmp_path_factory) as pair:
        yield pair


@pytest.fixture(scope="module", params=["kokoro"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A backend that has its own model and voices, and ignores what it cannot do."""
    with _paired(request.param, tmp_path_factory) as pair:
        yield pair


@contextmanager
def _paired(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    direct = _backend(kind, tmp_path_factory.mktemp("weights") / "tiny.safetensors")
    with (
        KeyStore(tmp_path_factory.mktemp("equality") / "keys.sqlite3") as keys,
        running(direct, keys=keys) as url,
        ServiceBackend(url, keys.create("equality").secret) as served,
    ):
        yield Pair(RecordingBackend(direct, tmp_path_factory.mktemp("recording")), served)
    direct.close()


def _backend(kind: str, weights: Path) -> Backend:
    if kind == "tones":
        return ToneBackend()
    if kind == "tiny engine":
        # The whole engine, with weights drawn at random: it says nonsense, and every byte depends on all that is asked.
        voices = {VoicePreset(name, name.title()): speaker(number) for number, name in enumerate(("ada", "ben", "cy"))}
        save(weights, make_codec(), make_lm(), voices, {})
        return LocalBackend(device="cpu", weights=weights)
    if kind == "kokoro":
        if missing_packages("kokoro"):
            pytest.skip("Kokoro is not installed")
        return open_backend("kokoro:")
    return LocalBackend(device="cpu")


def _request(fields: dict[str, Any]) -> TTSRequest:
    return TTSRequest.build(**{"text": TEXT, **fields})


def _bytes(stream: SpeechStream) -> bytes:
    return b"".join(stream)


@pytest.mark.parametrize("case", CASES)
def test_bytes_of_other_voices(other: Pair, case: str) -> None:
    test_bytes(other, case)


@pytest.mark.parametrize("case", CASES)
def test_bytes(pair: Pair, case: str) -> None:
    fields, seed = CASES[case]
    served = _bytes(pair.served.synthesize(Call(_request(fields), seed=seed)))
    assert served == pair.directly(case)
    assert len(served) > 1000
    replayed = pair.replayed.synthesize(Call(_request(fields), seed=seed))
    # Not the bytes alone: the chunks in which they came.
    assert list(replayed) == pair.chunks(case)
    assert replayed.seed == seed


def test_the_cases_differ(pair: Pair) -> None:
    said = {pair.directly(case) for case in CASES}
    assert len(said) == len(CASES)


@pytest.mark.parametrize("model", ["s1", "s2-pro"])
def test_models(pair: Pair, model: Any) -> None:
    request = _request({"format": "pcm"})
    direct = _bytes(pair.direct.synthesize(Call(request, model=model, seed=3)))
    assert _bytes(pair.served.synthesize(Call(request, model=model, seed=3))) == direct
    assert _bytes(pair.replayed.synthesize(Call(request, model=model, seed=3))) == direct


def test_clips(pair: Pair) -> None:
    request = _request({"format": "wav"})
    direct = pair.direct.synthesize(Call(request, seed=5)).clip()
    served = pair.served.synthesize(Call(request, seed=5)).clip()
    replayed = pair.replayed.synthesize(Call(request, seed=5)).clip()
    assert direct.take is not None
    for clip in (served, replayed):
        np.testing.assert_array_equal(clip.samples, direct.samples)
        assert clip.rate == direct.rate
        assert clip.take is not None
        for name in ("request", "model", "seed", "fingerprint", "backend"):
            assert getattr(clip.take, name) == getattr(direct.take, name)
    assert replayed.take == direct.take
    assert replayed.words == direct.words


def test_preset_voices(pair: Pair) -> None:
    voices = [voice.id for voice in pair.direct.capabilities.voices]
    assert [voice.id for voice in pair.served.capabilities.voices] == voices
    assert pair.replayed.capabilities == pair.direct.capabilities
    said = set()
    for voice in voices[:3]:
        request = _request({"format": "pcm", "reference_id": voice})
        direct = _bytes(pair.direct.synthesize(Call(request, seed=1)))
        assert _bytes(pair.served.synthesize(Call(request, seed=1))) == direct
        assert _bytes(pair.replayed.synthesize(Call(request, seed=1))) == direct
        said.add(direct)
    assert len(said) == len(voices[:3])


def test_references(pair: Pair) -> None:
    # The voice's own speech, in each of the formats that a reference may have.
    own = pair.direct.synthesize(Call(_request({"format": "wav", "text": f"{TEXT} {TEXT}"}), seed=9)).clip()
    said = set()
    kinds: tuple[AudioFormat, ...] = ("wav", "mp3")
    for kind in kinds:
        reference = ReferenceAudio(audio=own.to_bytes(kind), text=f"{TEXT} {TEXT}")
        request = _request({"format": "pcm", "text": "Hello there.", "references": (reference,)})
        direct = _bytes(pair.direct.synthesize(Call(request, seed=1)))
        assert _bytes(pair.served.synthesize(Call(request, seed=1))) == direct
        assert _bytes(pair.replayed.synthesize(Call(request, seed=1))) == direct
        said.add(direct)
    assert _bytes(pair.served.synthesize(Call(_request({"format": "pcm", "text": "Hello there."}), seed=1))) not in said


def test_refusals(pair: Pair) -> None:
    for fields in ({"reference_id": "nobody"}, {"text": "x" * 20_001}):
        request = _request(fields)
        with pytest.raises(RequestInvalid) as direct:
            _bytes(pair.direct.synthesize(Call(request)))
        with pytest.raises(RequestInvalid) as served:
            _bytes(pair.served.synthesize(Call(request)))
        with pytest.raises(RequestInvalid) as replayed:
            _bytes(pair.replayed.synthesize(Call(request)))
        assert [error.loc for error in served.value.errors] == [error.loc for error in direct.value.errors]
        assert replayed.value.errors == direct.value.errors


def test_several_at_once(pair: Pair) -> None:
    requests = [_request({"format": "mp3", "text": f"Number {number}."}) for number in range(6)]
    alone = [_bytes(pair.direct.synthesize(Call(request, seed=1))) for request in requests]
    with ThreadPoolExecutor(6) as pool:
        for backend in (pair.served, pair.replayed):
            speak = partial(_said, backend)
            assert list(pool.map(speak, requests)) == alone


def test_a_drawn_seed_is_played_back(pair: Pair) -> None:
    request = _request({"format": "pcm", "text": "A seed of one's own."})
    direct = [pair.direct.synthesize(Call(request)) for _ in range(2)]
    said = [_bytes(stream) for stream in direct]
    player = pair.replayed
    replayed = [player.synthesize(Call(request)) for _ in range(2)]
    assert [_bytes(stream) for stream in replayed] == said
    assert [stream.seed for stream in replayed] == [stream.seed for stream in direct]


def _said(backend: Backend, request: TTSRequest) -> bytes:
    return _bytes(backend.synthesize(Call(request, seed=1)))
