"""The runner under the engine's scheduler: codes equal the twin's, independent of the batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.dual.tiny import (
    CODEBOOKS,
    ENTRIES,
    SPEECH,
    VOCABULARY,
    config_of,
    model_of,
    tensors_of,
    twin_of,
    write_model,
)
from voicelab.engine.core import sequence as sequence_module
from voicelab.engine.core.scheduler import RowStep, Scheduler
from voicelab.engine.core.sequence import Frame, Sequence, Settings
from voicelab.engine.dual import runner as runner_module
from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.model import DualLM, draw_steps, uniform
from voicelab.engine.dual.prompt import ChatPrompts, DualVoice, InterleavedPrompts, Prompts, Reference, load_tokenizer
from voicelab.engine.dual.runner import DualRunner, Turn
from voicelab.errors import Cancelled, EngineError, EngineUnavailable
from voicelab.schema import Model

SETTINGS = Settings(temperature=0.8, top_p=0.9, repetition_penalty=1.2)
NOBODY = DualVoice()
FRAMES = 16


class Parts(NamedTuple):
    model: DualLM
    prompts: Prompts
    ahead: bool
    """Whether frames are launched ahead, as on a CUDA device."""

    def runner(self, rows: int) -> DualRunner:
        return DualRunner(self.model, self.prompts, rows, ahead=self.ahead)


def _lasting(config: DualConfig) -> dict[str, Tensor]:
    """Weights whose speech does not end at once."""
    tensors = tensors_of(config)
    tensors["embeddings.weight" if config.tied else "output.weight"][SPEECH[2]] *= 0.2
    return tensors


def _parts(name: Model, folder: Path, ahead: bool = False) -> Parts:
    config = config_of(name)
    tensors = _lasting(config)
    tokenizer = load_tokenizer(write_model(folder, name), VOCABULARY)
    form = ChatPrompts if name == "s2-pro" else InterleavedPrompts
    return Parts(model_of(config, tensors), form(tokenizer, SPEECH[0], CODEBOOKS), ahead)


@pytest.fixture(scope="module", params=[("s2-pro", False), ("s2-pro", True), ("s1", True)])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    name, ahead = request.param
    return _parts(name, tmp_path_factory.mktemp("model"), ahead)


@pytest.fixture
def running(parts: Parts) -> Iterator[Callable[..., Scheduler]]:
    schedulers = []

    def start(rows: int = 4, change: Callable[[DualRunner], Any] = lambda _: None) -> Scheduler:
        def make() -> DualRunner:
            runner = parts.runner(rows)
            change(runner)
            return runner

        schedulers.append(Scheduler(make, rows))
        return schedulers[-1]

    yield start
    for one in schedulers:
        one.close()


def reference(seed: int = 0, frames: int = 5) -> DualVoice:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, ENTRIES, (frames, CODEBOOKS), generator=generator)
    return DualVoice((Reference("Ada says so.", codes),))


def sequence(
    *texts: str, seed: int = 0, voice: DualVoice = NOBODY, settings: Settings = SETTINGS, frames: int = FRAMES
) -> Sequence:
    made = Sequence(voice, settings, seed, frames)
    for text in texts or ("Hello.",):
        made.add(Turn(text, ""))
    made.finish()
    return made


def codes_of(frames: Iterable[Frame | RowStep]) -> list[list[int]]:
    return [frame.codes.tolist() for frame in frames if frame.codes is not None]


def say(scheduler: Scheduler, *sequences: Sequence) -> list[list[list[int]]]:
    scheduler.submit(*sequences)
    return [codes_of(one.frames()) for one in sequences]


def begin(runner: DualRunner, row: int, voice: DualVoice = NOBODY, seed: int = 0, text: str = "Hello.") -> None:
    runner.admit(row, voice, SETTINGS, seed)
    runner.add_segment(row, Turn(text, ""))


def said(runner: DualRunner, row: int, *others: int) -> RowStep:
    """Step a row until its next frame or the end."""
    while (step := runner.step([row, *others])[0]).codes is None and not step.ended:
        pass
    return step


def twins(
    parts: Parts, prompt: Tensor, seed: int = 0, first: int = 0, settings: Settings = SETTINGS
) -> list[list[int]]:
    model = parts.model
    sampled = settings.temperature, settings.top_p
    twice = settings.repetition_penalty > 1 and settings.temperature > 0

    def randomness(frame: int) -> Tensor:
        steps = draw_steps(model.draws(), model.device)
        return uniform(torch.tensor([seed]), torch.tensor([first + frame]), steps)[0].double()

    twin = twin_of(model.config, _lasting(model.config))
    frames: list[list[int]] = twin.frames(prompt, FRAMES, sampled, randomness, twice=twice).tolist()
    return frames


@pytest.mark.parametrize(
    ("temperature", "penalty", "prefill"),
    [(0.8, 1.2, 512), (0.3, 1.2, 7), (0.3, 1.0, 64), (0.0, 1.2, 1), (0.0, 1.0, 512)],
)
def test_codes_equal_twin(
    parts: Parts,
    running: Callable[..., Scheduler],
    temperature: float,
    penalty: float,
    prefill: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With redraws if the penalty is above 1, and any prefill size."""
    monkeypatch.setattr(runner_module, "PREFILL", prefill)
    settings, voice, prompts = Settings(temperature, 0.9, penalty), reference(), parts.prompts
    prompt = torch.cat((prompts.start(_tagged(prompts, voice)), prompts.turn("Hello.")))
    (codes,) = say(running(), sequence(seed=3, voice=voice, settings=settings))
    assert codes == twins(parts, prompt, 3, settings=settings)
    assert len(codes) > 5


