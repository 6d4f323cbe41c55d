"""Sentences synthesized by the embedded voice, shared by tests of intake, alignment and denoising."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from voicelab.audio.samples import Samples
from voicelab.call import Call
from voicelab.engine.local import LocalBackend
from voicelab.schema import TTSRequest

SENTENCES = ("The quick brown fox jumps over the lazy dog.", "She got a job in the historical section of the library.")


@dataclass(frozen=True)
class Utterance:
    """A sentence of the embedded voice, as 44.1 kHz samples."""

    text: str
    voice: str
    samples: Samples
    rate: int


@pytest.fixture(scope="session")
def utterances() -> tuple[Utterance, ...]:
    """Synthesize each sentence with two voices, in one batch."""
    with LocalBackend("cpu") as engine:
        labels = [(text, voice.id) for text in SENTENCES for voice in engine.capabilities.voices[:2]]
        requests = [TTSRequest(text=text, reference_id=voice, format="wav") for text, voice in labels]
        streams = [engine.synthesize(Call(request, seed=1)) for request in requests]
        clips = [stream.clip() for stream in streams]
    return tuple(Utterance(*label, clip.samples, clip.rate) for label, clip in zip(labels, clips, strict=True))
