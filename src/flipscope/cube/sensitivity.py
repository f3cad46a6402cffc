"""Exact sensitivity: profile K_0..K_n (Def 2.6), average, maximum, minimum (Defs 2.3-2.5), influences, and the
strings that reach the extremes; block sensitivity and certificate complexity for few bits.

Closed forms where the structure has one (symmetric functions, juntas inside any n, gates over disjoint parts), the
compiled kernels on the packed truth table elsewhere. All counts are exact Python integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, Words, as_array, unpack
from flipscope.basics.progress import Progress
from flipscope.cube.blocks import table_words
from flipscope.cube.compose import NotExact, analyse
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.polynomials import Products
from flipscope.cube.structure import MAX_TABLE_BITS, real_table

Counts = dict[int, int]  # sensitivity -> number of strings
Ones = frozenset[int]  # a string, as the set of positions that are 1

MAX_CERTIFICATE_BITS = 12  # block sensitivity and certificates look at all 3^n subcubes


@dataclass(frozen=True)
class Facts:
    """The sensitivity of a function over its relevant bits, split by the function's value."""

    bits: int
    counts: tuple[Counts, Counts]
    influences: dict[int, int]  # position -> number of strings sensitive there
    largest: tuple[tuple[int, Ones] | None, tuple[int, Ones] | None]  # by value: sensitivity and a string
    smallest: tuple[tuple[int, Ones] | None, tuple[int, Ones] | None]

    def total(self, value: int) -> int:
        return sum(self.counts[value].values())


