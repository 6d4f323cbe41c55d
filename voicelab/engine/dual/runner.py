"""The rows of a model at work: prompts that are read in pieces, frames, turns that follow each other, and what is parked."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from voicelab.engine.core.scheduler import RowStep
from voicelab.engine.core.sequence import Settings
from voicelab.engine.dual.model import DualLM
from voicelab.engine.dual.prompt import FIRST_SPEAKER, SPEAKER_TAG, DualVoice, Prompts, Reference
from voicelab.engine.dual.step import DualStep, RowFrame, RowInput, RowState
from voicelab.errors import EngineError, EngineUnavailable

PREFILL = 512
"""Positions of prompts that are read in a step at most; the frames of the other rows come in the same step."""


@dataclass(frozen=True)
class Turn:
    """A piece of text to be said."""

    text: str
    tag: str
    """The tag of the speaker in whose part of the text it begins."""
    pause_s: ClassVar[float] = 0.0
    words: ClassVar[tuple[tuple[str, int, int], ...]] = ()
    """The models do not say where in the text they are."""


@dataclass
class DualRow:
    """One sequence."""

    voice: DualVoice
    settings: Settings
    seed: int
    start: Tensor
    """Columns before the first turn."""
    waiting: Tensor
    """Columns that are still to be read, without the last of the prompt."""
    state: RowState = field(default_factory=lambda: RowState((), 0, 0))
    """After the frames that `step` has returned; its column is first the prompt's last one."""
    ready: deque[RowFrame] = field(default_factory=deque)
    """Frames after these."""
    failed: bool = False
    """Whether its numbers are not finite."""
    turn: list[Tensor] = field(default_factory=list)
    """Columns of this turn so far, the prompt's and those of its frames."""
    held: Tensor | None = None
    """Of the slot, while it is parked."""

    @property
    def latest(self) -> RowState:
        """After all frames that are ready."""
        return self.ready[-1].state if self.ready else self.state


