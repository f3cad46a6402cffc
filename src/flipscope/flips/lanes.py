"""The fast path of narrow models: strings side by side, one per lane, in compiled loops from first layer to last.

A narrow layer takes less time than PyTorch's calls and the copies between them. Here the states of eight or sixteen
strings are stored side by side from the first layer to the row that is read. Flips of one string are such strings,
whose first layer comes from tables; the string itself is one more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from flipscope.flips.first_layer import Tables
from flipscope.models.threads import on_cores
from flipscope.models.transformer import Block, LayerNorm, Transformer
from flipscope.native.first_lanes import first_layer, first_shares, own_numbers, own_shares, take_rows
from flipscope.native.lanes import last_layer, middle_layer
from flipscope.native.powers import LOG2_E
from flipscope.native.simd import UNITS
from flipscope.native.span import Span, narrowest, preferred

STATES_NUMBERS = 1 << 24  # numbers of token states kept together
ROUNDED_BITS = 25  # omitted parts of a sum are less than 2^-25 of its parts' sizes and would be lost in rounding

States = Float32[np.ndarray, "group token_width_lane"]


class Workspace:
    """Buffers reused between calls, since fresh pages take longer than the computation."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """An uninitialised array of this shape, in the same memory for the same name each time."""
        size = math.prod(shape)
        if name not in self._kept or self._kept[name].numel() < size:
            self._kept[name] = torch.empty(size, dtype=torch.float32, device="cpu")
        return self._kept[name][:size].view(shape)


class Lanes:
    """Rows at the read-out of a model that has loops (choice.has_loops); ``span`` overrides the processor's."""

    def __init__(self, model: Transformer, span: Span | None = None) -> None:
        self.span = preferred() if span is None else span
        self.blocks = [block for block in model.blocks if isinstance(block, Block)]
        self.layers = [_Middle(block) for block in self.blocks[:-1]]
        self.last = _Last(self.blocks[-1])
        self.space = Workspace()
        self.first: _First | None = None

    def prepare(self, tables: Tables) -> None:
        """Use these tables for the first layer of flips from now on."""
        self.first = _First(self.blocks[0], self.span, tables, self.space)

    def flips(self, string: Tensor, read: int) -> Float[Tensor, "flips_and_one width"]:
        """The last layer's rows under each flip of the string, and last that of the string itself."""
        assert self.first is not None
        tokens, rows = self.first.tokens, []
        for span, states in self.first(string):
            for layer in self.layers[1:]:
                layer(span, states, tokens)
            rows.append(self.last(span, states, tokens, read))
        return (rows[0] if len(rows) == 1 else torch.cat(rows))[: len(string) + 1]

    def plain(self, x: Float[Tensor, "string token width"], read: int) -> Float[Tensor, "string width"]:
        """The last layer's rows of embedded strings."""
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
            layer(self.span, flat, tokens)
        rows = self.last(self.span, flat, tokens, read)
        if groups == 1:  # by columns: the rounding of PyTorch's head depends on it, and so do stored numbers
            rows = rows.T.contiguous().T
        return rows[:strings]


def _packed(matrix: Float[Tensor, "unit input"]) -> Float32[np.ndarray, " pack_input_unit"]:
    """A matrix in packs of a few units."""
    packs: np.ndarray = matrix.detach().unflatten(0, (-1, UNITS)).transpose(1, 2).contiguous().numpy()
    return packs.reshape(-1)


def _affine(norm: LayerNorm) -> tuple[np.ndarray, np.ndarray]:
    """The gain and the shift of a norm, 1 and 0 if it has none."""
    gain = np.ones(norm.width, np.float32) if norm.weight is None else norm.weight.detach().numpy()
    shift = np.zeros(norm.width, np.float32) if norm.bias is None else norm.bias.detach().numpy()
    return gain, shift


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float32, device="cpu")


def _bias(bias: Tensor | None, size: int) -> Tensor:
    return _zeros(size) if bias is None else bias.detach()


