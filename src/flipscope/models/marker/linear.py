"""Attention of the marker without dropout: linear in the bits.

Numerator and denominator of the softmax are sums over positions of a term that depends on that position's bit.
With gradients all strings are one product of [string, 2 * position] and [2 * position, head * (1 + size)]; without, in
float32, the terms are added up by compiled loops (`native.bit_sums`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from flipscope.models.marker.places import flat, marker, seen_by_marker, whole_lines
from flipscope.models.threads import on_cores
from flipscope.models.transformer import Block
from flipscope.native.bit_sums import CODES, GROUP, group_rows, weighted_means
from flipscope.native.products import LINE
from flipscope.native.span import preferred

_RANGE = 60.0  # of attention logits: exponentials of a larger one would underflow in float32


@dataclass(frozen=True)
class Means:
    """What the heads bring to the marker, from terms that bits choose."""

    x: Float[Tensor, " width"]  # the marker's own vector
    terms: Float[Tensor, "2 symbol head term"]  # the weight, and the value times the weight
    constant: Float[Tensor, "head term"]  # the marker's own

    @classmethod
    def of(cls, block: Block, table: Float[Tensor, "2 position width"]) -> Self | None:
        """From the vectors that positions can have; None where exponentials would underflow."""
        attention, row = block.attention, marker(block.attention)
        heads = attention.config.heads
        seen = block.norm1(table) if block.config.norm == "pre" and block.norm1 is not None else table
        query = attention.query(seen[0, row]).unflatten(-1, (heads, -1)) * attention.config.scale  # [head, size]
        key, value = (part(seen).unflatten(-1, (heads, -1)) for part in (attention.key, attention.value))
        scores = torch.einsum("hs,bphs->bph", query, key)  # [2, position, head]
        visible = seen_by_marker(attention, table)
        if visible is not None:
            scores = scores.masked_fill(~visible[:, None], -math.inf)
        top = scores.detach().amax(dim=(0, 1))
        if float((top - scores.detach().masked_fill(scores == -math.inf, math.inf).amin(dim=(0, 1))).max()) > _RANGE:
            return None
        weights = (scores - top).exp()[..., None]  # [2, position, head, 1]
        terms = torch.cat([weights, weights * value], dim=-1)
        return cls(table[0, row], terms[:, 1:] if row == 0 else terms[:, :-1], terms[0, row])

    def mixed(self, bits: UInt8[Tensor, "string symbol"]) -> Float[Tensor, "string head size"]:
        """What each head brings to the marker."""
        if self.terms.dtype == torch.float32 and self.terms.device.type == "cpu" and not torch.is_grad_enabled():
            return self._compiled(bits)
        ones = bits.to(self.terms.dtype)
        # Both values of a bit have a term of their own: a difference of the two would cancel.
        chosen = torch.cat([1 - ones, ones], dim=1) @ self.terms.flatten(0, 1).flatten(1)
        sums = chosen.unflatten(-1, self.constant.shape) + self.constant
        means: Tensor = sums[..., 1:] / sums[..., :1]
        return means

    def _compiled(self, bits: UInt8[Tensor, "string symbol"]) -> Float[Tensor, "string head size"]:
        heads, size = self.constant.shape[0], self.constant.shape[1] - 1
        out = self.terms.new_empty(len(bits), heads, size)
        groups = F.pad(bits, (0, -bits.shape[1] % GROUP)).numpy().reshape(-1).view(np.uint32)
        given = (groups, -(-bits.shape[1] // GROUP), *self._table, heads * size)
        on_cores(functools.partial(weighted_means, preferred(), *given, flat(out)), len(bits))
        return out

    @functools.cached_property
    def _table(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Sums of terms for the values of four bits, and the marker's own."""
        terms, constant = _rows(self.terms), _rows(self.constant)
        count, row = self.terms.shape[1], len(constant)
        size = -(-count // GROUP) * CODES * row
        room = np.empty(size + LINE, np.float32)
        begin = -(room.ctypes.data // room.itemsize) % LINE  # of a line of the cache
        table = room[begin : begin + size]
        group_rows(preferred(), terms, count, row // 2, table)
        return table, constant


def _rows(terms: Float[Tensor, "*batch head term"]) -> Any:
    """Of every row the weights, one per coordinate, and then the vectors times weights, each in whole lines."""
    weight, vector = terms.tensor_split([1], dim=-1)
    halves = [half.flatten(-2) for half in (weight.expand_as(vector), vector)]
    return flat(torch.cat([F.pad(half, (0, whole_lines(half.shape[-1]) - half.shape[-1])) for half in halves], dim=-1))