class _SensitivityAnalysis:
    """Sensitivity facts of constants, symmetric functions, tables, and gates over disjoint parts."""

    name = "exact sensitivity"
    max_table_bits = MAX_TABLE_BITS

    def __init__(self) -> None:
        self.products = Products()

    def constant(self, value: int) -> Facts:
        here: tuple[int, Ones] = (0, frozenset())
        reached = (None, here) if value else (here, None)
        return Facts(0, ({}, {0: 1}) if value else ({0: 1}, {}), {}, reached, reached)

    def symmetric(self, values: Bits, positions: tuple[int, ...]) -> Facts:
        n = len(positions)
        counts: tuple[Counts, Counts] = ({}, {})
        weights: tuple[dict[int, int], dict[int, int]] = ({}, {})  # by value: sensitivity -> a number of ones
        vector = [int(v) for v in values]
        ways, sensitive = 1, 0
        for ones in range(n + 1):
            value = vector[ones]
            down = ones if ones and vector[ones - 1] != value else 0
            up = n - ones if ones < n and vector[ones + 1] != value else 0
            s = down + up
            counts[value][s] = counts[value].get(s, 0) + ways
            weights[value].setdefault(s, ones)
            sensitive += s * ways
            ways = ways * (n - ones) // (ones + 1)  # the next binomial coefficient

        def reached(value: int, s: int) -> tuple[int, Ones]:
            return s, frozenset(positions[: weights[value][s]])

        return _facts(n, counts, dict.fromkeys(positions, sensitive // n), reached)

    def table(self, words: Words, positions: tuple[int, ...]) -> Facts:
        from flipscope.native import tables

        width = len(positions)
        every = tables.profile_counts(words, width)
        ones = tables.profile_counts(words, width, ones=True)
        counts: tuple[Counts, Counts] = (
            {s: a - b for s, (a, b) in enumerate(zip(every, ones, strict=True)) if a - b},
            {s: b for s, b in enumerate(ones) if b},
        )

        def reached(value: int, s: int) -> tuple[int, Ones]:
            index = tables.find_string(words, s, value)
            return s, frozenset(p for j, p in enumerate(positions) if (index >> j) & 1)

        influences = dict(zip(positions, tables.influence_counts(words, width), strict=True))
        return _facts(width, counts, influences, reached)

    def combine(self, outer: Bits, parts: Sequence[Facts]) -> Facts:
        """A flip inside part i changes the gate only where the gate is sensitive to its input i."""
        k = len(parts)
        counts: tuple[Counts, Counts] = ({}, {})
        influences = dict.fromkeys((p for part in parts for p in part.influences), 0)
        largest: list[tuple[int, Ones] | None] = [None, None]
        smallest: list[tuple[int, Ones] | None] = [None, None]
        for z in range(1 << k):
            inputs = [(z >> i) & 1 for i in range(k)]
            if not all(part.counts[v] for part, v in zip(parts, inputs, strict=True)):
                continue  # some part never takes this value
            value = int(outer[z])
            live = [int(outer[z ^ (1 << i)]) != value for i in range(k)]
            here: Counts = {0: 1}
            for part, v, sensitive in zip(parts, inputs, live, strict=True):
                here = self.products.multiply(here, part.counts[v] if sensitive else {0: part.total(v)})
            for s, ways in here.items():
                counts[value][s] = counts[value].get(s, 0) + ways
            for sign, record in ((1, largest), (-1, smallest)):
                s, ones = _extreme(parts, inputs, live, sign)
                old = record[value]
                if old is None or sign * s > sign * old[0]:
                    record[value] = (s, ones)
        for i, part in enumerate(parts):
            ways = _ways_to_be_sensitive(outer, parts, i)
            for position, strings in part.influences.items():
                influences[position] = strings * ways
        bits = sum(part.bits for part in parts)
        return Facts(bits, counts, influences, (largest[0], largest[1]), (smallest[0], smallest[1]))


def _facts(
    bits: int,
    counts: tuple[Counts, Counts],
    influences: dict[int, int],
    reached: Callable[[int, int], tuple[int, Ones]],
) -> Facts:
    """Facts whose extreme strings are given by value and sensitivity."""
    largest = [reached(v, max(counts[v])) if counts[v] else None for v in (0, 1)]
    smallest = [reached(v, min(counts[v])) if counts[v] else None for v in (0, 1)]
    return Facts(bits, counts, influences, (largest[0], largest[1]), (smallest[0], smallest[1]))


def _extreme(parts: Sequence[Facts], inputs: list[int], live: list[bool], sign: int) -> tuple[int, Ones]:
    """The largest (sign 1) or smallest (sign -1) sensitivity when the parts take these values, with a string."""
    total, ones = 0, frozenset[int]()
    for part, value, sensitive in zip(parts, inputs, live, strict=True):
        reached = (part.largest if sign > 0 else part.smallest)[value]
        assert reached is not None
        total += reached[0] if sensitive else 0
        ones |= reached[1]
    return total, ones


def _ways_to_be_sensitive(outer: Bits, parts: Sequence[Facts], i: int) -> int:
    """Number of assignments of the other parts on which the gate is sensitive to its input i."""
    ways = 0
    for z in range(len(outer)):
        if not (z >> i) & 1 and outer[z] != outer[z ^ (1 << i)]:
            product = 1
            for j, part in enumerate(parts):
                if j != i:
                    product *= part.total((z >> j) & 1)
            ways += product
    return ways


@checked_arguments
def facts(f: BooleanFunction, progress: Progress | None = None) -> Facts:
    """Everything exact about the sensitivity of f over its relevant bits, computed once per function."""
    if "sensitivity" not in f.cache:
        f.cache["sensitivity"] = analyse(f.node, _SensitivityAnalysis(), progress)
    found: Facts = f.cache["sensitivity"]
    return found


@checked_arguments
def profile(f: BooleanFunction, progress: Progress | None = None) -> list[int]:
    """K_0..K_n: the number of strings of each sensitivity (Def 2.6), exact integers."""
    known = facts(f, progress)
    spread = 1 << (f.n - known.bits)  # irrelevant bits repeat every string
    zeros, ones = known.counts
    return [(zeros.get(s, 0) + ones.get(s, 0)) * spread for s in range(f.n + 1)]


def zero_strings(f: BooleanFunction) -> int:
    """K_0: the number of strings on which no flip changes the value."""
    known = facts(f)
    return (known.counts[0].get(0, 0) + known.counts[1].get(0, 0)) << (f.n - known.bits)


def count_ones(f: BooleanFunction) -> int:
    """The number of strings on which f is 1."""
    known = facts(f)
    return known.total(1) << (f.n - known.bits)


def average_sensitivity(f: BooleanFunction) -> Fraction:
    """as_n(f) (Def 2.3), exact; it is the total influence, the sum of `influences`."""
    known = facts(f)
    return Fraction(sum(known.influences.values()), 1 << known.bits)


def max_sensitivity(f: BooleanFunction) -> int:
    """The largest sensitivity of a string (Def 2.4)."""
    return _reached(f, 1)[0]


def min_sensitivity(f: BooleanFunction) -> int:
    """The smallest sensitivity of a string (Def 2.5)."""
    return _reached(f, -1)[0]


@checked_arguments
def argmax_string(f: BooleanFunction) -> Bits:
    """A string of the largest sensitivity."""
    return _as_bits(f.n, _reached(f, 1)[1])


@checked_arguments
def argmin_string(f: BooleanFunction) -> Bits:
    """A string of the smallest sensitivity."""
    return _as_bits(f.n, _reached(f, -1)[1])


def _reached(f: BooleanFunction, sign: int) -> tuple[int, Ones]:
    known = facts(f)
    candidates = [found for found in (known.largest if sign > 0 else known.smallest) if found is not None]
    return max(candidates, key=lambda found: sign * found[0])


def _as_bits(n: int, ones: Ones) -> Bits:
    bits = np.zeros(n, np.uint8)
    bits[sorted(ones)] = 1
    return bits


def influences(f: BooleanFunction) -> list[Fraction]:
    """For each position the share of strings on which flipping it changes the value, exact."""
    known = facts(f)
    scale = 1 << known.bits
    return [Fraction(known.influences.get(position, 0), scale) for position in range(f.n)]


@checked_arguments
def string_sensitivity(f: BooleanFunction, bits: ArrayLike) -> NDArray[np.int64]:
    """s(x, f) of each given string by its n flips (Def 2.2), for any n."""
    strings = np.atleast_2d(as_array(bits, "the strings"))
    values = f(strings)  # refuses strings that are not valid
    strings = strings.astype(np.uint8)
    total = np.zeros(values.shape, np.int64)
    for position in f.support:
        strings[..., position] ^= 1
        total += f(strings) != values
        strings[..., position] ^= 1
    return total


@checked_arguments
def all_sensitivities(f: BooleanFunction, progress: Progress | None = None) -> NDArray[np.uint8]:
    """The sensitivity of every string, by index (position 1 least significant)."""
    from flipscope.native import tables

    whole = f.table_words(progress)
    return tables.all_sensitivities(whole, f.n)


def real_sensitivity(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """s(x, f) = sum over i of |f(x) - f(x^i)|^2 for a real table of length 2^n (Eq 2 of 000; 4 times 001's)."""
    table = real_table(values).astype(np.float64)
    n = len(table).bit_length() - 1
    index = np.arange(len(table))
    total = np.zeros_like(table)
    for j in range(n):
        total += (table - table[index ^ (1 << j)]) ** 2
    return total


def _small_table(f: BooleanFunction, what: str) -> Bits:
    width = len(f.support)
    if width > MAX_CERTIFICATE_BITS:
        raise NotExact(f"{what} is computed for at most {MAX_CERTIFICATE_BITS} relevant bits; this has {width}.")
    return unpack(table_words(f.node))[: 1 << width]


@checked_arguments
def block_sensitivity(f: BooleanFunction) -> int:
    """bs(f): the largest number of disjoint blocks whose flips each change the value, over all strings."""
    from flipscope.native import certificates

    return certificates.block_sensitivity(_small_table(f, "block sensitivity"))


@checked_arguments
def certificate_complexity(f: BooleanFunction) -> int:
    """C(f): the number of bits that prove the value, on the string where that takes most."""
    from flipscope.native import certificates

    return certificates.certificate_complexity(_small_table(f, "certificate complexity"))
