"""The models of paper 004's experiments by name, for the images or texts of a data set, and smaller ones for two cores.

    >>> image_model("vit-small", ImageShape("cifar-10", 32, 3)).heads
    32
    >>> text_model("lstm-small", TextShape(vocabulary=500, length=24)).width
    64

Sizes are those of appendix D, where they depend on the data set. What it does not state is as in the implementations
that it names. Names with "-small" are the smaller ones; since ViT-small is the paper's name of an architecture, its
smaller one is vit-tiny.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from flipscope.basics.errors import InputError
from flipscope.models.baselines.config import (
    Activation,
    CNNConfig,
    ConvMixerConfig,
    DenseNetConfig,
    LSTMConfig,
    MLPConfig,
    ResNetConfig,
)
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import gpt2, roberta, vit_simple, vit_small

ImageModel = TransformerConfig | MLPConfig | CNNConfig | ResNetConfig | DenseNetConfig | ConvMixerConfig
TextModel = TransformerConfig | LSTMConfig


class _Sizes(TypedDict):
    image_size: int
    channels: int


class _TextSizes(TypedDict, total=False):
    """Of small models. They have no dropout, with which models of width 64 learned little of the synthetic set."""

    width: int
    layers: int
    heads: int
    dropout: float


@dataclass(frozen=True)
class ImageShape:
    """The images of a data set: its name, height = width in pixels, channels, and number of classes."""

    name: str
    image_size: int
    channels: int
    classes: int = 10

    @property
    def patch_size(self) -> int:
        """Pixels at a side of a patch: 7 for MNIST and 4 for the paper's other sets; 2 for images below 16 pixels."""
        return 7 if self.name == "mnist" else 4 if self.image_size >= 16 else 2

    @property
    def sizes(self) -> _Sizes:
        """Height and channels, as arguments of configurations."""
        return {"image_size": self.image_size, "channels": self.channels}


@dataclass(frozen=True)
class TextShape:
    """The texts of a data set: number of token ids, tokens of the longest text, the id of padding, and classes."""

    vocabulary: int
    length: int
    padding: int | None = None
    classes: int = 2


# Depth, heads and hidden units of the ViT's MLP by data set; CIFAR-10's for others.
_VIT_SIZES: Mapping[str, tuple[int, int, int]] = {
    "mnist": (2, 1, 128),
    "fashion-mnist": (2, 8, 256),
    "cifar-10": (8, 32, 256),
    "svhn": (8, 32, 512),
}


def _vit_small(shape: ImageShape) -> TransformerConfig:
    layers, heads, hidden = _VIT_SIZES.get(shape.name, _VIT_SIZES["cifar-10"])
    return vit_small(
        patch_size=shape.patch_size, layers=layers, heads=heads, ffn_width=hidden, outputs=shape.classes, **shape.sizes
    )


def _vit_tiny(shape: ImageShape) -> TransformerConfig:
    return vit_small(
        patch_size=shape.patch_size, layers=4, heads=4, ffn_width=128, outputs=shape.classes, **shape.sizes
    )


def _vit_simple(shape: ImageShape) -> TransformerConfig:
    return vit_simple(patch_size=_normed_patch(shape), outputs=shape.classes, **shape.sizes)


def _vit_simple_small(shape: ImageShape) -> TransformerConfig:
    return vit_simple(
        patch_size=_normed_patch(shape), layers=4, heads=4, ffn_width=128, outputs=shape.classes, **shape.sizes
    )


def _normed_patch(shape: ImageShape) -> int:
    """Pixels at a side of a patch that is normalised: of 2 x 2 pixels a norm leaves too little to see."""
    return max(4, shape.patch_size)


def _mlp(activation: Activation, small: bool = False) -> Callable[[ImageShape], MLPConfig]:
    def made(shape: ImageShape) -> MLPConfig:
        hidden = (64, 32) if small else (100,) if shape.name == "mnist" else (512, 128)
        return MLPConfig(hidden=hidden, activation=activation, classes=shape.classes, **shape.sizes)

    return made


def _cnn(shape: ImageShape) -> CNNConfig:
    return CNNConfig(classes=shape.classes, **shape.sizes)


def _cnn_small(shape: ImageShape) -> CNNConfig:
    return CNNConfig(filters=16, hidden=64, classes=shape.classes, **shape.sizes)


def _resnet(shape: ImageShape) -> ResNetConfig:
    return ResNetConfig(classes=shape.classes, **shape.sizes)


