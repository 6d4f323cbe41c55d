"""Train the language models on rows of consecutive utterances, so that they continue previous speech."""

from __future__ import annotations

import dataclasses
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from training import common
from training.codes import Encoded
from voicelab.engine.pointer.config import ALL_PHONES, CodecConfig, LMConfig, StackConfig
from voicelab.engine.pointer.lm import LM, Block
from voicelab.engine.pointer.rows import STATISTICS

SIZES: dict[str, dict[str, Any]] = {
    "s1": {
        "text": StackConfig(width=192, layers=2, heads=3, hidden=448, window=32),
        "slow": StackConfig(width=256, layers=4, heads=4, hidden=640, window=192),
        "depth": StackConfig(width=160, layers=2, heads=2, hidden=448, window=16),
    },
    "s2-pro": {
        "text": StackConfig(width=256, layers=2, heads=4, hidden=512, window=32),
        "slow": StackConfig(width=320, layers=7, heads=5, hidden=768, window=192),
        "depth": StackConfig(width=208, layers=3, heads=4, hidden=544, window=16),
    },
}
"""Model sizes: small for speed, large for intelligibility."""
FRAMES = 320
HELD_OUT = 20
MIN_STEPS_TO_COMPILE = 400
"""Number of steps from which compilation pays off."""
HISTORY_DROPOUT = 0.25
DROPOUT = 0.1
"""Dropout of attention and MLP outputs; ten hours of speech would otherwise be overfitted."""
DEPTH_SHARE = 0.5
SAME_ROW_SHARE = 0.25
"""Fraction of rows with speaker statistics of the row itself, so that F0 follows the reference closely."""


@dataclass(frozen=True)
class Rows:
    """A batch of rows, with shape (batch, FRAMES) unless stated."""

    phones: Tensor
    """Shape (batch, phones)."""
    flags: Tensor
    valid: Tensor
    codes: Tensor
    """Shape (batch, FRAMES, codebooks)."""
    pointer: Tensor
    dwell: Tensor
    advance: Tensor
    begins: Tensor
    """Whether frame 0 is the start of speech rather than a continuation, shape (batch,)."""
    before: Tensor
    """Codes of the frame before the row, for continuations, shape (batch, codebooks)."""
    speaker: Tensor
    """Speaker statistics per frame, shape (batch, FRAMES, STATISTICS * latent)."""

    def to(self, device: torch.device) -> Rows:
        """Move all tensors to a device."""
        return Rows(**{f.name: getattr(self, f.name).to(device) for f in dataclasses.fields(self)})


