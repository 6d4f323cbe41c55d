"""Keys and values of a fixed number of rows, in memory that never moves: a CUDA graph keeps its addresses."""

from __future__ import annotations

import torch
from torch import Tensor

from voicelab.engine.dual.config import TowerConfig


class Slots:
    """Room for the keys and values of `rows` rows of `positions` positions each.

    Both tensors are (layers, rows, kv_heads, positions, head_width); what lies behind a row's position is never looked at.
    """

    def __init__(self, config: TowerConfig, rows: int, positions: int, like: Tensor) -> None:
        shape = (config.layers, rows, config.kv_heads, positions, config.head_width)
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self.positions = positions

    def take(self, slot: int, length: int) -> Tensor:
        """A copy (2, layers, kv_heads, length, head_width) of what a slot holds of its first positions."""
        return torch.stack((self.keys[:, slot, :, :length], self.values[:, slot, :, :length]))

    def put(self, slot: int, held: Tensor) -> None:
        """Puts back what `take` copied, from wherever it was kept."""
        length = held.shape[3]
        self.keys[:, slot, :, :length], self.values[:, slot, :, :length] = held

    def clear(self, slot: int) -> None:
        """Forgets a slot: a number that is not finite would spoil the next sequence there, even masked."""
        self.keys[:, slot], self.values[:, slot] = 0, 0


def bytes_of(config: TowerConfig, positions: int, width: int) -> int:
    """Memory of so many positions, with numbers of so many bytes."""
    return 2 * config.layers * config.kv_heads * config.head_width * positions * width
