"""The language model at work: which rows of its cache hold which sequences, and a frame for each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from voicelab.engine.lm import LM
from voicelab.engine.quick import QuickStep
from voicelab.engine.sequence import KEPT_PHONES, Phonemes, Sequence
from voicelab.engine.step import Step, TorchStep
from voicelab.engine.transformer import KVCache


class Runner:
    """The model and its cache. It knows only ids and rows, no text, audio or threads.

    Args:
        model: it must not change from now on.
        rows: most sequences at once.
        step: what does the arithmetic; by default what is fastest where the model is.
    """

    def __init__(self, model: LM, rows: int, step: Callable[[LM, KVCache], Step] | None = None) -> None:
        weight = model.begin
        self.model = model
        self.device = weight.device
        self.slow = KVCache(model.config.slow, rows, weight.device, weight.dtype)
        self._step = (step or (QuickStep if self.device.type == "cpu" else TorchStep))(model, self.slow)
        self.spoiled: set[int] = set()
        """Rows in which a step failed. A number that is not finite would spoil the next sequence there, even unseen."""

    @torch.inference_mode()
    def begin(self, sequence: Sequence, row: int) -> None:
        """Gives a sequence a row: an empty one, or one that holds what it held when it was parked."""
        if row in self.spoiled:
            for store in (self.slow.keys, self.slow.values):
                store[:, row] = 0
            self.spoiled.remove(row)
        self.slow.reset(row)
        sequence.row = row
        if sequence.parked is not None:
            self.slow.put(row, sequence.parked)
            sequence.parked = None
        else:
            sequence.voice = self.model.encode_speaker(sequence.speaker.to(self.device)[None])[0]

    def free_memory(self) -> None:
        """Gives back what torch keeps for later; on the CPU it keeps nothing."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def park(self, sequence: Sequence) -> None:
        """Takes a sequence's row away; `begin` gives it another one as if nothing had been."""
        sequence.parked = self.slow.take(sequence.row)

    @torch.inference_mode()
    def read(self, sequence: Sequence, phonemes: Phonemes) -> None:
        """Puts the next segment before the pointer, after the end of what was said.

        The text encoder also sees how the segment begins once more after its end: in training, speech nearly always
        went on after a pause. The pointer never gets there.
        """
        old = sequence.phones
        kept_phones = old.phones[-KEPT_PHONES:] if old else ()
        kept_flags = old.flags[-KEPT_PHONES:] if old else ()
        phones = torch.tensor([[*kept_phones, *phonemes.phones, phonemes.phones[0]]], device=self.device)
        flags = torch.tensor([[*kept_flags, *phonemes.flags, phonemes.flags[0]]], device=self.device)
        sequence.text = self.model.encode_text(phones, flags)[0]
        sequence.phones, sequence.kept = phonemes, len(kept_phones)
        sequence.pointer, sequence.dwell, sequence.spoken = sequence.kept, 0, 0
        sequence.segment += 1

    @torch.inference_mode()
    def step(self, sequences: list[Sequence]) -> Tensor:
        """Speaks one frame of each sequence and moves its pointer.

        Returns:
            codes (sequences, codebooks), int64, on the CPU.

        Raises:
            EngineError: the model's numbers are not finite. After any error the sequences are as they were before,
                so that the step can be tried again, or with fewer of them.
        """
        before = [self.slow.position(s.row) for s in sequences]
        try:
            made, moves = self._step.step(sequences, [self._draws(s) for s in sequences])
        except BaseException:
            for sequence, position in zip(sequences, before, strict=True):
                self.slow.rewind(sequence.row, position)
            raise
        for sequence, frame, move in zip(sequences, made, moves, strict=True):
            sequence.before, sequence.draws = frame, None
            sequence.recent = [*sequence.recent[1:], int(frame[0])]
            sequence.pointer += move
            sequence.dwell = 0 if move else sequence.dwell + 1
            sequence.spoken += 1
        return made

    def _draws(self, sequence: Sequence) -> Tensor:
        if sequence.draws is None:
            sequence.draws = torch.rand(len(self.model.config.codebooks), generator=sequence.generator)
        return sequence.draws
