"""Compiled loops for narrow models in float32: eight flips of a string at once, one a lane.

States stand as [token, coordinate, lane]. A matrix product multiplies one weight, in every lane, by eight numbers that
stand together; attention, norms and ReLU are done lane by lane, and nothing is ever turned on its side. Weights that
are the same for all lanes come in packs of four units, ``[unit / 4, input, 4]``, the second matrix of an MLP in packs
of eight. Sums of a block of three tokens and four units are held in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from numba import boolean, float32, int64, njit, types, void

from flipscope.cube.compiled import compiled
from flipscope.probes.simd import (
    LANES,
    add,
    any_nonzero,
    any_reaches,
    divide,
    inverse_root,
    larger,
    load,
    multiply,
    multiply_add,
    power_of_two,
    splat,
    spread,
    store,
    subtract,
)

TOKENS = 3  # tokens of a block
UNITS = 4  # units, keys or coordinates of a block
PACK = 8  # coordinates of a block of the MLP's second matrix, which takes one token at a time

_cube, _matrix, _row, _number = float32[:, :, ::1], float32[:, ::1], float32[::1], float32
_ZERO, _ONE, _NEVER = np.float32(0), np.float32(1), np.float32(-np.inf)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _put(out: Any, to: Any, accumulate: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    """Store four units of a token, added to what is there if so asked."""
    if accumulate:
        a, b = add(a, load(out, to)), add(b, load(out, to + LANES))
        c, d = add(c, load(out, to + 2 * LANES)), add(d, load(out, to + 3 * LANES))
    store(out, to, a)
    store(out, to + LANES, b)
    store(out, to + 2 * LANES, c)
    store(out, to + 3 * LANES, d)


@compiled(void(_row, int64, int64, _row, _row, _row, int64, int64, boolean))
def _product(
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
    """Weights times each token + bias, or added to what is there: ``step`` numbers a token, ``unit_step`` a unit.

    The number of tokens is a multiple of TOKENS; the four units of a pack stand together.
    """
    wide = inputs * LANES
    for token in range(0, tokens, TOKENS):
        p0 = token * wide
        p1, p2 = p0 + wide, p0 + 2 * wide
        for unit in range(0, len(bias), UNITS):
            a0, b0, c0, d0 = spread(bias, unit), spread(bias, unit + 1), spread(bias, unit + 2), spread(bias, unit + 3)
            a1, b1, c1, d1 = a0, b0, c0, d0
            a2, b2, c2, d2 = a0, b0, c0, d0
            at = unit * inputs
            for i in range(0, wide, LANES):
                x0, x1, x2 = load(x, p0 + i), load(x, p1 + i), load(x, p2 + i)
                w = spread(weights, at)
                a0, a1, a2 = multiply_add(w, x0, a0), multiply_add(w, x1, a1), multiply_add(w, x2, a2)
                w = spread(weights, at + 1)
                b0, b1, b2 = multiply_add(w, x0, b0), multiply_add(w, x1, b1), multiply_add(w, x2, b2)
                w = spread(weights, at + 2)
                c0, c1, c2 = multiply_add(w, x0, c0), multiply_add(w, x1, c1), multiply_add(w, x2, c2)
                w = spread(weights, at + 3)
                d0, d1, d2 = multiply_add(w, x0, d0), multiply_add(w, x1, d1), multiply_add(w, x2, d2)
                at += UNITS
            to = token * step + unit * unit_step
            _put(out, to, accumulate, a0, b0, c0, d0)
            _put(out, to + step, accumulate, a1, b1, c1, d1)
            _put(out, to + 2 * step, accumulate, a2, b2, c2, d2)


@compiled(void(_row, int64, _row, _row, _row, int64))
def _one_product(
    x: Float32[np.ndarray, " input_lane"],
    first: int,
    weights: Float32[np.ndarray, " pack_input_unit"],
    bias: Float32[np.ndarray, " unit"],
    out: Float32[np.ndarray, " unit_lane"],
    to: int,
) -> None:
    """Weights times one token's numbers, from ``first`` on, + bias, written from ``to`` on."""
    inputs = len(weights) // len(bias)
    at = 0
    for unit in range(0, len(bias), UNITS):
        a, b, c, d = spread(bias, unit), spread(bias, unit + 1), spread(bias, unit + 2), spread(bias, unit + 3)
        for i in range(inputs):
            number = load(x, first + i * LANES)
            a, b = multiply_add(spread(weights, at), number, a), multiply_add(spread(weights, at + 1), number, b)
            c, d = multiply_add(spread(weights, at + 2), number, c), multiply_add(spread(weights, at + 3), number, d)
            at += UNITS
        _put(out, to + unit * LANES, False, a, b, c, d)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _put_scores(scores: Any, to: Any, top: Any, at: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    """Store a query's logits with four keys."""
    store(scores, to, a)
    store(scores, to + TOKENS * LANES, b)
    store(scores, to + 2 * TOKENS * LANES, c)
    store(scores, to + 3 * TOKENS * LANES, d)
    store(top, at, larger(larger(a, b), larger(larger(c, d), load(top, at))))


@compiled(void(_row, int64, _row, int64, int64, _row, _row))
def _scores(
    query: Float32[np.ndarray, " token_size_lane"],
    first: int,
    key: Float32[np.ndarray, " token_size_lane"],
    tokens: int,
    size: int,
    scores: Float32[np.ndarray, " key_query_lane"],
    top: Float32[np.ndarray, " query_lane"],
) -> None:
    """Attention logits (Eq 8a) of three tokens, from ``first`` on, with all keys, and the largest of each."""
    step = size * LANES
    begin, to = first * step, 0
    store(top, 0, splat(_NEVER))
    store(top, LANES, splat(_NEVER))
    store(top, 2 * LANES, splat(_NEVER))
    for j in range(0, tokens * step, UNITS * step):
        a0, a1, a2 = splat(_ZERO), splat(_ZERO), splat(_ZERO)
        b0, b1, b2, c0, c1, c2, d0, d1, d2 = a0, a1, a2, a0, a1, a2, a0, a1, a2
        for i in range(0, step, LANES):
            at = begin + i
            q0, q1, q2 = load(query, at), load(query, at + step), load(query, at + 2 * step)
            at = j + i
            k = load(key, at)
            a0, a1, a2 = multiply_add(k, q0, a0), multiply_add(k, q1, a1), multiply_add(k, q2, a2)
            k = load(key, at + step)
            b0, b1, b2 = multiply_add(k, q0, b0), multiply_add(k, q1, b1), multiply_add(k, q2, b2)
            k = load(key, at + 2 * step)
            c0, c1, c2 = multiply_add(k, q0, c0), multiply_add(k, q1, c1), multiply_add(k, q2, c2)
            k = load(key, at + 3 * step)
            d0, d1, d2 = multiply_add(k, q0, d0), multiply_add(k, q1, d1), multiply_add(k, q2, d2)
        _put_scores(scores, to, top, 0, a0, b0, c0, d0)
        _put_scores(scores, to + LANES, top, LANES, a1, b1, c1, d1)
        _put_scores(scores, to + 2 * LANES, top, 2 * LANES, a2, b2, c2, d2)
        to += UNITS * TOKENS * LANES


@compiled(int64(_row, _row, int64, _number, int64[::1]))
def _numerators(
    scores: Float32[np.ndarray, " key_query_lane"],
    top: Float32[np.ndarray, " query_lane"],
    tokens: int,
    least: float,
    keys: Int64[np.ndarray, " key"],
) -> int:
    """The softmax's numerators (Eq 8b) of three queries, and how many ``keys`` have any that is not negligible.

    Those of keys whose every logit is ``least`` or more below the largest are left out. ``top`` becomes one over the
    sums.
    """
    low0, low1 = subtract(load(top, 0), splat(least)), subtract(load(top, LANES), splat(least))
    low2 = subtract(load(top, 2 * LANES), splat(least))
    count = 0
    for j in range(tokens):
        at = j * TOKENS * LANES
        keys[count] = j
        count += any_reaches(load(scores, at), low0, load(scores, at + LANES), low1, load(scores, at + 2 * LANES), low2)
    for query in range(0, TOKENS * LANES, LANES):
        most, total = load(top, query), splat(_ZERO)
        for k in range(count):
            p = power_of_two(subtract(load(scores, keys[k] * TOKENS * LANES + query), most))
            store(scores, k * TOKENS * LANES + query, p)
            total = add(total, p)
        store(top, query, divide(splat(_ONE), total))
    return count


@compiled(void(_row, _row, int64[::1], int64, _row, int64, _row, int64, int64))
def _averages(
    numerators: Float32[np.ndarray, " key_query_lane"],
    share: Float32[np.ndarray, " query_lane"],
    keys: Int64[np.ndarray, " key"],
    count: int,
    value: Float32[np.ndarray, " pack_token_unit_lane"],
    size: int,
    out: Float32[np.ndarray, " token_inner_lane"],
    first: int,
    step: int,
) -> None:
    """Weighted sums of the values (Eq 8c) for three queries, written from ``first`` on, ``step`` numbers a query."""
    pack = len(value) // size * UNITS
    share0, share1, share2 = load(share, 0), load(share, LANES), load(share, 2 * LANES)
    for d in range(0, size, UNITS):
        a0, a1, a2 = splat(_ZERO), splat(_ZERO), splat(_ZERO)
        b0, b1, b2, c0, c1, c2, d0, d1, d2 = a0, a1, a2, a0, a1, a2, a0, a1, a2
        begin = d // UNITS * pack
        for k in range(count):
            at = k * TOKENS * LANES
            p0, p1, p2 = load(numerators, at), load(numerators, at + LANES), load(numerators, at + 2 * LANES)
            at = begin + keys[k] * UNITS * LANES
            v = load(value, at)
            a0, a1, a2 = multiply_add(v, p0, a0), multiply_add(v, p1, a1), multiply_add(v, p2, a2)
            v = load(value, at + LANES)
            b0, b1, b2 = multiply_add(v, p0, b0), multiply_add(v, p1, b1), multiply_add(v, p2, b2)
            v = load(value, at + 2 * LANES)
            c0, c1, c2 = multiply_add(v, p0, c0), multiply_add(v, p1, c1), multiply_add(v, p2, c2)
            v = load(value, at + 3 * LANES)
            d0, d1, d2 = multiply_add(v, p0, d0), multiply_add(v, p1, d1), multiply_add(v, p2, d2)
        to = first + d * LANES
        _put(out, to, False, multiply(a0, share0), multiply(b0, share0), multiply(c0, share0), multiply(d0, share0))
        to += step
        _put(out, to, False, multiply(a1, share1), multiply(b1, share1), multiply(c1, share1), multiply(d1, share1))
        to += step
        _put(out, to, False, multiply(a2, share2), multiply(b2, share2), multiply(c2, share2), multiply(d2, share2))


@compiled(void(_row, int64, int64, _row, _row, _number))
def normalise(
    x: Float32[np.ndarray, " token_width_lane"],
    first: int,
    width: int,
    gain: Float32[np.ndarray, " width"],
    shift: Float32[np.ndarray, " width"],
    eps: float,
) -> None:
    """The numbers of one token, from ``first`` on, become their layer norm (Eqs 11-13), in place.

    The mean is corrected by the mean of what is left, so that equal numbers become exactly zero.
    """
    share, total = splat(_ONE / np.float32(width)), splat(_ZERO)
    for i in range(width):
        total = add(total, load(x, first + i * LANES))
    mean, left, total = multiply(total, share), splat(_ZERO), splat(_ZERO)
    for i in range(width):
        number = subtract(load(x, first + i * LANES), mean)
        left, total = add(left, number), multiply_add(number, number, total)
    left = multiply(left, share)
    variance = larger(splat(_ZERO), subtract(multiply(total, share), multiply(left, left)))
    mean, z = add(mean, left), inverse_root(add(variance, splat(eps)))
    for i in range(width):
        number = multiply(subtract(load(x, first + i * LANES), mean), z)
        store(x, first + i * LANES, multiply_add(number, spread(gain, i), spread(shift, i)))


@compiled(void(_row, int64, int64, _row, _row, _row, int64, int64[::1]))
def add_units(
    units: Float32[np.ndarray, " unit_lane"],
    begin: int,
    count: int,
    down: Float32[np.ndarray, " pack_unit_coordinate"],
    bias: Float32[np.ndarray, " width"],
    x: Float32[np.ndarray, " token_width_lane"],
    first: int,
    active: Int64[np.ndarray, " unit"],
) -> None:
    """Add to one token, from ``first`` on, what the positive parts of ``count`` hidden units bring it, and the bias.

    Units that are off in every lane are left out.
    """
    on = 0
    for unit in range(count):
        number = larger(splat(_ZERO), load(units, begin + unit * LANES))
        store(units, begin + on * LANES, number)
        active[on] = unit * PACK
        on += any_nonzero(number)
    for i in range(0, len(bias), PACK):
        to, pack = first + i * LANES, i * count
        a, b, c, d = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
        e, f, g, h = a, b, c, d
        for k in range(on):
            number, at = load(units, begin + k * LANES), pack + active[k]
            a, b = multiply_add(spread(down, at), number, a), multiply_add(spread(down, at + 1), number, b)
            c, d = multiply_add(spread(down, at + 2), number, c), multiply_add(spread(down, at + 3), number, d)
            e, f = multiply_add(spread(down, at + 4), number, e), multiply_add(spread(down, at + 5), number, f)
            g, h = multiply_add(spread(down, at + 6), number, g), multiply_add(spread(down, at + 7), number, h)
        a, b, c, d = (
            add(a, spread(bias, i)),
            add(b, spread(bias, i + 1)),
            add(c, spread(bias, i + 2)),
            add(d, spread(bias, i + 3)),
        )
        e, f, g, h = (
            add(e, spread(bias, i + 4)),
            add(f, spread(bias, i + 5)),
            add(g, spread(bias, i + 6)),
            add(h, spread(bias, i + 7)),
        )
        _put(x, to, True, a, b, c, d)
        _put(x, to + UNITS * LANES, True, e, f, g, h)


_weights = types.UniTuple(_row, 12)
Weights = tuple[np.ndarray, ...]  # of a layer


@compiled(void(_matrix, int64, int64, _number, _weights, _number, boolean, int64, int64))
def middle_layer(
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

    A group has room for more tokens than it has, up to a multiple of TOKENS: what stands there is computed along.
    """
    qkv_weight, qkv_bias, output, output_bias, up, up_bias, down, down_bias, gain1, shift1, gain2, shift2 = weights
    width, hidden, size = len(down_bias), len(up_bias), len(qkv_bias) // (3 * heads)
    room, inner = states.shape[1] // (width * LANES), heads * size
    filled = (tokens + UNITS - 1) // UNITS * UNITS
    query, value = np.zeros(room * size * LANES, np.float32), np.zeros(room * size * LANES, np.float32)
    key = np.zeros(max(room, filled) * size * LANES, np.float32)
    mixed = np.zeros(room * inner * LANES, np.float32)
    scores, top = np.zeros(filled * TOKENS * LANES, np.float32), np.zeros(TOKENS * LANES, np.float32)
    keys, active = np.zeros(tokens, np.int64), np.zeros(hidden, np.int64)
    units = np.zeros(TOKENS * hidden * LANES, np.float32)
    part, row = size * width, size * LANES
    for group in range(first, last):
        x = states[group]
        for head in range(heads):
            at, bias = 3 * head * part, 3 * head * size
            some = qkv_weight[at : at + part]
            _product(x, room, width, some, qkv_bias[bias : bias + size], query, row, LANES, False)
            some = qkv_weight[at + part : at + 2 * part]
            _product(x, room, width, some, qkv_bias[bias + size : bias + 2 * size], key, row, LANES, False)
            some = qkv_weight[at + 2 * part : at + 3 * part]
            some_bias = qkv_bias[bias + 2 * size : bias + 3 * size]
            _product(x, room, width, some, some_bias, value, UNITS * LANES, room * LANES, False)
            for i in range(tokens * row, filled * row):  # more keys, that change no maximum
                key[i] = key[i - row]
            for token in range(0, room, TOKENS):
                _scores(query, token, key, filled, size, scores, top)
                count = _numerators(scores, top, tokens, least, keys)
                to = (token * inner + head * size) * LANES
                _averages(scores, top, keys, count, value, size, mixed, to, inner * LANES)
        _product(mixed, room, inner, output, output_bias, x, width * LANES, LANES, True)
        for token in range(0, room, TOKENS):
            begin = token * width * LANES
            three = x[begin : begin + TOKENS * width * LANES]
            if norm_first:
                for k in range(TOKENS):
                    normalise(three, k * width * LANES, width, gain1, shift1, eps)
            _product(three, TOKENS, width, up, up_bias, units, hidden * LANES, LANES, False)
            for k in range(TOKENS):
                add_units(units, k * hidden * LANES, hidden, down, down_bias, three, k * width * LANES, active)
                normalise(three, k * width * LANES, width, gain2, shift2, eps)


@compiled(void(_matrix, int64, int64, int64, _weights, _row, _row, _number, boolean, _matrix, int64, int64))
def last_layer(
    states: Float32[np.ndarray, "group token_width_lane"],
    tokens: int,
    read: int,
    heads: int,
    weights: Weights,
    absorbed: Float32[np.ndarray, " head_pack_size_unit"],
    value: Float32[np.ndarray, " head_pack_width_unit"],
    eps: float,
    norm_first: bool,
    out: Float32[np.ndarray, "group width_lane"],
    first: int,
    last: int,
) -> None:
    """The layer's output at the token that is read, for groups first .. last - 1 (last_layer.LastLayer)."""
    query_weight, query_bias, output, output_bias, up, up_bias, down, down_bias, gain1, shift1, gain2, shift2 = weights
    width, hidden, inner = len(down_bias), len(up_bias), len(query_bias)
    size = inner // heads
    part = size * width
    query, pulled = np.zeros(inner * LANES, np.float32), np.zeros(width * LANES, np.float32)
    scores, mixed = np.zeros(tokens * LANES, np.float32), np.zeros(inner * LANES, np.float32)
    units, active = np.zeros(hidden * LANES, np.float32), np.zeros(hidden, np.int64)
    nothing = np.zeros(max(width, inner), np.float32)
    for group in range(first, last):
        x, into = states[group], out[group]
        here = read * width * LANES
        _one_product(x, here, query_weight, query_bias, query, 0)
        for head in range(heads):
            some = absorbed[head * part : (head + 1) * part]
            _one_product(query, head * size * LANES, some, nothing[:width], pulled, 0)
            top = splat(_NEVER)
            for token in range(tokens):
                a, b = splat(_ZERO), splat(_ZERO)
                for i in range(0, width * LANES, 2 * LANES):
                    at = token * width * LANES + i
                    a = multiply_add(load(pulled, i), load(x, at), a)
                    b = multiply_add(load(pulled, i + LANES), load(x, at + LANES), b)
                store(scores, token * LANES, add(a, b))
                top = larger(add(a, b), top)
            total = splat(_ZERO)
            for token in range(tokens):
                p = power_of_two(subtract(load(scores, token * LANES), top))
                store(scores, token * LANES, p)
                total = add(total, p)
            share = divide(splat(_ONE), total)
            for i in range(0, width * LANES, UNITS * LANES):
                a, b, c, d = splat(_ZERO), splat(_ZERO), splat(_ZERO), splat(_ZERO)
                for token in range(tokens):
                    p, at = load(scores, token * LANES), token * width * LANES + i
                    a, b = multiply_add(p, load(x, at), a), multiply_add(p, load(x, at + LANES), b)
                    c, d = multiply_add(p, load(x, at + 2 * LANES), c), multiply_add(p, load(x, at + 3 * LANES), d)
                _put(pulled, i, False, multiply(a, share), multiply(b, share), multiply(c, share), multiply(d, share))
            some = value[head * part : (head + 1) * part]
            _one_product(pulled, 0, some, nothing[:size], mixed, head * size * LANES)
        _one_product(mixed, 0, output, output_bias, into, 0)
        for i in range(0, width * LANES, LANES):
            store(into, i, add(load(into, i), load(x, here + i)))
        if norm_first:
            normalise(into, 0, width, gain1, shift1, eps)
        _one_product(into, 0, up, up_bias, units, 0)
        add_units(units, 0, hidden, down, down_bias, into, 0, active)
        normalise(into, 0, width, gain2, shift2, eps)
