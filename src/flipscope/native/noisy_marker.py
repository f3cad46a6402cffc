"""Compiled loops of one layer's attention at a marker, with dropout of its input and of its weights, in float32.

x_j is one of two vectors, chosen by the bit at position j, with some coordinates dropped; N(x) = r (x - mean) is the
layer norm without gain and bias, r = (variance + eps)^(-1/2). Of each head:

    asked = K'q,   logits l_j = r_j asked . (x_j - mean_j),   weights w = softmax(l)
    mixed = sum_j kept_j w_j N(x_j),   out = V mixed

so that neither keys nor values nor normalised vectors are made. Vectors of a string stand as [coordinate, position],
with positions side by side: means, variances and logits then go from row to row. For the derivatives asked . (x - mean)
is kept; all else is computed again, which is sooner done than fetched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from numba import float32, int64, njit, uint8, void

from flipscope.native.powers import LOG2_E, power_of_two
from flipscope.native.products import LINE, copy, first_line, product, round_up, take, turn
from flipscope.native.simd import (
    UNITS,
    add,
    chosen,
    inverse_root,
    larger,
    largest_across,
    load,
    load_bytes,
    multiply,
    multiply_add,
    splat,
    spread,
    store,
    subtract,
    sum_across,
)
from flipscope.native.span import Span, compiled_by_span

_row, _number, _bytes = float32[::1], float32, uint8[::1]
_ZERO, _ONE, _NEVER = np.float32(0), np.float32(1), np.float32(-np.inf)
_LOG2_E = np.float32(LOG2_E)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _centre(
    span: Any, table: Any, bits: Any, noise: Any, string: Any, count: Any, width: Any, long: Any, eps: Any, room: Any,
    x: Any, factors: Any,
) -> None:  # fmt: skip
    """The vectors of a string less their means, and the factors r of their norms."""
    share, ones = splat(span, _ONE / np.float32(width)), width * long
    for lane in range(0, long, span.lanes):
        bit = load_bytes(span, bits, string * count + lane)
        total = splat(span, _ZERO)
        for w in range(width):
            row = w * long + lane
            vector = chosen(bit, load(span, table, ones + row), load(span, table, row))
            vector = multiply(vector, load_bytes(span, noise, (string * width + w) * count + lane))
            store(room, x + row, vector)
            total = add(total, vector)
        mean, squares = multiply(total, share), splat(span, _ZERO)
        for row in range(x + lane, x + lane + width * long, long):
            vector = subtract(load(span, room, row), mean)
            store(room, row, vector)
            squares = multiply_add(vector, vector, squares)
        store(room, factors + lane, inverse_root(multiply_add(squares, share, splat(span, eps))))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _weigh(span: Any, room: Any, raw: Any, factors: Any, allowed: Any, long: Any, weights: Any) -> None:
    """Softmax of one head's logits: raw times factors, where the position is allowed."""
    base, top = splat(span, _LOG2_E), splat(span, _NEVER)
    for lane in range(0, long, span.lanes):
        factor = multiply(load(span, room, factors + lane), base)
        logits = multiply_add(load(span, room, raw + lane), factor, load(span, allowed, lane))
        store(room, weights + lane, logits)
        top = larger(logits, top)
    top, total = splat(span, largest_across(top)), splat(span, _ZERO)
    for lane in range(0, long, span.lanes):
        powers = power_of_two(subtract(load(span, room, weights + lane), top))
        store(room, weights + lane, powers)
        total = add(total, powers)
    share = splat(span, _ONE / sum_across(total))
    for lane in range(0, long, span.lanes):
        store(room, weights + lane, multiply(load(span, room, weights + lane), share))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _drop(
    span: Any, kept: Any, at: Any, scale: Any, room: Any, weights: Any, factors: Any, long: Any, dropped: Any
) -> Any:
    """What is left of one head's weights, times the factors; without these its sum."""
    total = splat(span, _ZERO)
    for lane in range(0, long, span.lanes):
        keep = multiply(load_bytes(span, kept, at + lane), splat(span, scale))
        weight = multiply(load(span, room, weights + lane), keep)
        store(room, dropped + lane, multiply(weight, load(span, room, factors + lane)))
        total = add(total, weight)
    return sum_across(total)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _sum_rows(span: Any, factors: Any, at: Any, size: Any, room: Any, rows: Any, wide: Any, out: Any) -> None:
    """The sum of rows, each times its factor."""
    for lane in range(0, wide, span.lanes):
        total = splat(span, _ZERO)
        for k in range(size):
            total = multiply_add(spread(span, factors, at + k), load(span, room, rows + k * wide + lane), total)
        store(room, out + lane, total)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _ask_rows(span: Any, room: Any, row: Any, rows: Any, wide: Any, size: Any, out: Any, to: Any) -> None:
    """The products of one row with others."""
    for k in range(size):
        total = splat(span, _ZERO)
        for lane in range(0, wide, span.lanes):
            total = multiply_add(load(span, room, row + lane), load(span, room, rows + k * wide + lane), total)
        out[to + k] = sum_across(total)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _add_to_rows(
    span: Any, factors: Any, at: Any, size: Any, room: Any, row: Any, wide: Any, out: Any, to: Any
) -> None:
    """One row, times a factor for each, added to others."""
    for k in range(size):
        factor = spread(span, factors, at + k)
        for lane in range(0, wide, span.lanes):
            place = to + k * wide + lane
            store(out, place, multiply_add(factor, load(span, room, row + lane), load(span, out, place)))


