"""Bases with given products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def with_products(length: int, products: dict[tuple[int, int], float]) -> NDArray[np.float64]:
    """Unit vectors whose products are these, and 0 for all other pairs."""
    gram = np.eye(length)
    for (i, j), product in products.items():
        gram[i, j] = gram[j, i] = product
    return np.linalg.cholesky(gram)


def tilted(length: int, delta: float) -> NDArray[np.float64]:
    """v_1 . v_2 = Delta, v_1 . v_3 = v_2 . v_3 = -Delta, all others orthogonal."""
    return with_products(length, {(0, 1): delta, (0, 2): -delta, (1, 2): -delta})


def outscoring(length: int) -> NDArray[np.float64]:
    """Delta = 1/4 with three relevant vectors that lean away from each other and a fourth that leans to all of them."""
    inside = {(0, 1): -0.25, (0, 2): -0.25, (1, 2): -0.25}
    return with_products(length, {**inside, (0, 3): 0.25, (1, 3): 0.25, (2, 3): 0.25})
