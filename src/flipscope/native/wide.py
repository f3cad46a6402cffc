"""The fast path's compiled loops in float32: attention, norms, and the first layer's mixtures.

Matrix products are left to PyTorch; what stands between them is done here in one pass each, in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numba import boolean, float32, int64, void

from flipscope.native.compiled import compiled
from flipscope.native.powers import power_of_two
from flipscope.native.simd import (
    BLOCK,
    add,
    add_spread,
    block_rows,
    divide,
    eights,
    keys_of,
    larger,
    load,
    load_column,
    multiply_add,
    splat,
    splat_column,
    splat_keys,
    spread,
    spread_keys,
    store,
    store_tile,
    subtract,
    times_column,
)
from flipscope.native.span import Span, compiled_by_span

TILE = 32  # numbers of a mixture that are held in registers together
_EIGHT = 8
_FLIPS = 16  # flips whose parts of a tile stay in the innermost cache

_blocks, _matrix, _row, _number = float32[:, :, ::1], float32[:, ::1], float32[::1], float32
_SUMS: Any = {"reassoc", "contract", "nsz"}  # sums may be reordered; infinity and NaN stay what they are
_ZERO, _ONE, _NEVER = np.float32(0), np.float32(1), np.float32(-np.inf)


@compiled_by_span(lambda span: [void(span, _row, _row, _row, _row, int64)])
def _scores(
    span: Span,
    block: Float32[np.ndarray, " size_row"],
    keys: Float32[np.ndarray, " group_size_key"],
    shift: Float32[np.ndarray, " key"],
    scores: Float32[np.ndarray, " key_row"],
    size: int,
) -> None:
    """Attention logits (Eq 8a) of a block of rows with all keys, and ``shift`` of each key."""
    of, lanes, together, at = block_rows(span), span.lanes, keys_of(span.lanes), 0
    for j in range(0, len(shift), together):
        sums = spread_keys(of, shift, j, 0)
        for d in range(size):
            sums = add_spread(sums, block, d * BLOCK, lanes, keys, at)
            at += together
        store_tile(scores, j * BLOCK, lanes, BLOCK, sums)


@compiled_by_span(lambda span: [void(span, _row, int64, _row)])
def _exponentials(
    span: Span, scores: Float32[np.ndarray, " key_row"], tokens: int, share: Float32[np.ndarray, " row"]
) -> None:
    """Scores become the softmax's numerators (Eq 8b), ``share`` one over their sum."""
    of, lanes = block_rows(span), span.lanes
    top = splat_column(of, _NEVER)
    for at in range(0, tokens * BLOCK, BLOCK):
        top = larger(load_column(of, scores, at, lanes), top)
    total = splat(top, _ZERO)
    for at in range(0, tokens * BLOCK, BLOCK):
        p = power_of_two(subtract(load_column(of, scores, at, lanes), top))
        total = add(total, p)
        store_tile(scores, at, lanes, 0, p)
    store_tile(share, 0, lanes, 0, divide(splat(total, _ONE), total))


@compiled_by_span(lambda span: [void(span, _row, _row, _row, int64, _row)])
def _averages(
    span: Span,
    scores: Float32[np.ndarray, " key_row"],
    share: Float32[np.ndarray, " row"],
    values: Float32[np.ndarray, " key_size"],
    tokens: int,
    result: Float32[np.ndarray, " size_row"],
) -> None:
    """The block's weighted sums of the values (Eq 8c)."""
    of, lanes, wide = block_rows(span), span.lanes, len(values) // tokens
    shares = load_column(of, share, 0, lanes)
    for d in range(0, wide, keys_of(span.lanes)):
        sums, at = splat_keys(of, _ZERO), d
        for j in range(0, tokens * BLOCK, BLOCK):
            sums = add_spread(sums, scores, j, lanes, values, at)
            at += wide
        store_tile(result, d * BLOCK, lanes, BLOCK, times_column(sums, shares))


