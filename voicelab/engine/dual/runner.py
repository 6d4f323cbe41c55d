"""Implementation of `core.scheduler.Runner` for open weights: chunked prefill, generation of frames, and parking of rows."""

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
"""Maximum prompt positions prefilled in a step; the frames of other rows are computed in the same step."""


@dataclass(frozen=True)
class Turn:
    """A text segment to synthesize."""

    text: str
    tag: str
    """Speaker tag in effect at its start."""
    pause_s: ClassVar[float] = 0.0
    words: ClassVar[tuple[tuple[str, int, int], ...]] = ()
    """Empty: the models have no word times."""


@dataclass
class DualRow:
    """State of one sequence."""

    voice: DualVoice
    settings: Settings
    seed: int
    start: Tensor
    """Columns before the first turn."""
    waiting: Tensor
    """Columns still to be prefilled, without the prompt's last column."""
    state: RowState = field(default_factory=lambda: RowState((), 0, 0))
    """State after the frames that `step` has returned; initially its column is the prompt's last column."""
    ready: deque[RowFrame] = field(default_factory=deque)
    """Frames computed but not yet returned."""
    failed: bool = False
    """Whether a logit was not finite."""
    turn: list[Tensor] = field(default_factory=list)
    """Columns of this turn so far: the prompt's, and those of its frames."""
    parked_slot: Tensor | None = None
    """Content of the slot while the row is parked."""

    @property
    def latest(self) -> RowState:
        """State after all computed frames."""
        return self.ready[-1].state if self.ready else self.state


