from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kept import ask
from tests.tones import ToneBackend, there
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import ArgumentError
from voicelab.listening.design import (
    ANCHORS,
    KINDS,
    MULTIPLE,
    NOISE_MASKED,
    REFERENCE,
    SINGLE,
    WITH_REFERENCE,
    Kind,
    ListeningTest,
    anchor,
    match_loudness,
)
from voicelab.metrics.level import loudness, true_peak
from voicelab.metrics.metric import Subject

TRAINED = [kind for kind in KINDS if kind != "transcription"]


def sound(seed: int, seconds: float = 1.0, rate: int = 16_000, level: float = 0.1) -> Clip:
    noise = np.random.default_rng(seed).standard_normal(int(seconds * rate)) * level
    return Clip(np.clip(noise, -1, 1).astype(np.float32), rate)


def listening_test(
    kind: Kind, systems: str = "ab", items: int = 4, checks: int = 0, seed: int = 0, lufs: float | None = -23
) -> ListeningTest:
    names = [f"s{number}" for number in range(items)]
    systems = "abc" if kind == "BWS" and systems == "ab" else systems
    made = {
        item: {system: sound(10 * number + place, 0.6 + place / 10) for place, system in enumerate(systems)}
        for number, item in enumerate(names)
    }
    references = {item: sound(1000 + number, rate=24_000) for number, item in enumerate(names)}
    references = references if kind in WITH_REFERENCE else {}
    texts = dict.fromkeys(names if kind == "transcription" else (), "The table walked through the blue truth.")
    return ListeningTest("trial", kind, made, references, seed=seed, checks=checks, lufs=lufs, texts=texts)


@pytest.mark.parametrize("kind", KINDS)
def test_trials_depend_on_the_seed(kind: Kind) -> None:
    one, two = listening_test(kind, "abc"), listening_test(kind, "abc")
    assert [one.trials(number) for number in range(4)] == [two.trials(number) for number in range(4)]
    assert one.trials(0) != one.trials(1)
    assert one.trials(0) != listening_test(kind, "abc", seed=1).trials(0)


def test_best_worst_trials_of_many_systems_are_balanced() -> None:
    test = listening_test("BWS", "abcdefgh", items=6)
    shown: Counter[tuple[str, ...]] = Counter()
    for listener in range(16):
        own = Counter(sound.system for trial in test.trials(listener) for sound in trial.slots.values())
        assert {len(trial.slots) for trial in test.trials(listener)} == {4}
        assert max(own.values()) - min(own[system] for system in test.systems) <= 2
        shown.update(
            (trial.item, *pair)
            for trial in test.trials(listener)
            for pair in itertools.combinations(sorted(sound.system for sound in trial.slots.values()), 2)
        )
    assert len(shown) == 6 * 28


@pytest.mark.parametrize("kind", TRAINED)
def test_training_does_not_change_trials(kind: Kind) -> None:
    plain = listening_test(kind, "abc")
    test = replace(plain, training=2, instructions="Sit down.")
    assert test.trials(3) == plain.trials(3)
    assert test.to_record() == {**plain.to_record(), "training": 2, "instructions": "Sit down."}
    assert plain.training_trials(0) == ()
    first, second = test.training_trials(3)
    assert (first.id, second.id) == ("3-training0", "3-training1")
    assert set(first.slots) == set(test.trials(3)[0].slots)
    # Not how the test itself begins, for most listeners.
    alike = [test.training_trials(number)[0].slots == test.trials(number)[0].slots for number in range(20)]
    assert sum(alike) < 8
    with pytest.raises(ArgumentError, match="training"):
        replace(plain, training=-1)


@pytest.mark.parametrize("kind", TRAINED)
def test_training_covers_the_range_of_quality(kind: Kind) -> None:
    plain = listening_test(kind, "abcdef", items=3)
    names = {"f": "anchor35"} if kind != "MUSHRA" else {}
    items = {item: {names.get(name, name): clip for name, clip in own.items()} for item, own in plain.items.items()}
    test = replace(plain, items=items, training=6 if kind in SINGLE else 3 - 2 * kind.startswith("MUSHRA"))
    for listener in range(12):
        trials = test.training_trials(listener)
        assert {sound.system for trial in trials for sound in trial.slots.values()} >= {*test.systems, "anchor35"}
        assert "anchor35" in {sound.system for sound in trials[0].slots.values()}
        assert len({trial.id for trial in trials}) == len(trials) == test.training


