"""The first layer of a string under all its flips, from tables made once per model.

A bit at a position has one of two vectors, so a model has 2N + 1 different input rows, and as many queries, keys and
values. A flip changes one key and one query: the attention of every other row is the old one with one key's
contribution removed and another added (Eqs 8a-8c). W_O is folded into the values.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from flipscope.models.transformer import Attention, Block, Transformer


@dataclass(frozen=True)
class Tables:
    """Rows 2p and 2p + 1 are the two bits at position p; the marker, if any, is the last row."""

    vector: Float[Tensor, "row width"]  # the first layer's input
    scores: Float[Tensor, "head row row"]  # attention logits of every query with every key
    value: Float[Tensor, "row head width"]  # values, already multiplied by W_O
    sizes: tuple[Float[Tensor, "row head"], Float[Tensor, "row head"]]  # of the values and of their sums


def make_tables(model: Transformer, length: int) -> Tables:
    """The tables of a model for strings of this length."""
    zeros = torch.zeros((1, length), dtype=torch.long, device="cpu")
    both = torch.cat([model.embed(zeros), model.embed(zeros + 1)])  # [2, position, width]
    first = 1 if model.config.marker == "cls" else 0
    # [2, length, width] -> [length, 2, width] -> [2 * length, width]
    vector = both[:, first : first + length].transpose(0, 1).flatten(0, 1)
    if model.config.marker != "none":
        vector = torch.cat([vector, both[0, :1] if first else both[0, -1:]])
    block = model.blocks[0]
    assert isinstance(block, Block)
    attention = block.attention
    seen = seen_by_attention(block, vector)[None]  # [1, row, width]
    scores = attention.scores(attention.split(attention.query(seen)), attention.split(attention.key(seen)))[0]
    value = attention.split(attention.value(seen))[0].transpose(0, 1)  # [row, head, size]
    value, sums = _projected(attention, value), attention.split(sums_of_value(attention, seen))[0].transpose(0, 1)
    sizes = relative_sizes(value, _projected(attention, sums, by_size=True))
    return Tables(vector, scores, value, sizes)


def string_rows(marker: str, string: Tensor) -> tuple[Tensor, Tensor]:
    """Table rows of the string's tokens in order of position, and of the flipped bits."""
    bit_rows = 2 * np.arange(len(string)) + string.numpy()  # NumPy is faster for so few numbers
    end = np.full(int(marker != "none"), 2 * len(string))
    rows = np.concatenate([end, bit_rows] if marker == "cls" else [bit_rows, end])
    return torch.from_numpy(rows), torch.from_numpy(bit_rows ^ 1)


def seen_by_attention(block: Block, x: Tensor) -> Tensor:
    """The input of attention: the layer's input, normalised in a pre-norm layer."""
    seen: Tensor = block.norm1(x) if block.config.norm == "pre" and block.norm1 is not None else x
    return seen


def _projected(
    attention: Attention, value: Float[Tensor, "row head size"], by_size: bool = False
) -> Float[Tensor, "row head width"]:
    """Each head's value after its part of W_O, or the sum of all sizes that are added up there."""
    if attention.output is None:
        return value  # heads are summed as they are (Eq 9)
    heads, size = attention.config.heads, attention.config.key_width
    weight = attention.output.weight.unflatten(1, (heads, size))  # [width, head, size]
    weight = weight.abs() if by_size else weight
    return torch.einsum("rhs,whs->rhw", value, weight)


def sums_of_value(attention: Attention, seen: Tensor) -> Float[Tensor, "*batch inner"]:
    """The sum of absolute values for each coordinate of the values, of which small parts are lost in rounding."""
    weight, bias = attention.value.weight.abs(), attention.value.bias
    return F.linear(seen.abs(), weight, None if bias is None else bias.abs())


def relative_sizes(
    value: Float[Tensor, "row head size"], sums: Float[Tensor, "token head size"]
) -> tuple[Float[Tensor, "row head"], Float[Tensor, "token head"]]:
    """The largest coordinate of each value and the smallest of each token's sums, relative to the largest of all.

    A coordinate that is 0 everywhere counts for neither.
    """
    size = value.abs()
    top = torch.maximum(size.amax(dim=0), sums.amax(dim=0))  # [head, size]
    scale = torch.where(top > 0, top, 1.0)
    return (size / scale).amax(dim=-1), (sums / scale).masked_fill_(top == 0, 1.0).amin(dim=-1)


def reach(largest: Float[Tensor, " *pair"], smallest: Float[Tensor, "token head"]) -> Float[Tensor, " *pair"]:
    """The factor for the weight of a changed key in `negligible`; ``largest`` is of its values, old and new.

    With weights a, a' <= w, the key's contribution changes from a v to a' v', and that of the others, of size S, is
    scaled by at most 1 + w: together a change of w (2 |v| + S). S is at least the contribution of the row's top key.
    """
    return 2 * largest + smallest.amax(dim=0)