class DualRunner:
    """A language model, and its KV cache with a slot for each row.

    Args:
        model: must not change afterwards.
        prompts: the model's prompt format.
        rows: maximum number of concurrent sequences.
        graphs: see DualStep.
        compile: see DualStep.
        ahead: whether the next frame is launched before the codes of the previous one are read, so that the device never
            waits for the host; by default on a CUDA device.
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
            raise EngineUnavailable(f"not enough memory for {rows} rows at the moment; use fewer") from error
        self.slots = self._step.slots
        self.rows: dict[int, DualRow] = {}
        self._ahead = model.device.type == "cuda" if ahead is None else ahead
        self._prefixes: OrderedDict[str, Tensor] = OrderedDict()

    @torch.inference_mode()
    def admit(self, row: int, voice: DualVoice, settings: Settings, seed: int) -> None:
        """Start a sequence in an empty row; references without a speaker tag are assigned to the first speaker."""
        self._step.drop(row)
        start = self._prompts.start([self._tagged(reference) for reference in voice.references])
        self.rows[row] = DualRow(voice, settings, seed, start, start[:0])
        self._begin(row, self.rows[row])

    @torch.inference_mode()
    def add_segment(self, row: int, segment: Turn) -> None:
        """Start the next turn of a row; if its slot has no room for all earlier turns, only the latest is kept.

        Raises:
            EngineError: references and text leave no room for speech.
        """
        state = self.rows[row]
        self._step.drop(row)
        state.ready.clear()  # frames computed beyond the end of the previous turn
        text = segment.tag + segment.text if self._prompts.tagged else segment.text
        turn, before = self._prompts.turn(text), state.start[:0]
        if state.turn:
            previous = torch.tensor([state.state.column], dtype=torch.int64).reshape(-1, before.shape[1])
            before = torch.cat((previous, self._prompts.end()))
        room = self.model.positions // 2
        if state.state.position + len(state.waiting) + len(before) + len(turn) > room and state.turn:
            turn_columns = torch.cat((*state.turn, self._prompts.end()))
            before = turn_columns if len(state.start) + len(turn_columns) + len(turn) <= room else turn_columns[:0]
            self._begin(row, state)
        if state.state.position + len(state.waiting) + len(before) + len(turn) > room:
            needed, remedy = len(state.start) + len(turn), "use shorter references or a smaller chunk_length"
            message = f"the references and the text need {needed} of the model's positions; there is room for {room}"
            raise EngineError(f"{message} before the speech: {remedy}")
        state.waiting = torch.cat((state.waiting, before, turn[:-1]))
        state.state, state.turn = RowState(tuple(turn[-1].tolist()), state.state.position, state.state.frame), [turn]

    @torch.inference_mode()
    def step(self, rows: Sequence[int]) -> list[RowStep]:
        """Compute one frame per row; a row returns no codes if it has a pending prompt or its frame is not computed yet."""
        states = [self.rows[row] for row in rows]
        if not any(state.failed for state in states):  # a failed row also fails when it is stepped alone
            self._read(rows)
            inputs = {row: self._input(row, self.rows[row]) for row in rows if self._can_step(row)}
            if inputs:
                idle = {row: self._position(row) for row in self.rows if row not in inputs}
                try:
                    self._step.launch(inputs, idle)
                except BaseException:
                    self._collect(0)  # no frame may remain in flight
                    raise
            self._collect(1 if inputs and self._ahead else 0)
        if any(state.failed for state in states):
            raise EngineError("the language model's logits are not finite; the weights may be damaged")
        return [self._advance(state) for state in states]

    @torch.inference_mode()
    def park(self, row: int) -> DualRow:
        """Remove and return a row's state; the keys and values are copied to host memory."""
        self._collect(0)
        state = self.rows.pop(row)
        state.parked_slot = self.slots.take(row, state.latest.position).cpu()
        return state

    @torch.inference_mode()
    def resume(self, row: int, parked: DualRow) -> None:
        """Restore the state that `park` removed from this or another row."""
        self._step.drop(row)
        if parked.parked_slot is not None:
            self.slots.put(row, parked.parked_slot)
        parked.parked_slot = None
        self.rows[row] = parked

    @torch.inference_mode()
    def discard(self, row: int) -> None:
        """Clear a row after a failed step."""
        self._step.drop(row)
        self.slots.clear(row)

    def free_memory(self) -> None:
        """Release the cached keys and values of references, and cached device memory."""
        self._prefixes.clear()
        if (kind := self.model.device.type) != "cpu":
            getattr(torch, kind).empty_cache()

    def _tagged(self, reference: Reference) -> Reference:
        if not self._prompts.tagged or SPEAKER_TAG.search(reference.text):
            return reference
        return replace(reference, text=FIRST_SPEAKER + reference.text)

    def _begin(self, row: int, state: DualRow) -> None:
        """Start a row with an empty slot, or with the cached keys and values of the voice's references."""
        prefix = self._prefixes.get(state.voice.key)
        if prefix is not None:
            self._prefixes.move_to_end(state.voice.key)
            self.slots.put(row, prefix)
        state.waiting = state.start if prefix is None else state.start[:0]
        state.state = replace(state.state, position=0 if prefix is None else len(state.start))

    def _read(self, rows: Sequence[int]) -> None:
        """Prefill up to `PREFILL` columns of waiting prompts, row by row, so that the first row can start to speak early."""
        remaining = PREFILL
        for row in rows:
            state = self.rows[row]
            while remaining and len(state.waiting):
                position = state.state.position
                start = len(state.start) - position
                size = min(remaining, len(state.waiting), start if start > 0 else remaining)
                self._step.prefill(row, state.waiting[:size], position)
                state.state = replace(state.state, position=position + size)
                state.waiting, remaining = state.waiting[size:], remaining - size
                if size == start:
                    self._cache_prefix(state.voice.key, self.slots.take(row, len(state.start)))

    def _cache_prefix(self, key: str, prefix: Tensor) -> None:
        """Cache the keys and values of a voice's references; the oldest are dropped if all exceed the size of a slot."""
        self._prefixes[key] = prefix
        while sum(cached.shape[3] for cached in self._prefixes.values()) > self.model.positions:
            self._prefixes.popitem(last=False)

    def _position(self, row: int) -> int:
        """Return the position of the row's next frame, counting frames in flight."""
        return self.rows[row].latest.position + self._step.in_flight(row)

    def _can_step(self, row: int) -> bool:
        """Return whether a row can make a frame, regardless of frames in flight."""
        state = self.rows[row]
        ended = bool(state.ready) and state.ready[-1].ended
        return not (ended or len(state.waiting)) and self._position(row) < self.model.positions

    def _input(self, row: int, state: DualRow) -> RowInput:
        if not state.state.column:
            raise EngineError("a row must have text before it is stepped")
        settings = state.settings
        return RowInput(
            state=None if self._step.in_flight(row) else state.latest,
            position=self._position(row),
            seed=state.seed,
            temperature=settings.temperature,
            top_p=settings.top_p,
            redraw=settings.repetition_penalty > 1 and settings.temperature > 0,
        )

    def _collect(self, unread: int) -> None:
        """Read the oldest frames in flight until at most `unread` remain."""
        while self._step.unread > unread:
            for row, frame in self._step.read().items():
                state = self.rows[row]
                if frame.finite:
                    state.ready.append(frame)
                else:
                    state.failed = True
                if frame.ended or state.failed:
                    self._step.drop(row)

    def _advance(self, state: DualRow) -> RowStep:
        """Return the row's next computed frame; a step without codes if none is ready."""
        if not state.ready:
            return RowStep(None)
        frame = state.ready.popleft()
        if frame.ended:
            state.state = replace(frame.state, column=())
            return RowStep(None, ended=True)
        state.state = frame.state
        state.turn.append(torch.tensor([frame.state.column]))
        return RowStep(frame.entries.numpy(), full=frame.state.position >= self.model.positions)
