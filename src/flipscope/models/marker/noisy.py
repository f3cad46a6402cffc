"""Attention of the marker with dropout of its input and of its weights, in training, for norm="pre".

A layer norm is a factor per position after centring, so neither keys nor values nor normalised inputs are computed. The
compiled loops have their own gradient (`native.noisy_marker`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from flipscope.models.marker.places import marker, seen_by_marker
from flipscope.models.threads import on_cores
from flipscope.models.transformer import Block
from flipscope.native import noisy_marker as loops
from flipscope.native.products import LINE
from flipscope.native.random_words import coins
from flipscope.native.span import preferred

_PART = 32  # strings whose derivatives with respect to shared tensors are summed together


def noisy_read(
    block: Block, table: Float[Tensor, "2 position width"], bits: UInt8[Tensor, "string symbol"]
) -> tuple[Float[Tensor, "string width"], Float[Tensor, "string head size"]]:
    """The marker's vector and each head's contribution to it, with dropout of embeddings and attention weights."""
    attention, norm, row = block.attention, block.norm1, marker(block.attention)
    assert norm is not None
    heads, rate, (_, count, width) = attention.config.heads, attention.config.dropout, table.shape
    before = int(row == 0)
    # The marker's place counts as 0, for its vector is in both rows; beyond the last a line may be read.
    ones = F.pad(F.pad(bits, (before, 1 - before)).flatten(), (0, LINE))
    noise = kept_by_dropout(len(bits) * width * count + LINE, rate)
    of_marker = torch.from_numpy(noise[:-LINE].reshape(-1, width, count)[:, :, row])
    x = table[0, row] * (of_marker.to(table) / (1 - rate))  # [string, width]
    query = attention.query(norm(x)) * attention.config.scale
    key: Tensor = attention.key.weight
    value: Tensor = attention.value.weight
    shift: Tensor | None = attention.value.bias
    if norm.weight is not None and norm.bias is not None:
        lifted = value @ norm.bias
        shift = lifted if shift is None else shift + lifted
        key, value = key * norm.weight, value * norm.weight
    kept = kept_by_dropout(len(bits) * heads * count + LINE, rate)
    drawn = _Drawn(ones.numpy(), noise, kept, seen_by_marker(attention, table), heads, rate, norm.eps)
    mixed, total = _NoisyMix.apply(table, query, key, value, drawn)  # type: ignore[no-untyped-call]
    mixed = mixed.unflatten(-1, (heads, -1))
    if attention.key.bias is not None:  # the same at every position, it changes no softmax: its derivative is 0
        mixed = mixed + 0 * attention.key.bias.unflatten(0, (heads, -1))
    if shift is not None:
        mixed = mixed + shift.unflatten(0, (heads, -1)) * total[..., None]
    return x, mixed


@dataclass(frozen=True)
class _Drawn:
    """The bits and dropout masks of a batch, flat, with one extra line at the end."""

    ones: NDArray[np.uint8]  # [string, position]
    noise: NDArray[np.uint8]  # [string, width, position]
    kept: NDArray[np.uint8]  # [string, head, position]
    visible: Bool[Tensor, " position"] | None
    heads: int
    rate: float
    eps: float

    def arguments(self, table: Tensor, query: Tensor, key: Tensor, value: Tensor) -> list[Any]:
        """The first arguments of both loops."""
        (_, count, width), inner = table.shape, query.shape[1]
        long = _whole_lines(count)
        spread = F.pad(table.detach().transpose(1, 2) / (1 - self.rate), (0, long - count))
        allowed = table.new_full((long,), -math.inf)
        allowed[:count] = 0.0 if self.visible is None else torch.where(self.visible, 0.0, -math.inf)
        numbers = [_flat(each) for each in (spread, allowed, query, key, value)]
        sizes = [count, self.heads, inner // self.heads, width, np.float32(1 / (1 - self.rate)), np.float32(self.eps)]
        return [preferred(), numbers[0], self.ones, self.noise, self.kept, *numbers[1:], *sizes]


class _NoisyMix(torch.autograd.Function):
    """The heads' contributions sum_j w_j V N(x_j), and sum_j w_j, for layer norms N without gain and bias.

    x_j is the table's vector for the bit at j, with some coordinates dropped, and w_j is a weight after dropout.
    """

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, query: Tensor, key: Tensor, value: Tensor, drawn: _Drawn
    ) -> tuple[Tensor, Tensor]:
        given, strings = drawn.arguments(table, query, key, value), len(query)
        shapes = ((drawn.heads, _whole_lines(table.shape[1])), (drawn.heads, table.shape[2]), (drawn.heads,))
        raw, mixed, total = (query.new_empty(strings, *shape) for shape in shapes)
        out = query.new_empty(query.shape)
        results = [_flat(each) for each in (raw, mixed, total, out)]
        on_cores(functools.partial(loops.forward, *given, *results), strings)
        ctx.save_for_backward(table, query, key, value)  # for autograd to see if one is changed in between
        ctx.given, ctx.rate, ctx.kept = given, drawn.rate, results[:2]
        return out, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_out: Tensor, by_total: Tensor) -> tuple[Tensor | None, ...]:
        table, query, key, _ = ctx.saved_tensors
        (_, count, width), (inner, _), strings = table.shape, key.shape, len(query)
        by_query, parts = query.new_empty(query.shape), -(-strings // _PART)
        slopes = [*ctx.kept, *(_flat(each) for each in (by_total, by_out, by_query))]
        # Summing over the strings of a part, then over parts, gives the same result for any number of threads.
        by_table = query.new_zeros(parts, 2, width, _whole_lines(count))
        by_key, by_value = (query.new_zeros(parts, inner, _whole_lines(width)) for _ in range(2))
        shared = (by_table, by_key, by_value)

        def work(first: int, last: int) -> None:
            for part in range(first, last):
                sums = [_flat(each[part]) for each in shared]
                some = [part * _PART, min((part + 1) * _PART, strings)]
                loops.backward(*ctx.given, *slopes, *sums, *some)

        on_cores(work, parts)
        of_table = by_table.sum(dim=0)[..., :count].transpose(1, 2) / (1 - ctx.rate)
        return of_table, by_query, by_key.sum(dim=0)[:, :width], by_value.sum(dim=0)[:, :width], None


def kept_by_dropout(size: int, rate: float) -> NDArray[np.uint8]:
    """Independent numbers, 0 with probability `rate` and else 1, with a seed from PyTorch's generator.

    >>> _ = torch.manual_seed(0)
    >>> float(kept_by_dropout(100_000, 0.1).mean().round(2))
    0.9
    """
    seed = torch.empty((), dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    words = np.empty(-(-size // 8), np.uint64)
    coins(np.uint64(int(seed) % (1 << 64)), int(256 * rate), 256 * rate % 1, words)
    return words.view(np.uint8)[:size]


def _flat(tensor: Float[Tensor, ...]) -> NDArray[np.float32]:
    """Return the numbers of a tensor in one dimension, without a copy where it is contiguous."""
    numbers: NDArray[np.float32] = tensor.detach().contiguous().numpy().reshape(-1)
    return numbers


def _whole_lines(count: int) -> int:
    """Round a count of numbers up to whole lines of the cache."""
    return -(-count // LINE) * LINE
