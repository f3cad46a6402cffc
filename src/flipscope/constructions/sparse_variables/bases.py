"""Vectors that encode positions: orthonormal, random or given, and how far from orthogonal they are."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from jaxtyping import Float64

from flipscope.basics.errors import InputError
from flipscope.models.attention_network_config import AttentionNetworkConfig, FixedVectors, InputMapping

Matrix: TypeAlias = Float64[np.ndarray, "_ _"]  # of any sizes
RANDOM_ROOM = 64  # coordinates of random positions, where no width is given
_UNIT = 1e-9


def fixed_vectors(
    mapping: InputMapping, length: int, sparsity: int, width: int | None, basis: str | Matrix, seed: int, heads: int
) -> FixedVectors:
    """E_0, E_1, the positions and [CLS], in a sufficient width; trained positions are zeros until chosen."""
    special = 1 if mapping == "bag" else 3
    if not isinstance(basis, str):
        return _given(basis, length, special, width, sparsity)
    if basis not in ("orthonormal", "random"):
        raise InputError(f"basis={basis!r} is not one of orthonormal, random, nor a matrix of unit vectors")
    if mapping == "trainable":
        room, kind = heads, "orthonormal"
    else:
        room, kind = (length if basis == "orthonormal" else RANDOM_ROOM), basis
    # The output has a coordinate for each relevant bit.
    width = max(room + special, sparsity) if width is None else width
    if sparsity > width:
        raise InputError(f"width={width} is less than the {sparsity} bits that the function depends on: give more")
    if mapping == "trainable" and width < room + special:
        raise InputError(f"width={width} is too small for {room} positions of their own: give {room + special} or more")
    config = AttentionNetworkConfig(length=length, width=width, mapping=mapping, basis=kind, basis_seed=seed)  # type: ignore[arg-type]
    return config.vectors()


def _given(basis: Matrix, length: int, special: int, width: int | None, sparsity: int) -> FixedVectors:
    """Given unit vectors, extended by the coordinates that the special vectors need."""
    given = np.asarray(basis, np.float64)
    if given.ndim != 2 or len(given) < length:
        raise InputError(f"a basis of shape {given.shape} must be [position, coordinate] for {length} positions")
    given = given[:length]
    norms = np.linalg.norm(given, axis=1)
    if not np.isfinite(given).all() or abs(norms - 1).max() > _UNIT:
        worst = int(np.nan_to_num(abs(norms - 1), nan=np.inf).argmax())
        raise InputError(
            f"the basis vector {worst + 1} has length {norms[worst]:.6g}, not 1: divide each by its length"
        )
    size = given.shape[1]
    if width is not None and width < size + special:
        raise InputError(f"width={width} is less than {size + special}, the basis and {special} vectors: give more")
    full = max(size + special, sparsity) if width is None else width
    positions = np.zeros((length, full))
    positions[:, :size] = given
    last = np.eye(full)[full - special :]
    return FixedVectors(last[:2] if special == 3 else np.zeros((2, full)), positions, last[-1])


def coherence(vectors: Matrix) -> float:
    """Delta: the largest absolute product of two different vectors.

    >>> coherence(np.array([[1.0, 0.0], [0.6, 0.8]]))
    0.6
    """
    products = abs(vectors @ vectors.T)
    np.fill_diagonal(products, 0)
    return float(products.max(initial=0.0))


def dual_vectors(vectors: Matrix) -> Matrix:
    """The dual basis: vectors of the same span whose products with these form the identity matrix."""
    gram = vectors @ vectors.T
    if np.linalg.eigvalsh(gram)[0] < 1e-9:
        raise InputError("the vectors of the relevant positions depend on each other linearly: give another basis")
    return np.asarray(np.linalg.solve(gram, vectors))
