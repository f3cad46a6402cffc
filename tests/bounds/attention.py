"""Attention of paper 003 in plain numpy, from its definition: what bounds are tried on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
NAMES = ("W_Q", "W_K", "W_V", "W_C")


def softmax(logits: Matrix) -> Matrix:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def projected(rows: Matrix) -> Matrix:
    """On the unit ball, row by row."""
    return rows / np.maximum(1, np.linalg.norm(rows, axis=-1, keepdims=True))


def attended(rows: Matrix, head: dict[str, Matrix]) -> Matrix:
    """f of § 4.3."""
    return softmax(rows @ head["W_Q"] @ head["W_K"].T @ rows.T) @ rows @ head["W_V"]


def inner(rows: Matrix, head: dict[str, Matrix]) -> Matrix:
    """What W_C is applied to, with ReLU for sigma."""
    return np.maximum(0, projected(attended(rows, head)))


def layer(rows: Matrix, head: dict[str, Matrix]) -> Matrix:
    """One layer of § 4.3."""
    return projected(inner(rows, head) @ head["W_C"])


def longest(rows: Matrix) -> float:
    """||rows'||_{2, inf}."""
    return float(np.linalg.norm(rows, axis=-1).max())


def spectral(matrix: Matrix) -> float:
    return float(np.linalg.norm(matrix, 2))


def drawn_head(rng: np.random.Generator, width: int = 4, size: float = 1.0) -> dict[str, Matrix]:
    return {name: size * rng.normal(size=(width, width)) for name in NAMES}


def moved_head(rng: np.random.Generator, head: dict[str, Matrix], size: float) -> dict[str, Matrix]:
    return {name: matrix + size * rng.normal(size=matrix.shape) for name, matrix in head.items()}
