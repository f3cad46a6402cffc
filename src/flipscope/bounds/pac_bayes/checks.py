"""Checks of what a PAC-Bayes bound is asked of."""

from __future__ import annotations

from typing import SupportsIndex

from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError

LONGEST = 10**9  # strings beyond which nothing is computed
MOST_SAMPLES = 10**100  # beyond which floats do not go far
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-60, 1e60  # whose squares and products floats hold


def check_class(sparsity: int, degree: int, length: int | None = None) -> None:
    """Raise InputError unless there are functions of this sparsity and degree on strings of this length."""
    check_count("sparsity", sparsity)
    check_count("degree", degree)
    if length is None:
        return
    if check_count("length", length, 2) > LONGEST:
        raise InputError(f"length must be at most {LONGEST:,}: give shorter strings")
    if degree > length:
        raise InputError(f"degree={degree} is more than length={length}: a set has no more positions than there are")
    if sparsity > length:
        raise InputError(
            f"sparsity={sparsity} is more than length={length}: the construction has one position for each set"
        )
    if degree == length and sparsity > 1:  # else there are at least as many sets as positions
        raise InputError(f"sparsity={sparsity} is too large: there is one set of {degree} in {length} positions")


def check_samples(samples: SupportsIndex) -> int:
    """The number of samples, after making sure that it is one."""
    count = check_count("samples", samples)
    if count > MOST_SAMPLES:
        raise InputError("samples must be at most 10^100")
    return count


def check_delta(delta: float) -> float:
    """The probability that a bound may fail, strictly between 0 and 1."""
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise InputError(f"delta={delta!r} must lie strictly between 0 and 1, such as 0.05")
    return float(delta)


def check_sigma(name: str, value: float) -> float:
    """The standard deviation of a noise, after making sure that bounds can be computed with it."""
    if not SMALLEST_SIGMA <= check_positive(name, value) <= LARGEST_SIGMA:
        raise InputError(f"{name}={value!r} must lie between {SMALLEST_SIGMA:g} and {LARGEST_SIGMA:g}")
    return float(value)
