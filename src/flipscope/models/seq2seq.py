"""An encoder-decoder that writes intermediate steps before its answer: the scratchpad model of the hardness paper.

    bits [string, position] -> embedding -> encoder -> memory
    START and the written bits [string, position] -> embedding -> decoder, which sees the memory -> one number each

It computes what PyTorch's `nn.Transformer` does, norms after each sub-layer and one more at the end of either side:
a decoder layer has three, of its own positions, of the memory and of the MLP. One table holds the symbols 0, 1 and
START, another the positions; each gives half of the width. Layers are made of the parts of `Transformer`. Attention is
PyTorch's fused kernel, which has no second derivative on the CPU.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.models.config import TransformerConfig
from flipscope.models.init import Linear, Scheme, initialise
from flipscope.models.modes import eval_mode
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.models.size import check_model
from flipscope.models.transformer import MLP, Attention, Block, Embedding, LayerNorm

START = 2  # the first symbol of a scratchpad
Heads = Float[Tensor, "string head position size"]


class DecoderBlock(nn.Module):
    """One layer of the decoder: N1(x + self-attention), N2(. + attention to the memory), N3(. + MLP)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        norm = functools.partial(LayerNorm, config.width, config.eps, config.affine)
        self.attention = Attention(dataclasses.replace(config, causal=True))
        self.cross = Attention(config)
        self.mlp = MLP(config)
        self.norm1, self.norm2, self.norm3 = norm(), norm(), norm()

    def forward(
        self, x: Float[Tensor, "string position width"], memory: Float[Tensor, "string source width"]
    ) -> Float[Tensor, "string position width"]:
        """The layer's output at every position of the scratchpad."""
        mixed = _attend(self.attention, x, *keys_values(self.attention, x), causal=True)
        return self.finish(x, mixed, keys_values(self.cross, memory))

    def finish(
        self,
        x: Float[Tensor, "string position width"],
        mixed: Float[Tensor, "string position width"],
        memory: tuple[Heads, Heads],
    ) -> Float[Tensor, "string position width"]:
        """The layer's output from the result `mixed` of self-attention and the keys and values of the memory."""
        y: Tensor = self.norm1(x + mixed)
        y = self.norm2(y + _attend(self.cross, y, *memory))
        out: Tensor = self.norm3(y + self.mlp(y))
        return out


