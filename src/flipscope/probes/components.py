"""Parities visible in an attention matrix: rows whose largest entries are a set of bits, and how often by chance.

A set S is *found* in a row if each of its entries is larger than all others, as one sees in a picture. Two null
hypotheses guard against chance: rows with permuted entries, in which a set of k bits is found by chance; and all other
sets of the same size, of which some share is at least as visible (`rank`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_count, check_positions
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import Seed, generators

MOST_SETS = 20_000  # most sets that are enumerated; beyond, this many are drawn


@dataclass(frozen=True)
class Component:
    """How visible a set of positions is in a matrix."""

    positions: tuple[int, ...]
    rows: tuple[int, ...]  # in which it is found
    rank: float  # share of all sets of this size, including itself, that are at least as visible: a p-value

    @property
    def found(self) -> bool:
        """Whether some row shows it."""
        return bool(self.rows)


@checked_arguments
def find_components(
    matrix: Float[np.ndarray, "row position"], sets: Sequence[Sequence[int]], *, seed: Seed = 0
) -> list[Component]:
    """Each set with the rows that show it.

    The visibility of a set is the mean of its entries in a row, in standard deviations of that row, for the best row.

    >>> matrix = np.array([[9.0, 8.0, 0.0, 1.0], [0.0, 1.0, 0.5, 0.2]])
    >>> [(each.rows, round(each.rank, 3)) for each in find_components(matrix, [(0, 1), (2, 3)])]
    [((0,), 0.167), ((), 1.0)]
    """
    matrix, known = _checked(matrix, sets)
    (stream,) = generators(seed, 1)
    spread = matrix.std(axis=1, keepdims=True)
    standard = (matrix - matrix.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    others = {
        size: _best(standard, _sets_of(matrix.shape[1], size, stream)) for size in sorted({len(s) for s in known})
    }
    found = []
    for each in known:
        own = _best(standard, np.array([each]))[0]
        as_good = int((others[len(each)] >= own - 1e-12).sum())
        drawn = int(math.comb(matrix.shape[1], len(each)) > MOST_SETS)  # the set itself is not among those drawn
        rows = [number for number, row in enumerate(matrix) if _shows(row, each)]
        found.append(Component(each, tuple(rows), (as_good + drawn) / (len(others[len(each)]) + drawn)))
    return found


@checked_arguments
def found_by_chance(
    rows: int, length: int, sets: Sequence[Sequence[int]], *, draws: int = 1_000, seed: Seed = 0
) -> NDArray[np.int64]:
    """The number of sets found when the entries of each row are permuted: one count for each draw.

    The largest entries are then in uniformly random columns.

    >>> found_by_chance(20, 20, [(0, 1, 2), (3, 4, 5)], draws=100).shape
    (100,)
    """
    known = [check_positions(each, check_count("length", length)) for each in sets]
    (stream,) = generators(seed, 1)
    counts = np.zeros(check_count("draws", draws), np.int64)
    for size in sorted({len(each) for each in known}):
        wanted = {frozenset(each) for each in known if len(each) == size}
        entries = stream.random((draws, check_count("rows", rows), length))
        top = np.argpartition(entries, -size, axis=2)[:, :, -size:]
        for draw in range(draws):
            counts[draw] += len(wanted & {frozenset(row) for row in top[draw].tolist()})
    return counts


@checked_arguments
def chance(rows: int, length: int, size: int) -> float:
    """The probability that one set of this size is found in permuted rows: 1 - (1 - 1 / C(T, k))^rows.

    >>> round(chance(20, 20, 3), 4)
    0.0174
    """
    check_count("size", size, 0)
    share = 1 / math.comb(check_count("length", length, size), size)
    missed: float = (1 - share) ** min(check_count("rows", rows, 0), 1 << 1000)  # beyond, no float
    return 1 - missed


def _checked(
    matrix: Float[np.ndarray, "row position"], sets: Sequence[Sequence[int]]
) -> tuple[NDArray[np.float64], list[tuple[int, ...]]]:
    matrix = as_numbers(matrix, "the matrix")
    if matrix.ndim != 2 or 0 in matrix.shape or not np.isfinite(matrix).all():
        raise InputError(f"a matrix of shape {matrix.shape} must be finite numbers [row, position]")
    known = [check_positions(each, matrix.shape[1]) for each in sets]
    if any(not 0 < len(each) < matrix.shape[1] for each in known):
        raise InputError(f"a set must have at least one of {matrix.shape[1]} positions, and not all: leave it out")
    return matrix, known


def _shows(row: NDArray[np.float64], positions: tuple[int, ...]) -> bool:
    """Whether each of these entries is larger than all others."""
    inside = np.isin(np.arange(len(row)), positions)
    return bool(row[inside].min() > row[~inside].max())


def _best(standard: NDArray[np.float64], sets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The visibility of each set in its best row."""
    best: NDArray[np.float64] = standard[:, sets].mean(axis=2).max(axis=0)
    return best


def _sets_of(length: int, size: int, stream: np.random.Generator) -> NDArray[np.int64]:
    """All sets of this size, or a number of random ones."""
    if math.comb(length, size) <= MOST_SETS:
        return np.array(list(itertools.combinations(range(length), size)))
    return np.argsort(stream.random((MOST_SETS, length)), axis=1)[:, :size]
