"""The configuration of a transformer: one frozen record of choices, and those of the five papers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flipscope.basics.arguments import later, required_names, stored_names
from flipscope.basics.checks import check_not_negative, check_positive, is_finite, shown
from flipscope.basics.errors import InputError

MAX_LAYERS = 10_000  # each consists of some twenty objects and takes milliseconds to create

_CHOICES: dict[str, tuple[str, ...]] = {
    "inputs": ("bits", "tokens", "patches"),
    "marker": ("eos", "cls", "none"),
    "positions": ("sinusoidal", "learned", "one_hot", "cyclic", "sincos_2d", "none"),
    "join": ("add", "concatenate"),
    "attention": ("softmax", "relu", "linear"),
    "combine": ("project", "sum"),
    "block": ("standard", "sum"),
    "activation": ("relu", "gelu", "gelu_tanh"),
    "norm": ("once", "post", "pre", "none"),
    "readout": ("first", "last", "mean", "every"),
    "head": ("linear", "tanh"),
}


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Every choice of a transformer; None stands for the default, given by the property named beside it."""

    # ---- what goes in
    inputs: Literal["bits", "tokens", "patches"] = "bits"
    vocabulary: int = 2  # number of symbols, the marker not counted
    marker: Literal["eos", "cls", "none"] = "eos"  # eos: one symbol after the string; cls: one before it
    max_length: int | None = None  # longest string, the marker not counted; None: any
    image_size: int | None = None  # patches only: height = width in pixels
    patch_size: int | None = None
    channels: int | None = None
    shifted_patches: bool = False  # each patch also sees the image moved one pixel in four directions
    patch_norm: bool = False  # layer norm of the pixels before they are projected
    patch_output_norm: bool = later(False)  # layer norm of the projected pixels, before positions are added
    padding: int | None = later(None)  # tokens only: the id that fills short strings, which the model ignores

    # ---- positions (Eq 7); sincos_2d: row and column of a patch, half of the width each
    positions: Literal["sinusoidal", "learned", "one_hot", "cyclic", "sincos_2d", "none"] = "sinusoidal"
    period: int | None = None  # cyclic: position i has the one-hot vector of i mod period
    join: Literal["add", "concatenate"] = "add"
    position_width: int | None = None  # concatenate: number of coordinates for the position
    embedding_norm: bool = False  # layer norm of symbol + position

    # ---- the layers
    width: int
    layers: int
    heads: int = 1
    head_size: int | None = None  # key_width: width / heads. Eq 8 has full-rank heads: head_size = width
    combine: Literal["project", "sum"] = "project"  # heads side by side times a matrix, or their sum (Eq 9)
    qkv_bias: bool = True
    output_bias: bool = later(True)  # of the matrix that joins the heads; False for patches only
    attention: Literal["softmax", "relu", "linear"] = "softmax"
    logit_scale: float | None = None  # scale: 1 / sqrt(head size). Eq 8a has 1
    learned_scale: bool = False  # train the logit scale of each layer, starting from the value above
    causal: bool = False
    mask_self: bool = False  # no position attends to itself
    block: Literal["standard", "sum"] = "standard"  # sum: the MLP acts on the attention sum alone (Eq 9)
    ffn_width: int | None = None  # hidden_width: 4 * width
    mlp_layers: int | None = None  # mlp_count: all. Only this many first layers have an MLP
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"

    # ---- layer norm (Eqs 11-13)
    norm: Literal["once", "post", "pre", "none"] = "post"  # once: at the end of a layer only (Eq 13)
    eps: float = 1e-5  # 0 is allowed: see `LayerNorm`
    affine: bool = True
    final_norm: bool = False  # one more after the last layer
    norm_before_mean: bool = later(False)  # readout="mean": the final norm acts on each position, not on their mean

    # ---- what comes out (Eq 14)
    readout: Literal["first", "last", "mean", "every"] = "last"  # with marker="eos", "last" reads at EOS
    head: Literal["linear", "tanh"] = "linear"  # tanh: a dense layer and tanh before the linear map
    outputs: int = 1
    head_bias: bool = True

    dropout: float = 0.0  # of the embedding, of the attention weights and of each sub-layer's output

    def __post_init__(self) -> None:
        _check_types(self)
        _check_inputs(self)
        _check_positions(self)
        _check_layers(self)

    @property
    def key_width(self) -> int:
        """Size of one head's query, key and value."""
        return self.width // self.heads if self.head_size is None else self.head_size

    @property
    def hidden_width(self) -> int:
        """Number of hidden units of an MLP."""
        return 4 * self.width if self.ffn_width is None else self.ffn_width

    @property
    def scale(self) -> float:
        """The factor of the attention logits."""
        return 1 / math.sqrt(self.key_width) if self.logit_scale is None else self.logit_scale

    @property
    def mlp_count(self) -> int:
        """Number of layers that have an MLP."""
        return self.layers if self.mlp_layers is None else self.mlp_layers

    @property
    def symbol_width(self) -> int:
        """Coordinates that hold the symbol: all of them, unless positions are concatenated."""
        return self.width - (self.position_width or 0)

    @property
    def patch_width(self) -> int:
        """Numbers in one patch, the shifted images included; 0 if the inputs are not patches."""
        if self.patch_size is None or self.channels is None:
            return 0
        return self.patch_size**2 * self.channels * (5 if self.shifted_patches else 1)

    @property
    def longest(self) -> int | None:
        """Most symbols, patches or bits an input may have, the marker not counted; None: any number."""
        if self.image_size is not None and self.patch_size is not None:
            return (self.image_size // self.patch_size) ** 2
        return self.max_length

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON object, without later ones at their defaults."""
        return {name: getattr(self, name) for name in stored_names(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> TransformerConfig:
        """The configuration with these fields, which must be exactly those of `as_dict`."""
        names = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(map(str, set(fields) - names)):
            raise InputError(f"the configuration has unknown fields {', '.join(unknown)}: remove them")
        if missing := sorted(set(required_names(cls)) - set(fields)):
            raise InputError(f"the configuration lacks the fields {', '.join(missing)}: add them")
        return cls(**fields)


def _check_types(config: TransformerConfig) -> None:
    """Raise InputError unless each field has its type, is one of its choices and is in range."""
    for field in dataclasses.fields(config):
        name, value, kind = field.name, getattr(config, field.name), str(field.type)
        if name in _CHOICES:
            if not isinstance(value, str) or value not in _CHOICES[name]:
                raise InputError(f"{name}={shown(value)} is not one of {', '.join(_CHOICES[name])}")
        elif kind == "bool":
            if not isinstance(value, bool):
                raise InputError(f"{name}={shown(value)} must be True or False")
        elif value is None and "None" in kind:
            continue
        elif kind.startswith("int"):
            smallest = 0 if name in ("mlp_layers", "padding") else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
                raise InputError(f"{name}={shown(value)} must be an integer of at least {smallest}")
        elif not is_finite(value):
            raise InputError(f"{name}={shown(value)} must be a finite number")
    check_not_negative("eps", config.eps)
    if not 0 <= config.dropout < 1:
        raise InputError(f"dropout={config.dropout} must be at least 0 and less than 1")
    if config.logit_scale is not None:
        check_positive("logit_scale", config.logit_scale)


def _check_inputs(config: TransformerConfig) -> None:
    """Raise InputError unless the choices about the input agree with each other."""
    if config.inputs == "bits" and config.vocabulary != 2:
        raise InputError(f"vocabulary={config.vocabulary} must be 2 when inputs='bits'")
    sizes = {name: getattr(config, name) for name in ("image_size", "patch_size", "channels")}
    if config.inputs != "patches":
        for name, value in (sizes | {"shifted_patches": config.shifted_patches or None}).items():
            if value is not None:
                raise InputError(f"{name}={value} is for inputs='patches' only, not {config.inputs!r}")
        for name, usual in (("patch_norm", False), ("patch_output_norm", False), ("output_bias", True)):
            if getattr(config, name) is not usual:
                raise InputError(f"{name}={not usual} is for inputs='patches' only, not {config.inputs!r}")
        _check_padding(config)
        return
    if config.padding is not None:
        raise InputError(f"padding={config.padding} is for inputs='tokens' only, not 'patches'")
    for name, value in sizes.items():
        if value is None:
            raise InputError(f"{name} must be given when inputs='patches'")
    if config.image_size is not None and config.patch_size and config.image_size % config.patch_size:
        raise InputError(f"image_size={config.image_size} must be a multiple of patch_size={config.patch_size}")
    if config.max_length is not None:
        raise InputError(f"max_length={config.max_length} must be None when inputs='patches'")


def _check_padding(config: TransformerConfig) -> None:
    """Raise InputError unless the padding is one of the tokens, and the string's end can be read beside it."""
    if config.padding is None:
        return
    if config.inputs != "tokens":
        raise InputError(f"padding={config.padding} is for inputs='tokens' only, not {config.inputs!r}")
    if config.padding >= config.vocabulary:
        raise InputError(f"padding={config.padding} must be less than vocabulary={config.vocabulary}")
    if config.marker == "eos" or config.readout == "every":
        raise InputError(
            "padding goes with marker='cls' or 'none' and one answer per string: put the end symbol into the tokens"
        )


def _check_positions(config: TransformerConfig) -> None:
    """Raise InputError unless positions have the room and the length they need."""
    places = None if config.longest is None else config.longest + (config.marker != "none")
    if config.positions in ("learned", "one_hot") and places is None:
        raise InputError(f"max_length must be given when positions={config.positions!r}")
    if (config.positions == "cyclic") != (config.period is not None):
        raise InputError(f"period={config.period} goes with positions='cyclic', not {config.positions!r}")
    if (config.join == "concatenate") != (config.position_width is not None):
        raise InputError(f"position_width={config.position_width} goes with join='concatenate', not {config.join!r}")
    if config.join == "concatenate" and config.positions == "none":
        raise InputError("join='concatenate' needs positions, but positions='none'")
    if config.symbol_width < 1:
        raise InputError(
            f"position_width={config.position_width} must be less than width={config.width}, for the symbols"
        )
    if config.positions == "sincos_2d":
        if config.inputs != "patches" or config.marker != "none":
            raise InputError("positions='sincos_2d' are those of patches without a marker: say marker='none'")
        if config.symbol_width != config.width or config.width % 4 or config.width < 8:
            raise InputError(f"positions='sincos_2d' are added and need a width of 8, 12, 16, ..., not {config.width}")
    codes = places if config.positions == "one_hot" else config.period
    room = config.width if config.position_width is None else config.position_width
    if codes is not None and codes > room:
        raise InputError(
            f"{codes} one-hot positions do not fit into {room} coordinates: "
            f"raise {'width' if config.join == 'add' else 'position_width'}"
        )


def _check_layers(config: TransformerConfig) -> None:
    """Raise InputError unless heads, blocks and norms agree with each other."""
    if config.layers > MAX_LAYERS:
        raise InputError(f"layers={config.layers} must be at most {MAX_LAYERS}")
    if config.head_size is None and config.width % config.heads:
        raise InputError(f"width={config.width} must be a multiple of heads={config.heads} unless head_size is given")
    if config.combine == "sum" and config.key_width != config.width:
        raise InputError(f"combine='sum' needs head_size={config.width}, the width, but it is {config.key_width}")
    if config.block == "sum" and config.norm == "post":
        raise InputError("norm='post' has no place in block='sum', which has one residual: say norm='once'")
    if config.mlp_count > config.layers:
        raise InputError(f"mlp_layers={config.mlp_layers} must be at most layers={config.layers}")
    if config.block == "sum" and config.mlp_count < config.layers:
        raise InputError(f"mlp_layers={config.mlp_layers} must be None when block='sum'")
    if config.norm_before_mean and (config.readout != "mean" or not config.final_norm):
        raise InputError("norm_before_mean=True needs readout='mean' and final_norm=True")
    if config.mask_self and config.causal:
        raise InputError("mask_self=True and causal=True leave the first position nothing to attend to")


# ---------------------------------------------------------------- presets, named after what they study
