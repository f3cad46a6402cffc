"""Checks of what a PAC-Bayes bound is asked of."""

from __future__ import annotations

import math

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError


def check_class(sparsity: int, degree: int, length: int | None = None) -> None:
    """Raise InputError unless there are functions of this sparsity and degree on strings of this length."""
    check_count("sparsity", sparsity)
    check_count("degree", degree)
    if length is None:
        return
    check_count("length", length, 2)
    if degree > length:
        raise InputError(f"degree={degree} is more than length={length}: a set has no more positions than there are")
    if sparsity > length:
        raise InputError(
            f"sparsity={sparsity} is more than length={length}: the construction has one position for each set"
        )
    if sparsity > math.comb(length, degree):
        many = math.comb(length, degree)
        raise InputError(f"sparsity={sparsity} is too large: there are {many} sets of {degree} in {length} positions")


def check_delta(delta: float) -> float:
    """The probability that a bound may fail, strictly between 0 and 1."""
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise InputError(f"delta={delta!r} must lie strictly between 0 and 1, such as 0.05")
    return float(delta)


def check_finite_positive(name: str, value: float) -> float:
    """The value, after making sure that it is a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise InputError(f"{name}={value!r} must be a positive number")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """The value, after making sure that it is 0 or a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name}={value!r} must be 0 or a positive number")
    return float(value)
