"""The fast path of narrow models: strings side by side, one per lane, in compiled loops from first layer to last.

A narrow layer takes less time than PyTorch's calls and the moves of numbers between them. Here the states of eight
strings, or sixteen, stand beside each other from the first layer to the row that is read. Flips of one string are such
strings, whose first layer comes from tables, and the string itself is one more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from flipscope.flips.finish import Finish, Workspace, affine, on_cores
from flipscope.flips.first_layer import Tables, string_rows
from flipscope.models.transformer import Block, LayerNorm, Transformer
from flipscope.native.first_lanes import first_layer, first_shares, own_numbers, own_shares
from flipscope.native.lanes import last_layer, middle_layer
from flipscope.native.simd import LOG2_E, UNITS
from flipscope.native.span import Span, preferred

WIDEST = 256  # wider layers are computed as fast, or faster, by PyTorch's products
STATES_NUMBERS = 1 << 24  # numbers of token states kept together
ROUNDED_BITS = 25  # what is left out of a sum is less than 2^-25 of its parts' sizes, which rounding would swallow

States = Float32[np.ndarray, "group token_width_lane"]


def supports(model: Transformer) -> bool:
    """Whether these loops know the model, and are faster than the others."""
    config, blocks = model.config, [block for block in model.blocks if isinstance(block, Block)]
    return (
        config.layers >= 2
        and config.attention == "softmax"
        and not config.causal
        and not config.mask_self
        and config.combine == "project"
        and all(Finish.supports(block) for block in blocks)
        and config.activation == "relu"
        and config.width <= WIDEST
        and config.width % UNITS == 0
        and config.hidden_width % UNITS == 0
        and config.key_width % UNITS == 0
    )


class Lanes:
    """Rows at the read-out, in float32, of a model that is supported; ``span`` overrules the processor's."""

    def __init__(self, model: Transformer, space: Workspace, span: Span | None = None) -> None:
        self.span = preferred() if span is None else span
        self.blocks = [block for block in model.blocks if isinstance(block, Block)]
        self.layers = [_Middle(block, self.span) for block in self.blocks[:-1]]
        self.last = _Last(self.blocks[-1], self.span)
        self.space = space
        self.first: _First | None = None

    def prepare(self, tables: Tables) -> None:
        """Take the first layer of flips from these tables from now on."""
        self.first = _First(self.blocks[0], self.span, tables, self.space)

    def flips(self, string: Tensor, read: int) -> Float[Tensor, "flips_and_one width"]:
        """The last layer's rows under each flip of the string, and last that of the string itself."""
        assert self.first is not None
        tokens, rows = self.first.tokens, []
        for states in self.first(string):
            for layer in self.layers[1:]:
                layer(states, tokens)
            rows.append(self.last(states, tokens, read))
        return torch.cat(rows)[: len(string) + 1]

    def plain(self, x: Float[Tensor, "string token width"], read: int) -> Float[Tensor, "string width"]:
        """The last layer's rows of strings that are embedded."""
        strings, tokens, width = x.shape
        lanes = self.span.lanes
        groups, some = -(-strings // lanes), strings // lanes
        states = self.space.take("lanes", groups, self.span.room(tokens), width, lanes).zero_()
        # [group * lane, token, width] -> [group, lane, token, width] -> [group, token, width, lane]
        states[:some, :tokens] = x[: some * lanes].unflatten(0, (-1, lanes)).permute(0, 2, 3, 1)
        if some < groups:
            states[some, :tokens, :, : strings - some * lanes] = x[some * lanes :].permute(1, 2, 0)
        flat = states.flatten(1).numpy()
        for layer in self.layers:
            layer(flat, tokens)
        return self.last(flat, tokens, read)[:strings]


def _packed(matrix: Float[Tensor, "unit input"]) -> Float32[np.ndarray, " pack_input_unit"]:
    """A matrix in packs of a few units."""
    packs: np.ndarray = matrix.detach().unflatten(0, (-1, UNITS)).transpose(1, 2).contiguous().numpy()
    return packs.reshape(-1)


def _bias(bias: Tensor | None, size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.float32) if bias is None else bias.detach()


class _Layer:
    """What all layers share: a block's weights in the order of the kernels."""

    def __init__(self, block: Block, span: Span) -> None:
        self.span = span
        self.attention, self.config, mlp = block.attention, block.config, block.mlp
        assert mlp is not None
        assert self.attention.output is not None
        assert isinstance(block.norm2, LayerNorm)
        self.eps, self.norm_first = block.norm2.eps, block.norm1 is not None
        self.output, self.output_bias = self.attention.output.weight.detach(), self.attention.output.bias
        self.up, self.up_bias = mlp.up.weight.detach(), mlp.up.bias.detach()
        self.down = (_packed(mlp.down.weight), mlp.down.bias.detach().numpy())
        self.norms = (*affine(block.norm1 or block.norm2), *affine(block.norm2))

    def heads(self, name: str) -> tuple[Float[Tensor, "head size width"], Float[Tensor, "head size"]]:
        """The weights and biases of queries, keys or values, head by head."""
        given, scale, shape = getattr(self.attention, name), 1.0, (self.config.heads, self.config.key_width)
        if name == "query":  # scaled, and for weights that are powers of two
            scale = self.config.scale * LOG2_E
            if self.attention.log_gain is not None:
                scale *= float(self.attention.log_gain.exp())
        weight, bias = given.weight.detach() * scale, _bias(given.bias, len(given.weight)) * scale
        return weight.unflatten(0, shape), bias.unflatten(0, shape)

    def after(self, bias: Tensor) -> tuple[np.ndarray, ...]:
        """The weights from attention's output on, which has this bias."""
        return _packed(self.output), bias.numpy(), _packed(self.up), self.up_bias.numpy(), *self.down, *self.norms


class _Middle(_Layer):
    """A layer at every token."""

    def __init__(self, block: Block, span: Span) -> None:
        super().__init__(block, span)
        every = [self.heads(name) for name in ("query", "key", "value")]
        weight, bias = (torch.stack([pair[i] for pair in every], dim=1) for i in (0, 1))  # [head, 3, size, ...]
        given = (_packed(weight.flatten(0, 2)), bias.flatten().numpy())
        self.weights = (*given, *self.after(_bias(self.output_bias, self.config.width)))

    def __call__(self, states: States, tokens: int) -> None:
        """States become the layer's output."""
        least = ROUNDED_BITS + math.log2(tokens)
        given = (self.span, states, tokens, self.config.heads, least, self.weights, self.eps, self.norm_first)
        on_cores(partial(middle_layer, *given), len(states))


class _Last(_Layer):
    """A layer at the token that is read, keys and values never projected (last_layer.LastLayer)."""

    def __init__(self, block: Block, span: Span) -> None:
        super().__init__(block, span)
        (query, query_bias), (key, _), (value, value_bias) = (self.heads(name) for name in ("query", "key", "value"))
        # A key's bias adds the same to all logits of a row, which softmax does not notice; weights sum to one, so that
        # a value's bias is added once.
        bias = _bias(self.output_bias, self.config.width) + self.output @ value_bias.flatten()
        self.weights = (_packed(query.flatten(0, 1)), query_bias.flatten().numpy(), *self.after(bias))
        self.absorbed = _packed(key.transpose(1, 2).flatten(0, 1))  # of [head * width, size]
        self.value = _packed(value.flatten(0, 1))  # of [head * size, width]

    def __call__(self, states: States, tokens: int, read: int) -> Float[Tensor, "string width"]:
        """The layer's output at the token that is read, for every lane."""
        width, lanes = self.config.width, self.span.lanes
        out = np.empty((len(states), width * lanes), np.float32)
        given = (self.span, states, tokens, read, self.config.heads, self.weights, self.absorbed, self.value)
        on_cores(partial(last_layer, *given, self.eps, self.norm_first, out), len(states))
        # [group, width, lane] -> [group, lane, width] -> [group * lane, width]
        rows: Tensor = torch.from_numpy(out).unflatten(1, (width, lanes)).transpose(1, 2).flatten(0, 1)
        return rows


class _First(_Layer):
    """The first layer of a string's flips, and of the string itself, from the tables of strings of one length."""

    def __init__(self, block: Block, span: Span, tables: Tables, space: Workspace) -> None:
        super().__init__(block, span)
        self.space = space
        gain, shift = (torch.from_numpy(part) for part in self.norms[:2])
        if not self.norm_first:
            gain, shift = torch.ones_like(gain), torch.zeros_like(shift)
        self.matrix = (self.up * gain).T.contiguous()
        up_bias = self.up_bias + self.up @ shift
        self.finish = (up_bias.numpy(), *self.down, gain.numpy(), shift.numpy(), *self.norms[2:])
        self.scores = tables.scores * LOG2_E
        self.vector = self._numbers(tables.vector + _bias(self.output_bias, self.config.width))
        self.value = self._numbers(tables.value).transpose(0, 1).contiguous()  # [head, row, number]
        self.length, self.tokens = len(tables.vector) // 2, (len(tables.vector) + 1) // 2  # there may be a marker
        self.groups = -(-(self.length + 1) // span.lanes)
        bits = self.value[:, : 2 * self.length].unflatten(1, (-1, 2))  # [head, position, bit, number]
        lanes = bits.new_zeros(
            (len(bits), self.groups * span.lanes, *bits.shape[2:])
        )  # the string itself moves nothing
        lanes[:, : self.length] = bits
        # [head, group * lane, bit, number] -> [head, group, lane, bit, number] -> [bit, group, head * number * lane]
        self.bits = lanes.unflatten(1, (-1, span.lanes)).permute(3, 1, 0, 4, 2).flatten(2)

    def _numbers(self, x: Float[Tensor, "*part width"]) -> Float[Tensor, "*part number"]:
        """What the MLP sees, and its first matrix times that.

        A norm before the MLP takes the mean away from every mixture: so it is taken away here.
        """
        seen = (x.double() - x.double().mean(dim=-1, keepdim=True)).float() if self.norm_first else x
        return torch.cat([seen, seen @ self.matrix], dim=-1)

    def __call__(self, string: Tensor) -> Iterator[States]:
        """The layer's output at every token in every lane, a few groups at a time, in the same memory."""
        rows, flipped = string_rows(self.config.marker, string)
        heads, tokens, width, lanes = self.config.heads, self.tokens, self.config.width, self.span.lanes
        offset, room = int(self.config.marker == "cls"), self.span.room(tokens)
        shares = [self.space.take(name, heads, room, self.groups * lanes) for name in ("keep", "out", "put")]
        weights = self.space.take("weights", heads, room + self.length, tokens)  # the flipped tokens' own come last
        rest, new = self.space.take("rest", heads, room, tokens), self.space.take("new", heads, self.length)
        rare, rare_keep = torch.empty(heads, tokens, dtype=torch.long), self.space.take("rare_keep", heads, tokens)
        found = (*(part.numpy() for part in (weights, rest, *shares)),)
        for part in found:
            part[:, tokens:room] = 0.0  # nobody reads what becomes of it, but odd numbers could be slow
        given = (self.span, self.scores.numpy(), rows.numpy(), flipped.numpy(), offset)
        on_cores(partial(first_shares, *given, found, rare.numpy(), rare_keep.numpy()), heads)
        on_cores(partial(own_shares, *given, found[0], room, new.numpy()), heads)
        value = self.value.index_select(1, rows)
        sums = rest_sums = torch.bmm(weights, value)  # [head, room and flips, number]
        if rare.numpy().max() >= 0:
            rest_sums = torch.bmm(rest, value)
        own = np.empty((self.length, sums.shape[2]), np.float32)
        tables = (self.value.numpy(), self.vector.numpy(), flipped.numpy())
        own_numbers(sums.numpy(), room, new.numpy(), *tables, own)
        base = self.vector.index_select(0, torch.cat([rows, rows[:1].expand(room - tokens)]))
        ones = np.zeros(self.groups * lanes, np.bool_)
        ones[: self.length] = string.numpy()
        mixed = (base.numpy(), found[2:], (sums.numpy(), rest_sums.numpy()), self.bits.numpy(), ones)
        some = (*mixed, rare.numpy(), rare_keep.numpy(), own, offset)
        together = max(1, STATES_NUMBERS // (room * width * lanes))
        for begin in range(0, self.groups, together):
            count = min(together, self.groups - begin)
            states = self.space.take("lanes", count, room * width * lanes)
            states[:, tokens * width * lanes :] = 0.0
            done = (self.finish, self.eps, self.norm_first, begin)
            on_cores(partial(first_layer, self.span, states.numpy(), *some, *done), count)
            yield states.numpy()
