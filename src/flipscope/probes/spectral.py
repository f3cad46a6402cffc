"""Traces and spectral densities of a symmetric matrix given by its products.

    Hutchinson    tr H = E v' H v, v with independent random signs
    Hutch++       Q = orth(H S), then tr H = tr Q' H Q + E v' R H R v with R = 1 - QQ'   (Meyer, Musco, Musco, Woodruff)
    density       k Lanczos steps from v give k nodes and weights: a quadrature of the spectral measure of v

All vectors are numpy's in float64. Probe k depends on the seed and on k alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float64

from flipscope.basics.resampling import power_of_two

Vector: TypeAlias = Float64[np.ndarray, " number"]
Rows: TypeAlias = Float64[np.ndarray, "row number"]

_ROUNDING = 1e-10  # smallest pivot relative to the largest eigenvalue
_BLOCK = 16  # probes per call, so that a matrix that is recomputed per call is not recomputed too often


@runtime_checkable
class Operator(Protocol):
    """A symmetric matrix given by its products."""

    @property
    def size(self) -> int:
        """The number of rows."""

    def products(self, rows: Rows) -> Rows:
        """The matrix times each row."""


class Scaled:
    """A matrix divided by a power of two near its norm, since eigenvalues are found by squares.

    The first product that is not 0 decides; the vectors that it is taken with are of length 1 or so.
    """

    def __init__(self, matrix: Operator) -> None:
        self._matrix, self._scale = matrix, 0.0

    @property
    def size(self) -> int:
        """The number of rows."""
        return self._matrix.size

    @property
    def scale(self) -> float:
        """By what the matrix is divided; 1 if all products so far are 0."""
        return self._scale or 1.0

    def products(self, rows: Rows) -> Rows:
        """The scaled matrix times each row."""
        found = self._matrix.products(rows)
        if self._scale == 0 and found.any():
            self._scale = power_of_two(found)
        out: Rows = found / self.scale
        return out


@dataclass(frozen=True, eq=False)
class Traces:
    """Traces of the diagonal blocks that begin at some places: base + mean of the draws; exact without draws."""

    base: Float64[np.ndarray, " block"]
    draws: Float64[np.ndarray, "draw block"]


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Lanczos's tridiagonal matrix, whose eigenvalues and first components are a quadrature of a spectral measure.

    If `complete`, it is the measure itself: the start vector lies in as many eigenspaces as there are nodes.
    """

    diagonal: Float64[np.ndarray, " node"]
    beside: Float64[np.ndarray, " between"]
    complete: bool

    @cached_property
    def nodes(self) -> Float64[np.ndarray, " node"]:
        """The nodes of the quadrature in ascending order."""
        return self._nodes_and_weights[0]

    @cached_property
    def weights(self) -> Float64[np.ndarray, " node"]:
        """The weights of the nodes, which sum to 1."""
        return self._nodes_and_weights[1]

    def share_above(self, threshold: float) -> tuple[float, float]:
        """A lower and an upper bound of the measure above the threshold.

        Chebyshev, Markov and Stieltjes: of all measures with the same moments, none has more at the threshold, or less
        on either side of it, than the quadrature with a node there, which a changed last diagonal entry produces.
        """
        nodes, weights = self.nodes, self.weights
        size = float(np.abs(nodes).max())
        if self.complete:
            at = nodes == threshold
        else:
            pivot = 1.0
            tiny = _ROUNDING * max(size, abs(threshold))
            for k, number in enumerate(self.diagonal[:-1]):
                pivot = number - threshold - (self.beside[k - 1] * (self.beside[k - 1] / pivot) if k else 0.0)
                pivot = math.copysign(max(abs(pivot), tiny), pivot)
            change = self.beside[-1] * (self.beside[-1] / pivot)
            last = threshold + float(np.clip(change, -size / _ROUNDING, size / _ROUNDING))
            nodes, weights = _eigen(np.append(self.diagonal[:-1], last), self.beside)
            at = np.arange(len(nodes)) == np.abs(nodes - threshold).argmin()
        least = float(weights[(nodes > threshold) & ~at].sum())
        return min(least, 1.0), min(least + float(weights[at].sum()), 1.0)

    @cached_property
    def _nodes_and_weights(self) -> tuple[Float64[np.ndarray, " node"], Float64[np.ndarray, " node"]]:
        return _eigen(self.diagonal, self.beside)


def _eigen(
    diagonal: Float64[np.ndarray, " node"], beside: Float64[np.ndarray, " between"]
) -> tuple[Float64[np.ndarray, " node"], Float64[np.ndarray, " node"]]:
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return nodes, np.square(vectors[0])


