"""The step of the language model on a CPU: the arithmetic of `step.TorchStep` in numpy, several times as fast.

A frame is some eighty products of a matrix and a few vectors, and hundreds of operations on a few hundred numbers each;
torch spends more on starting each of them than on the numbers. Here the norms' weights, the scale of attention and the
order of rotary pairs are put into the matrices beforehand.

A matrix is kept in pieces so small that BLAS multiplies each on the thread that asks: at these sizes a second thread gains
nothing, and on a machine with other work every product would wait for it. Each row of a batch is multiplied by itself, piece
after piece, so that a sequence comes out the same to the bit whoever is spoken beside it, at about the cost of a product of
matrices (docs/decisions/2026-11-21-speed.md).
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from voicelab.engine.lm import DWELL_STEPS, LM
from voicelab.engine.sampling import Settings
from voicelab.engine.sequence import Sequence
from voicelab.engine.transformer import Block, KVCache, Stack
from voicelab.errors import EngineError

Floats = NDArray[np.float32]
_PIECE = 9216
"""Numbers in a matrix from which on OpenBLAS shares a product with a vector among threads."""
_EPS = np.float32(1e-5)


class Matrix:
    """A weight (out, in) ready to be multiplied by rows: (n, in) → (n, out)."""

    def __init__(self, weight: Tensor | Floats, bias: Tensor | None = None, after: nn.RMSNorm | None = None) -> None:
        """`after` is a norm whose weight the inputs are still to be multiplied by."""
        held = _array(weight)
        if after is not None:
            held = held * _array(after.weight)
        out, width = held.shape
        count = next((k for k in range(1, out) if out % k == 0 and out // k * width < _PIECE), out)
        self._pieces = np.ascontiguousarray(held).reshape(count, 1, out // count, width)
        self._bias = None if bias is None else _array(bias)
        self._out = out

    def __call__(self, x: Floats) -> Floats:
        """(n, in) → (n, out)."""
        made = np.matmul(self._pieces, x[:, :, None])
        flat: Floats = (made if len(x) == 1 else made.swapaxes(0, 1)).reshape(len(x), self._out)
        return flat if self._bias is None else flat + self._bias


class Layer:
    """One block of a stack; see transformer.Block."""

    def __init__(self, block: Block, width: int) -> None:
        self.heads, self.head = block.heads, width // block.heads
        qkv = _array(block.qkv.weight).reshape(3, self.heads, self.head, width).copy()
        qkv[0] *= np.float32(self.head**-0.5)
        # Rotary pairs beside each other, so that one complex product turns them; scores do not see the order.
        pairs = np.arange(self.head).reshape(2, -1).T.ravel()
        qkv[:2] = qkv[:2, :, pairs]
        self._qkv = Matrix(qkv.reshape(3 * width, width), after=block.norm_attention)
        self._join = Matrix(block.join.weight)
        self._gate_up = Matrix(block.gate_up.weight, after=block.norm_mlp)
        self._down = Matrix(block.down.weight)

    def project(self, x: Floats, turn: NDArray[np.complex64]) -> tuple[Floats, Floats, Floats]:
        """(n, width) and the positions' turns (n or 1, 1, head / 2) → queries, keys, values, each (n, heads, head)."""
        made = self._qkv(_normed(x)).reshape(len(x), 3, self.heads, self.head)
        turned = (made[:, :2].view(np.complex64) * turn[:, None]).view(np.float32)
        return turned[:, 0], turned[:, 1], made[:, 2]

    def finish(self, x: Floats, attended: Floats) -> Floats:
        """Adds attention (n, heads, head) and the MLP to x."""
        x = x + self._join(attended.reshape(x.shape))
        both = self._gate_up(_normed(x))
        hidden = both.shape[1] // 2
        gate = both[:, :hidden]
        out: Floats = x + self._down(gate / (1 + np.exp(-gate)) * both[:, hidden:])
        return out


def attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    """(…, heads, head) of one position, (…, heads, time, head) of what it sees → (…, heads, head)."""
    scores = np.matmul(keys, query[..., None])[..., 0]
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    out: Floats = np.matmul(scores[..., None, :], values)[..., 0, :]
    return out


