"""The networks that read images [image, channel, row, column] and give a logit for each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from flipscope.basics.errors import InputError
from flipscope.models.baselines.config import (
    CNNConfig,
    ConvMixerConfig,
    DenseNetConfig,
    ImageConfig,
    MLPConfig,
    ResNetConfig,
)
from flipscope.models.init import Linear, M, Scheme, initialise

_ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
}


class BatchNorm(nn.BatchNorm2d):
    """PyTorch's, without its counter of batches, which its moving averages do not use and which is no float."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.num_batches_tracked = None

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *others: Any
    ) -> None:
        # PyTorch adds the counter to tensors of its first version, and takes those without a version for such.
        super()._load_from_state_dict(state_dict, prefix, {**local_metadata, "version": 2}, *others)


def drawn(model: M, scheme: Scheme, seed: int | np.random.Generator | None, dtype: torch.dtype) -> M:
    """The model, built on the meta device, with parameters of this seed; without data for None."""
    model.to(dtype)
    if seed is None:
        return model
    model.to_empty(device="cpu")
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.reset_running_stats()
    return initialise(model, scheme, seed)


class ImageNetwork(nn.Module):
    """A network of images with the parameters of a seed; a subclass builds its layers."""

    def __init__(
        self,
        config: ImageConfig,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config: Any = config
        with torch.device("meta"):  # so that PyTorch's global generator is not used
            self.build()
        drawn(self, scheme, seed, dtype)

    def build(self) -> None:
        """Create the layers."""
        raise NotImplementedError

    def run(self, images: Tensor) -> Tensor:
        """The logits of checked images."""
        raise NotImplementedError

    def forward(self, images: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image class"]:
        """Logits of the classes."""
        self.check(images)
        return self.run(images)

    def check(self, images: Tensor) -> None:
        """Raise InputError unless the model can read these images."""
        shape = (self.config.channels, self.config.image_size, self.config.image_size)
        if not isinstance(images, Tensor) or not images.is_floating_point() or tuple(images.shape[1:]) != shape:
            what = (
                f"shape {tuple(images.shape)} and type {images.dtype}"
                if isinstance(images, Tensor)
                else type(images).__name__
            )
            raise InputError(f"inputs of {what} must be numbers [image, {', '.join(map(str, shape))}]")


class MLP(ImageNetwork):
    """Dense layers on the pixels."""

    config: MLPConfig

    def build(self) -> None:
        *first, last = self.config.maps()
        self.hidden = nn.ModuleList(Linear(each.inputs, each.outputs) for each in first)
        self.activation = _ACTIVATIONS[self.config.activation]()
        self.head = Linear(last.inputs, last.outputs, bias=False)

    def run(self, images: Tensor) -> Tensor:
        x = images.flatten(1)  # [image, pixel]
        for layer in self.hidden:
            x = self.activation(layer(x))
        out: Tensor = self.head(x)
        return out


class CNN(ImageNetwork):
    """Convolutions, a maximum over squares, and two dense layers."""

    config: CNNConfig

    def build(self) -> None:
        *convolutions, dense, last = self.config.maps()
        self.convolutions = nn.ModuleList(nn.Conv2d(each.inputs, each.outputs, each.kernel) for each in convolutions)
        self.activation = _ACTIVATIONS[self.config.activation]()
        self.dense = Linear(dense.inputs, dense.outputs)
        self.head = Linear(last.inputs, last.outputs)

    def run(self, images: Tensor) -> Tensor:
        x = images
        for number, convolution in enumerate(self.convolutions, start=1):
            x = convolution(x)
            if number < self.config.convolutions or self.config.last_activation:
                x = self.activation(x)
        x = F.max_pool2d(x, 2).flatten(1)  # [image, filter * row * column]
        out: Tensor = self.head(self.activation(self.dense(x)))
        return out


class ResidualBlock(nn.Module):
    """Two convolutions with norms, added to the input or to its projection."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = BatchNorm(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = BatchNorm(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), BatchNorm(after))

    def forward(self, x: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image after down across"]:
        """The block's output."""
        y = self.norm2(self.second(self.norm1(self.first(x)).relu()))
        out: Tensor = y + self.shortcut(x)
        return out.relu()


class ResNet(ImageNetwork):
    """Stages of residual blocks, and the mean over positions."""

    config: ResNetConfig

    def build(self) -> None:
        config = self.config
        self.stem = nn.Conv2d(config.channels, config.start, 3, padding=1, bias=False)
        self.norm = BatchNorm(config.start)
        self.stages = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(*block) for block in stage)) for stage in config.stages()
        )
        self.head = Linear(config.start << (len(config.blocks) - 1), config.classes)

    def run(self, images: Tensor) -> Tensor:
        x = self.norm(self.stem(images)).relu()
        for stage in self.stages:
            x = stage(x)
        out: Tensor = self.head(x.mean(dim=(2, 3)))
        return out


