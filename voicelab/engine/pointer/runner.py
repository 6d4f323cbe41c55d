"""The language model at work: what the rows of its cache hold, and a frame for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from voicelab.engine.core.scheduler import RowStep
from voicelab.engine.core.sequence import Settings
from voicelab.engine.pointer.lm import LM, KVCache
from voicelab.engine.pointer.numpy_step import NumpyStep
from voicelab.engine.pointer.phones import Phonemes
from voicelab.engine.pointer.speakers import SpeakerFit
from voicelab.engine.pointer.step import PointerRow, Step, TorchStep

KEPT_PHONES = 40
"""Phones of what was said before that the text encoder still sees when the next segment follows."""


class PointerRunner:
    """The model and its cache, as `core.scheduler.Runner` says.

    Args:
        model: it must not change from now on.
        rows: most sequences at once.
        step: what does the arithmetic; by default what is fastest on the model's device.
    """

    def __init__(self, model: LM, rows: int, step: Callable[[LM, KVCache], Step] | None = None) -> None:
        weight = model.begin
        self.model = model
        self.device = weight.device
        self.slow = KVCache(model.config.slow, rows, weight.device, weight.dtype)
        self._step = (step or (NumpyStep if self.device.type == "cpu" else TorchStep))(model, self.slow)
        self.rows: dict[int, PointerRow] = {}

    @torch.inference_mode()
    def admit(self, row: int, voice: SpeakerFit, settings: Settings, seed: int) -> None:
        """See Runner."""
        self.slow.reset(row)
        speaker = self.model.encode_speaker(voice.conditioning.to(self.device)[None])[0]
        self.rows[row] = PointerRow(row, settings, torch.Generator().manual_seed(seed), speaker)

    @torch.inference_mode()
    def more(self, row: int, segment: Phonemes) -> None:
        """See Runner. The pointer is put before the segment.

        The text encoder also sees how the segment begins once more after its end: in training, speech nearly always
        went on after a pause. The pointer never gets there.
        """
        state = self.rows[row]
        old = state.segment
        kept_phones = old.phones[-KEPT_PHONES:] if old else ()
        kept_flags = old.flags[-KEPT_PHONES:] if old else ()
        phones = torch.tensor([[*kept_phones, *segment.phones, segment.phones[0]]], device=self.device)
        flags = torch.tensor([[*kept_flags, *segment.flags, segment.flags[0]]], device=self.device)
        state.text = self.model.encode_text(phones, flags)[0]
        state.segment, state.kept = segment, len(kept_phones)
        state.pointer, state.dwell = state.kept, 0

    @torch.inference_mode()
    def step(self, rows: Sequence[int]) -> list[RowStep]:
        """See Runner. A segment ends when the pointer leaves it."""
        states = [self.rows[row] for row in rows]
        before = [self.slow.position(row) for row in rows]
        try:
            codes, moves = self._step.step(states, [self._draws(state) for state in states])
        except BaseException:
            for row, position in zip(rows, before, strict=True):
                self.slow.rewind(row, position)
            raise
        return [self._advance(state, frame, move) for state, frame, move in zip(states, codes, moves, strict=True)]

    @torch.inference_mode()
    def park(self, row: int) -> PointerRow:
        """See Runner."""
        state = self.rows.pop(row)
        state.held = self.slow.take(row)
        return state

    @torch.inference_mode()
    def resume(self, row: int, parked: PointerRow) -> None:
        """See Runner."""
        if parked.held is not None:
            self.slow.put(row, parked.held)
        parked.row, parked.held = row, None
        self.rows[row] = parked

    @torch.inference_mode()
    def discard(self, row: int) -> None:
        """See Runner."""
        self.slow.reset(row)

    def free_memory(self) -> None:
        """See Runner. On the CPU torch keeps nothing."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _advance(self, state: PointerRow, frame: Tensor, move: int) -> RowStep:
        position = state.pointer - state.kept
        state.before, state.draws = frame, None
        state.recent = [*state.recent[1:], int(frame[0])]
        state.pointer += move
        state.dwell = 0 if move else state.dwell + 1
        length = len(state.segment.phones) if state.segment else 0
        return RowStep(frame, position, ended=state.pointer >= state.kept + length)

    def _draws(self, state: PointerRow) -> Tensor:
        if state.draws is None:
            state.draws = torch.rand(len(self.model.config.codebooks), generator=state.generator)
        return state.draws
