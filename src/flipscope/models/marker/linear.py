"""Attention of the marker without dropout: linear in the bits.

Numerator and denominator of the softmax are sums over positions of a term that depends on the bit there, so all strings
together are one product of [string, 2 * position] and [2 * position, head * (1 + size)].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from flipscope.models.marker.places import marker, seen_by_marker
from flipscope.models.transformer import Block

_RANGE = 60.0  # largest range of attention logits: with a larger one, exponentials would underflow in float32


@dataclass(frozen=True)
class Means:
    """The heads' contributions to the marker, from terms selected by the bits."""

    x: Float[Tensor, " width"]  # the marker's own vector
    terms: Float[Tensor, "2 symbol head term"]  # the weight, and the value times the weight
    constant: Float[Tensor, "head term"]  # the marker's own

    @classmethod
    def of(cls, block: Block, table: Float[Tensor, "2 position width"]) -> Self | None:
        """From the possible vectors of the positions; None if exponentials would underflow."""
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
        """The contribution of each head to the marker."""
        ones = bits.to(self.terms.dtype)
        # Both values of a bit have their own term, since a difference of the two would lose digits.
        chosen = torch.cat([1 - ones, ones], dim=1) @ self.terms.flatten(0, 1).flatten(1)
        sums = chosen.unflatten(-1, self.constant.shape) + self.constant
        means: Tensor = sums[..., 1:] / sums[..., :1]
        return means
