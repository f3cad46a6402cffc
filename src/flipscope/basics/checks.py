"""Checks of numbers that a caller gives: one sentence where they cannot be meant."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from flipscope.basics.errors import InputError


def check_confidence(confidence: float | np.floating) -> float:
    """The confidence as a float, after making sure that it lies strictly between 0 and 1."""
    if isinstance(confidence, bool) or not isinstance(confidence, int | float | np.floating):
        raise InputError(f"confidence must be a number between 0 and 1, such as 0.95, not {confidence!r}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie strictly between 0 and 1, such as 0.95, not {confidence}")
    return float(confidence)


def check_count(name: str, value: SupportsIndex, minimum: int = 1) -> int:
    """The value as an int, after making sure that it is a whole number of at least ``minimum``."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or whole < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}, not {value!r}")
    return whole


def is_finite(value: object) -> bool:
    """Whether this is a number that a float can hold, and no bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_validity(validity: str) -> None:
    """Refuse anything but the two validities."""
    if validity not in ("fixed", "anytime"):
        raise InputError(f'validity must be "fixed" or "anytime", not {validity!r}')


def check_positions(positions: Sequence[int], n: int) -> tuple[int, ...]:
    """The positions as sorted integers, after making sure that they are distinct and lie in 0..n-1."""
    chosen = tuple(sorted(check_count("position", position, 0) for position in positions))
    if len(set(chosen)) != len(chosen):
        raise InputError(f"positions must be distinct, got {list(chosen)}")
    if chosen and chosen[-1] >= n:
        raise InputError(f"position {chosen[-1]} does not exist: positions run from 0 to {n - 1}")
    return chosen
