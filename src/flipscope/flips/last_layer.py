"""The last layer, only at the position that is read.

Keys and values are never projected for all tokens: (W_K y_j + b) . q = y_j . (W_K^T q) + b . q, and the weighted sum of
W_V y_j is W_V times the weighted sum of y_j.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from flipscope.flips.deltas import Pairs
from flipscope.flips.first_layer import seen_by_attention
from flipscope.models.transformer import Block


class LastLayer:
    """One block read at one position."""

    def __init__(self, block: Block, read: int) -> None:
        config = block.config
        attention = block.attention
        self.block, self.attention, self.config, self.read = block, attention, config, read
        shape = (config.heads, config.key_width)
        self.key_weight = attention.key.weight.unflatten(0, shape)  # [head, size, width]
        self.value_weight = attention.value.weight.unflatten(0, shape)
        self.key_bias = None if attention.key.bias is None else attention.key.bias.unflatten(0, shape)
        self.value_bias = None if attention.value.bias is None else attention.value.bias.unflatten(0, shape)

    def dense(self, states: Float[Tensor, "flip token width"]) -> Float[Tensor, "flip width"]:
        """The layer's output at the read-out position from all states."""
        seen = seen_by_attention(self.block, states)
        absorbed, shift = self._absorbed(seen[:, self.read])
        scores = torch.bmm(seen, absorbed) + shift[:, None]  # [flip, token, head]
        weights = self._weights(scores)
        return self._finish(states[:, self.read], weights, torch.bmm(weights, seen))

    def sparse(self, base: Float[Tensor, "token width"], pairs: Pairs) -> Float[Tensor, "flip width"]:
        """The same from the unflipped string's states and those that changed."""
        seen, new = seen_by_attention(self.block, base), seen_by_attention(self.block, pairs.states)
        absorbed, shift = self._absorbed(seen[self.read : self.read + 1])  # [1, width, head], [1, head]
        scores = (seen @ absorbed[0] + shift).expand(pairs.flips, -1, -1).clone()  # [flip, token, head]
        changed_scores = new @ absorbed[0] + shift  # [pair, head]
        x = base[self.read].expand(pairs.flips, -1).clone()
        here = (pairs.token == self.read).nonzero()[:, 0]  # at most one pair per flip
        if len(here):
            moved = pairs.flip[here]
            x[moved] = pairs.states[here]
            own, own_shift = self._absorbed(new[here])  # [moved, width, head]
            scores[moved] = torch.einsum("tw,mwh->mth", seen, own) + own_shift[:, None]
            place = torch.full((pairs.flips,), -1, device="cpu")
            place = place.index_put((moved,), torch.arange(len(moved), device="cpu"))[pairs.flip]
            theirs = (place >= 0).nonzero()[:, 0]
            changed_scores[theirs] = (
                torch.einsum("pw,pwh->ph", new[theirs], own[place[theirs]]) + own_shift[place[theirs]]
            )
        scores[pairs.flip, pairs.token] = changed_scores
        weights = self._weights(scores)  # [flip, head, token]
        average = (weights.flatten(0, 1) @ seen).unflatten(0, weights.shape[:2])  # [flip, head, width]
        difference = new - seen[pairs.token]
        for head in range(self.config.heads):
            share = weights[pairs.flip, head, pairs.token, None]
            average[:, head].index_add_(0, pairs.flip, share * difference)
        return self._finish(x, weights, average)

    def _absorbed(self, here: Float[Tensor, "flip width"]) -> tuple[Tensor, Tensor]:
        """W_K^T q for each head as [flip, width, head], and b . q as [flip, head] where it matters."""
        query = self.attention.query(here).unflatten(1, (self.config.heads, self.config.key_width))
        query = query * self.config.scale
        if self.attention.log_gain is not None:
            query = query * self.attention.log_gain.exp()
        absorbed = torch.einsum("fhs,hsw->fwh", query, self.key_weight)
        if self.key_bias is None or self.config.attention == "softmax":
            # Softmax ignores a constant added to every logit of a row.
            return absorbed, query.new_zeros((len(here), 1))
        return absorbed, torch.einsum("fhs,hs->fh", query, self.key_bias)

    def _weights(self, scores: Float[Tensor, "flip token head"]) -> Float[Tensor, "flip head token"]:
        rows = slice(self.read, self.read + 1)
        visible = self.attention.visible(scores, rows)
        return self.attention.weights(scores.transpose(1, 2)[:, :, None], visible)[:, :, 0]

    def _finish(self, x: Tensor, weights: Tensor, average: Float[Tensor, "flip head width"]) -> Tensor:
        mixed = torch.einsum("fhw,hsw->fhs", average, self.value_weight)
        if self.value_bias is not None:
            mixed = mixed + weights.sum(dim=-1, keepdim=True) * self.value_bias
        output = self.attention.output
        return self.block.finish(x, mixed.sum(dim=1) if output is None else output(mixed.flatten(1)))
