"""The rows of a model at work: prompts that are read in pieces, frames, turns that follow each other, and what is parked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from voicelab.engine.dual.choose import WINDOW
from voicelab.engine.dual.model import DualLM
from voicelab.engine.dual.prompt import Prompts, Reference
from voicelab.engine.dual.step import DualStep, RowInput
from voicelab.engine.family import RowStep, Settings
from voicelab.errors import EngineError, EngineUnavailable

PREFILL = 512
"""Positions of prompts that are read in a step at most; the frames of the other rows come in the same step."""


@dataclass(frozen=True)
class DualVoice:
    """Who is to speak: recordings of one voice, or none for whatever voice the model takes."""

    references: tuple[Reference, ...]
    key: str
    """Equal for equal references."""


@dataclass(frozen=True)
class Turn:
    """A piece of text to be said."""

    text: str
    tag: str
    """The tag of the speaker in whose part of the text it begins."""

    @property
    def words(self) -> tuple[tuple[str, int, int], ...]:
        """See family.Segment: the models do not say where in the text they are."""
        return ()


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
    column: Tensor | None = None
    """What stands at the next position: the prompt's last column, then the frame before; None at the end of speech."""
    position: int = 0
    frame: int = 0
    """Frames of the sequence so far."""
    recent: tuple[int, ...] = ()
    turn: list[Tensor] = field(default_factory=list)
    """Columns of this turn so far, the prompt's and those of its frames."""
    spoken: int = 0
    """Frames of this turn so far."""
    held: Tensor | None = None
    """Of the slot, while it is parked."""


class DualRunner:
    """A language model and its slots, as `family.Runner` says.

    Args:
        model: it must not change from now on.
        prompts: how it is spoken to.
        rows: most sequences at once.
        graphs: see DualStep.
    """

    def __init__(self, model: DualLM, prompts: Prompts, rows: int, *, graphs: bool | None = None) -> None:
        self.model, self._prompts = model, prompts
        try:
            self._step = DualStep(model, rows, graphs=graphs)
        except torch.OutOfMemoryError as error:
            raise EngineUnavailable(f"there is no memory for {rows} rows at the moment; fewer need less") from error
        self.slots = self._step.slots
        self.rows: dict[int, DualRow] = {}
        self._prefixes: OrderedDict[str, Tensor] = OrderedDict()

    @torch.inference_mode()
    def admit(self, row: int, voice: DualVoice, settings: Settings, seed: int) -> None:
        """See family.Runner. Nothing is read yet."""
        start = self._prompts.start(voice.references)
        self.rows[row] = DualRow(voice, settings, seed, start, start[:0])
        self._begin(row, self.rows[row])

    @torch.inference_mode()
    def more(self, row: int, segment: Turn) -> None:
        """See family.Runner. The turns before stay in the slot while there is room; then all but the last are forgotten.

        Raises:
            EngineError: references and text leave no room for speech.
        """
        state = self.rows[row]
        text = segment.tag + segment.text if self._prompts.tagged else segment.text
        turn, before = self._prompts.turn(text), state.start[:0]
        if state.turn:
            before = (
                self._prompts.end() if state.column is None else torch.cat((state.column[None], self._prompts.end()))
            )
        room = self.model.positions // 2
        if state.position + len(state.waiting) + len(before) + len(turn) > room and state.turn:
            whole = torch.cat((*state.turn, self._prompts.end()))
            before = whole if len(state.start) + len(whole) + len(turn) <= room else whole[:0]
            self._begin(row, state)
        if state.position + len(state.waiting) + len(before) + len(turn) > room:
            raise EngineError(
                f"the references and the text need {len(state.start) + len(turn)} of the model's positions; "
                f"there is room for {room} before the speech: shorter references, or a smaller chunk_length"
            )
        state.waiting = torch.cat((state.waiting, before, turn[:-1]))
        state.column, state.turn = turn[-1], [turn]
        state.spoken, state.recent = 0, (-1,) * WINDOW

    @torch.inference_mode()
    def step(self, rows: Sequence[int]) -> list[RowStep]:
        """See family.Runner. A row that is still reading its prompt makes no frame."""
        self._read(rows)
        inputs = {row: self._input(self.rows[row]) for row in rows if not len(self.rows[row].waiting)}
        if not inputs:
            return [RowStep(None)] * len(rows)
        idle = {row: state.position for row, state in self.rows.items() if row not in inputs}
        frames = self._step.step(inputs, idle)
        if not all(finite for _, finite in frames.values()):
            raise EngineError("the language model's numbers are not finite; the weights may be damaged")
        return [self._advance(self.rows[row], frames[row][0]) if row in frames else RowStep(None) for row in rows]

    @torch.inference_mode()
    def park(self, row: int) -> DualRow:
        """See family.Runner. What the slot held goes to the host's memory."""
        state = self.rows.pop(row)
        state.held = self.slots.take(row, state.position).cpu()
        return state

    @torch.inference_mode()
    def resume(self, row: int, parked: DualRow) -> None:
        """See family.Runner."""
        if parked.held is not None:
            self.slots.put(row, parked.held)
        parked.held = None
        self.rows[row] = parked

    @torch.inference_mode()
    def discard(self, row: int) -> None:
        """See family.Runner."""
        self.slots.clear(row)

    def free_memory(self) -> None:
        """See family.Runner."""
        self._prefixes.clear()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _begin(self, row: int, state: DualRow) -> None:
        """An empty slot, or what is kept of the voice's references."""
        held = self._prefixes.get(state.voice.key)
        if held is None:
            state.position, state.waiting = 0, state.start
        else:
            self._prefixes.move_to_end(state.voice.key)
            self.slots.put(row, held)
            state.position, state.waiting = len(state.start), state.start[:0]

    def _read(self, rows: Sequence[int]) -> None:
        """Reads of the prompts that wait as much as a step may take; one after the other, so that the first speaks soon."""
        left = PREFILL
        for row in rows:
            state = self.rows[row]
            while left and len(state.waiting):
                start = len(state.start) - state.position
                size = min(left, len(state.waiting), start if start > 0 else left)
                self._step.prefill(row, state.waiting[:size], state.position)
                state.position, state.waiting, left = state.position + size, state.waiting[size:], left - size
                if state.position == len(state.start):
                    self._keep(state.voice.key, self.slots.take(row, state.position))

    def _keep(self, key: str, prefix: Tensor) -> None:
        """References that need not be read again: the latest, as many as one slot would hold."""
        self._prefixes[key] = prefix
        while sum(held.shape[3] for held in self._prefixes.values()) > self.model.positions:
            self._prefixes.popitem(last=False)

    def _input(self, state: DualRow) -> RowInput:
        if state.column is None:
            raise EngineError("a row was stepped before it was given text")
        settings = state.settings
        return RowInput(
            column=state.column,
            position=state.position,
            frame=state.frame,
            seed=state.seed,
            recent=state.recent,
            temperature=settings.temperature,
            top_p=settings.top_p,
            again=state.spoken > 0 and settings.repetition_penalty > 1 and settings.temperature > 0,
        )

    def _advance(self, state: DualRow, entries: Tensor) -> RowStep:
        state.position += 1
        state.frame += 1
        if int(entries[0]) == self.model.config.entries:
            state.column = None
            return RowStep(None, ended=True)
        column = torch.cat((entries[:1] + self.model.begin, entries))
        if state.spoken:  # the first frame of a turn never enters the window
            state.recent = (*state.recent[1:], int(entries[0]))
        state.spoken += 1
        state.column = column
        state.turn.append(column[None])
        return RowStep(entries.clone(), ended=state.position >= self.model.positions)
