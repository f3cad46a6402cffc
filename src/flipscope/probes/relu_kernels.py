"""Compiled loops of an MLP with ReLU that leave out the units that are off, in float32.

Rows of one token under different flips differ little, so the same units are off in nearly all of them. Rows are taken
in blocks of sixteen, one a lane: a block turned on its side, [coordinate, lane], needs no unit that is off in all of
its lanes, and any choice of units is as fast as all of them in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from numba import float32, int64, njit, void

from flipscope.cube.compiled import compiled
from flipscope.probes.simd import (
    LANES,
    add,
    any_nonzero,
    inverse_root,
    larger,
    load,
    multiply,
    multiply_add,
    splat,
    spread,
    store,
    subtract,
    turned,
)

BLOCK = 2 * LANES  # rows of a block, one a lane
GROUP = 6  # units, or coordinates, whose sums are held in registers together

_cube, _matrix, _row, _number = float32[:, :, ::1], float32[:, ::1], float32[::1], float32
_whole_matrix = int64[:, ::1]
_ZERO, _ONE = np.float32(0), np.float32(1)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _turn(source: Any, rows: Any, first: Any, stride: Any, column: Any, out: Any, to: Any) -> None:
    """Eight columns of eight rows become eight rows of eight lanes."""
    a, b, c, d, e, f, g, h = turned(
        load(source, rows[first] * stride + column),
        load(source, rows[first + 1] * stride + column),
        load(source, rows[first + 2] * stride + column),
        load(source, rows[first + 3] * stride + column),
        load(source, rows[first + 4] * stride + column),
        load(source, rows[first + 5] * stride + column),
        load(source, rows[first + 6] * stride + column),
        load(source, rows[first + 7] * stride + column),
    )
    store(out, to, a)
    store(out, to + BLOCK, b)
    store(out, to + 2 * BLOCK, c)
    store(out, to + 3 * BLOCK, d)
    store(out, to + 4 * BLOCK, e)
    store(out, to + 5 * BLOCK, f)
    store(out, to + 6 * BLOCK, g)
    store(out, to + 7 * BLOCK, h)


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
        for column in range(0, width, LANES):
            _turn(flat, chosen, 0, width, column, into, column * BLOCK)
            _turn(flat, chosen, LANES, width, column, into, column * BLOCK + LANES)


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


@compiled(
    void(
        _matrix, _matrix, _row, _whole_matrix, _whole_matrix, _matrix, _whole_matrix, _whole_matrix, int64, int64, int64
    )
)
def hidden_units(
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
    width = up.shape[1]
    flat = up.reshape(-1)
    sums = np.zeros(GROUP * BLOCK, np.float32)
    for block in range(first, last):
        rows, chosen, into, names = x[block], units[block], values[block], active[block]
        begin, end = starts[block, part], starts[block, part + 1]
        count = active_starts[block, part]
        for at in range(begin, end, GROUP):
            most = end - 1  # the last group computes its last unit more than once
            u0, u1, u2 = chosen[at] * width, chosen[min(at + 1, most)] * width, chosen[min(at + 2, most)] * width
            u3, u4 = chosen[min(at + 3, most)] * width, chosen[min(at + 4, most)] * width
            u5 = chosen[min(at + 5, most)] * width
            a0, b0, c0, d0, e0, f0 = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
            a1, b1, c1, d1, e1, f1 = a0, b0, c0, d0, e0, f0
            for column in range(width):
                x0, x1 = load(rows, column * BLOCK), load(rows, column * BLOCK + LANES)
                w = spread(flat, u0 + column)
                a0, a1 = multiply_add(w, x0, a0), multiply_add(w, x1, a1)
                w = spread(flat, u1 + column)
                b0, b1 = multiply_add(w, x0, b0), multiply_add(w, x1, b1)
                w = spread(flat, u2 + column)
                c0, c1 = multiply_add(w, x0, c0), multiply_add(w, x1, c1)
                w = spread(flat, u3 + column)
                d0, d1 = multiply_add(w, x0, d0), multiply_add(w, x1, d1)
                w = spread(flat, u4 + column)
                e0, e1 = multiply_add(w, x0, e0), multiply_add(w, x1, e1)
                w = spread(flat, u5 + column)
                f0, f1 = multiply_add(w, x0, f0), multiply_add(w, x1, f1)
            store(sums, 0, a0)
            store(sums, LANES, a1)
            store(sums, 2 * LANES, b0)
            store(sums, 3 * LANES, b1)
            store(sums, 4 * LANES, c0)
            store(sums, 5 * LANES, c1)
            store(sums, 6 * LANES, d0)
            store(sums, 7 * LANES, d1)
            store(sums, 8 * LANES, e0)
            store(sums, 9 * LANES, e1)
            store(sums, 10 * LANES, f0)
            store(sums, 11 * LANES, f1)
            for k in range(min(GROUP, end - at)):
                unit = chosen[at + k]
                shift = spread(bias, unit)
                x0 = larger(splat(_ZERO), add(load(sums, k * BLOCK), shift))
                x1 = larger(splat(_ZERO), add(load(sums, k * BLOCK + LANES), shift))
                store(into, count * BLOCK, x0)
                store(into, count * BLOCK + LANES, x1)
                names[count] = unit
                count += any_nonzero(x0) | any_nonzero(x1)
        active_starts[block, part + 1] = count


@compiled(void(_matrix, _whole_matrix, _matrix, _whole_matrix, int64, _whole_matrix, int64, int64))
def active_units(
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
    flat, width = hidden.reshape(-1), hidden.shape[1]
    eight = np.zeros(LANES * BLOCK, np.float32)
    for block in range(first, last):
        chosen, into, names, count = rows[block], values[block], active[block], 0
        for column in range(0, width, LANES):
            if column % part == 0:
                starts[block, column // part] = count
            _turn(flat, chosen, 0, width, column, eight, 0)
            _turn(flat, chosen, LANES, width, column, eight, LANES)
            for k in range(LANES):
                x0, x1 = load(eight, k * BLOCK), load(eight, k * BLOCK + LANES)
                store(into, count * BLOCK, x0)
                store(into, count * BLOCK + LANES, x1)
                names[count] = column + k
                count += any_nonzero(x0) | any_nonzero(x1)
        starts[block, (width + part - 1) // part] = count


@compiled(void(_matrix, _whole_matrix, _whole_matrix, _cube, int64, int64, _matrix, int64, int64))
def add_units(
    values: Float32[np.ndarray, "block unit_lane"],
    active: Int64[np.ndarray, "block unit"],
    starts: Int64[np.ndarray, "block parts_and_one"],
    down: Float32[np.ndarray, "part group unit_six"],
    part: int,
    size: int,
    out: Float32[np.ndarray, "block width_lane"],
    first: int,
    last: int,
) -> None:
    """Add to each block what the active units of one part, of ``size`` units, bring to its coordinates."""
    groups = down.shape[1]
    for block in range(first, last):
        brought, names, into = values[block], active[block], out[block]
        begin, end = starts[block, part], starts[block, part + 1]
        offset = part * size
        for group in range(groups):
            weights, to = down[part, group], group * GROUP * BLOCK
            a0, b0, c0, d0, e0, f0 = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
            a1, b1, c1, d1, e1, f1 = a0, b0, c0, d0, e0, f0
            for k in range(begin, end):
                x0, x1 = load(brought, k * BLOCK), load(brought, k * BLOCK + LANES)
                at = (names[k] - offset) * GROUP
                w = spread(weights, at)
                a0, a1 = multiply_add(w, x0, a0), multiply_add(w, x1, a1)
                w = spread(weights, at + 1)
                b0, b1 = multiply_add(w, x0, b0), multiply_add(w, x1, b1)
                w = spread(weights, at + 2)
                c0, c1 = multiply_add(w, x0, c0), multiply_add(w, x1, c1)
                w = spread(weights, at + 3)
                d0, d1 = multiply_add(w, x0, d0), multiply_add(w, x1, d1)
                w = spread(weights, at + 4)
                e0, e1 = multiply_add(w, x0, e0), multiply_add(w, x1, e1)
                w = spread(weights, at + 5)
                f0, f1 = multiply_add(w, x0, f0), multiply_add(w, x1, f1)
            # Added at the end: each part is summed by itself, and rounded the less.
            store(into, to, add(load(into, to), a0))
            store(into, to + LANES, add(load(into, to + LANES), a1))
            store(into, to + 2 * LANES, add(load(into, to + 2 * LANES), b0))
            store(into, to + 3 * LANES, add(load(into, to + 3 * LANES), b1))
            store(into, to + 4 * LANES, add(load(into, to + 4 * LANES), c0))
            store(into, to + 5 * LANES, add(load(into, to + 5 * LANES), c1))
            store(into, to + 6 * LANES, add(load(into, to + 6 * LANES), d0))
            store(into, to + 7 * LANES, add(load(into, to + 7 * LANES), d1))
            store(into, to + 8 * LANES, add(load(into, to + 8 * LANES), e0))
            store(into, to + 9 * LANES, add(load(into, to + 9 * LANES), e1))
            store(into, to + 10 * LANES, add(load(into, to + 10 * LANES), f0))
            store(into, to + 11 * LANES, add(load(into, to + 11 * LANES), f1))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _normal(y: Any, column: Any, half: Any, mean: Any, z: Any, gain: Any, shift: Any) -> Any:
    centred = multiply(subtract(load(y, column * BLOCK + half), mean), z)
    return multiply_add(centred, spread(gain, column), spread(shift, column))


@compiled(void(_matrix, _row, _row, _row, _number, _whole_matrix, _matrix, int64, int64))
def put_blocks(
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
    flat, width = x.reshape(-1), x.shape[1]
    share = splat(_ONE / np.float32(width))
    for block in range(first, last):
        y, chosen = sums[block], rows[block]
        for half in range(0, BLOCK, LANES):
            # The mean is corrected by the mean of what is left, so that equal numbers become exactly zero.
            total = splat(_ZERO)
            for column in range(width):
                number = add(load(y, column * BLOCK + half), spread(bias, column))
                store(y, column * BLOCK + half, number)
                total = add(total, number)
            mean, left, total = multiply(total, share), splat(_ZERO), splat(_ZERO)
            for column in range(width):
                number = subtract(load(y, column * BLOCK + half), mean)
                left, total = add(left, number), multiply_add(number, number, total)
            left = multiply(left, share)
            variance = larger(splat(_ZERO), subtract(multiply(total, share), multiply(left, left)))
            mean, z = add(mean, left), inverse_root(add(variance, splat(eps)))
            for column in range(0, width, LANES):
                a, b, c, d, e, f, g, h = turned(
                    _normal(y, column, half, mean, z, gain, shift),
                    _normal(y, column + 1, half, mean, z, gain, shift),
                    _normal(y, column + 2, half, mean, z, gain, shift),
                    _normal(y, column + 3, half, mean, z, gain, shift),
                    _normal(y, column + 4, half, mean, z, gain, shift),
                    _normal(y, column + 5, half, mean, z, gain, shift),
                    _normal(y, column + 6, half, mean, z, gain, shift),
                    _normal(y, column + 7, half, mean, z, gain, shift),
                )
                store(flat, chosen[half] * width + column, a)
                store(flat, chosen[half + 1] * width + column, b)
                store(flat, chosen[half + 2] * width + column, c)
                store(flat, chosen[half + 3] * width + column, d)
                store(flat, chosen[half + 4] * width + column, e)
                store(flat, chosen[half + 5] * width + column, f)
                store(flat, chosen[half + 6] * width + column, g)
                store(flat, chosen[half + 7] * width + column, h)


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
    eight = np.zeros(LANES, np.float32)
    for row in range(first, last):
        token = row % len(centre)
        total = splat(_ZERO)
        for column in range(0, width, LANES):
            number = subtract(load(flat, row * width + column), load(centres, token * width + column))
            total = multiply_add(number, number, total)
        store(eight, 0, total)
        out[row] = np.sqrt(eight.sum())
