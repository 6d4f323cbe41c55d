"""A step for a batch: the same alone or among others, the pointer never stuck, never beyond its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine.tiny import BOTH, LANGUAGE, LIVELY, begun, make_lm, numpy_lm, phonemes, stepped, voice
from voicelab.engine.core.sequence import Settings
from voicelab.engine.pointer.config import PHONES, Phonemes
from voicelab.engine.pointer.family import CONTEXT_PHONES, PointerRunner
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.rows import GRAIN, REPEAT_WINDOW, LanguageModel
from voicelab.errors import EngineError

Made = Callable[[LM], LanguageModel]


@pytest.fixture(params=BOTH)
def step(request: pytest.FixtureRequest) -> Made:
    """Both implementations."""
    found: Made = request.param
    return found


def _frames(lm: LM, seed: int, count: int, settings: Settings = LIVELY, step: Made = numpy_lm) -> list[list[int]]:
    runner = PointerRunner(step(lm), 1)
    begun(runner, 0, phonemes(400, seed), seed, settings)
    return [stepped(runner, [0])[0] for _ in range(count)]


@pytest.mark.parametrize("settings", [LIVELY, Settings()])
def test_batch_equals_single_rows(lm: LM, settings: Settings, step: Made) -> None:
    """Three that begin at different times, in rows apart, say what each says alone, also once the cache slid."""
    runner = PointerRunner(step(lm), 4)
    rows, begins, made = {0: 3, 1: 0, 2: 2}, {0: 0, 1: 7, 2: 20}, {0: [], 1: [], 2: []}  # type: ignore[var-annotated]
    running: list[int] = []
    for at in range(2 * GRAIN + 16):
        for seed, begin in begins.items():
            if at == begin:
                running.append(seed)
                begun(runner, rows[seed], phonemes(400, seed), seed, settings)
        for seed, frame in zip(running, stepped(runner, [rows[seed] for seed in running]), strict=True):
            made[seed].append(frame)
    for seed, frames in made.items():
        assert frames == _frames(lm, seed, len(frames), settings, step)


def test_pointer_advances_at_maximum_dwell(step: Made) -> None:
    lm = make_lm()
    lm.first.weight.zero_()  # all symbols alike: greedy takes the first of them, which rests
    runner = PointerRunner(step(lm), 1)
    slow = begun(runner, 0, phonemes(60), settings=Settings(temperature=0.0))
    rests = []
    for _ in range(3 * LANGUAGE.dwell):
        rests.append(slow.pointer)
        assert runner.step([0])[0].position == rests[-1]
    assert [rests.count(p) for p in dict.fromkeys(rests)] == [LANGUAGE.dwell] * 3
    assert slow.pointer > rests[-1]


def test_first_phone_after_silence_lasts_two_frames(step: Made) -> None:
    """Even if the model would advance at once; its beginning may still be silent."""
    lm = make_lm(config=replace(LANGUAGE, dwell=1))
    lm.first.weight.zero_()  # all symbols alike, and none may rest: greedy moves by one
    runner = PointerRunner(step(lm), 1)
    silence, sound = PHONES.index("^"), len(PHONES) - 1
    phones = (silence, sound, sound, PHONES.index("."), silence, sound, sound)
    begun(runner, 0, Phonemes(phones, (0,) * 7, ()), settings=Settings(temperature=0.0))
    assert [runner.step([0])[0].position for _ in range(9)] == [0, 1, 1, 2, 3, 4, 5, 5, 6]


def test_segment_ends_when_the_pointer_passes_it(lm: LM, step: Made) -> None:
    """Also in a later segment, where positions restart."""
    runner = PointerRunner(step(lm), 1)
    begun(runner, 0, phonemes(5, 1))
    for length in (5, 8):
        steps = [runner.step([0])[0]]
        while not steps[-1].ended:
            steps.append(runner.step([0])[0])
        positions = [one.position for one in steps]
        assert positions == sorted(positions)
        assert (positions[0], len(positions) <= length * LANGUAGE.dwell) == (0, True)
        assert length - LANGUAGE.advances < positions[-1] < length
        runner.add_segment(0, phonemes(8, 2))


def test_next_segment_has_context(lm: LM) -> None:
    runner = PointerRunner(numpy_lm(lm), 1)
    first, second = phonemes(CONTEXT_PHONES + 10, 1), phonemes(12, 2)
    state = begun(runner, 0, first)
    assert (state.pointer, state.context_length) == (0, 0)
    runner.step([0])
    before, recent = state.before, list(state.recent)
    runner.add_segment(0, second)
    assert (state.pointer, state.context_length, state.dwell) == (CONTEXT_PHONES, CONTEXT_PHONES, 0)
    assert state.text is not None
    assert state.text.shape == (CONTEXT_PHONES + 12 + 1, LANGUAGE.slow.width)  # and how the segment begins, once more
    assert state.before is before
    assert state.recent == recent
    whole = lm.encode_text(
        torch.tensor([[*first.phones[-CONTEXT_PHONES:], *second.phones, second.phones[0]]]),
        torch.tensor([[*first.flags[-CONTEXT_PHONES:], *second.flags, second.flags[0]]]),
    )
    np.testing.assert_allclose(state.text, whole[0].numpy(), atol=1e-5)


def test_recent_codes_are_the_latest(lm: LM) -> None:
    runner = PointerRunner(numpy_lm(lm), 1)
    state = begun(runner, 0, phonemes(400), seed=3)
    said = [stepped(runner, [0])[0][0] for _ in range(9)]
    assert state.recent == said[-REPEAT_WINDOW:]


def test_parked_row_resumes_in_another_row(lm: LM, step: Made) -> None:
    runner, count = PointerRunner(step(lm), 2), 5 * LANGUAGE.slow.window
    begun(runner, 0, phonemes(400, 3), 3)
    said = [stepped(runner, [0])[0] for _ in range(count)]
    parked = runner.park(0)
    begun(runner, 0, phonemes(400, 4), 4)
    runner.step([0])
    runner.resume(1, parked)
    said += [stepped(runner, [1])[0] for _ in range(count)]
    assert said == _frames(lm, 3, 2 * count, step=step)


@pytest.mark.parametrize("name", ["slow.norm.weight", "others.0.weight", "first.weight", "phone.weight"])
def test_non_finite_weights_raise(name: str, step: Made) -> None:
    lm = make_lm()
    dict(lm.named_parameters())[name].fill_(torch.nan)

    def spoken() -> None:  # NumPy's model refuses the tensor when it is laid out
        runner = PointerRunner(step(lm), 1)
        begun(runner, 0, phonemes(20))
        runner.step([0])

    with pytest.raises(EngineError, match="not finite"):
        spoken()


def test_row_without_text_is_rejected(lm: LM, step: Made) -> None:
    runner = PointerRunner(step(lm), 1)
    runner.admit(0, voice(), LIVELY, 0)
    with pytest.raises(EngineError, match="text"):
        runner.step([0])
