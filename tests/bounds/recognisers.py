"""Random recognisers of many sizes, and what a flip does to them, computed straight from the definitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch

from flipscope.models import SCHEMES, Transformer, initialise, recognizer

EPS = (0.0, 1e-3, 1.0)


def build(
    seed: int, eps: float, *, width: int = 8, layers: int = 2, heads: int = 2, scheme: str = "uniform", scale: float = 1
) -> Transformer:
    """One recogniser in float64."""
    model = Transformer(recognizer(width, layers, heads, eps=eps), dtype=torch.float64, seed=seed)
    return initialise(model, scheme, seed, scale=scale)  # type: ignore[arg-type]


def many(eps: float) -> Iterator[Transformer]:
    """Recognisers of every scheme, from tiny weights to large ones, of a shape that differs from one to the next."""
    shapes = ((2, 1, 1), (5, 3, 1), (8, 2, 2), (16, 1, 3))
    choices = itertools.product(enumerate(SCHEMES), enumerate((0.03, 0.3, 1.0, 3.0)))
    for seed, ((row, scheme), (column, scale)) in enumerate(choices):
        width, layers, heads = shapes[(row + column) % len(shapes)]  # every shape with every scale
        yield build(seed, eps, width=width, layers=layers, heads=heads, scheme=scheme, scale=scale)


def strings(seed: int, count: int, length: int) -> np.ndarray:
    """Random strings [string, position]."""
    return np.random.default_rng(seed).integers(0, 2, (count, length), np.uint8)


def changes(model: Transformer, x: np.ndarray, step: int = 1) -> np.ndarray:
    """||y^L_m(x) - y^L_m(x with bit n flipped)|| as [n, m] (Def 2.7), m = EOS last; of each step-th n only."""
    flips = x ^ np.eye(len(x), dtype=np.uint8)[::step]
    with torch.no_grad():
        before = model.states(torch.from_numpy(x[None]))[-1]
        after = model.states(torch.from_numpy(flips))[-1]
    return (after - before).norm(dim=-1).numpy()
