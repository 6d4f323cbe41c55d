"""What "same interface" means: a backend and a service in front of it say the same, byte for byte.

The same requests go to the backend directly and, over a real socket, through ServiceBackend to the
service in which that backend speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.tiny import make_codec, make_lm, speaker
from tests.tones import ToneBackend
from voicelab.backend import Backend, SpeechStream, VoicePreset
from voicelab.client import ServiceBackend
from voicelab.engine.checkpoint import save
from voicelab.engine.local import LocalBackend
from voicelab.errors import RequestInvalid
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
    direct: Backend
    served: ServiceBackend
    said: dict[str, bytes] = field(default_factory=dict)

    def directly(self, case: str) -> bytes:
        """What the backend says by itself; it is asked once."""
        if case not in self.said:
            fields, seed = CASES[case]
            self.said[case] = _bytes(self.direct.synthesize(_request(fields), seed=seed))
        return self.said[case]


@pytest.fixture(scope="module", params=["tones", "tiny engine", "embedded voice"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    direct = _backend(request.param, tmp_path_factory.mktemp("weights") / "tiny.safetensors")
    with (
        KeyStore(tmp_path_factory.mktemp("equality") / "keys.sqlite3") as keys,
        running(direct, keys=keys) as url,
        ServiceBackend(url, keys.create("equality").secret) as served,
    ):
        yield Pair(direct, served)
    direct.close()


def _backend(kind: str, weights: Path) -> Backend:
    if kind == "tones":
        return ToneBackend()
    if kind == "tiny engine":
        # The whole engine, with weights drawn at random: it says nonsense, and every byte depends on all that is asked.
        voices = {VoicePreset(name, name.title()): speaker(number) for number, name in enumerate(("ada", "ben", "cy"))}
        save(weights, make_codec(), make_lm(), voices, {})
        return LocalBackend(device="cpu", weights=weights)
    return LocalBackend(device="cpu")


def _request(fields: dict[str, Any]) -> TTSRequest:
    return TTSRequest.build(**{"text": TEXT, **fields})


def _bytes(stream: SpeechStream) -> bytes:
    return b"".join(stream)


@pytest.mark.parametrize("case", CASES)
def test_bytes(pair: Pair, case: str) -> None:
    fields, seed = CASES[case]
    served = _bytes(pair.served.synthesize(_request(fields), seed=seed))
    assert served == pair.directly(case)
    assert len(served) > 1000


def test_the_cases_differ(pair: Pair) -> None:
    said = {pair.directly(case) for case in CASES}
    assert len(said) == len(CASES)


@pytest.mark.parametrize("model", ["s1", "s2-pro"])
def test_models(pair: Pair, model: Any) -> None:
    request = _request({"format": "pcm"})
    direct = _bytes(pair.direct.synthesize(request, model=model, seed=3))
    assert _bytes(pair.served.synthesize(request, model=model, seed=3)) == direct


def test_clips(pair: Pair) -> None:
    request = _request({"format": "wav"})
    direct = pair.direct.synthesize(request, seed=5).clip()
    served = pair.served.synthesize(request, seed=5).clip()
    np.testing.assert_array_equal(served.samples, direct.samples)
    assert served.rate == direct.rate
    assert served.provenance is not None
    assert direct.provenance is not None
    for name in ("request", "model", "seed", "fingerprint", "backend"):
        assert getattr(served.provenance, name) == getattr(direct.provenance, name)


def test_preset_voices(pair: Pair) -> None:
    voices = [voice.id for voice in pair.direct.capabilities.voices]
    assert [voice.id for voice in pair.served.capabilities.voices] == voices
    said = set()
    for voice in voices[:3]:
        request = _request({"format": "pcm", "reference_id": voice})
        direct = _bytes(pair.direct.synthesize(request, seed=1))
        assert _bytes(pair.served.synthesize(request, seed=1)) == direct
        said.add(direct)
    assert len(said) == len(voices[:3])


def test_references(pair: Pair) -> None:
    # The voice's own speech, in each of the formats that a reference may have.
    own = pair.direct.synthesize(_request({"format": "wav", "text": f"{TEXT} {TEXT}"}), seed=9).clip()
    said = set()
    kinds: tuple[AudioFormat, ...] = ("wav", "mp3")
    for kind in kinds:
        reference = ReferenceAudio(audio=own.to_bytes(kind), text=f"{TEXT} {TEXT}")
        request = _request({"format": "pcm", "text": "Hello there.", "references": (reference,)})
        direct = _bytes(pair.direct.synthesize(request, seed=1))
        assert _bytes(pair.served.synthesize(request, seed=1)) == direct
        said.add(direct)
    assert _bytes(pair.served.synthesize(_request({"format": "pcm", "text": "Hello there."}), seed=1)) not in said


def test_refusals(pair: Pair) -> None:
    for fields in ({"reference_id": "nobody"}, {"text": "x" * 20_001}):
        request = _request(fields)
        with pytest.raises(RequestInvalid) as direct:
            _bytes(pair.direct.synthesize(request))
        with pytest.raises(RequestInvalid) as served:
            _bytes(pair.served.synthesize(request))
        assert [error.loc for error in served.value.errors] == [error.loc for error in direct.value.errors]


def test_several_at_once(pair: Pair) -> None:
    requests = [_request({"format": "mp3", "text": f"Number {number}."}) for number in range(6)]
    alone = [_bytes(pair.direct.synthesize(request, seed=1)) for request in requests]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda request: _bytes(pair.served.synthesize(request, seed=1)), requests))
    assert together == alone