def signs(seed: int, number: int, size: int, kind: int = 0, start: int = 0) -> Vector:
    """The random signs of probe `number` from `start` on; probes of different kinds are independent."""
    stream = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(kind, number)))
    first, skipped = divmod(start, 64)
    words = stream.advance(first).random_raw(-(-(skipped + size) // 64))
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), count=skipped + size)
    out: Vector = 2.0 * bits[skipped:] - 1.0
    return out


def exact_traces(matrix: Operator, starts: Sequence[int]) -> Traces:
    """Every diagonal entry, by one product each."""
    diagonal = np.empty(matrix.size)
    for start in range(0, matrix.size, _BLOCK):
        rows = np.eye(min(_BLOCK, matrix.size - start), matrix.size, start)
        diagonal[start : start + len(rows)] = np.einsum("rn,rn->r", rows, matrix.products(rows))
    return Traces(np.add.reduceat(diagonal, starts), np.empty((0, len(starts))))


def hutchinson(matrix: Operator, starts: Sequence[int], probes: int, seed: int) -> Traces:
    """Hutchinson's estimate of each block's trace, from the same probes."""
    draws = np.empty((probes, len(starts)))
    for first in range(0, probes, _BLOCK):
        rows = np.stack([signs(seed, k, matrix.size) for k in range(first, min(first + _BLOCK, probes))])
        draws[first : first + len(rows)] = np.add.reduceat(rows * matrix.products(rows), starts, axis=1)
    return Traces(np.zeros(len(starts)), draws)


def hutchpp(matrix: Operator, starts: Sequence[int], probes: int, seed: int) -> Traces:
    """Hutch++ with a third of the products for each of its steps: sketch, exact part, remainder.

    With P the projection on a block, tr P H = tr P QQ'H + tr P RHQQ' + tr P RHR, of which the first two are exact.
    """
    columns = min(max(1, probes // 3), matrix.size)
    sketch = matrix.products(np.stack([signs(seed, k, matrix.size, 1) for k in range(columns)]))
    q = np.ascontiguousarray(np.linalg.qr(sketch.T)[0].T)  # [column, number], orthonormal rows
    hq = matrix.products(q)
    left = hq - (hq @ q.T) @ q  # R H Q
    base = np.add.reduceat((q * (hq + left)).sum(axis=0), starts)
    rest = max(2, probes - 2 * columns)
    draws = np.empty((rest, len(starts)))
    for first in range(0, rest, _BLOCK):
        rows = np.stack([signs(seed, k, matrix.size) for k in range(first, min(first + _BLOCK, rest))])
        found = matrix.products(rows - (rows @ q.T) @ q)
        found -= (found @ q.T) @ q
        draws[first : first + len(rows)] = np.add.reduceat(rows * found, starts, axis=1)
    return Traces(base, draws)


def dense(matrix: Operator) -> Float64[np.ndarray, "number number"]:
    """The matrix itself, symmetrised despite rounding."""
    found = matrix.products(np.eye(matrix.size))
    whole: Float64[np.ndarray, "number number"] = (found + found.T) / 2
    return whole


def lanczos(matrix: Operator, start: Vector, steps: int) -> Quadrature:
    """The quadrature of `start`'s spectral measure by Lanczos steps with full reorthogonalisation.

    It has fewer than `steps` nodes if the vectors H^k v span a smaller space.
    """
    steps, matrix = min(steps, matrix.size), Scaled(matrix)
    basis = np.empty((steps, matrix.size))
    diagonal, beside = np.zeros(steps), np.zeros(steps)
    vector, made, complete = start / np.linalg.norm(start), 0, steps == matrix.size
    for step in range(steps):
        basis[step], made = vector, step + 1
        image = _product(matrix, vector)
        diagonal[step] = vector @ image
        before = np.linalg.norm(image)
        for _ in range(2):  # twice is enough
            image = image - (basis[:made] @ image) @ basis[:made]
        beside[step] = np.linalg.norm(image)
        if beside[step] <= 1e-10 * before or before == 0:
            complete = True
            break
        vector = image / beside[step]
    return Quadrature(matrix.scale * diagonal[:made], matrix.scale * beside[: made - 1], complete)


def length(vector: Vector) -> float:
    """The Euclidean norm, also of numbers whose squares are 0 or infinite."""
    scale = power_of_two(vector)
    return scale * float(np.linalg.norm(vector / scale))


def _product(matrix: Operator, vector: Vector) -> Vector:
    out: Vector = matrix.products(vector.reshape(1, -1))[0]
    return out
