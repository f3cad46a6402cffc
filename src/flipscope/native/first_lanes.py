"""Compiled loops of the first layer from tables, for narrow models: flips side by side, one per lane (first_layer).

What attention brings to a token under a flip is a mixture of few vectors, and the MLP's first matrix times it is the
same mixture of its products with them, since a norm in between only centres and scales. Both stand in one list of
``numbers``, the token's own coordinates first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numba import boolean, float32, int64, njit, types, void

from flipscope.native.compiled import compiled
from flipscope.native.lanes import add_units, normalise
from flipscope.native.powers import power_of_two
from flipscope.native.simd import (
    UNITS,
    add,
    add_each,
    add_loaded,
    divide,
    inverse_root,
    load,
    load_column,
    multiply,
    multiply_add,
    splat,
    splat_column,
    spread_column,
    spread_units,
    store,
    store_tile,
    subtract,
)
from flipscope.native.span import Span, compiled_by_span

_cube, _matrix, _row, _number = float32[:, :, ::1], float32[:, ::1], float32[::1], float32
_whole_matrix, _whole = int64[:, ::1], int64[::1]
Arrays = tuple[np.ndarray, ...]
_ZERO, _ONE, _TWO, _NEVER = np.float32(0), np.float32(1), np.float32(2), np.float32(-np.inf)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _powers(span: Any, x: Any, top: Any, out: Any, into: Any) -> Any:
    """``out`` and ``into`` become 2^(x - top); the sum of these."""
    for j in range(len(x)):
        out[j] = x[j] - top
    for at in range(0, len(out), span.lanes):
        store(out, at, power_of_two(load(span, out, at)))
    total = _ZERO
    for j in range(len(x)):
        into[j] = out[j]
        total += out[j]
    return total


_found = types.UniTuple(_cube, 5)


@compiled_by_span(lambda span: void(span, _cube, _whole, _whole, int64, _found, _whole_matrix, _matrix, int64, int64))
def first_shares(
    span: Span,
    scores: Float32[np.ndarray, "head row row"],
    rows: Int64[np.ndarray, " token"],
    flipped: Int64[np.ndarray, " flip"],
    offset: int,
    found: Arrays,
    rare: Int64[np.ndarray, "head token"],
    rare_keep: Float32[np.ndarray, "head token"],
    first: int,
    last: int,
) -> None:
    """Each token's unnormalised weights, and of what its attention is mixed under each flip (first_layer.FirstLayer).

    ``found`` are the weights [head, token, token], those without a dominating key, and the shares keep, out and put
    [head, token, lane]. The lanes after the flips are the string itself. If a bit has more than half of a token's
    weight, its flip is ``rare``: keep is 0, and ``rare_keep`` is the share of the sums without that key. ``scores`` are
    logarithms to base 2.
    """
    weights, rest, keep, out, put = found
    tokens, lanes, flips = weights.shape[2], keep.shape[2], len(flipped)
    seen, change, moved = np.zeros(tokens, np.float32), np.zeros(lanes, np.float32), np.zeros(lanes, np.float32)
    shrunk, grown, zero, one = (
        np.zeros(lanes, np.float32),
        np.ones(lanes, np.float32),
        splat(span, _ZERO),
        splat(span, _ONE),
    )
    filled = (tokens + span.lanes - 1) // span.lanes * span.lanes
    old, others = np.zeros(lanes + span.lanes, np.float32), np.zeros(filled, np.float32)
    for head in range(first, last):
        for token in range(tokens):
            line = scores[head, rows[token]]
            kept, taken, given = keep[head, token], out[head, token], put[head, token]
            top, where = _NEVER, 0
            for j in range(tokens):
                seen[j] = line[rows[j]]
                if seen[j] > top:
                    top, where = seen[j], j
            total = _powers(span, seen, top, old, weights[head, token])
            for i in range(flips):
                moved[i] = line[flipped[i]]
                change[i] = -abs(moved[i] - top)
            for at in range(0, lanes, span.lanes):
                store(change, at, power_of_two(load(span, change, at)))
            for i in range(flips):
                fell = moved[i] <= top
                shrunk[i], grown[i] = _ONE if fell else change[i], change[i] if fell else _ONE
            every = splat(span, total)
            for at in range(0, lanes, span.lanes):
                shrink, grow, before = load(span, shrunk, at), load(span, grown, at), load(span, old, offset + at)
                share = divide(one, add(multiply(shrink, subtract(every, before)), grow))
                store(kept, at, multiply(shrink, share))
                store(taken, at, multiply(multiply(subtract(zero, shrink), before), share))
                store(given, at, multiply(grow, share))
            for i in range(flips, lanes):
                kept[i], taken[i], given[i] = _ONE / total, _ZERO, _ZERO
            flip = where - offset
            rare[head, token] = -1
            rest[head, token] = _ZERO
            if total < _TWO and 0 <= flip < flips and tokens > 1:
                rare[head, token] = flip
                seen[where] = _NEVER
                top = _NEVER
                for j in range(tokens):
                    top = max(top, seen[j])
                total = _powers(span, seen, top, others, rest[head, token]) - others[where]
                rest[head, token, where] = _ZERO
                new = line[flipped[flip]]
                both = max(top, new)
                shrink, grow = np.exp2(top - both), np.exp2(new - both)
                share = _ONE / (shrink * total + grow)
                rare_keep[head, token] = shrink * share
                kept[flip], taken[flip], given[flip] = _ZERO, _ZERO, grow * share


@compiled_by_span(lambda span: void(span, _cube, _whole, _whole, int64, _cube, int64, _matrix, int64, int64))
def own_shares(
    span: Span,
    scores: Float32[np.ndarray, "head row row"],
    rows: Int64[np.ndarray, " token"],
    flipped: Int64[np.ndarray, " flip"],
    offset: int,
    weights: Float32[np.ndarray, "head row token"],
    begin: int,
    new: Float32[np.ndarray, "head flip"],
    first: int,
    last: int,
) -> None:
    """The flipped token's own weights: on the other tokens, in rows from ``begin`` on, and on its ``new`` self."""
    tokens = len(rows)
    filled = (tokens + span.lanes - 1) // span.lanes * span.lanes
    seen, powers = np.zeros(tokens, np.float32), np.zeros(filled, np.float32)
    for head in range(first, last):
        for flip in range(len(flipped)):
            line, own = scores[head, flipped[flip]], weights[head, begin + flip]
            top = _NEVER
            for j in range(tokens):
                seen[j] = line[rows[j]]
            seen[offset + flip] = line[flipped[flip]]
            for j in range(tokens):
                top = max(top, seen[j])
            total = _powers(span, seen, top, powers, own)
            for j in range(tokens):
                own[j] /= total
            new[head, flip] = own[offset + flip]
            own[offset + flip] = _ZERO


