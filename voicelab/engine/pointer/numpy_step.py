"""The language-model step on a CPU: the arithmetic of `step.TorchStep` in numpy, several times as fast.

A frame is about eighty products of a matrix and a few vectors, and hundreds of operations on a few hundred numbers each;
torch's overhead per operation exceeds the arithmetic. `linear` holds the matrices. Attention scale and rotary order are
folded into the weights, and operations are batched over rows without mixing them: a row's numbers are bit-identical in any
batch (docs/decisions/07-the-same-samples.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from voicelab.engine.core.sequence import Settings
from voicelab.engine.pointer.lm import DWELL_STEPS, GRAIN, LM, Block, KVCache, Stack
from voicelab.engine.pointer.step import PointerRow
from voicelab.errors import EngineError

Floats = NDArray[np.float32]
Multiply = Callable[[Floats], Floats]
_THREADED_SIZE = 9216
"""Matrix size from which OpenBLAS multithreads a product with a vector."""
_EPS = np.float32(1e-5)
_TOP_SYMBOLS = 64
"""Most likely symbols that contain nearly every nucleus; if they do not, all symbols are summed."""
_MAX_SPREAD = 2 * GRAIN
"""Spread of attended positions, beyond a window, up to which rows are batched."""
_FP16_KERNEL = "fbgemm_linear_fp16_weight_fp32_activation"


def linear(weight: Tensor, bias: Tensor | None = None) -> Multiply:
    """Make a product (n, in) → (n, out) with a weight (out, in): packed in float16 if lossless and supported, else blocked.

    Either way a row's result is bit-identical in any batch.
    """
    weight = weight.detach().cpu().float()
    multiply = packed(weight) or blocked(weight)
    if bias is None:
        return multiply
    added = bias.detach().cpu().float().numpy()
    return lambda x: multiply(x) + added


def packed(weight: Tensor) -> Multiply | None:
    """Pack weights in float16 for FBGEMM's kernel (Khudia et al., 2021): two to four times as fast as `blocked`.

    Only weights that float16 represents exactly are packed, such as a checkpoint's; inputs and sums are float32. It uses one
    thread. Returns None for other weights, and if torch lacks the kernel.
    """
    if not torch.equal(weight.half().float(), weight) or not hasattr(torch, _FP16_KERNEL):
        return None
    multiply = getattr(torch, _FP16_KERNEL)
    try:
        with warnings.catch_warnings():
            # Deprecated; without it, `blocked` is used.
            warnings.filterwarnings("ignore", "fbgemm_.* is deprecated", UserWarning)
            packed_weight = torch.fbgemm_pack_gemm_matrix_fp16(weight)
            multiply(weight.new_zeros(1, weight.shape[1]), packed_weight, None)
    except (RuntimeError, TypeError):  # earlier versions of torch require a bias
        return None
    return lambda x: multiply(torch.from_numpy(x), packed_weight, None).numpy()


def blocked(weight: Tensor) -> Multiply:
    """Split the weight in blocks small enough that BLAS multiplies each on the calling thread.

    Each row is multiplied on its own, since matrix-matrix products round differently from matrix-vector products; block by
    block, so that a block stays in the cache for all rows.
    """
    out, width = weight.shape
    count = next((k for k in range(1, out) if out % k == 0 and out // k * width < _THREADED_SIZE), out)
    blocks = np.ascontiguousarray(weight.numpy()).reshape(count, 1, out // count, width)

    def multiply(x: Floats) -> Floats:
        products: Floats = np.matmul(blocks, x[:, :, None])
        return (products if len(x) == 1 else products.swapaxes(0, 1)).reshape(len(x), out)

    return multiply


def rms_norm(norm: nn.RMSNorm) -> Callable[[Floats], Floats]:
    """Make the RMS norm of rows (n, width)."""
    weight = _array(norm.weight)
    return lambda x: x / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / x.shape[1] + _EPS) * weight


class Layer:
    """One layer of a stack; see lm.Block."""

    def __init__(self, block: Block, width: int) -> None:
        self.heads, self.head = block.heads, width // block.heads
        qkv = block.qkv.weight.detach().reshape(3, self.heads, self.head, width).clone()
        # Rotary pairs are interleaved, so one complex product rotates them; scores are unaffected.
        pairs = np.arange(self.head).reshape(2, -1).T.ravel()
        qkv[:2] = qkv[:2, :, pairs]
        self._norm_attention, self._norm_mlp = rms_norm(block.norm_attention), rms_norm(block.norm_mlp)
        self._qkv = linear(qkv.reshape(3 * width, width))
        self._join = linear(block.join.weight)
        self._gate_up = linear(block.gate_up.weight)
        self._down = linear(block.down.weight)

    def project(self, x: Floats, turn: NDArray[np.complex64]) -> tuple[Floats, Floats, Floats]:
        """Project x (n, width) to queries, keys and values, each (n, heads, head), rotated by `turn` from `_turn`."""
        qkv = self._qkv(self._norm_attention(x)).reshape(len(x), 3, self.heads, self.head)
        turned = (qkv[:, :2].view(np.complex64) * turn).view(np.float32)
        return turned[:, 0], turned[:, 1], qkv[:, 2]

    def finish(self, x: Floats, attended: Floats) -> Floats:
        """Add attention (n, heads, head) and the MLP to x."""
        x = x + self._join(attended.reshape(x.shape))
        gate_up = self._gate_up(self._norm_mlp(x))
        hidden = gate_up.shape[1] // 2
        gate = gate_up[:, :hidden]
        out: Floats = x + self._down(gate / (1 + np.exp(-gate)) * gate_up[:, hidden:])
        return out


def attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    """Attend from a query (…, heads, head) to keys and values (…, heads, time, head): (…, heads, head)."""
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
    """Sample symbols (n,) from logits (n, symbols), -inf if impossible, with draws (n,), as `step.Sampler.pick` does.

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


