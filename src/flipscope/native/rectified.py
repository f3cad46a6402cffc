"""Compiled loops of an MLP with ReLU that leave out the units that are off, in float32.

Rows of one token under different flips differ little, so the same units are off in nearly all of them. Rows are taken
in blocks of sixteen, one per lane: a block turned on its side, [coordinate, lane], needs no unit that is off in all of
its lanes, and any choice of units is as fast as all of them in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from numba import float32, int64, njit, void

from flipscope.native.compiled import compiled
from flipscope.native.products import store_rows, turned_rows
from flipscope.native.simd import (
    BLOCK,
    add,
    add_chosen,
    add_spread,
    any_nonzero,
    block_rows,
    eights,
    group_of,
    inverse_root,
    larger,
    load,
    load_column,
    load_group,
    multiply,
    multiply_add,
    splat,
    splat_column,
    splat_group,
    spread_column,
    store,
    store_tile,
    subtract,
)
from flipscope.native.span import Span, compiled_by_span

_cube, _matrix, _row, _number = float32[:, :, ::1], float32[:, ::1], float32[::1], float32
_whole_matrix = int64[:, ::1]
_ZERO, _ONE = np.float32(0), np.float32(1)


_EIGHT = 8


@njit(inline="always")  # type: ignore[untyped-decorator]
def _turn(source: Any, rows: Any, first: Any, stride: Any, column: Any, out: Any, to: Any) -> None:
    """Eight columns of eight rows become eight rows of eight lanes."""
    columns = turned_rows(
        source,
        rows[first] * stride + column,
        rows[first + 1] * stride + column,
        rows[first + 2] * stride + column,
        rows[first + 3] * stride + column,
        rows[first + 4] * stride + column,
        rows[first + 5] * stride + column,
        rows[first + 6] * stride + column,
        rows[first + 7] * stride + column,
    )
    store_rows(out, to, BLOCK, columns)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _turn_back(y: Any, at: Any, out: Any, rows: Any, first: Any, stride: Any, column: Any) -> None:
    """Eight rows of eight lanes become eight columns of eight rows."""
    a, b, c, d, e, f, g, h = turned_rows(
        y,
        at,
        at + BLOCK,
        at + 2 * BLOCK,
        at + 3 * BLOCK,
        at + 4 * BLOCK,
        at + 5 * BLOCK,
        at + 6 * BLOCK,
        at + 7 * BLOCK,
    )
    store(out, rows[first] * stride + column, a)
    store(out, rows[first + 1] * stride + column, b)
    store(out, rows[first + 2] * stride + column, c)
    store(out, rows[first + 3] * stride + column, d)
    store(out, rows[first + 4] * stride + column, e)
    store(out, rows[first + 5] * stride + column, f)
    store(out, rows[first + 6] * stride + column, g)
    store(out, rows[first + 7] * stride + column, h)


@compiled(void(_matrix, _whole_matrix, _matrix, int64, int64))
def take_blocks(
    x: Float32[np.ndarray, "row width"],
    rows: Int64[np.ndarray, "block lane"],
    out: Float32[np.ndarray, "block width_lane"],
    first: int,
    last: int,
) -> None:
    """The rows of blocks first .. last - 1, turned on their side; the width is a multiple of eight."""
    flat, width = x.reshape(-1), x.shape[1]
    for block in range(first, last):
        into, chosen = out[block], rows[block]
        for column in range(0, width, _EIGHT):
            for half in range(0, BLOCK, _EIGHT):
                _turn(flat, chosen, half, width, column, into, column * BLOCK + half)


@compiled(void(_matrix, _row, _matrix, _whole_matrix, _whole_matrix, int64, _whole_matrix, int64, int64))
def possible_units(
    centre: Float32[np.ndarray, "token unit"],
    norm: Float32[np.ndarray, " unit"],
    radius: Float32[np.ndarray, "block lane"],
    token: Int64[np.ndarray, "block lane"],
    units: Int64[np.ndarray, "block unit"],
    part: int,
    starts: Int64[np.ndarray, "block parts_and_one"],
    first: int,
    last: int,
) -> None:
    """The units that some lane may switch on, by the Cauchy-Schwarz inequality, in parts of so many units.

    At a lane's centre, the row of the unflipped string at its token, unit u has ``centre[token, u]``; within a
    ``radius`` it stays below that plus the radius times the unit's norm.
    """
    hidden = len(norm)
    far = np.zeros(BLOCK, np.float32)
    where = np.zeros(BLOCK, np.int64)
    for block in range(first, last):
        kinds = 0  # lanes of the same token stand together: the farthest speaks for all
        for lane in range(BLOCK):
            if kinds > 0 and where[kinds - 1] == token[block, lane]:
                far[kinds - 1] = max(far[kinds - 1], radius[block, lane])
            else:
                where[kinds], far[kinds] = token[block, lane], radius[block, lane]
                kinds += 1
        chosen, count = units[block], 0
        for number in range((hidden + part - 1) // part):
            starts[block, number] = count
            low, high = number * part, min(number * part + part, hidden)
            if kinds == 1:
                row, distance = centre[where[0]], far[0]
                for unit in range(low, high):
                    chosen[count] = unit
                    count += not (row[unit] + distance * norm[unit] < _ZERO)
            else:
                for unit in range(low, high):
                    possible = False
                    for kind in range(kinds):
                        possible |= not (centre[where[kind], unit] + far[kind] * norm[unit] < _ZERO)
                    chosen[count] = unit
                    count += possible
        starts[block, (hidden + part - 1) // part] = count


_hidden = (_matrix, _matrix, _row, _whole_matrix, _whole_matrix, _matrix, _whole_matrix, _whole_matrix)


@compiled_by_span(lambda span: [void(span, *_hidden, int64, int64, int64)])
def hidden_units(
    span: Span,
    x: Float32[np.ndarray, "block width_lane"],
    up: Float32[np.ndarray, "unit width"],
    bias: Float32[np.ndarray, " unit"],
    units: Int64[np.ndarray, "block unit"],
    starts: Int64[np.ndarray, "block parts_and_one"],
    values: Float32[np.ndarray, "block unit_lane"],
    active: Int64[np.ndarray, "block unit"],
    active_starts: Int64[np.ndarray, "block parts_and_one"],
    part: int,
    first: int,
    last: int,
) -> None:
    """The possible units of one part that are on in some lane, and their values: appended to those of earlier parts."""
    of, lanes, group, width = block_rows(span), span.lanes, group_of(span.lanes), up.shape[1]
    flat = up.reshape(-1)
    found, begins = np.zeros(group * BLOCK, np.float32), np.zeros(group, np.int64)
    for block in range(first, last):
        rows, chosen, into, names = x[block], units[block], values[block], active[block]
        begin, end = starts[block, part], starts[block, part + 1]
        count = active_starts[block, part]
        for at in range(begin, end, group):
            for k in range(group):  # the last group computes its last unit more than once
                begins[k] = chosen[min(at + k, end - 1)] * width
            sums = splat_group(of, _ZERO)
            for column in range(width):
                sums = add_chosen(sums, rows, column * BLOCK, lanes, flat, begins, column)
            store_tile(found, 0, lanes, BLOCK, sums)
            for k in range(min(group, end - at)):
                unit = chosen[at + k]
                number = add(load_column(of, found, k * BLOCK, lanes), spread_column(of, bias, unit, 0))
                number = larger(splat(number, _ZERO), number)
                store_tile(into, count * BLOCK, lanes, 0, number)
                names[count] = unit
                count += any_nonzero(number)
        active_starts[block, part + 1] = count


@compiled_by_span(
    lambda span: [void(span, _matrix, _whole_matrix, _matrix, _whole_matrix, int64, _whole_matrix, int64, int64)]
)
def active_units(
    span: Span,
    hidden: Float32[np.ndarray, "row unit"],
    rows: Int64[np.ndarray, "block lane"],
    values: Float32[np.ndarray, "block unit_lane"],
    active: Int64[np.ndarray, "block unit"],
    part: int,
    starts: Int64[np.ndarray, "block parts_and_one"],
    first: int,
    last: int,
) -> None:
    """Of hidden units that are computed already, those that are on in some lane, and their values, in parts."""
    of, flat, width = block_rows(span), hidden.reshape(-1), hidden.shape[1]
    eight = np.zeros(_EIGHT * BLOCK, np.float32)
    for block in range(first, last):
        chosen, into, names, count = rows[block], values[block], active[block], 0
        for column in range(0, width, _EIGHT):
            if column % part == 0:
                starts[block, column // part] = count
            for half in range(0, BLOCK, _EIGHT):
                _turn(flat, chosen, half, width, column, eight, half)
            for k in range(_EIGHT):
                number = load_column(of, eight, k * BLOCK, span.lanes)
                store_tile(into, count * BLOCK, span.lanes, 0, number)
                names[count] = column + k
                count += any_nonzero(number)
        starts[block, (width + part - 1) // part] = count


@compiled_by_span(
    lambda span: [void(span, _matrix, _whole_matrix, _whole_matrix, _cube, int64, int64, _matrix, int64, int64)]
)
def add_units(
    span: Span,
    values: Float32[np.ndarray, "block unit_lane"],
    active: Int64[np.ndarray, "block unit"],
    starts: Int64[np.ndarray, "block parts_and_one"],
    down: Float32[np.ndarray, "part group unit_coordinate"],
    part: int,
    size: int,
    out: Float32[np.ndarray, "block width_lane"],
    first: int,
    last: int,
) -> None:
    """Add to each block what the active units of one part, of ``size`` units, bring to its coordinates."""
    of, lanes, group = block_rows(span), span.lanes, group_of(span.lanes)
    for block in range(first, last):
        brought, names, into = values[block], active[block], out[block]
        begin, end = starts[block, part], starts[block, part + 1]
        for number in range(down.shape[1]):
            weights, to = down[part, number], number * group * BLOCK
            sums = splat_group(of, _ZERO)
            for k in range(begin, end):
                at = (names[k] - part * size) * group
                sums = add_spread(sums, brought, k * BLOCK, lanes, weights, at)
            # Added at the end: each part is summed by itself, and rounded the less.
            store_tile(into, to, lanes, BLOCK, add(load_group(of, into, to, lanes, BLOCK), sums))


@compiled_by_span(lambda span: [void(span, _matrix, _row, _row, _row, _number, _whole_matrix, _matrix, int64, int64)])
def put_blocks(
    span: Span,
    sums: Float32[np.ndarray, "block width_lane"],
    bias: Float32[np.ndarray, " width"],
    gain: Float32[np.ndarray, " width"],
    shift: Float32[np.ndarray, " width"],
    eps: float,
    rows: Int64[np.ndarray, "block lane"],
    x: Float32[np.ndarray, "row width"],
    first: int,
    last: int,
) -> None:
    """The rows of the blocks become the layer norm of their sums + bias (Eqs 11-13); lanes may share a row."""
    of, lanes, flat, width = block_rows(span), span.lanes, x.reshape(-1), x.shape[1]
    zero = splat_column(of, _ZERO)
    share = splat(zero, _ONE / np.float32(width))
    for block in range(first, last):
        y, chosen = sums[block], rows[block]
        # The mean is corrected by the mean of what is left, so that equal numbers become exactly zero.
        total, left = zero, zero
        for column in range(width):
            number = add(load_column(of, y, column * BLOCK, lanes), spread_column(of, bias, column, 0))
            store_tile(y, column * BLOCK, lanes, 0, number)
            total = add(total, number)
        mean, total = multiply(total, share), zero
        for column in range(width):
            number = subtract(load_column(of, y, column * BLOCK, lanes), mean)
            left, total = add(left, number), multiply_add(number, number, total)
        left = multiply(left, share)
        variance = larger(zero, subtract(multiply(total, share), multiply(left, left)))
        mean, z = add(mean, left), inverse_root(add(variance, splat(zero, eps)))
        for begin in range(0, width, _EIGHT):
            for column in range(begin, begin + _EIGHT):
                number = multiply(subtract(load_column(of, y, column * BLOCK, lanes), mean), z)
                number = multiply_add(number, spread_column(of, gain, column, 0), spread_column(of, shift, column, 0))
                store_tile(y, column * BLOCK, lanes, 0, number)
            for half in range(0, BLOCK, _EIGHT):
                _turn_back(y, begin * BLOCK + half, flat, chosen, half, width, begin)


@compiled(void(_matrix, _matrix, _row, int64, int64))
def distances(
    x: Float32[np.ndarray, "row width"],
    centre: Float32[np.ndarray, "token width"],
    out: Float32[np.ndarray, " row"],
    first: int,
    last: int,
) -> None:
    """How far rows first .. last - 1, of one token after the other again and again, are from their token's centre."""
    flat, centres, width = x.reshape(-1), centre.reshape(-1), x.shape[1]
    of, eight = eights(), np.zeros(_EIGHT, np.float32)
    for row in range(first, last):
        token = row % len(centre)
        total = splat(of, _ZERO)
        for column in range(0, width, _EIGHT):
            number = subtract(load(of, flat, row * width + column), load(of, centres, token * width + column))
            total = multiply_add(number, number, total)
        store(eight, 0, total)
        out[row] = np.sqrt(eight.sum())
