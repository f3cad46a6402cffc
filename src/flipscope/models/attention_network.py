"""The network of the sparse-variables paper, without additions: Def 3.2 and § 4.3, App. B.1 for the MLP.

    bits [string, position] -> input mapping -> X [string, position + 1, width], [CLS] last
    Z -> sum over heads of Pi(sigma(Pi(softmax(Z W_Q W_K' Z') Z W_V)) W_C), layer by layer
    [CLS] of the last layer -> w, or an MLP -> logits [string]

No residual, no scale of logits, no bias before the MLP. Pi projects each row onto the unit ball if the configuration
says so. With several heads the outer Pi is applied to the sum. Weights are accessible by name:
`model.heads(layer)[h].query`, `.key`, `.value` [width, k] and `.mix` [k, width] are W_Q, W_K, W_V and W_C.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.models.attention_network_config import Activation, AttentionNetworkConfig
from flipscope.models.init import Linear, Scheme, initialise


class InputVectors(nn.Module):
    """Bits as vectors (App. B.1): a position's own, that of its bit added to it or multiplied by it; [CLS] last."""

    symbols: Tensor  # [2, width]
    marker: Tensor  # [width]
    positions: Tensor  # [position, width]

    def __init__(self, config: AttentionNetworkConfig) -> None:
        super().__init__()
        self.is_bag = config.mapping == "bag"
        self.is_trained = config.mapping == "trainable"
        self.register_buffer("symbols", torch.empty(2, config.width))
        self.register_buffer("marker", torch.empty(config.width))
        positions = torch.empty(config.length, config.width)
        if self.is_trained:
            self.positions = nn.Parameter(positions)
        else:
            self.register_buffer("positions", positions)

    def reset_parameters(self) -> None:
        """Trained positions start as random vectors of length near 1."""
        if self.is_trained:
            nn.init.normal_(self.positions, std=self.positions.shape[1] ** -0.5)

    def forward(self, bits: Tensor) -> Float[Tensor, "string token width"]:
        """X: one vector per bit, and [CLS]."""
        own = self.positions[: bits.shape[1]]
        rows = bits[..., None].to(own) * own if self.is_bag else own + self.symbols[bits.long()]
        return torch.cat([rows, self.marker.expand(len(bits), 1, -1)], dim=1)

    def project(self, bits: Tensor, directions: Float[Tensor, "head width"]) -> Float[Tensor, "string head token"]:
        """The products of X with these directions, computed without X, which has two values per position."""
        own = directions @ self.positions[: bits.shape[1]].T  # [head, position]
        ones = bits[:, None].to(own)
        if self.is_bag:
            rows = ones * own
        else:
            zero, one = (directions @ self.symbols.T).unbind(dim=1)  # [head] each
            rows = own + zero[:, None] + ones * (one - zero)[:, None]
        marker = (directions @ self.marker)[:, None].expand(len(bits), -1, 1)
        return torch.cat([rows, marker], dim=2)

    def mix(self, bits: Tensor, weights: Float[Tensor, "string head token"]) -> Float[Tensor, "string head width"]:
        """Weighted sums of the rows of X, computed without X."""
        own, last = weights[..., :-1], weights[..., -1:]
        positions = self.positions[: bits.shape[1]]
        at_one = own * bits[:, None].to(own)
        if self.is_bag:
            return at_one @ positions + last * self.marker
        ones = at_one.sum(dim=2, keepdim=True)
        zeros = own.sum(dim=2, keepdim=True) - ones
        return own @ positions + zeros * self.symbols[0] + ones * self.symbols[1] + last * self.marker


class AttentionHead(nn.Module):
    """W_Q, W_K, W_V [width, k] and W_C [k, width] of one head."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(width, size))
        self.key = nn.Parameter(torch.empty(width, size))
        self.value = nn.Parameter(torch.empty(width, size))
        self.mix = nn.Parameter(torch.empty(size, width))

    def reset_parameters(self) -> None:
        """Glorot's uniform law for each matrix."""
        for matrix in (self.query, self.key, self.value, self.mix):
            nn.init.xavier_uniform_(matrix)


