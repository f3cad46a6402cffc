"""The papers' networks as configurations, for `Transformer`; `dataclasses.replace` changes one field of them.

>>> import dataclasses
>>> dataclasses.replace(encoder(width=32), causal=True).causal
True
"""

from __future__ import annotations

import math
from typing import Literal

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, shown
from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.models.config import TransformerConfig


@checked_arguments
def recognizer(width: int = 16, layers: int = 2, heads: int = 1, *, eps: float = 0.0) -> TransformerConfig:
    """The recognizer of the geometry paper (Eqs 7-14): full-rank heads, MLP on their sum, one bare norm.

    >>> recognizer(width=8, heads=2).combine
    'sum'
    """
    return TransformerConfig(
        width=width,
        layers=layers,
        heads=heads,
        head_size=width,
        combine="sum",
        qkv_bias=False,
        logit_scale=1.0,
        block="sum",
        ffn_width=width,
        norm="once",
        eps=eps,
        affine=False,
    )


@checked_arguments
def encoder(
    width: int = 64, layers: int = 4, heads: int = 4, *, ffn_width: int | None = None, eps: float = 1e-5
) -> TransformerConfig:
    """The encoder of the geometry paper's experiments (App. F): PyTorch's, sinusoidal positions, read at EOS.

    The paper only says that eps of the norm is a small constant; 1e-5 after each sub-layer is PyTorch's default.

    >>> encoder(width=16, layers=1).norm
    'post'
    """
    return TransformerConfig(width=width, layers=layers, heads=heads, ffn_width=ffn_width, eps=eps)


@checked_arguments
def hardness(length: int, width: int = 128, layers: int = 2, heads: int = 2) -> TransformerConfig:
    """The encoder of the hardness paper: half the width is for learned positions, no EOS.

    >>> hardness(20).position_width
    64
    """
    if width % 2:
        raise InputError(f"width={width} must be even: half of it is for the position")
    return TransformerConfig(
        width=width,
        layers=layers,
        heads=heads,
        ffn_width=width,
        marker="none",
        max_length=length,
        positions="learned",
        join="concatenate",
        position_width=width // 2,
    )


@checked_arguments
def fourier(length: int = 20, bit_width: int = 30, *, dropout: float = 0.1) -> TransformerConfig:
    """The model of the sharper-picture paper: two attention layers with one MLP between, no norm.

    Attention logits are scaled by 2 log T / sqrt(width). The CLS symbol stands after the bits, which is `eos`
    here, and has a one-hot position of its own: 20 bits give 21 + 30 = 51 coordinates.

    >>> fourier(20).width
    51
    """
    if length < 2:
        raise InputError(f"length={shown(length)} must be at least 2, for log T to be positive")
    width = length + 1 + check_count("bit_width", bit_width)
    check_memory(4 * width, "one position of the model", "give a smaller length or bit_width")
    return TransformerConfig(
        width=width,
        layers=2,
        combine="sum",
        qkv_bias=False,
        logit_scale=2 * math.log(length) / math.sqrt(width),
        ffn_width=128,
        mlp_layers=1,
        norm="none",
        max_length=length,
        positions="one_hot",
        join="concatenate",
        position_width=length + 1,
        dropout=dropout,
    )


@checked_arguments
def mingpt(
    length: int, width: int = 64, layers: int = 1, heads: int = 16, *, dropout: float = 0.1
) -> TransformerConfig:
    """The minGPT of the sparse-variable paper: norm first, GELU, learned positions, two outputs.

    Its CLS symbol stands after the bits, which is `eos` here, where causal attention sees them all. It starts
    from `initialise(model, "gaussian", seed, scope="weights", scale=0.02)`.

    >>> mingpt(40).outputs
    2
    """
    return TransformerConfig(
        width=width,
        layers=layers,
        heads=heads,
        causal=True,
        activation="gelu",
        norm="pre",
        final_norm=True,
        max_length=length,
        positions="learned",
        outputs=2,
        head_bias=False,
        dropout=dropout,
    )