class NumpyStep:
    """Implementation of `step.Step` in numpy. The slow stack's cache is shared with the runner."""

    def __init__(self, model: LM, cache: KVCache) -> None:
        self._config, self._cache = model.config, cache
        self._keys, self._values = cache.keys.numpy(), cache.values.numpy()
        self._slow, self._slow_norm = _layers(model.slow), rms_norm(model.slow.norm)
        self._depth, self._depth_norm = _layers(model.depth), rms_norm(model.depth.norm)
        tables = list(map(_array, _weights(model.frame)))
        self._frame, sizes = np.concatenate(tables), [len(table) for table in tables]
        self._frame_from = np.cumsum([0, *sizes[:-1]])
        self._begin, self._dwell = _array(model.begin), _array(model.dwell.weight)
        self._first = linear(model.first.weight)
        self._enter = linear(model.enter_depth.weight, model.enter_depth.bias)
        self._codes = list(map(_array, _weights(model.codes)))
        self._others = list(map(linear, _weights(model.others)))
        self._depth_turns = [_turn(np.array([i], np.float32), self._depth[0].head) for i in range(len(self._others))]

    def step(self, states: list[PointerRow], draws: list[Tensor]) -> tuple[Tensor, list[int]]:
        """See step.Step."""
        with np.errstate(all="ignore"):
            choice, chance = Choice.of([s.settings for s in states]), np.stack([d.numpy() for d in draws])
            hidden = self._slow_norm(self._extend(self._inputs(states), [s.row for s in states]))
            raw = self._first(hidden).reshape(len(states), self._config.advances, -1)
            _check(raw.sum())
            logits = penalize(raw, np.array([s.recent for s in states]), choice)
            for row, state in zip(logits, states, strict=True):
                if state.dwell + 1 >= self._config.dwell:
                    row[0] = -np.inf
            moves, first_codes = np.divmod(pick(logits.reshape(len(logits), -1), choice, chance[:, 0]), raw.shape[2])
            codes = self._down_the_frame(first_codes, self._enter(hidden), choice, chance)
            return torch.from_numpy(codes), moves.tolist()

    def _inputs(self, states: list[PointerRow]) -> Floats:
        """Sum the slow stack's inputs, (n, width): see LM.step_input."""
        inputs = np.stack([text.numpy() + voice.numpy() for text, voice in (s.inputs for s in states)])
        inputs += self._dwell[[min(int(s.dwell), DWELL_STEPS - 1) for s in states]]
        for i, state in enumerate(states):
            before = state.before
            inputs[i] += self._begin if before is None else self._frame[before.numpy() + self._frame_from].sum(0)
        return inputs

    def _extend(self, x: Floats, rows: list[int]) -> Floats:
        """Append a position to each row; the result is before the final norm."""
        cache = self._cache
        for row in rows:
            cache.make_room(row, 1)
        lengths = np.array([cache.lengths[row] for row in rows])
        turn = _turn(np.array([cache.position(row) for row in rows], np.float32), self._slow[0].head)
        pasts = _pasts(np.array(rows), lengths, cache.window)
        attended = np.empty((len(rows), self._slow[0].heads, self._slow[0].head), np.float32)
        for layer, keys, values in zip(self._slow, self._keys, self._values, strict=True):
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
        """Sample the codebooks after the first, each from those before it: (n, codebooks)."""
        chosen, steps, layer = [first_codes], len(self._others), self._depth[0]
        keys = np.empty((len(self._depth), len(first_codes), layer.heads, steps, layer.head), np.float32)
        values = np.empty_like(keys)
        for i, head in enumerate(self._others):
            x = self._codes[i][chosen[-1]]
            if i == 0:
                x = x + depth_input
            for layer, k, v in zip(self._depth, keys, values, strict=True):
                query, k[:, :, i], v[:, :, i] = layer.project(x, self._depth_turns[i])
                x = layer.finish(x, attend(query, k[:, :, : i + 1], v[:, :, : i + 1]))
            logits = head(self._depth_norm(x))
            _check(logits.sum())
            chosen.append(pick(logits, choice, chance[:, i + 1]))
        return np.stack(chosen, axis=1)


