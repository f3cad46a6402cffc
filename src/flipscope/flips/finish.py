"""What a layer does position by position, in float32 and in place: few passes over rows that stay in the cache."""

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
    """Memory kept from call to call: fresh pages take longer than what is computed in them."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Numbers of this shape that hold anything, the same memory for the same name each time."""
        size = math.prod(shape)
        if name not in self._kept or self._kept[name].numel() < size:
            self._kept[name] = torch.empty(size, dtype=torch.float32, device="cpu")
        return self._kept[name][:size].view(shape)


class Finish:
    """The second half of a standard layer with its norms after the sums."""

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
        """Whether the layer is such a one, in float32, with eps > 0."""
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
        """x becomes the MLP's input where it was the layer's and attention brought ``brought + bias``."""
        if self.norm1 is None:
            x.add_(brought).add_(bias)
        else:
            _add(x, brought, bias, self.norm1)

    def leave(self, x: Float[Tensor, "row width"]) -> None:
        """x becomes the layer's output where it was the MLP's input."""
        brought = self.space.take("step", *x.shape)
        hidden = torch.mm(x, self.up, out=self.space.take("hidden", len(x), self.up.shape[1]))
        if self.relu:
            rectify(hidden.numpy(), self.up_bias.numpy())
        else:
            hidden = self.activated(hidden.add_(self.up_bias))
        torch.mm(hidden, self.down, out=brought)
        self.add(x, brought)

    def activated(self, hidden: Tensor) -> Tensor:
        """The activation of hidden units; a ReLU's are done already."""
        return hidden if self.relu else F.gelu(hidden, approximate="tanh" if self.tanh else "none")

    def add(self, x: Float[Tensor, "row width"], step: Float[Tensor, "row width"]) -> None:
        """x becomes the layer's output, where step is what the MLP's second matrix gave."""
        _add(x, step, self.down_bias, self.norm2)


def affine(norm: LayerNorm) -> tuple[np.ndarray, np.ndarray]:
    """The gain and the shift of a norm, also where it has none."""
    gain = np.ones(norm.width, np.float32) if norm.weight is None else norm.weight.detach().numpy()
    shift = np.zeros(norm.width, np.float32) if norm.bias is None else norm.bias.detach().numpy()
    return gain, shift


def _add(x: Tensor, step: Tensor, bias: Tensor, norm: LayerNorm) -> None:
    add_and_normalise(x.numpy(), step.numpy(), bias.numpy(), *affine(norm), norm.eps)
