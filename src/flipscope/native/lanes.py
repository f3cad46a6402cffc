"""Compiled loops for narrow models in float32: as many flips of a string at once as a vector has lanes.

States stand as [token, coordinate, lane]. A matrix product multiplies one weight, in every lane, by numbers that stand
together; attention, norms and ReLU are done lane by lane, and nothing is ever turned on its side. Weights that are the
same for all lanes come in packs of four units, ``[unit / 4, input, 4]``. Sums of a tile, of a few tokens (span.TOKENS)
and four units, are held in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from numba import boolean, float32, int64, njit, types, void

from flipscope.native.powers import moderate_power_of_two, power_of_two, store_powers
from flipscope.native.simd import (
    UNITS,
    add,
    add_loaded,
    add_spread,
    any_nonzero,
    any_reaches,
    columns_of,
    divide,
    first_row,
    inverse_root,
    larger,
    load,
    load_column,
    load_units,
    loaded_products,
    multiply,
    multiply_add,
    one_token,
    smaller,
    splat,
    splat_column,
    splat_units,
    spread_column,
    spread_units,
    store,
    store_tile,
    subtract,
    times_column,
)
from flipscope.native.span import Span, compiled_by_span

_cube, _matrix, _row, _number = float32[:, :, ::1], float32[:, ::1], float32[::1], float32
_ZERO, _ONE, _NEVER, _ALWAYS = np.float32(0), np.float32(1), np.float32(-np.inf), np.float32(np.inf)
SMALL = 8  # numbers of a small key: known when compiling, its loops take a tenth less time


@njit  # type: ignore[untyped-decorator]
def _product(
    span: Span,
    x: Float32[np.ndarray, " token_input_lane"],
    tokens: int,
    inputs: int,
    weights: Float32[np.ndarray, " pack_input_unit"],
    bias: Float32[np.ndarray, " unit"],
    out: Float32[np.ndarray, " token_unit_lane"],
    step: int,
    unit_step: int,
    accumulate: bool,
) -> None:
    """Weights times each token + bias, or added to what is there: ``step`` numbers per token, ``unit_step`` per unit.

    The number of tokens is a multiple of the span's; the four units of a pack stand together.
    """
    wide = inputs * span.lanes
    for token in range(0, tokens, span.tokens):
        for unit in range(0, len(bias), UNITS):
            sums, at = spread_units(span, bias, unit, 0), unit * inputs
            for i in range(token * wide, token * wide + wide, UNITS * span.lanes):  # a multiple of four, too
                sums = add_spread(sums, x, i, wide, weights, at)
                sums = add_spread(sums, x, i + span.lanes, wide, weights, at + UNITS)
                sums = add_spread(sums, x, i + 2 * span.lanes, wide, weights, at + 2 * UNITS)
                sums = add_spread(sums, x, i + 3 * span.lanes, wide, weights, at + 3 * UNITS)
                at += UNITS * UNITS
            to = token * step + unit * unit_step
            if accumulate:
                sums = add(sums, load_units(span, out, to, step, span.lanes))
            store_tile(out, to, step, span.lanes, sums)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _added(sums: Any, query: Any, a: Any, key: Any, b: Any, step: Any, lanes: Any) -> Any:
    """A tile of sums to which the products of three more coordinates are added."""
    sums = add_loaded(sums, query, a + lanes, step, key, b + lanes, step)
    sums = add_loaded(sums, query, a + 2 * lanes, step, key, b + 2 * lanes, step)
    return add_loaded(sums, query, a + 3 * lanes, step, key, b + 3 * lanes, step)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _products(span: Any, query: Any, of: Any, key: Any, at: Any, step: Any) -> Any:
    """A tile of products of the queries from ``of`` on with the keys from ``at`` on, ``step`` numbers each."""
    lanes = span.lanes
    sums = _added(loaded_products(span, query, of, step, key, at, step), query, of, key, at, step, lanes)
    for i in range(UNITS * lanes, step, UNITS * lanes):  # their size is a multiple of four
        a, b = of + i, at + i
        sums = _added(add_loaded(sums, query, a, step, key, b, step), query, a, key, b, step, lanes)
    return sums


@njit  # type: ignore[untyped-decorator]
def _scores(
    span: Span,
    query: Float32[np.ndarray, " token_size_lane"],
    first: int,
    key: Float32[np.ndarray, " token_size_lane"],
    tokens: int,
    size: int,
    scores: Float32[np.ndarray, " key_query_lane"],
    ends: Float32[np.ndarray, " query_and_one_lane"],
) -> None:
    """Attention logits (Eq 8a) of a tile's tokens, from ``first`` on, with all keys.

    ``ends`` become the largest of each token, then the smallest of the first one.
    """
    step, block = size * span.lanes, span.tokens * span.lanes
    to = 0
    store_tile(ends, 0, span.lanes, 0, splat_column(span, _NEVER))
    store(ends, block, splat(span, _ALWAYS))
    for j in range(0, tokens * step, UNITS * step):
        sums = _products(span, query, first * step, key, j, step)
        store_tile(scores, to, span.lanes, block, sums)
        a, b, c, d = columns_of(sums)
        most = larger(larger(a, b), larger(larger(c, d), load_column(span, ends, 0, span.lanes)))
        store_tile(ends, 0, span.lanes, 0, most)
        least = smaller(first_row(b), smaller(first_row(a), load(span, ends, block)))
        store(ends, block, smaller(first_row(d), smaller(first_row(c), least)))  # in this order NaN does not count
        to += UNITS * block


@njit  # type: ignore[untyped-decorator]
def _centre_keys(
    span: Span,
    key: Float32[np.ndarray, " token_size_lane"],
    filled: int,
    query: Float32[np.ndarray, " token_size_lane"],
    tokens: int,
    size: int,
) -> Any:
    """Take from every key the middle of all keys; how large a logit can then be, at most, in any lane.

    The same vector taken from all keys takes the same from all logits of a row, which softmax does not notice. More
    keys are added, that change no maximum. Lanes in which a number is NaN do not count.
    """
    lanes, step, middle = span.lanes, size * span.lanes, np.zeros(size * span.lanes, np.float32)
    half = splat(span, np.float32(0.5))
    for i in range(0, step, lanes):
        most, least = splat(span, _NEVER), splat(span, _ALWAYS)
        for at in range(i, i + tokens * step, step):
            number = load(span, key, at)
            most, least = larger(number, most), smaller(number, least)
        store(middle, i, multiply_add(half, most, multiply(half, least)))
    far, long = splat(span, _ZERO), splat(span, _ZERO)
    for token in range(tokens):
        of_key, of_query = splat(span, _ZERO), splat(span, _ZERO)
        for i in range(0, step, lanes):
            at = token * step + i
            number, other = subtract(load(span, key, at), load(span, middle, i)), load(span, query, at)
            store(key, at, number)
            of_key, of_query = multiply_add(number, number, of_key), multiply_add(other, other, of_query)
        far, long = larger(of_key, far), larger(of_query, long)
    for i in range(tokens * step, filled * step):
        key[i] = key[i - step]
    store(middle, 0, multiply(far, long))
    bound = _ZERO
    for lane in range(lanes):
        bound = max(bound, middle[lane])
    return np.sqrt(bound)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _add_powers(span: Any, query: Any, of: Any, key: Any, tokens: Any, step: Any, numerators: Any, sums: Any) -> None:
    """Powers of two of the products with all keys, which are added to ``sums``."""
    lanes, block, whole = span.lanes, span.tokens * span.lanes, tokens // UNITS * UNITS
    for j in range(0, whole, UNITS):
        total = store_powers(numerators, j * block, lanes, block, _products(span, query, of, key, j * step, step))
        store_tile(sums, 0, lanes, 0, add(total, load_column(span, sums, 0, lanes)))
    for j in range(whole, tokens):
        products = splat_column(span, _ZERO)
        for i in range(0, step, lanes):
            products = add_loaded(products, query, of + i, step, key, j * step + i, 0)
        p = moderate_power_of_two(products)
        store_tile(numerators, j * block, lanes, 0, p)
        store_tile(sums, 0, lanes, 0, add(load_column(span, sums, 0, lanes), p))


@njit  # type: ignore[untyped-decorator]
def _moderate_numerators(
    span: Span,
    query: Float32[np.ndarray, " token_size_lane"],
    first: int,
    key: Float32[np.ndarray, " token_size_lane"],
    tokens: int,
    size: int,
    numerators: Float32[np.ndarray, " key_query_lane"],
    shares: Float32[np.ndarray, " query_and_one_lane"],
) -> None:
    """The softmax's numerators (Eqs 8a, 8b) of a tile's tokens, from ``first`` on, where all logits are moderate.

    Then no largest logit need be known, and no key is negligible. ``shares`` become one over the sums.
    """
    lanes = span.lanes
    store_tile(shares, 0, lanes, 0, splat_column(span, _ZERO))
    if size == SMALL:
        _add_powers(span, query, first * SMALL * lanes, key, tokens, SMALL * lanes, numerators, shares)
    else:
        _add_powers(span, query, first * size * lanes, key, tokens, size * lanes, numerators, shares)
    total = load_column(span, shares, 0, lanes)
    store_tile(shares, 0, lanes, 0, divide(splat(total, _ONE), total))


@njit  # type: ignore[untyped-decorator]
def _bits_of_values(span: Span, value: Float32[np.ndarray, " pack_token_unit_lane"], tokens: int, size: int) -> Any:
    """Bits between the largest and the smallest size of a coordinate of the values; of all coordinates the most.

    So many more a weight must be below the largest to be left out: what it would bring is then lost in rounding, be its
    value the largest and that of the largest weight the smallest.
    """
    pack = len(value) // size * UNITS
    top, low = np.zeros(span.lanes, np.float32), np.zeros(span.lanes, np.float32)
    least = _ONE
    for d in range(size):
        begin = d // UNITS * pack + d % UNITS * span.lanes
        most, fewest = splat(span, _ZERO), splat(span, _NEVER)
        for at in range(begin, begin + tokens * UNITS * span.lanes, UNITS * span.lanes):
            number = load(span, value, at)
            minus = subtract(splat(span, _ZERO), number)
            most = larger(most, larger(number, minus))
            fewest = larger(fewest, subtract(splat(span, _ZERO), larger(number, minus)))
        store(top, 0, most)
        store(low, 0, fewest)
        for lane in range(span.lanes):
            if top[lane] > _ZERO:
                least = min(least, -low[lane] / top[lane])
    return -np.log2(least) if least > _ZERO else np.inf


@njit  # type: ignore[untyped-decorator]
def _numerators(
    span: Span,
    scores: Float32[np.ndarray, " key_query_lane"],
    ends: Float32[np.ndarray, " query_and_one_lane"],
    tokens: int,
    least: float,
    keys: Int64[np.ndarray, " key"],
) -> int:
    """The softmax's numerators (Eq 8b) of a tile's queries, and how many ``keys`` have any that is not negligible.

    Those of keys whose every logit is ``least`` or more below the largest are left out. The largest logits, at the
    beginning of ``ends``, become one over the sums.
    """
    block = span.tokens * span.lanes
    top = load_column(span, ends, 0, span.lanes)
    low = subtract(top, splat(top, least))
    for j in range(tokens):
        keys[j] = j
    count = tokens
    if not any_reaches(load(span, ends, block), first_row(low)):  # else some lane gives every key its weight
        count = 0
        for j in range(tokens):
            keys[count] = j
            count += any_reaches(load_column(span, scores, j * block, span.lanes), low)
    total = splat(top, _ZERO)
    for k in range(count):
        logits = load_column(span, scores, keys[k] * block, span.lanes)
        p = power_of_two(subtract(logits, load_column(span, ends, 0, span.lanes)))  # few registers are left
        store_tile(scores, k * block, span.lanes, 0, p)
        total = add(total, p)
    store_tile(ends, 0, span.lanes, 0, divide(splat(total, _ONE), total))
    return count


@njit  # type: ignore[untyped-decorator]
def _averages(
    span: Span,
    numerators: Float32[np.ndarray, " key_query_lane"],
    shares: Float32[np.ndarray, " query_and_one_lane"],
    keys: Int64[np.ndarray, " key"],
    count: int,
    tokens: int,
    value: Float32[np.ndarray, " pack_token_unit_lane"],
    size: int,
    out: Float32[np.ndarray, " token_inner_lane"],
    first: int,
    step: int,
) -> None:
    """Weighted sums of values (Eq 8c) for a tile's queries, written from ``first`` on, ``step`` numbers per query."""
    lanes, pack, block, unit = span.lanes, len(value) // size * UNITS, span.tokens * span.lanes, UNITS * span.lanes
    share = load_column(span, shares, 0, lanes)
    whole = count // UNITS * UNITS if count == tokens else 0  # keys that need not be looked up
    for d in range(0, size, UNITS):
        sums, begin = splat_units(span, _ZERO), d // UNITS * pack
        for k in range(0, whole, UNITS):
            at, of = begin + k * unit, k * block
            sums = add_loaded(sums, numerators, of, lanes, value, at, lanes)
            sums = add_loaded(sums, numerators, of + block, lanes, value, at + unit, lanes)
            sums = add_loaded(sums, numerators, of + 2 * block, lanes, value, at + 2 * unit, lanes)
            sums = add_loaded(sums, numerators, of + 3 * block, lanes, value, at + 3 * unit, lanes)
        for k in range(whole, count):
            sums = add_loaded(sums, numerators, k * block, lanes, value, begin + keys[k] * unit, lanes)
        store_tile(out, first + d * lanes, step, lanes, times_column(sums, share))


