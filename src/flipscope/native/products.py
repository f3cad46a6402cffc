"""Products of matrices in a room: a flat array of float32 that stays in the cache, in which matrices have places.

Every product is that of one loop: a number in every lane times numbers that stand together. Rows of a right factor and
of a result are whole lines of the cache, filled up with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32
from numba import float32, njit

from flipscope.native.simd import (
    UNITS,
    add_spread_by,
    eights,
    four_vectors,
    load,
    multiply,
    one_token,
    splat,
    splat_units,
    store,
    store_tile,
    three_vectors,
    turned,
    two_vectors,
)
from flipscope.native.span import Span

LINE = 16  # numbers of a line of the cache
_row = float32[::1]
_ZERO = np.float32(0)
_EIGHT = 8  # rows and columns of a block that is turned on its side


@njit  # type: ignore[untyped-decorator]
def _strip(
    span: Span,
    room: Float32[np.ndarray, " number"],
    left: int,
    along: int,
    onward: int,
    right: int,
    step: int,
    inner: int,
    count: int,
    out: int,
    out_step: int,
) -> None:
    """Row a of out: the sum over b of the number at ``left + a * along + b * onward`` times row b of right.

    Of each row so many vectors as the span has rows; the count of a is rounded up to fours.
    """
    for a in range(0, count, UNITS):
        sums, x, y = splat_units(span, _ZERO), right, left + a * along
        for _ in range(inner):
            sums = add_spread_by(sums, room, x, span.lanes, room, y, along)
            x += step
            y += onward
        store_tile(room, out + a * out_step, span.lanes, out_step, sums)


@njit(inline="always")  # type: ignore[untyped-decorator]
def product(
    span: Any,
    room: Any,
    left: Any,
    along: Any,
    onward: Any,
    right: Any,
    step: Any,
    inner: Any,
    count: Any,
    out: Any,
) -> None:
    """`_strip` for whole rows of ``step`` numbers, which are those of right and of out."""
    most = 4 if span.lanes == 16 else 3  # their sums fill the registers that there are
    first, vectors = 0, step // span.lanes
    while first < vectors:
        rest, at = vectors - first, first * span.lanes
        rows = (rest + 1) // 2 if rest == most + 1 else min(rest, most)
        if rows == 4:
            _strip(four_vectors(span), room, left, along, onward, right + at, step, inner, count, out + at, step)
        elif rows == 3:
            _strip(three_vectors(span), room, left, along, onward, right + at, step, inner, count, out + at, step)
        elif rows == 2:
            _strip(two_vectors(span), room, left, along, onward, right + at, step, inner, count, out + at, step)
        else:
            _strip(one_token(span), room, left, along, onward, right + at, step, inner, count, out + at, step)
        first += rows


@njit(inline="always")  # type: ignore[untyped-decorator]
def round_up(number: Any, to: Any) -> Any:
    """The next multiple of ``to``, or the number itself where it is one."""
    return (number + to - 1) // to * to


@njit(inline="always")  # type: ignore[untyped-decorator]
def copy(source: Any, at: Any, size: Any, factor: Any, out: Any, to: Any) -> None:
    """Numbers times a factor, eight at a time."""
    of = eights()
    whole = size // _EIGHT * _EIGHT
    for k in range(0, whole, _EIGHT):
        store(out, to + k, multiply(load(of, source, at + k), splat(of, factor)))
    for k in range(whole, size):
        out[to + k] = source[at + k] * factor


@njit(inline="always")  # type: ignore[untyped-decorator]
def take(source: Any, at: Any, wide: Any, rows: Any, size: Any, factor: Any, out: Any, to: Any, step: Any) -> None:
    """The first ``size`` numbers of rows of ``wide``, times a factor, to rows of ``step``."""
    for row in range(rows):
        copy(source, at + row * wide, size, factor, out, to + row * step)


@njit(inline="always")  # type: ignore[untyped-decorator]
def turned_rows(source: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """The columns of eight rows of eight numbers, which begin at these indices."""
    of = eights()
    return turned(
        load(of, source, a),
        load(of, source, b),
        load(of, source, c),
        load(of, source, d),
        load(of, source, e),
        load(of, source, f),
        load(of, source, g),
        load(of, source, h),
    )


@njit(inline="always")  # type: ignore[untyped-decorator]
def store_rows(out: Any, to: Any, step: Any, rows: Any) -> None:
    """Write eight vectors, each ``step`` numbers after the one before."""
    a, b, c, d, e, f, g, h = rows
    store(out, to, a)
    store(out, to + step, b)
    store(out, to + 2 * step, c)
    store(out, to + 3 * step, d)
    store(out, to + 4 * step, e)
    store(out, to + 5 * step, f)
    store(out, to + 6 * step, g)
    store(out, to + 7 * step, h)


@njit(inline="always")  # type: ignore[untyped-decorator]
def turn(room: Any, at: Any, wide: Any, rows: Any, to: Any, long: Any) -> None:
    """Rows of ``wide`` numbers become columns, of rows of ``long`` numbers; all are multiples of eight."""
    for row in range(0, rows, _EIGHT):
        for column in range(0, wide, _EIGHT):
            x = at + row * wide + column
            columns = turned_rows(
                room,
                x,
                x + wide,
                x + 2 * wide,
                x + 3 * wide,
                x + 4 * wide,
                x + 5 * wide,
                x + 6 * wide,
                x + 7 * wide,
            )
            store_rows(room, to + column * long + row, long, columns)


@njit(inline="always")  # type: ignore[untyped-decorator]
def first_line(room: Any) -> Any:
    """The index of the first number that begins a line of the cache."""
    return (-(room.ctypes.data // 4)) % LINE
