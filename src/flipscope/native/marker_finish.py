"""What follows attention in one layer with its norms first: for very many strings, without gradients, in float32.

    y = x + O mixed,   logits = H N'(y + D act(U N(y)))

for the marker's vector x, the same of every string, and layer norms N and N'. Strings stand side by side in a vector, a
block of them in a room that stays in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32
from numba import float32, int64, njit, void

from flipscope.native.activations import gelu, gelu_tanh, rectified
from flipscope.native.products import LINE, first_line, product, round_up, take, turn
from flipscope.native.simd import (
    UNITS,
    add,
    inverse_root,
    load,
    load_units,
    multiply,
    multiply_add,
    one_token,
    splat,
    spread,
    spread_units,
    store,
    store_tile,
    subtract,
)
from flipscope.native.span import Span, compiled_by_span

_row, _number = float32[::1], float32
_ZERO, _ONE = np.float32(0), np.float32(1)
_STRINGS = 64  # of a block


@njit(inline="always")  # type: ignore[untyped-decorator]
def _normalise(span: Any, room: Any, y: Any, step: Any, width: Any, eps: Any, rows: Any, out: Any) -> None:
    """y becomes y + step + shift, and out its layer norm (Eqs 11-13), for rows shift, gain and bias."""
    share, shift, gain, bias = splat(span, _ONE / np.float32(width)), rows, rows + width, rows + 2 * width
    for lane in range(0, _STRINGS, span.lanes):
        total = splat(span, _ZERO)
        for w in range(width):
            at = w * _STRINGS + lane
            number = add(load(span, room, y + at), add(load(span, room, step + at), spread(span, room, shift + w)))
            store(room, y + at, number)
            total = add(total, number)
        mean, squares = multiply(total, share), splat(span, _ZERO)
        for w in range(width):
            number = subtract(load(span, room, y + w * _STRINGS + lane), mean)
            squares = multiply_add(number, number, squares)
        factor = inverse_root(multiply_add(squares, share, splat(span, eps)))
        for w in range(width):
            at = w * _STRINGS + lane
            number = multiply(subtract(load(span, room, y + at), mean), factor)
            number = multiply_add(number, spread(span, room, gain + w), spread(span, room, bias + w))
            store(room, out + at, number)


@njit(inline="always")  # type: ignore[untyped-decorator]
def _activate(span: Any, room: Any, hidden: Any, units: Any, bias: Any, kind: Any) -> None:
    """act(hidden + bias), a few units at a time: one power alone would wait for each of its steps."""
    of = one_token(span)
    for unit in range(0, units, UNITS):
        shift = spread_units(of, room, bias + unit, 0)
        for at in range(hidden + unit * _STRINGS, hidden + (unit + 1) * _STRINGS, span.lanes):
            x = add(load_units(of, room, at, 0, _STRINGS), shift)
            if kind == 0:
                x = rectified(x)
            elif kind == 1:
                x = gelu(x)
            else:
                x = gelu_tanh(x)
            store_tile(room, at, 0, _STRINGS, x)


@compiled_by_span(lambda span: [void(span, *[_row] * 8, *[int64] * 5, _number, _row, int64, int64)])
def finish(
    span: Span,
    mixed: Float32[np.ndarray, " string_inner"],
    joined: Float32[np.ndarray, " width_inner"],
    up: Float32[np.ndarray, " hidden_width"],
    up_bias: Float32[np.ndarray, " hidden"],
    down: Float32[np.ndarray, " width_hidden"],
    head: Float32[np.ndarray, " output_width"],
    head_bias: Float32[np.ndarray, " output"],
    vectors: Float32[np.ndarray, " vector_width"],
    inner: int,
    width: int,
    hidden: int,
    outputs: int,
    activation: int,
    eps: float,
    logits: Float32[np.ndarray, " string_output"],
    first: int,
    last: int,
) -> None:
    """The logits of strings first .. last - 1.

    ``joined`` is O; ``vectors`` are x and O's bias together, the first norm's gain and bias, the bias of D, the last
    norm's gain and bias; ``activation`` counts in `activations.KINDS`.
    """
    deep, wide, long = round_up(inner, LINE), round_up(width, LINE), round_up(hidden, LINE)
    most = max(deep, wide)
    given, turned, y, step, units = 0, _STRINGS * most, 2 * _STRINGS * most, 3 * _STRINGS * most, 4 * _STRINGS * most
    of_joined = units + long * _STRINGS
    of_up = of_joined + wide * deep
    of_down = of_up + long * wide
    of_head = of_down + wide * long
    rows = of_head + round_up(outputs, UNITS) * wide
    biases = rows + 6 * width
    answers = biases + long
    room = np.zeros(answers + round_up(outputs, UNITS) * _STRINGS + LINE, np.float32)
    room = room[first_line(room) :]
    take(joined, 0, inner, width, inner, _ONE, room, of_joined, deep)
    take(up, 0, width, hidden, width, _ONE, room, of_up, wide)
    take(down, 0, hidden, width, hidden, _ONE, room, of_down, long)
    take(head, 0, width, outputs, width, _ONE, room, of_head, wide)
    take(vectors, 0, width, 6, width, _ONE, room, rows, width)
    take(up_bias, 0, hidden, 1, hidden, _ONE, room, biases, hidden)
    for begin in range(first, last, _STRINGS):
        count = min(_STRINGS, last - begin)
        take(mixed, begin * inner, inner, count, inner, _ONE, room, given, deep)
        turn(room, given, deep, _STRINGS, turned, _STRINGS)
        room[y : y + width * _STRINGS] = _ZERO
        product(span, room, of_joined, deep, 1, turned, _STRINGS, inner, width, step)
        _normalise(span, room, y, step, width, eps, rows, turned)
        product(span, room, of_up, wide, 1, turned, _STRINGS, width, hidden, units)
        _activate(span, room, units, hidden, biases, activation)
        product(span, room, of_down, long, 1, units, _STRINGS, hidden, width, step)
        _normalise(span, room, y, step, width, eps, rows + 3 * width, turned)
        product(span, room, of_head, wide, 1, turned, _STRINGS, width, outputs, answers)
        for string in range(count):
            for k in range(outputs):
                logits[(begin + string) * outputs + k] = room[answers + k * _STRINGS + string] + head_bias[k]
