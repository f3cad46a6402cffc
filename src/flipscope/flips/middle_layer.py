"""A middle layer at every token of every flip, softmax attention by a kernel that never leaves the cache."""

from __future__ import annotations

import functools
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from flipscope.flips.deltas import dense_layer
from flipscope.flips.finish import PART_ROWS, Finish, Workspace
from flipscope.flips.first_layer import seen_by_attention
from flipscope.flips.rectified import Rectified
from flipscope.models.threads import on_cores
from flipscope.models.transformer import Block
from flipscope.native.compiled import Loop
from flipscope.native.powers import LOG2_E
from flipscope.native.simd import BLOCK
from flipscope.native.span import Span, preferred
from flipscope.native.wide import softmax_attention


class MiddleLayer:
    """One block at every token; cases that the kernel does not support use PyTorch (deltas.dense_layer).

    ``span`` overrides the processor's.
    """

    def __init__(self, block: Block, space: Workspace, span: Span | None = None) -> None:
        self.span = preferred() if span is None else span
        self.space = space
        self.block, self.attention, config = block, block.attention, block.config
        self.compiled = (
            config.attention == "softmax"
            and not config.causal
            and not config.mask_self
            and self.attention.query.weight.dtype == torch.float32
        )
        self.finish = Finish(block, space) if self.compiled and Finish.supports(block) else None
        if self.compiled:
            self._prepare()

    def _prepare(self) -> None:
        attention, config = self.attention, self.block.config
        scale = config.scale if attention.log_gain is None else config.scale * float(attention.log_gain.exp())
        scale *= LOG2_E  # the kernel's weights are powers of two
        self.query = attention.query.weight.detach() * scale  # [inner, width]
        self.key_value = torch.cat([attention.key.weight, attention.value.weight]).detach().T.contiguous()
        self.query_bias = torch.zeros(len(self.query), dtype=torch.float32, device="cpu")
        self.output = None if attention.output is None else attention.output.weight.detach().T.contiguous()
        self.bias = torch.zeros(config.width, dtype=torch.float32, device="cpu")
        # A key's bias adds the same to all logits of a row, which softmax does not notice; weights sum to one, so that
        # a value's bias is added once.
        if attention.query.bias is not None:
            self.query_bias = attention.query.bias.detach() * scale
        if attention.value.bias is not None:
            bias = attention.value.bias.detach()
            self.bias = bias.unflatten(0, (config.heads, -1)).sum(dim=0) if self.output is None else bias @ self.output
        if attention.output is not None and attention.output.bias is not None:
            self.bias = self.bias + attention.output.bias.detach()

    @functools.cached_property
    def rectified(self) -> Rectified | None:
        """The MLP for flips of one string, if its inactive units can be skipped."""
        return Rectified(self.block, self.finish, self.span) if self.finish and Rectified.supports(self.block) else None

    def loops(self, tokens: int, flips: bool) -> list[Loop]:
        """The compiled loops that it may call for strings of this many tokens, or for all flips of one."""
        if not self.compiled or tokens < BLOCK:
            return []
        found = [cast(Loop, softmax_attention)]
        if self.finish is not None:
            found += self.finish.loops()
        if flips and self.rectified is not None:
            found += self.rectified.loops(mixed=False)
        return found

    def __call__(
        self, states: Float[Tensor, "flip token width"], base: Float[Tensor, "token width"] | None
    ) -> Float[Tensor, "flip token width"]:
        """The layer's output; ``base`` are the states of the unflipped string, or None if these are not flips.

        ``states`` may be overwritten.
        """
        if not self.compiled or states.shape[1] < BLOCK:
            return dense_layer(self.block, states)
        rectified = self.rectified if base is not None and len(states) >= BLOCK else None
        some = max(1, PART_ROWS // states.shape[1])
        for part in states.split(some):
            rows, brought = self._brought(part)
            if self.finish is None:
                rows.copy_(self.block.finish(rows, brought.add_(self.bias)))
            else:
                self.finish.enter(rows, brought, self.bias)
                if rectified is None:
                    self.finish.leave(rows)
        if rectified is not None and self.finish is not None and base is not None:
            centre, brought = self._brought(base[None].clone())
            self.finish.enter(centre, brought, self.bias)
            rectified(states, centre)
        return states

    def _brought(self, states: Float[Tensor, "flip token width"]) -> tuple[Tensor, Tensor]:
        """The states as rows, and the attention output of each without its bias."""
        rows = states.flatten(0, 1)
        return rows, self._attend(seen_by_attention(self.block, rows), len(states))

    def _attend(self, rows: Float[Tensor, "row width"], strings: int) -> Float[Tensor, "row width"]:
        """The attention output of each row without its bias."""
        config, inner = self.block.config, len(self.query)
        query = torch.mm(self.query, rows.T, out=self.space.take("query", inner, len(rows)))
        key_value = torch.mm(rows, self.key_value, out=self.space.take("key_value", len(rows), 2 * inner))
        mixed = self.space.take("mixed", inner, len(rows))
        given = (query.numpy(), key_value.numpy(), self.query_bias.numpy(), mixed.numpy(), len(rows) // strings)
        on_cores(functools.partial(softmax_attention, self.span, *given, config.heads), strings)
        if self.output is None:
            heads: Tensor = mixed.unflatten(0, (config.heads, -1))  # [head, width, row]
            return heads.sum(dim=0).T.contiguous()
        return torch.mm(mixed.T, self.output, out=self.space.take("step", len(rows), config.width))
