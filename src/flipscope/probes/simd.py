"""Eight float32 numbers as one value inside compiled loops, for what the compiler does not vectorise by itself.

LLVM turns these into whatever instructions the processor has. Arrays are flat and contiguous, indices are trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import float32, int64, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 8
LOG2_E = math.log2(math.e)  # what turns logarithms into those to base 2
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)


class Vector(types.Type):  # type: ignore[misc]
    """The type of eight numbers."""

    def __init__(self) -> None:
        super().__init__(name="FlipscopeVector")


vector = Vector()


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _in_every_lane(builder: Any, number: Any) -> Any:
    empty = ir.Constant(_FLOATS, ir.Undefined)
    one = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, empty, ir.Constant(_INTEGERS, [0] * LANES))


@intrinsic  # type: ignore[untyped-decorator]
def load(_typing: Any, array: Any, _index: Any) -> Any:
    """Eight numbers from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _pointer(context, builder, signature.args[0], *arguments)
        found = builder.load(builder.bitcast(place, _FLOATS.as_pointer()))
        found.align = 4
        return found

    return vector(array, int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(_typing: Any, array: Any, _index: Any, _value: Any) -> Any:
    """Write eight numbers from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(place, _FLOATS.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.none(array, int64, vector), generate


@intrinsic  # type: ignore[untyped-decorator]
def spread(_typing: Any, array: Any, _index: Any) -> Any:
    """The number at an index, in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _in_every_lane(builder, builder.load(_pointer(context, builder, signature.args[0], *arguments)))

    return vector(array, int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def splat(_typing: Any, _number: Any) -> Any:
    """A number in every lane."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return _in_every_lane(builder, arguments[0])

    return vector(float32), generate


def _binary(instruction: str) -> Any:
    def typed(_typing: Any, _a: Any, _b: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments)

        return vector(vector, vector), generate

    return intrinsic(typed)


add: Callable[[Any, Any], Any] = _binary("fadd")
subtract: Callable[[Any, Any], Any] = _binary("fsub")
multiply: Callable[[Any, Any], Any] = _binary("fmul")
divide: Callable[[Any, Any], Any] = _binary("fdiv")


@intrinsic  # type: ignore[untyped-decorator]
def multiply_add(_typing: Any, _a: Any, _b: Any, _c: Any) -> Any:
    """a * b + c, with one rounding where the processor can."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        name = f"llvm.fmuladd.v{LANES}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return vector(vector, vector, vector), generate


@intrinsic  # type: ignore[untyped-decorator]
def larger(_typing: Any, _a: Any, _b: Any) -> Any:
    """a where a > b, else b: also where one of them is NaN."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return vector(vector, vector), generate


@intrinsic  # type: ignore[untyped-decorator]
def square_root(_typing: Any, _a: Any) -> Any:
    """The square root of each number."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_FLOATS, [_FLOATS])
        name = f"llvm.sqrt.v{LANES}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return vector(vector), generate


@njit(inline="always")  # type: ignore[untyped-decorator]
def inverse_root(x: Any) -> Any:
    """1 / sqrt(x) as sqrt(x) / x: a variance that has overflowed gives NaN, not zero."""
    return divide(square_root(x), x)


@intrinsic  # type: ignore[untyped-decorator]
def any_nonzero(_typing: Any, _a: Any) -> Any:
    """1 if some lane is not zero (NaN is not), else 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        lanes = builder.fcmp_unordered("!=", arguments[0], ir.Constant(_FLOATS, [0.0] * LANES))
        mask = builder.bitcast(lanes, ir.IntType(LANES))
        return builder.zext(builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(LANES), 0)), ir.IntType(64))

    return int64(vector), generate


@intrinsic  # type: ignore[untyped-decorator]
def any_reaches(_typing: Any, _a: Any, _low_a: Any, _b: Any, _low_b: Any, _c: Any, _low_c: Any) -> Any:
    """1 if some lane of a, b or c is not below its bound (NaN is not), else 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        a, b, c = (builder.fcmp_unordered(">=", *arguments[i : i + 2]) for i in (0, 2, 4))
        mask = builder.bitcast(builder.or_(a, builder.or_(b, c)), ir.IntType(LANES))
        return builder.zext(builder.icmp_unsigned("!=", mask, ir.Constant(ir.IntType(LANES), 0)), ir.IntType(64))

    return int64(vector, vector, vector, vector, vector, vector), generate


def _shuffle(chosen: list[int]) -> Any:
    """Lanes of a (0 to 7) and b (8 to 15) in a new order."""

    def typed(_typing: Any, _a: Any, _b: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.shuffle_vector(*arguments, ir.Constant(_INTEGERS, chosen))

        return vector(vector, vector), generate

    return intrinsic(typed)


_ones_low: Any = _shuffle([0, 8, 1, 9, 4, 12, 5, 13])
_ones_high: Any = _shuffle([2, 10, 3, 11, 6, 14, 7, 15])
_twos_low: Any = _shuffle([0, 1, 8, 9, 4, 5, 12, 13])
_twos_high: Any = _shuffle([2, 3, 10, 11, 6, 7, 14, 15])
_fours_low: Any = _shuffle([0, 1, 2, 3, 8, 9, 10, 11])
_fours_high: Any = _shuffle([4, 5, 6, 7, 12, 13, 14, 15])


@njit(inline="always")  # type: ignore[untyped-decorator]
def turned(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """The columns of eight rows of eight numbers."""
    ab0, ab1, cd0, cd1 = _ones_low(a, b), _ones_high(a, b), _ones_low(c, d), _ones_high(c, d)
    ef0, ef1, gh0, gh1 = _ones_low(e, f), _ones_high(e, f), _ones_low(g, h), _ones_high(g, h)
    p0, p1, p2, p3 = _twos_low(ab0, cd0), _twos_high(ab0, cd0), _twos_low(ab1, cd1), _twos_high(ab1, cd1)
    q0, q1, q2, q3 = _twos_low(ef0, gh0), _twos_high(ef0, gh0), _twos_low(ef1, gh1), _twos_high(ef1, gh1)
    return (
        _fours_low(p0, q0),
        _fours_low(p1, q1),
        _fours_low(p2, q2),
        _fours_low(p3, q3),
        _fours_high(p0, q0),
        _fours_high(p1, q1),
        _fours_high(p2, q2),
        _fours_high(p3, q3),
    )


@intrinsic  # type: ignore[untyped-decorator]
def _times_power(_typing: Any, _a: Any, _shifted: Any) -> Any:
    """a * 2^n from 1.5 * 2^23 + n, whose lowest bits are n: added to the exponent of a, which must have room."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        a, n = (builder.bitcast(argument, _INTEGERS) for argument in arguments)
        return builder.bitcast(builder.add(a, builder.shl(n, ir.Constant(_INTEGERS, [23] * LANES))), _FLOATS)

    return vector(vector, vector), generate


_ROUNDER = np.float32(1.5 * 2**23)  # adding it rounds to an integer, which the lowest bits then hold
_LOWEST = np.float32(-125.0)  # 2^-125 is no subnormal number, nor is 2^-0.5 times it
# 2^f = 1 + f P(f) for |f| <= 1/2, to 5e-9: P interpolates at Chebyshev's nodes.
_P5, _P4, _P3 = np.float32(1.5453163e-4), np.float32(1.33908636e-3), np.float32(9.61808256e-3)
_P2, _P1, _P0 = np.float32(5.55035711e-2), np.float32(0.240226508), np.float32(0.693147188)
_ONE = np.float32(1.0)


@njit(inline="always")  # type: ignore[untyped-decorator]
def power_of_two(x: Any) -> Any:
    """2^x for x <= 0 to float32's rounding; below -125 it is 2^-125, and NaN stays NaN."""
    x = larger(splat(_LOWEST), x)
    shifted = add(x, splat(_ROUNDER))
    f = subtract(x, subtract(shifted, splat(_ROUNDER)))
    p = multiply_add(splat(_P5), f, splat(_P4))
    p = multiply_add(p, f, splat(_P3))
    p = multiply_add(p, f, splat(_P2))
    p = multiply_add(p, f, splat(_P1))
    p = multiply_add(p, f, splat(_P0))
    p = multiply_add(p, f, splat(_ONE))
    return _times_power(p, shifted)
