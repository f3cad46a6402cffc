"""Truth tables of very many recognisers of few bits (Eqs 7-14), in float64, one random recogniser per lane.

A recogniser is made from its number: parameter p of draw i is random word i M + p (`random_words`), M being the number
of parameters. Parameters stand in the order key, query, value (each head by head, row by row), W1, phi1, W2,
phi2 for each layer, then w and omega.

In the first layer a position holds one of two vectors, or EOS, so that queries, keys, values and exponentials are
computed once for all strings. The last layer is computed at EOS only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64, int64, njit, types, uint64, void

from flipscope.native.compiled import compiled
from flipscope.native.random_words import word

LANES = 32  # recognisers side by side: eight registers of four numbers, and their activations stay in the cache
# A variance below this (at eps = 0), or softmax weights that all but vanish, lose digits: such a draw is given up.
SMALLEST_VARIANCE, SMALLEST_SUM = 1e-20, 1e-250

_LINES = float64[:, ::1]
_SHAPE = types.UniTuple(int64, 4)  # width, layers, heads, bits


@njit  # type: ignore[untyped-decorator]
def _parameters(seed: Any, first: Any, radius: Any, out: Any) -> None:
    """out[p, l] = parameter p of draw first + l, uniform in [-radius, radius)."""
    count, lanes = out.shape
    for p in range(count):
        row = out[p]
        for lane in range(lanes):
            place = (first + uint64(lane)) * uint64(count) + uint64(p + 1)
            row[lane] = radius * (float64(word(seed, place) >> uint64(11)) * 2.0**-52 - 1.0)


parameters = compiled(void(uint64, uint64, float64, _LINES))(_parameters.py_func)


@njit  # type: ignore[untyped-decorator]
def _product(matrix: Any, at: Any, x: Any, begin: Any, out: Any, place: Any, width: Any) -> None:
    """Add to `width` lines of out, from `place` on, those of a square matrix times the lines of x from `begin` on."""
    for i in range(width):
        sums = out[place + i]
        for j in range(0, width - 1, 2):
            a, b = matrix[at + i * width + j], matrix[at + i * width + j + 1]
            c, d = x[begin + j], x[begin + j + 1]
            for lane in range(LANES):
                sums[lane] += a[lane] * c[lane] + b[lane] * d[lane]
        if width % 2:
            a, c = matrix[at + i * width + width - 1], x[begin + width - 1]
            for lane in range(LANES):
                sums[lane] += a[lane] * c[lane]


@njit  # type: ignore[untyped-decorator]
def _fill(lines: Any, begin: Any, count: Any, number: Any) -> None:
    for i in range(count):
        line = lines[begin + i]
        for lane in range(LANES):
            line[lane] = number


@njit  # type: ignore[untyped-decorator]
def _finish(weights: Any, at: Any, mixed: Any, y: Any, begin: Any, fine: Any, eps: Any, width: Any) -> None:
    """Lines of y: from a layer's input there and what its heads bring, its output (Eqs 9-13); `at` is where W1 is.

    `fine` of a lane becomes 0 where a variance is too small.
    """
    square = width * width
    hidden = weights[at + square : at + square + width].copy()
    _product(weights, at, mixed, 0, hidden, 0, width)
    for i in range(width):
        line, own, bias = hidden[i], y[begin + i], weights[at + 2 * square + width + i]
        for lane in range(LANES):
            line[lane] = max(line[lane], 0.0)
            own[lane] += bias[lane]
    _product(weights, at + square + width, hidden, 0, y, begin, width)
    mean, variance, part = np.zeros(LANES), np.zeros(LANES), 1.0 / width
    for i in range(width):
        own = y[begin + i]
        for lane in range(LANES):
            mean[lane] += own[lane] * part
    for i in range(width):
        own = y[begin + i]
        for lane in range(LANES):
            own[lane] -= mean[lane]
            variance[lane] += own[lane] * own[lane] * part
    for lane in range(LANES):
        if eps == 0.0 and not variance[lane] >= SMALLEST_VARIANCE:
            fine[lane], variance[lane] = 0.0, 1.0
        variance[lane] = 1.0 / math.sqrt(variance[lane] + eps)
    for i in range(width):
        own = y[begin + i]
        for lane in range(LANES):
            own[lane] *= variance[lane]


@njit  # type: ignore[untyped-decorator]
def _softmax_powers(query: Any, of: Any, keys: Any, begin: Any, out: Any, place: Any, count: Any, width: Any) -> None:
    """Lines of out: exp(score - the largest score) of one query with each of `count` keys (Eqs 8a, 8b)."""
    _fill(out, place, count, 0.0)
    top = np.full(LANES, -math.inf)
    for m in range(count):
        line = out[place + m]
        for d in range(width):
            a, b = query[of + d], keys[begin + m * width + d]
            for lane in range(LANES):
                line[lane] += a[lane] * b[lane]
        for lane in range(LANES):
            top[lane] = max(top[lane], line[lane])
    for m in range(count):
        line = out[place + m]
        for lane in range(LANES):
            line[lane] = math.exp(line[lane] - top[lane])


@njit  # type: ignore[untyped-decorator]
def _mix(powers: Any, at: Any, values: Any, begin: Any, chosen: Any, width: Any, out: Any, fine: Any) -> None:
    """Add to out the values chosen, each weighted by its power over their sum (Eqs 8b, 8c).

    `fine` of a lane becomes 0 where the powers all but vanish, beside a larger one that was not chosen.
    """
    inverse, share = np.zeros(LANES), np.empty(LANES)
    for m in chosen:
        power = powers[at + m]
        for lane in range(LANES):
            inverse[lane] += power[lane]
    for lane in range(LANES):
        if not inverse[lane] >= SMALLEST_SUM:
            fine[lane], inverse[lane] = 0.0, 1.0
        inverse[lane] = 1.0 / inverse[lane]
    for m in chosen:
        power = powers[at + m]
        for lane in range(LANES):
            share[lane] = power[lane] * inverse[lane]
        for d in range(width):
            sums, value = out[d], values[begin + m * width + d]
            for lane in range(LANES):
                sums[lane] += share[lane] * value[lane]


@njit  # type: ignore[untyped-decorator]
def _project(weights: Any, at: Any, x: Any, count: Any, out: Any, width: Any, heads: Any) -> None:
    """out[0], out[1], out[2]: keys, queries, values of `count` vectors, head by head (Eq 8)."""
    for part in range(3):
        lines = out[part]
        _fill(lines, 0, heads * count * width, 0.0)
        for h in range(heads):
            matrix = at + (part * heads + h) * width * width
            for v in range(count):
                _product(weights, matrix, x, v * width, lines, (h * count + v) * width, width)


@njit  # type: ignore[untyped-decorator]
def _first_layer(
    weights: Any, projected: Any, powers: Any, inputs: Any, chosen: Any, row: Any, shape: Any, eps: Any, out: Any,
    fine: Any,
) -> None:  # fmt: skip
    """The first layer's output at one position of the string that has the vectors chosen."""
    width, _, heads, bits = shape
    kinds, own = 2 * bits + 1, chosen[row]
    mixed = np.zeros((width, LANES))
    for h in range(heads):
        place = h * kinds
        _mix(powers, (place + own) * kinds, projected[2], place * width, chosen, width, mixed, fine)
    out[row * width : (row + 1) * width] = inputs[own * width : (own + 1) * width]
    _finish(weights, 3 * heads * width * width, mixed, out, row * width, fine, eps, width)


