"""Fitting of speakers to the language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from unittest.mock import Mock

import numpy as np
import pytest

from voicelab.audio.samples import resample
from voicelab.call import Call
from voicelab.engine.family import EngineParts
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer import speakers
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.family import PointerFamily
from voicelab.engine.pointer.speakers import (
    SENTENCES,
    SpeakerFit,
    SpeakerFitter,
    SpeakerProfile,
    TelephoneBand,
    gain_of,
    limit_band,
    mean_power,
)
from voicelab.errors import EngineError, RequestInvalid
from voicelab.schema import ReferenceAudio, TTSRequest

SAID = "The birch canoe slid on the smooth planks."
OTHERS = (
    "The juice of lemons makes fine punch. The box was thrown beside the parked truck. "
    "The hogs were fed chopped corn and garbage. Four hours of steady work faced us."
)


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    with LocalBackend("cpu") as backend:
        yield backend


@pytest.fixture(scope="module")
def family(backend: LocalBackend) -> PointerFamily:
    found = backend._family
    assert isinstance(found, PointerFamily)
    return found


@pytest.fixture
def parts(backend: LocalBackend) -> EngineParts:
    return backend._models.parts("s2-pro")


def _warped_audio(
    backend: LocalBackend, ratio: float, band: TelephoneBand | None = None, voice: str = "clara", text: str = SAID
) -> bytes:
    """An unseen speaker: a resampled preset, optionally band-limited."""
    request = TTSRequest(text=text, reference_id=voice, format="wav")
    clip = backend.synthesize(Call(request, seed=1)).clip()
    samples = resample(clip.samples, int(clip.rate * ratio), clip.rate)
    warped = type(clip)(samples=limit_band(samples, clip.rate, band) if band else samples, rate=clip.rate)
    return warped.to_bytes("wav")


@cache
def _warped(
    backend: LocalBackend, ratio: float, band: TelephoneBand | None = None, voice: str = "clara", text: str = SAID
) -> SpeakerProfile:
    audio = _warped_audio(backend, ratio, band, voice, text)
    found = backend._family.speaker([ReferenceAudio(audio=audio, text="")])
    assert isinstance(found, SpeakerProfile)
    return found


@pytest.fixture(scope="module")
def speaker(backend: LocalBackend) -> SpeakerProfile:
    return _warped(backend, 7 / 6)


@pytest.fixture(scope="module")
def fitter(family: PointerFamily) -> SpeakerFitter:
    """Shared, since fitting is slow."""
    return _fitter(family)


def _fitter(family: PointerFamily) -> SpeakerFitter:
    return SpeakerFitter(family.checkpoint.codec, family.front.read)


def _fit(fitter: SpeakerFitter, speaker: SpeakerProfile, parts: EngineParts) -> SpeakerFit:
    return fitter.fit(speaker, parts.scheduler, parts.decoding)


def _powers(speaker: SpeakerProfile) -> Floats:
    assert speaker.powers is not None
    return speaker.powers


def _apart(family: PointerFamily, one: Floats, other: Floats) -> float:
    """Distance in the speaker embedding."""
    seen = family.checkpoint.lm.encode_speaker(np.stack([one, other]))
    return float(np.linalg.norm(seen[0] - seen[1]))


@pytest.mark.thorough
def test_fit_reduces_distance_to_the_reference(
    backend: LocalBackend, family: PointerFamily, fitter: SpeakerFitter, parts: EngineParts
) -> None:
    """Averaged over four voices, each above and below the range of the training data."""
    plain = fitted = 0.0

    def said(conditioning: Floats) -> Floats:
        return fitter._statistics(fitter._synthesize(conditioning, parts.scheduler))

    text = f"{SAID} Glue the sheet to the dark blue background."
    for wanted in (
        _warped(backend, r, None, v, text) for v in ("clara", "marlow", "ewan", "iris") for r in (7 / 6, 6 / 7)
    ):
        before, conditioning = wanted.statistics, _fit(fitter, wanted, parts).conditioning
        plain += _apart(family, before, said(before))
        fitted += _apart(family, before, said(conditioning))
    assert fitted < 0.97 * plain


@pytest.mark.thorough
def test_telephone_channel_is_compensated(
    backend: LocalBackend, family: PointerFamily, fitter: SpeakerFitter, parts: EngineParts
) -> None:
    """Most of the channel's effect on the statistics is removed, and the conditioning is closer too."""
    far = left = 0.0
    for ratio in (7 / 6, 6 / 7):
        wide, narrow = _warped(backend, ratio), _warped(backend, ratio, TelephoneBand(300.0, 3400.0))
        assert wide.band is None
        assert narrow.band is not None
        unaware = _fit(fitter, SpeakerProfile(narrow.statistics, narrow.powers), parts)
        fits = [_fit(fitter, speaker, parts) for speaker in (wide, narrow)]
        far += _apart(family, wide.statistics, narrow.statistics)
        left += _apart(family, wide.statistics, fits[1].target)
        wanted = fits[0].conditioning
        assert _apart(family, wanted, fits[1].conditioning) < _apart(family, wanted, unaware.conditioning)
    assert left < 0.8 * far