def _tagged(prompts: Prompts, voice: DualVoice) -> tuple[Reference, ...]:
    tag = "<|speaker:0|>" if prompts.tagged else ""
    return tuple(Reference(tag + one.text, one.codes) for one in voice.references)


def test_turns_continue_the_conversation(parts: Parts, running: Callable[..., Scheduler]) -> None:
    """The second turn equals that of the complete conversation as one prompt."""
    prompts = parts.prompts
    scheduler = running()
    made = sequence("First.", "Second.", seed=5, frames=12)
    scheduler.submit(made)
    frames = [frame for frame in made.frames() if frame.codes is not None]
    first, second = (
        torch.from_numpy(np.stack([f.codes for f in frames if f.segment == i and f.codes is not None])) for i in (0, 1)
    )
    spoken = torch.cat((first[:, :1] + SPEECH[0], first), 1)
    before = torch.cat((prompts.start(()), prompts.turn("First."), spoken, prompts.end(), prompts.turn("Second.")))
    steps = len(first) + (len(first) < 12)  # the end of speech took a step, too
    assert second.tolist() == twins(parts, before, 5, first=steps)[:12]


def test_long_prompt_does_not_stall_other_rows(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "PREFILL", 8)
    runner = parts.runner(2)
    begin(runner, 0)
    said(runner, 0)
    begin(runner, 1, reference(frames=60), 1, "And I?")
    waited = 0
    while (steps := runner.step([0, 1]))[1].codes is None:
        assert steps[0].codes is not None
        waited += 1
    assert waited > 60 // 8


def test_parked_row_resumes_unchanged(parts: Parts) -> None:
    def run(*parked_after: int) -> list[RowStep]:
        runner, row, steps = parts.runner(3), 0, []
        begin(runner, row, reference(), 9)
        for number in range(12):
            if number in parked_after:
                held = runner.park(row)
                begin(runner, row, reference(1), 1, "Other.")  # somebody else has the row meanwhile
                runner.step([row])
                row = (row + 1) % 3
                runner.resume(row, held)
            steps += runner.step([row])
        return steps

    assert codes_of(run()) == codes_of(run(0, 3, 8))


def test_references_are_prefilled_once(parts: Parts) -> None:
    runner = parts.runner(2)
    prefill = Mock(side_effect=runner._step.prefill)
    runner._step.prefill = prefill  # type: ignore[method-assign]
    spoken = []
    for row in (0, 1):
        begin(runner, row, reference(), 4)
        spoken.append(codes_of(step for _ in range(6) for step in runner.step([row])))
    start = len(parts.prompts.start(_tagged(parts.prompts, reference())))
    read = [len(given.args[1]) for given in prefill.call_args_list]
    assert read[0] == start
    assert read[1:] == [len(parts.prompts.turn("Hello.")) - 1] * 2
    assert spoken[0] == spoken[1]
    runner.free_memory()
    runner.admit(0, reference(), SETTINGS, 4)
    assert len(runner.rows[0].waiting) == start


def test_references_share_a_speaker_tag(parts: Parts) -> None:
    codes = reference().references[0].codes
    texts = ["One.", "Two.", "<|speaker:1|>Another speaks."]
    runner = parts.runner(1)
    runner.admit(0, DualVoice(tuple(Reference(text, codes) for text in texts)), SETTINGS, 0)
    tag = "<|speaker:0|>" if parts.prompts.tagged else ""
    tagged = [Reference(tag + text, codes) for text in texts[:2]] + [Reference(texts[2], codes)]
    assert torch.equal(runner.rows[0].start, parts.prompts.start(tagged))