class Seq2Seq(nn.Module):
    """The encoder-decoder of a configuration, its parameters drawn by `initialise(self, scheme, seed)`.

    It is called with bits and scratchpad side by side, [string, 2 * position], as in training and probes
    (`flipscope.data.lengths.scratchpad_inputs`): the right half begins with START, and the output at each position is
    the bit to be written there, as a number near 0 or 1. `write` generates the scratchpad.

    >>> model = Seq2Seq(Seq2SeqConfig(length=3, width=8, ffn_width=8))
    >>> model(torch.tensor([[1, 0, 1, 2, 1, 1]])).shape  # the bits 101; START, 1, 1
    torch.Size([1, 3])
    >>> model.write(torch.tensor([[1, 0, 1]])).shape
    torch.Size([1, 3])
    """

    @checked_arguments
    def __init__(
        self, config: Seq2SeqConfig, *, scheme: Scheme = "pytorch", seed: int | np.random.Generator | None = 0
    ) -> None:
        super().__init__()
        self.config = config
        side = config.side
        if seed is not None:
            check_model(dataclasses.replace(side, layers=3 * side.layers))
        with torch.device("meta" if seed is None else "cpu"):
            self.embedding = Embedding(side)
            self.encoder = nn.ModuleList(Block(side, has_mlp=True) for _ in range(config.layers))
            self.encoder_norm = LayerNorm(config.width, config.eps, affine=True)
            self.decoder = nn.ModuleList(DecoderBlock(side) for _ in range(config.layers))
            self.decoder_norm = LayerNorm(config.width, config.eps, affine=True)
            self.head = Linear(config.width, 1)
        if seed is not None:
            initialise(self, scheme, seed)

    def reset_parameters(self) -> None:
        """Initialise every matrix of the layers with Xavier's distribution, like `nn.Transformer`, after its parts.

        Queries, keys and values have it already, as three parts of one matrix.
        """
        for module in (*self.encoder.modules(), *self.decoder.modules()):
            matrices: tuple[Tensor, ...] = ()
            if isinstance(module, MLP):
                matrices = (module.up.weight, module.down.weight)
            elif isinstance(module, Attention) and module.output is not None:
                matrices = (module.output.weight,)
            for matrix in matrices:
                nn.init.xavier_uniform_(matrix)

    def forward(self, inputs: Int64[Tensor, "string both"]) -> Float[Tensor, "string position"]:
        """The output at each position, given the scratchpad before it."""
        self.check(inputs)
        bits, written = inputs.chunk(2, dim=1)
        memory = self.encode(bits)
        x: Tensor = self.embedding(written)
        for block in self.decoder:
            x = block(x, memory)
        return self._read(x)

    def encode(self, bits: Int64[Tensor, "string position"]) -> Float[Tensor, "string position width"]:
        """The memory: the encoder's output for the bits."""
        x: Tensor = self.embedding(bits)
        for block in self.encoder:
            assert isinstance(block, Block)
            x = block.finish(x, _attend(block.attention, x, *keys_values(block.attention, x)))
        out: Tensor = self.encoder_norm(x)
        return out

    def _read(self, x: Float[Tensor, "string position width"]) -> Float[Tensor, "string position"]:
        out: Tensor = self.head(self.decoder_norm(x))
        return out.squeeze(-1)

    @torch.no_grad()
    def write(self, bits: Tensor, threshold: float = 0.5) -> Int64[Tensor, "string position"]:
        """Generate the scratchpad, one bit at a time: 1 where the output is above the threshold.

        Keys and values of written positions are cached, so a position costs one row of each layer.
        """
        self._check_symbols(bits, START)
        if bits.shape[1] > self.config.length:
            raise InputError(f"strings of length {bits.shape[1]} are longer than length={self.config.length}")
        with eval_mode(self):
            memory = self.encode(bits)
            blocks = [block for block in self.decoder if isinstance(block, DecoderBlock)]
            seen = [keys_values(block.cross, memory) for block in blocks]
            kept: list[tuple[Heads, Heads] | None] = [None] * len(blocks)
            places = self.embedding.positions(bits.shape[1])
            symbol = torch.full((len(bits), 1), START, device=bits.device)
            written = []
            for place in places:
                x = torch.cat([self.embedding.symbols(symbol), place.expand(len(bits), 1, -1)], dim=-1)
                for number, block in enumerate(blocks):
                    fresh = keys_values(block.attention, x)
                    before = kept[number]
                    both = fresh if before is None else tuple(map(_joined, before, fresh))
                    kept[number] = (both[0], both[1])
                    x = block.finish(x, _attend(block.attention, x, both[0], both[1]), seen[number])
                symbol = (self._read(x) > threshold).long()
                written.append(symbol)
        return torch.cat(written, dim=1)

    def count_parameters(self, *, positions: bool = True) -> int:
        """Number of parameters, with or without those of positions."""
        total = sum(parameter.numel() for parameter in self.parameters())
        assert self.embedding.position is not None
        return total if positions else total - self.embedding.position.weight.numel()

    def check(self, inputs: Tensor) -> None:
        """Raise InputError unless these are bits and a scratchpad side by side."""
        self._check_symbols(inputs, START + 1)
        count = inputs.shape[1]
        if count % 2 or count > 2 * self.config.length or count == 0:
            raise InputError(
                f"inputs of shape {tuple(inputs.shape)} must be [string, 2 * position], bits and what was written, "
                f"of at most {self.config.length} bits"
            )

    def _check_symbols(self, inputs: Tensor, symbols: int) -> None:
        if not isinstance(inputs, Tensor) or inputs.ndim != 2 or inputs.is_floating_point():
            raise InputError("inputs must be integers [string, position] in a torch tensor")
        if inputs.numel() and not 0 <= int(inputs.min()) <= int(inputs.max()) < symbols:
            raise InputError(f"inputs contain {int(inputs.max())}, but symbols are 0 to {symbols - 1}")


def keys_values(attention: Attention, x: Float[Tensor, "string position width"]) -> tuple[Heads, Heads]:
    """Keys and values of these positions, head by head."""
    return attention.split(attention.key(x)), attention.split(attention.value(x))


def _joined(before: Tensor, fresh: Tensor) -> Tensor:
    return torch.cat([before, fresh], dim=2)


def _attend(
    attention: Attention, x: Float[Tensor, "string row width"], key: Heads, value: Heads, *, causal: bool = False
) -> Float[Tensor, "string row width"]:
    """The heads' contribution to each row, from these keys and values."""
    query = attention.split(attention.query(x))
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=attention.config.scale)
    assert attention.output is not None
    joined: Tensor = attention.output(mixed.transpose(1, 2).flatten(-2))
    return joined