@pytest.mark.thorough
def test_clone_matches_long_term_spectrum(
    backend: LocalBackend, family: PointerFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With words of neither recording nor fit, through the backend."""
    config = family.checkpoint.codec.config
    voice, apart = PointerFamily.voice, {True: 0.0, False: 0.0}
    text = f"{SAID} Glue the sheet to the dark blue background."
    for ratio in (7 / 6, 6 / 7):
        audio = ReferenceAudio(audio=_warped_audio(backend, ratio, None, "clara", text), text="")
        wanted = _powers(family.speaker([audio]))[0]
        assert wanted is not None
        for with_gain in (True, False):
            if not with_gain:
                monkeypatch.setattr(family, "voice", lambda *of: replace(voice(family, *of), gain=None))
            request = TTSRequest(text=OTHERS, references=(audio,), format="wav")
            clip = backend.synthesize(Call(request, seed=1)).clip()
            monkeypatch.undo()
            apart[with_gain] += float(
                np.linalg.norm(gain_of(wanted, mean_power(clip.samples, config), config.sample_rate))
            )
    assert apart[True] < 0.7 * apart[False]


def test_fit_is_cached_and_deterministic(
    family: PointerFamily, parts: EngineParts, speaker: SpeakerProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Mock(side_effect=parts.scheduler.submit)
    monkeypatch.setattr(parts.scheduler, "submit", submit)
    monkeypatch.setattr(speakers, "SENTENCES", SENTENCES[:2])
    fitter = _fitter(family)
    first = _fit(fitter, speaker, parts).conditioning
    assert sum(len(call.args) for call in submit.call_args_list) == 2
    submit.reset_mock()
    same = SpeakerProfile(speaker.statistics.copy(), speaker.powers)
    assert np.array_equal(_fit(fitter, same, parts).conditioning, first)
    submit.assert_not_called()
    assert np.array_equal(_fit(_fitter(family), speaker, parts).conditioning, first)


def test_presets_are_not_fitted(family: PointerFamily, parts: EngineParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.scheduler, "submit", None)
    fit = _fit(_fitter(family), family.preset("clara"), parts)
    assert np.array_equal(fit.conditioning, family.checkpoint.speakers["clara"])


def test_text_is_checked_before_fitting(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[SpeakerProfile] = []

    def fit_now(speaker: SpeakerProfile, _: EngineParts) -> SpeakerFit:
        fitted.append(speaker)
        return SpeakerFit(speaker.statistics, speaker.statistics)

    monkeypatch.setattr(backend._family, "voice", fit_now)
    clip = backend.synthesize(Call(TTSRequest(text="Some words to be cloned from.", format="wav"), seed=3)).clip()
    fitted.clear()
    new = ReferenceAudio(audio=clip.to_bytes("wav"), text="")
    with pytest.raises(RequestInvalid, match="text"):
        backend.synthesize(Call(TTSRequest(text="...", references=(new,), format="wav")))
    assert not fitted
    backend.synthesize(Call(TTSRequest(text="Yes.", references=(new,), format="wav"), seed=1)).clip()
    assert len(fitted) == 1


def test_fit_on_closed_engine_raises(family: PointerFamily, speaker: SpeakerProfile) -> None:
    closed = LocalBackend("cpu")
    parts = closed._models.parts("s2-pro")
    closed.close()
    with pytest.raises(EngineError, match="closed"):
        _fit(_fitter(family), speaker, parts)