class _Layer:
    """The common part of all layers: a block's weights in the order of the kernels."""

    def __init__(self, block: Block) -> None:
        self.attention, self.config, mlp = block.attention, block.config, block.mlp
        assert mlp is not None
        assert self.attention.output is not None
        assert isinstance(block.norm2, LayerNorm)
        self.eps, self.norm_first = block.norm2.eps, block.norm1 is not None
        self.output, self.output_bias = self.attention.output.weight.detach(), self.attention.output.bias
        self.up, self.up_bias = mlp.up.weight.detach(), mlp.up.bias.detach()
        self.down = (_packed(mlp.down.weight), mlp.down.bias.detach().numpy())
        self.norms = (*_affine(block.norm1 or block.norm2), *_affine(block.norm2))

    def heads(self, name: str) -> tuple[Float[Tensor, "head size width"], Float[Tensor, "head size"]]:
        """The weights and biases of queries, keys or values, head by head."""
        given, scale, shape = getattr(self.attention, name), 1.0, (self.config.heads, self.config.key_width)
        if name == "query":  # scaled for weights that are powers of two
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

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        every = [self.heads(name) for name in ("query", "key", "value")]
        weight, bias = (torch.stack([pair[i] for pair in every], dim=1) for i in (0, 1))  # [head, 3, size, ...]
        given = (_packed(weight.flatten(0, 2)), bias.flatten().numpy())
        self.weights = (*given, *self.after(_bias(self.output_bias, self.config.width)))

    def __call__(self, span: Span, states: States, tokens: int) -> None:
        """Replace the states by the layer's output."""
        least = ROUNDED_BITS + math.log2(tokens)
        given = (span, states, tokens, self.config.heads, least, self.weights, self.eps, self.norm_first)
        on_cores(partial(middle_layer, *given), len(states))


class _Last(_Layer):
    """A layer at the token that is read, keys and values never projected (last_layer.LastLayer)."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        (query, query_bias), (key, _), (value, value_bias) = (self.heads(name) for name in ("query", "key", "value"))
        # A key's bias adds the same to all logits of a row, which softmax ignores; weights sum to one, so a value's
        # bias is added once.
        bias = _bias(self.output_bias, self.config.width) + self.output @ value_bias.flatten()
        self.weights = (_packed(query.flatten(0, 1)), query_bias.flatten().numpy(), *self.after(bias))
        self.absorbed = _packed(key.transpose(1, 2).flatten(0, 1))  # of [head * width, size]
        self.value = _packed(value.flatten(0, 1))  # of [head * size, width]

    def __call__(self, span: Span, states: States, tokens: int, read: int) -> Float[Tensor, "string width"]:
        """The layer's output at the token that is read, for every lane."""
        # Aligned, since PyTorch's rounding depends on it.
        out = torch.empty(len(states) * span.lanes, self.config.width, dtype=torch.float32, device="cpu")
        given = (span, states, tokens, read, self.config.heads, self.weights, self.absorbed, self.value)
        on_cores(partial(last_layer, *given, self.eps, self.norm_first, out.numpy()), len(states))
        return out