@njit  # type: ignore[untyped-decorator]
def normalise(
    span: Span,
    x: Float32[np.ndarray, " token_width_lane"],
    first: int,
    width: int,
    gain: Float32[np.ndarray, " width"],
    shift: Float32[np.ndarray, " width"],
    eps: float,
) -> None:
    """The numbers of a tile's tokens, from ``first`` on, become their layer norms (Eqs 11-13), in place.

    The mean is corrected by the mean of what is left, so that equal numbers become exactly zero.
    """
    lanes, step = span.lanes, width * span.lanes
    total = splat_column(span, _ZERO)
    share, left = splat(total, _ONE / np.float32(width)), total
    for i in range(first, first + step, lanes):
        total = add(total, load_column(span, x, i, step))
    mean, total = multiply(total, share), left
    for i in range(first, first + step, lanes):
        number = subtract(load_column(span, x, i, step), mean)
        left, total = add(left, number), multiply_add(number, number, total)
    left = multiply(left, share)
    variance = larger(splat(left, _ZERO), subtract(multiply(total, share), multiply(left, left)))
    mean, z = add(mean, left), inverse_root(add(variance, splat(left, eps)))
    for i in range(width):
        at = first + i * lanes
        number = multiply(subtract(load_column(span, x, at, step), mean), z)
        number = multiply_add(number, spread_column(span, gain, i, 0), spread_column(span, shift, i, 0))
        store_tile(x, at, step, 0, number)


