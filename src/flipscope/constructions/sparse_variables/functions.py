"""Functions of few bits among many: relevant bits, values, and properties that the lemmas assume (App. B.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, UInt8
from numpy.typing import ArrayLike

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, as_numbers, index_bits
from flipscope.basics.errors import InputError
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import influences

MOST_BITS = 12  # relevant ones: an MLP holds 2^s cases
_MOST_READ = 20  # bits that an expression may mention, of which the influences are counted
_SAME = 1e-12


@dataclass(frozen=True, eq=False)
class SparseFunction:
    """A function of n bits that depends on the bits I alone; `values[p]` is its value where these are pattern p."""

    length: int  # T
    positions: tuple[int, ...]  # I, counted from 0
    values: UInt8[np.ndarray, " pattern"]

    @property
    def sparsity(self) -> int:
        """s: the number of relevant bits."""
        return len(self.positions)


@checked_arguments
def sparse_function(f: BooleanFunction) -> SparseFunction:
    """The bits that a function depends on, found by its influences, and its values on them.

    >>> from flipscope.cube.expression import parse
    >>> found = sparse_function(parse("x2 & x4 & (x3 | ~x3)", 10))
    >>> found.positions, found.values.tolist()
    ((1, 3), [0, 0, 0, 1])
    """
    if len(f.support) > _MOST_READ:
        raise InputError(
            f"the function may depend on {len(f.support):,} bits, and only of {_MOST_READ} or fewer can it be told: "
            "give one that reads fewer"
        )
    positions = tuple(place for place, share in enumerate(influences(f)) if share)
    if not positions:
        raise InputError("the function is constant, and a construction attends to the bits it depends on: give another")
    if len(positions) > MOST_BITS:
        raise InputError(
            f"the function depends on {len(positions)} bits, and constructions have up to {MOST_BITS}: "
            "give one that depends on fewer"
        )
    strings = np.zeros((1 << len(positions), f.n), np.uint8)
    strings[:, positions] = patterns(len(positions))
    return SparseFunction(f.n, positions, f(strings))


def patterns(bits: int) -> Bits:
    """All strings of `bits` bits, in the order of truth tables."""
    return index_bits(0, 1 << bits, bits)


@checked_arguments
def is_symmetric(values: ArrayLike) -> bool:
    """Whether values on all patterns, numbers or vectors, depend on the number of ones alone.

    >>> is_symmetric([0, 1, 1, 0]), is_symmetric([0, 1, 0, 0])
    (True, False)
    """
    table = _table(values)
    ones = patterns(_bits(table)).sum(axis=1)
    return all(bool((abs(same - same[0]) <= _SAME).all()) for same in (table[ones == r] for r in range(ones.max() + 1)))


@checked_arguments
def is_monotone(values: ArrayLike, gamma: float) -> bool:
    """Whether numbers on all patterns are symmetric and grow by gamma at least with each further one.

    >>> is_monotone([-1, 0, 0, 1], 1), is_monotone([-1, 0, 0, 1], 1.5)
    (True, False)
    """
    table = _table(values)
    if table.shape[1] != 1 or not is_symmetric(table):
        return False
    by_ones = table[(1 << np.arange(_bits(table) + 1)) - 1, 0]  # patterns 0, 1, 11, 111 and so on
    return bool((np.diff(by_ones) >= gamma - _SAME).all())


@checked_arguments
def is_injective(values: ArrayLike, gamma: float) -> bool:
    """Whether the vectors of any two patterns differ by gamma at least in some coordinate.

    >>> is_injective([[-1, -1], [1, -1], [-1, 1], [1, 1]], 2), is_injective([0, 1, 1, 2], 1)
    (True, False)
    """
    table = _table(values)
    return all(
        bool((abs(table[:place] - vector).max(axis=1) >= gamma - _SAME).all())
        for place, vector in enumerate(table)
        if place
    )


def _table(values: ArrayLike) -> Float64[np.ndarray, "pattern number"]:
    table = as_numbers(values, "values")
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) < 2 or len(table) & (len(table) - 1):
        raise InputError(f"values of shape {table.shape} must be one number or vector for each of 2^s patterns")
    return table


def _bits(table: Float64[np.ndarray, "pattern number"]) -> int:
    return len(table).bit_length() - 1
