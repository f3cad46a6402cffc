"""Weighted means over positions, of very many strings, where each bit chooses its position's weights and vector.

Four bits choose one of sixteen rows that were added up beforehand: a quarter of the sums. Half of a row are weights,
one per coordinate, the other half vectors times weights. The table has the first lanes of all rows, then the second
ones and so on: each such part stays in the nearest cache for some strings.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, UInt32
from numba import float32, int64, uint32, void

from flipscope.native.products import LINE, copy, round_up
from flipscope.native.simd import UNITS, add, divide, load, splat, store
from flipscope.native.span import Span, compiled_by_span

GROUP = 4  # bits
CODES = 1 << GROUP
_STRINGS = 32  # for which a part of the table is read together
_row, _words = float32[::1], uint32[::1]
_ZERO, _ONE = np.float32(0), np.float32(1)
_AS_NUMBER, _TOP = 0x01020408, 24  # bytes b0 .. b3, each 0 or 1, become b0 + 2 b1 + 4 b2 + 8 b3 in the fourth


@compiled_by_span(lambda span: [void(span, _row, int64, int64, _row)])
def group_rows(
    span: Span,
    terms: Float32[np.ndarray, " bit_position_row"],
    count: int,
    wide: int,
    table: Float32[np.ndarray, " vector_group_code_lane"],
) -> None:
    """For each group of positions and each value of its bits the sum of the rows of 2 ``wide`` that they choose."""
    row, groups = 2 * wide, (count + GROUP - 1) // GROUP
    for lane in range(0, row, span.lanes):
        for first in range(0, count, GROUP):
            for code in range(CODES):
                total = splat(span, _ZERO)
                for k in range(first, min(first + GROUP, count)):
                    total = add(total, load(span, terms, ((code >> (k - first) & 1) * count + k) * row + lane))
                store(table, lane * groups * CODES + (first // GROUP * CODES + code) * span.lanes, total)


@compiled_by_span(lambda span: [void(span, _words, int64, _row, _row, int64, _row, int64, int64)])
def weighted_means(
    span: Span,
    bits: UInt32[np.ndarray, " string_group"],
    groups: int,
    table: Float32[np.ndarray, " vector_group_code_lane"],
    constant: Float32[np.ndarray, " row"],
    size: int,
    out: Float32[np.ndarray, " string_size"],
    first: int,
    last: int,
) -> None:
    """The means of strings first .. last - 1, whose bits are bytes; the constant is one row more of every string."""
    wide = round_up(size, LINE)
    row, part = 2 * wide, groups * CODES
    places, sums = np.zeros(_STRINGS * groups, np.int64), np.empty(_STRINGS * row, np.float32)
    for begin in range(first, last, _STRINGS):
        count = min(_STRINGS, last - begin)
        for string in range(count):
            for group in range(groups):
                code = int64(bits[(begin + string) * groups + group]) * _AS_NUMBER >> _TOP & (CODES - 1)
                places[string * groups + group] = (group * CODES + code) * span.lanes
        for lane in range(0, row, span.lanes):
            for string in range(0, count, UNITS):  # one sum alone would wait for its last addition
                a = b = c = d = load(span, constant, lane)
                for k in range(string * groups, (string + 1) * groups):
                    a = add(a, load(span, table, lane * part + places[k]))
                    b = add(b, load(span, table, lane * part + places[k + groups]))
                    c = add(c, load(span, table, lane * part + places[k + 2 * groups]))
                    d = add(d, load(span, table, lane * part + places[k + 3 * groups]))
                to = string * row + lane
                store(sums, to, a)
                store(sums, to + row, b)
                store(sums, to + 2 * row, c)
                store(sums, to + 3 * row, d)
        for string in range(count):
            for at in range(string * row, string * row + wide, span.lanes):
                store(sums, at, divide(load(span, sums, at + wide), load(span, sums, at)))
            copy(sums, string * row, size, _ONE, out, (begin + string) * size)
