"""Compiled loops of softmax attention in float32 and of its derivatives, for training.

Queries, keys and values stand as [token, coordinate], those of one head of one string together in a room that stays in
the cache. Attention logits stand as [key, query], with queries side by side in a vector: the largest of a query's, its
sum and all that softmax does then go from row to row, and nothing is added up across a vector.

    forward     P = 2^(K Q' - top) / sum,  O = P'V;         top and 1 / sum are kept, P is not
    backward    dP = V dO',  dS = P (dP - sum of P dP over keys),  dV = P dO,  dK = dS Q,  dQ = dS'K
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32
from numba import float32, int64, njit, void

from flipscope.native.powers import LOG2_E, power_of_two
from flipscope.native.products import LINE, copy, first_line, product, round_up, take, turn
from flipscope.native.simd import (
    UNITS,
    add,
    columns_of,
    larger,
    less_column,
    load_column,
    load_units,
    multiply,
    multiply_add,
    one_token,
    splat_units,
    store_tile,
    times_column,
)
from flipscope.native.span import Span, compiled_by_span

_row, _number = float32[::1], float32
_ZERO, _NEVER = np.float32(0), np.float32(-np.inf)
_LOG2_E = np.float32(LOG2_E)


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


_sizes = (int64, int64, int64, _number)


@compiled_by_span(lambda span: [void(span, _row, int64, _row, int64, _row, int64, *_sizes, _row, _row, int64, int64)])
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
    out: Float32[np.ndarray, " string_token_head_size"],
    ends: Float32[np.ndarray, " string_head_end_query"],
    first: int,
    last: int,
) -> None:
    """What the heads bring to every token of strings first .. last - 1 (Eq 8).

    Vectors of a token begin ``query_row`` and so on after those of the token before. ``ends`` become the largest logit
    of each query, to base 2, then one over softmax's sum. Not one logarithm of both: what its rounding loses, where
    logits are large, is missing in the sum of the weights, and derivatives are differences of such sums.
    """
    long, wide, keys = round_up(tokens, LINE), round_up(size, LINE), round_up(tokens, UNITS)
    queries = 0
    turned_queries = queries + long * wide
    others = turned_queries + wide * long
    values = others + long * wide
    logits = values + long * wide
    mixed = logits + keys * long
    tops = mixed + long * wide
    sums = tops + long
    room = np.zeros(sums + long + LINE, np.float32)
    room = room[first_line(room) :]
    factor, one = scale * _LOG2_E, np.float32(1)
    for string in range(first, last):
        for head in range(heads):
            begin, token = head * size, string * tokens
            take(query, token * query_row + begin, query_row, tokens, size, factor, room, queries, wide)
            take(key, token * key_row + begin, key_row, tokens, size, one, room, others, wide)
            take(value, token * value_row + begin, value_row, tokens, size, one, room, values, wide)
            turn(room, queries, wide, long, turned_queries, long)
            product(span, room, others, wide, 1, turned_queries, long, size, tokens, logits)
            _forbid(room, logits, tokens, keys, long)
            for lane in range(0, long, span.lanes):
                _weigh(one_token(span), room, logits + lane, keys, long, tops + lane, sums + lane)
            product(span, room, logits, 1, long, values, wide, tokens, tokens, mixed)
            to, at = 2 * (string * heads + head) * tokens, token * heads * size + begin
            for i in range(tokens):
                share = one / room[sums + i]
                ends[to + i], ends[to + tokens + i] = room[tops + i], share
                copy(room, mixed + i * wide, size, share, out, at + i * heads * size)


@compiled_by_span(
    lambda span: [void(span, _row, int64, _row, int64, _row, int64, _row, *_sizes, *[_row] * 4, int64, int64)]
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
    ends: Float32[np.ndarray, " string_head_end_query"],
    query_slope: Float32[np.ndarray, " string_token_head_size"],
    key_slope: Float32[np.ndarray, " string_token_head_size"],
    value_slope: Float32[np.ndarray, " string_token_head_size"],
    first: int,
    last: int,
) -> None:
    """The derivatives by queries, keys and values from those by what `forward` gave."""
    long, wide, keys = round_up(tokens, LINE), round_up(size, LINE), round_up(tokens, UNITS)
    block = long * wide
    queries, others, values, slopes, turned_queries, turned_slopes, result = (
        0, block, 2 * block, 3 * block, 4 * block, 5 * block, 6 * block,
    )  # fmt: skip
    logits = 7 * block
    derivatives = logits + keys * long
    tops = derivatives + keys * long
    shares = tops + long
    room = np.zeros(shares + long + LINE, np.float32)
    room = room[first_line(room) :]
    row, one = heads * size, np.float32(1)
    factor, back = scale * _LOG2_E, one / _LOG2_E
    for string in range(first, last):
        for head in range(heads):
            begin, token = head * size, string * tokens
            own = token * row + begin
            take(query, token * query_row + begin, query_row, tokens, size, factor, room, queries, wide)
            take(key, token * key_row + begin, key_row, tokens, size, one, room, others, wide)
            take(value, token * value_row + begin, value_row, tokens, size, one, room, values, wide)
            take(slope, own, row, tokens, size, one, room, slopes, wide)
            end = 2 * (string * heads + head) * tokens
            copy(ends, end, tokens, one, room, tops)
            copy(ends, end + tokens, tokens, one, room, shares)
            turn(room, queries, wide, long, turned_queries, long)
            turn(room, slopes, wide, long, turned_slopes, long)
            product(span, room, others, wide, 1, turned_queries, long, size, tokens, logits)
            product(span, room, values, wide, 1, turned_slopes, long, size, tokens, derivatives)
            _forbid(room, logits, tokens, keys, long)
            for lane in range(0, long, span.lanes):
                at, to = logits + lane, derivatives + lane
                _differentiate(one_token(span), room, at, to, keys, long, tops + lane, shares + lane)
            product(span, room, logits, long, 1, slopes, wide, tokens, tokens, result)
            take(room, result, wide, tokens, size, one, value_slope, own, row)
            product(span, room, derivatives, long, 1, queries, wide, tokens, tokens, result)
            take(room, result, wide, tokens, size, back, key_slope, own, row)
            product(span, room, derivatives, 1, long, others, wide, tokens, tokens, result)
            take(room, result, wide, tokens, size, scale, query_slope, own, row)
