"""One step of the language model for a batch of sequences: a frame for each."""

from __future__ import annotations

import torch
from torch import Tensor

from voicelab.engine.lm import LM
from voicelab.engine.sampling import Sampler
from voicelab.engine.sequence import KEPT_PHONES, Phonemes, Sequence
from voicelab.engine.transformer import KVCache
from voicelab.errors import EngineError


class Runner:
    """The model, its caches, and the arithmetic of a step. It knows only ids and rows, no text, audio or threads."""

    def __init__(self, model: LM, rows: int) -> None:
        weight = model.begin
        self.model = model
        self.device = weight.device
        self.slow = KVCache(model.config.slow, rows, weight.device, weight.dtype)
        self.depth = KVCache(model.config.depth, rows, weight.device, weight.dtype)
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
            return self._step(sequences)
        except BaseException:
            for sequence, position in zip(sequences, before, strict=True):
                self.slow.rewind(sequence.row, position)
            raise

    def _step(self, sequences: list[Sequence]) -> Tensor:
        model, device = self.model, self.device
        frames = torch.stack(
            [model.begin if s.before is None else model.encode_frames(s.before.to(device)) for s in sequences]
        )
        text = torch.stack([_at_pointer(s) for s in sequences])
        dwell = torch.tensor([[s.dwell] for s in sequences], device=device)
        speaker = torch.stack([_voice(s) for s in sequences])
        given = model.step_input(frames[:, None], text=text[:, None], dwell=dwell, speaker=speaker)
        hidden = model.slow.extend(given, self.slow, [s.row for s in sequences])[:, 0]
        sampler = Sampler([s.settings for s in sequences], device)
        draws = torch.stack([_draws(s, len(model.config.codebooks)) for s in sequences]).to(device)
        sums = [hidden.sum()]
        symbol = self._first(sampler, hidden, sequences, draws[:, 0], sums)
        first = symbol % model.config.codebooks[0]
        codes = self._others(sampler, hidden, first, draws, sums)
        if not torch.isfinite(torch.stack(sums)).all():  # once a frame: on a GPU every look costs a wait
            raise EngineError("the language model's numbers are not finite; the weights may be damaged")
        made, moves = codes.cpu(), (symbol // model.config.codebooks[0]).tolist()
        for sequence, frame, move in zip(sequences, made, moves, strict=True):
            sequence.before, sequence.draws = frame, None
            sequence.recent = [*sequence.recent[1:], int(frame[0])]
            sequence.pointer += move
            sequence.dwell = 0 if move else sequence.dwell + 1
            sequence.spoken += 1
        return made

    def _first(
        self, sampler: Sampler, hidden: Tensor, sequences: list[Sequence], draws: Tensor, sums: list[Tensor]
    ) -> Tensor:
        """(code, move) as one symbol; appends the sum of its logits to `sums`."""
        recent = torch.tensor([s.recent for s in sequences], device=self.device)
        raw = self.model.first_logits(hidden)
        sums.append(raw.sum())
        logits = sampler.penalize(raw, recent)
        for i, sequence in enumerate(sequences):
            if sequence.dwell + 1 >= self.model.config.dwell:
                logits[i, 0] = -torch.inf
        return sampler.pick(logits.flatten(1), draws)

    def _others(self, sampler: Sampler, hidden: Tensor, first: Tensor, draws: Tensor, sums: list[Tensor]) -> Tensor:
        """The codebooks after the first, each from those before it; appends the sums of their logits to `sums`."""
        model, rows = self.model, list(range(hidden.shape[0]))
        for row in rows:
            self.depth.reset(row)
        chosen = [first]
        given = model.codes[0](first) + model.enter_depth(hidden)
        for i, head in enumerate(model.others):
            out = model.depth.extend(given[:, None], self.depth, rows)[:, 0]
            logits = head(out)
            sums.append(logits.sum())
            chosen.append(sampler.pick(logits, draws[:, i + 1]))
            if i + 1 < len(model.others):
                given = model.codes[i + 1](chosen[-1])
        return torch.stack(chosen, dim=1)


def _draws(sequence: Sequence, count: int) -> Tensor:
    if sequence.draws is None:
        sequence.draws = torch.rand(count, generator=sequence.generator)
    return sequence.draws


def _at_pointer(sequence: Sequence) -> Tensor:
    if sequence.text is None:
        raise EngineError("a sequence was stepped before it was given text")
    return sequence.text[sequence.pointer]


def _voice(sequence: Sequence) -> Tensor:
    if sequence.voice is None:
        raise EngineError("a sequence was stepped before it was given a row")
    return sequence.voice
