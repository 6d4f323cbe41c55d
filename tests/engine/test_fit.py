"""What the model is told of a speaker is corrected by what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from voicelab.audio.samples import resample
from voicelab.engine import fit
from voicelab.engine.fit import SENTENCES, Fitting
from voicelab.engine.local import LocalBackend
from voicelab.engine.pipeline import Parts
from voicelab.engine.sequence import Sequence
from voicelab.errors import EngineError, RequestInvalid
from voicelab.schema import ReferenceAudio, TTSRequest


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    with LocalBackend("cpu") as backend:
        yield backend


def _warped(backend: LocalBackend, ratio: float) -> Tensor:
    """Nobody: a preset played too fast or too slow."""
    request = TTSRequest(text="The birch canoe slid on the smooth planks.", reference_id="clara", format="wav")
    clip = backend.synthesize(request, seed=1).clip()
    warped = type(clip)(samples=resample(clip.samples, int(clip.rate * ratio), clip.rate), rate=clip.rate)
    return backend._references.speaker([ReferenceAudio(audio=warped.to_bytes("wav"), text="")])


@pytest.fixture(scope="module")
def speaker(backend: LocalBackend) -> Tensor:
    return _warped(backend, 7 / 6)


@pytest.fixture
def parts(backend: LocalBackend) -> Parts:
    return backend._parts


def test_what_is_said_comes_nearer_to_the_reference(backend: LocalBackend, parts: Parts, speaker: Tensor) -> None:
    """As the model sees speakers, for one higher and one lower than any that it knows."""
    model = backend._checkpoint.lm
    distances = {"plain": 0.0, "fitted": 0.0}
    for wanted in (speaker, _warped(backend, 6 / 7)):
        for how, told in (("plain", wanted), ("fitted", Fitting()(wanted, parts))):
            with torch.inference_mode():
                seen = model.encode_speaker(torch.stack([wanted, fit._heard(told, parts)]))
            distances[how] += float((seen[0] - seen[1]).norm())
    assert distances["fitted"] < 0.9 * distances["plain"]


def test_it_is_fitted_once_and_always_alike(parts: Parts, speaker: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Sequence] = []
    submit = parts.scheduler.submit

    def count(*sequences: Sequence) -> None:
        said.extend(sequences)
        submit(*sequences)

    monkeypatch.setattr(parts.scheduler, "submit", count)
    fitting = Fitting()
    first = fitting(speaker, parts)
    assert len(said) == len(SENTENCES)
    assert torch.equal(fitting(speaker.clone(), parts), first)
    assert len(said) == len(SENTENCES)
    assert torch.equal(Fitting()(speaker, parts), first)


def test_presets_are_told_as_they_are(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("a preset was fitted")

    monkeypatch.setattr(backend, "_fit", refuse)
    backend.synthesize(TTSRequest(text="Yes.", reference_id="clara", format="wav"), seed=1).clip()


def test_a_text_without_words_is_refused_before_anyone_is_fitted(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[Tensor] = []

    def fit_now(speaker: Tensor, parts: Parts) -> Tensor:
        fitted.append(speaker)
        return speaker

    monkeypatch.setattr(backend, "_fit", fit_now)
    clip = backend.synthesize(TTSRequest(text="Some words to be cloned from.", format="wav"), seed=3).clip()
    new = ReferenceAudio(audio=clip.to_bytes("wav"), text="")
    with pytest.raises(RequestInvalid, match="text"):
        backend.synthesize(TTSRequest(text="...", references=(new,), format="wav"))
    assert not fitted
    backend.synthesize(TTSRequest(text="Yes.", references=(new,), format="wav"), seed=1).clip()
    assert len(fitted) == 1


def test_a_closed_engine_fits_nobody(speaker: Tensor) -> None:
    closed = LocalBackend("cpu")
    closed.close()
    with pytest.raises(EngineError, match="closed"):
        Fitting()(speaker, closed._parts)