def pointer_path(at: NDArray[np.int64], phones: int, advances: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Compute (pointer, advance) per frame: follow `at` in steps below `advances`, and leave the text at the end."""
    pointer, advance = np.zeros_like(at), np.zeros_like(at)
    position = min(int(at[0]), advances - 1) if at.size else 0
    for t in range(at.size):
        pointer[t] = position
        target = int(at[t + 1]) if t + 1 < at.size else phones
        advance[t] = min(max(target - position, 0), advances - 1)
        position += int(advance[t])
    return pointer, advance


def pooled(encoded: list[Encoded]) -> Tensor:
    """Pool the speaker statistics of utterances, equal to those of their concatenation, shape (STATISTICS * latent,)."""
    rows = torch.from_numpy(np.stack([e.statistics for e in encoded])).reshape(len(encoded), STATISTICS, -1)
    share = torch.tensor([float(e.at.size) for e in encoded])
    share = (share / share.sum())[:, None]
    mean, change = (rows[:, 0] * share).sum(0), (rows[:, 2] * share).sum(0)
    square = ((rows[:, 1] ** 2 + rows[:, 0] ** 2) * share).sum(0)
    return torch.cat([mean, (square - mean**2).clamp(min=0).sqrt(), change])


class Streams:
    """Endless random rows of consecutive utterances of one speaker, continued by another speaker if they run out.

    Every HELD_OUT-th text is only in `held` rows, for the validation loss.
    """

    def __init__(self, corpus: Sequence[Encoded], config: LMConfig, seed: int, held: bool = False) -> None:
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.of: dict[int, list[Encoded]] = {}
        for encoded in corpus:
            if held == (zlib.crc32(encoded.phones.tobytes()) % HELD_OUT == 0):
                self.of.setdefault(encoded.speaker, []).append(encoded)
        self.speakers = sorted(self.of)
        share = np.array([sum(e.at.size for e in self.of[s]) for s in self.speakers], float)
        self.share = share / share.sum()

    def batch(self, size: int) -> Rows:
        """Draw a batch of `size` rows."""
        rows = [self._row() for _ in range(size)]
        max_phones = max(r["phones"].shape[0] for r in rows)
        valid = torch.stack([torch.arange(max_phones) < r["phones"].shape[0] for r in rows])
        padded = {
            k: torch.stack([F.pad(r[k], (0, max_phones - r[k].shape[0])) for r in rows]) for k in ("phones", "flags")
        }
        rest = {k: torch.stack([r[k] for r in rows]) for k in rows[0] if k not in padded}
        return Rows(valid=valid, **padded, **rest)

    def statistics(self, count: int) -> Tensor:
        """Draw speaker statistics of random speakers, each from a few utterances, shape (count, STATISTICS * latent)."""
        drawn = [self.of[int(s)] for s in self.rng.choice(self.speakers, size=count, p=self.share)]
        return torch.stack([pooled([pool[int(i)] for i in self.rng.integers(len(pool), size=3)]) for pool in drawn])

    def _utterances(self, frames: int) -> Iterator[tuple[Encoded, Tensor]]:
        """Yield utterances for `frames`, each with statistics of its speaker.

        Utterances are drawn without replacement, so that the model does not learn to copy.
        """
        order = self.rng.choice(self.speakers, size=len(self.speakers), replace=False, p=self.share)
        for speaker in cycle(order.tolist()):
            if frames <= 0:
                return
            pool = self.of[speaker]
            chosen: list[Encoded] = []
            for i in self.rng.permutation(len(pool)):
                if frames > 0:
                    chosen.append(pool[i])
                    frames -= pool[i].at.size
            reference = chosen
            if self.rng.random() > SAME_ROW_SHARE:
                reference = [pool[int(i)] for i in self.rng.integers(len(pool), size=int(self.rng.integers(1, 5)))]
            statistics = pooled(reference)
            yield from ((utterance, statistics) for utterance in chosen)

    def _row(self) -> dict[str, Tensor]:
        cut = 0
        if self.rng.random() < 0.4:  # start as a continuation, like a sliding window
            cut = int(self.rng.integers(1, 60))
        pairs = list(self._utterances(FRAMES + cut + 1))
        chosen = [utterance for utterance, _ in pairs]
        speaker = torch.cat([statistics.expand(utterance.at.size, -1) for utterance, statistics in pairs])
        offsets = np.cumsum([0] + [e.phones.size for e in chosen[:-1]])
        phones = np.concatenate([e.phones for e in chosen]).astype(np.int64)
        flags = np.concatenate([e.flags for e in chosen]).astype(np.int64)
        at = np.concatenate([e.at.astype(np.int64) + f for e, f in zip(chosen, offsets, strict=True)])
        codes = np.concatenate([e.codes for e in chosen]).astype(np.int64)
        pointer, advance = pointer_path(at, phones.size, self.config.advances)
        dwell = np.zeros_like(pointer)
        for t in range(1, dwell.size):
            dwell[t] = dwell[t - 1] + 1 if pointer[t] == pointer[t - 1] else 0
        low = int(pointer[cut])
        window = slice(cut, cut + FRAMES)
        high = min(phones.size, int(pointer[cut + FRAMES - 1]) + 24)
        values = {
            "phones": phones[low:high],
            "flags": flags[low:high],
            "codes": codes[window],
            "pointer": pointer[window] - low,
            "dwell": dwell[window],
            "advance": advance[window],
            "begins": np.array(cut == 0),
            "before": codes[cut - 1] if cut else codes[0],
        }
        return {k: torch.from_numpy(v) for k, v in values.items()} | {"speaker": speaker[window]}


def losses(model: LM, rows: Rows, generator: torch.Generator, work: Work) -> tuple[Tensor, dict[str, float]]:
    """Compute the loss in nats per frame, and its terms."""
    text = model.encode_text(rows.phones, rows.flags, rows.valid)
    text_at_pointer = torch.gather(text, 1, rows.pointer[..., None].expand(-1, -1, text.shape[-1]))
    dropped = (torch.rand(rows.codes.shape[:2], generator=generator) < HISTORY_DROPOUT).to(rows.codes.device)
    start = (rows.begins, rows.before)
    hidden, first_loss = work.first(
        model, text_at_pointer, rows.codes, dropped, start, rows.dwell, rows.advance, rows.speaker
    )
    flat_hidden, flat_codes = hidden.flatten(0, 1), rows.codes.flatten(0, 1)
    order = torch.randperm(flat_hidden.shape[0], generator=generator)
    selected = order[: int(order.numel() * DEPTH_SHARE)].to(flat_hidden.device)
    depth_losses = work.others(model, flat_hidden[selected], flat_codes[selected])
    depth = depth_losses.sum()
    parts = {
        "first": first_loss.item(),
        "depth": depth.item(),
        "second": depth_losses[0].item(),
        "last": depth_losses[-1].item(),
    }
    return first_loss + depth, parts


def _first(
    model: LM,
    text: Tensor,
    codes: Tensor,
    dropped: Tensor,
    start: tuple[Tensor, Tensor],
    dwell: Tensor,
    advance: Tensor,
    speaker: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute hidden states (batch, FRAMES, slow width) and the loss of the first symbol, with history dropout."""
    begins, before = start
    frames = model.encode_frames(torch.cat([before[:, None], codes[:, :-1]], dim=1))
    frames = torch.where(dropped[..., None], torch.zeros_like(frames), frames)
    frames = torch.cat([torch.where(begins[:, None], model.begin, frames[:, 0])[:, None], frames[:, 1:]], dim=1)
    hidden = model.slow(model.step_input(frames, text=text, dwell=dwell, speaker=model.encode_speaker(speaker)))
    symbols = advance * model.config.codebooks[0] + codes[..., 0]
    return hidden, F.cross_entropy(model.first_logits(hidden).flatten(2).flatten(0, 1), symbols.flatten())


def depth_logits(model: LM, hidden: Tensor, codes: Tensor) -> list[Tensor]:
    """Compute logits (n, entries) of each codebook after the first, from hidden states (n, slow width) and true codes."""
    x = torch.stack([table(codes[:, i]) for i, table in enumerate(model.codes)], dim=1)
    x = torch.cat([x[:, :1] + model.enter_depth(hidden)[:, None], x[:, 1:]], dim=1)
    y = model.depth(x)
    return [head(y[:, i]) for i, head in enumerate(model.others)]


def _others(model: LM, hidden: Tensor, codes: Tensor) -> Tensor:
    """Compute the loss of each codebook after the first, shape (codebooks - 1,)."""
    logits = depth_logits(model, hidden, codes)
    return torch.stack([F.cross_entropy(y, codes[:, i + 1]) for i, y in enumerate(logits)])


@dataclass(frozen=True)
class Work:
    """The expensive functions of a step, eager or compiled."""

    first: Callable[..., tuple[Tensor, Tensor]] = _first
    others: Callable[..., Tensor] = _others

    @classmethod
    def fastest(cls, steps: int) -> Work:
        """Compile if it pays off and a C++ compiler exists: takes two minutes, saves 25 % per step on one thread."""
        pays = steps > MIN_STEPS_TO_COMPILE and shutil.which("g++") is not None
        return cls(torch.compile(_first), torch.compile(_others)) if pays else cls()


class Scaled(nn.Module):
    """Parametrization of a weight for inputs of SD `scale`, for optimizers with equal updates of all columns."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", scale)

    def forward(self, weight: Tensor) -> Tensor:
        """Rescale a weight (out, in)."""
        return weight / self.scale


def bring_to_scale(model: LM, statistics: Tensor, *, fresh: bool) -> None:
    """Normalize the model's speaker input by `statistics` (n, STATISTICS * latent); inverse of `unscaled`.

    Differences between speakers are a tenth of their common mean. The function of a model that is not `fresh` is unchanged.
    """
    enter = cast(nn.Linear, model.speaker[0])
    before = enter.weight.detach().clone()
    scale = statistics.std(0).clamp(min=1e-3)
    parametrize.register_parametrization(enter, "weight", Scaled(scale))
    with torch.no_grad():
        if fresh:
            enter.bias.copy_(-enter.weight @ statistics.mean(0))
        else:
            cast(Any, enter.parametrizations).weight.original.copy_(before * scale)


def unscaled(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert the parameters of a model normalized by `bring_to_scale` to those of a plain model."""
    prefix = "speaker.0.parametrizations.weight."
    if f"{prefix}original" not in state:
        return state
    weight = state[f"{prefix}original"] / state[f"{prefix}0.scale"]
    return {k: v for k, v in state.items() if not k.startswith(prefix)} | {"speaker.0.weight": weight}


def add_dropout(model: LM, share: float = DROPOUT) -> None:
    """Apply dropout to the residual branches of every layer during training."""

    def hook(module: nn.Module, _: object, added: Tensor) -> Tensor:
        return F.dropout(added, share, module.training)

    for block in model.modules():
        if isinstance(block, Block):
            block.join.register_forward_hook(hook)
            block.down.register_forward_hook(hook)


_PEAK = 2e-3
_TABLES = ("phone", "flag", "dwell", "frame", "codes", "first", "others")


def optimizers_for(model: LM, peak: float) -> list[torch.optim.Optimizer]:
    """Create Muon (Jordan, 2024) for inner matrices, and AdamW for embeddings, outputs and vectors.

    In one trial each, the loss after 100 steps was 30.9, compared with 33.2 for AdamW alone.
    """
    inside = {k: p for k, p in model.named_parameters() if p.ndim == 2 and k.split(".")[0] not in _TABLES}
    rest = [p for k, p in model.named_parameters() if k not in inside]
    return [
        torch.optim.Muon(
            list(inside.values()), lr=peak, momentum=0.95, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(rest, lr=peak, betas=(0.9, 0.97), weight_decay=0.0),
    ]


def train(
    folder: Path,
    corpus: Sequence[Encoded],
    codec: CodecConfig,
    start: LM | None,
    name: str,
    steps: int,
    minutes: float | None = None,
    batch_size: int = 8,
    seed: int = 0,
) -> Path:
    """Train a model for `steps`, resuming the run in `folder`, for at most `minutes` now.

    Args:
        folder: folder of the run.
        corpus: encoded utterances.
        codec: config of the codec.
        start: initial model, trained on at a lower rate; None to train from scratch.
        name: "s1" or "s2-pro".
        steps: total number of steps.
        minutes: pause after this time.
        batch_size: rows per batch.
        seed: random seed.

    Returns:
        The path of the checkpoint.
    """
    torch.manual_seed(seed)
    config = LMConfig(codebooks=codec.codebooks, latent=codec.latent, phones=len(ALL_PHONES), **SIZES[name])
    model = LM(config)
    if start is not None:
        model.load_state_dict(start.state_dict())
    bring_to_scale(model, Streams(corpus, config, seed).statistics(1024), fresh=start is None)
    add_dropout(model)
    model.to(common.DEVICE)
    optimizers = optimizers_for(model, _PEAK if start is None else _PEAK * 0.75)
    about = {"seed": seed, "config": dataclasses.asdict(config)}
    path = folder / f"{name}-run.safetensors"
    run = common.Run(path, steps, model, optimizers, decay=0.998, warm=100, hold=0.45, about=about, minutes=minutes)
    streams = Streams(corpus, config, seed + run.step)
    generator = torch.Generator().manual_seed(seed + run.step)
    work = Work.fastest(steps - run.step)
    held = Streams(corpus, config, seed, held=True)
    validation_rows = held.batch(batch_size).to(common.DEVICE) if held.of else None
    for step in run:
        rows = streams.batch(batch_size).to(common.DEVICE)
        with torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
            loss, parts = losses(model, rows, generator, work)
        run.descend(loss, **parts)
        if validation_rows is not None and step % 50 == 49:
            model.eval()
            with torch.no_grad(), torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
                print("held", round(float(losses(model, validation_rows, generator, Work())[0]), 2), flush=True)
            model.train()
    return path
