"""Activations of MLPs on vectors of float32 numbers, as torch defines them, to float32's rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from flipscope.native.powers import LOG2_E, power_of_two
from flipscope.native.simd import add, divide, larger, multiply, multiply_add, positive, smaller, splat, subtract

KINDS = ("relu", "gelu", "gelu_tanh")  # by number
_ZERO, _ONE = np.float32(0), np.float32(1)
# erfc(z) = t (a1 + t (a2 + ...)) exp(-z^2) with t = 1 / (1 + p z), to 1.5e-7 for z >= 0: Abramowitz and Stegun 7.1.26.
_P = np.float32(0.3275911 / math.sqrt(2))
_A1, _A2, _A3 = np.float32(0.254829592 / 2), np.float32(-0.284496736 / 2), np.float32(1.421413741 / 2)
_A4, _A5 = np.float32(-1.453152027 / 2), np.float32(1.061405429 / 2)
_SQUARE = np.float32(-LOG2_E / 2)
# Twice the argument of tanh, to base 2: 2 sqrt(2 / pi) (x + 0.044715 x^3) log2 e.
_TANH1 = np.float32(2 * math.sqrt(2 / math.pi) * LOG2_E)
_TANH3 = np.float32(0.044715)
_FAR = np.float32(-1e4)


@njit(inline="always")  # type: ignore[untyped-decorator]
def rectified(x: Any) -> Any:
    """max(x, 0); NaN stays NaN."""
    return larger(splat(x, _ZERO), x)


@njit(inline="always")  # type: ignore[untyped-decorator]
def gelu(x: Any) -> Any:
    """x Phi(x), where Phi(-|x|) = erfc(|x| / sqrt 2) / 2."""
    size = larger(x, subtract(splat(x, _ZERO), x))
    t = divide(splat(x, _ONE), multiply_add(size, splat(x, _P), splat(x, _ONE)))
    tail = multiply_add(splat(x, _A5), t, splat(x, _A4))
    tail = multiply_add(tail, t, splat(x, _A3))
    tail = multiply_add(tail, t, splat(x, _A2))
    tail = multiply_add(tail, t, splat(x, _A1))
    power = power_of_two(multiply(multiply(size, size), splat(x, _SQUARE)))
    tail = multiply(multiply(tail, t), power)
    return multiply(x, positive(x, subtract(splat(x, _ONE), tail), tail))


@njit(inline="always")  # type: ignore[untyped-decorator]
def gelu_tanh(x: Any) -> Any:
    """x (1 + tanh u) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    square = multiply(x, x)
    u = multiply(multiply(x, splat(x, _TANH1)), multiply_add(square, splat(x, _TANH3), splat(x, _ONE)))
    power = power_of_two(smaller(u, subtract(splat(x, _ZERO), u)))
    share = divide(positive(x, splat(x, _ONE), power), add(splat(x, _ONE), power))
    return multiply(larger(splat(x, _FAR), x), share)  # no power is less than 2^-125