@njit  # type: ignore[untyped-decorator]
def _middle_layer(weights: Any, at: Any, y: Any, shape: Any, eps: Any, fine: Any) -> None:
    """y, the output of the layer before at every position, becomes that of this layer."""
    width, _, heads, bits = shape
    tokens = bits + 1
    projected, powers = np.empty((3, heads * tokens * width, LANES)), np.empty((tokens, LANES))
    _project(weights, at, y, tokens, projected, width, heads)
    everyone = np.arange(tokens)
    for row in range(tokens):
        mixed = np.zeros((width, LANES))
        for h in range(heads):
            begin = h * tokens * width
            _softmax_powers(projected[1], begin + row * width, projected[0], begin, powers, 0, tokens, width)
            _mix(powers, 0, projected[2], begin, everyone, width, mixed, fine)
        _finish(weights, at + 3 * heads * width * width, mixed, y, row * width, fine, eps, width)


@njit  # type: ignore[untyped-decorator]
def _last_layer(weights: Any, at: Any, y: Any, shape: Any, eps: Any, fine: Any) -> None:
    """y at EOS becomes this layer's output there: (K y)^T q is y^T (K^T q), the mean of V y is V times that of y."""
    width, _, heads, bits = shape
    tokens, square = bits + 1, width * width
    powers, everyone = np.empty((tokens, LANES)), np.arange(tokens)
    mixed = np.zeros((width, LANES))
    for h in range(heads):
        query, turned, mean = np.zeros((width, LANES)), np.zeros((width, LANES)), np.zeros((width, LANES))
        _product(weights, at + (heads + h) * square, y, bits * width, query, 0, width)
        for j in range(width):
            sums = turned[j]
            for i in range(width):
                k, q = weights[at + h * square + i * width + j], query[i]
                for lane in range(LANES):
                    sums[lane] += k[lane] * q[lane]
        _softmax_powers(turned, 0, y, 0, powers, 0, tokens, width)
        _mix(powers, 0, y, 0, everyone, width, mean, fine)
        _product(weights, at + (2 * heads + h) * square, mean, 0, mixed, 0, width)
    _finish(weights, at + 3 * heads * square, mixed, y, bits * width, fine, eps, width)


