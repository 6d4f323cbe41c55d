"""A step for a batch: the same alone or among others, the pointer never stuck, never beyond its text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engine.tiny import LANGUAGE, LIVELY, make_lm, phonemes, sequence
from voicelab.engine.lm import LM
from voicelab.engine.quick import QuickStep
from voicelab.engine.runner import Runner
from voicelab.engine.sampling import REPEAT_WINDOW, Settings
from voicelab.engine.sequence import KEPT_PHONES, Phonemes, Sequence
from voicelab.engine.step import Step, TorchStep
from voicelab.engine.transformer import KVCache
from voicelab.errors import EngineError

Arithmetic = Callable[[LM, KVCache], Step] | None


@pytest.fixture(params=[QuickStep, TorchStep])
def step(request: pytest.FixtureRequest) -> Arithmetic:
    """Both ways to do the same."""
    found: Arithmetic = request.param
    return found


def _begun(runner: Runner, text: Phonemes, row: int, seed: int, settings: Settings = LIVELY) -> Sequence:
    made = sequence(text, seed=seed, settings=settings, voice=seed)
    runner.begin(made, row)
    runner.read(made, text)
    return made


def _frames(lm: LM, seed: int, count: int, settings: Settings = LIVELY, step: Arithmetic = None) -> list[list[int]]:
    runner = Runner(lm, 1, step)
    alone = _begun(runner, phonemes(400, seed), 0, seed, settings)
    return [runner.step([alone])[0].tolist() for _ in range(count)]


@pytest.mark.parametrize("settings", [LIVELY, Settings()])
def test_batched_is_single(lm: LM, settings: Settings, step: Arithmetic) -> None:
    """Three sequences that begin at different times, in rows that do not lie together, say what each says alone."""
    runner = Runner(lm, 4, step)
    rows, begins, made = {0: 3, 1: 0, 2: 2}, {0: 0, 1: 7, 2: 20}, {0: [], 1: [], 2: []}  # type: ignore[var-annotated]
    running: dict[int, Sequence] = {}
    for at in range(60):
        for seed, begin in begins.items():
            if at == begin:
                running[seed] = _begun(runner, phonemes(400, seed), rows[seed], seed, settings)
        for seed, frame in zip(running, runner.step(list(running.values())), strict=True):
            made[seed].append(frame.tolist())
    for seed, frames in made.items():
        assert frames == _frames(lm, seed, len(frames), settings, step)


def test_seeds_differ_and_repeat(lm: LM) -> None:
    first = _frames(lm, 1, 20)
    assert first == _frames(lm, 1, 20)
    runner = Runner(lm, 1)
    other = sequence(phonemes(400, 1), seed=99, voice=1)
    runner.begin(other, 0)
    runner.read(other, phonemes(400, 1))
    assert [runner.step([other])[0].tolist() for _ in range(20)] != first


def test_the_pointer_moves_on_after_the_longest_dwell(step: Arithmetic) -> None:
    lm = make_lm()
    lm.first.weight.zero_()  # all symbols alike: greedy takes the first of them, which rests
    text = phonemes(60)
    runner = Runner(lm, 1, step)
    slow = sequence(text, settings=Settings(temperature=0.0))
    runner.begin(slow, 0)
    runner.read(slow, text)
    rests = []
    for _ in range(3 * LANGUAGE.dwell):
        rests.append(slow.pointer)
        runner.step([slow])
    assert [rests.count(p) for p in dict.fromkeys(rests)] == [LANGUAGE.dwell] * 3
    assert slow.pointer > rests[-1]


def test_the_next_segment_sees_the_end_of_the_one_before(lm: LM) -> None:
    runner = Runner(lm, 1)
    first, second = phonemes(KEPT_PHONES + 10, 1), phonemes(12, 2)
    made = _begun(runner, first, 0, seed=0)
    assert (made.segment, made.pointer, made.kept) == (0, 0, 0)
    runner.step([made])
    before, recent = made.before, list(made.recent)
    runner.read(made, second)
    assert (made.segment, made.pointer, made.kept, made.dwell, made.spoken) == (1, KEPT_PHONES, KEPT_PHONES, 0, 0)
    assert made.text is not None
    assert made.text.shape == (KEPT_PHONES + 12 + 1, LANGUAGE.slow.width)  # and how the segment begins, once more
    assert made.before is before
    assert made.recent == recent
    whole = lm.encode_text(
        torch.tensor([[*first.phones[-KEPT_PHONES:], *second.phones, second.phones[0]]]),
        torch.tensor([[*first.flags[-KEPT_PHONES:], *second.flags, second.flags[0]]]),
    )
    torch.testing.assert_close(made.text, whole[0])


def test_recent_codes_are_the_latest(lm: LM) -> None:
    runner = Runner(lm, 1)
    made = _begun(runner, phonemes(400), 0, seed=3)
    said = [int(runner.step([made])[0, 0]) for _ in range(9)]
    assert made.recent == said[-REPEAT_WINDOW:]


@pytest.mark.parametrize("name", ["slow.norm.weight", "others.0.weight", "first.weight", "phone.weight"])
def test_numbers_that_are_not_finite_never_become_codes(name: str, step: Arithmetic) -> None:
    lm = make_lm()
    dict(lm.named_parameters())[name].fill_(torch.nan)
    runner = Runner(lm, 1, step)
    made = _begun(runner, phonemes(20), 0, seed=0)
    with pytest.raises(EngineError, match="not finite"):
        runner.step([made])


def test_a_sequence_without_text_is_refused(lm: LM, step: Arithmetic) -> None:
    runner = Runner(lm, 1, step)
    made = sequence()
    runner.begin(made, 0)
    with pytest.raises(EngineError, match="text"):
        runner.step([made])
