"""What "same interface" means: a backend, a service in front of it and a recording of it say the same, byte for byte.

The same requests go to the backend directly, over a real socket through ServiceBackend to the service in
which that backend speaks, and to ReplayBackend, which plays what the backend said directly. Every backend that is installed
is asked: our own, Kokoro, a voice of Piper's form, and a server of OpenAI's API. One that takes no seed is asked without.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.test_piper import TWO_SPEAKERS
from tests.backends.test_piper import voice as piper_voice
from tests.engine.tiny import make_codec, make_lm, speaker
from tests.tones import ToneBackend
from voicelab.backend import Backend, SpeechStream
from voicelab.backends.registry import open_backend, requirements
from voicelab.backends.runs import RecordingBackend, ReplayBackend
from voicelab.backends.service import ServiceBackend
from voicelab.call import Call, VoicePreset
from voicelab.engine.pointer.checkpoint import save
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
        {"format": "pcm", "text": f"{TEXT} " * 3, "chunk_length": 100, "condition_on_previous_chunks": False},
        1,
    ),
}


OWN = ("tones", "tiny engine", "embedded voice")
OTHERS = ("kokoro", "piper", "openai")


@dataclass(frozen=True)
class Pair:
    direct: RecordingBackend
    served: ServiceBackend
    text: str = TEXT
    said: dict[str, list[bytes]] = field(default_factory=dict)

    def call(self, seed: int | None = 1, /, **fields: Any) -> Call:
        """What is asked of all three; without its seed where none is taken."""
        return Call(
            TTSRequest.build(**{"text": self.text, **fields}),
            seed=None if self.direct.capabilities.seed == "none" else seed,
        )

    def case(self, name: str) -> Call:
        fields, seed = CASES[name]
        return self.call(seed, **fields)

    def directly(self, case: str) -> bytes:
        """What the backend says by itself; it is asked once."""
        return b"".join(self.chunks(case))

    def alike(self, call: Call) -> bytes:
        """Check that all three say the same, and return it."""
        direct = _bytes(self.direct.synthesize(call))
        assert _bytes(self.served.synthesize(call)) == direct
        assert _bytes(self.replayed.synthesize(call)) == direct
        return direct

    def chunks(self, case: str) -> list[bytes]:
        # Without seeds two cases are one call: said twice, it would come in other chunks.
        call = self.case(case)
        if (said := repr(call)) not in self.said:
            self.said[said] = list(self.direct.synthesize(call))
        return self.said[said]

    @property
    def replayed(self) -> ReplayBackend:
        """The recording of all that the backend has said by itself until now, played from its beginning."""
        return ReplayBackend(self.direct.run.folder, "at once")


@pytest.fixture(scope="module", params=[*OWN, *OTHERS])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with _paired(request.param, tmp_path_factory) as pair:
        yield pair


own = pytest.mark.parametrize("pair", OWN, indirect=True)
"""Only those that have the models of the interface and all of its fields."""


@contextmanager
def _paired(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with (
        KeyStore(tmp_path_factory.mktemp("equality") / "keys.sqlite3") as keys,
        _backend(kind, tmp_path_factory.mktemp("weights"), keys) as direct,
        running(direct, keys=keys) as url,
        ServiceBackend(url, keys.create("equality").secret) as served,
    ):
        # Kokoro takes a second of the processor for a second of speech.
        text = "Smooth planks." if kind == "kokoro" else TEXT
        yield Pair(RecordingBackend(direct, tmp_path_factory.mktemp("recording")), served, text)


@contextmanager
def _backend(kind: str, folder: Path, keys: KeyStore) -> Iterator[Backend]:
    with ExitStack() as opened:
        address = "local:"
        if kind == "tones":
            yield ToneBackend()
            return
        if kind == "tiny engine":
            # The whole engine, with weights drawn at random: it says nonsense, and every byte depends on all that is asked.
            voices = {VoicePreset(name, name.title()): speaker(n) for n, name in enumerate(("ada", "ben", "cy"))}
            save(folder / "tiny.safetensors", make_codec(), make_lm(), voices, {})
            address = f"local:{folder / 'tiny.safetensors'}"
        elif kind == "piper":
            # Its noise cannot be seeded, nor its knobs be said over the interface: a voice whose own noise is 0.
            still = {"noise_scale": 0.0, "length_scale": 1.5, "noise_w": 0.0}
            address = f"piper:{piper_voice(folder, inference=still, **TWO_SPEAKERS)}"
        elif kind == "openai":
            url = opened.enter_context(running(ToneBackend(), keys=keys, openai=True))
            address = f"openai:{url}"
        elif kind == "kokoro":
            address = "kokoro:"
        if kind in OTHERS and any(installed is None for installed, _ in requirements(kind).values()):
            pytest.skip(f"{kind} is not installed")
        key = {"api_key": keys.create("between").secret} if kind == "openai" else {"device": "cpu"}
        backend = open_backend(address, **(key if kind not in {"kokoro", "piper"} else {}))
        opened.callback(backend.close)
        yield backend


def _bytes(stream: SpeechStream) -> bytes:
    return b"".join(stream)


@pytest.mark.parametrize("case", CASES)
def test_bytes(pair: Pair, case: str) -> None:
    call = pair.case(case)
    served = _bytes(pair.served.synthesize(call))
    assert served == pair.directly(case)
    assert len(served) > 1000
    replayed = pair.replayed.synthesize(call)
    # Not the bytes alone: the chunks in which they came.
    assert list(replayed) == pair.chunks(case)
    # Seeds of OpenAI-compatible servers have 31 bits.
    masked = pair.direct.capabilities.name == "openai" and call.seed is not None
    assert replayed.seed == (call.seed % 2**31 if masked and call.seed is not None else call.seed)


@own
def test_the_cases_differ(pair: Pair) -> None:
    # The blocks of a latency may give the same samples.
    cases = [case for case in CASES if case != "low latency"]
    assert len({pair.directly(case) for case in cases}) == len(cases)


@own
@pytest.mark.parametrize("model", ["s1", "s2-pro"])
def test_models(pair: Pair, model: Any) -> None:
    pair.alike(replace(pair.call(3, format="pcm"), model=model))


def test_clips(pair: Pair) -> None:
    call = pair.call(5, format="wav", text="A text that is said here alone.")
    direct = pair.direct.synthesize(call).clip()
    served = pair.served.synthesize(call).clip()
    replayed = pair.replayed.synthesize(call).clip()
    assert direct.take is not None
    for clip in (served, replayed):
        np.testing.assert_array_equal(clip.samples, direct.samples)
        assert clip.rate == direct.rate
        assert clip.take is not None
        for name in ("request", "seed", "fingerprint", "backend"):
            assert getattr(clip.take, name) == getattr(direct.take, name)
        # The wire has no model but the interface's own.
        assert clip.take.model == (direct.take.model if clip is replayed else pair.served.capabilities.default_model)
    assert replayed.take == direct.take
    assert replayed.words == direct.words


def test_preset_voices(pair: Pair) -> None:
    voices = [voice.id for voice in pair.direct.capabilities.voices]
    assert [voice.id for voice in pair.served.capabilities.voices] == voices
    assert pair.replayed.capabilities == pair.direct.capabilities
    said = {pair.alike(pair.call(format="pcm", reference_id=voice)) for voice in voices[:3]}
    assert len(said) == len(voices[:3]) > 1


@own
def test_references(pair: Pair) -> None:
    # The voice's own speech, in each of the formats that a reference may have.
    own = pair.direct.synthesize(pair.call(9, format="wav", text=f"{TEXT} {TEXT}")).clip()
    said = set()
    kinds: tuple[AudioFormat, ...] = ("wav", "mp3")
    for kind in kinds:
        reference = ReferenceAudio(audio=own.to_bytes(kind), text=f"{TEXT} {TEXT}")
        said.add(pair.alike(pair.call(format="pcm", text="Hello there.", references=(reference,))))
    assert _bytes(pair.served.synthesize(pair.call(format="pcm", text="Hello there."))) not in said


def test_refusals(pair: Pair) -> None:
    for fields in ({"reference_id": "nobody"}, {"text": "x" * 20_001}):
        call = pair.call(None, **fields)
        refused = []
        for one in ("direct", "served", "replayed"):
            with pytest.raises(RequestInvalid) as caught:
                _bytes(getattr(pair, one).synthesize(call))
            refused.append(caught.value.errors)
        direct, served, replayed = refused
        assert [error.loc for error in served] == [error.loc for error in direct]
        assert replayed == direct


def test_what_is_ignored_is_noted_alike(pair: Pair) -> None:
    call = pair.call(format="wav", temperature=0.1)
    direct = pair.direct.synthesize(call).take().notes
    ignored = pair.direct.capabilities.ignored("temperature")
    assert any("temperature had no effect" in note for note in direct) == bool(ignored)
    assert set(pair.served.synthesize(call).take().notes) >= {note for note in direct if "had no effect" in note}
    assert pair.replayed.synthesize(call).take().notes == direct


def test_several_at_once(pair: Pair) -> None:
    calls = [pair.call(format="mp3", text=f"Number {number}.") for number in range(4)]
    alone = [_bytes(pair.direct.synthesize(call)) for call in calls]
    with ThreadPoolExecutor(4) as pool:
        for backend in (pair.served, pair.replayed):
            speak = partial(_said, backend)
            assert list(pool.map(speak, calls)) == alone


def test_a_drawn_seed_is_played_back(pair: Pair) -> None:
    call = pair.call(None, format="pcm", text="A seed of one's own.")
    direct = [pair.direct.synthesize(call) for _ in range(2)]
    said = [_bytes(stream) for stream in direct]
    player = pair.replayed
    replayed = [player.synthesize(call) for _ in range(2)]
    assert [_bytes(stream) for stream in replayed] == said
    assert [stream.seed for stream in replayed] == [stream.seed for stream in direct]


def _said(backend: Backend, call: Call) -> bytes:
    return _bytes(backend.synthesize(call))
