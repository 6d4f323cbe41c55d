"""Trains the language model, on rows of several utterances: going on from what was said is all it knows."""

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
from voicelab.engine.pointer.lm import LM, STATISTICS, Block

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
"""The two models: the small one for speed, the large one for clearness."""
FRAMES = 320
HELD = 20
WORTH_COMPILING = 400
"""Steps that save what compiling takes."""
HISTORY_DROPOUT = 0.25
DROPOUT = 0.1
"""Share of what attention and MLPs add that is left out: ten hours are learned by heart else."""
DEPTH_SHARE = 0.5
OWN_SHARE = 0.25
"""How often the speaker's statistics are those of the row itself, which tell its moods: else pitch would follow loosely."""


@dataclass(frozen=True)
class Rows:
    """A batch: (batch, FRAMES) unless said."""

    phones: Tensor
    """(batch, phones)."""
    flags: Tensor
    valid: Tensor
    codes: Tensor
    """(batch, FRAMES, codebooks)."""
    pointer: Tensor
    dwell: Tensor
    advance: Tensor
    begins: Tensor
    """(batch,) whether frame 0 is the start of speech; else the row was cut out of something longer."""
    before: Tensor
    """(batch, codebooks) the frame before the row, where it was cut."""
    speaker: Tensor
    """(batch, FRAMES, STATISTICS * latent) statistics of other speech of who speaks the frame."""

    def to(self, device: torch.device) -> Rows:
        """The same there."""
        return Rows(**{f.name: getattr(self, f.name).to(device) for f in dataclasses.fields(self)})


