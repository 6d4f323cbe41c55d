"""The language model and its step on a CPU: the arithmetic of `step.TorchStep` in numpy, several times as fast.

A frame is about eighty products of a matrix and a few vectors, and hundreds of operations on a few hundred numbers each;
torch's overhead per operation takes longer than the arithmetic. Operations are batched over rows without mixing them: a
row's numbers are bit-identical in any batch (docs/decisions/07-the-same-samples.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from voicelab.engine.core.sequence import Codes, Settings
from voicelab.engine.pointer.arrays import Floats, NumpyStack, Weights, affine, linear, rotation, silu
from voicelab.engine.pointer.config import LMConfig
from voicelab.engine.pointer.rows import DWELL_STEPS, GRAIN, STATISTICS, KVCache, PointerRow, Step
from voicelab.errors import EngineError

_TOP_SYMBOLS = 64
"""Number of most likely symbols, which nearly always contain the nucleus; if they do not, all symbols are summed."""
_MAX_SPREAD = 2 * GRAIN
"""Maximum difference between the first and last attended positions of batched rows, in addition to a window."""


def attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    """Attend from a query (…, heads, head) to keys and values (…, heads, time, head); return (…, heads, head)."""
    scores = np.matmul(keys, query[..., None])[..., 0]
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    out: Floats = np.matmul(scores[..., None, :], values)[..., 0, :]
    return out


@dataclass(frozen=True)
class Choice:
    """Sampling settings of a step's rows, for `pick` and `penalize`."""

    inverse: Floats
    """(n, 1) inverse temperatures."""
    top_p: Floats
    """(n, 1); 0 for greedy."""
    penalty: Floats
    """(n, 1, 1) log repetition penalties."""
    greedy: bool
    """Whether all rows are greedy."""
    open: bool
    """Whether a nucleus may include symbols of probability 0."""

    @classmethod
    def of(cls, settings: Sequence[Settings]) -> Self:
        """Collect the settings of a step's rows."""
        return cls(
            np.array([[1 / max(s.temperature, 1e-3)] for s in settings], np.float32),
            np.array([[s.top_p if s.temperature > 0 else 0.0] for s in settings], np.float32),
            np.log([[[s.repetition_penalty]] for s in settings]).astype(np.float32),
            all(s.temperature == 0 for s in settings),
            any(s.top_p > 0.999 for s in settings),
        )


