"""The position of the marker, and the positions that it attends to."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from flipscope.models.transformer import Attention


def marker(attention: Attention) -> int:
    """The index of the marker's position."""
    return 0 if attention.config.marker == "cls" else -1


def seen_by_marker(attention: Attention, table: Float[Tensor, "2 position width"]) -> Bool[Tensor, " position"] | None:
    """Which positions the marker attends to; None is all."""
    visible = attention.visible(table, slice(0, 1) if marker(attention) == 0 else slice(table.shape[1] - 1, None))
    return None if visible is None or bool(visible.all()) else visible[0]