def pointer_path(at: NDArray[np.int64], phones: int, advances: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(pointer, advance) of each frame: it follows `at`, moves by less than `advances`, and leaves the text at the end."""
    pointer, advance = np.zeros_like(at), np.zeros_like(at)
    now = min(int(at[0]), advances - 1) if at.size else 0
    for t in range(at.size):
        pointer[t] = now
        target = int(at[t + 1]) if t + 1 < at.size else phones
        advance[t] = min(max(target - now, 0), advances - 1)
        now += int(advance[t])
    return pointer, advance


def pooled(encoded: list[Encoded]) -> Tensor:
    """(STATISTICS * latent,) of some utterances together: what `speaker_statistics` would say of them in a row."""
    rows = torch.from_numpy(np.stack([e.statistics for e in encoded])).reshape(len(encoded), STATISTICS, -1)
    share = torch.tensor([float(e.at.size) for e in encoded])
    share = (share / share.sum())[:, None]
    mean, change = (rows[:, 0] * share).sum(0), (rows[:, 2] * share).sum(0)
    square = ((rows[:, 1] ** 2 + rows[:, 0] ** 2) * share).sum(0)
    return torch.cat([mean, (square - mean**2).clamp(min=0).sqrt(), change])


class Streams:
    """Rows of consecutive utterances of one speaker, and of another where the first has said everything; drawn without end.

    One text in HELD is kept for rows of `held` ones, which tell whether the model learns by heart.
    """

    def __init__(self, said: Sequence[Encoded], config: LMConfig, seed: int, held: bool = False) -> None:
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.of: dict[int, list[Encoded]] = {}
        for encoded in said:
            if held == (zlib.crc32(encoded.phones.tobytes()) % HELD == 0):
                self.of.setdefault(encoded.speaker, []).append(encoded)
        self.speakers = sorted(self.of)
        share = np.array([sum(e.at.size for e in self.of[s]) for s in self.speakers], float)
        self.share = share / share.sum()

    def batch(self, size: int) -> Rows:
        """`size` rows."""
        rows = [self._row() for _ in range(size)]
        longest = max(r["phones"].shape[0] for r in rows)
        valid = torch.stack([torch.arange(longest) < r["phones"].shape[0] for r in rows])
        padded = {
            k: torch.stack([F.pad(r[k], (0, longest - r[k].shape[0])) for r in rows]) for k in ("phones", "flags")
        }
        rest = {k: torch.stack([r[k] for r in rows]) for k in rows[0] if k not in padded}
        return Rows(valid=valid, **padded, **rest)

    def statistics(self, count: int) -> Tensor:
        """(count, STATISTICS * latent) of speakers drawn as for rows, each from a few utterances."""
        drawn = [self.of[int(s)] for s in self.rng.choice(self.speakers, size=count, p=self.share)]
        return torch.stack([pooled([pool[int(i)] for i in self.rng.integers(len(pool), size=3)]) for pool in drawn])

    def _said(self, frames: int) -> Iterator[tuple[Encoded, Tensor]]:
        """Utterances for so many `frames`, each with statistics of its speaker.

        None comes twice before all have come: the model would learn to copy.
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
            others = chosen
            if self.rng.random() > OWN_SHARE:
                others = [pool[int(i)] for i in self.rng.integers(len(pool), size=int(self.rng.integers(1, 5)))]
            told = pooled(others)
            yield from ((utterance, told) for utterance in chosen)

    def _row(self) -> dict[str, Tensor]:
        cut = 0
        if self.rng.random() < 0.4:  # begin in the middle, as a window that has slid does
            cut = int(self.rng.integers(1, 60))
        said = list(self._said(FRAMES + cut + 1))
        chosen = [utterance for utterance, _ in said]
        speaker = torch.cat([told.expand(utterance.at.size, -1) for utterance, told in said])
        first = np.cumsum([0] + [e.phones.size for e in chosen[:-1]])
        phones = np.concatenate([e.phones for e in chosen]).astype(np.int64)
        flags = np.concatenate([e.flags for e in chosen]).astype(np.int64)
        at = np.concatenate([e.at.astype(np.int64) + f for e, f in zip(chosen, first, strict=True)])
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
    """(loss in nats a frame, its parts)."""
    text = model.encode_text(rows.phones, rows.flags, rows.valid)
    here = torch.gather(text, 1, rows.pointer[..., None].expand(-1, -1, text.shape[-1]))
    lost = (torch.rand(rows.codes.shape[:2], generator=generator) < HISTORY_DROPOUT).to(rows.codes.device)
    start = (rows.begins, rows.before)
    hidden, first = work.first(model, here, rows.codes, lost, start, rows.dwell, rows.advance, rows.speaker)
    flat_hidden, flat_codes = hidden.flatten(0, 1), rows.codes.flatten(0, 1)
    every = torch.randperm(flat_hidden.shape[0], generator=generator)
    some = every[: int(every.numel() * DEPTH_SHARE)].to(flat_hidden.device)
    others = work.others(model, flat_hidden[some], flat_codes[some])
    depth = others.sum()
    parts = {"first": first.item(), "depth": depth.item(), "second": others[0].item(), "last": others[-1].item()}
    return first + depth, parts


def _first(
    model: LM,
    text: Tensor,
    codes: Tensor,
    lost: Tensor,
    start: tuple[Tensor, Tensor],
    dwell: Tensor,
    advance: Tensor,
    speaker: Tensor,
) -> tuple[Tensor, Tensor]:
    """(hidden states (batch, FRAMES, slow width), loss of the first symbol), of `text` at the pointer and frames `lost`."""
    begins, before = start
    frames = model.encode_frames(torch.cat([before[:, None], codes[:, :-1]], dim=1))
    frames = torch.where(lost[..., None], torch.zeros_like(frames), frames)
    frames = torch.cat([torch.where(begins[:, None], model.begin, frames[:, 0])[:, None], frames[:, 1:]], dim=1)
    hidden = model.slow(model.step_input(frames, text=text, dwell=dwell, speaker=model.encode_speaker(speaker)))
    symbols = advance * model.config.codebooks[0] + codes[..., 0]
    return hidden, F.cross_entropy(model.first_logits(hidden).flatten(2).flatten(0, 1), symbols.flatten())


def depth_logits(model: LM, hidden: Tensor, codes: Tensor) -> list[Tensor]:
    """Logits (n, entries) for each codebook but the first, of hidden states (n, slow width) and true codes (n, codebooks)."""
    x = torch.stack([table(codes[:, i]) for i, table in enumerate(model.codes)], dim=1)
    x = torch.cat([x[:, :1] + model.enter_depth(hidden)[:, None], x[:, 1:]], dim=1)
    y = model.depth(x)
    return [head(y[:, i]) for i, head in enumerate(model.others)]


def _others(model: LM, hidden: Tensor, codes: Tensor) -> Tensor:
    """(codebooks - 1,) the loss of each codebook but the first."""
    logits = depth_logits(model, hidden, codes)
    return torch.stack([F.cross_entropy(y, codes[:, i + 1]) for i, y in enumerate(logits)])


@dataclass(frozen=True)
class Work:
    """What is most of a step, as it is or compiled."""

    first: Callable[..., tuple[Tensor, Tensor]] = _first
    others: Callable[..., Tensor] = _others

    @classmethod
    def fastest(cls, steps: int) -> Work:
        """Compiled where it pays and there is a compiler of C++: two minutes once, a quarter less a step on one thread."""
        pays = steps > WORTH_COMPILING and shutil.which("g++") is not None
        return cls(torch.compile(_first), torch.compile(_others)) if pays else cls()


class Scaled(nn.Module):
    """A weight for inputs of standard deviation `scale`, for an optimizer that moves all columns alike."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", scale)

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) → (out, in)."""
        return weight / self.scale


def bring_to_scale(model: LM, statistics: Tensor, *, fresh: bool) -> None:
    """Lets the model see speakers' `statistics` (n, STATISTICS * latent) around 0 and alike in size; `unscaled` undoes it.

    What tells speakers apart is a tenth of what they share. A model that is not `fresh` goes on saying what it said.
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
    """The parameters of a model that was brought to scale, as those of a plain one."""
    held = "speaker.0.parametrizations.weight."
    if f"{held}original" not in state:
        return state
    weight = state[f"{held}original"] / state[f"{held}0.scale"]
    return {k: v for k, v in state.items() if not k.startswith(held)} | {"speaker.0.weight": weight}


def leave_out(model: LM, share: float = DROPOUT) -> None:
    """Leaves out a `share` of what every layer adds, while the model trains."""

    def hook(part: nn.Module, _: object, added: Tensor) -> Tensor:
        return F.dropout(added, share, part.training)

    for block in model.modules():
        if isinstance(block, Block):
            block.join.register_forward_hook(hook)
            block.down.register_forward_hook(hook)


_PEAK = 2e-3
_TABLES = ("phone", "flag", "dwell", "frame", "codes", "first", "others")


def optimizers_for(model: LM, peak: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan, 2024) for the matrices inside, AdamW for tables, outputs and vectors.

    One trial each chose it: a loss of 30.9 after 100 steps, where AdamW alone had 33.2.
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
    said: Sequence[Encoded],
    codec: CodecConfig,
    start: LM | None,
    name: str,
    steps: int,
    minutes: float | None = None,
    batch_size: int = 8,
    seed: int = 0,
) -> Path:
    """Trains the model of that name for `steps`, resuming what is in `folder`; returns the checkpoint.

    It learns from what was `said`, in codes of the `codec`, for so many `minutes` now; from `start` on, at half the rate of
    learning, where there is one.
    """
    torch.manual_seed(seed)
    config = LMConfig(codebooks=codec.codebooks, latent=codec.latent, phones=len(ALL_PHONES), **SIZES[name])
    model = LM(config)
    if start is not None:
        model.load_state_dict(start.state_dict())
    bring_to_scale(model, Streams(said, config, seed).statistics(1024), fresh=start is None)
    leave_out(model)
    model.to(common.DEVICE)
    optimizers = optimizers_for(model, _PEAK if start is None else _PEAK * 0.75)
    about = {"seed": seed, "config": dataclasses.asdict(config)}
    path = folder / f"{name}-run.safetensors"
    run = common.Run(path, steps, model, optimizers, decay=0.998, warm=100, hold=0.45, about=about, minutes=minutes)
    streams = Streams(said, config, seed + run.step)
    generator = torch.Generator().manual_seed(seed + run.step)
    work = Work.fastest(steps - run.step)
    held = Streams(said, config, seed, held=True)
    kept = held.batch(batch_size).to(common.DEVICE) if held.of else None
    for step in run:
        rows = streams.batch(batch_size).to(common.DEVICE)
        with torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
            loss, parts = losses(model, rows, generator, work)
        run.descend(loss, **parts)
        if kept and step % 50 == 49:
            model.eval()
            with torch.no_grad(), torch.autocast(common.DEVICE.type, dtype=torch.bfloat16):
                print("held", round(float(losses(model, kept, generator, Work())[0]), 2), flush=True)
            model.train()
    return path
