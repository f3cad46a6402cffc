"""The fast path: the logits of a string and of all its flips from our transformer, with the algebra done first.

One string and its N flips share almost everything. In order of the layers:

first   A bit at a position has one of two vectors, so queries, keys, values and all attention logits come from tables
        of 2N + 1 rows made once a model. A flip changes one key and one query: every other row's attention is the old
        one with one key's part taken out and another put in (Eqs 8a-8c); W_O is folded into the tables.
middle  Where attention is saturated, most tokens do not notice a flip: their weight on every changed key stays below
        ``tolerance``, before and after. Only the others are computed again.
last    Only the read-out position is needed. Keys and values are never projected: W_K is absorbed into the query, and
        W_V is applied after averaging.

Without ``deltas`` every token is computed: the same numbers as the plain forward, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from flipscope.errors import InputError
from flipscope.models.transformer import Attention, Block, Transformer

if TYPE_CHECKING:
    from flipscope.models.config import TransformerConfig

TOLERANCE = 2.0**-24  # an attention weight below half a unit in the last place of float32 changes no sum
SPARSE_BELOW = 0.5  # share of tokens that change, above which computing all of them is faster


def supports(model: object) -> bool:
    """Whether the fast path knows this model: our transformer on bits, read at one end."""
    if not isinstance(model, Transformer):
        return False
    config = model.config
    return (
        config.inputs == "bits"
        and config.readout in ("first", "last")
        and config.outputs == 1
        and next(model.parameters()).device.type == "cpu"
    )


@dataclass(frozen=True)
class _Tables:
    """Rows 2p and 2p + 1 are the two bits at position p; the marker, if any, is the last row."""

    vector: Float[Tensor, "row width"]  # the first layer's input
    scores: Float[Tensor, "head row row"]  # attention logits of every query with every key
    value: Float[Tensor, "row head width"]  # values, already multiplied by W_O


class FastEngine:
    """Logits of strings and of all their one-bit flips, by tables, deltas and an absorbed last layer."""

    path = "fast"

    def __init__(
        self,
        model: Transformer,
        *,
        dtype: torch.dtype = torch.float32,
        deltas: bool = True,
        tolerance: float = TOLERANCE,
    ) -> None:
        if not supports(model):
            raise InputError("the fast path needs flipscope's own transformer on bits, read at its first or last position.")
        weights = model.state_dict()
        self.model = Transformer(model.config, seed=None, dtype=dtype)
        self.model.load_state_dict({name: tensor.to(dtype) for name, tensor in weights.items()}, assign=True)
        self.model.eval()
        self.dtype = dtype
        self.deltas = deltas
        self.tolerance = tolerance if deltas else 0.0
        self.length: int | None = None
        self._tables: _Tables | None = None

    @property
    def config(self) -> TransformerConfig:
        """The model's configuration."""
        return self.model.config

    # ------------------------------------------------------------ what callers use

    @torch.inference_mode()
    def logits(self, strings: NDArray[np.uint8]) -> NDArray[np.floating]:
        """The model's logit for each string, by its plain forward."""
        bits = torch.from_numpy(np.ascontiguousarray(strings, np.uint8))
        step = max(1, 4 * self._chunk(bits.shape[1]))
        parts = [self.model(bits[start : start + step]) for start in range(0, len(bits), step)]
        found: NDArray[np.floating] = torch.cat(parts).numpy()
        return found

    @torch.inference_mode()
    def flip_logits(self, strings: NDArray[np.uint8]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Logits of the strings [m] and of all their flips [m, N]."""
        bits = torch.from_numpy(np.ascontiguousarray(strings, np.uint8)).long()
        self._prepare(bits.shape[1])
        base = self.model(bits)
        flipped = torch.stack([self._one_string(string) for string in bits])
        return base.numpy(), flipped.numpy()

    # ------------------------------------------------------------ tables

    def _prepare(self, length: int) -> None:
        if self.length == length and self._tables is not None:
            return
        zeros = torch.zeros((1, length), dtype=torch.long)
        both = torch.cat([self.model.embed(zeros), self.model.embed(zeros + 1)])  # [2, position, width]
        first = 1 if self.config.marker == "cls" else 0
        # [2, length, width] -> [length, 2, width] -> [2 * length, width]
        vector = both[:, first : first + length].transpose(0, 1).flatten(0, 1)
        if self.config.marker != "none":
            marker = both[0, :1] if first else both[0, -1:]
            vector = torch.cat([vector, marker])
        block = self._block(0)
        attention = block.attention
        seen = _seen(block, vector)[None]  # [1, row, width]
        scores = attention.scores(attention.split(attention.query(seen)), attention.split(attention.key(seen)))[0]
        value = attention.split(attention.value(seen))[0].transpose(0, 1)  # [row, head, size]
        self._tables = _Tables(vector, scores, _projected(attention, value))
        self.length = length

    def _block(self, number: int) -> Block:
        block = self.model.blocks[number]
        assert isinstance(block, Block)
        return block

    def _rows(self, string: Tensor) -> tuple[Tensor, Tensor]:
        """Table rows of the string's tokens in order of position, and of the flipped bits."""
        bit_rows = 2 * torch.arange(len(string)) + string
        if self.config.marker == "none":
            return bit_rows, bit_rows ^ 1
        marker = torch.tensor([2 * len(string)])
        order = [bit_rows, marker] if self.config.marker == "eos" else [marker, bit_rows]
        return torch.cat(order), bit_rows ^ 1

    def _chunk(self, tokens: int) -> int:
        """Flips computed together: enough for full matrix products, few enough for the cache."""
        return int(min(128, max(8, (1 << 20) // (tokens * self.config.hidden_width))))

    # ------------------------------------------------------------ one string

    def _one_string(self, string: Tensor) -> Float[Tensor, " flip"]:
        first = _FirstLayer(self, string)
        read = 0 if self.config.readout == "first" else first.tokens - 1
        if self.config.layers == 1:
            row = first.finish(*first.pairs(torch.arange(len(string)), read))
            return self._head(row)
        base = self._base_states(first) if self.deltas else []
        logits = []
        step = self._chunk(first.tokens)
        for start in range(0, len(string), step):
            flips = torch.arange(start, min(start + step, len(string)))
            logits.append(self._flips(first, flips, base, read))
        return torch.cat(logits)

    def _base_states(self, first: _FirstLayer) -> list[Tensor]:
        """The states [position, width] after each layer but the last of the string itself."""
        x = first.vector[None]
        states = []
        for number in range(self.config.layers - 1):
            x = self._block(number)(x)
            states.append(x[0])
        return states

    def _flips(self, first: _FirstLayer, flips: Tensor, base: list[Tensor], read: int) -> Float[Tensor, " flip"]:
        changed = first.changed(flips, self.tolerance) if self.deltas else None  # [flip, position]
        if changed is not None and changed.float().mean() < SPARSE_BELOW:
            flip, token = changed.nonzero(as_tuple=True)
            states = base[0].expand(len(flips), -1, -1).clone()  # [flip, position, width]
            states[flip, token] = first.finish(*first.pairs(flips[flip], token))
        else:
            states, changed = first.everything(flips), None
        for number in range(1, self.config.layers - 1):
            block = self._block(number)
            if changed is None:
                states = block(states)
            else:
                states, changed = _sparse_layer(block, states, changed, base[number - 1], base[number], self.tolerance)
        return self._last(states, read)

    # ------------------------------------------------------------ the last layer, only where it is read

    def _last(self, states: Float[Tensor, "flip position width"], read: int) -> Float[Tensor, " flip"]:
        block = self._block(self.config.layers - 1)
        attention, config = block.attention, self.config
        seen = _seen(block, states)
        here = seen[:, read : read + 1]  # [flip, 1, width]
        query = attention.split(attention.query(here))[:, :, 0]  # [flip, head, size]
        query = query * config.scale
        if attention.log_gain is not None:
            query = query * attention.log_gain.exp()
        key_weight = attention.key.weight.unflatten(0, (config.heads, config.key_width))  # [head, size, width]
        # (W_K y_j + b) . q = y_j . (W_K^T q) + b . q
        absorbed = torch.einsum("fhs,hsw->fwh", query, key_weight)  # [flip, width, head]
        scores = torch.bmm(seen, absorbed)  # [flip, position, head]
        if attention.key.bias is not None and config.attention != "softmax":
            # Softmax does not notice what is added to every logit of a row.
            bias = attention.key.bias.unflatten(0, (config.heads, config.key_width))
            scores = scores + torch.einsum("fhs,hs->fh", query, bias)[:, None]
        rows = slice(read, read + 1)
        weights = attention.weights(scores.transpose(1, 2)[:, :, None], attention.visible(states, rows))[:, :, 0]
        average = torch.bmm(weights, seen)  # [flip, head, width]
        value_weight = attention.value.weight.unflatten(0, (config.heads, config.key_width))
        mixed = torch.einsum("fhw,hsw->fhs", average, value_weight)
        if attention.value.bias is not None:
            bias = attention.value.bias.unflatten(0, (config.heads, config.key_width))
            mixed = mixed + weights.sum(dim=-1, keepdim=True) * bias
        brought = mixed.sum(dim=1) if attention.output is None else attention.output(mixed.flatten(1))
        return self._head(block.finish(states[:, read], brought))

    def _head(self, rows: Float[Tensor, "flip width"]) -> Float[Tensor, " flip"]:
        return self.model.read(rows[:, None])  # one row is both the first and the last


def _seen(block: Block, x: Tensor) -> Tensor:
    """What attention reads: the layer's input, normalised first in a pre-norm layer."""
    seen: Tensor = block.norm1(x) if block.config.norm == "pre" and block.norm1 is not None else x
    return seen


def _projected(attention: Attention, value: Float[Tensor, "row head size"]) -> Float[Tensor, "row head width"]:
    """Each head's value after its part of W_O."""
    if attention.output is None:
        return value  # heads are summed as they are (Eq 9)
    heads, size = attention.config.heads, attention.config.key_width
    weight = attention.output.weight.unflatten(1, (heads, size))  # [width, head, size]
    return torch.einsum("rhs,whs->rhw", value, weight)


class _FirstLayer:
    """The first layer of one string under all its flips, from the tables.

    Row r attends to key j with weight E_rj / Z_r and brings U_r / Z_r. Under flip i, what it brings is
    keep_ri U_r + out_ri v_i + in_ri v'_i. When i is the key that dominates row r, taking it out of the sums would
    cancel; the sums without the dominating key are computed afresh and stand in for U_r and Z_r.
    """

    def __init__(self, engine: FastEngine, string: Tensor) -> None:
        tables = engine._tables
        assert tables is not None
        self.block = engine._block(0)
        config = self.block.config
        self.attention = self.block.attention
        rows, flipped = engine._rows(string)
        self.tokens, self.length = len(rows), len(string)
        self.offset = 1 if config.marker == "cls" else 0
        self.places = torch.arange(self.length) + self.offset  # token of each bit
        self.vector = tables.vector[rows]  # [token, width]
        self.flipped_vector = tables.vector[flipped]  # [flip, width]
        self.value = tables.value[rows]  # [token, head, width]
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
            self.sums = _mix(weights, self.value)
            self.dominating = None
            self.old_weight, self.new_weight = weights[:, :, self.places].abs(), new.abs()
            return
        top, where = scores.max(dim=-1)  # [head, token]
        weights = (scores - top[..., None]).exp()
        rest_scores = scores.scatter(-1, where[..., None], -torch.inf)
        rest_top = rest_scores.max(dim=-1).values  # -inf where a row sees one key only
        rest = (rest_scores - rest_top.nan_to_num(neginf=0.0)[..., None]).exp()
        total, rest_total = weights.sum(-1), rest.sum(-1)
        old = weights[:, :, self.places]  # [head, token, flip]
        dominated = where[..., None] == self.places  # [head, token, flip]
        peak = torch.where(dominated, rest_top[..., None], top[..., None])
        left = torch.where(dominated, rest_total[..., None], total[..., None] - old)
        both = torch.maximum(peak, new_key)
        shrink, grow = (peak - both).exp(), (new_key - both).exp()
        bottom = shrink * left + grow
        blind = new_key == -torch.inf  # a row that does not see the key keeps what it has
        self.keep = torch.where(blind, 1 / total[..., None], shrink / bottom)
        self.put = torch.where(blind, 0.0, grow / bottom)
        self.out = torch.where(blind | dominated, 0.0, -shrink * old / bottom)
        self.old_weight = old / total[..., None]
        self.new_weight = self.put
        self.sums = _mix(weights, self.value)  # [token, head, width]
        self.rest_sums = _mix(rest, self.value)
        self.dominating = dominated

    def _own_rows(self, scores: Float[Tensor, "head flip row"], rows: Tensor, flipped: Tensor) -> None:
        """What the flipped token itself receives: its query and one of its keys are new."""
        own = scores[:, :, rows]  # [head, flip, token]
        each = torch.arange(self.length)
        own[:, each, self.places] = scores[:, each, flipped]
        visible = None if self.hidden is None else ~self.hidden[self.places]
        weights = self.attention.weights(own[None], visible)[0]  # [head, flip, token]
        moved = self.flipped_value - self.value[self.places]  # [flip, head, width]
        mixed = torch.einsum("hft,thw->fw", weights, self.value)
        self.own = mixed + torch.einsum("hf,fhw->fw", weights[:, each, self.places], moved)  # [flip, width]

    def changed(self, flips: Tensor, tolerance: float) -> Bool[Tensor, "flip token"]:
        """Tokens whose attention gives or gave the flipped key a weight of at least the tolerance."""
        weight = torch.maximum(self.old_weight, self.new_weight)[:, :, flips].amax(dim=0)  # [token, flip]
        changed = weight.T >= tolerance
        changed[torch.arange(len(flips)), self.places[flips]] = True
        return changed

    def pairs(self, flips: Tensor, tokens: Tensor | int) -> tuple[Tensor, Tensor]:
        """The layer's input and what attention brings, for pairs (flip, token)."""
        token = torch.full_like(flips, tokens) if isinstance(tokens, int) else tokens
        keep, out, put = (c[:, token, flips].T for c in (self.keep, self.out, self.put))  # [pair, head]
        sums = self.sums[token]  # [pair, head, width]
        if self.dominating is not None:
            sums = torch.where(self.dominating[:, token, flips].T[..., None], self.rest_sums[token], sums)
        place = self.places[flips]
        mixed = (
            torch.einsum("ph,phw->pw", keep, sums)
            + torch.einsum("ph,phw->pw", out, self.value[place])
            + torch.einsum("ph,phw->pw", put, self.flipped_value[flips])
        )
        x = self.vector[token]
        own = token == place
        mixed[own] = self.own[flips[own]]
        x[own] = self.flipped_vector[flips[own]]
        return x, self._with_bias(mixed)

    def everything(self, flips: Tensor) -> Float[Tensor, "flip token width"]:
        """The layer's output at every token, for each flip."""
        keep = self.keep[:, :, flips]  # [head, token, flip]
        if self.dominating is None:
            by_row = torch.bmm(keep.permute(1, 2, 0), self.sums)  # [token, flip, width]
        else:
            usual = torch.where(self.dominating[:, :, flips], 0.0, keep)
            rare = keep - usual
            by_row = torch.bmm(
                torch.cat([usual, rare]).permute(1, 2, 0), torch.cat([self.sums, self.rest_sums], dim=1)
            )
        pair = torch.cat([self.out, self.put])[:, :, flips].permute(2, 1, 0)  # [flip, token, 2 head]
        values = torch.cat([self.value[self.places[flips]], self.flipped_value[flips]], dim=1)
        mixed = torch.bmm(pair, values).add_(by_row.transpose(0, 1))  # [flip, token, width]
        x = self.vector.expand(len(flips), -1, -1).clone()
        each, place = torch.arange(len(flips)), self.places[flips]
        mixed[each, place] = self.own[flips]
        x[each, place] = self.flipped_vector[flips]
        return self.finish(x, self._with_bias(mixed))

    def _with_bias(self, mixed: Tensor) -> Tensor:
        output = self.attention.output
        return mixed if output is None or output.bias is None else mixed + output.bias

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The layer's output from its input and what attention brings."""
        return self.block.finish(x, mixed)


def _mix(
    weights: Float[Tensor, "head token token"], value: Float[Tensor, "token head width"]
) -> Float[Tensor, "token head width"]:
    """Sums of the values by unnormalised weights."""
    return torch.bmm(weights, value.transpose(0, 1)).transpose(0, 1).contiguous()


def _sparse_layer(
    block: Block,
    states: Float[Tensor, "flip token width"],
    changed: Bool[Tensor, "flip token"],
    before: Float[Tensor, "token width"],
    after: Float[Tensor, "token width"],
    tolerance: float,
) -> tuple[Tensor, Tensor | None]:
    """A middle layer, computed only at tokens that changed or attend to one that did.

    ``before`` and ``after`` are the unflipped string's states around the layer. Returns the states and what changed,
    or None for "everything" once most tokens have.
    """
    attention = block.attention
    flip, token = changed.nonzero(as_tuple=True)
    seen_base = _seen(block, before)[None]
    seen_new = _seen(block, states[flip, token])[None]  # [1, pair, width]
    query_base, key_base, value_base = (
        attention.split(project(seen_base))[0] for project in (attention.query, attention.key, attention.value)
    )  # [head, token, size]
    query_new, key_new, value_new = (
        attention.split(project(seen_new))[0] for project in (attention.query, attention.key, attention.value)
    )  # [head, pair, size]
    visible = attention.visible(before[None])
    touched = _touched(attention, query_base, key_base, key_new, flip, token, visible, len(states), tolerance)
    now = changed | touched
    if now.float().mean() >= SPARSE_BELOW:
        return block(states), None
    key, value = (
        base.expand(len(states), -1, -1, -1).index_put((flip[:, None], _heads(base), token[:, None]), new.transpose(0, 1))
        for base, new in ((key_base, key_new), (value_base, value_new))
    )  # [flip, head, token, size]
    query = query_base.expand(len(states), -1, -1, -1).index_put(
        (flip[:, None], _heads(query_base), token[:, None]), query_new.transpose(0, 1)
    )
    rows, filled = _padded_rows(now)  # [flip, row]
    size = query.shape[-1]
    chosen = query.gather(2, rows[:, None, :, None].expand(-1, query.shape[1], -1, size))
    mask = None if visible is None else visible[rows][:, None]  # [flip, 1, row, token]
    weights = attention.weights(attention.scores(chosen, key), mask)
    brought = attention.mix(weights, value)  # [flip, row, width]
    new_flip, new_row = filled.nonzero(as_tuple=True)
    new_token = rows[new_flip, new_row]
    result = after.expand(len(states), -1, -1).clone()
    result[new_flip, new_token] = block.finish(states[new_flip, new_token], brought[new_flip, new_row])
    return result, now


def _heads(per_head: Tensor) -> Tensor:
    return torch.arange(per_head.shape[0])[None]


def _touched(
    attention: Attention,
    query: Tensor,
    key: Tensor,
    key_new: Tensor,
    flip: Tensor,
    token: Tensor,
    visible: Tensor | None,
    flips: int,
    tolerance: float,
) -> Bool[Tensor, "flip token"]:
    """Rows that give the changed keys, before or after, a weight of at least the tolerance in some head."""
    scores = attention.scores(query[None], key[None])[0]  # [head, token, token]
    news = attention.scores(query[None], key_new[None])[0]  # [head, token, pair]
    if visible is not None:
        low = -torch.inf if attention.config.attention == "softmax" else 0.0
        scores, news = scores.masked_fill(~visible, low), news.masked_fill(~visible[:, token], low)
    if attention.config.attention == "softmax":
        total = scores.logsumexp(dim=-1, keepdim=True)
        old, new = (scores - total).exp()[:, :, token], (news - total).exp()
    else:
        old, new = scores[:, :, token].abs(), news.abs()
    weight = torch.zeros((*old.shape[:2], flips), dtype=old.dtype)
    weight.index_add_(2, flip, torch.maximum(old, new))
    return (weight.amax(dim=0) >= tolerance).T


def _padded_rows(now: Bool[Tensor, "flip token"]) -> tuple[Tensor, Tensor]:
    """For each flip its tokens to compute, padded to the longest list, and which entries are real."""
    counts = now.sum(dim=1)
    longest = int(counts.max())
    # A stable sort puts the tokens to compute first, in order.
    rows = now.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices[:, :longest]
    return rows, torch.arange(longest) < counts[:, None]
