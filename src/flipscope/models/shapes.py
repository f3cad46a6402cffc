"""Random shapes of transformers, drawn without PyTorch."""

from __future__ import annotations

import numpy as np

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.seeds import seed_number
from flipscope.models.config import TransformerConfig
from flipscope.models.presets import encoder


@checked_arguments
def random_shape(seed: int | np.random.Generator) -> TransformerConfig:
    """An encoder from the distribution of App. F.1: layers, heads, head size and FFN multiple at random."""
    stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed_number(seed))))
    layers = int(stream.integers(2, 7))
    heads = (1, 2, 4, 8)[stream.integers(4)]
    head_size = (16, 32, 64, 128)[stream.integers(4)]
    multiple = (2, 4, 8)[stream.integers(3)]
    width = heads * head_size
    return encoder(width=width, layers=layers, heads=heads, ffn_width=multiple * width)
