"""Both ends of the spectrum of a symmetric matrix given by its products, including multiplicities.

A Krylov space of one start vector contains one vector of each eigenspace, so it cannot detect a double eigenvalue.
Hence several runs of Lanczos: each starts at a fresh Gaussian vector orthogonal to all eigenvectors found so far, works
on the deflated matrix, at both ends at once, and keeps the eigenvectors that belong to the outermost ones. The last run
finds nothing further out, and proves it. With theta_1, ..., theta_m the Ritz values after
m steps, beta_1, ..., beta_m the numbers beside the diagonal and c the component of the start vector along an
eigenvector of lambda,

    |c| prod (lambda - theta_i) <= prod beta_i        for every eigenvalue lambda above all theta_i

since the left side over the right side is the component of the next Lanczos vector along it (van Dorsselaer,
Hochstenbach, van der Vorst 2000). For a random start of d numbers |c| is below t with probability at most
t sqrt(2 d / pi), for every matrix: there is no eigenvalue beyond a level at which the left side is larger. A start of
random signs does not suffice: it is orthogonal to (1, -1, 0, ..., 0) half of the time.

A run that has filled its memory restarts with the outermost Ritz vectors (thick restart, Wu and Simon 2000); the Ritz
values that it drops stay zeros of the polynomial above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from flipscope.basics.errors import InputError
from flipscope.basics.limits import check_memory
from flipscope.probes.spectral import Operator, Rows, Scaled, Vector, dense

CHANCE = 1e-3  # probability, over the start vectors, that an eigenvalue further out is overlooked

_DENSE = 96  # largest size for which all eigenvalues are computed from the matrix itself
_VECTORS, _NUMBERS = 160, 1 << 25  # limits of a run between restarts: more vectors take fewer products
_LOOK = 4  # steps between two computations of the Ritz values
_INSIDE = 1 / 4  # share of the tolerance for residuals; the rest is for overlooked eigenvalues
_NOTHING = 1e-12  # of the norm: what is left of a vector that lies in the space already
_STARTS = 5  # kind of the random streams, beside those of `spectral` and `curvature`

Values = Float64[np.ndarray, " value"]


@dataclass(frozen=True, eq=False)
class Extremes:
    """Eigenvalues at one end, the outermost first, with |H v - lambda v| of their unit vectors."""

    values: Float64[np.ndarray, " value"]
    vectors: Float64[np.ndarray, "number value"]
    residuals: Float64[np.ndarray, " value"]


def extremes(matrix: Operator, count: int, tolerance: float, seed: int, most: int) -> tuple[Extremes, Extremes]:
    """The `count` largest and smallest eigenvalues, with multiplicity; `most` bounds the restarts.

    With norm the largest absolute eigenvalue found, each residual is at most tolerance * norm. Up to rounding of the
    products, the k-th largest is never above the true one (Cauchy: it is an eigenvalue of a part of the matrix) and,
    with probability 1 - CHANCE over the start vectors, at most tolerance * norm below it: `_INSIDE` of that for what
    couples the part to the rest, and the remainder for eigenvalues of the rest. Likewise at the lower end.
    """
    size = matrix.size
    if not 1 <= count <= size:
        raise InputError(f"eigenvalues={count} must lie between 1 and the {size:,} parameters")
    matrix = Scaled(matrix)
    found = _Found(matrix, tolerance)
    if size <= max(_DENSE, 8 * count):
        check_memory(3 * 8 * size**2, "the Hessian", "request fewer eigenvalues or choose fewer parameters")
        vectors = np.linalg.eigh(dense(matrix))[1].T
        found.add(vectors[np.union1d(np.arange(count), np.arange(size - count, size))])
        return found.end(1, count, matrix.scale), found.end(-1, count, matrix.scale)
    capacity = min(max(6 * count + 12, min(_VECTORS, _NUMBERS // size)), size)
    advice = "request fewer eigenvalues or choose fewer parameters"
    check_memory(8 * size * (capacity + 4 * count), "the vectors of Lanczos", advice)
    last, number, restarts = False, 0, 0
    while not last and len(found.vectors) < size:  # beyond that, there is nothing left to overlook
        number += 1
        run = _Run(matrix, found, count, capacity, seed, number)
        while not run.step():
            if run.full:
                restarts += 1
                if restarts > most:
                    raise InputError(
                        f"the eigenvalues did not converge to tolerance={tolerance:g} in {most} restarts: give a "
                        "larger tolerance, more restarts, or the model in float64 if it is in float32"
                    )
                run.restart()
        last = run.is_last
        found.add(run.vectors())
    return found.end(1, count, matrix.scale), found.end(-1, count, matrix.scale)


class _Found:
    """Orthonormal approximate eigenvectors, as rows, with their images."""

    def __init__(self, matrix: Operator, tolerance: float) -> None:
        self._matrix, self._tolerance = matrix, tolerance
        self.vectors: Rows = np.empty((0, matrix.size))
        self._images: Rows = np.empty((0, matrix.size))
        self.values: Values = np.empty(0)  # in ascending order
        self.norm = 0.0  # largest absolute eigenvalue seen so far

    def add(self, vectors: Rows) -> None:
        """Add vectors that are orthonormal and orthogonal to the present ones: one product each."""
        if not len(vectors):
            return
        vectors = np.concatenate([self.vectors, vectors])
        images = np.concatenate([self._images, self._matrix.products(vectors[len(self.vectors) :])])
        small = vectors @ images.T
        self.values, turn = np.linalg.eigh((small + small.T) / 2)
        self.vectors, self._images = turn.T @ vectors, turn.T @ images
        self.saw(self.values)
        off = self._images - self.values[:, None] * self.vectors
        outside = math.sqrt(max(float(np.linalg.eigvalsh(off @ off.T)[-1]), 0.0))
        if outside > _INSIDE * self._tolerance * self.norm:
            raise InputError(
                f"rounding keeps the eigenvalues from converging to tolerance={self._tolerance:g}: give a tolerance of "
                f"{outside / (_INSIDE * self.norm):.1g} or more, or the model in float64 if it is in float32"
            )

    def saw(self, values: Values) -> None:
        """Raise the norm to at least the absolute value of these."""
        self.norm = max(self.norm, float(np.abs(values).max()))

    def outermost(self, side: int, count: int) -> float:
        """The value that an eigenvalue has to exceed to be among the `count` outermost; for -H at the lower end."""
        return -math.inf if len(self.values) < count else float(np.sort(side * self.values)[-count])

    def target(self, count: int) -> float:
        """Residuals whose sum of squares stays within `_INSIDE`: about k (1 + log k) vectors come per end."""
        return _INSIDE * self._tolerance * self.norm / math.sqrt(2 * count * (1 + math.log(count)))

    def level(self, side: int, count: int) -> float:
        """The level that no eigenvalue of the orthogonal complement may exceed; for -H at the lower end."""
        return self.outermost(side, count) + (1 - _INSIDE) * self._tolerance * self.norm

    def end(self, side: int, count: int, scale: float) -> Extremes:
        """The outermost ones, of the matrix times `scale`."""
        order = np.argsort(-side * self.values, kind="stable")[:count]
        off = self._images[order] - self.values[order, None] * self.vectors[order]
        residuals = scale * np.linalg.norm(off, axis=1)
        return Extremes(scale * self.values[order], self.vectors[order].T.copy(), residuals)


class _Run:
    """Lanczos with full orthogonalisation on the matrix deflated by the vectors found so far."""

    def __init__(self, matrix: Operator, found: _Found, count: int, capacity: int, seed: int, number: int) -> None:
        self._matrix, self._found, self._count = matrix, found, count
        rest = matrix.size - len(found.vectors)
        capacity = min(capacity, rest)
        self._basis, self._small = np.empty((capacity, matrix.size)), np.zeros((capacity, capacity))
        self._made = 0
        self._beside = 0.0  # |what the last image has outside the space|
        self._log_beside = 0.0  # sum of all logarithms of it
        self._values, self._turn = np.empty(0), np.empty((0, 0))
        self._dropped = np.empty(0)
        # Both ends of run r together err with probability CHANCE / r(r + 1), and all runs with CHANCE.
        self._log_chance = math.log(math.sqrt(2 * rest / math.pi) * 2 * number * (number + 1) / CHANCE)
        stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STARTS, number)))
        start = self._outside(stream.normal(size=matrix.size))
        self._next: Vector | None = start / np.linalg.norm(start)  # None where the space is exhausted

    @property
    def full(self) -> bool:
        """Whether there is no room for another vector."""
        return self._made == len(self._basis)

    @property
    def is_last(self) -> bool:
        """Whether no eigenvalue outside the vectors found is beyond the level, at either end."""
        return all(self._nothing_beyond(side) for side in (1, -1))

    def step(self) -> bool:
        """Extend the space by some vectors; returns whether the run is finished."""
        for _ in range(_LOOK):
            if self.full or self._next is None:
                break
            self._expand(self._next)
        self._values, self._turn = np.linalg.eigh(self._small[: self._made, : self._made])
        self._found.saw(self._values)
        if self._next is None:
            return True
        residuals = self._beside * np.abs(self._turn[-1, self._wanted()])
        beyond = any((side * self._values > self._found.level(side, self._count)).any() for side in (1, -1))
        return bool((residuals <= self._found.target(self._count)).all()) and (beyond or self.is_last)

    def vectors(self) -> Rows:
        """The Ritz vectors of values that are among the outermost."""
        out: Rows = self._turn[:, self._wanted()].T @ self._basis[: self._made]
        return out

    def restart(self) -> None:
        """Keep a quarter of the Ritz vectors at either end."""
        quarter = self._made // 4
        kept = np.r_[0:quarter, self._made - quarter : self._made]
        self._dropped = np.concatenate([self._dropped, np.delete(self._values, kept)])
        self._basis[: len(kept)] = self._turn[:, kept].T @ self._basis
        self._small[:] = 0
        self._small[: len(kept), : len(kept)] = np.diag(self._values[kept])
        self._made = len(kept)

    def _outside(self, vector: Vector) -> Vector:
        """The part orthogonal to the vectors found and to those of the run."""
        basis, found = self._basis[: self._made], self._found.vectors
        for _ in range(2):  # twice is enough
            vector = vector - (found @ vector) @ found
            vector = vector - (basis @ vector) @ basis
        return vector

    def _expand(self, vector: Vector) -> None:
        self._basis[self._made] = vector
        self._made += 1
        image = self._matrix.products(vector.reshape(1, -1))[0]
        inside = self._basis[: self._made] @ image
        self._small[self._made - 1, : self._made] = self._small[: self._made, self._made - 1] = inside
        rest = self._outside(image)
        self._beside = float(np.linalg.norm(rest))
        norm = max(self._found.norm, float(np.linalg.norm(inside)))
        if self._beside <= _NOTHING * norm or self._made + len(self._found.vectors) == self._matrix.size:
            self._next = None
            return
        self._next = rest / self._beside
        self._log_beside += math.log(self._beside)

    def _wanted(self) -> NDArray[np.int64]:
        """Which Ritz values, taken together with the eigenvalues found, are among the outermost at one of the ends."""
        chosen = []
        for side in (1, -1):
            mine, theirs = side * self._values, side * self._found.values
            order = np.argsort(-mine, kind="stable")[: self._count]
            ahead = np.arange(len(order)) + (theirs >= mine[order, None]).sum(axis=1)
            least = self._found.outermost(side, self._count) + self._found.target(self._count)
            chosen.append(order[(ahead < self._count) & (mine[order] > least)])
        return np.union1d(*chosen)

    def _nothing_beyond(self, side: int) -> bool:
        zeros = side * np.concatenate([self._values, self._dropped])
        distances = self._found.level(side, self._count) - zeros
        if self._next is None:  # every eigenvalue is a Ritz value
            return bool(distances.min() >= 0)
        return bool(distances.min() > 0 and np.log(distances).sum() - self._log_beside >= self._log_chance)
