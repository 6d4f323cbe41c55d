"""Balanced incomplete blocks, which assign a subset of the items to each listener."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from voicelab.errors import ArgumentError

_MIN_LENGTH = 64


def block_of(listener: int, items: int, size: int, seed: int) -> Mapping[int, int]:
    """Map the indices of a listener's ``size`` items to the number of earlier listeners who had the item.

    A listener is assigned the items that the fewest listeners have had. Among these, items that have rarely occurred
    together are preferred; remaining ties are broken at random. For any number of listeners, item counts differ by at
    most 1 and pair counts are nearly balanced. (Exactly balanced designs: W. G. Cochran & G. M. Cox, "Experimental
    Designs", 1957, chapter 11.) A listener's block depends on the seed, not on the total number of listeners.
    """
    if size >= items:
        return dict.fromkeys(range(items), listener)
    length = _MIN_LENGTH
    while length <= listener:
        length *= 2
    return _blocks(length, items, size, seed)[listener]


@lru_cache(maxsize=32)
def _blocks(count: int, items: int, size: int, seed: int) -> tuple[dict[int, int], ...]:
    rng = np.random.default_rng((seed, items, size))
    item_counts = np.zeros(items, np.int64)
    pair_counts = np.zeros((items, items), np.int64)
    blocks = []
    for _ in range(count):
        chosen: list[int] = []
        lot = rng.permutation(items)
        available = np.ones(items, bool)
        for _ in range(size):
            shared = pair_counts[chosen].sum(axis=0) if chosen else np.zeros(items, np.int64)
            candidates = np.flatnonzero(available)
            order = np.lexsort((lot[candidates], shared[candidates], item_counts[candidates]))
            chosen.append(int(candidates[order[0]]))
            available[chosen[-1]] = False
        blocks.append({item: int(item_counts[item]) for item in sorted(chosen)})
        item_counts[chosen] += 1
        pair_counts[np.ix_(chosen, chosen)] += 1
    return tuple(blocks)


def check_connected(listeners: int, names: Sequence[str], size: int, seed: int) -> None:
    """Raise ArgumentError unless blocks of ``size`` items connect all items for this number of listeners.

    Two items are connected if one listener has both, or if a chain of such pairs links them (R. C. Bose, "The design of
    experiments", Proceedings of the 34th Indian Science Congress, 1947). Between unconnected groups of items, the
    effects of listeners and items are confounded.
    """
    components: list[set[int]] = [{item} for item in range(len(names))]
    for listener in range(listeners):
        block = set(block_of(listener, len(names), size, seed))
        merged = set().union(*(component for component in components if component & block))
        components = [component for component in components if not component & block] + [merged]
        if len(components) == 1:
            return
    listed = " | ".join(
        ", ".join(repr(names[item]) for item in sorted(component)[:4]) + " …" * (len(component) > 4)
        for component in sorted(components, key=len, reverse=True)[:4]
    )
    problem = f"{listeners} listeners with {size} of {len(names)} items each leave {len(components)} groups of items"
    raise ArgumentError.of("per_listener", f"{problem} unconnected: {listed}; add listeners, or items per listener")