@pytest.mark.parametrize("kind", KINDS)
def test_every_question_occurs_once(kind: Kind) -> None:
    test = listening_test(kind, "abc", items=5)
    for listener in range(3):
        trials = test.trials(listener)
        if kind in MULTIPLE:
            assert Counter(trial.item for trial in trials) == Counter(dict.fromkeys(test.items, 1))
            systems = {*test.systems, *((REFERENCE, *ANCHORS) if kind == "MUSHRA" else ())}
            assert all({slot.system for slot in trial.slots.values()} == systems for trial in trials)
        elif kind in SINGLE:
            asked = Counter((trial.item, trial.slots["A"].system) for trial in trials)
            assert asked == Counter({(item, system): 1 for item in test.items for system in "abc"})
        elif kind == "transcription":
            heard = [(trial.item, trial.slots["A"].system) for number in range(3) for trial in test.trials(number)]
            assert sorted(heard) == sorted(itertools.product(test.items, "abc"))
            assert sorted(trial.item for trial in trials) == sorted(test.items)
        else:
            asked_pairs = Counter(
                (trial.item, tuple(sorted(trial.slots[letter].system for letter in "AB"))) for trial in trials
            )
            assert asked_pairs == Counter({(item, pair): 1 for item in test.items for pair in test.pairs})
        assert len({trial.id for trial in trials}) == len(trials)


@pytest.mark.parametrize("kind", ["AB", "ABX", "CMOS"])
def test_order_of_pairs_is_balanced_over_two_listeners(kind: Kind) -> None:
    test = listening_test(kind, "abc", items=3)
    first = Counter(
        (trial.item, trial.slots["A"].system, trial.slots["B"].system)
        for listener in range(6)
        for trial in test.trials(listener)
    )
    assert set(first.values()) == {3}
    assert len(first) == 3 * 6


@pytest.mark.parametrize("systems", ["ab", "abc", "abcd", "abcde"])
def test_both_orders_of_a_pair_are_equally_frequent(systems: str) -> None:
    # Else one who favours what comes first seems to favour one of the pair.
    test = listening_test("AB", systems, items=4)
    for listener in range(3):
        first = Counter((trial.slots["A"].system, trial.slots["B"].system) for trial in test.trials(listener))
        assert set(first.values()) == {2}
        assert len(first) == 2 * len(test.pairs)


@pytest.mark.parametrize(
    ("systems", "items"), [("abcd", 5), ("abcd", 2), ("abc", 4), ("abc", 2), ("abcde", 2), ("ab", 3)]
)
def test_mos_balances_carry_over_between_systems(systems: str, items: int) -> None:
    test = listening_test("MOS", systems, items=items)
    size = len(systems)
    places, pairs = Counter[tuple[int, str]](), Counter[tuple[str, str]]()
    for listener in range(2 * size):
        order = [trial.slots["A"].system for trial in test.trials(listener)]
        said = [trial.item for trial in test.trials(listener)]
        assert Counter(said) == Counter(dict.fromkeys(test.items, size))
        assert len(systems) == 2 or all(one != two for one, two in itertools.pairwise(said)), "twice in a row"
        for block in zip(*[iter(order)] * size, strict=True):
            assert sorted(block) == sorted(systems)
            places.update(enumerate(block))
            pairs.update(itertools.pairwise(block))
    assert set(places.values()) == {2 * items}
    assert len(pairs) == size * (size - 1)
    if items > 2:  # of two, the rows that a listener hears are chosen so that no sentence comes twice in a row
        assert set(pairs.values()) == {2 * items}


def test_x_is_balanced_and_its_id_is_blinded() -> None:
    test = listening_test("ABX", items=40)
    for listener in range(10):
        trials = test.trials(listener)
        right = Counter((trial.answer, trial.slots["A"].system) for trial in trials)
        assert set(right.values()) == {10}
    assert len({tuple(trial.answer for trial in test.trials(listener)) for listener in range(10)}) == 10
    for trial in trials:
        assert len({slot.id for slot in trial.slots.values()}) == 3
        assert trial.slots["X"].source is trial.slots[str(trial.answer)].source


def test_ids_are_blinded() -> None:
    test = listening_test("MUSHRA", "ab")
    for trial in test.trials(0):
        ids = [there(trial.reference).id, *(slot.id for slot in trial.slots.values())]
        assert len(set(ids)) == len(ids)
        assert not any(name in one for one in ids for name in ("ref", "anchor", "s0"))


@pytest.mark.parametrize("kind", ["AB", "ABX", "CMOS", *SINGLE])
def test_attention_checks_have_a_correct_answer(kind: Kind) -> None:
    test = listening_test(kind, items=6, checks=3)
    for listener in range(8):
        trials = test.trials(listener)
        checks = [trial for trial in trials if trial.check]
        assert len(checks) == 3
        assert not trials[0].check
        for trial in checks:
            assert NOISE_MASKED in {slot.system for slot in trial.slots.values()}
            if kind in {"AB", "ABX"}:
                assert trial.passed(str(trial.answer))
                assert not trial.passed("B" if trial.answer == "A" else "A")
            elif kind in SINGLE:
                assert trial.passed(1)
                assert not trial.passed(4)
            else:
                better = 2 if trial.slots["A"].system == NOISE_MASKED else -2
                assert trial.passed(better)
                assert not trial.passed(0)
                assert not trial.passed(-better)