@compiled(void(_cube, _matrix, _whole, _cube, _matrix))
def take_rows(
    value: Float32[np.ndarray, "head row number"],
    vector: Float32[np.ndarray, "row number"],
    rows: Int64[np.ndarray, " room"],
    seen: Float32[np.ndarray, "head token number"],
    base: Float32[np.ndarray, "room number"],
) -> None:
    """The string's own rows of the tables: of ``value`` those of its tokens, of ``vector`` in spare room, too."""
    numbers = base.shape[1]
    for token in range(len(base)):
        row = rows[token]
        for number in range(numbers):
            base[token, number] = vector[row, number]
    for head in range(len(seen)):
        for token in range(seen.shape[1]):
            row = rows[token]
            for number in range(numbers):
                seen[head, token, number] = value[head, row, number]


@compiled(void(_cube, int64, _matrix, _cube, _matrix, _whole, _matrix))
def own_numbers(
    sums: Float32[np.ndarray, "head row number"],
    begin: int,
    new: Float32[np.ndarray, "head flip"],
    value: Float32[np.ndarray, "head row number"],
    vector: Float32[np.ndarray, "row number"],
    flipped: Int64[np.ndarray, " flip"],
    own: Float32[np.ndarray, "flip number"],
) -> None:
    """What the flipped tokens themselves become: ``sums`` from row ``begin`` on are what others bring to them."""
    for flip in range(len(flipped)):
        row = flipped[flip]
        for number in range(own.shape[1]):
            own[flip, number] = vector[row, number]
        for head in range(len(sums)):
            share = new[head, flip]
            for number in range(own.shape[1]):
                own[flip, number] += sums[head, begin + flip, number] + share * value[head, row, number]


@njit(inline="always")  # type: ignore[untyped-decorator]
def _choose(ones: Any, bits: Any, lanes: Any, first: Any, old: Any, new: Any) -> None:
    """What the flip of each lane takes out, and what it puts in, of the values of both ``bits`` [bit, number_lane]."""
    zero, one = bits
    for at in range(0, len(old), lanes):
        for lane in range(lanes):
            a, b = zero[at + lane], one[at + lane]
            old[at + lane], new[at + lane] = (b, a) if ones[first + lane] else (a, b)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _take_shares(span: Any, shares: Any, group: Any, token: Any, out: Any) -> None:
    """The shares keep, out and put [head, three, token, lane] of a tile's tokens and one group's lanes."""
    lanes, to = span.lanes, 0
    for head in range(len(shares[0])):
        for share in shares:
            for row in range(token, token + span.tokens):
                store(out, to, load(span, share[head, row], group * lanes))
                to += lanes