@njit  # type: ignore[untyped-decorator]
def add_units(
    span: Span,
    units: Float32[np.ndarray, " token_unit_lane"],
    begin: int,
    step: int,
    count: int,
    down: Float32[np.ndarray, " pack_unit_coordinate"],
    bias: Float32[np.ndarray, " width"],
    x: Float32[np.ndarray, " token_width_lane"],
    first: int,
    active: Int64[np.ndarray, " unit"],
) -> None:
    """Add to a tile's tokens, from ``first`` on, what the positive parts of ``count`` hidden units bring, and the bias.

    The units stand from ``begin`` on, ``step`` numbers per token. Those that are off at every token of the tile, in
    every lane, are left out: tokens of one string, and flips of it, mostly agree on that.
    """
    on, lanes, row = 0, span.lanes, len(bias) * span.lanes
    for unit in range(count):
        number = load_column(span, units, begin + unit * lanes, step)
        number = larger(splat(number, _ZERO), number)
        store_tile(units, begin + on * lanes, step, 0, number)
        active[on] = unit * UNITS
        on += any_nonzero(number)
    while on % UNITS:  # up to a multiple of four, as their count is one: zeros bring nothing
        store_tile(units, begin + on * lanes, step, 0, splat_column(span, _ZERO))
        active[on] = active[on - 1]
        on += 1
    for i in range(0, len(bias), UNITS):
        sums, to, pack = spread_units(span, bias, i, 0), first + i * lanes, i * count
        for k in range(0, on, UNITS):
            at = begin + k * lanes
            sums = add_spread(sums, units, at, step, down, pack + active[k])
            sums = add_spread(sums, units, at + lanes, step, down, pack + active[k + 1])
            sums = add_spread(sums, units, at + 2 * lanes, step, down, pack + active[k + 2])
            sums = add_spread(sums, units, at + 3 * lanes, step, down, pack + active[k + 3])
        store_tile(x, to, row, lanes, add(sums, load_units(span, x, to, row, lanes)))


