"""Softmax attention by compiled loops, once differentiable: PyTorch's numbers up to rounding, in less time.

PyTorch's own fused kernel is taken all the same for masks, other precisions, other devices, and strings longer than
were measured.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

from flipscope.models.modes import differentiated_once
from flipscope.models.threads import on_cores
from flipscope.native import attention as loops
from flipscope.native.span import preferred

_LONGEST = 1_024  # tokens; a room of logits then has eight megabytes


def applies(query: Tensor, visible: Tensor | None) -> bool:
    """Whether these loops are for such queries, and nobody will ask for second derivatives."""
    plain = visible is None and query.dtype == torch.float32 and query.device.type == "cpu"
    once = differentiated_once() or not torch.is_grad_enabled()
    return plain and once and query.numel() > 0 and query.shape[1] <= _LONGEST


def attend(
    query: Float32[Tensor, "string token inner"],
    key: Float32[Tensor, "string token inner"],
    value: Float32[Tensor, "string token inner"],
    heads: int,
    scale: float,
) -> Float32[Tensor, "string token inner"]:
    """What the heads bring to every token, head by head (Eq 8)."""
    out: Tensor = _Attention.apply(query, key, value, heads, scale)  # type: ignore[no-untyped-call]
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, heads: int, scale: float) -> Tensor:
        strings, tokens, inner = query.shape
        out, ends = query.new_empty(query.shape), query.new_empty(strings, heads, 2, tokens)
        sizes = [tokens, heads, inner // heads, np.float32(scale)]
        given = [preferred(), *_flat(query, key, value), *sizes]
        results = [each.numpy().reshape(-1) for each in (out, ends)]
        on_cores(functools.partial(loops.forward, *given, *results), strings)
        ctx.save_for_backward(query, key, value, ends)
        ctx.sizes = sizes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, ends = ctx.saved_tensors
        given = [preferred(), *_flat(query, key, value), slope.contiguous().numpy().reshape(-1), *ctx.sizes]
        slopes = [query.new_empty(query.shape) for _ in range(3)]
        results = [each.numpy().reshape(-1) for each in (ends, *slopes)]
        on_cores(functools.partial(loops.backward, *given, *results), len(query))
        return *slopes, None, None


def _flat(*given: Float[Tensor, "string token inner"]) -> list[Any]:
    """The numbers of each tensor from its first on, and how many there are from one token to the next."""
    found: list[Any] = []
    for each in given:
        strings, tokens, inner = each.shape
        row = each.stride(1)
        if each.stride(2) != 1 or row < inner or (strings > 1 and each.stride(0) != tokens * row):
            each, row = each.contiguous(), inner
        numbers = (strings * tokens - 1) * row + inner
        found += [each.detach().as_strided((numbers,), (1,)).numpy(), row]
    return found