_given = (_row, _bytes, _bytes, _bytes, _row, _row, _row, _row, int64, int64, int64, int64, _number, _number)


@compiled_by_span(lambda span: void(span, *_given, *[_row] * 4, int64, int64))
def forward(
    span: Span,
    table: Float32[np.ndarray, " bit_width_long"],
    bits: UInt8[np.ndarray, " string_position"],
    noise: UInt8[np.ndarray, " string_width_position"],
    kept: UInt8[np.ndarray, " string_head_position"],
    allowed: Float32[np.ndarray, " long"],
    query: Float32[np.ndarray, " string_head_size"],
    key: Float32[np.ndarray, " head_size_width"],
    value: Float32[np.ndarray, " head_size_width"],
    count: int,
    heads: int,
    size: int,
    width: int,
    scale: float,
    eps: float,
    raws: Float32[np.ndarray, " string_head_long"],
    mixed: Float32[np.ndarray, " string_head_width"],
    totals: Float32[np.ndarray, " string_head"],
    out: Float32[np.ndarray, " string_head_size"],
    first: int,
    last: int,
) -> None:
    """What the heads bring to strings first .. last - 1, the sums of their weights after dropout, and what they mix.

    ``raws`` become the logits without the factors r.

    Positions are filled up to whole lines: with vectors of 0, and with -inf of what is allowed, which is 0 elsewhere.
    Bytes are read up to a line further than the last position's. ``table`` is multiplied by the ``scale`` already with
    which dropout makes up for what it drops.
    """
    long, wide, rows = round_up(count, LINE), round_up(width, LINE), round_up(heads, UNITS)
    x, turned, keys = 0, wide * long, 2 * wide * long
    values = keys + heads * size * wide
    asked = values + heads * size * wide
    result = asked + rows * wide
    raw = result + rows * wide
    dropped = raw + rows * long
    weights = dropped + rows * long
    factors = weights + long
    room = np.zeros(factors + long + LINE, np.float32)
    room = room[first_line(room) :]
    take(key, 0, width, heads * size, width, _ONE, room, keys, wide)
    take(value, 0, width, heads * size, width, _ONE, room, values, wide)
    for string in range(first, last):
        _centre(span, table, bits, noise, string, count, width, long, eps, room, x, factors)
        own = string * heads
        for head in range(heads):
            at, rows_of_head = (own + head) * size, keys + head * size * wide
            _sum_rows(span, query, at, size, room, rows_of_head, wide, asked + head * wide)
        product(span, room, asked, wide, 1, x, long, width, heads, raw)
        take(room, raw, long, heads, long, _ONE, raws, own * long, long)
        for head in range(heads):
            row = head * long
            _weigh(span, room, raw + row, factors, allowed, long, weights)
            at = (own + head) * count
            totals[own + head] = _drop(span, kept, at, scale, room, weights, factors, long, dropped + row)
        turn(room, x, long, wide, turned, wide)
        product(span, room, dropped, long, 1, turned, wide, count, heads, result)
        for head in range(heads):
            row, at = result + head * wide, own + head
            copy(room, row, width, _ONE, mixed, at * width)
            _ask_rows(span, room, row, values + head * size * wide, wide, size, out, at * size)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _differentiate(
    span: Any, room: Any, kept: Any, at: Any, scale: Any, by_total: Any, weights: Any, factors: Any, raw: Any,
    by_dropped: Any, by_factors: Any, long: Any, by_raw: Any,
) -> None:  # fmt: skip
    """Of one head: from the derivatives by what was dropped times factors those by raw, and those by the factors."""
    mean = splat(span, _ZERO)
    for lane in range(0, long, span.lanes):
        weight, keep = load(span, room, weights + lane), multiply(load_bytes(span, kept, at + lane), splat(span, scale))
        scaled, factor = load(span, room, by_dropped + lane), load(span, room, factors + lane)
        slope = multiply(multiply_add(scaled, factor, splat(span, by_total)), keep)
        store(room, by_raw + lane, slope)
        mean = multiply_add(slope, weight, mean)
        left = multiply(scaled, multiply(weight, keep))
        store(room, by_factors + lane, add(load(span, room, by_factors + lane), left))
    mean = splat(span, sum_across(mean))
    for lane in range(0, long, span.lanes):
        slope = multiply(subtract(load(span, room, by_raw + lane), mean), load(span, room, weights + lane))
        left = multiply_add(slope, load(span, room, raw + lane), load(span, room, by_factors + lane))
        store(room, by_factors + lane, left)
        store(room, by_raw + lane, multiply(slope, load(span, room, factors + lane)))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _add_to_table(
    span: Any, bits: Any, noise: Any, string: Any, count: Any, width: Any, long: Any, room: Any, x: Any, by_x: Any,
    factors: Any, by_factors: Any, by_table: Any,
) -> None:  # fmt: skip
    """The derivatives by a string's vectors, through their norm and dropout, added to those of the table's."""
    share, ones, zero = splat(span, _ONE / np.float32(width)), width * long, splat(span, _ZERO)
    for lane in range(0, long, span.lanes):
        bit = load_bytes(span, bits, string * count + lane)
        factor = load(span, room, factors + lane)
        cube = multiply(multiply(factor, factor), multiply(factor, share))
        along = subtract(zero, multiply(load(span, room, by_factors + lane), cube))  # d r / d x = -r^3 (x - mean) / W
        total = zero
        for row in range(lane, lane + width * long, long):
            slope = multiply_add(load(span, room, x + row), along, load(span, room, by_x + row))
            store(room, by_x + row, slope)
            total = add(total, slope)
        mean = multiply(total, share)
        for w in range(width):
            row = w * long + lane
            keep = load_bytes(span, noise, (string * width + w) * count + lane)
            slope = multiply(subtract(load(span, room, by_x + row), mean), keep)
            store(by_table, row, add(load(span, by_table, row), chosen(bit, zero, slope)))
            store(by_table, ones + row, add(load(span, by_table, ones + row), chosen(bit, slope, zero)))


