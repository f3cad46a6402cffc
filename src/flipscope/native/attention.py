"""Compiled loops of softmax attention in float32 and of its derivatives, for training.

Queries, keys and values stand as [token, coordinate], those of one head of one string together in a room that stays in
the cache. Attention logits stand as [key, query], with queries side by side in a vector: the largest of a query's, its
sum and all that softmax does then go from row to row, and nothing is added up across a vector. Every product is that of
one loop, `_strip`: a number in every lane times numbers that stand together.

    forward     P = 2^(K Q' - top) / sum,  O = P'V;         top and 1 / sum are kept, P is not
    backward    dP = V dO',  dS = P (dP - sum of P dP over keys),  dV = P dO,  dK = dS Q,  dQ = dS'K
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32
from numba import float32, int64, njit, void

from flipscope.native.simd import (
    LOG2_E,
    UNITS,
    add,
    add_spread_by,
    columns_of,
    eights,
    four_vectors,
    larger,
    less_column,
    load,
    load_column,
    load_units,
    multiply,
    multiply_add,
    one_token,
    power_of_two,
    splat,
    splat_units,
    store,
    store_tile,
    three_vectors,
    times_column,
    turned,
    two_vectors,
)
from flipscope.native.span import Span, compiled_by_span

_row, _number = float32[::1], float32
_ZERO, _NEVER = np.float32(0), np.float32(-np.inf)
_EIGHT, _LINE = 8, 16  # numbers of a block that is turned on its side, and of a line of the cache
_LOG2_E = np.float32(LOG2_E)


@compiled_by_span(
    lambda span: [
        void(span.of(rows), _row, int64, int64, int64, int64, int64, int64, int64, int64, int64)
        for rows in (1, 2, 3, 4)
    ]
)
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
def _product(
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
def _round_up(number: Any, to: Any) -> Any:
    return (number + to - 1) // to * to


@njit(inline="always")  # type: ignore[untyped-decorator]
def _copy(source: Any, at: Any, size: Any, factor: Any, out: Any, to: Any) -> None:
    """Numbers times a factor, eight at a time."""
    of = eights()
    whole = size // _EIGHT * _EIGHT
    for k in range(0, whole, _EIGHT):
        store(out, to + k, multiply(load(of, source, at + k), splat(of, factor)))
    for k in range(whole, size):
        out[to + k] = source[at + k] * factor


@njit(inline="always")  # type: ignore[untyped-decorator]
def _take(source: Any, at: Any, row: Any, tokens: Any, size: Any, factor: Any, out: Any, to: Any, step: Any) -> None:
    """Vectors of one head times a factor, from rows of so many numbers to rows of others."""
    for token in range(tokens):
        _copy(source, at + token * row, size, factor, out, to + token * step)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _turn(room: Any, at: Any, wide: Any, rows: Any, to: Any, long: Any) -> None:
    """Rows of ``wide`` numbers become columns, of rows of ``long`` numbers; all are multiples of eight."""
    of = eights()
    for row in range(0, rows, _EIGHT):
        for column in range(0, wide, _EIGHT):
            x, y = at + row * wide + column, to + column * long + row
            a, b, c, d, e, f, g, h = turned(
                load(of, room, x),
                load(of, room, x + wide),
                load(of, room, x + 2 * wide),
                load(of, room, x + 3 * wide),
                load(of, room, x + 4 * wide),
                load(of, room, x + 5 * wide),
                load(of, room, x + 6 * wide),
                load(of, room, x + 7 * wide),
            )
            store(room, y, a)
            store(room, y + long, b)
            store(room, y + 2 * long, c)
            store(room, y + 3 * long, d)
            store(room, y + 4 * long, e)
            store(room, y + 5 * long, f)
            store(room, y + 6 * long, g)
            store(room, y + 7 * long, h)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _forbid(room: Any, at: Any, first: Any, last: Any, long: Any) -> None:
    """Keys that fill up a tile have no weight."""
    for k in range(at + first * long, at + last * long):
        room[k] = _NEVER


@njit(inline="always")  # type: ignore[untyped-decorator]
def _weigh(span: Any, room: Any, at: Any, keys: Any, long: Any, tops: Any, sums: Any) -> None:
    """Logits of a few vectors of queries become powers, of their distance from the largest, which are added up."""
    tiles = UNITS * long
    top = load_units(span, room, at, span.lanes, long)
    for x in range(at + tiles, at + keys * long, tiles):
        top = larger(top, load_units(span, room, x, span.lanes, long))
    a, b, c, d = columns_of(top)
    largest = larger(larger(a, b), larger(c, d))
    total = splat_units(span, _ZERO)
    for x in range(at, at + keys * long, tiles):
        powers = power_of_two(less_column(load_units(span, room, x, span.lanes, long), largest))
        store_tile(room, x, span.lanes, long, powers)
        total = add(total, powers)
    a, b, c, d = columns_of(total)
    store_tile(room, tops, span.lanes, 0, largest)
    store_tile(room, sums, span.lanes, 0, add(add(a, b), add(c, d)))


@njit(inline="always")  # type: ignore[untyped-decorator]
def _differentiate(
    span: Any, room: Any, logits: Any, slopes: Any, keys: Any, long: Any, tops: Any, shares: Any
) -> None:
    """Logits of a few vectors of queries become weights, and the weights' derivatives those of the logits."""
    top, share = load_column(span, room, tops, span.lanes), load_column(span, room, shares, span.lanes)
    total = splat_units(span, _ZERO)
    for x in range(0, keys * long, UNITS * long):
        powers = power_of_two(less_column(load_units(span, room, logits + x, span.lanes, long), top))
        weights = times_column(powers, share)
        store_tile(room, logits + x, span.lanes, long, weights)
        total = multiply_add(weights, load_units(span, room, slopes + x, span.lanes, long), total)
    a, b, c, d = columns_of(total)
    mean = add(add(a, b), add(c, d))
    for x in range(0, keys * long, UNITS * long):
        slope = less_column(load_units(span, room, slopes + x, span.lanes, long), mean)
        weights = load_units(span, room, logits + x, span.lanes, long)
        store_tile(room, slopes + x, span.lanes, long, multiply(weights, slope))