@checked_arguments
def vit_small(
    image_size: int = 32,
    patch_size: int = 4,
    channels: int = 3,
    *,
    width: int = 64,
    layers: int = 8,
    heads: int = 32,
    ffn_width: int = 256,
    outputs: int = 10,
    dropout: float = 0.1,
) -> TransformerConfig:
    """The ViT-small of the low-sensitivity paper at its CIFAR-10 sizes: shifted patches, locality attention.

    Locality attention trains the logit scale and lets no patch attend to itself; heads have size 64 whatever
    the width. The paper does not state the width: 64 is that of its released script.

    >>> vit_small(image_size=16).patch_size
    4
    """
    return TransformerConfig(
        inputs="patches",
        image_size=image_size,
        patch_size=patch_size,
        channels=channels,
        shifted_patches=True,
        patch_norm=True,
        marker="cls",
        width=width,
        layers=layers,
        heads=heads,
        head_size=64,
        qkv_bias=False,
        learned_scale=True,
        mask_self=True,
        ffn_width=ffn_width,
        activation="gelu",
        norm="pre",
        final_norm=True,
        positions="learned",
        readout="first",
        outputs=outputs,
        dropout=dropout,
    )


@checked_arguments
def vit_simple(
    image_size: int = 32,
    patch_size: int = 4,
    channels: int = 3,
    *,
    width: int = 64,
    layers: int = 6,
    heads: int = 16,
    ffn_width: int = 512,
    outputs: int = 10,
) -> TransformerConfig:
    """The ViT-simple of the low-sensitivity paper at its CIFAR-10 sizes, after Beyer et al. (2022).

    Positions are sines and cosines of row and column, a layer norm stands on both sides of the patch map, the
    positions' mean is read after the final norm, and nothing is dropped. Heads have size 64 whatever the width. The
    paper does not state the width: 64 is that of its released script.

    >>> vit_simple().positions
    'sincos_2d'
    """
    return TransformerConfig(
        inputs="patches",
        image_size=image_size,
        patch_size=patch_size,
        channels=channels,
        patch_norm=True,
        patch_output_norm=True,
        marker="none",
        positions="sincos_2d",
        width=width,
        layers=layers,
        heads=heads,
        head_size=64,
        qkv_bias=False,
        output_bias=False,
        ffn_width=ffn_width,
        activation="gelu",
        norm="pre",
        final_norm=True,
        norm_before_mean=True,
        readout="mean",
        outputs=outputs,
    )


@checked_arguments
def roberta(
    vocabulary: int = 50265,
    length: int = 128,
    *,
    width: int = 256,
    layers: int = 4,
    heads: int = 8,
    attention: Literal["softmax", "relu", "linear"] = "softmax",
    outputs: int = 2,
    dropout: float = 0.1,
    padding: int | None = None,
) -> TransformerConfig:
    """The RoBERTa-style encoder of the low-sensitivity paper; the tokens begin with <s>, where it is read.

    Depth, heads and dropout are the paper's, the width is that of its released script, and the MLP is four
    times as wide, as in RoBERTa. `padding` is the id that fills short texts, RoBERTa's 1. It starts from
    `initialise(model, "gaussian", seed, scope="weights", scale=0.02)`.

    >>> roberta(attention="relu").head
    'tanh'
    """
    return TransformerConfig(
        inputs="tokens",
        vocabulary=vocabulary,
        marker="none",
        max_length=length,
        positions="learned",
        embedding_norm=True,
        width=width,
        layers=layers,
        heads=heads,
        attention=attention,
        activation="gelu",
        readout="first",
        head="tanh",
        outputs=outputs,
        dropout=dropout,
        padding=padding,
    )


@checked_arguments
def gpt2(
    vocabulary: int = 50257,
    length: int = 128,
    *,
    width: int = 256,
    layers: int = 4,
    heads: int = 8,
    outputs: int = 2,
    dropout: float = 0.1,
    padding: int | None = None,
) -> TransformerConfig:
    """The GPT-2-style model of the low-sensitivity paper: causal, norm first, read at the last token.

    `padding` is the id that fills short texts, which is not read. It starts from
    `initialise(model, "gaussian", seed, scope="weights", scale=0.02)`.

    >>> gpt2(width=64).causal
    True
    """
    return TransformerConfig(
        inputs="tokens",
        vocabulary=vocabulary,
        marker="none",
        max_length=length,
        positions="learned",
        width=width,
        layers=layers,
        heads=heads,
        causal=True,
        activation="gelu_tanh",
        norm="pre",
        final_norm=True,
        outputs=outputs,
        head_bias=False,
        dropout=dropout,
        padding=padding,
    )
