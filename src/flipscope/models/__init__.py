"""The networks under study: one transformer, its presets, its start and its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

__all__ = [
    "SCHEMES",
    "Attention",
    "AttentionNetwork",
    "AttentionNetworkConfig",
    "Block",
    "FourierNetwork",
    "FourierNetworkConfig",
    "LayerNorm",
    "Transformer",
    "TransformerConfig",
    "encoder",
    "fourier",
    "gpt2",
    "hardness",
    "initialise",
    "load",
    "mingpt",
    "random_shape",
    "recognizer",
    "roberta",
    "save",
    "vit_simple",
    "vit_small",
]

if TYPE_CHECKING:
    from flipscope.models.attention_network import AttentionNetwork
    from flipscope.models.attention_network_config import AttentionNetworkConfig
    from flipscope.models.checkpoint import load, save
    from flipscope.models.config import TransformerConfig
    from flipscope.models.fourier_network import FourierNetwork
    from flipscope.models.fourier_network_config import FourierNetworkConfig
    from flipscope.models.init import SCHEMES, initialise
    from flipscope.models.presets import (
        encoder,
        fourier,
        gpt2,
        hardness,
        mingpt,
        recognizer,
        roberta,
        vit_simple,
        vit_small,
    )
    from flipscope.models.shapes import random_shape
    from flipscope.models.transformer import Attention, Block, LayerNorm, Transformer

__getattr__, __dir__ = lazily(__name__)
