"""The configurations of MLP, CNN, ResNet, DenseNet, ConvMixer and LSTM: frozen records of choices, without PyTorch.

Their defaults are the sizes of appendix D of paper 004. What the paper leaves open is as in the implementations that it
names, such as a ResNet and a DenseNet whose first convolution is 3 x 3 with stride 1, for images of 32 pixels.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from flipscope.basics.arguments import check_fields, required_names, stored_names
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory

if TYPE_CHECKING:
    import numpy as np
    import torch

    from flipscope.models.baselines.images import ImageNetwork
    from flipscope.models.baselines.lstm import LSTM
    from flipscope.models.init import Scheme

Activation = Literal["leaky_relu", "relu", "sigmoid"]
C = TypeVar("C", bound="BaselineConfig")


@dataclass(frozen=True)
class Map:
    """A linear map inside a network: a matrix, or a convolution at `places` positions of its output."""

    inputs: int
    outputs: int
    kernel: int = 1  # side of a square
    places: int = 1
    groups: int = 1

    @property
    def weights(self) -> int:
        """Entries of its matrix."""
        return self.outputs * self.inputs // self.groups * self.kernel**2


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """What all configurations of baselines have in common."""

    kind: ClassVar[str]  # its name in files and recipes
    name: ClassVar[str]  # in sentences
    inputs: ClassVar[Literal["images", "tokens"]]

    classes: int = 10

    def __post_init__(self) -> None:
        check_fields(self)
        for each in dataclasses.fields(self):
            values = getattr(self, each.name)
            numbers = values if isinstance(values, tuple) else (values,)
            if each.name not in ("dropout", "padding"):
                for number in numbers:
                    if isinstance(number, int) and not isinstance(number, bool):
                        check_count(each.name, number)
        check_count("classes", self.classes, 2)

    def maps(self) -> list[Map]:
        """Its linear maps from input to output."""
        raise NotImplementedError

    @property
    def layers(self) -> int:
        """Number of linear maps."""
        return len(self.maps())

    @property
    def width(self) -> int:
        """Channels or units of the widest layer."""
        return max(each.outputs for each in self.maps())

    @property
    def heads(self) -> int:
        """There is no attention, so one, for code that counts heads."""
        return 1

    @property
    def max_length(self) -> int | None:
        """The longest string, under the same name as for transformers."""
        return None

    def numbers(self) -> int:
        """The number of entries of its matrices, which are nearly all its parameters."""
        return sum(each.weights for each in self.maps())

    def multiplications(self, length: int = 1) -> int:
        """Multiplications of one forward pass, for a text of this length."""
        return sum(each.weights * each.places for each in self.maps())

    def activations(self, length: int = 1) -> int:
        """Numbers that the linear maps put out in one forward pass, for a text of this length."""
        return sum(each.outputs * each.places for each in self.maps())

    def check_fits(self, length: int, data: Any) -> None:
        """Raise InputError unless it can be trained on this data with inputs of this length."""
        raise NotImplementedError

    def network(
        self,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype | None = None,
    ) -> ImageNetwork | LSTM:
        """The model, in float32 by default; with seed=None without data."""
        raise NotImplementedError

    def check_size(self, number: int = 4) -> None:
        """Raise InputError if the model does not fit into memory with this many bytes per number."""
        check_memory(number * self.numbers(), f"{self.name} with {self.numbers():,} weights", "make it smaller")

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON object, with the kind."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in stored_names(self)}}

    @classmethod
    def from_dict(cls: type[C], fields: Mapping[str, Any]) -> C:
        """The configuration with these fields, which must be exactly those of `as_dict`."""
        names = {"kind", *(field.name for field in dataclasses.fields(cls))}
        if not {"kind", *required_names(cls)} <= set(fields) <= names or fields["kind"] != cls.kind:
            raise InputError(f"the configuration of {cls.name} has the fields {', '.join(sorted(names))}")
        own: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items() if name != "kind"
        }
        return cls(**own)


# ---------------------------------------------------------------- networks that read images


@dataclass(frozen=True, kw_only=True)
class ImageConfig(BaselineConfig):
    """The image that a network reads: height = width in pixels, and its channels."""

    inputs: ClassVar[Literal["images", "tokens"]] = "images"

    image_size: int
    channels: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_image()
        self.check_size()

    def _check_image(self) -> None:
        """Raise InputError if the image is too small for the layers."""

    def check_fits(self, length: int, data: Any) -> None:
        """Raise InputError unless it can be trained on these images."""
        check_image_shape(self.image_size, self.channels, self.classes, data)

    def network(
        self,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype | None = None,
    ) -> ImageNetwork:
        """The model, in float32 by default; with seed=None without data."""
        import torch

        from flipscope.models.baselines.images import NETWORKS

        return NETWORKS[self.kind](self, scheme=scheme, seed=seed, dtype=dtype or torch.float32)


def check_image_shape(image_size: int | None, channels: int | None, classes: int, data: Any) -> None:
    """Raise InputError unless a model for such images can be trained on this data."""
    size, depth, count = (getattr(data, name, None) for name in ("image_size", "channels", "classes"))
    if size is None:
        raise InputError("the model reads images, and the data have none: give the data of an image set")
    if (size, depth) != (image_size, channels):
        raise InputError(
            f"the images have {size} x {size} pixels and {_channels(depth)}, and the model reads "
            f"{image_size} x {image_size} and {_channels(channels)}: give them the same sizes"
        )
    if count is not None and count > classes:
        raise InputError(f"the images have {count} classes, and the model {classes} outputs: give it {count}")


def _channels(count: int | None) -> str:
    return f"{count} channel{'' if count == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class MLPConfig(ImageConfig):
    """Dense layers on the pixels of an image; the last has no bias, as in the released code.

    >>> MLPConfig(image_size=28, channels=1).numbers()
    468224
    """

    kind: ClassVar[str] = "mlp"
    name: ClassVar[str] = "an MLP"

    hidden: tuple[int, ...] = (512, 128)
    activation: Activation = "leaky_relu"

    def maps(self) -> list[Map]:
        sizes = [self.image_size**2 * self.channels, *self.hidden, self.classes]
        return [Map(before, after) for before, after in itertools.pairwise(sizes)]


@dataclass(frozen=True, kw_only=True)
class CNNConfig(ImageConfig):
    """Convolutions without padding, a maximum over squares of 2 x 2, and two dense layers.

    `last_activation` says whether the last convolution is followed by the activation too: the paper does not say, and
    the released code has none there.

    >>> CNNConfig(image_size=28, channels=1).maps()[-2].inputs
    4608
    """

    kind: ClassVar[str] = "cnn"
    name: ClassVar[str] = "a CNN"

    filters: int = 32
    convolutions: int = 2
    kernel: int = 3
    hidden: int = 128
    activation: Activation = "leaky_relu"
    last_activation: bool = False

    @property
    def side(self) -> int:
        """Height of the image after the convolutions and the maximum."""
        return (self.image_size - self.convolutions * (self.kernel - 1)) // 2

    def _check_image(self) -> None:
        if self.side < 1:
            raise InputError(
                f"{self.convolutions} convolutions of {self.kernel} x {self.kernel} leave nothing of an image of "
                f"{self.image_size} x {self.image_size} pixels: give fewer"
            )

    def maps(self) -> list[Map]:
        found, before, side = [], self.channels, self.image_size
        for _ in range(self.convolutions):
            side -= self.kernel - 1
            found.append(Map(before, self.filters, self.kernel, side**2))
            before = self.filters
        return [*found, Map(self.filters * self.side**2, self.hidden), Map(self.hidden, self.classes)]


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(ImageConfig):
    """A ResNet of blocks of two convolutions, in its form for small images: no pooling at the start.

    >>> len(ResNetConfig(image_size=32, channels=3).maps())  # 18, and three for the shortcuts
    21
    """

    kind: ClassVar[str] = "resnet"
    name: ClassVar[str] = "a ResNet"

    start: int = 64  # channels of the first stage; each later one has twice as many
    blocks: tuple[int, ...] = (2, 2, 2, 2)  # of each stage

    def stages(self) -> list[list[tuple[int, int, int]]]:
        """For each block of each stage its channels before and after, and its stride."""
        found, before = [], self.start
        for number, count in enumerate(self.blocks):
            after = self.start << number
            strides = [1 if number == 0 else 2] + [1] * (count - 1)
            found.append([(before if place == 0 else after, after, stride) for place, stride in enumerate(strides)])
            before = after
        return found

    def maps(self) -> list[Map]:
        side = self.image_size
        found = [Map(self.channels, self.start, 3, side**2)]
        for before, after, stride in (block for stage in self.stages() for block in stage):
            side = -(-side // stride)
            found += [Map(before, after, 3, side**2), Map(after, after, 3, side**2)]
            if stride != 1 or before != after:
                found.append(Map(before, after, 1, side**2))
        return [*found, Map(self.start << (len(self.blocks) - 1), self.classes)]


@dataclass(frozen=True, kw_only=True)
class DenseNetConfig(ImageConfig):
    """A DenseNet with bottlenecks, in its form for small images: a first convolution of 3 x 3, then a maximum.

    >>> DenseNetConfig(image_size=32, channels=3).layers  # 121, its name
    121
    """

    kind: ClassVar[str] = "densenet"
    name: ClassVar[str] = "a DenseNet"

    growth: int = 32  # channels that each layer adds
    blocks: tuple[int, ...] = (6, 12, 24, 16)  # layers of each
    start: int = 64  # channels of the first convolution
    bottleneck: int = 4  # times the growth: channels between the two convolutions of a layer

    @property
    def side(self) -> int:
        """Height of the image in the last block."""
        return -(-self.image_size // 2) >> (len(self.blocks) - 1)

    def _check_image(self) -> None:
        if self.side < 1:
            raise InputError(
                f"{len(self.blocks)} blocks halve an image of {self.image_size} x {self.image_size} pixels to nothing: "
                "give fewer"
            )

    def maps(self) -> list[Map]:
        side, wide, inner = -(-self.image_size // 2), self.start, self.bottleneck * self.growth
        found = [Map(self.channels, self.start, 3, self.image_size**2)]
        for number, count in enumerate(self.blocks):
            for _ in range(count):
                found += [Map(wide, inner, 1, side**2), Map(inner, self.growth, 3, side**2)]
                wide += self.growth
            if number < len(self.blocks) - 1:
                found.append(Map(wide, wide // 2, 1, side**2))
                side, wide = side // 2, wide // 2
        return [*found, Map(wide, self.classes)]


@dataclass(frozen=True, kw_only=True)
class ConvMixerConfig(ImageConfig):
    """Patches, then blocks that mix positions by a convolution of each channel, and channels at each position."""

    kind: ClassVar[str] = "convmixer"
    name: ClassVar[str] = "a ConvMixer"

    patch_size: int = 4
    channels_inside: int = 128
    depth: int = 6
    kernel: int = 3

    def _check_image(self) -> None:
        if self.patch_size > self.image_size:
            raise InputError(f"patch_size={self.patch_size} must be at most image_size={self.image_size}")

    def maps(self) -> list[Map]:
        wide, places = self.channels_inside, (self.image_size // self.patch_size) ** 2
        block = [Map(wide, wide, self.kernel, places, groups=wide), Map(wide, wide, 1, places)]
        return [Map(self.channels, wide, self.patch_size, places), *block * self.depth, Map(wide, self.classes)]


# ---------------------------------------------------------------- the network that reads tokens


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(BaselineConfig):
    """A stack of LSTM layers on embedded tokens, read after the last token that is no padding.

    The embeddings are normalised, so that noise has one scale for every token. `trained="recurrent"` leaves embeddings
    and read-out as they were drawn, which is what the released code does.

    >>> LSTMConfig(vocabulary=50265, length=128).width
    256
    """

    kind: ClassVar[str] = "lstm"
    name: ClassVar[str] = "an LSTM"
    inputs: ClassVar[Literal["images", "tokens"]] = "tokens"

    vocabulary: int
    length: int  # of the longest text
    classes: int = 2
    width: int = 256
    layers: int = 4
    dropout: float = 0.1  # between the layers
    padding: int | None = None  # the id that fills short texts
    trained: Literal["all", "recurrent"] = "all"
    eps: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout={self.dropout} must be at least 0 and less than 1")
        if self.padding is not None and not 0 <= self.padding < self.vocabulary:
            raise InputError(f"padding={self.padding} must be a token, from 0 to {self.vocabulary - 1}")
        if not self.eps > 0:
            raise InputError(f"eps={self.eps} must be positive")
        self.check_size()

    @property
    def max_length(self) -> int:
        """The longest text."""
        return self.length

    def maps(self) -> list[Map]:
        """The recurrent layers, each at one token, and the read-out; the table of embeddings is no linear map."""
        return [Map(2 * self.width, 4 * self.width)] * self.layers + [Map(self.width, self.classes)]

    def numbers(self) -> int:
        """The number of entries of its matrices, the table of embeddings included."""
        return self.vocabulary * self.width + super().numbers()

    def multiplications(self, length: int = 1) -> int:
        """Multiplications of one forward pass for a text of this length."""
        return length * super().multiplications()

    def activations(self, length: int = 1) -> int:
        """Numbers that the layers put out in one forward pass for a text of this length."""
        return length * super().activations()

    def check_fits(self, length: int, data: Any) -> None:
        """Raise InputError unless it can be trained on texts of this length."""
        if getattr(data, "inputs", None) != "tokens" or getattr(data, "answer", None) != "string":
            raise InputError("an LSTM reads tokens and gives one answer per text: give the data of a text set")
        if length > self.length:
            raise InputError(
                f"the texts have up to {length:,} tokens, and the model reads {self.length:,}: raise length"
            )
        words = getattr(data, "vocabulary", None)
        if words is not None and words > self.vocabulary:
            raise InputError(f"the texts have {words:,} tokens to choose from, and the model {self.vocabulary:,}")

    def network(
        self,
        *,
        scheme: Scheme = "pytorch",
        seed: int | np.random.Generator | None = 0,
        dtype: torch.dtype | None = None,
    ) -> LSTM:
        """The model, in float32 by default; with seed=None without data."""
        import torch

        from flipscope.models.baselines.lstm import LSTM

        return LSTM(self, scheme=scheme, seed=seed, dtype=dtype or torch.float32)
