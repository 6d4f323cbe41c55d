"""reference_id and references: whose voice it is, by its pitch and its long-term spectrum."""

from __future__ import annotations

from collections.abc import Callable

import msgpack  # type: ignore[import-untyped]  # it publishes no types
import numpy as np
import pytest

from tests.effects.measure import Voice, long_term_spectrum
from voicelab.audio import analysis
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.family import PointerFamily
from voicelab.engine.pointer.speakers import similarity
from voicelab.schema import ReferenceAudio, TTSRequest

pytestmark = pytest.mark.thorough

TRANSCRIPT = "The smooth planks lay on the shore, and all of us saw the old canoe go by. Nobody said a word."
DEFAULT, OTHERS = "marlow", ("clara", "felix", "juno")


@pytest.fixture(scope="module")
def reference(voice: Voice) -> Callable[[str], Clip]:
    kept: dict[str, Clip] = {}

    def spoken(name: str) -> Clip:
        if name not in kept:
            kept[name] = voice.say(TRANSCRIPT, reference_id=name, seed=11)
        return kept[name]

    return spoken


def audio_of(clip: Clip, format: str = "wav") -> ReferenceAudio:
    return ReferenceAudio(audio=clip.to_bytes(format), text=TRANSCRIPT)  # type: ignore[arg-type]


def family(voice: Voice) -> PointerFamily:
    found = voice.backend._family
    assert isinstance(found, PointerFamily)
    return found


def pitch(clip: Clip) -> float:
    return float(12 * np.log2(analysis.f0(clip).median / 100))


def apart(one: Clip, other: Clip) -> float:
    """Root mean square difference of the long-term spectra, in dB."""
    return float(np.sqrt(np.mean(np.square(long_term_spectrum(one) - long_term_spectrum(other)))))


def test_the_voices_here_are_told_apart(voice: Voice, reference: Callable[[str], Clip]) -> None:
    names = [preset.id for preset in voice.backend.capabilities.voices]
    assert {DEFAULT, *OTHERS} <= set(names)
    assert names[0] == DEFAULT
    for name in OTHERS:
        again = voice.say(reference_id=name)
        assert apart(again, reference(name)) < apart(again, reference(DEFAULT))
        assert abs(pitch(again) - pitch(reference(name))) < abs(pitch(again) - pitch(reference(DEFAULT)))


def test_several_references_are_one_speaker(voice: Voice, reference: Callable[[str], Clip]) -> None:
    """Two halves of one recording make the speaker that the whole makes; two speakers make one between them."""
    whole = reference("clara")
    middle = len(whole) // 2
    halves = [Clip(whole.samples[:middle], whole.rate), Clip(whole.samples[middle:], whole.rate)]
    speaker = family(voice).speaker
    one, two = speaker([audio_of(whole)]).statistics, speaker([audio_of(half) for half in halves]).statistics
    other = speaker([audio_of(reference("victor"))]).statistics
    assert np.linalg.norm(one - two) < 0.25 * np.linalg.norm(one - other)
    pair = [audio_of(reference("clara")), audio_of(reference("victor"))]
    # Takes of such a speaker are up to eight semitones apart.
    high, between = (
        np.mean([pitch(take) for take in voice.takes(range(1, 9), references=references)])
        for references in (pair[:1], pair)
    )
    assert pitch(reference("victor")) + 2 < between < high - 0.5
    said, swapped = (voice.say(references=references) for references in (pair, pair[::-1]))
    assert np.array_equal(said.samples, swapped.samples), "their order means nothing"


@pytest.mark.parametrize("rubbish", ["no list", [{"audio": b"RIFF nothing", "text": "?"}], [{"audio": 5}], 7, [None]])
def test_references_beside_a_reference_id_are_not_looked_at(voice: Voice, rubbish: object) -> None:
    wire = msgpack.unpackb(
        msgpack.packb({"text": "Rice is served.", "format": "pcm", "reference_id": "clara", "references": rubbish})
    )
    request = TTSRequest.from_wire(wire, binary=True)
    given = b"".join(voice.backend.synthesize(Call(request, seed=1)))
    plain = voice.request("Rice is served.", reference_id="clara")
    assert given == b"".join(voice.backend.synthesize(Call(plain, seed=1)))


def test_a_clone_tells_how_near_it_came(voice: Voice, reference: Callable[[str], Clip]) -> None:
    """Nearer to its own reference than to any other, which is what the figure is for; a preset's clip tells nothing."""
    assert reference("clara").similarity is None
    near = {name: voice.say(references=[audio_of(reference(name))]) for name in OTHERS}

    def speaker(clip: Clip) -> Floats:
        embedded: Floats = told(family(voice).speaker([audio_of(clip)]).statistics[None])[0]
        return embedded

    told = family(voice).checkpoint.lm.encode_speaker
    known = {name: speaker(reference(name)) for name in OTHERS}
    every = told(np.stack(list(family(voice).checkpoint.speakers.values())))
    for name, clip in near.items():
        assert clip.similarity is not None
        assert 0.3 < clip.similarity < 1
        assert clip.notes == ()
        made = speaker(clip)
        # Of the codes it was made of; encoded from its audio it is nearly the same figure.
        assert clip.similarity == pytest.approx(similarity(made, known[name], every), abs=0.25)
        assert all(
            similarity(made, known[other], every) < similarity(made, known[name], every)
            for other in OTHERS
            if other != name
        )


def test_a_reference_that_cannot_be_followed_is_told(voice: Voice, reference: Callable[[str], Clip]) -> None:
    """White noise alone; over a telephone; cut short. Of noise that the encoder hears through, nothing is said."""
    clean = reference("clara")
    noise = np.random.default_rng(0).standard_normal(len(clean)) * np.sqrt(np.mean(np.square(clean.samples)))
    cases = {
        "": clean.samples + 10**-0.5 * noise,
        "cannot follow": noise,
        "telephone": clean.resample(8000).resample(clean.rate).samples,
        "at least 3 s": clean.samples[: 2 * clean.rate],
    }
    for told, samples in cases.items():
        clip = Clip(np.clip(samples, -1, 1).astype(np.float32), clean.rate)
        notes = voice.say("Rice is served.", references=[audio_of(clip)]).notes
        assert len(notes) == bool(told), (told, notes)
        assert all(told in note and "reference 1" in note for note in notes)
