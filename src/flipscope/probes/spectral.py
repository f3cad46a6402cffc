"""Traces, extreme eigenvalues and spectral densities of a symmetric matrix that is known by its products alone.

    Hutchinson    tr H = E v' H v, v with independent random signs
    Hutch++       Q = orth(H S), then tr H = tr Q' H Q + E v' R H R v with R = 1 - QQ'   (Meyer, Musco, Musco, Woodruff)
    density       k Lanczos steps from v give k nodes and weights: a quadrature of the spectral measure of v

All vectors are numpy's in float64. Probe k depends on the seed and on k alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float64
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from flipscope.basics.errors import InputError

Vector: TypeAlias = Float64[np.ndarray, " number"]
Rows: TypeAlias = Float64[np.ndarray, "row number"]

_BLOCK = 16  # probes per call, so that a matrix which is made anew per call is not made too often
_SCALE_STEPS = 12  # Lanczos steps that tell the size of the matrix
_DENSE = 96  # numbers up to which all eigenvalues are computed from the matrix itself


@runtime_checkable
class Operator(Protocol):
    """A symmetric matrix of so many rows."""

    @property
    def size(self) -> int:
        """Rows of the matrix."""

    def products(self, rows: Rows) -> Rows:
        """The matrix times each row."""


@dataclass(frozen=True, eq=False)
class Traces:
    """Traces of the diagonal blocks that begin at some places: base + mean of the draws; exact without draws."""

    base: Float64[np.ndarray, " block"]
    draws: Float64[np.ndarray, "draw block"]


@dataclass(frozen=True, eq=False)
class Extremes:
    """Eigenvalues at one end, the outermost first, with |H v - lambda v| of their unit vectors."""

    values: Float64[np.ndarray, " value"]
    vectors: Float64[np.ndarray, "number value"]
    residuals: Float64[np.ndarray, " value"]


def signs(seed: int, number: int, size: int, kind: int = 0) -> Vector:
    """The random signs of probe `number`; probes of different kinds are independent."""
    stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(kind, number)))
    bits = np.unpackbits(np.frombuffer(stream.bytes(-(-size // 8)), np.uint8), count=size)
    return 2.0 * bits - 1.0


def exact_traces(matrix: Operator, starts: Sequence[int]) -> Traces:
    """Every diagonal number by itself, one product each."""
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
    """Hutch++ with a third of the products for each of its steps: sketch, exact part, what is left.

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
    """The matrix itself, symmetric whatever rounding did."""
    found = matrix.products(np.eye(matrix.size))
    whole: Float64[np.ndarray, "number number"] = (found + found.T) / 2
    return whole


def extremes(matrix: Operator, count: int, tolerance: float, seed: int, most: int) -> tuple[Extremes, Extremes]:
    """The largest eigenvalues and the smallest, converged: residuals below the tolerance times the matrix's norm.

    `most` bounds the restarts of Lanczos (ARPACK). The matrix is shifted by about its norm on either side, since ARPACK
    measures its error against the eigenvalue itself, which at the lower end is often 0.
    """
    if not 1 <= count <= matrix.size:
        raise InputError(f"eigenvalues={count} must lie between 1 and the {matrix.size:,} parameters")
    if matrix.size <= max(_DENSE, 2 * count + 1):
        values, vectors = np.linalg.eigh(dense(matrix))
        top, bottom = np.arange(matrix.size - 1, matrix.size - 1 - count, -1), np.arange(count)
        return tuple(_with_residuals(matrix, values[each], vectors[:, each]) for each in (top, bottom))  # type: ignore[return-value]
    start = signs(seed, 0, matrix.size, 2)
    nodes, _ = lanczos(matrix, start, _SCALE_STEPS)
    size = float(np.abs(nodes).max())
    if size == 0:
        raise InputError("the Hessian is zero in every direction that was tried: the loss is linear here")
    found = []
    for which, side in (("LA", 1.0), ("SA", -1.0)):
        shift = side * size
        shifted = LinearOperator(
            (matrix.size, matrix.size), matvec=lambda v, c=shift: _product(matrix, v) + c * v.ravel(), dtype=np.float64
        )
        try:
            # Beside the shift the eigenvalue is about twice the norm; a residual of half the tolerance of that.
            values, vectors = eigsh(
                shifted, count, which=which, v0=start, tol=tolerance / 2, maxiter=most, ncv=_basis(count, matrix.size)
            )
        except ArpackNoConvergence:
            raise InputError(
                f"the eigenvalues did not converge to tolerance={tolerance:g} in {most} restarts: give a larger "
                "tolerance, more restarts, or the model in float64"
            ) from None
        order = np.argsort(values)[:: -1 if side > 0 else 1]
        found.append(_with_residuals(matrix, values[order] - shift, vectors[:, order]))
    return found[0], found[1]


def lanczos(
    matrix: Operator, start: Vector, steps: int
) -> tuple[Float64[np.ndarray, " node"], Float64[np.ndarray, " node"]]:
    """Nodes and weights of the quadrature of `start`'s spectral measure; full reorthogonalisation.

    Fewer than `steps` nodes where the vectors H^k v span less.
    """
    steps = min(steps, matrix.size)
    basis = np.empty((steps, matrix.size))
    diagonal, beside = np.zeros(steps), np.zeros(steps)
    vector, made = start / np.linalg.norm(start), 0
    for step in range(steps):
        basis[step], made = vector, step + 1
        image = _product(matrix, vector)
        diagonal[step] = vector @ image
        before = np.linalg.norm(image)
        for _ in range(2):  # twice is enough
            image = image - (basis[:made] @ image) @ basis[:made]
        beside[step] = np.linalg.norm(image)
        if beside[step] <= 1e-10 * before or before == 0:
            break
        vector = image / beside[step]
    small = np.diag(diagonal[:made]) + np.diag(beside[: made - 1], 1) + np.diag(beside[: made - 1], -1)
    nodes, vectors = np.linalg.eigh(small)
    return nodes, np.square(vectors[0])


def _product(matrix: Operator, vector: Vector) -> Vector:
    out: Vector = matrix.products(vector.reshape(1, -1))[0]
    return out


def _with_residuals(
    matrix: Operator, values: Float64[np.ndarray, " value"], vectors: Float64[np.ndarray, "number value"]
) -> Extremes:
    images = matrix.products(np.ascontiguousarray(vectors.T))
    residuals = np.linalg.norm(images - values[:, None] * vectors.T, axis=1)
    return Extremes(values, vectors, residuals)


def _basis(count: int, size: int) -> int:
    """Lanczos vectors between restarts: more of them take fewer products."""
    return min(size, max(2 * count + 1, 30))
