"""Compiled loops of the first layer from tables, for narrow models: eight flips at once, one a lane (first_layer).

What attention brings to a token under a flip is a mixture of few vectors, and so is the MLP's first matrix times it
(mixed_rows): both stand in one list of ``numbers``, the token's own coordinates first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from numba import boolean, float32, int64, njit, types, void

from flipscope.cube.compiled import compiled
from flipscope.probes.lane_kernels import add_units, normalise
from flipscope.probes.simd import (
    LANES,
    inverse_root,
    load,
    multiply,
    multiply_add,
    power_of_two,
    splat,
    spread,
    store,
)

TILE = 8  # numbers of a mixture that are held in registers together

_cube, _matrix, _row, _number = float32[:, :, ::1], float32[:, ::1], float32[::1], float32
_whole_matrix, _whole = int64[:, ::1], int64[::1]
Arrays = tuple[np.ndarray, ...]
_ZERO, _ONE, _TWO, _NEVER = np.float32(0), np.float32(1), np.float32(2), np.float32(-np.inf)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _powers(x: Any, top: Any, out: Any, into: Any) -> Any:
    """``out`` and ``into`` become 2^(x - top); the sum of these."""
    for j in range(len(x)):
        out[j] = x[j] - top
    for at in range(0, len(out), LANES):
        store(out, at, power_of_two(load(out, at)))
    total = _ZERO
    for j in range(len(x)):
        into[j] = out[j]
        total += out[j]
    return total


@compiled(void(_cube, _whole, _whole, int64, types.UniTuple(_cube, 5), _whole_matrix, _matrix, int64, int64))
def first_shares(
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
    tokens, lanes, flips = keep.shape[1], keep.shape[2], len(flipped)
    seen, change = np.zeros(tokens, np.float32), np.zeros(lanes, np.float32)
    filled = (tokens + LANES - 1) // LANES * LANES
    old, others = np.zeros(filled, np.float32), np.zeros(filled, np.float32)
    for head in range(first, last):
        for token in range(tokens):
            line = scores[head, rows[token]]
            kept, taken, given = keep[head, token], out[head, token], put[head, token]
            top, where = _NEVER, 0
            for j in range(tokens):
                seen[j] = line[rows[j]]
                if seen[j] > top:
                    top, where = seen[j], j
            total = _powers(seen, top, old, weights[head, token])
            for i in range(flips):
                change[i] = -abs(line[flipped[i]] - top)
            for at in range(0, lanes, LANES):
                store(change, at, power_of_two(load(change, at)))
            for i in range(flips):
                fell, before = line[flipped[i]] <= top, old[offset + i]
                shrink, grow = (_ONE, change[i]) if fell else (change[i], _ONE)
                share = _ONE / (shrink * (total - before) + grow)
                kept[i], taken[i], given[i] = shrink * share, -shrink * before * share, grow * share
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
                total = _powers(seen, top, others, rest[head, token]) - others[where]
                rest[head, token, where] = _ZERO
                new = line[flipped[flip]]
                both = max(top, new)
                shrink, grow = np.exp2(top - both), np.exp2(new - both)
                share = _ONE / (shrink * total + grow)
                rare_keep[head, token] = shrink * share
                kept[flip], taken[flip], given[flip] = _ZERO, _ZERO, grow * share


@compiled(void(_cube, _whole, _whole, int64, _cube, _matrix, int64, int64))
def own_shares(
    scores: Float32[np.ndarray, "head row row"],
    rows: Int64[np.ndarray, " token"],
    flipped: Int64[np.ndarray, " flip"],
    offset: int,
    weights: Float32[np.ndarray, "head flip token"],
    new: Float32[np.ndarray, "head flip"],
    first: int,
    last: int,
) -> None:
    """The flipped token's own weights: on the other tokens, and on its ``new`` self."""
    tokens = len(rows)
    seen, powers = np.zeros(tokens, np.float32), np.zeros((tokens + LANES - 1) // LANES * LANES, np.float32)
    for head in range(first, last):
        for flip in range(len(flipped)):
            line, own = scores[head, flipped[flip]], weights[head, flip]
            top = _NEVER
            for j in range(tokens):
                seen[j] = line[rows[j]]
            seen[offset + flip] = line[flipped[flip]]
            for j in range(tokens):
                top = max(top, seen[j])
            total = _powers(seen, top, powers, own)
            for j in range(tokens):
                own[j] /= total
            new[head, flip] = own[offset + flip]
            own[offset + flip] = _ZERO


@njit(inline="always")  # type: ignore[untyped-decorator]
def _mix_tile(
    base: Any, number: Any, keep: Any, out: Any, put: Any, sums: Any, old: Any, new: Any, group: Any, token: Any, x: Any
) -> None:
    """Eight numbers of a token in one group's lanes: base + keep U + out v + put v', summed over heads."""
    a, b, c, d = spread(base, number), spread(base, number + 1), spread(base, number + 2), spread(base, number + 3)
    e, f = spread(base, number + 4), spread(base, number + 5)
    g, h = spread(base, number + 6), spread(base, number + 7)
    for head in range(len(sums)):
        kept, some = load(keep[head, token], group * LANES), sums[head, token]
        a, b = multiply_add(kept, spread(some, number), a), multiply_add(kept, spread(some, number + 1), b)
        c, d = multiply_add(kept, spread(some, number + 2), c), multiply_add(kept, spread(some, number + 3), d)
        e, f = multiply_add(kept, spread(some, number + 4), e), multiply_add(kept, spread(some, number + 5), f)
        g, h = multiply_add(kept, spread(some, number + 6), g), multiply_add(kept, spread(some, number + 7), h)
        for part in range(2):
            if part == 0:
                share, values = load(out[head, token], group * LANES), old[group, head]
            else:
                share, values = load(put[head, token], group * LANES), new[group, head]
            at = number * LANES
            a, b = multiply_add(share, load(values, at), a), multiply_add(share, load(values, at + LANES), b)
            at += 2 * LANES
            c, d = multiply_add(share, load(values, at), c), multiply_add(share, load(values, at + LANES), d)
            at += 2 * LANES
            e, f = multiply_add(share, load(values, at), e), multiply_add(share, load(values, at + LANES), f)
            at += 2 * LANES
            g, h = multiply_add(share, load(values, at), g), multiply_add(share, load(values, at + LANES), h)
    at = number * LANES
    store(x, at, a)
    store(x, at + LANES, b)
    store(x, at + 2 * LANES, c)
    store(x, at + 3 * LANES, d)
    store(x, at + 4 * LANES, e)
    store(x, at + 5 * LANES, f)
    store(x, at + 6 * LANES, g)
    store(x, at + 7 * LANES, h)


_mixed, _finish = types.UniTuple(_cube, 7), types.UniTuple(_row, 7)


@compiled(
    void(
        _matrix, _matrix, _mixed, _whole_matrix, _matrix, _matrix, int64, _finish, _number, boolean, int64, int64, int64
    )
)
def first_layer(
    states: Float32[np.ndarray, "group token_width_lane"],
    base: Float32[np.ndarray, "token number"],
    mixed: Arrays,
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

    ``mixed`` are the shares keep, out and put [head, token, lane], the sums and those without a rare flip's key
    [head, token, number], and the values that a lane's flip takes out and puts in [group, head, number_lane].
    """
    keep, out, put, sums, rest_sums, old, new = mixed
    up_bias, down, down_bias, gain1, shift1, gain2, shift2 = finish
    heads, tokens, numbers = sums.shape
    flips, width, hidden = len(own), len(down_bias), len(up_bias)
    x, active = np.zeros(numbers * LANES, np.float32), np.zeros(hidden, np.int64)
    share = splat(_ONE / np.float32(width))
    for place in range(first, last):
        group, into = begin + place, states[place]
        for token in range(tokens):
            for number in range(0, numbers, TILE):
                _mix_tile(base[token], number, keep, out, put, sums, old, new, group, token, x)
            for head in range(heads):
                flip = rare[head, token]
                if flip >= 0 and flip // LANES == group:
                    some, factor = rest_sums[head, token], rare_keep[head, token]
                    for number in range(numbers):
                        x[number * LANES + flip % LANES] += factor * some[number]
            flip = token - offset
            if 0 <= flip < flips and flip // LANES == group:
                for number in range(numbers):
                    x[number * LANES + flip % LANES] = own[flip, number]
            at, z = token * width * LANES, splat(_ONE)
            if norm_first:
                total = splat(_ZERO)
                for i in range(0, width * LANES, LANES):
                    total = multiply_add(load(x, i), load(x, i), total)
                z = inverse_root(multiply_add(total, share, splat(eps)))
            for i in range(width):
                normal = multiply_add(multiply(load(x, i * LANES), z), spread(gain1, i), spread(shift1, i))
                store(into, at + i * LANES, normal)
            for unit in range(hidden):
                of = (width + unit) * LANES
                store(x, of, multiply_add(load(x, of), z, spread(up_bias, unit)))
            add_units(x, width * LANES, hidden, down, down_bias, into, at, active)
            normalise(into, at, width, gain2, shift2, eps)
