"""Layers computed only at tokens that a flip changes.

If attention is saturated, most tokens give every changed key so small a weight, before and after the flip, that the
weight times its value is lost in the rounding of the attention sum: their state does not change. The rest is a list of
pairs (flip, token) with their states, beside the states of the unflipped string.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flipscope.flips.first_layer import negligible, reach, relative_sizes, seen_by_attention, sums_of_value
from flipscope.models.transformer import Attention, Block

SPARSE_BELOW = 0.5  # share of changed tokens above which computing all tokens is faster at any width
SPARSE_WIDTH = 512  # below this width the share falls in proportion, since selecting tokens costs the same


def sparse_pays(changed: Bool[Tensor, "flip token"], width: int) -> bool:
    """Whether so few tokens change that computing them alone is faster."""
    return float(changed.float().mean()) < min(SPARSE_BELOW, width / SPARSE_WIDTH)


@dataclass(frozen=True)
class Pairs:
    """The tokens that a chunk of flips changes: pair p is token ``token[p]`` under flip ``flip[p]`` of the chunk."""

    flips: int
    flip: Int[Tensor, " pair"]
    token: Int[Tensor, " pair"]
    states: Float[Tensor, "pair width"]

    def spread(self, base: Float[Tensor, "token width"]) -> Float[Tensor, "flip token width"]:
        """The states of every token under every flip."""
        states = base.expand(self.flips, -1, -1).clone()
        states[self.flip, self.token] = self.states
        return states

    def mask(self, tokens: int) -> Bool[Tensor, "flip token"]:
        """Which tokens each flip changes."""
        mask = torch.zeros((self.flips, tokens), dtype=torch.bool, device="cpu")
        mask[self.flip, self.token] = True
        return mask


def dense_layer(block: Block, states: Float[Tensor, "flip token width"]) -> Float[Tensor, "flip token width"]:
    """A layer at every token; softmax attention by PyTorch's fused kernel, which pays at small widths."""
    attention = block.attention
    if attention.config.attention != "softmax":
        every: Tensor = block(states)
        return every
    seen = seen_by_attention(block, states)
    query, key, value = (
        attention.split(project(seen)) for project in (attention.query, attention.key, attention.value)
    )
    if attention.log_gain is not None:
        query = query * attention.log_gain.exp()
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention.visible(states), scale=attention.config.scale
    )  # [flip, head, token, size]
    if attention.output is None:
        return block.finish(states, mixed.sum(dim=1))
    return block.finish(states, attention.output(mixed.transpose(1, 2).flatten(-2)))


def sparse_layer(
    block: Block,
    pairs: Pairs,
    before: Float[Tensor, "token width"],
    tolerance: float,
) -> Pairs | None:
    """A middle layer at the tokens that changed or attend to one that did; None once those are most.

    ``before`` are the unflipped string's states before the layer.
    """
    attention = block.attention
    projections = (attention.query, attention.key, attention.value)
    base, new = seen_by_attention(block, before)[None], seen_by_attention(block, pairs.states)[None]
    query_base, key_base, value_base = (attention.split(project(base))[0] for project in projections)
    query_new, key_new, value_new = (attention.split(project(new))[0] for project in projections)  # [head, pair, size]
    visible = attention.visible(before[None])
    keys, values = (key_base, key_new), torch.cat([value_base, value_new], dim=1)
    sums = attention.split(sums_of_value(attention, base))[0]
    sizes = relative_sizes(values.transpose(0, 1), sums.transpose(0, 1))
    now = pairs.mask(len(before)) | _touched(attention, query_base, keys, sizes, pairs, visible, tolerance)
    if not sparse_pays(now, before.shape[-1]):
        return None
    query, key, value = (
        _replaced(old, part, pairs)
        for old, part in ((query_base, query_new), (key_base, key_new), (value_base, value_new))
    )  # [flip, head, token, size]
    rows, filled = _padded_rows(now)  # [flip, row]
    chosen = query.gather(2, rows[:, None, :, None].expand(-1, query.shape[1], -1, query.shape[-1]))
    mask = None if visible is None else visible[rows][:, None]  # [flip, 1, row, token]
    brought = attention.mix(attention.weights(attention.scores(chosen, key), mask), value)  # [flip, row, width]
    flip, row = filled.nonzero(as_tuple=True)
    token = rows[flip, row]
    x = pairs.spread(before)[flip, token]
    return Pairs(pairs.flips, flip, token, block.finish(x, brought[flip, row]))


def _replaced(
    base: Float[Tensor, "head token size"], new: Float[Tensor, "head pair size"], pairs: Pairs
) -> Float[Tensor, "flip head token size"]:
    every = base.expand(pairs.flips, -1, -1, -1).clone()
    every[pairs.flip, :, pairs.token] = new.transpose(0, 1)
    return every


def _touched(
    attention: Attention,
    query: Float[Tensor, "head token size"],
    keys: tuple[Float[Tensor, "head token size"], Float[Tensor, "head pair size"]],
    sizes: tuple[Float[Tensor, "token_and_pair head"], Float[Tensor, "token head"]],
    pairs: Pairs,
    visible: Tensor | None,
    tolerance: float,
) -> Bool[Tensor, "flip token"]:
    """Rows to which the changed keys, before or after, contribute more than the tolerance in some head.

    ``keys`` are those of the unflipped string and the new ones of the pairs; ``sizes`` are the sizes of their values.
    """
    scores, news = (attention.scores(query[None], key[None])[0] for key in keys)  # [head, token, token or pair]
    if visible is not None:
        low = -torch.inf if attention.config.attention == "softmax" else 0.0
        scores, news = scores.masked_fill(~visible, low), news.masked_fill(~visible[:, pairs.token], low)
    if attention.config.attention == "softmax":
        total = scores.logsumexp(dim=-1, keepdim=True)
        scores, news = (scores - total).exp(), (news - total).exp()
    elif attention.config.attention == "relu":
        scores, news = scores.relu(), news.relu()
    else:
        scores, news = scores.abs(), news.abs()
    top_weight, top_key = scores.max(dim=-1)  # [head, token]
    largest, smallest = sizes
    moved = torch.maximum(largest[pairs.token], largest[query.shape[1] :])  # [pair, head]
    felt = scores.new_zeros((*scores.shape[:2], pairs.flips))
    both = torch.maximum(scores[:, :, pairs.token], news).mul_(reach(moved, smallest).T[:, None])
    felt.index_add_(2, pairs.flip, both)
    return ~negligible(felt, top_weight, smallest.T.gather(1, top_key), tolerance).T


def _padded_rows(now: Bool[Tensor, "flip token"]) -> tuple[Tensor, Tensor]:
    """For each flip its tokens to compute, padded to the longest list, and which entries are real."""
    counts = now.sum(dim=1)
    longest = int(counts.max())
    # A stable sort puts the tokens to compute first, in order.
    rows = now.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices[:, :longest]
    return rows, torch.arange(longest, device=counts.device) < counts[:, None]
