"""Powers of two of vectors and tiles of float32 numbers, to float32's rounding: what softmax and GELU are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import int64, njit
from numba.extending import intrinsic

from flipscope.native.simd import (
    Array,
    Tile,
    abreast,
    add,
    call,
    each,
    floats,
    integers,
    joined,
    larger,
    multiply_add,
    pinned,
    splat,
    subtract,
    vectors_of,
)

LOG2_E = math.log2(math.e)  # what turns logarithms into those to base 2
_ROUNDER = np.float32(1.5 * 2**23)  # adding it rounds to an integer, which the lowest bits then hold
_LOWEST = np.float32(-125.0)  # 2^-125 is no subnormal number, nor is 2^-0.5 times it
# 2^f = 1 + f P(f) for |f| <= 1/2, to 8e-8 before rounding: P is the best of its degree, which is one step less than
# what would be lost in rounding.
_P4, _P3, _P2 = np.float32(1.32746334e-3), np.float32(9.67196168e-3), np.float32(5.55067837e-2)
_P1, _P0 = np.float32(0.240222353), np.float32(0.693147062)
_P = (_P4, _P3, _P2, _P1, _P0)
_ONE = np.float32(1.0)


def _times_power_of_one(builder: Any, lanes: int, a: Any, shifted: Any) -> Any:
    a, n = (builder.bitcast(argument, integers(lanes)) for argument in (a, shifted))
    shift = ir.Constant(integers(lanes), [23] * lanes)
    return builder.bitcast(builder.add(a, builder.shl(n, shift)), floats(lanes))


# a * 2^n from 1.5 * 2^23 + n, whose lowest bits are n: added to the exponent of a, which must have room.
_times_power: Any = each(2, _times_power_of_one)


def _powers(builder: Any, kind: Any, numbers: list[Any]) -> list[Any]:
    """2^x for |x| <= 125 to float32's rounding; NaN stays NaN. A step of all of them, then the next."""
    lanes, count = kind.lanes, len(numbers)
    rounder, one, p4, *others = (ir.Constant(floats(lanes), [float(c)] * lanes) for c in (_ROUNDER, _ONE, *_P))
    both = pinned(builder, kind, [*numbers, *(builder.fadd(x, rounder) for x in numbers)])
    shifted, pairs = both[count:], zip(both[:count], both[count:], strict=True)
    f = pinned(builder, kind, [builder.fsub(x, builder.fsub(n, rounder)) for x, n in pairs])
    p = [p4] * count
    for part in (*others, one):
        p = [call(builder, "fmuladd", lanes, a, b, part) for a, b in zip(p, f, strict=True)]
        p = pinned(builder, kind, p)
    return [_times_power_of_one(builder, lanes, a, n) for a, n in zip(p, shifted, strict=True)]


@intrinsic  # type: ignore[untyped-decorator]
def moderate_power_of_two(_typing: Any, kind: Any) -> Any:
    """2^x for |x| <= 125 to float32's rounding; NaN stays NaN."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return joined(builder, kind, _powers(builder, kind, vectors_of(builder, kind, arguments[0])))

    return kind(kind), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_powers(_typing: Any, array: Any, _at: Any, _step: Any, _across: Any, kind: Any) -> Any:
    """As ``store_tile``, of powers of two of a tile's numbers (|x| <= 125); the sums of each row's.

    Two columns after the other: fewer would wait for each step's end, and for more there are not registers enough.
    """
    column = Tile(kind.rows, 1, kind.lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, (at, step, across) = Array(context, builder, signature.args[0], arguments[0]), arguments[1:4]
        vectors, sums = vectors_of(builder, kind, arguments[4]), []
        columns = [vectors[c :: kind.columns] for c in range(kind.columns)]
        for c in range(0, kind.columns, 2):
            powers = _powers(builder, kind, [*columns[c], *columns[c + 1]])
            for k, power in enumerate(powers):
                target.store(target.place(at, (step, k % kind.rows), (across, c + k // kind.rows)), power)
            sums.append([builder.fadd(a, b) for a, b in zip(powers[: kind.rows], powers[kind.rows :], strict=True)])
            if c == 0:
                left = pinned(builder, kind, [*columns[2], *columns[3], *sums[0]])
                columns[2:], sums[0] = [left[: kind.rows], left[kind.rows : 2 * kind.rows]], left[2 * kind.rows :]
        return joined(builder, column, [builder.fadd(a, b) for a, b in zip(*sums, strict=True)])

    return column(array, int64, int64, int64, kind), generate


@njit(inline="always")  # type: ignore[untyped-decorator]
def power_of_two(x: Any) -> Any:
    """2^x for x <= 0 to float32's rounding; below -125 it is 2^-125, and NaN stays NaN.

    One power is a chain of a dozen steps that wait for each other: those of a tile fill the time.
    """
    x = abreast(larger(splat(x, _LOWEST), x))
    shifted = abreast(add(x, splat(x, _ROUNDER)))
    f = abreast(subtract(x, subtract(shifted, splat(x, _ROUNDER))))
    p = abreast(multiply_add(splat(x, _P4), f, splat(x, _P3)))
    p = abreast(multiply_add(p, f, splat(x, _P2)))
    p = abreast(multiply_add(p, f, splat(x, _P1)))
    p = abreast(multiply_add(p, f, splat(x, _P0)))
    p = abreast(multiply_add(p, f, splat(x, _ONE)))
    return _times_power(p, shifted)