def negligible(
    felt: Float[Tensor, "head token flip"],
    top_weight: Float[Tensor, "head token"],
    smallest: Float[Tensor, "head token"],
    tolerance: float,
) -> Bool[Tensor, "token flip"]:
    """Where a flip changes no coordinate of a head's output by more than the tolerance times the sum of sizes there.

    ``felt`` are the weights of changed keys times their `reach`. The sum of sizes is at least the part of the row's top
    key: its weight times the ``smallest`` of the sums from which its value is computed.
    """
    return (felt <= tolerance * (top_weight * smallest)[..., None]).all(dim=0)


DOMINATED = 2.0  # a row's sum of weights, relative to the largest, below which one key has more than half of them


class FirstLayer:
    """The first layer of one string under all its flips, from the tables.

    Row r attends to key j with weight E_rj / Z_r, and its attention output is U_r / Z_r. Under flip i it is
    keep_ri U_r + out_ri v_i + in_ri v'_i. If key i dominates row r, removing it from the sums would cancel digits; the
    sums without the dominating key are computed separately and used in place of U_r and Z_r. If no key has more than
    half of a row's weight, none dominates.
    """

    def __init__(self, block: Block, tables: Tables, string: Tensor) -> None:
        self.block = block
        config = block.config
        self.attention = block.attention
        rows, flipped = string_rows(config.marker, string)
        self.rows, self.flipped_rows = rows, flipped
        self.tokens, self.length = len(rows), len(string)
        self.offset = 1 if config.marker == "cls" else 0
        self.places = torch.arange(self.length, device="cpu") + self.offset  # token of each bit
        self.vector = tables.vector[rows]  # [token, width]
        self.flipped_vector = tables.vector[flipped]  # [flip, width]
        self.value = tables.value[rows]  # [token, head, width]
        self.sizes = tables.sizes
        self.flipped_value = tables.value[flipped]  # [flip, head, width]
        visible = self.attention.visible(self.vector[None])
        self.hidden = None if visible is None else ~visible  # [token, token]
        scores = tables.scores[:, rows]
        new_key = scores[:, :, flipped]  # [head, token, flip]: every row with the flipped key
        self._sums(scores[:, :, rows], new_key)
        self._own_rows(tables.scores[:, flipped], rows, flipped)

    def _sums(self, scores: Float[Tensor, "head token token"], new_key: Float[Tensor, "head token flip"]) -> None:
        if self.hidden is not None:
            low = 0.0 if self.attention.config.attention != "softmax" else -torch.inf
            scores = scores.masked_fill(self.hidden, low)
            new_key = new_key.masked_fill(self.hidden[:, self.places], low)
        if self.attention.config.attention != "softmax":
            weights = scores.relu() if self.attention.config.attention == "relu" else scores
            new = new_key.relu() if self.attention.config.attention == "relu" else new_key
            self.keep = torch.ones_like(new)
            self.out, self.put = -weights[:, :, self.places], new
            self.sums = self.rest_sums = _mix(weights, self.value)
            self.dominating = None
            self.old_weight, self.new_weight = weights[:, :, self.places].abs(), new.abs()
            self.top_weight, self.top_key = weights.abs().max(dim=-1)
            return
        top, where = scores.max(dim=-1)  # [head, token]
        weights = (scores - top[..., None]).exp()
        total = weights.sum(-1)
        old = weights[:, :, self.places]  # [head, token, flip]
        peak, left = top[..., None], total[..., None] - old
        self.sums = self.rest_sums = _mix(weights, self.value)  # [token, head, width]
        self.dominating = None
        if bool((total < DOMINATED).any()):
            rest_scores = scores.scatter(-1, where[..., None], -torch.inf)
            rest_top = rest_scores.max(dim=-1).values  # -inf where a row sees one key only
            rest = (rest_scores - rest_top.nan_to_num(neginf=0.0)[..., None]).exp()
            self.dominating = where[..., None] == self.places  # [head, token, flip]
            peak = torch.where(self.dominating, rest_top[..., None], peak)
            left = torch.where(self.dominating, rest.sum(-1)[..., None], left)
            self.rest_sums = _mix(rest, self.value)
        both = torch.maximum(peak, new_key)
        shrink, grow = (peak - both).exp(), (new_key - both).exp()
        bottom = shrink * left + grow
        self.keep, self.put, self.out = shrink / bottom, grow / bottom, -shrink * old / bottom
        if self.dominating is not None:
            self.out = torch.where(self.dominating, 0.0, self.out)
        if self.hidden is not None:  # a row that does not see the key keeps what it has
            blind = new_key == -torch.inf
            self.keep = torch.where(blind, 1 / total[..., None], self.keep)
            self.put, self.out = torch.where(blind, 0.0, self.put), torch.where(blind, 0.0, self.out)
        self.old_weight = old / total[..., None]
        self.new_weight = self.put
        self.top_weight, self.top_key = 1 / total, where

    def _own_rows(self, scores: Float[Tensor, "head flip row"], rows: Tensor, flipped: Tensor) -> None:
        """The attention output of the flipped token itself, whose query and one of whose keys are new."""
        own = scores[:, :, rows]  # [head, flip, token]
        each = torch.arange(self.length, device="cpu")
        own[:, each, self.places] = scores[:, each, flipped]
        visible = None if self.hidden is None else ~self.hidden[self.places]
        weights = self.attention.weights(own[None], visible)[0]  # [head, flip, token]
        moved = self.flipped_value - self.value[self.places]  # [flip, head, width]
        mixed = torch.einsum("hft,thw->fw", weights, self.value)
        self.own = mixed + torch.einsum("hf,fhw->fw", weights[:, each, self.places], moved)  # [flip, width]

    def changed(self, flips: Tensor, tolerance: float) -> Bool[Tensor, "flip token"]:
        """Tokens whose attention output changes under the flip by more than the tolerance, and the flipped token.

        With softmax a flipped key with more weight than the tolerance counts, whatever its value.
        """
        weight = torch.maximum(self.old_weight, self.new_weight)[:, :, flips]  # [head, token, flip]
        largest, smallest = self.sizes  # [row, head]
        moved = torch.maximum(largest[self.rows[self.places[flips]]], largest[self.flipped_rows[flips]])  # [flip, head]
        smallest = smallest[self.rows]  # [token, head]
        felt = weight * reach(moved, smallest).T[:, None]
        same = negligible(felt, self.top_weight, smallest.T.gather(1, self.top_key), tolerance)
        same[self.places[flips], torch.arange(len(flips), device="cpu")] = False
        return ~same.T

    def felt(self, flips: Tensor) -> Float[Tensor, "token flip"]:
        """The largest weight that a token's attention gives or gave to the flipped key; the flipped token's is inf."""
        weight = torch.maximum(self.old_weight, self.new_weight)[:, :, flips].amax(dim=0)
        weight[self.places[flips], torch.arange(len(flips), device="cpu")] = torch.inf
        return weight

    def pairs(self, flips: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's input and the attention output for pairs (flip, token)."""
        heads = self.value.shape[1]
        head = torch.arange(heads, device="cpu")
        kept = tokens[:, None]
        if self.dominating is not None:
            kept = kept + self.tokens * self.dominating[:, tokens, flips].T  # [pair, head]
        sources = torch.cat(
            [
                kept * heads + head,
                (2 * self.tokens + self.places[flips])[:, None] * heads + head,
                (3 * self.tokens + flips)[:, None] * heads + head,
            ],
            dim=1,
        )
        shares = torch.cat([c[:, tokens, flips] for c in (self.keep, self.out, self.put)]).T.contiguous()
        mixed = F.embedding_bag(sources, self.parts, mode="sum", per_sample_weights=shares)  # [pair, width]
        x = self.vector[tokens]
        own = tokens == self.places[flips]
        mixed[own] = self.own[flips[own]]
        x[own] = self.flipped_vector[flips[own]]
        return x, self.with_bias(mixed)

    @functools.cached_property
    def parts(self) -> Float[Tensor, "part width"]:
        """All vectors that rows are mixed from: sums, sums without the dominating key, values, flipped values."""
        every = torch.cat([self.sums, self.rest_sums, self.value, self.flipped_value])
        return every.flatten(0, 1)

    def everything(self, flips: Tensor) -> Float[Tensor, "flip token width"]:
        """The layer's output at every token, for each flip."""
        keep = self.keep[:, :, flips]  # [head, token, flip]
        if self.dominating is None:
            by_row = torch.bmm(keep.permute(1, 2, 0), self.sums)  # [token, flip, width]
        else:
            usual = torch.where(self.dominating[:, :, flips], 0.0, keep)
            rare = keep - usual
            by_row = torch.bmm(torch.cat([usual, rare]).permute(1, 2, 0), torch.cat([self.sums, self.rest_sums], dim=1))
        pair = torch.cat([self.out, self.put])[:, :, flips].permute(2, 1, 0)  # [flip, token, 2 head]
        values = torch.cat([self.value[self.places[flips]], self.flipped_value[flips]], dim=1)
        mixed = torch.bmm(pair, values).add_(by_row.transpose(0, 1))  # [flip, token, width]
        x = self.vector.expand(len(flips), -1, -1).clone()
        each, place = torch.arange(len(flips), device="cpu"), self.places[flips]
        mixed[each, place] = self.own[flips]
        x[each, place] = self.flipped_vector[flips]
        return self.block.finish(x, self.with_bias(mixed))

    def with_bias(self, mixed: Tensor) -> Tensor:
        """The attention output with its bias."""
        output = self.attention.output
        return mixed if output is None or output.bias is None else mixed + output.bias

    def finish(self, flips: Tensor, tokens: Tensor) -> Float[Tensor, "pair width"]:
        """The layer's output for pairs (flip, token)."""
        return self.block.finish(*self.pairs(flips, tokens))


def _mix(
    weights: Float[Tensor, "head token token"], value: Float[Tensor, "token head width"]
) -> Float[Tensor, "token head width"]:
    """Sums of the values with unnormalised weights."""
    return torch.bmm(weights, value.transpose(0, 1)).transpose(0, 1).contiguous()