def pick(logits: Floats, choice: Choice, draws: Floats) -> NDArray[np.int64]:
    """Sample symbols (n,) from logits (n, symbols), which are -inf for impossible symbols, like `step.Sampler.pick`.

    Raises:
        EngineError: a logit is not finite.
    """
    if choice.greedy:
        _check(logits.max(-1))
        best: NDArray[np.int64] = logits.argmax(-1)
        return best
    p = logits * choice.inverse
    p -= p.max(-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(-1, keepdims=True)
    falling = np.sort(p, axis=-1)[:, ::-1]
    _check(falling[:, 0])
    head = falling[:, :_TOP_SYMBOLS]
    total = head.cumsum(-1, dtype=np.float64)  # as torch accumulates
    if (total[:, -1] - head[:, -1] < choice.top_p[:, 0]).any():  # a nucleus exceeds the head
        head, total = falling, falling.cumsum(-1, dtype=np.float64)
    nucleus_size = np.count_nonzero(total - head < choice.top_p, -1)
    if choice.open:
        nucleus_size = np.minimum(nucleus_size, np.count_nonzero(head, -1))
    last_rank, rows = nucleus_size.clip(min=1) - 1, np.arange(len(p))
    rank = np.minimum(np.count_nonzero(total <= (draws * total[rows, last_rank])[:, None], -1), last_rank)
    chosen = head[rows, rank][:, None]
    equal = p == chosen
    among = rank - np.count_nonzero(head > chosen, -1)
    if among.any():  # ties are broken by symbol order
        return np.array([np.flatnonzero(row)[k] for row, k in zip(equal, among, strict=True)], np.int64)
    chosen_symbols: NDArray[np.int64] = equal.argmax(-1)
    return chosen_symbols


def penalize(logits: Floats, recent: NDArray[np.int64], choice: Choice) -> Floats:
    """Penalize recent codes as `step.Sampler.penalize` does; `recent` is (n, REPEAT_WINDOW), -1 for none."""
    log_p = logits - _logsumexp(logits.reshape(len(logits), -1))[..., None]
    before = _logsumexp(log_p)
    hit = np.zeros((len(logits), 1, logits.shape[2] + 1), np.float32)  # -1 indexes the extra column
    hit[np.arange(len(logits))[:, None], 0, recent] = 1
    log_p -= choice.penalty * hit[..., :-1]
    log_p += before - _logsumexp(log_p)
    return log_p


class NumpyLM:
    """The language model of a checkpoint in numpy; see lm.LM.

    Raises:
        WeightsError: a tensor is missing, unexpected, or of another shape.
    """

    device = "cpu"

    def __init__(self, config: LMConfig, weights: Weights) -> None:
        self.config = config
        text, slow, depth, sizes = config.text.width, config.slow.width, config.depth.width, config.codebooks
        take = weights.take
        self._phone, self._flag = take("phone.weight", config.phones, text), take("flag.weight", config.flags, text)
        self._text = NumpyStack(weights.under("text."), config.text)
        self._read = affine(weights.under("read."), slow, text)
        self._speaker = affine(weights.under("speaker.0."), slow, STATISTICS * config.latent)
        self._speaker_out = affine(weights.under("speaker.2."), slow, slow)
        self.dwell, self.begin = take("dwell.weight", DWELL_STEPS, slow), take("begin", slow)
        self.frame = [take(f"frame.{i}.weight", size, slow) for i, size in enumerate(sizes)]
        self.codes = [take(f"codes.{i}.weight", size, depth) for i, size in enumerate(sizes[:-1])]
        self.slow = NumpyStack(weights.under("slow."), config.slow, linear)
        self.depth = NumpyStack(weights.under("depth."), config.depth, linear)
        self.first = linear(take("first.weight", sizes[0] * config.advances, slow))
        self.enter_depth = linear(take("enter_depth.weight", depth, slow), take("enter_depth.bias", depth))
        self.others = [linear(take(f"others.{i}.weight", size, depth)) for i, size in enumerate(sizes[1:])]
        weights.finish()

    def encode_text(self, phones: Sequence[int], flags: Sequence[int]) -> Floats:
        """Encode phone ids and flags as (phones, slow width)."""
        with np.errstate(all="ignore"):
            return self._read(self._text.both_ways(self._phone[list(phones)] + self._flag[list(flags)]))

    def encode_speaker(self, statistics: Floats) -> Floats:
        """Embed speaker statistics (n, STATISTICS * latent) as (n, slow width)."""
        return self._speaker_out(silu(self._speaker(statistics)))

    def cache(self, rows: int) -> KVCache:
        """Create a cache of the slow stack for `rows` sequences."""
        return KVCache(self.config.slow, rows)

    def step(self, cache: KVCache) -> Step:
        """Create a step that processes the rows of a cache."""
        return NumpyStep(self, cache)

    def free_memory(self) -> None:
        """Do nothing, because no memory is cached."""


class NumpyStep:
    """Implementation of `rows.Step` in numpy. The slow stack's cache is shared with the runner."""

    def __init__(self, model: NumpyLM, cache: KVCache) -> None:
        self._model, self._cache = model, cache
        self._frame = np.concatenate(model.frame)
        self._frame_from = np.cumsum([0, *map(len, model.frame[:-1])])
        steps = len(model.others)
        self._depth_turns = [rotation(np.array([i], np.float32), model.depth.head) for i in range(steps)]

    def step(self, states: list[PointerRow], draws: list[Floats]) -> tuple[Codes, list[int]]:
        """Compute the next frame of each row; return the codes and the pointer advances."""
        with np.errstate(all="ignore"):
            choice, chance = Choice.of([s.settings for s in states]), np.stack(draws)
            hidden = self._model.slow.norm(self._extend(self._inputs(states), [s.row for s in states]))
            config = self._model.config
            raw = self._model.first(hidden).reshape(len(states), config.advances, -1)
            _check(raw.sum())
            logits = penalize(raw, np.array([s.recent for s in states]), choice)
            for row, state in zip(logits, states, strict=True):
                if state.dwell + 1 >= config.dwell:
                    row[0] = -np.inf
            moves, first_codes = np.divmod(pick(logits.reshape(len(logits), -1), choice, chance[:, 0]), raw.shape[2])
            codes = self._down_the_frame(first_codes, self._model.enter_depth(hidden), choice, chance)
            return codes, moves.tolist()

    def _inputs(self, states: list[PointerRow]) -> Floats:
        """Compute the inputs (n, width) of the slow stack: see LM.step_input."""
        inputs = np.stack([state.input for state in states])
        inputs += self._model.dwell[[min(int(s.dwell), DWELL_STEPS - 1) for s in states]]
        for i, state in enumerate(states):
            before = state.before
            inputs[i] += self._model.begin if before is None else self._frame[before + self._frame_from].sum(0)
        return inputs

    def _extend(self, x: Floats, rows: list[int]) -> Floats:
        """Append a position to each row and return its output before the final norm."""
        cache, slow = self._cache, self._model.slow
        for row in rows:
            cache.make_room(row, 1)
        lengths = np.array([cache.lengths[row] for row in rows])
        turn = rotation(np.array([cache.position(row) for row in rows], np.float32), slow.head)
        pasts = _pasts(np.array(rows), lengths, cache.window)
        attended = np.empty((len(rows), slow.layers[0].heads, slow.head), np.float32)
        for layer, keys, values in zip(slow.layers, cache.keys, cache.values, strict=True):
            query, key, value = layer.project(x, turn)
            keys[rows, :, lengths], values[rows, :, lengths] = key, value
            for past in pasts:
                attended[past.which] = past.attend(query[past.which], keys, values)
            x = layer.finish(x, attended)
        for row in rows:
            cache.lengths[row] += 1
        return x

    def _down_the_frame(
        self, first_codes: NDArray[np.int64], depth_input: Floats, choice: Choice, chance: Floats
    ) -> NDArray[np.int64]:
        """Sample the codebooks after the first, each conditioned on those before it; return all codes (n, codebooks)."""
        chosen, model, layers = [first_codes], self._model, self._model.depth.layers
        shape = (len(layers), len(first_codes), layers[0].heads, len(model.others), layers[0].head)
        keys, values = np.empty(shape, np.float32), np.empty(shape, np.float32)
        for i, head in enumerate(model.others):
            x = model.codes[i][chosen[-1]]
            if i == 0:
                x = x + depth_input
            for layer, k, v in zip(layers, keys, values, strict=True):
                query, k[:, :, i], v[:, :, i] = layer.project(x, self._depth_turns[i])
                x = layer.finish(x, attend(query, k[:, :, : i + 1], v[:, :, : i + 1]))
            logits = head(model.depth.norm(x))
            _check(logits.sum())
            chosen.append(pick(logits, choice, chance[:, i + 1]))
        return np.stack(chosen, axis=1)


@dataclass(frozen=True)
class Past:
    """A group of rows, with the cache positions to which they attend."""

    which: NDArray[np.int64]
    """(n,) indices of the group's rows in the batch, in the cache's order."""
    rows: slice
    """Cache rows from the group's first to its last."""
    at: NDArray[np.int64]
    """(n,) indices of the group's rows in `rows`."""
    seen: slice
    """Positions that any row of the group attends to."""
    hidden: Floats
    """(rows, 1, positions) 0 for visible positions, minus infinity for masked ones."""

    def attend(self, query: Floats, keys: Floats, values: Floats) -> Floats:
        """Attend from queries (n, heads, head) to a layer's cache (rows, heads, room, head); return (n, heads, head).

        BLAS is not used, because on some processors its summation order depends on the number of positions in the batch.
        """
        keys, values = keys[self.rows, :, self.seen], values[self.rows, :, self.seen]
        count, heads, _, head = keys.shape
        queries = np.zeros((count, heads, head), np.float32)
        queries[self.at] = query
        scores = np.einsum("rhtd,rhd->rht", keys, queries)
        scores += self.hidden
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        # Summed in multiples of GRAIN, so that masked zeros before and after change nothing.
        scores /= scores.reshape(count, heads, -1, GRAIN).sum(2).sum(-1, keepdims=True)
        out: Floats = np.einsum("rht,rhtd->rhd", scores, values)[self.at]
        return out


def _pasts(rows: NDArray[np.int64], lengths: NDArray[np.int64], window: int) -> list[Past]:
    """Group rows of similar length for batched attention, or, if lengths differ more, make one group per row."""
    from_, to = np.maximum(0, lengths + 1 - window) // GRAIN * GRAIN, -(-(lengths + 1) // GRAIN) * GRAIN
    order = np.argsort(rows)
    batched = to.max() - from_.min() <= window + _MAX_SPREAD
    groups = [order] if batched else [order[i : i + 1] for i in range(len(order))]
    pasts = []
    for which in groups:
        begin, end = rows[which[0]], rows[which[-1]] + 1
        at, seen = rows[which] - begin, slice(from_[which].min(), to[which].max())
        time = np.arange(seen.start, seen.stop)
        hidden = np.zeros((end - begin, 1, len(time)), np.float32)
        here = lengths[which, None]
        hidden[at, 0] = np.where((time <= here) & (time > here - window), 0, -np.inf)
        pasts.append(Past(which, slice(begin, end), at, seen, hidden))
    return pasts


def _logsumexp(x: Floats) -> Floats:
    """Compute the log-sum-exp over the last axis, with `keepdims`."""
    top = x.max(-1, keepdims=True)
    out: Floats = top + np.log(np.exp(x - top).sum(-1, keepdims=True))
    return out


def _check(numbers: Floats | np.floating[Any]) -> None:
    if not np.isfinite(numbers).all():
        raise EngineError("the language model's logits are not finite; the weights may be damaged")