@compiled_by_span(lambda span: [void(span, _matrix, _matrix, _row, _matrix, int64, int64, int64, int64)])
def softmax_attention(
    span: Span,
    query: Float32[np.ndarray, "inner row"],
    key_value: Float32[np.ndarray, "row two_inner"],
    query_bias: Float32[np.ndarray, " inner"],
    out: Float32[np.ndarray, "inner row"],
    tokens: int,
    heads: int,
    first: int,
    last: int,
) -> None:
    """Attention (Eqs 8a-8c) of strings first .. last - 1, each of which has ``tokens`` rows, at least BLOCK.

    Queries and results stand in columns, so that a block of queries is a row of numbers; scores are computed for a
    block with all keys, and stay in the cache until their values are added up. Queries are scaled already, such that
    weights are powers of two.
    """
    of, lanes, together = block_rows(span), span.lanes, keys_of(span.lanes)
    inner, across = query.shape
    size = inner // heads
    flat_query, flat_out = query.reshape(-1), out.reshape(-1)
    filled, wide = -(-tokens // together) * together, -(-size // together) * together
    scores, shift = np.zeros(filled * BLOCK, np.float32), np.zeros(filled, np.float32)
    keys, values = np.zeros(filled * size, np.float32), np.zeros(tokens * wide, np.float32)
    block, result = np.zeros(size * BLOCK, np.float32), np.zeros(wide * BLOCK, np.float32)
    share = np.zeros(BLOCK, np.float32)
    for string in range(first, last):
        for head in range(heads):
            left = head * size
            # Copied: rows that are a power of two apart would compete for a few places of the cache.
            for j in range(tokens):
                row = key_value[string * tokens + j]
                at = j // together * together * size + j % together
                total = _ZERO
                for d in range(size):
                    total += query_bias[left + d] * row[left + d]
                    keys[at + d * together] = row[left + d]
                    values[j * wide + d] = row[inner + left + d]
                shift[j] = total
            for begin in range(0, tokens, BLOCK):
                # The last block ends with the last row and computes some rows again.
                column = string * tokens + min(begin, tokens - BLOCK)
                for d in range(size):
                    at = (left + d) * across + column
                    store_tile(block, d * BLOCK, lanes, 0, load_column(of, flat_query, at, lanes))
                _scores(span, block, keys, shift, scores, size)
                _exponentials(span, scores, tokens, share)
                _averages(span, scores, share, values, tokens, result)
                for d in range(size):
                    at = (left + d) * across + column
                    store_tile(flat_out, at, lanes, 0, load_column(of, result, d * BLOCK, lanes))


@compiled(void(_matrix, _matrix, _row, _row, _row, _number), fastmath=_SUMS)
def add_and_normalise(
    x: Float32[np.ndarray, "row width"],
    step: Float32[np.ndarray, "row width"],
    step_bias: Float32[np.ndarray, " width"],
    gain: Float32[np.ndarray, " width"],
    bias: Float32[np.ndarray, " width"],
    eps: float,
) -> None:
    """x becomes the layer norm of x + step + step_bias (Eqs 11-13), in place.

    The mean is corrected by the mean of what is left, so that equal numbers become exactly zero.
    """
    rows, width = x.shape
    for i in range(rows):
        row, change = x[i], step[i]
        total = _ZERO
        for j in range(width):
            number = row[j] + (change[j] + step_bias[j])
            row[j] = number
            total += number
        mean = total / np.float32(width)
        left, total = _ZERO, _ZERO
        for j in range(width):
            number = row[j] - mean
            left += number
            total += number * number
        left /= np.float32(width)
        variance = total / np.float32(width) - left * left
        variance = (_ZERO if variance < _ZERO else variance) + eps
        z = np.sqrt(variance) / variance  # NaN where the variance has overflowed
        mean += left
        for j in range(width):
            row[j] = (row[j] - mean) * z * gain[j] + bias[j]


@compiled(void(_matrix, _row))
def rectify(x: Float32[np.ndarray, "row width"], bias: Float32[np.ndarray, " width"]) -> None:
    """x becomes the positive part of x + bias, in place; NaN stays NaN."""
    rows, width = x.shape
    for i in range(rows):
        row = x[i]
        for j in range(width):
            number = row[j] + bias[j]
            row[j] = _ZERO if number < _ZERO else number


@compiled(void(_matrix, _blocks, _blocks, _blocks, boolean[:, :, ::1], int64[::1], int64[::1], int64, int64, _matrix))
def mixtures(
    base: Float32[np.ndarray, "token number"],
    sums: Float32[np.ndarray, "tile part tile_size"],
    values: Float32[np.ndarray, "tile part tile_size"],
    shares: Float32[np.ndarray, "token flip three_heads"],
    dominated: Bool[np.ndarray, "token flip head"],
    old: Int64[np.ndarray, " flip"],
    new: Int64[np.ndarray, " flip"],
    first: int,
    last: int,
    out: Float32[np.ndarray, "pair number"],
) -> None:
    """For tokens first .. last - 1 under each flip: base + keep U + out v + in v', summed over heads (first_layer).

    ``sums`` holds the sums of each token and head, then those without the dominating key; ``values`` those of the
    tables, of which ``old`` and ``new`` are the rows that a flip takes out and puts in. Numbers come in tiles.
    """
    of, (tokens, flips, heads) = eights(), dominated.shape
    size = base.shape[1]
    flat_base, flat_out, flat_shares = base.reshape(-1), out.reshape(-1), shares.reshape(-1)
    for tile in range(size // TILE):
        some_sums, some_values = sums[tile].reshape(-1), values[tile].reshape(-1)
        for begin in range(0, flips, _FLIPS):
            for token in range(first, last):
                for flip in range(begin, min(begin + _FLIPS, flips)):
                    share = (token * flips + flip) * 3 * heads
                    at = token * size + tile * TILE
                    a, b = load(of, flat_base, at), load(of, flat_base, at + _EIGHT)
                    c, d = load(of, flat_base, at + 2 * _EIGHT), load(of, flat_base, at + 3 * _EIGHT)
                    for head in range(heads):
                        at = ((token + tokens * dominated[token, flip, head]) * heads + head) * TILE
                        x = spread(of, flat_shares, share + head)
                        a = multiply_add(x, load(of, some_sums, at), a)
                        b = multiply_add(x, load(of, some_sums, at + _EIGHT), b)
                        c = multiply_add(x, load(of, some_sums, at + 2 * _EIGHT), c)
                        d = multiply_add(x, load(of, some_sums, at + 3 * _EIGHT), d)
                        at = (old[flip] * heads + head) * TILE
                        x = spread(of, flat_shares, share + heads + head)
                        a = multiply_add(x, load(of, some_values, at), a)
                        b = multiply_add(x, load(of, some_values, at + _EIGHT), b)
                        c = multiply_add(x, load(of, some_values, at + 2 * _EIGHT), c)
                        d = multiply_add(x, load(of, some_values, at + 3 * _EIGHT), d)
                        at = (new[flip] * heads + head) * TILE
                        x = spread(of, flat_shares, share + 2 * heads + head)
                        a = multiply_add(x, load(of, some_values, at), a)
                        b = multiply_add(x, load(of, some_values, at + _EIGHT), b)
                        c = multiply_add(x, load(of, some_values, at + 2 * _EIGHT), c)
                        d = multiply_add(x, load(of, some_values, at + 3 * _EIGHT), d)
                    at = ((token - first) * flips + flip) * size + tile * TILE
                    store(flat_out, at, a)
                    store(flat_out, at + _EIGHT, b)
                    store(flat_out, at + 2 * _EIGHT, c)
                    store(flat_out, at + 3 * _EIGHT, d)


@compiled(void(_matrix, _row, _row, _number, _row), fastmath=_SUMS)
def normalise(
    x: Float32[np.ndarray, "row width"],
    gain: Float32[np.ndarray, " width"],
    bias: Float32[np.ndarray, " width"],
    eps: float,
    z: Float32[np.ndarray, " row"],
) -> None:
    """x, whose rows have mean zero, becomes its layer norm, in place; z becomes that of Eq 12."""
    rows, width = x.shape
    for i in range(rows):
        row = x[i]
        total = _ZERO
        for j in range(width):
            total += row[j] * row[j]
        variance = total / np.float32(width) + eps
        factor = np.sqrt(variance) / variance  # NaN where the variance has overflowed
        z[i] = factor
        for j in range(width):
            row[j] = row[j] * factor * gain[j] + bias[j]


@compiled(void(_matrix, _row, _row, boolean))
def scale_and_rectify(
    x: Float32[np.ndarray, "row number"],
    z: Float32[np.ndarray, " row"],
    bias: Float32[np.ndarray, " number"],
    rectified: bool,
) -> None:
    """x becomes z x + bias row by row, or the positive part of it, in place; NaN stays NaN."""
    rows, width = x.shape
    for i in range(rows):
        row, factor = x[i], z[i]
        for j in range(width):
            number = row[j] * factor + bias[j]
            row[j] = _ZERO if rectified and number < _ZERO else number
