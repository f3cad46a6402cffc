"""The networks under study: one transformer, its presets, its start, its file, and margin acceptance."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
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
    from flipscope.models.init import SCHEMES, initialise
    from flipscope.models.margin import Recognition, accept, binary_logit, recognition
    from flipscope.models.shapes import random_shape
    from flipscope.models.transformer import Attention, Block, LayerNorm, Transformer
else:
    # Names are fetched on first use: configurations and sizes are told without PyTorch.
    _HOMES = {
        "checkpoint": (
            "load",
            "save",
        ),
        "config": (
            "TransformerConfig",
            "encoder",
            "fourier",
            "gpt2",
            "hardness",
            "mingpt",
            "recognizer",
            "roberta",
            "vit_small",
        ),
        "init": (
            "SCHEMES",
            "initialise",
        ),
        "margin": (
            "Recognition",
            "accept",
            "binary_logit",
            "recognition",
        ),
        "shapes": ("random_shape",),
        "transformer": (
            "Attention",
            "Block",
            "LayerNorm",
            "Transformer",
        ),
    }
    _NAMES = {name: home for home, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        """Return the public name from the module it lives in."""
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return the names of the module, the unfetched ones included."""
        return sorted({*globals(), *_NAMES})
