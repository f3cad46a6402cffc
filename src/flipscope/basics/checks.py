"""Checks of the numbers that a caller passes; a bad one raises InputError with one sentence."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import SupportsIndex, TypeGuard

import numpy as np

from flipscope.basics.errors import InputError

_LONGEST = 80  # characters of a value in a message


def shown(value: object) -> str:
    """A value as one short line of an error message: an array as its shape, a very long number as its length."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and hasattr(value, "dtype") and not isinstance(value, np.generic):
        return f"{type(value).__name__} of shape {tuple(shape)} and type {value.dtype}"
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # a number inside that is too long for Python to write out
        text = type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def is_finite(value: object) -> TypeGuard[float]:
    """Whether the value is a finite number that fits into a float: no Boolean, NaN, infinity or larger integer."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_confidence(confidence: float | np.floating) -> float:
    """The confidence as a float, after making sure that it lies strictly between 0 and 1."""
    if isinstance(confidence, bool) or not isinstance(confidence, int | float | np.floating):
        raise InputError(f"confidence must be a number between 0 and 1, such as 0.95, not {confidence!r}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie strictly between 0 and 1, such as 0.95, not {confidence}")
    return float(confidence)


def check_probability(name: str, value: float) -> float:
    """The value as a float, after making sure that it is a probability that is neither 0 nor 1."""
    if not (is_finite(value) and 0 < value < 1):
        raise InputError(f"{name}={shown(value)} must lie strictly between 0 and 1, such as 0.05")
    return float(value)


def check_positive(name: str, value: float) -> float:
    """The value as a float, after making sure that it is a finite number above 0."""
    if not (is_finite(value) and value > 0):
        raise InputError(f"{name}={shown(value)} must be a positive number")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """The value as a float, after making sure that it is a finite number of at least 0."""
    if not (is_finite(value) and value >= 0):
        raise InputError(f"{name}={shown(value)} must be a number of at least 0")
    return float(value)


def check_count(name: str, value: SupportsIndex, minimum: int = 1) -> int:
    """The value as an int, after making sure that it is a whole number of at least ``minimum``."""
    try:
        whole = operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # tensors raise any of these
        raise InputError(f"{name} must be a whole number, not {shown(value)}") from None
    if isinstance(value, bool) or whole < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}, not {shown(value)}")
    return whole


def check_validity(validity: str) -> None:
    """Raise InputError unless the validity is "fixed" or "anytime"."""
    if not isinstance(validity, str) or validity not in ("fixed", "anytime"):
        raise InputError(f'validity must be "fixed" or "anytime", not {shown(validity)}')


def check_positions(positions: Sequence[int], n: int) -> tuple[int, ...]:
    """The positions as sorted integers, after making sure that they are distinct and lie in 0..n-1."""
    chosen = tuple(sorted(check_count("position", position, 0) for position in positions))
    if len(set(chosen)) != len(chosen):
        raise InputError(f"positions must be distinct, got {list(chosen)}")
    if chosen and chosen[-1] >= n:
        raise InputError(f"position {chosen[-1]} does not exist: positions run from 0 to {n - 1}")
    return chosen