class DenseLayer(nn.Module):
    """Norm, activation and convolution, twice; the result is appended to the input's channels."""

    def __init__(self, before: int, inner: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = BatchNorm(before), BatchNorm(inner)
        self.first = nn.Conv2d(before, inner, 1, bias=False)
        self.second = nn.Conv2d(inner, growth, 3, padding=1, bias=False)

    def forward(self, x: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image more row column"]:
        """The input with the new channels."""
        y = self.first(self.norm1(x).relu())
        return torch.cat([x, self.second(self.norm2(y).relu())], dim=1)


class Transition(nn.Module):
    """Half the channels and half the size."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.norm = BatchNorm(before)
        self.map = nn.Conv2d(before, before // 2, 1, bias=False)

    def forward(self, x: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image half down across"]:
        """Means over squares of 2 x 2 of the mixed channels."""
        return F.avg_pool2d(self.map(self.norm(x).relu()), 2)


class DenseNet(ImageNetwork):
    """Blocks of dense layers with transitions between them, and the mean over positions."""

    config: DenseNetConfig

    def build(self) -> None:
        config, wide = self.config, self.config.start
        self.stem = nn.Conv2d(config.channels, wide, 3, padding=1, bias=False)
        self.norm = BatchNorm(wide)
        blocks, transitions = [], []
        for number, count in enumerate(config.blocks):
            sizes = [wide + place * config.growth for place in range(count)]
            inner = config.bottleneck * config.growth
            blocks.append(nn.Sequential(*(DenseLayer(size, inner, config.growth) for size in sizes)))
            wide += count * config.growth
            if number < len(config.blocks) - 1:
                transitions.append(Transition(wide))
                wide //= 2
        self.blocks, self.transitions = nn.ModuleList(blocks), nn.ModuleList(transitions)
        self.final_norm = BatchNorm(wide)
        self.head = Linear(wide, config.classes)

    def run(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(self.norm(self.stem(images)).relu(), 3, stride=2, padding=1)
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number < len(self.transitions):
                x = self.transitions[number](x)
        out: Tensor = self.head(self.final_norm(x).relu().mean(dim=(2, 3)))
        return out


class MixerBlock(nn.Module):
    """A convolution of each channel, added to the input, then a map of the channels at each position."""

    def __init__(self, wide: int, kernel: int) -> None:
        super().__init__()
        self.positions = nn.Conv2d(wide, wide, kernel, groups=wide, padding="same")
        self.norm1 = BatchNorm(wide)
        self.channels = nn.Conv2d(wide, wide, 1)
        self.norm2 = BatchNorm(wide)

    def forward(self, x: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image channel row column"]:
        """The block's output."""
        x = x + self.norm1(F.gelu(self.positions(x)))
        out: Tensor = self.norm2(F.gelu(self.channels(x)))
        return out


class ConvMixer(ImageNetwork):
    """Patches, mixer blocks, and the mean over positions."""

    config: ConvMixerConfig

    def build(self) -> None:
        config, wide = self.config, self.config.channels_inside
        self.stem = nn.Conv2d(config.channels, wide, config.patch_size, stride=config.patch_size)
        self.norm = BatchNorm(wide)
        self.blocks = nn.ModuleList(MixerBlock(wide, config.kernel) for _ in range(config.depth))
        self.head = Linear(wide, config.classes)

    def run(self, images: Tensor) -> Tensor:
        x = self.norm(F.gelu(self.stem(images)))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x.mean(dim=(2, 3)))
        return out


NETWORKS: Mapping[str, type[ImageNetwork]] = {
    MLPConfig.kind: MLP,
    CNNConfig.kind: CNN,
    ResNetConfig.kind: ResNet,
    DenseNetConfig.kind: DenseNet,
    ConvMixerConfig.kind: ConvMixer,
}