class DualRunner:
    """A language model and its slots, as `core.scheduler.Runner` says.

    Args:
        model: it must not change from now on.
        prompts: how it is spoken to.
        rows: most sequences at once.
        graphs: see DualStep.
        compile: see DualStep.
        ahead: whether the next frame is launched before the codes of the one before are read, so that the device never waits
            for the host; by default on a CUDA device.
    """

    def __init__(
        self,
        model: DualLM,
        prompts: Prompts,
        rows: int,
        *,
        graphs: bool | None = None,
        compile: bool | None = None,
        ahead: bool | None = None,
    ) -> None:
        self.model, self._prompts = model, prompts
        try:
            self._step = DualStep(model, rows, graphs=graphs, compile=compile)
            self._step.prepare()
        except torch.OutOfMemoryError as error:
            raise EngineUnavailable(f"there is no memory for {rows} rows at the moment; fewer need less") from error
        self.slots = self._step.slots
        self.rows: dict[int, DualRow] = {}
        self._ahead = model.device.type == "cuda" if ahead is None else ahead
        self._prefixes: OrderedDict[str, Tensor] = OrderedDict()

    @torch.inference_mode()
    def admit(self, row: int, voice: DualVoice, settings: Settings, seed: int) -> None:
        """See Runner. Nothing is read yet. All references are of one speaker, unless their text has a tag."""
        self._step.forget(row)
        start = self._prompts.start([self._tagged(one) for one in voice.references])
        self.rows[row] = DualRow(voice, settings, seed, start, start[:0])
        self._begin(row, self.rows[row])

    @torch.inference_mode()
    def more(self, row: int, segment: Turn) -> None:
        """See Runner. The turns before stay in the slot while there is room; then all but the last are forgotten.

        Raises:
            EngineError: references and text leave no room for speech.
        """
        state = self.rows[row]
        self._step.forget(row)
        state.ready.clear()  # beyond the end of the turn before
        text = segment.tag + segment.text if self._prompts.tagged else segment.text
        turn, before = self._prompts.turn(text), state.start[:0]
        if state.turn:
            last = torch.tensor([state.state.column], dtype=torch.int64).reshape(-1, before.shape[1])
            before = torch.cat((last, self._prompts.end()))
        room = self.model.positions // 2
        if state.state.position + len(state.waiting) + len(before) + len(turn) > room and state.turn:
            whole = torch.cat((*state.turn, self._prompts.end()))
            before = whole if len(state.start) + len(whole) + len(turn) <= room else whole[:0]
            self._begin(row, state)
        if state.state.position + len(state.waiting) + len(before) + len(turn) > room:
            needed, less = len(state.start) + len(turn), "shorter references, or a smaller chunk_length"
            message = f"the references and the text need {needed} of the model's positions; there is room for {room}"
            raise EngineError(f"{message} before the speech: {less}")
        state.waiting = torch.cat((state.waiting, before, turn[:-1]))
        state.state, state.turn = RowState(tuple(turn[-1].tolist()), state.state.position, state.state.frame), [turn]

    @torch.inference_mode()
    def step(self, rows: Sequence[int]) -> list[RowStep]:
        """See Runner. A row whose prompt is still being read, or whose frame is still being made, returns none."""
        states = [self.rows[row] for row in rows]
        if not any(state.failed for state in states):  # a row that failed does so again when it is stepped alone
            self._read(rows)
            inputs = {row: self._input(row, self.rows[row]) for row in rows if self._goes_on(row)}
            if inputs:
                idle = {row: self._position(row) for row in self.rows if row not in inputs}
                try:
                    self._step.launch(inputs, idle)
                except BaseException:
                    self._collect(0)  # what is on the device is of no use any more
                    raise
            self._collect(1 if inputs and self._ahead else 0)
        if any(state.failed for state in states):
            raise EngineError("the language model's numbers are not finite; the weights may be damaged")
        return [self._advance(state) for state in states]

    @torch.inference_mode()
    def park(self, row: int) -> DualRow:
        """See Runner. What the slot held goes to the host's memory."""
        self._collect(0)
        state = self.rows.pop(row)
        state.held = self.slots.take(row, state.latest.position).cpu()
        return state

    @torch.inference_mode()
    def resume(self, row: int, parked: DualRow) -> None:
        """See Runner."""
        self._step.forget(row)
        if parked.held is not None:
            self.slots.put(row, parked.held)
        parked.held = None
        self.rows[row] = parked

    @torch.inference_mode()
    def discard(self, row: int) -> None:
        """See Runner."""
        self._step.forget(row)
        self.slots.clear(row)

    def free_memory(self) -> None:
        """See Runner."""
        self._prefixes.clear()
        if (kind := self.model.device.type) != "cpu":
            getattr(torch, kind).empty_cache()

    def _tagged(self, reference: Reference) -> Reference:
        if not self._prompts.tagged or SPEAKER_TAG.search(reference.text):
            return reference
        return replace(reference, text=FIRST_SPEAKER + reference.text)

    def _begin(self, row: int, state: DualRow) -> None:
        """An empty slot, or what is kept of the voice's references."""
        held = self._prefixes.get(state.voice.key)
        if held is not None:
            self._prefixes.move_to_end(state.voice.key)
            self.slots.put(row, held)
        state.waiting = state.start if held is None else state.start[:0]
        state.state = replace(state.state, position=0 if held is None else len(state.start))

    def _read(self, rows: Sequence[int]) -> None:
        """Reads of the prompts that wait as much as a step may take; one after the other, so that the first speaks soon."""
        left = PREFILL
        for row in rows:
            state = self.rows[row]
            while left and len(state.waiting):
                position = state.state.position
                start = len(state.start) - position
                size = min(left, len(state.waiting), start if start > 0 else left)
                self._step.prefill(row, state.waiting[:size], position)
                state.state = replace(state.state, position=position + size)
                state.waiting, left = state.waiting[size:], left - size
                if size == start:
                    self._keep(state.voice.key, self.slots.take(row, len(state.start)))

    def _keep(self, key: str, prefix: Tensor) -> None:
        """References that need not be read again: the latest, as many as one slot would hold."""
        self._prefixes[key] = prefix
        while sum(held.shape[3] for held in self._prefixes.values()) > self.model.positions:
            self._prefixes.popitem(last=False)

    def _position(self, row: int) -> int:
        """Where the row's next frame will stand, after those that are on their way."""
        return self.rows[row].latest.position + self._step.flies(row)

    def _goes_on(self, row: int) -> bool:
        """Whether the row can make a frame now, whatever those on their way will say."""
        state = self.rows[row]
        ended = bool(state.ready) and state.ready[-1].ended
        return not (ended or len(state.waiting)) and self._position(row) < self.model.positions

    def _input(self, row: int, state: DualRow) -> RowInput:
        if not state.state.column:
            raise EngineError("a row was stepped before it was given text")
        settings = state.settings
        return RowInput(
            state=None if self._step.flies(row) else state.latest,
            position=self._position(row),
            seed=state.seed,
            temperature=settings.temperature,
            top_p=settings.top_p,
            again=settings.repetition_penalty > 1 and settings.temperature > 0,
        )

    def _collect(self, unread: int) -> None:
        """Reads frames until so many are left."""
        while self._step.unread > unread:
            for row, frame in self._step.read().items():
                state = self.rows[row]
                if frame.finite:
                    state.ready.append(frame)
                else:
                    state.failed = True
                if frame.ended or state.failed:
                    self._step.forget(row)

    def _advance(self, state: DualRow) -> RowStep:
        """What the row says next, if it is there."""
        if not state.ready:
            return RowStep(None)
        frame = state.ready.popleft()
        if frame.ended:
            state.state = replace(frame.state, column=())
            return RowStep(None, ended=True)
        state.state = frame.state
        state.turn.append(torch.tensor([frame.state.column]))
        return RowStep(frame.entries, full=frame.state.position >= self.model.positions)
