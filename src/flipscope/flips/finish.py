"""The position-wise part of a layer, in float32 and in place: few passes over rows that stay in the cache."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from flipscope.models.transformer import Block, LayerNorm
from flipscope.native.compiled import Loop
from flipscope.native.wide import add_and_normalise, rectify

PART_ROWS = 1600  # rows of a matrix product: enough for its full speed, few enough for the cache


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


class Finish:
    """The second half of a standard layer with post-norms."""

    def __init__(self, block: Block, space: Workspace) -> None:
        mlp = block.mlp
        self.space = space
        assert mlp is not None
        assert isinstance(block.norm2, LayerNorm)
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.relu, self.tanh = mlp.activation == "relu", mlp.activation == "gelu_tanh"
        self.up, self.up_bias = mlp.up.weight.detach().T.contiguous(), mlp.up.bias.detach()
        self.down, self.down_bias = mlp.down.weight.detach().T.contiguous(), mlp.down.bias.detach()

    @staticmethod
    def supports(block: Block) -> bool:
        """Whether the layer is of this kind, in float32, with eps > 0."""
        config = block.config
        return (
            config.block == "standard"
            and config.norm in ("post", "once")
            and config.eps > 0
            and block.mlp is not None
            and block.mlp.up.weight.dtype == torch.float32
        )

    def loops(self) -> list[Loop]:
        """The compiled loops that it calls."""
        return cast(list[Loop], [add_and_normalise, rectify] if self.relu else [add_and_normalise])

    def enter(self, x: Float[Tensor, "row width"], brought: Float[Tensor, "row width"], bias: Tensor) -> None:
        """Turn x in place from the layer's input into the MLP's input, adding attention's ``brought + bias``."""
        if self.norm1 is None:
            x.add_(brought).add_(bias)
        else:
            _add(x, brought, bias, self.norm1)

    def leave(self, x: Float[Tensor, "row width"]) -> None:
        """Turn x in place from the MLP's input into the layer's output."""
        brought = self.space.take("step", *x.shape)
        hidden = torch.mm(x, self.up, out=self.space.take("hidden", len(x), self.up.shape[1]))
        if self.relu:
            rectify(hidden.numpy(), self.up_bias.numpy())
        else:
            hidden = self.activated(hidden.add_(self.up_bias))
        torch.mm(hidden, self.down, out=brought)
        self.add(x, brought)

    def activated(self, hidden: Tensor) -> Tensor:
        """Apply the activation to hidden units, unless it is ReLU, which is applied already."""
        return hidden if self.relu else F.gelu(hidden, approximate="tanh" if self.tanh else "none")

    def add(self, x: Float[Tensor, "row width"], step: Float[Tensor, "row width"]) -> None:
        """Turn x in place into the layer's output, adding `step`, the product with the MLP's second matrix."""
        _add(x, step, self.down_bias, self.norm2)


def affine(norm: LayerNorm) -> tuple[np.ndarray, np.ndarray]:
    """The gain and the shift of a norm, 1 and 0 if it has none."""
    gain = np.ones(norm.width, np.float32) if norm.weight is None else norm.weight.detach().numpy()
    shift = np.zeros(norm.width, np.float32) if norm.bias is None else norm.bias.detach().numpy()
    return gain, shift


def _add(x: Tensor, step: Tensor, bias: Tensor, norm: LayerNorm) -> None:
    add_and_normalise(x.numpy(), step.numpy(), bias.numpy(), *affine(norm), norm.eps)
