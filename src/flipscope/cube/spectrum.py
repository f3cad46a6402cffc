"""Walsh-Hadamard spectra: coefficients f^(S) = E_x[f(x) chi_S(x)], degree, sparsity, weight by degree, noise stability.

A Boolean function is transformed as (-1)^f, so that by Parseval its squared coefficients sum to 1. Answers are exact:
integers over a power of two, from closed forms (symmetric functions, gates over disjoint parts) where there are any,
from the integer transform of the truth table of the relevant bits elsewhere. Real tables have ``RealSpectrum``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import Bits, Words
from flipscope.basics.errors import InputError
from flipscope.basics.progress import Progress
from flipscope.cube.blocks import table_words
from flipscope.cube.compose import NotExact, analyse
from flipscope.cube.functions import BooleanFunction, checked_index, checked_whole
from flipscope.cube.polynomials import Products
from flipscope.cube.structure import Leaf, Symmetric, Table, apply, real_table, variable, xor_kernel

MAX_SPECTRUM_BITS = 28  # 2^28 32-bit coefficients are 1 GiB
MAX_JUMP_WORK = 12e9  # steps times bits of a step's integers, in the closed form of a symmetric function: seconds


# ---------------------------------------------------------------- the transform


def walsh_hadamard(values: ArrayLike) -> NDArray[Any]:
    """Unnormalised transform of a table of length 2^n, as float32, float64 or exact int64 like its input."""
    from flipscope.native import walsh

    array = real_table(values)
    if array.dtype == np.float32:
        out = array.copy()
    elif array.dtype.kind in "biu":
        out = array.astype(np.int64)
        largest = max(-int(array.min()), int(array.max()))  # before the conversion, which wraps silently
        if largest * len(out) >= 1 << 63:
            raise InputError("the integers are too large for an exact transform; use float64.")
    else:
        out = array.astype(np.float64)
    walsh.transform(out)
    return out


def inverse_walsh_hadamard(coefficients: ArrayLike) -> NDArray[np.float64]:
    """The table whose normalised coefficients f^(S) these are."""
    return walsh_hadamard(real_table(coefficients).astype(np.float64))


# ---------------------------------------------------------------- exact analysis of Boolean functions


@dataclass(frozen=True)
class Weights:
    """The spectrum summed by degree over the relevant bits; every number is an exact integer over a power of two."""

    bits: int
    mean: int  # f^(empty set), over 2^bits
    squares: dict[int, int]  # degree >= 1 -> sum of f^(S)^2, over 4^bits
    nonzero: int  # sets other than the empty one with f^(S) != 0
    magnitude: int  # sum of |f^(S)| over sets other than the empty one, over 2^bits


class _SpectrumAnalysis:
    """Weights of constants, symmetric functions, tables, and gates over disjoint parts."""

    name = "the exact spectrum"
    max_table_bits = MAX_SPECTRUM_BITS

    def __init__(self) -> None:
        self.products = Products()

    def constant(self, value: int) -> Weights:
        return Weights(0, 1 - 2 * value, {}, 0, 0)

    def symmetric(self, values: Bits, positions: tuple[int, ...]) -> Weights:
        n = len(positions)
        if Symmetric(values).kind in ("xor", "xnor"):
            return Weights(n, 0, {n: 1 << 2 * n}, 1, 1 << n)
        by_size = symmetric_coefficients(values)
        squares, nonzero, magnitude, ways = {}, 0, 0, 1
        for size in range(1, n + 1):
            ways = ways * (n - size + 1) // size  # number of sets of this size
            if by_size[size]:
                squares[size] = ways * by_size[size] ** 2
                nonzero += ways
                magnitude += ways * abs(by_size[size])
        return Weights(n, by_size[0], squares, nonzero, magnitude)

    def table(self, words: Words, positions: tuple[int, ...]) -> Weights:
        from flipscope.native import walsh

        width = len(positions)
        coefficients = table_coefficients(words, width)
        squares, nonzero, magnitudes = walsh.sums_by_degree(coefficients)
        return Weights(
            width,
            int(coefficients[0]),
            {size: total for size, total in enumerate(squares) if size and total},
            sum(nonzero[1:]),
            sum(magnitudes[1:]),
        )

    def combine(self, outer: Bits, parts: Sequence[Weights]) -> Weights:
        """F = sum_T o^(T) prod_{i in T} G_i; collecting sets by the parts U they touch gives, for each U, one factor.

        The sum over all U of factor^2 prod_{i in U} (squares of part i) is folded part by part, the last one first.
        """
        k, bits = len(parts), sum(part.bits for part in parts)
        factors = _factors(outer, parts)
        mean, factors[0] = factors[0], 0
        squares = [{0: factor * factor} if factor else {} for factor in factors]
        nonzero = [int(factor != 0) for factor in factors]
        magnitude = [abs(factor) for factor in factors]
        for i in reversed(range(k)):
            part, half = parts[i], 1 << i
            for u in range(half):
                for size, square in self.products.multiply(squares[u + half], part.squares).items():
                    squares[u][size] = squares[u].get(size, 0) + square
                nonzero[u] += nonzero[u + half] * part.nonzero
                magnitude[u] += magnitude[u + half] * part.magnitude
        # o^ carries 2^k beyond the function's own denominators: every sum is a multiple of it.
        scaled = {size: square >> 2 * k for size, square in squares[0].items()}
        return Weights(bits, mean >> k, scaled, nonzero[0], magnitude[0] >> k)


def _factors(outer: Bits, parts: Sequence[Any]) -> list[int]:
    """c_U = sum over T containing U of o^(T) prod_{i in T - U} mean_i, times 2^k prod_{i not in U} 2^bits_i."""
    spectrum = [int(a) for a in walsh_hadamard(1 - 2 * outer.astype(np.int64))]
    for i, part in enumerate(parts):
        for touched in range(len(spectrum)):
            if not (touched >> i) & 1:
                with_i = touched | 1 << i
                spectrum[touched] = (spectrum[touched] << part.bits) + spectrum[with_i] * part.mean
    return spectrum


def symmetric_coefficients(values: Bits) -> list[int]:
    """2^n f^(S) for |S| = 0..n of a symmetric function, exact integers.

    For S containing i, f^(S) is the coefficient of S - {i} of the derivative at i, which lives on the slices w where
    the value changes; a slice's coefficients are Krawtchouk numbers, with a three-term recurrence in |S|.
    """
    n = len(values) - 1
    jumps = np.flatnonzero(values[1:] != values[:-1])
    if len(jumps) * n * (n + 500) > MAX_JUMP_WORK:
        raise NotExact(
            f"the exact spectrum of a symmetric function of {n} bits with {len(jumps)} jumps is too long to "
            "compute; sample instead."
        )
    total = [0] * (n + 1)
    ways = 1
    binomials = []  # of the n - 1 remaining bits
    for ones in range(n + 1):
        total[0] += ways * (1 - 2 * int(values[ones]))
        binomials.append(ways * (n - ones) // n)
        ways = ways * (n - ones) // (ones + 1)
    rest = n - 1
    for jump in jumps:
        slice_ones = int(jump)
        sign = 1 if values[jump + 1] else -1  # (-1)^f falls from +1 to -1 here, or rises
        before, now = 0, binomials[slice_ones]
        for size in range(n):
            total[size + 1] += 2 * sign * now
            if size < rest:
                before, now = now, ((rest - 2 * slice_ones) * now - size * before) // (rest - size)
    return total


def table_coefficients(words: Words, width: int) -> NDArray[np.int32]:
    """2^n f^(S) of (-1)^f for a packed table, by the index of S (position 1 least significant), exact."""
    from flipscope.native import walsh

    full = walsh.transform_table(words, np.int32)
    if width >= 6:
        return full
    # A table of fewer than six bits is repeated in its word: only sets inside its bits are non-zero.
    return full[: 1 << width] >> (6 - width)


@checked_arguments
def weights(f: BooleanFunction, progress: Progress | None = None) -> Weights:
    """The exact spectrum of f summed by degree, computed once per function."""
    if "spectrum" not in f.cache:
        f.cache["spectrum"] = analyse(f.node, _SpectrumAnalysis(), progress)
    found: Weights = f.cache["spectrum"]
    return found


@checked_arguments
def weight_by_degree(f: BooleanFunction) -> list[Fraction]:
    """W_0..W_n: the sum of f^(S)^2 over sets of each size, exact; they sum to 1."""
    known = weights(f)
    scale = 1 << 2 * known.bits
    return [Fraction(known.mean**2, scale)] + [Fraction(known.squares.get(d, 0), scale) for d in range(1, f.n + 1)]


@checked_arguments
def weight_floats(f: BooleanFunction) -> list[float]:
    """W_0..W_n as correctly rounded floats: far faster than fractions when n is in the thousands."""
    known = weights(f)
    scale = 1 << 2 * known.bits
    return [known.mean**2 / scale] + [known.squares.get(d, 0) / scale for d in range(1, f.n + 1)]


@checked_arguments
def degree(f: BooleanFunction) -> int:
    """The size of the largest set with a non-zero coefficient (0 for constants)."""
    return max(weights(f).squares, default=0)


@checked_arguments
def sparsity(f: BooleanFunction) -> int:
    """The number of non-zero coefficients, exact."""
    known = weights(f)
    return known.nonzero + (known.mean != 0)


@checked_arguments
def spectral_norm(f: BooleanFunction) -> Fraction:
    """The sum of |f^(S)|, exact."""
    known = weights(f)
    return Fraction(known.magnitude + abs(known.mean), 1 << known.bits)


@checked_arguments
def noise_stability(f: BooleanFunction, rho: float) -> float:
    """Stab_rho(f) = sum of rho^|S| f^(S)^2: the correlation of f(x) and f(y) for rho-correlated x, y."""
    rho = _checked_rho(rho)
    return math.fsum(rho**d * w for d, w in enumerate(weight_floats(f)) if w)


@checked_arguments
def noise_sensitivity(f: BooleanFunction, delta: float) -> float:
    """NS_delta(f) = P(f(x) != f(y)) when y is x with every bit flipped with probability delta."""
    if not (isinstance(delta, Real) and 0 <= delta <= 1):
        raise InputError(f"a flip probability is between 0 and 1; delta = {delta} is not.")
    # The sum of P(an odd number of the bits of S is flipped) f^(S)^2: only positive terms, so that no digit cancels.
    return math.fsum(_odd_chance(d, delta) * w for d, w in enumerate(weight_floats(f)) if d and w)


def _odd_chance(count: int, delta: float) -> float:
    """(1 - (1 - 2 delta)^count) / 2, the probability of an odd number of flips, to the last digits at any delta."""
    rare = float(min(delta, 1 - delta))  # of flipping or of not flipping: the difference is exact above a half
    chance = -math.expm1(count * math.log1p(-2 * rare)) / 2 if rare < 0.5 else 0.5
    return 1 - chance if count % 2 and delta > 0.5 else chance


def _checked_rho(rho: float) -> float:
    if not (isinstance(rho, Real) and -1 <= rho <= 1):
        raise InputError(f"a correlation is between -1 and 1; rho = {rho} is not.")
    return float(rho)


@checked_arguments
def coefficient(f: BooleanFunction, positions: Iterable[int]) -> Fraction:
    """f^(S) for one set of positions (0-based), exact."""
    chosen = frozenset(checked_index(p, f.n) for p in positions)
    if not chosen <= set(f.support):
        return Fraction(0)
    single = analyse(f.node, _CoefficientAnalysis(chosen))
    # Parts that cancel take their variables with them: a set with such a variable has no coefficient.
    return Fraction(single.value, 1 << single.bits) if single.met == len(chosen) else Fraction(0)


@dataclass(frozen=True)
class _Single:
    """One part's coefficient at the wanted set's share of its variables and at the empty set, over 2^bits."""

    bits: int
    value: int
    mean: int
    met: int  # how many of the wanted positions are among this part's variables


class _CoefficientAnalysis:
    """The coefficient of one set."""

    name = "an exact coefficient"
    max_table_bits = MAX_SPECTRUM_BITS

    def __init__(self, chosen: frozenset[int]) -> None:
        self.chosen = chosen

    def constant(self, value: int) -> _Single:
        return _Single(0, 1 - 2 * value, 1 - 2 * value, 0)

    def symmetric(self, values: Bits, positions: tuple[int, ...]) -> _Single:
        n, size = len(positions), len(self.chosen.intersection(positions))
        kind = Symmetric(values).kind
        if kind in ("xor", "xnor"):
            sign = 1 if kind == "xor" else -1
            return _Single(n, (sign << n) if size == n else 0, 0, size)
        by_size = symmetric_coefficients(values)
        return _Single(n, by_size[size], by_size[0], size)

    def table(self, words: Words, positions: tuple[int, ...]) -> _Single:
        width, inside = len(positions), [p for p in positions if p in self.chosen]
        total = 1 << width
        leaf = Leaf(Table(width, words), positions)
        character = apply(xor_kernel(len(inside)), [variable(p) for p in inside])
        mixed = table_words(apply(xor_kernel(2), [leaf, character]), positions=positions)
        repeats = 1 << max(0, 6 - width)
        ones, mixed_ones = (int(np.bitwise_count(w).sum(dtype=np.int64)) // repeats for w in (words, mixed))
        return _Single(width, total - 2 * mixed_ones, total - 2 * ones, len(inside))

    def combine(self, outer: Bits, parts: Sequence[_Single]) -> _Single:
        k, bits = len(parts), sum(part.bits for part in parts)
        factors = _factors(outer, parts)
        touched = sum(1 << i for i, part in enumerate(parts) if part.met)
        value = factors[touched]
        for part in parts:
            if part.met:
                value *= part.value
        return _Single(bits, value >> k, factors[0] >> k, sum(part.met for part in parts))


@checked_arguments
def coefficients(f: BooleanFunction) -> dict[tuple[int, ...], Fraction]:
    """Every non-zero f^(S) by its set of positions, for functions of few relevant bits inside any n."""
    width = len(f.support)
    if width > 20:
        raise NotExact(f"all coefficients are listed for at most 20 relevant bits; this has {width}.")
    table = table_coefficients(table_words(f.node), width)
    return {
        tuple(p for j, p in enumerate(f.support) if (int(index) >> j) & 1): Fraction(int(table[index]), 1 << width)
        for index in np.flatnonzero(table)
    }


@checked_arguments
def level_inequality(f: BooleanFunction, k: int) -> tuple[float, float]:
    """The weight of the 0/1-valued f up to degree k, and the level-k bound (2e/k ln(1/a))^k a^2 on it.

    a is the smaller of P(f = 1) and P(f = 0); the bound holds for k <= 2 ln(1/a) (O'Donnell 2014, section 9.5).
    """
    from flipscope.cube.sensitivity import count_ones

    share = min(Fraction(count_ones(f), 1 << f.n), 1 - Fraction(count_ones(f), 1 << f.n))
    if share == 0:
        raise InputError("the level inequality does not apply to a constant function.")
    room = 2 * (math.log(share.denominator) - math.log(share.numerator))  # 1 / share may be beyond any float
    k = checked_whole(k, "the level")
    if not 1 <= k <= room:
        raise InputError(f"the level inequality needs 1 <= k <= 2 ln(1/a) = {room:.3g}; k = {k} is outside.")
    # (-1)^f = 1 - 2 f: every coefficient but the first is halved; the first is the share itself.
    low = float(share) ** 2 + math.fsum(weight_floats(f)[1 : k + 1]) / 4
    return low, (math.e * room / k) ** k * float(share) ** 2


# ---------------------------------------------------------------- functions with real values


@dataclass(frozen=True, eq=False)
class RealSpectrum:
    """The spectrum of a real function given by its table of 2^n values (position 1 least significant)."""

    coefficients: NDArray[np.float64]  # f^(S) by the index of S

    @staticmethod
    def of(values: ArrayLike) -> RealSpectrum:
        """The normalised spectrum of a real table."""
        table = walsh_hadamard(real_table(values).astype(np.float64))
        return RealSpectrum(table / len(table))

    @property
    def n(self) -> int:
        return len(self.coefficients).bit_length() - 1

    def coefficient(self, positions: Iterable[int]) -> float:
        """f^(S) for one set of positions (0-based)."""
        return float(self.coefficients[sum(1 << checked_index(p, self.n) for p in set(positions))])

    def weight_by_degree(self) -> NDArray[np.float64]:
        """W_0..W_n: sums of f^(S)^2 by |S|."""
        sizes = np.bitwise_count(np.arange(len(self.coefficients), dtype=np.uint64))
        return np.asarray(np.bincount(sizes, weights=self.coefficients**2, minlength=self.n + 1), np.float64)

    def degree(self, tolerance: float = 1e-9) -> int:
        """The largest |S| with |f^(S)| > tolerance."""
        kept = np.flatnonzero(np.abs(self.coefficients) > tolerance).astype(np.uint64)
        return int(np.bitwise_count(kept).max()) if len(kept) else 0

    def sparsity(self, tolerance: float = 1e-9) -> int:
        """The number of sets with |f^(S)| > tolerance."""
        return int((np.abs(self.coefficients) > tolerance).sum())

    def average_sensitivity(self) -> float:
        """as(f) = sum of |S| f^(S)^2 (001's convention: a quarter of the summed squared differences)."""
        return float(np.arange(self.n + 1) @ self.weight_by_degree())

    def noise_stability(self, rho: float) -> float:
        """Stab_rho(f) = sum of rho^|S| f^(S)^2."""
        return float(_checked_rho(rho) ** np.arange(self.n + 1) @ self.weight_by_degree())

    def spectral_norm(self) -> float:
        """The sum of |f^(S)|."""
        return float(np.abs(self.coefficients).sum())

    def table(self) -> NDArray[np.float64]:
        """The real table this is the spectrum of."""
        return inverse_walsh_hadamard(self.coefficients)