def pick(logits: Floats, settings: Rows[Settings], draws: Floats) -> NDArray[np.int64]:
    """(n, symbols) and (n,) → (n,): what sampling.Sampler.pick does, by the same definition.

    Raises:
        EngineError: a number is not finite. Minus infinity is: what is impossible.
    """
    if all(s.temperature == 0 for s in settings):
        _check(logits.max(-1))
        best: NDArray[np.int64] = logits.argmax(-1)
        return best
    inverse = np.array([1 / max(s.temperature, 1e-3) for s in settings], np.float32)[:, None]
    top_p = np.array([s.top_p if s.temperature > 0 else 0.0 for s in settings], np.float32)[:, None]
    p = logits * inverse
    p -= p.max(-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(-1, keepdims=True)
    falling = np.sort(p, axis=-1)[:, ::-1]
    _check(falling[:, 0])
    total = falling.cumsum(-1, dtype=np.float64)  # as torch adds
    kept = np.minimum((total - falling < top_p).sum(-1), (falling > 0).sum(-1)).clip(min=1)
    every = np.arange(len(p))
    rank = np.minimum((total <= (draws * total[every, kept - 1])[:, None]).sum(-1), kept - 1)
    chosen = falling[every, rank]
    # Among equals, the order of the symbols.
    among = rank - (falling > chosen[:, None]).sum(-1)
    return np.array([np.flatnonzero(p[i] == chosen[i])[k] for i, k in enumerate(among)], np.int64)


def penalize(logits: Floats, recent: Rows[Rows[int]], settings: Rows[Settings]) -> Floats:
    """(n, advances, codes) → the same: what sampling.Sampler.penalize does."""
    log_p = logits - _logsumexp(logits.reshape(len(logits), -1))[..., None]
    before = _logsumexp(log_p)
    for row, codes, setting in zip(log_p, recent, settings, strict=True):
        seen = [code for code in dict.fromkeys(codes) if code >= 0]
        row[:, seen] -= np.float32(np.log(setting.repetition_penalty))
    made: Floats = log_p + (before - _logsumexp(log_p))
    return made


class QuickStep:
    """One frame of several sequences; the slow stack's cache is shared with whoever keeps its rows."""

    def __init__(self, model: LM, cache: KVCache) -> None:
        self._config, self._cache = model.config, cache
        self._keys, self._values = cache.keys.numpy(), cache.values.numpy()
        self._slow, self._slow_norm = _layers(model.slow), model.slow.norm
        self._depth = _layers(model.depth)
        self._frame = [_array(table.weight) for table in _tables(model.frame)]
        self._begin, self._dwell = _array(model.begin), _array(model.dwell.weight)
        self._first = Matrix(model.first.weight, after=model.slow.norm)
        self._enter = Matrix(_array(model.enter_depth.weight), model.enter_depth.bias, after=model.slow.norm)
        self._codes = [_array(table.weight) for table in _tables(model.codes)]
        self._others = [Matrix(head.weight, after=model.depth.norm) for head in _heads(model.others)]
        self._slow_turns = _frequencies(self._slow[0].head)
        depth = _frequencies(self._depth[0].head)
        self._depth_turns = [_turn(np.array([i], np.float32), depth) for i in range(len(self._others))]

    def step(self, sequences: list[Sequence], draws: list[Tensor]) -> tuple[Tensor, list[int]]:
        """See step.Step."""
        with np.errstate(all="ignore"):
            settings, chance = [s.settings for s in sequences], np.stack([d.numpy() for d in draws])
            hidden = _normed(self._extend(np.stack([self._given(s) for s in sequences]), [s.row for s in sequences]))
            raw = self._first(hidden).reshape(len(sequences), self._config.advances, -1)
            _check(raw.sum())
            logits = penalize(raw, [s.recent for s in sequences], settings)
            for row, sequence in zip(logits, sequences, strict=True):
                if sequence.dwell + 1 >= self._config.dwell:
                    row[0] = -np.inf
            moves, first = np.divmod(pick(logits.reshape(len(logits), -1), settings, chance[:, 0]), raw.shape[2])
            codes = self._down_the_frame(first, self._enter(hidden), settings, chance)
            return torch.from_numpy(codes), moves.tolist()

    def _given(self, sequence: Sequence) -> Floats:
        """What the slow stack receives: see LM.step_input."""
        text, voice = sequence.given
        made: Floats = text.numpy() + voice.numpy() + self._dwell[min(sequence.dwell, DWELL_STEPS - 1)]
        if sequence.before is None:
            return made + self._begin
        return sum((table[code] for table, code in zip(self._frame, sequence.before.tolist(), strict=True)), made)

    def _extend(self, x: Floats, rows: list[int]) -> Floats:
        """One more position of each row, before the last norm. Each looks at its own window: what others do is no matter."""
        cache = self._cache
        for row in rows:
            cache.make_room(row, 1)
        places = [cache.lengths[row] for row in rows]
        turn = _turn(np.array([cache.position(row) for row in rows], np.float32), self._slow_turns)
        attended = np.empty((len(rows), self._slow[0].heads, self._slow[0].head), np.float32)
        for layer, keys, values in zip(self._slow, self._keys, self._values, strict=True):
            query, key, value = layer.project(x, turn)
            for i, (row, place) in enumerate(zip(rows, places, strict=True)):
                keys[row, :, place], values[row, :, place] = key[i], value[i]
                seen = slice(max(0, place + 1 - cache.window), place + 1)
                attended[i] = _attend_long(query[i], keys[row, :, seen], values[row, :, seen])
            x = layer.finish(x, attended)
        for row in rows:
            cache.lengths[row] += 1
        return x

    def _down_the_frame(
        self, first: NDArray[np.int64], given: Floats, settings: Rows[Settings], chance: Floats
    ) -> NDArray[np.int64]:
        """The codebooks after the first, each from those before it: (n, codebooks)."""
        chosen, steps, layer = [first], len(self._others), self._depth[0]
        keys = np.empty((len(self._depth), len(first), layer.heads, steps, layer.head), np.float32)
        values = np.empty_like(keys)
        for i, head in enumerate(self._others):
            x = self._codes[i][chosen[-1]]
            if i == 0:
                x = x + given
            for layer, k, v in zip(self._depth, keys, values, strict=True):
                query, k[:, :, i], v[:, :, i] = layer.project(x, self._depth_turns[i])
                x = layer.finish(x, attend(query, k[:, :, : i + 1], v[:, :, : i + 1]))
            logits = head(_normed(x))
            _check(logits.sum())
            chosen.append(pick(logits, settings, chance[:, i + 1]))
        return np.stack(chosen, axis=1)


def _attend_long(query: Floats, keys: Floats, values: Floats) -> Floats:
    """As `attend`, of one row and many positions: the heads' numbers in two halves, again for BLAS to keep to one thread."""
    heads, time, head = keys.shape
    halves = keys.reshape(heads, time, 2, head // 2).transpose(0, 2, 1, 3)
    scores = np.matmul(halves, query.reshape(heads, 2, head // 2, 1))[..., 0].sum(1)
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    made = np.matmul(scores[:, None, None], values.reshape(heads, time, 2, head // 2).transpose(0, 2, 1, 3))
    out: Floats = made.reshape(heads, head)
    return out


def _array(weight: Tensor | Floats) -> Floats:
    return weight if isinstance(weight, np.ndarray) else weight.detach().cpu().numpy()


def _layers(stack: Stack) -> list[Layer]:
    return [Layer(block, stack.config.width) for block in stack.blocks]


def _tables(modules: Any) -> list[nn.Embedding]:
    return list(modules)


def _heads(modules: Any) -> list[nn.Linear]:
    return list(modules)


def _normed(x: Floats) -> Floats:
    """RMS norm of rows (n, width), but for its weight."""
    out: Floats = x / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / x.shape[1] + _EPS)
    return out


def _frequencies(head: int) -> Floats:
    return (10_000.0 ** (-np.arange(0, head, 2, dtype=np.float32) / head)).astype(np.float32)


def _turn(positions: Floats, frequencies: Floats) -> NDArray[np.complex64]:
    """(n,) → (n, 1, head / 2): what turns a pair to its position."""
    angles = positions[:, None, None] * frequencies
    out: NDArray[np.complex64] = np.cos(angles) + np.complex64(1j) * np.sin(angles)
    return out


def _logsumexp(x: Floats) -> Floats:
    """Over the last axis, which stays."""
    top = x.max(-1, keepdims=True)
    out: Floats = top + np.log(np.exp(x - top).sum(-1, keepdims=True))
    return out


def _check(numbers: Floats | np.floating[Any]) -> None:
    if not np.isfinite(numbers).all():
        raise EngineError("the language model's numbers are not finite; the weights may be damaged")
