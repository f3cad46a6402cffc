"""Shapes of transformers drawn at random; told without PyTorch, like all that is known of a model before it is made."""

from __future__ import annotations

import numpy as np

from flipscope.cube.intervals import check_count
from flipscope.models.config import TransformerConfig, encoder


def random_shape(seed: int | np.random.Generator) -> TransformerConfig:
    """An encoder from the distribution of App. F.1: layers, heads, head size and FFN multiple at random."""
    stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed_number(seed))))
    layers = int(stream.integers(2, 7))
    heads = (1, 2, 4, 8)[stream.integers(4)]
    head_size = (16, 32, 64, 128)[stream.integers(4)]
    multiple = (2, 4, 8)[stream.integers(3)]
    width = heads * head_size
    return encoder(width=width, layers=layers, heads=heads, ffn_width=multiple * width)


def seed_number(seed: int | np.random.Generator) -> int:
    """The seed itself, or 63 bits of the generator."""
    return int(seed.integers(2**63)) if isinstance(seed, np.random.Generator) else check_count("seed", seed, 0)