@dataclass(frozen=True)
class Past:
    """Cache positions that a group of rows attends to."""

    which: NDArray[np.int64]
    """(n,) indices of these rows in the batch, in the cache's order."""
    rows: slice
    """Cache rows from the group's first to its last."""
    at: NDArray[np.int64]
    """(n,) their indices in `rows`."""
    seen: slice
    """Positions that any of them attends to."""
    hidden: Floats
    """(rows, 1, positions) 0 for visible positions, minus infinity for masked ones."""

    def attend(self, query: Floats, keys: Floats, values: Floats) -> Floats:
        """Attend from queries (n, heads, head) to a layer's cache (rows, heads, room, head): (n, heads, head).

        Not by BLAS: on some processors its summation order depends on the number of positions in the batch.
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
    """Group rows at similar lengths for batching, else one group per row; the numbers are the same."""
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


def _array(weight: Tensor) -> Floats:
    out: Floats = weight.detach().cpu().numpy()
    return out


def _layers(stack: Stack) -> list[Layer]:
    return [Layer(block, stack.config.width) for block in stack.blocks]


def _weights(modules: Any) -> list[Tensor]:
    return [module.weight for module in modules]


def _turn(positions: Floats, head: int) -> NDArray[np.complex64]:
    """Make complex factors (n, 2, 1, head / 2) that rotate queries, with attention's scale, and keys to positions (n,)."""
    frequencies = (10_000.0 ** (-np.arange(0, head, 2, dtype=np.float32) / head)).astype(np.float32)
    angles = positions[:, None, None] * frequencies
    turn = np.cos(angles) + np.complex64(1j) * np.sin(angles)
    out: NDArray[np.complex64] = np.stack([turn * np.float32(head**-0.5), turn], axis=1)
    return out


def _logsumexp(x: Floats) -> Floats:
    """Compute the log-sum-exp over the last axis, which is kept."""
    top = x.max(-1, keepdims=True)
    out: Floats = top + np.log(np.exp(x - top).sum(-1, keepdims=True))
    return out


def _check(numbers: Floats | np.floating[Any]) -> None:
    if not np.isfinite(numbers).all():
        raise EngineError("the language model's logits are not finite; the weights may be damaged")