_weights = types.UniTuple(_row, 12)
Weights = tuple[np.ndarray, ...]  # of a layer


@compiled_by_span(lambda span: void(span, _matrix, int64, int64, _number, _weights, _number, boolean, int64, int64))
def middle_layer(
    span: Span,
    states: Float32[np.ndarray, "group token_width_lane"],
    tokens: int,
    heads: int,
    least: float,
    weights: Weights,
    eps: float,
    norm_first: bool,
    first: int,
    last: int,
) -> None:
    """A layer (Eqs 8-13) in place at every token of groups first .. last - 1.

    A group has room for more tokens than it has, up to a multiple of a tile's: what stands there is computed along.
    """
    lanes, some_tokens = span.lanes, span.tokens
    qkv_weight, qkv_bias, output, output_bias, up, up_bias, down, down_bias, gain1, shift1, gain2, shift2 = weights
    width, hidden, size = len(down_bias), len(up_bias), len(qkv_bias) // (3 * heads)
    room, inner = states.shape[1] // (width * lanes), heads * size
    filled = (tokens + UNITS - 1) // UNITS * UNITS
    query, value = np.zeros(room * size * lanes, np.float32), np.zeros(room * size * lanes, np.float32)
    key = np.zeros(max(room, filled) * size * lanes, np.float32)
    mixed = np.zeros(room * inner * lanes, np.float32)
    scores = np.zeros(filled * some_tokens * lanes, np.float32)
    ends = np.zeros((some_tokens + 1) * lanes, np.float32)
    keys, active = np.zeros(tokens, np.int64), np.zeros(hidden, np.int64)
    units = np.zeros(some_tokens * hidden * lanes, np.float32)
    part, row = size * width, size * lanes
    for group in range(first, last):
        x = states[group]
        for head in range(heads):
            at, bias = 3 * head * part, 3 * head * size
            some = qkv_weight[at : at + part]
            _product(span, x, room, width, some, qkv_bias[bias : bias + size], query, row, lanes, False)
            some = qkv_weight[at + part : at + 2 * part]
            _product(span, x, room, width, some, qkv_bias[bias + size : bias + 2 * size], key, row, lanes, False)
            some = qkv_weight[at + 2 * part : at + 3 * part]
            some_bias = qkv_bias[bias + 2 * size : bias + 3 * size]
            _product(span, x, room, width, some, some_bias, value, UNITS * lanes, room * lanes, False)
            moderate = 2 * _centre_keys(span, key, filled, query, tokens, size) <= least
            if moderate:
                for j in range(tokens):
                    keys[j] = j
            else:
                lost = least + _bits_of_values(span, value, tokens, size)
            for token in range(0, room, some_tokens):
                count = tokens
                if moderate:
                    _moderate_numerators(span, query, token, key, tokens, size, scores, ends)
                else:
                    _scores(span, query, token, key, filled, size, scores, ends)
                    count = _numerators(span, scores, ends, tokens, lost, keys)
                to = (token * inner + head * size) * lanes
                _averages(span, scores, ends, keys, count, tokens, value, size, mixed, to, inner * lanes)
        _product(span, mixed, room, inner, output, output_bias, x, width * lanes, lanes, True)
        for token in range(0, room, some_tokens):
            begin = token * width * lanes
            few = x[begin : begin + some_tokens * width * lanes]
            if norm_first:
                normalise(span, few, 0, width, gain1, shift1, eps)
            _product(span, few, some_tokens, width, up, up_bias, units, hidden * lanes, lanes, False)
            add_units(span, units, 0, hidden * lanes, hidden, down, down_bias, few, 0, active)
            normalise(span, few, 0, width, gain2, shift2, eps)


