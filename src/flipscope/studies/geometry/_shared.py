"""What several geometry studies need: seeds, and the work of a measurement."""

from __future__ import annotations

import numpy as np

from flipscope.models.config import TransformerConfig


def seed_of(*numbers: int) -> int:
    """A seed for each sequence of numbers, unlike those of neighbouring sequences."""
    # The length goes in as well: SeedSequence does not tell (1, 2) from (1, 2, 0).
    state = np.random.SeedSequence((len(numbers), *numbers)).generate_state(1, np.uint64)[0]
    return int(state >> np.uint64(1))


def flip_work(shape: TransformerConfig, length: int) -> float:
    """Multiply-adds of a string and of all its flips, each a forward by itself."""
    tokens = length + 1
    token = shape.width * (4 * shape.width + 2 * shape.hidden_width) + 2 * tokens * shape.width
    return float(tokens * tokens * shape.layers * token)