class _First(_Layer):
    """The first layer of a string's flips, and of the string itself, from the tables of strings of one length."""

    def __init__(self, block: Block, span: Span, tables: Tables, space: Workspace) -> None:
        super().__init__(block)
        self.span, self.space = span, space
        gain, shift = (torch.from_numpy(part) for part in self.norms[:2])
        if not self.norm_first:
            gain, shift = torch.ones_like(gain), torch.zeros_like(shift)
        self.matrix = (self.up * gain).T.contiguous()
        up_bias = self.up_bias + self.up @ shift
        self.finish = (up_bias.numpy(), *self.down, gain.numpy(), shift.numpy(), *self.norms[2:])
        self.scores = (tables.scores * LOG2_E).numpy()
        self.vector = self._numbers(tables.vector + _bias(self.output_bias, self.config.width)).numpy()
        self.value = self._numbers(tables.value).transpose(0, 1).contiguous()  # [head, row, number]
        self.length, self.tokens = len(tables.vector) // 2, (len(tables.vector) + 1) // 2  # there may be a marker
        self.parts = self._parts()
        self.positions = 2 * np.arange(self.length, dtype=np.int64)  # their rows for zeros
        self._make_room()

    def _numbers(self, x: Float[Tensor, "*part width"]) -> Float[Tensor, "*part number"]:
        """The MLP's input, and its product with the MLP's first matrix.

        A norm before the MLP subtracts the mean from every mixture, so it is subtracted here.
        """
        seen = (x.double() - x.double().mean(dim=-1, keepdim=True)).float() if self.norm_first else x
        return torch.cat([seen, seen @ self.matrix], dim=-1)

    def _parts(self) -> list[tuple[Span, int, Float32[np.ndarray, "group bit head_number_lane"]]]:
        """The span, first lane and values of both bits of full groups, and of the remainder.

        The remainder goes into the narrowest group that holds it: of 101 lanes in sixteens, five remain and eight are
        computed.
        """
        bits = self.value[:, : 2 * self.length].unflatten(1, (-1, 2))  # [head, position, bit, number]
        bits = torch.cat([bits, torch.zeros_like(bits[:, :1])], dim=1)  # the string itself moves nothing
        strings = bits.shape[1]
        left = strings % self.span.lanes or self.span.lanes
        narrow, parts = narrowest(self.span, left), []
        whole = strings if narrow == self.span else strings - left
        for span, first, last in ((self.span, 0, whole), (narrow, whole, strings)):
            if first < last:
                spare = -(last - first) % span.lanes
                some = torch.nn.functional.pad(bits[:, first:last], (0, 0, 0, 0, 0, spare))
                # [head, group * lane, bit, number] -> [head, group, lane, ...] -> [group, bit, head * number * lane]
                some = some.unflatten(1, (-1, span.lanes)).permute(1, 3, 0, 4, 2).flatten(2)
                parts.append((span, first, some.numpy()))
        return parts

    def _make_room(self) -> None:
        """Allocate buffers for one string, reused between calls, since allocation takes longer than the computation."""
        heads, tokens = self.config.heads, self.tokens
        room, numbers = self.span.room(tokens), self.value.shape[2]
        lanes = -(-(self.length + 1) // self.span.lanes) * self.span.lanes
        # Zeros: results in unused lanes are never read, but special numbers could be slow.
        self.shares = (*(np.zeros((heads, room, lanes), np.float32) for _ in range(3)),)
        self.weights = _zeros(heads, room + self.length, tokens)  # the flipped tokens' own come last
        self.rest = _zeros(heads, room, tokens)
        self.new, self.own = np.zeros((heads, self.length), np.float32), np.zeros((self.length, numbers), np.float32)
        self.rare, self.rare_keep = np.zeros((heads, tokens), np.int64), np.zeros((heads, tokens), np.float32)
        self.seen, self.base = _zeros(heads, tokens, numbers), np.zeros((room, numbers), np.float32)
        self.ones = np.zeros(lanes, np.bool_)
        self.rows = np.full(room, 2 * self.length, np.int64)  # of the tables; a marker's is the last

    def __call__(self, string: Tensor) -> Iterator[tuple[Span, States]]:
        """The layer's output at every token in every lane, a few groups of a span at a time, in the same memory."""
        tokens, width = self.tokens, self.config.width
        offset, room, length = int(self.config.marker == "cls"), len(self.rows), self.length
        self.ones[:length] = string.numpy()
        rows, own = self.rows[:tokens], self.rows[offset : offset + length]
        np.add(self.positions, self.ones[:length], out=own)
        flipped = own ^ 1
        self.rows[tokens:] = rows[0]
        found = (self.weights.numpy(), self.rest.numpy(), *self.shares)
        given = (self.span, self.scores, rows, flipped, offset)
        on_cores(partial(first_shares, *given, found, self.rare, self.rare_keep), self.config.heads)
        on_cores(partial(own_shares, *given, found[0], room, self.new), self.config.heads)
        take_rows(self.value.numpy(), self.vector, self.rows, self.seen.numpy(), self.base)
        sums = rest_sums = torch.bmm(self.weights, self.seen).numpy()  # [head, room and flips, number]
        if self.rare.max() >= 0:
            rest_sums = torch.bmm(self.rest, self.seen).numpy()
        own_numbers(sums, room, self.new, self.value.numpy(), self.vector, flipped, self.own)
        mixed, rare = (self.base, self.shares, (sums, rest_sums)), (self.rare, self.rare_keep)
        for span, lane, values in self.parts:
            together = max(1, STATES_NUMBERS // (room * width * span.lanes))
            for begin in range(0, len(values), together):
                bits = values[begin : begin + together]
                states = self.space.take("lanes", len(bits), room * width * span.lanes).numpy()
                some = (*mixed, bits, self.ones, *rare, self.own, offset)
                done = (self.finish, self.eps, self.norm_first, lane // span.lanes + begin)
                on_cores(partial(first_layer, span, states, *some, *done), len(bits))
                yield span, states