def test_next_frame_is_launched_ahead(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, calls = parts.runner(1), Mock()
    begin(runner, 0)
    said(runner, 0)
    for name in ("launch", "read"):
        work = Mock(side_effect=getattr(runner._step, name))
        monkeypatch.setattr(runner._step, name, work)
        calls.attach_mock(work, name)
    said(runner, 0)
    said(runner, 0)
    assert [name for name, *_ in calls.mock_calls] == ["launch", "read"] * 2
    assert runner._step.unread == parts.ahead


def test_prefix_cache_is_bounded(parts: Parts) -> None:
    runner = parts.runner(1)
    for number in range(9):
        begin(runner, 0, reference(number, frames=80))
        runner.step([0])
    assert 2 <= len(runner._prefixes) < 9
    assert sum(held.shape[3] for held in runner._prefixes.values()) <= runner.model.positions
    assert reference(8, frames=80).key in runner._prefixes


def test_idle_rows_are_unchanged(parts: Parts) -> None:
    """A row that is not stepped keeps its slot, although the batch computes at its index."""
    runner = parts.runner(3)
    for row in range(3):
        begin(runner, row, reference(row), row)
    runner.step([0, 1, 2])
    place = runner._position(1)
    held = runner.slots.take(1, place)
    for _ in range(4):
        runner.step([0, 2])
    assert torch.equal(runner.slots.take(1, place), held)


def test_old_turns_are_dropped_for_room(parts: Parts) -> None:
    runner = parts.runner(1)
    runner.admit(0, reference(), SETTINGS, 2)
    for turn in range(7):
        runner.add_segment(0, Turn(f"Turn {turn}: " + "and so on " * 6, ""))
        for _ in range(40):
            if runner.step([0])[0].ended:
                break
        assert runner.rows[0].state.position <= runner.model.positions
    with pytest.raises(EngineError, match="use shorter references or a smaller chunk_length"):
        runner.add_segment(0, Turn("x" * 300, ""))


def test_full_slot_cuts_speech(parts: Parts) -> None:
    runner = parts.runner(1)
    begin(runner, 0, seed=2)
    said(runner, 0)
    runner.resume(0, held := runner.park(0))
    held.ready.clear()
    held.state = replace(held.state, position=runner.model.positions - 2)
    assert [(one.full, one.ended) for one in (said(runner, 0), said(runner, 0))] == [(False, False), (True, False)]
    runner.add_segment(0, Turn("Go on.", ""))
    assert not said(runner, 0).ended


def test_cancel_during_prefill(
    parts: Parts, running: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "PREFILL", 2)
    expected = say(running(1), sequence(seed=8))
    made = sequence(voice=reference(frames=100))

    def cancel(runner: DualRunner) -> None:
        prefill = runner._step.prefill

        def once(row: int, columns: Tensor, position: int) -> None:
            prefill(row, columns, position)
            if position == 20:
                made.cancel()

        runner._step.prefill = once  # type: ignore[method-assign]

    scheduler = running(1, cancel)
    scheduler.submit(made)
    with pytest.raises(Cancelled):
        list(made.frames())
    assert say(scheduler, sequence(seed=8)) == expected  # in the slot with a partial prompt


def _harms(where: str, error: Exception | None) -> Callable[[DualRunner], None]:
    """Raise an error, or write NaN, for the voice with a 7-frame reference."""

    def change(runner: DualRunner) -> None:
        step = getattr(runner._step, where)

        def harmful(*arguments: Any) -> Any:
            for row in arguments[0] if isinstance(arguments[0], dict) else [arguments[0]]:
                references = runner.rows[row].voice.references
                if not references or len(references[0].codes) != 7:
                    continue
                if error is not None:
                    raise error
                runner.slots.layers[0][0, row, :, 0] = torch.nan
            return step(*arguments)

        setattr(runner._step, where, harmful)

    return change


MEMORY, BUG = torch.OutOfMemoryError("CUDA out of memory"), KeyError("bug")


@pytest.mark.parametrize(
    ("where", "error", "kind", "what"),
    [
        ("prefill", MEMORY, EngineUnavailable, "memory"),
        ("launch", MEMORY, EngineUnavailable, "memory"),
        ("prefill", BUG, EngineError, "bug"),
        ("launch", BUG, EngineError, "bug"),
        ("launch", None, EngineError, "not finite"),
    ],
)
def test_failing_row_fails_alone(
    parts: Parts,
    running: Callable[..., Scheduler],
    where: str,
    error: Exception | None,
    kind: type[EngineError],
    what: str,
) -> None:
    expected = say(running(), sequence(seed=1), sequence("Other.", seed=2))
    scheduler = running(4, _harms(where, error))
    victim, others = sequence(voice=reference(frames=7)), (sequence(seed=1), sequence("Other.", seed=2))
    scheduler.submit(others[0], victim, others[1])
    with pytest.raises(kind, match=what):
        list(victim.frames())
    assert [codes_of(one.frames()) for one in others] == expected
    assert say(scheduler, sequence(seed=1), sequence("Other.", seed=2), sequence(seed=1)) == [*expected, expected[0]]


def _mixed(number: int) -> Sequence:
    """One to three turns, with and without cuts and voice."""
    texts = [f"Text {number}, {'and so on ' * i}." for i in range(1 + number % 3)]
    voice = reference(number % 4, frames=30) if number % 2 else NOBODY
    settings = Settings(0.8 * (number % 5 > 0), 0.9, 1.2)
    return sequence(*texts, seed=number, voice=voice, settings=settings, frames=(2, 20, 7)[number % 3])


def test_codes_are_independent_of_the_batch(
    parts: Parts, running: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More sequences than rows, pausing readers, cancellation, and out-of-memory errors."""
    monkeypatch.setattr(sequence_module, "MAX_UNREAD_FRAMES", 6)
    monkeypatch.setattr(runner_module, "PREFILL", 40)

    def short_of_memory(runner: DualRunner) -> None:
        launch, calls = runner._step.launch, count()

        def launching(inputs: Any, idle: Any) -> None:
            if next(calls) % 7 == 6 and len(inputs) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            launch(inputs, idle)

        runner._step.launch = launching  # type: ignore[method-assign]

    alone, together = running(1), running(3, short_of_memory)
    expected = [say(alone, _mixed(number))[0] for number in range(12)]

    def read(number: int) -> list[list[int]]:
        made, codes = _mixed(number), list[list[int]]()
        together.submit(made)
        for frame in made.frames():
            codes += codes_of([frame])
            if len(codes) == 9:
                time.sleep(0.02 * (number % 4))
        return codes

    leaving = [_mixed(20 + number) for number in range(4)]
    with ThreadPoolExecutor(8) as pool:
        spoken = pool.map(read, range(12))
        for one in leaving:
            together.submit(one)
            time.sleep(0.02)
            one.cancel()
            together.notify()
        assert list(spoken) == expected
    assert len({str(codes) for codes in expected}) == len(expected)


def test_row_without_text_is_rejected(parts: Parts) -> None:
    runner = parts.runner(1)
    runner.admit(0, NOBODY, SETTINGS, 0)
    with pytest.raises(EngineError, match="must have text before it is stepped"):
        runner.step([0])


def _on_device(folder: Path) -> tuple[DualLM, Prompts]:
    model, prompts, _ = _parts("s2-pro", folder)
    tensors = _lasting(model.config)
    return DualLM(model.config, lambda name, *_: tensors[name].cuda(), SPEECH, model.positions), prompts


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_graph_equals_eager(tmp_path: Path) -> None:
    """Also with frames launched ahead."""
    on_device, prompts = _on_device(tmp_path)
    spoken = []
    for graphs, ahead in product((True, False), repeat=2):
        runner = DualRunner(on_device, prompts, 4, graphs=graphs, ahead=ahead)
        for row in range(3):
            begin(runner, row, reference(row), row)
        lines: list[list[list[int]]] = [[], [], []]
        while min(map(len, lines)) < 12:
            for line, step in zip(lines, runner.step([0, 1, 2]), strict=True):
                line.extend(codes_of([step]))
        spoken.append([line[:12] for line in lines])
    assert all(one == spoken[0] for one in spoken)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_concurrent_graph_capture(tmp_path: Path) -> None:
    on_device, prompts = _on_device(tmp_path)
    with ThreadPoolExecutor() as pool:
        runners = list(pool.map(lambda _: DualRunner(on_device, prompts, 2, graphs=True), range(4)))
    lines = []
    for runner in runners:
        begin(runner, 0, seed=1)
        lines.append([said(runner, 0).codes for _ in range(4)])
    assert all(str(one) == str(lines[0]) for one in lines)
