"""The MLP of a layer without its inactive ReLU units.

A unit that is inactive in all rows of a block contributes nothing, so its part of the second matrix is skipped. If the
rows are so close to the unflipped string's that the unit cannot be active, its part of the first matrix is skipped too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from flipscope.flips.finish import Finish, Workspace, affine
from flipscope.models.threads import on_cores
from flipscope.models.transformer import Block
from flipscope.native.compiled import Loop
from flipscope.native.rectified import (
    active_units,
    add_units,
    distances,
    hidden_units,
    possible_units,
    put_blocks,
    take_blocks,
)
from flipscope.native.simd import BLOCK, group_of
from flipscope.native.span import Span, preferred

_PART_BYTES = 384 << 10  # part of a matrix that is applied to all blocks before the next, to stay in the L2 cache
_VALUES_BYTES = 8 << 20  # largest size of the units' values between the two matrices


def blocks_of(rows: Int64[np.ndarray, "token flip"], order: Int64[np.ndarray, "token flip"]) -> np.ndarray:
    """Rows in blocks [block, lane]: each token's in order, then the remaining rows of all tokens together.

    Similar rows should be adjacent, and rows that do not fill a block should come last.
    """
    rows = np.take_along_axis(rows, order, axis=1)
    whole = rows.shape[1] // BLOCK * BLOCK
    rest = rows[:, whole:].ravel()
    rest = np.pad(rest, (0, -len(rest) % BLOCK), mode="edge") if len(rest) else rest
    return np.concatenate([rows[:, :whole].reshape(-1, BLOCK), rest.reshape(-1, BLOCK)])


@dataclass(frozen=True)
class _Blocks:
    """Blocks that are computed together: their transposed rows and active units."""

    rows: Int64[np.ndarray, "block lane"]
    turned: Float32[np.ndarray, "block width_lane"]  # the MLP's input, later also the product with its second matrix
    values: Float32[np.ndarray, "block unit_lane"]
    active: Int64[np.ndarray, "block unit"]  # the units whose values these are, in increasing order
    starts: Int64[np.ndarray, "block parts_and_one"]  # start index of each part


class Rectified:
    """The second half of a layer (finish.Finish) whose MLP has ReLU, for rows of the same tokens under many flips.

    ``span`` overrides the processor's.
    """

    def __init__(self, block: Block, finish: Finish, span: Span | None = None) -> None:
        self.span = preferred() if span is None else span
        self.group = group_of(self.span.lanes)
        mlp, space = block.mlp, finish.space
        assert mlp is not None
        self.space: Workspace = space
        self.up, self.up_bias = mlp.up.weight.detach().contiguous(), mlp.up.bias.detach()
        self.down_bias = mlp.down.bias.detach()
        self.norm = finish.norm2
        hidden, width = self.up.shape
        # The largest rounding error of a product of this many terms, relative to the norms of its factors.
        self.rounding = (width + 4) * torch.finfo(torch.float32).eps
        self.norms = torch.linalg.vector_norm(self.up, dim=1) * (1 + self.rounding)
        self.part = min(hidden, max(48, _PART_BYTES // (4 * width) // 8 * 8))
        self.parts, self.groups = -(-hidden // self.part), -(-width // self.group)
        down = torch.zeros(self.parts * self.part, self.groups * self.group, dtype=torch.float32, device="cpu")
        down[:hidden, :width] = mlp.down.weight.detach().T
        # [part, unit, group, coordinate] -> [part, group, unit, coordinate]
        down = down.view(self.parts, self.part, self.groups, self.group).transpose(1, 2).contiguous()
        self.down = down.view(self.parts, self.groups, self.part * self.group)
        self.together = min(256, max(BLOCK, _VALUES_BYTES // (4 * BLOCK * hidden)))

    @staticmethod
    def supports(block: Block) -> bool:
        """Whether the layer is of this kind."""
        config = block.config
        fits = config.width % 8 == 0 and config.hidden_width % 8 == 0
        return Finish.supports(block) and fits and block.mlp is not None and block.mlp.activation == "relu"

    @staticmethod
    def loops(*, mixed: bool) -> list[Loop]:
        """The compiled loops that it calls, by ``add`` if rows are ``mixed``."""
        found = [active_units] if mixed else [distances, possible_units, hidden_units]
        return cast(list[Loop], [*found, take_blocks, add_units, put_blocks])

    def __call__(self, x: Float[Tensor, "flip token width"], centre: Float[Tensor, "token width"]) -> None:
        """Turn x in place from the MLP's input into the layer's output; ``centre`` is the unflipped string's input."""
        flips, tokens, width = x.shape
        flat = x.view(-1, width).numpy()
        away = np.empty(len(flat), np.float32)
        on_cores(partial(distances, flat, centre.numpy(), away), len(flat))
        rows = np.arange(flips * tokens).reshape(flips, tokens).T  # [token, flip]
        blocks = blocks_of(rows, away[rows].argsort(axis=1, kind="stable"))
        inside = torch.addmm(self.up_bias, centre, self.up.T).numpy()  # [token, unit]
        # Both the centre's units and the rows' are rounded.
        size = torch.linalg.vector_norm(centre, dim=1).numpy()
        token = blocks % tokens
        radius = (away * np.float32(1 + 4 * self.rounding))[blocks] + np.float32(2 * self.rounding) * size[token]
        for begin in range(0, len(blocks), self.together):
            some = self._taken(flat, blocks[begin : begin + self.together])
            self._switch_on(some, inside, radius[begin : begin + self.together], token[begin : begin + self.together])
            self._put(flat, some)

    def add(
        self, x: Float[Tensor, "row width"], hidden: Float[Tensor, "row unit"], blocks: Int64[np.ndarray, "block lane"]
    ) -> None:
        """Turn x in place from the MLP's input, with hidden units ``hidden``, into the layer's output."""
        for begin in range(0, len(blocks), self.together):
            some = self._taken(x.numpy(), blocks[begin : begin + self.together])
            given = (hidden.numpy(), some.rows, some.values, some.active, self.part, some.starts)
            on_cores(partial(active_units, self.span, *given), len(some.rows))
            self._put(x.numpy(), some)

    def _taken(self, x: np.ndarray, rows: np.ndarray) -> _Blocks:
        count, hidden = len(rows), len(self.up)
        turned = self.space.take("turned", count, self.groups * self.group * BLOCK).numpy()
        values = self.space.take("values", count, (hidden + 1) * BLOCK).numpy()
        on_cores(partial(take_blocks, x, rows, turned), count)
        active, starts = np.empty((count, hidden + 1), np.int64), np.zeros((count, self.parts + 1), np.int64)
        return _Blocks(rows, turned, values, active, starts)

    def _switch_on(self, some: _Blocks, inside: np.ndarray, radius: np.ndarray, token: np.ndarray) -> None:
        """Find the active units by computing those that may be active."""
        units, starts = np.empty_like(some.active), np.empty_like(some.starts)
        may_be = (inside, self.norms.numpy(), radius, token, units, self.part, starts)
        on_cores(partial(possible_units, *may_be), len(units))
        given = (some.turned, self.up.numpy(), self.up_bias.numpy(), units, starts)
        for part in range(self.parts):
            on_cores(partial(hidden_units, self.span, *given, some.values, some.active, some.starts, part), len(units))

    def _put(self, x: np.ndarray, some: _Blocks) -> None:
        """The layer's output at the rows of blocks whose active units are known."""
        found, count = (some.values, some.active, some.starts), len(some.rows)
        for part in range(self.parts):
            on_cores(partial(add_units, self.span, *found, self.down.numpy(), part, self.part, some.turned), count)
        after = (self.down_bias.numpy(), *affine(self.norm), self.norm.eps)
        on_cores(partial(put_blocks, self.span, some.turned, *after, some.rows, x), count)