@njit  # type: ignore[untyped-decorator]
def _all_logits(weights: Any, inputs: Any, shape: Any, eps: Any, logits: Any, fine: Any) -> None:
    """logits[string, lane] of recognisers with these weights (Eq 14); `fine` is 0 in lanes that are given up."""
    width, layers, heads, bits = shape
    kinds, tokens = 2 * bits + 1, bits + 1
    per_layer = (3 * heads + 2) * width * width + 2 * width
    projected = np.empty((3, heads * kinds * width, LANES))
    powers = np.empty((heads * kinds * kinds, LANES))
    y = np.empty((tokens * width, LANES))
    chosen = np.empty(tokens, np.int64)
    _project(weights, 0, inputs, kinds, projected, width, heads)
    for h in range(heads):
        for v in range(kinds):
            begin = h * kinds * width
            place = (h * kinds + v) * kinds
            _softmax_powers(projected[1], begin + v * width, projected[0], begin, powers, place, kinds, width)
    for string in range(1 << bits):
        for n in range(bits):
            chosen[n] = 2 * n + ((string >> n) & 1)
        chosen[bits] = kinds - 1
        for row in range(bits if layers == 1 else 0, tokens):
            _first_layer(weights, projected, powers, inputs, chosen, row, shape, eps, y, fine)
        for layer in range(1, layers - 1):
            _middle_layer(weights, layer * per_layer, y, shape, eps, fine)
        if layers > 1:
            _last_layer(weights, (layers - 1) * per_layer, y, shape, eps, fine)
        logit = logits[string]
        logit[:] = weights[layers * per_layer + width]
        for d in range(width):
            own, w = y[bits * width + d], weights[layers * per_layer + d]
            for lane in range(LANES):
                logit[lane] += w[lane] * own[lane]


@compiled(void(uint64, int64, float64, _SHAPE, float64, _LINES, uint64[::1], float64[::1], _LINES))
def truth_tables(
    seed: Any, first: Any, radius: Any, shape: Any, eps: Any, symbols: Any, tables: Any, margins: Any, kept: Any
) -> None:
    """The truth table of each recogniser from number `first` on, and its smallest |logit|; NaN where it is given up.

    Given up is a recogniser of which a step lost digits, far more than rounding: it has to be asked in another way.

    symbols: the vectors of 0 and of 1 at each position in turn, then that of EOS, positions included.
    kept[draw, string] is filled with logits, as many rows as it has.
    """
    width, layers, heads, bits = shape
    count = layers * ((3 * heads + 2) * width * width + 2 * width) + width + 1
    weights, logits = np.empty((count, LANES)), np.empty((1 << bits, LANES))
    inputs = np.empty((symbols.size, LANES))
    for place, number in enumerate(symbols.flat):
        inputs[place] = number
    fine = np.empty(LANES)
    for start in range(0, len(tables), LANES):
        _parameters(seed, uint64(first + start), radius, weights)
        fine[:] = 1.0
        _all_logits(weights, inputs, shape, eps, logits, fine)
        for lane in range(min(LANES, len(tables) - start)):
            word, smallest = uint64(0), math.inf
            for string in range(1 << bits):
                logit = logits[string, lane]
                word |= uint64(logit > 0) << uint64(string)
                smallest = min(smallest, abs(logit))
                if start + lane < len(kept):
                    kept[start + lane, string] = logit
            tables[start + lane] = word
            margins[start + lane] = smallest if fine[lane] == 1.0 else math.nan
