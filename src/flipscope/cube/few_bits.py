"""Many functions of at most six bits at once, each a truth table in one integer: bit i is its value on string i.

They are as `BooleanFunction.from_table(number, n)` reads them. For one function, or for more bits, there are
`cube.sensitivity` and `cube.spectrum`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import LOW_PATTERNS, as_array
from flipscope.basics.checks import check_count, shown
from flipscope.basics.errors import InputError
from flipscope.native.phrases import count_phrases

MAX_BITS = 6
_CHUNK = 1 << 14  # functions whose spectra are in memory together

Tables = NDArray[np.uint64]


@dataclass(frozen=True)
class Measures:
    """Quantities by which functions are ranked: one number per function in each array."""

    zero_strings: NDArray[np.int64]  # K_0: strings of sensitivity 0
    average_sensitivity: NDArray[np.float64]
    degree: NDArray[np.int64]  # largest |S| of a Fourier coefficient that is not 0
    description: NDArray[np.float64]  # bits, after Lempel and Ziv: `description_length`


@checked_arguments
def measures(tables: ArrayLike, n: int) -> Measures:
    """K_0, average sensitivity, degree and description length of each function.

    >>> found = measures([0b0000, 0b0110, 0b1000], 2)  # constant, parity, conjunction
    >>> found.zero_strings.tolist(), found.average_sensitivity.tolist(), found.degree.tolist()
    ([4, 0, 1], [0.0, 2.0, 1.0], [0, 2, 2])
    """
    words = checked_tables(tables, n)
    moved = np.zeros(words.shape, np.uint64)  # strings that some flip moves
    flips = np.zeros(words.shape, np.int64)
    for j in range(n):
        shift, pattern = np.uint64(1 << j), np.uint64(LOW_PATTERNS[j])
        change = (words ^ (words >> shift)) & ~pattern & full_table(n)  # seen from the string whose bit j is 0
        moved |= change | (change << shift)
        flips += 2 * np.bitwise_count(change).astype(np.int64)
    zeros = (1 << n) - np.bitwise_count(moved).astype(np.int64)
    return Measures(zeros, flips / 2**n, _degrees(words, n), description_length(words, n))


@checked_arguments
def description_length(tables: ArrayLike, n: int) -> NDArray[np.float64]:
    """Bits that describe each truth table: log2(2^n) times the phrases of Lempel and Ziv, of both directions averaged.

    Constants count one phrase. This is the measure of Dingle, Camargo and Louis (2018); it depends on the order of the
    strings, which is that of the truth table.

    >>> description_length([0b00000000, 0b01010101, 0b01101001], 3).tolist()
    [3.0, 9.0, 15.0]
    """
    words = np.ascontiguousarray(checked_tables(tables, n))
    size = 1 << n
    both = np.zeros((2, len(words)), np.int64)
    backwards = np.zeros_like(words)
    for string in range(size):
        backwards |= ((words >> np.uint64(string)) & np.uint64(1)) << np.uint64(size - 1 - string)
    count_phrases(words, size, both[0])
    count_phrases(backwards, size, both[1])
    constant = (words == 0) | (words == full_table(n))
    phrases: NDArray[np.float64] = np.where(constant, 1.0, both.mean(axis=0))
    return n * phrases


def full_table(n: int) -> np.uint64:
    """The truth table of the constant 1."""
    return np.uint64((1 << (1 << n)) - 1)


def checked_tables(tables: ArrayLike, n: int) -> Tables:
    """The truth tables as words, after checking that they are tables of n bits."""
    if check_count("n", n) > MAX_BITS:
        raise InputError(f"n={n} is too large: a truth table of more than {MAX_BITS} bits does not fit in one word")
    given = np.atleast_1d(as_array(tables, "tables"))
    if given.ndim != 1:
        raise InputError(f"tables of shape {given.shape} must be one row of whole numbers")
    if given.dtype.kind not in "iu":
        # numpy turns integers on both sides of 2^63 into floats, which are not exact: convert them one by one.
        given = np.array([check_count("a table", one, 0) for one in np.array(tables, object).reshape(-1)], object)
    ends = (given.min(), given.max()) if given.size else (0, 0)
    if int(ends[0]) < 0:
        raise InputError(f"tables contain {ends[0]}, but a truth table is a whole number of at least 0")
    if int(ends[1]) > int(full_table(n)):
        raise InputError(f"tables contain {shown(int(ends[1]))}, which has more than the 2^{n} values of n={n} bits")
    return given.astype(np.uint64)


def _degrees(words: Tables, n: int) -> NDArray[np.int64]:
    """The degree of each function, by the Walsh-Hadamard transform of its signs."""
    places = np.arange(1 << n, dtype=np.uint64)
    sizes = np.bitwise_count(places).astype(np.int64)
    characters = 1 - 2 * (np.bitwise_count(places[:, None] & places) & 1).astype(np.float32)  # exact: sums up to 64
    out = np.empty(len(words), np.int64)
    for start in range(0, len(words), _CHUNK):
        chunk = words[start : start + _CHUNK]
        signs = 1 - 2 * ((chunk[:, None] >> places) & np.uint64(1)).astype(np.float32)
        out[start : start + len(chunk)] = np.where(signs @ characters != 0, sizes, 0).max(axis=1)
    return out


@checked_arguments
def all_tables(n: int) -> Tables:
    """The truth tables of all functions of at most four bits.

    >>> len(all_tables(3))
    256
    """
    if check_count("n", n) > 4:
        raise InputError(f"n={n}: there are 2^{1 << n} functions, too many to list; four bits are the most")
    return np.arange(1 << (1 << n), dtype=np.uint64)