@pytest.mark.parametrize("kind", ["SMOS", "DMOS"])
def test_rated_sounds_have_the_reference_of_their_item(kind: Kind) -> None:
    test = replace(listening_test(kind, "abc", checks=1), traps={2: sound(77)}, training=3)
    mos = listening_test("MOS", "abc")
    heard = [(trial.item, trial.slots["A"].system) for trial in test.trials(3) if not trial.check]
    assert heard == [(trial.item, trial.slots["A"].system) for trial in mos.trials(3)]
    for trial in (*test.trials(3), *test.training_trials(3)):
        reference = there(trial.reference)
        assert (reference.item, set(trial.slots)) == (trial.item, {"A"})
        assert reference.system == (NOISE_MASKED if trial.wanted else REFERENCE)
        assert reference.id != trial.slots["A"].id
    trap = next(trial for trial in test.trials(3) if trial.wanted)
    assert trap.passed(2)
    assert not trap.passed(1)
    # The loudness of the reference is matched with that of the systems.
    levels = [loudness(Subject(one.clip)) for one in test.sounds if one.item == "s0"]
    assert len(levels) == 4
    assert np.ptp(levels) < 0.02


def test_loudness_is_matched_without_limiting() -> None:
    quiet, loud, peaked = sound(1, level=0.01), sound(2, level=0.3), sound(3, level=0.02)
    samples = np.array(peaked.samples)
    samples[8000] = 0.99
    clips = {"quiet": quiet, "loud": loud, "peaked": Clip(samples, 16_000)}
    matched = match_loudness(clips)
    levels = [loudness(Subject(clip)) for clip in matched.clips.values()]
    assert np.ptp(levels) < 0.02
    assert max(true_peak(Subject(clip)) for clip in matched.clips.values()) <= -0.98
    assert matched.lufs < -23
    for name, clip in clips.items():
        gain = 10 ** (matched.gains[name] / 20)
        np.testing.assert_allclose(matched.clips[name].samples, clip.samples * gain, atol=1e-6)
    assert match_loudness({"quiet": quiet, "loud": loud}).lufs == pytest.approx(-23)


def test_levels_of_matched_clips_follow_from_the_gain() -> None:
    # Half of the clip is below the absolute gate of -70 LUFS until it is amplified.
    faint = Clip(np.concatenate((sound(1, level=0.0003).samples, sound(2, level=0.00012).samples)), 16_000)
    short = sound(3, 0.2)
    matched = match_loudness({"faint": faint, "loud": sound(4, level=0.3), "short": short})
    assert set(matched.levels) == {"faint", "loud"}
    for name, levels in matched.levels.items():
        known, computed = Subject(matched.clips[name], results=dict(levels)), Subject(matched.clips[name])
        for metric in (loudness, true_peak):
            assert metric(known) == pytest.approx(metric(computed), abs=1e-4)
    assert loudness(Subject(faint)) + matched.gains["faint"] - loudness(Subject(matched.clips["faint"])) > 0.05


def test_clip_without_loudness_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"'s0' by 'b'.*0\.4 s"):
        ListeningTest("t", "AB", {"s0": {"a": sound(1), "b": sound(2, 0.2)}})
    ListeningTest("t", "AB", {"s0": {"a": sound(1), "b": sound(2, 0.2)}}, lufs=None)


@pytest.mark.parametrize("cutoff", [3500.0, 7000.0])
def test_anchors_meet_bs1534(cutoff: float) -> None:
    # BS.1534-3, 5.1: for 3.5 kHz at most ±0.1 dB in the pass-band, 25 dB down at 4 kHz, 50 dB at 4.5 kHz.
    pulse = np.zeros(48_000, np.float32)
    pulse[24_000] = 1.0
    made = anchor(Clip(pulse, 48_000), cutoff).samples.astype(np.float64)
    response = 20 * np.log10(np.abs(np.fft.rfft(made)) + 1e-12)
    hertz = np.fft.rfftfreq(len(made), 1 / 48_000)
    assert np.abs(response[hertz <= cutoff]).max() <= 0.1
    assert response[hertz >= cutoff * 8 / 7].max() <= -25
    assert response[hertz >= cutoff * 9 / 7].max() <= -50
    assert int(np.argmax(np.abs(made))) == 24_000