@compiled_by_span(lambda span: void(span, *_given, *[_row] * 8, int64, int64))
def backward(
    span: Span,
    table: Float32[np.ndarray, " bit_width_long"],
    bits: UInt8[np.ndarray, " string_position"],
    noise: UInt8[np.ndarray, " string_width_position"],
    kept: UInt8[np.ndarray, " string_head_position"],
    allowed: Float32[np.ndarray, " long"],
    query: Float32[np.ndarray, " string_head_size"],
    key: Float32[np.ndarray, " head_size_width"],
    value: Float32[np.ndarray, " head_size_width"],
    count: int,
    heads: int,
    size: int,
    width: int,
    scale: float,
    eps: float,
    raws: Float32[np.ndarray, " string_head_long"],
    mixed: Float32[np.ndarray, " string_head_width"],
    by_totals: Float32[np.ndarray, " string_head"],
    by_out: Float32[np.ndarray, " string_head_size"],
    by_query: Float32[np.ndarray, " string_head_size"],
    by_table: Float32[np.ndarray, " bit_width_long"],
    by_key: Float32[np.ndarray, " head_size_wide"],
    by_value: Float32[np.ndarray, " head_size_wide"],
    first: int,
    last: int,
) -> None:
    """The derivatives by queries and, added to what is there, by table, keys and values; from those by the results."""
    long, wide, rows = round_up(count, LINE), round_up(width, LINE), round_up(heads, UNITS)
    x, turned, by_x, keys = 0, wide * long, 2 * wide * long, 3 * wide * long
    values = keys + heads * size * wide
    asked = values + heads * size * wide  # then the derivatives by mixed: with by_raw and dropped the factors of by_x
    by_mixed = asked + rows * wide
    by_asked = by_mixed + rows * wide
    by_raw = by_asked + rows * wide
    dropped = by_raw + rows * long
    raw = dropped + rows * long
    by_dropped = raw + rows * long
    weights = by_dropped + rows * long
    factors = weights + long
    by_factors = factors + long
    result = by_factors + long
    room = np.zeros(result + wide + LINE, np.float32)
    room = room[first_line(room) :]
    take(key, 0, width, heads * size, width, _ONE, room, keys, wide)
    take(value, 0, width, heads * size, width, _ONE, room, values, wide)
    for string in range(first, last):
        own = string * heads
        _centre(span, table, bits, noise, string, count, width, long, eps, room, x, factors)
        for head in range(heads):
            at, of_head = (own + head) * size, head * size * wide
            _sum_rows(span, query, at, size, room, keys + of_head, wide, asked + head * wide)
            _sum_rows(span, by_out, at, size, room, values + of_head, wide, by_mixed + head * wide)
            copy(mixed, (own + head) * width, width, _ONE, room, result)
            _add_to_rows(span, by_out, at, size, room, result, wide, by_value, of_head)
        take(raws, own * long, long, heads, long, _ONE, room, raw, long)
        product(span, room, by_mixed, wide, 1, x, long, width, heads, by_dropped)
        room[by_factors : by_factors + long] = _ZERO
        for head in range(heads):
            row, at = head * long, (own + head) * count
            _weigh(span, room, raw + row, factors, allowed, long, weights)
            _drop(span, kept, at, scale, room, weights, factors, long, dropped + row)
            _differentiate(
                span, room, kept, at, scale, by_totals[own + head], weights, factors, raw + row, by_dropped + row,
                by_factors, long, by_raw + row,
            )  # fmt: skip
        turn(room, x, long, wide, turned, wide)
        product(span, room, by_raw, long, 1, turned, wide, count, heads, by_asked)
        for head in range(heads):
            at, of_head, row = (own + head) * size, head * size * wide, by_asked + head * wide
            _ask_rows(span, room, row, keys + of_head, wide, size, by_query, at)
            _add_to_rows(span, query, at, size, room, row, wide, by_key, of_head)
        product(span, room, asked, 1, wide, by_raw, long, 2 * rows, width, by_x)
        _add_to_table(span, bits, noise, string, count, width, long, room, x, by_x, factors, by_factors, by_table)