_sizes = (int64, int64, int64, _number, int64, int64)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _first_line(room: Any) -> Any:
    """The index of the first number that begins a line of the cache."""
    return (-(room.ctypes.data // 4)) % _LINE


@compiled_by_span(lambda span: [void(span, _row, int64, _row, int64, _row, int64, *_sizes, _row, _row)])
def forward(
    span: Span,
    query: Float32[np.ndarray, " number"],
    query_row: int,
    key: Float32[np.ndarray, " number"],
    key_row: int,
    value: Float32[np.ndarray, " number"],
    value_row: int,
    tokens: int,
    heads: int,
    size: int,
    scale: float,
    first: int,
    last: int,
    out: Float32[np.ndarray, " string_token_head_size"],
    ends: Float32[np.ndarray, " string_head_end_query"],
) -> None:
    """What the heads bring to every token of strings first .. last - 1 (Eq 8).

    Vectors of a token begin ``query_row`` and so on after those of the token before. ``ends`` become the largest logit
    of each query, to base 2, then one over softmax's sum. Not one logarithm of both: what its rounding loses, where
    logits are large, is missing in the sum of the weights, and derivatives are differences of such sums.
    """
    long, wide, keys = _round_up(tokens, _LINE), _round_up(size, _LINE), _round_up(tokens, UNITS)
    queries = 0
    turned_queries = queries + long * wide
    others = turned_queries + wide * long
    values = others + long * wide
    logits = values + long * wide
    mixed = logits + keys * long
    tops = mixed + long * wide
    sums = tops + long
    room = np.zeros(sums + long + _LINE, np.float32)
    room = room[_first_line(room) :]
    factor, one = scale * _LOG2_E, np.float32(1)
    for string in range(first, last):
        for head in range(heads):
            begin, token = head * size, string * tokens
            _take(query, token * query_row + begin, query_row, tokens, size, factor, room, queries, wide)
            _take(key, token * key_row + begin, key_row, tokens, size, one, room, others, wide)
            _take(value, token * value_row + begin, value_row, tokens, size, one, room, values, wide)
            _turn(room, queries, wide, long, turned_queries, long)
            _product(span, room, others, wide, 1, turned_queries, long, size, tokens, logits)
            _forbid(room, logits, tokens, keys, long)
            for lane in range(0, long, span.lanes):
                _weigh(one_token(span), room, logits + lane, keys, long, tops + lane, sums + lane)
            _product(span, room, logits, 1, long, values, wide, tokens, tokens, mixed)
            to, at = 2 * (string * heads + head) * tokens, token * heads * size + begin
            for i in range(tokens):
                share = one / room[sums + i]
                ends[to + i], ends[to + tokens + i] = room[tops + i], share
                _copy(room, mixed + i * wide, size, share, out, at + i * heads * size)


@compiled_by_span(
    lambda span: [void(span, _row, int64, _row, int64, _row, int64, _row, *_sizes, _row, _row, _row, _row)]
)
def backward(
    span: Span,
    query: Float32[np.ndarray, " number"],
    query_row: int,
    key: Float32[np.ndarray, " number"],
    key_row: int,
    value: Float32[np.ndarray, " number"],
    value_row: int,
    slope: Float32[np.ndarray, " string_token_head_size"],
    tokens: int,
    heads: int,
    size: int,
    scale: float,
    first: int,
    last: int,
    ends: Float32[np.ndarray, " string_head_end_query"],
    query_slope: Float32[np.ndarray, " string_token_head_size"],
    key_slope: Float32[np.ndarray, " string_token_head_size"],
    value_slope: Float32[np.ndarray, " string_token_head_size"],
) -> None:
    """The derivatives by queries, keys and values from those by what `forward` gave."""
    long, wide, keys = _round_up(tokens, _LINE), _round_up(size, _LINE), _round_up(tokens, UNITS)
    block = long * wide
    queries, others, values, slopes, turned_queries, turned_slopes, result = (
        0, block, 2 * block, 3 * block, 4 * block, 5 * block, 6 * block,
    )  # fmt: skip
    logits = 7 * block
    derivatives = logits + keys * long
    tops = derivatives + keys * long
    shares = tops + long
    room = np.zeros(shares + long + _LINE, np.float32)
    room = room[_first_line(room) :]
    row, one = heads * size, np.float32(1)
    factor, back = scale * _LOG2_E, one / _LOG2_E
    for string in range(first, last):
        for head in range(heads):
            begin, token = head * size, string * tokens
            own = token * row + begin
            _take(query, token * query_row + begin, query_row, tokens, size, factor, room, queries, wide)
            _take(key, token * key_row + begin, key_row, tokens, size, one, room, others, wide)
            _take(value, token * value_row + begin, value_row, tokens, size, one, room, values, wide)
            _take(slope, own, row, tokens, size, one, room, slopes, wide)
            end = 2 * (string * heads + head) * tokens
            _copy(ends, end, tokens, one, room, tops)
            _copy(ends, end + tokens, tokens, one, room, shares)
            _turn(room, queries, wide, long, turned_queries, long)
            _turn(room, slopes, wide, long, turned_slopes, long)
            _product(span, room, others, wide, 1, turned_queries, long, size, tokens, logits)
            _product(span, room, values, wide, 1, turned_slopes, long, size, tokens, derivatives)
            _forbid(room, logits, tokens, keys, long)
            for lane in range(0, long, span.lanes):
                at, to = logits + lane, derivatives + lane
                _differentiate(one_token(span), room, at, to, keys, long, tops + lane, shares + lane)
            _product(span, room, logits, long, 1, slopes, wide, tokens, tokens, result)
            _take(room, result, wide, tokens, size, one, value_slope, own, row)
            _product(span, room, derivatives, long, 1, queries, wide, tokens, tokens, result)
            _take(room, result, wide, tokens, size, back, key_slope, own, row)
            _product(span, room, derivatives, 1, long, others, wide, tokens, tokens, result)
            _take(room, result, wide, tokens, size, scale, query_slope, own, row)
