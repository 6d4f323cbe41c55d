"""What the model is told of a speaker is corrected by what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from voicelab.audio.samples import resample
from voicelab.call import Call
from voicelab.engine import fit
from voicelab.engine.channel import Band, through
from voicelab.engine.fit import SENTENCES, Fitted, Fitting, as_it_is
from voicelab.engine.local import LocalBackend
from voicelab.engine.pipeline import Parts
from voicelab.engine.sequence import Sequence
from voicelab.engine.speakers import Speaker
from voicelab.errors import EngineError, RequestInvalid
from voicelab.schema import ReferenceAudio, TTSRequest


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    with LocalBackend("cpu") as backend:
        yield backend


def _warped(backend: LocalBackend, ratio: float, band: Band | None = None) -> Speaker:
    """Nobody: a preset played too fast or too slow; of whom only a band is left, where it is given."""
    request = TTSRequest(text="The birch canoe slid on the smooth planks.", reference_id="clara", format="wav")
    clip = backend.synthesize(Call(request, seed=1)).clip()
    samples = resample(clip.samples, int(clip.rate * ratio), clip.rate)
    warped = type(clip)(samples=through(samples, clip.rate, band) if band else samples, rate=clip.rate)
    return backend._references.speaker([ReferenceAudio(audio=warped.to_bytes("wav"), text="")])


@pytest.fixture(scope="module")
def speaker(backend: LocalBackend) -> Speaker:
    return _warped(backend, 7 / 6)


def _apart(backend: LocalBackend, one: Tensor, other: Tensor) -> float:
    """As the model sees speakers."""
    with torch.inference_mode():
        seen = backend._checkpoint.lm.encode_speaker(torch.stack([one, other]))
    return float((seen[0] - seen[1]).norm())


@pytest.fixture
def parts(backend: LocalBackend) -> Parts:
    return backend._parts


def test_what_is_said_comes_nearer_to_the_reference(backend: LocalBackend, parts: Parts, speaker: Speaker) -> None:
    """For one higher and one lower than any that the model knows."""
    plain = fitted = 0.0
    for wanted in (speaker, _warped(backend, 6 / 7)):
        before, told = wanted.statistics, Fitting()(wanted, parts).told
        plain += _apart(backend, before, fit._statistics(fit._say(before, parts), parts))
        fitted += _apart(backend, before, fit._statistics(fit._say(told, parts), parts))
    assert fitted < 0.9 * plain


def test_over_a_telephone_the_same_speaker_is_wanted(backend: LocalBackend, parts: Parts) -> None:
    """A good part of what the telephone did to the statistics is taken away, and what is told comes nearer to him too."""
    far = left = 0.0
    for ratio in (7 / 6, 6 / 7):
        wide, narrow = _warped(backend, ratio), _warped(backend, ratio, Band(300.0, 3400.0))
        assert wide.band is None
        assert narrow.band is not None
        fitting, as_before = Fitting(), Speaker(narrow.statistics)
        far += _apart(backend, wide.statistics, narrow.statistics)
        left += _apart(backend, wide.statistics, fitting(narrow, parts).wanted)
        told = fitting(wide, parts).told
        assert _apart(backend, told, fitting(narrow, parts).told) < _apart(
            backend, told, fitting(as_before, parts).told
        )
    assert left < 0.8 * far


def test_it_is_fitted_once_and_always_alike(parts: Parts, speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Sequence] = []
    submit = parts.scheduler.submit

    def count(*sequences: Sequence) -> None:
        said.extend(sequences)
        submit(*sequences)

    monkeypatch.setattr(parts.scheduler, "submit", count)
    fitting = Fitting()
    first = fitting(speaker, parts).told
    assert len(said) == len(SENTENCES)
    assert torch.equal(fitting(Speaker(speaker.statistics.clone()), parts).told, first)
    assert len(said) == len(SENTENCES)
    assert torch.equal(Fitting()(speaker, parts).told, first)


def test_presets_are_told_as_they_are(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Fitted:
        raise AssertionError("a preset was fitted")

    monkeypatch.setattr(backend, "_fit", refuse)
    backend.synthesize(Call(TTSRequest(text="Yes.", reference_id="clara", format="wav"), seed=1)).clip()


def test_a_text_without_words_is_refused_before_anyone_is_fitted(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[Speaker] = []

    def fit_now(speaker: Speaker, parts: Parts) -> Fitted:
        fitted.append(speaker)
        return as_it_is(speaker)

    monkeypatch.setattr(backend, "_fit", fit_now)
    clip = backend.synthesize(Call(TTSRequest(text="Some words to be cloned from.", format="wav"), seed=3)).clip()
    new = ReferenceAudio(audio=clip.to_bytes("wav"), text="")
    with pytest.raises(RequestInvalid, match="text"):
        backend.synthesize(Call(TTSRequest(text="...", references=(new,), format="wav")))
    assert not fitted
    backend.synthesize(Call(TTSRequest(text="Yes.", references=(new,), format="wav"), seed=1)).clip()
    assert len(fitted) == 1


def test_a_closed_engine_fits_nobody(speaker: Speaker) -> None:
    closed = LocalBackend("cpu")
    closed.close()
    with pytest.raises(EngineError, match="closed"):
        Fitting()(speaker, closed._parts)
