"""Balanced incomplete blocks: which items each listener hears where nobody hears all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from voicelab.errors import ArgumentError

_FIRST = 64


def block_of(listener: int, items: int, size: int, seed: int) -> Mapping[int, int]:
    """Return the numbers of the ``size`` items that this listener hears, each with how often it was heard before.

    Each listener gets those that were heard least, among them those that were least often heard together, and by lot where
    that is equal too: after any number of listeners no item was heard more than once more than another, and pairs of items
    are together nearly equally often (W. G. Cochran & G. M. Cox, "Experimental Designs", 1957, chapter 11, has the
    designs where that is exact). The same for a seed, however many listeners come.
    """
    if size >= items:
        return dict.fromkeys(range(items), listener)
    length = _FIRST
    while length <= listener:
        length *= 2
    return _blocks(length, items, size, seed)[listener]


@lru_cache(maxsize=32)
def _blocks(count: int, items: int, size: int, seed: int) -> tuple[dict[int, int], ...]:
    draw = np.random.default_rng((seed, items, size))
    heard = np.zeros(items, np.int64)
    together = np.zeros((items, items), np.int64)
    blocks = []
    for _ in range(count):
        chosen: list[int] = []
        lot = draw.permutation(items)
        left = np.ones(items, bool)
        for _ in range(size):
            met = together[chosen].sum(axis=0) if chosen else np.zeros(items, np.int64)
            open_items = np.flatnonzero(left)
            order = np.lexsort((lot[open_items], met[open_items], heard[open_items]))
            chosen.append(int(open_items[order[0]]))
            left[chosen[-1]] = False
        blocks.append({item: int(heard[item]) for item in sorted(chosen)})
        heard[chosen] += 1
        together[np.ix_(chosen, chosen)] += 1
    return tuple(blocks)


def check_connected(listeners: int, names: Sequence[str], size: int, seed: int) -> None:
    """Raise ArgumentError, which names the parts, where so many listeners with ``size`` items each do not tie all together.

    Items are tied where somebody hears both, directly or over others: R. C. Bose, "The design of experiments", Proceedings
    of the 34th Indian Science Congress (1947). Between items that are not, listeners and items cannot be told apart.
    """
    parts: list[set[int]] = [{item} for item in range(len(names))]
    for listener in range(listeners):
        block = set(block_of(listener, len(names), size, seed))
        touched = [part for part in parts if part & block]
        parts = [part for part in parts if not part & block] + [set().union(*touched)]
        if len(parts) == 1:
            return
    shown = sorted(parts, key=len, reverse=True)[:4]
    listed = " | ".join(
        ", ".join(repr(names[item]) for item in sorted(part)[:4]) + " …" * (len(part) > 4) for part in shown
    )
    message = (
        f"{listeners} listeners with {size} of {len(names)} items each leave {len(parts)} parts unconnected: {listed}"
    )
    raise ArgumentError.of("per_listener", f"{message}; more listeners, or more items for each, connect them")