def test_anchor_rejects_low_sample_rates() -> None:
    with pytest.raises(ArgumentError, match="rate must be above"):
        anchor(sound(1, rate=16_000), 7000.0)


def clips(*systems: str) -> dict[str, Clip]:
    return {system: sound(place) for place, system in enumerate(systems)}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"kind": "XYZ", "items": {"i": clips("a", "b")}}, "kind"),
        ({"kind": "AB", "items": {}}, "items"),
        ({"kind": "AB", "items": {"i": clips("a")}}, "items"),
        ({"kind": "AB", "items": {"i": clips("a", "b"), "j": clips("a", "c")}}, "items"),
        ({"kind": "MUSHRA", "items": {"i": clips("a")}}, "references"),
        ({"kind": "MUSHRA", "items": {"i": clips("a", "reference")}, "references": clips("i")}, "items"),
        ({"kind": "MUSHRA", "items": {"i": clips(*"abcdefghij")}, "references": clips("i")}, "items"),
        (
            {"kind": "MUSHRA", "items": {"i": clips("a")}, "references": clips("i"), "checks": 1},
            "checks: .*hidden reference",
        ),
        ({"kind": "BWS", "items": {"i": clips("a", "b")}}, "items"),
        ({"kind": "BWS", "items": {"i": clips("a", "b", "c")}, "scales": {"style": "How?"}}, "scales"),
        ({"kind": "MOS", "items": {"i": clips("a")}, "scales": {"style": " "}}, "scales"),
        ({"kind": "transcription", "items": {"i": clips("a")}}, "texts"),
        ({"kind": "transcription", "items": {"i": clips("a")}, "texts": {"i": "A word.", "j": "Another."}}, "texts"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "texts": {"j": "Another."}}, "texts"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "texts": {"i": 1}}, "texts"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "texts": ["A word."]}, "texts: must be a mapping, got list"),
        ({"kind": "MOS", "items": {"i": clips("a")}, "scales": ["style"]}, "scales: must be a mapping, got list"),
        ({"kind": "transcription", "items": {"i": clips("a")}, "texts": {"i": "A word."}, "training": 1}, "training"),
        ({"kind": "SMOS", "items": {"i": clips("a")}}, "references"),
        ({"kind": "SMOS", "items": {"i": clips("a")}, "references": [sound(1)]}, "references"),
        ({"kind": "SMOS", "items": {"i": clips("a")}, "references": {"i": "reference.wav"}}, "references"),
        ({"kind": "SMOS", "items": {"i": clips("a")}, "references": {"i": None}}, "references"),
        ({"kind": "AB", "items": {"i": {"a": sound(1), "b": "b.wav"}}}, "items"),
        ({"kind": "AB", "items": {"i": ["a.wav", "b.wav"]}}, "items"),
        ({"kind": "DMOS", "items": {"i": clips("a", "reference")}, "references": clips("i")}, "items"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "checks": -1}, "checks"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "seed": -1}, "seed"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "name": " "}, "name: must be a text, got"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "question": " "}, 'question: must be a text or ""'),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "lufs": 5}, "lufs: must be above -70 and below 0, got 5"),
        ({"kind": "AB", "items": {"i": clips("a", "b")}, "checks": 2}, "checks: must be at most 1, the number"),
        ({"kind": "MOS", "items": {"i": clips("a", "b")}, "training": 3}, "training: must be at most 2, the number"),
    ],
)
def test_invalid_designs_are_rejected(options: dict[str, object], field: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{field}"):
        ListeningTest(**{"name": "t", **options})  # type: ignore[arg-type]


def test_negative_listener_numbers_are_rejected(tmp_path: Path) -> None:
    for listener in (-1, 0.0, True):
        with pytest.raises(ArgumentError, match="listener"):
            listening_test("AB").trials(listener)  # type: ignore[arg-type]


def test_parts_of_a_take_are_no_repeats_of_its_text() -> None:
    whole = [
        ToneBackend().synthesize(Call(ask(text), seed=1)).take().clip() for text in ("One sentence.", "Two sentences.")
    ]
    takes = {f"{number} {repeat}": {"a": clip, "b": clip} for number, clip in enumerate(whole) for repeat in range(2)}
    assert [*ListeningTest("t", "AB", takes).texts.values()] == [
        text for text in ("One sentence.", "Two sentences.") for _ in range(2)
    ]
    half = {
        item: {name: clip.slice(0.0, clip.duration / 2) for name, clip in clips.items()}
        for item, clips in takes.items()
    }
    assert ListeningTest("t", "AB", half, lufs=None).texts == {}
    with pytest.raises(ArgumentError, match="texts: must have the spoken text of every item"):
        ListeningTest("t", "transcription", half, lufs=None)