@compiled_by_span(
    lambda span: void(span, _matrix, int64, int64, int64, _weights, _row, _row, _number, boolean, _matrix, int64, int64)
)
def last_layer(
    span: Span,
    states: Float32[np.ndarray, "group token_width_lane"],
    tokens: int,
    read: int,
    heads: int,
    weights: Weights,
    absorbed: Float32[np.ndarray, " head_pack_size_unit"],
    value: Float32[np.ndarray, " head_pack_width_unit"],
    eps: float,
    norm_first: bool,
    out: Float32[np.ndarray, "group_lane width"],
    first: int,
    last: int,
) -> None:
    """The layer's output at the token that is read, for groups first .. last - 1 (last_layer.LastLayer)."""
    query_weight, query_bias, output, output_bias, up, up_bias, down, down_bias, gain1, shift1, gain2, shift2 = weights
    one, lanes, width, hidden, inner = one_token(span), span.lanes, len(down_bias), len(up_bias), len(query_bias)
    size = inner // heads
    part, row = size * width, width * lanes
    query, pulled = np.zeros(inner * lanes, np.float32), np.zeros(row, np.float32)
    scores, mixed = np.zeros(tokens * lanes, np.float32), np.zeros(inner * lanes, np.float32)
    units, active = np.zeros(hidden * lanes, np.float32), np.zeros(hidden, np.int64)
    nothing, into = np.zeros(max(width, inner), np.float32), np.zeros(row, np.float32)
    for group in range(first, last):
        x = states[group]
        here = x[read * row : (read + 1) * row]
        _product(one, here, 1, width, query_weight, query_bias, query, 0, lanes, False)
        for head in range(heads):
            some, own = absorbed[head * part : (head + 1) * part], head * size * lanes
            _product(one, query[own : own + size * lanes], 1, size, some, nothing[:width], pulled, 0, lanes, False)
            top = splat(one, _NEVER)
            for token in range(tokens):
                a, b = splat(one, _ZERO), splat(one, _ZERO)
                for i in range(0, row, 2 * lanes):
                    at = token * row + i
                    a = multiply_add(load(one, pulled, i), load(one, x, at), a)
                    b = multiply_add(load(one, pulled, i + lanes), load(one, x, at + lanes), b)
                store(scores, token * lanes, add(a, b))
                top = larger(add(a, b), top)
            total = splat(one, _ZERO)
            for token in range(tokens):
                p = power_of_two(subtract(load(one, scores, token * lanes), top))
                store(scores, token * lanes, p)
                total = add(total, p)
            share = divide(splat(one, _ONE), total)
            for i in range(0, row, UNITS * lanes):
                sums = splat_units(one, _ZERO)
                for token in range(tokens):
                    sums = add_loaded(sums, scores, token * lanes, 0, x, token * row + i, lanes)
                store_tile(pulled, i, 0, lanes, times_column(sums, share))
            some = value[head * part : (head + 1) * part]
            _product(one, pulled, 1, width, some, nothing[:size], mixed[own : own + size * lanes], 0, lanes, False)
        _product(one, mixed, 1, inner, output, output_bias, into, 0, lanes, False)
        for i in range(0, row, lanes):
            store(into, i, add(load(one, into, i), load(one, here, i)))
        if norm_first:
            normalise(one, into, 0, width, gain1, shift1, eps)
        _product(one, into, 1, width, up, up_bias, units, 0, lanes, False)
        add_units(one, units, 0, 0, hidden, down, down_bias, into, 0, active)
        normalise(one, into, 0, width, gain2, shift2, eps)
        for lane in range(lanes):
            for i in range(width):
                out[group * lanes + lane, i] = into[i * lanes + lane]