class AttentionLayer(nn.Module):
    """The sum of its heads, with sigma before W_C and optional projections onto the unit ball."""

    def __init__(self, config: AttentionNetworkConfig) -> None:
        super().__init__()
        self.activation: Activation = config.activation
        self.normalise = config.normalise
        self.heads = nn.ModuleList(AttentionHead(config.width, config.key_width) for _ in range(config.heads))

    def forward(
        self, x: Float[Tensor, "string token width"], rows: slice = slice(None)
    ) -> Float[Tensor, "string row width"]:
        """The layer's output at the rows."""
        # In this order no key is computed: z W_Q W_K' x = (W_K (W_Q' z)) . x
        pulled = torch.einsum("brd,hdk,hek->bhre", x[:, rows], self._all("query"), self._all("key"))
        weights = (pulled @ x.transpose(1, 2)[:, None]).softmax(dim=-1)  # [string, head, row, token]
        return self.finish(weights @ x[:, None])

    def directions(self, row: Float[Tensor, " width"]) -> Float[Tensor, "head width"]:
        """For query rows, the vectors whose products with the other rows are the logits, per head."""
        return torch.einsum("d,hdk,hek->he", row, self._all("query"), self._all("key"))

    def finish(self, mixed: Float[Tensor, "string head row width"]) -> Float[Tensor, "string row width"]:
        """The layer's output for these attention-weighted sums of its input's rows."""
        inner = mixed @ self._all("value")[:, None].transpose(0, 1)  # [string, head, row, k]
        inner = _activated(self._projected(inner), self.activation)
        return self._projected(torch.einsum("bhrk,hkd->brd", inner, self._all("mix")))

    def _projected(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Pi: scale each vector longer than 1 to length 1."""
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1) if self.normalise else x

    def _all(self, name: str) -> Float[Tensor, "head rows columns"]:
        return torch.stack([getattr(head, name) for head in self.heads])


class AttentionNetwork(nn.Module):
    """The network of a configuration, its parameters drawn by `initialise(self, scheme, seed)`.

    With seed=None its tensors have shapes but no data (PyTorch's meta device).

    >>> model = AttentionNetwork(AttentionNetworkConfig(length=3, width=8, heads=2, head_size=4), seed=1)
    >>> model(torch.tensor([[0, 1, 1], [1, 0, 0]])).shape  # one logit per string
    torch.Size([2])
    """

    @checked_arguments
    def __init__(
        self,
        config: AttentionNetworkConfig,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        if seed is not None:
            config.check_size(dtype.itemsize)
        with torch.device("meta" if seed is None else "cpu"):
            self.inputs = InputVectors(config)
            self.layers = nn.ModuleList(AttentionLayer(config) for _ in range(config.layers))
            widths = [config.read_width, *config.hidden]
            self.mlp = nn.ModuleList(Linear(*pair) for pair in itertools.pairwise(widths))
            self.readout = Linear(widths[-1], 1, bias=False)
        self.to(dtype)
        if seed is not None:
            initialise(self, scheme, seed)
            fixed = config.vectors()
            self.inputs.symbols.copy_(torch.from_numpy(fixed.symbols))
            self.inputs.marker.copy_(torch.from_numpy(fixed.marker))
            if not self.inputs.is_trained:
                self.inputs.positions.copy_(torch.from_numpy(fixed.positions))

    def forward(self, bits: Tensor) -> Float[Tensor, " string"]:
        """One logit per string."""
        return self.read(self.attend(bits))

    def attend(self, bits: Tensor) -> Float[Tensor, "string width"]:
        """The last layer's output at [CLS] (`f_tf-head`)."""
        self.check(bits)
        if len(self.layers) == 1:
            only = self._layer(0)
            weights = self.inputs.project(bits, only.directions(self.inputs.marker)).softmax(dim=-1)
            return only.finish(self.inputs.mix(bits, weights)[:, :, None])[:, 0]
        x = self.inputs(bits)
        for layer in self.layers[:-1]:
            x = layer(x)
        out: Tensor = self.layers[-1](x, slice(x.shape[1] - 1, None))
        return out[:, 0]

    def read(self, x: Float[Tensor, "string width"]) -> Float[Tensor, " string"]:
        """Logits from the state of [CLS]: by w, or by the MLP on the first coordinates."""
        x = x[:, : self.config.read_width]
        for linear in self.mlp:
            x = linear(x).relu()
        out: Tensor = self.readout(x)
        return out[:, 0]

    def states(self, bits: Tensor) -> list[Float[Tensor, "string token width"]]:
        """X and each layer's output, at every row: layers + 1 tensors."""
        self.check(bits)
        states: list[Tensor] = [self.inputs(bits)]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states

    def heads(self, layer: int) -> list[AttentionHead]:
        """The heads of a layer, with their matrices."""
        return [head for head in self._layer(layer).heads if isinstance(head, AttentionHead)]

    def _layer(self, number: int) -> AttentionLayer:
        layer = self.layers[number]
        assert isinstance(layer, AttentionLayer)
        return layer

    def count_parameters(self, *, positions: bool = True) -> int:
        """Number of parameters, with or without those of positions."""
        total = sum(parameter.numel() for parameter in self.parameters())
        return total if positions or not self.inputs.is_trained else total - self.inputs.positions.numel()

    def check(self, bits: Tensor) -> None:
        """Raise InputError unless these are bits [string, position] that the model has positions for."""
        if not isinstance(bits, Tensor):
            raise InputError(f"inputs must be a torch tensor, not {type(bits).__name__}")
        if bits.ndim != 2 or bits.is_complex():
            raise InputError(f"inputs of shape {tuple(bits.shape)} and type {bits.dtype} must be [string, position]")
        if bits.shape[1] > self.config.length:
            raise InputError(f"strings of length {bits.shape[1]} are longer than length={self.config.length}")
        # Integers or floats: probes pass floats to a module without an embedding.
        if not bool(((bits == 0) | (bits == 1)).all()):
            raise InputError(f"inputs run from {bits.min():g} to {bits.max():g}, but bits are 0 and 1")


def _activated(x: Tensor, activation: Activation) -> Tensor:
    """sigma, applied elementwise."""
    if activation == "identity":
        return x
    return x.relu() if activation == "relu" else x.tanh()
