"""A network small enough to be read off its weights: that of the interpretability study of paper 002 (section 2.4).

    bits [string, position] -> X [string, position, width]: the position one-hot, then the bit one-hot
    z_t = v' sum_j softmax_j(s x_t' W_Q' W_K x_j) x_j              one number per position: nothing else is left
    f = sum_t c_t (F ReLU(U z_t + b) + a) + d                      an MLP 1 -> hidden -> 1, then a weight per position

No residual, no norm, no second attention. If attention is uniform on the members of a set and zero elsewhere, z_t
counts the ones among them, and the MLP can compute the parity of the count: a function of one variable, easy to plot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.models.init import Linear, Scheme, initialise

SYMBOLS = 2  # coordinates of the bit


@dataclass(frozen=True, kw_only=True)
class ReadableNetworkConfig:
    """The choices of `ReadableNetwork`; logits are scaled as in the paper's other model.

    >>> ReadableNetworkConfig(length=20).width
    22
    """

    length: int  # T: bits of a string
    hidden: int = 32  # neurons of the MLP

    def __post_init__(self) -> None:
        check_fields(self)
        check_count("length", self.length, 2)
        check_count("hidden", self.hidden)

    @property
    def width(self) -> int:
        """d: coordinates of a position."""
        return self.length + SYMBOLS

    @property
    def scale(self) -> float:
        """The factor of attention logits, 2 log T / sqrt(d)."""
        return 2 * math.log(self.length) / math.sqrt(self.width)


class ReadableNetwork(nn.Module):
    """The network of a configuration, its parameters drawn by `initialise(self, scheme, seed)`.

    >>> model = ReadableNetwork(ReadableNetworkConfig(length=20))
    >>> model(torch.zeros(3, 20, dtype=torch.uint8)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([3]), 1108)
    """

    @checked_arguments
    def __init__(
        self, config: ReadableNetworkConfig, *, scheme: Scheme = "pytorch", seed: int | np.random.Generator = 0
    ) -> None:
        super().__init__()
        self.config = config
        d = config.width
        self.query = Linear(d, d, bias=False)  # W_Q
        self.key = Linear(d, d, bias=False)  # W_K
        self.value = Linear(d, 1, bias=False)  # v
        self.up = Linear(1, config.hidden)  # U, b
        self.down = Linear(config.hidden, 1)  # F, a
        self.readout = Linear(config.length, 1)  # c, d
        initialise(self, scheme, seed)

    def forward(self, bits: Tensor) -> Float[Tensor, " string"]:
        """One number per string."""
        heights = self.curve(self.attended(bits))  # [string, position]
        out: Tensor = self.readout(heights)
        return out.squeeze(-1)

    def attended(self, bits: Tensor) -> Float[Tensor, "string position"]:
        """z_t: the output of attention at each position, one number, which is the input of the MLP."""
        weights, length = self.attention(bits), self.config.length
        value = self.value.weight[0]
        values = value[:length] + value[length:][bits.long()]  # [string, position]
        out: Tensor = (weights @ values[..., None]).squeeze(-1)
        return out

    def attention(self, bits: Tensor) -> Float[Tensor, "string position other"]:
        """The attention weights of each position for each other."""
        self.check(bits)
        length = self.config.length
        product = self.config.scale * self.query.weight.T @ self.key.weight  # [width, width], row: who asks
        rows = product[:length] + product[length:][bits.long()]  # [string, position, width]: position and bit
        return (rows[..., :length] + _at_bits(rows[..., length:], bits)).softmax(dim=-1)

    def curve(self, z: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """The MLP, applied elementwise."""
        out: Tensor = self.down(self.up(z[..., None]).relu())
        return out.squeeze(-1)

    @torch.no_grad()
    def query_key(self) -> Float[Tensor, "position other"]:
        """Attention logits of each position for each other, averaged over the bits of both; rows are queries.

        This is the block of positions of W_Q' W_K, plus the contribution of the querying position's bit to each column.
        """
        length = self.config.length
        product = self.config.scale * self.query.weight.T @ self.key.weight
        out: Tensor = product[:length, :length] + product[length:, :length].mean(dim=0)
        return out

    def check(self, bits: Tensor) -> None:
        """Raise InputError unless these are strings of the network's length."""
        length = self.config.length
        if not isinstance(bits, Tensor) or bits.ndim != 2 or bits.shape[1] != length:
            raise InputError(f"bits must be a torch tensor [string, {length}]")


def _at_bits(both: Float[Tensor, "string position symbol"], bits: Tensor) -> Float[Tensor, "string position other"]:
    """From the logits of each position for a 0 and for a 1, those for the bits of the other positions."""
    zero, one = both[..., :1], both[..., 1:]
    return zero + (one - zero) * bits.to(both)[:, None, :]