@njit(inline="always")  # type: ignore[untyped-decorator]
def _mix(span: Any, base: Any, shares: Any, sums: Any, old: Any, new: Any, token: Any, out: Any) -> None:
    """All numbers of a tile's tokens in one group's lanes: base + keep U + out v + put v', summed over heads."""
    lanes, tile, (heads, room, numbers) = span.lanes, span.tokens * span.lanes, sums.shape
    flat_base, flat_sums = base.reshape(-1), sums.reshape(-1)
    for number in range(0, numbers, UNITS):
        x = spread_units(span, flat_base, token * numbers + number, numbers)
        share, some, value = 0, token * numbers + number, number * lanes
        for _ in range(heads):
            x = add_each(x, shares, share, lanes, flat_sums, some, numbers)
            x = add_loaded(x, shares, share + tile, lanes, old, value, lanes)
            x = add_loaded(x, shares, share + 2 * tile, lanes, new, value, lanes)
            share, some, value = share + 3 * tile, some + room * numbers, value + numbers * lanes
        store_tile(out, number * lanes, numbers * lanes, lanes, x)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _enter(
    span: Any, x: Any, step: Any, gain: Any, shift: Any, up_bias: Any, eps: Any, norm_first: Any, into: Any, at: Any
) -> None:
    """The numbers of a tile's tokens, ``step`` each, become their hidden units; they are centred.

    What the MLP sees of the tokens is written from ``at`` on.
    """
    lanes, width, z = span.lanes, len(gain), splat_column(span, _ONE)
    if norm_first:
        total = splat_column(span, _ZERO)
        for i in range(0, width * lanes, lanes):
            number = load_column(span, x, i, step)
            total = multiply_add(number, number, total)
        z = inverse_root(multiply_add(total, splat(z, _ONE / np.float32(width)), splat(z, eps)))
    for i in range(width):
        number = multiply(load_column(span, x, i * lanes, step), z)
        number = multiply_add(number, spread_column(span, gain, i, 0), spread_column(span, shift, i, 0))
        store_tile(into, at + i * lanes, width * lanes, 0, number)
    for unit in range(len(up_bias)):
        of = (width + unit) * lanes
        number = multiply_add(load_column(span, x, of, step), z, spread_column(span, up_bias, unit, 0))
        store_tile(x, of, step, 0, number)


_shares, _sums, _finish = types.UniTuple(_cube, 3), types.UniTuple(_cube, 2), types.UniTuple(_row, 7)
_tables = (_matrix, _shares, _sums, _cube, boolean[::1], _whole_matrix, _matrix, _matrix, int64)


@compiled_by_span(lambda span: void(span, _matrix, *_tables, _finish, _number, boolean, int64, int64, int64))
def first_layer(
    span: Span,
    states: Float32[np.ndarray, "group token_width_lane"],
    base: Float32[np.ndarray, "room number"],
    shares: Arrays,
    sums: Arrays,
    bits: Float32[np.ndarray, "group bit head_number_lane"],
    ones: Bool[np.ndarray, " group_lane"],
    rare: Int64[np.ndarray, "head token"],
    rare_keep: Float32[np.ndarray, "head token"],
    own: Float32[np.ndarray, "flip number"],
    offset: int,
    finish: Arrays,
    eps: float,
    norm_first: bool,
    begin: int,
    first: int,
    last: int,
) -> None:
    """The first layer's output at every token, for ``states`` first .. last - 1, which begin with group ``begin``.

    ``shares`` are keep, out and put [head, room, lane], ``sums`` all of them and those without a rare flip's key
    [head, room or more, number]: there is room for whole tiles of tokens. ``bits`` are the values of both bits at the
    position of each lane of the states, ``ones`` the lanes, of all, whose bit is 1 and becomes 0.
    """
    up_bias, down, down_bias, gain1, shift1, gain2, shift2 = finish
    (heads, _, numbers), tokens, lanes = sums[0].shape, rare.shape[1], span.lanes
    width, hidden = len(down_bias), len(up_bias)
    tile, active = np.zeros(span.tokens * numbers * lanes, np.float32), np.zeros(hidden, np.int64)
    some_shares = np.zeros(3 * heads * span.tokens * lanes, np.float32)
    old, new = np.zeros(heads * numbers * lanes, np.float32), np.zeros(heads * numbers * lanes, np.float32)
    for place in range(first, last):
        group, into = begin + place, states[place]
        _choose(ones, (bits[place, 0], bits[place, 1]), lanes, group * lanes, old, new)
        for start in range(0, tokens, span.tokens):
            _take_shares(span, shares, group, start, some_shares)
            _mix(span, base, some_shares, sums[0], old, new, start, tile)
            for token in range(start, min(start + span.tokens, tokens)):
                within = (token - start) * numbers * lanes
                x = tile[within : within + numbers * lanes]
                for head in range(heads):
                    flip = rare[head, token]
                    if flip >= 0 and flip // lanes == group:
                        some, factor = sums[1][head, token], rare_keep[head, token]
                        for number in range(numbers):
                            x[number * lanes + flip % lanes] += factor * some[number]
                flip = token - offset
                if 0 <= flip < len(own) and flip // lanes == group:
                    for number in range(numbers):
                        x[number * lanes + flip % lanes] = own[flip, number]
            at, step = start * width * lanes, numbers * lanes
            _enter(span, tile, step, gain1, shift1, up_bias, eps, norm_first, into, at)
            add_units(span, tile, width * lanes, step, hidden, down, down_bias, into, at, active)
            normalise(span, into, at, width, gain2, shift2, eps)
