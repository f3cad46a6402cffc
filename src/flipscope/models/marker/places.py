"""Where the marker stands, what it sees, and arrays as compiled loops take them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from flipscope.models.transformer import Attention
from flipscope.native.products import LINE


def marker(attention: Attention) -> int:
    """Its place."""
    return 0 if attention.config.marker == "cls" else -1


def seen_by_marker(attention: Attention, table: Float[Tensor, "2 position width"]) -> Bool[Tensor, " position"] | None:
    """Which positions the marker attends to; None is all."""
    visible = attention.visible(table, slice(0, 1) if marker(attention) == 0 else slice(table.shape[1] - 1, None))
    return None if visible is None or bool(visible.all()) else visible[0]


def flat(tensor: Float[Tensor, ...]) -> NDArray[np.float32]:
    """Its numbers one after the other; of a contiguous one they are its own."""
    numbers: NDArray[np.float32] = tensor.detach().contiguous().numpy().reshape(-1)
    return numbers


def whole_lines(count: int) -> int:
    """So many numbers, or as many more as fill a line of the cache."""
    return -(-count // LINE) * LINE