def _resnet_small(shape: ImageShape) -> ResNetConfig:
    return ResNetConfig(start=16, classes=shape.classes, **shape.sizes)


def _densenet(shape: ImageShape) -> DenseNetConfig:
    return DenseNetConfig(classes=shape.classes, **shape.sizes)


def _densenet_small(shape: ImageShape) -> DenseNetConfig:
    return DenseNetConfig(growth=8, blocks=(3, 6, 6), start=16, classes=shape.classes, **shape.sizes)


def _convmixer(shape: ImageShape) -> ConvMixerConfig:
    return ConvMixerConfig(patch_size=shape.patch_size, classes=shape.classes, **shape.sizes)


def _convmixer_small(shape: ImageShape) -> ConvMixerConfig:
    return ConvMixerConfig(
        patch_size=shape.patch_size, channels_inside=64, depth=3, classes=shape.classes, **shape.sizes
    )


def _roberta(attention: str, small: bool = False) -> Callable[[TextShape], TransformerConfig]:
    def made(shape: TextShape) -> TransformerConfig:
        sizes: _TextSizes = {"width": 64, "layers": 2, "heads": 4, "dropout": 0.0} if small else {}
        return roberta(
            shape.vocabulary,
            shape.length,
            attention="relu" if attention == "relu" else "softmax",
            outputs=shape.classes,
            padding=shape.padding,
            **sizes,
        )

    return made


def _gpt2(shape: TextShape) -> TransformerConfig:
    return gpt2(shape.vocabulary, shape.length, outputs=shape.classes, padding=shape.padding)


def _gpt2_small(shape: TextShape) -> TransformerConfig:
    sizes: _TextSizes = {"width": 64, "layers": 4, "heads": 8, "dropout": 0.0}
    return gpt2(shape.vocabulary, shape.length, outputs=shape.classes, padding=shape.padding, **sizes)


def _lstm(shape: TextShape) -> LSTMConfig:
    return LSTMConfig(vocabulary=shape.vocabulary, length=shape.length, classes=shape.classes, padding=shape.padding)


def _lstm_small(shape: TextShape) -> LSTMConfig:
    return LSTMConfig(
        vocabulary=shape.vocabulary,
        length=shape.length,
        classes=shape.classes,
        padding=shape.padding,
        width=64,
        layers=2,
    )


IMAGE_MODELS: Mapping[str, Callable[[ImageShape], ImageModel]] = {
    "vit-small": _vit_small,
    "vit-simple": _vit_simple,
    "mlp": _mlp("leaky_relu"),
    "mlp-sigmoid": _mlp("sigmoid"),
    "cnn": _cnn,
    "resnet-18": _resnet,
    "densenet-121": _densenet,
    "convmixer": _convmixer,
    "vit-tiny": _vit_tiny,
    "vit-simple-small": _vit_simple_small,
    "mlp-small": _mlp("leaky_relu", small=True),
    "mlp-sigmoid-small": _mlp("sigmoid", small=True),
    "cnn-small": _cnn_small,
    "resnet-small": _resnet_small,
    "densenet-small": _densenet_small,
    "convmixer-small": _convmixer_small,
}
TEXT_MODELS: Mapping[str, Callable[[TextShape], TextModel]] = {
    "roberta": _roberta("softmax"),
    "roberta-relu": _roberta("relu"),
    "gpt2": _gpt2,
    "lstm": _lstm,
    "roberta-small": _roberta("softmax", small=True),
    "roberta-relu-small": _roberta("relu", small=True),
    "gpt2-small": _gpt2_small,
    "lstm-small": _lstm_small,
}


def image_model(name: str, shape: ImageShape) -> ImageModel:
    """The configuration of this name for such images; InputError if there is none."""
    return IMAGE_MODELS[_known(name, "images", IMAGE_MODELS, TEXT_MODELS)](shape)


def text_model(name: str, shape: TextShape) -> TextModel:
    """The configuration of this name for such texts; InputError if there is none."""
    return TEXT_MODELS[_known(name, "texts", TEXT_MODELS, IMAGE_MODELS)](shape)


def _known(name: str, what: str, models: Mapping[str, object], others: Mapping[str, object]) -> str:
    if name in models:
        return name
    if name in others:
        raise InputError(f"the model {name!r} does not read {what}: give one of {', '.join(models)}")
    near = difflib.get_close_matches(name, models, 1)
    hint = f": did you mean {near[0]}?" if near else f": give one of {', '.join(models)}"
    raise InputError(f"there is no model {name!r} for {what}{hint}")
