"""The networks under study: one transformer, its presets, its start, its file, and margin acceptance."""

from __future__ import annotations

from flipscope.models.checkpoint import load, save
from flipscope.models.config import (
    TransformerConfig,
    encoder,
    fourier,
    gpt2,
    hardness,
    mingpt,
    recognizer,
    roberta,
    vit_small,
)
from flipscope.models.init import SCHEMES, initialise, random_shape
from flipscope.models.margin import Recognition, accept, binary_logit, recognition
from flipscope.models.transformer import Attention, Block, LayerNorm, Transformer

__all__ = [
    "SCHEMES",
    "Attention",
    "Block",
    "LayerNorm",
    "Recognition",
    "Transformer",
    "TransformerConfig",
    "accept",
    "binary_logit",
    "encoder",
    "fourier",
    "gpt2",
    "hardness",
    "initialise",
    "load",
    "mingpt",
    "random_shape",
    "recognition",
    "recognizer",
    "roberta",
    "save",
    "vit_small",
]
