"""Every quantity again, straight from its definition, over all 2^n strings; slow, and sharing nothing with the package.

A function is its list of values: ``table[i]`` is the value on the string whose position j (0-based) is bit j of i.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache

import numpy as np

Table = list[int]


@cache
def strings(n: int) -> list[tuple[int, ...]]:
    """All strings of n bits in the order of a truth table: the first position changes fastest."""
    return [backwards[::-1] for backwards in itertools.product((0, 1), repeat=n)]


def index_of(string: Iterable[int]) -> int:
    """Where a string stands in a truth table."""
    return sum(int(bit) * 2**j for j, bit in enumerate(string))


def tabulate(rule: Callable[[tuple[int, ...]], object], n: int) -> Table:
    """The table of a rule on tuples of bits."""
    return [int(bool(rule(string))) for string in strings(n)]


def flip(string: Sequence[int], positions: Iterable[int]) -> tuple[int, ...]:
    """The string with these positions flipped."""
    chosen = set(positions)
    return tuple(1 - bit if j in chosen else bit for j, bit in enumerate(string))


@cache
def neighbours(n: int) -> np.ndarray:
    """neighbours(n)[i, j] is the index of string i with position j flipped."""
    rows = [[index_of(flip(string, [j])) for j in range(n)] for string in strings(n)]
    return np.array(rows, np.int64).reshape(2**n, n)


# ---------------------------------------------------------------- sensitivity (Defs 2.2-2.6)


def sensitivities(table: Table) -> list[int]:
    """s(x, f) of every string: the number of positions whose flip changes the value."""
    return (_values(table)[neighbours(_bits(table))] != _values(table)[:, None]).sum(axis=1).tolist()


def profile(table: Table) -> list[int]:
    """K_0..K_n: how many strings have each sensitivity."""
    found = sensitivities(table)
    return [found.count(s) for s in range(_bits(table) + 1)]


def average_sensitivity(table: Table) -> Fraction:
    """The mean of s(x, f) over all strings."""
    return Fraction(sum(sensitivities(table)), len(table))


def influences(table: Table) -> list[Fraction]:
    """For each position the share of strings on which its flip changes the value."""
    changed = _values(table)[neighbours(_bits(table))] != _values(table)[:, None]
    return [Fraction(int(column.sum()), len(table)) for column in changed.T]


def block_sensitivity(table: Table) -> int:
    """The most disjoint blocks whose flips each change the value, over all strings."""
    size = len(table)

    def most(x: int) -> int:
        @cache
        def inside(mask: int) -> int:
            found = 0
            block = mask
            while block:
                if table[x ^ block] != table[x]:
                    found = max(found, 1 + inside(mask & ~block))
                block = (block - 1) & mask
            return found

        return inside(size - 1)

    return max(most(x) for x in range(size))


def certificate_complexity(table: Table) -> int:
    """The largest over all strings of the fewest bits that leave no other value possible."""
    values, index = _values(table), np.arange(len(table))

    def fewest(x: int) -> int:
        sizes = []
        for shown in range(len(table)):
            agreeing = values[(index & shown) == (x & shown)]
            if (agreeing == values[x]).all():
                sizes.append(shown.bit_count())
        return min(sizes)

    return max(fewest(x) for x in range(len(table)))


# ---------------------------------------------------------------- spectrum


@cache
def characters(n: int) -> np.ndarray:
    """chi_S(x) = product over S of (-1)^(x_i), a row for each S (by index) and a column for each x."""
    matrix = np.ones((2**n, 2**n), np.int64)
    for j in range(n):
        column = np.array([string[j] for string in strings(n)])
        matrix[np.ix_(column == 1, column == 1)] *= -1
    return matrix


def signs(table: Table) -> np.ndarray:
    """(-1)^f."""
    return 1 - 2 * _values(table)


def scaled_coefficients(table: Table) -> list[int]:
    """2^n f^(S) = sum over x of (-1)^f(x) chi_S(x), for every S by index."""
    return (characters(_bits(table)) @ signs(table)).tolist()


def coefficients(table: Table) -> dict[tuple[int, ...], Fraction]:
    """The non-zero f^(S) = E_x[(-1)^f(x) chi_S(x)] by set of positions."""
    n = _bits(table)
    return {
        tuple(j for j in range(n) if chosen[j]): Fraction(value, 2**n)
        for chosen, value in zip(strings(n), scaled_coefficients(table), strict=True)
        if value
    }


def weight_by_degree(table: Table) -> list[Fraction]:
    """W_0..W_n: the sum of f^(S)^2 over sets of each size."""
    weights = [Fraction(0)] * (_bits(table) + 1)
    for chosen, value in coefficients(table).items():
        weights[len(chosen)] += value**2
    return weights


@cache
def distances(n: int) -> np.ndarray:
    """The number of positions in which two strings differ."""
    rows = np.array(strings(n)).reshape(2**n, n)
    return np.array([(rows != row).sum(axis=1) for row in rows])


def noise_stability(table: Table, rho: float) -> float:
    """E[(-1)^f(x) (-1)^f(y)] over all pairs, each bit of y being that of x with probability (1 + rho) / 2."""
    return 1 - 2 * noise_sensitivity(table, (1 - rho) / 2)


def noise_sensitivity(table: Table, delta: float) -> float:
    """P(f(x) != f(y)) over all pairs, each bit of y being flipped with probability delta."""
    n = _bits(table)
    chance = np.array([delta**d * (1 - delta) ** (n - d) for d in range(n + 1)])[distances(n)]
    differ = _values(table)[:, None] != _values(table)[None, :]
    return math.fsum(chance[differ].tolist()) / 2**n


def fast_hadamard(values: np.ndarray) -> np.ndarray:
    """The unnormalised transform level by level, for tables too long for the definition."""
    out = np.array(values)
    for j in range(len(out).bit_length() - 1):
        pairs = out.reshape(-1, 2, 2**j)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
    return out


def _bits(table: Table) -> int:
    return len(table).bit_length() - 1


def _values(table: Table) -> np.ndarray:
    return np.array(table, np.int64)
