"""Theorem 6 of paper 001 at finite n: how far a function is from all functions of little average sensitivity.

With W_k[f] the Fourier weight of f at degree k, as(f) = sum of k W_k[f], and ||f||^2 the mean of f(x)^2, the weight of
g from degree k on is at most as(g) / k, so that (the Fourier gap)

    ||f - g||^2 >= max over k of (sqrt(W_k[f] + ... + W_n[f]) - sqrt(as(g) / k))_+ ^2                          (10)

The least distance itself is known: where as(g) <= A, the nearest g has the coefficients f^(S) / (1 + lambda |S|), and

    ||f - g||^2 >= max over lambda >= 0 of sum of W_k[f] lambda k / (1 + lambda k) - lambda A                  (11)

with equality for that g. It is convex in A, so that it holds with means on both sides: where g is f with its weights
perturbed at random, the sharpness E ||f - g||^2 is at least (11) at A = E as(g).

As n grows with as(g) = o(n), (10) and (11) tend to no less than as(f) / n: 1 for PARITY, 1/2 for random functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.errors import InputError

_HALVINGS = 200
_DEAREST = 1e100  # lambda; more would overflow


@dataclass(frozen=True)
class Gap:
    """The Fourier gap, and the degree from which on the weight of f gives it (0 where there is no gap)."""

    value: float
    degree: int


@checked_arguments
def fourier_gap(f_weights: ArrayLike, as_g: float) -> Gap:
    """Eq 10: a lower bound on ||f - g||^2, from the weights W_0..W_n of f and the average sensitivity of g.

    >>> from flipscope.cube import functions, spectrum
    >>> fourier_gap(spectrum.weight_floats(functions.parity(16)), 1.0)
    Gap(value=0.5625, degree=16)
    """
    weights, most = _checked(f_weights), _sensitivity("as_g", as_g)
    degrees = np.arange(1, len(weights))
    if not len(degrees):
        return Gap(0.0, 0)
    tails = np.cumsum(weights[:0:-1])[::-1]
    gaps = np.maximum(np.sqrt(tails) - np.sqrt(most / degrees), 0.0) ** 2
    best = int(gaps.argmax())
    return Gap(float(gaps[best]), best + 1) if gaps[best] else Gap(0.0, 0)


@checked_arguments
def least_distance(f_weights: ArrayLike, as_g: float) -> float:
    """Eq 11: the least ||f - g||^2 of any g with as(g) <= as_g, which is attained; never below `fourier_gap`.

    >>> from flipscope.cube import functions, spectrum
    >>> least_distance(spectrum.weight_floats(functions.parity(16)), 1.0)
    0.5625
    """
    weights, most = _checked(f_weights), _sensitivity("as_g", as_g)
    degrees = np.arange(len(weights))
    if float(degrees @ weights) <= most:
        return 0.0
    if not most:
        return float(weights[1:].sum())
    low, high = 0.0, 1.0

    def sensitivity(price: float) -> float:
        return float((degrees * weights / (1 + price * degrees) ** 2).sum())

    while sensitivity(high) > most and high < _DEAREST:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if sensitivity(middle) > most else (low, middle)
    # Every lambda gives a lower bound, so that the bisection need not be exact.
    bounds = [float((weights * p * degrees / (1 + p * degrees)).sum()) - p * most for p in (low, high)]
    return max(0.0, *bounds)


@checked_arguments
def sharpness_lower_bound(f_weights: ArrayLike, as_perturbed: float, *, probability: float = 1.0) -> float:
    """Theorem 6: a lower bound on the sharpness E ||f - g||^2 of f, where g is f with perturbed parameters.

    ``as_perturbed`` is E as(g); or a number that as(g) does not exceed with at least the given ``probability``.

    >>> from flipscope.cube import functions, spectrum
    >>> sharpness_lower_bound(spectrum.weight_floats(functions.parity(16)), 1.0, probability=0.5)
    0.28125
    """
    if not 0 <= probability <= 1:
        raise InputError(f"probability={probability} must be between 0 and 1")
    return probability * least_distance(f_weights, as_perturbed)


@checked_arguments
def asymptotic_sharpness(f_weights: ArrayLike) -> float:
    """as(f) / n: the limit of sharpness is at least this where the blowup of the perturbed model grows slowly.

    >>> from flipscope.cube import functions, spectrum
    >>> asymptotic_sharpness(spectrum.weight_floats(functions.parity(30)))
    1.0
    """
    weights = _checked(f_weights)
    if len(weights) < 2:
        raise InputError("f_weights must hold the weights of degrees 0 to n, with n at least 1")
    return float(np.arange(len(weights)) @ weights) / (len(weights) - 1)


def _checked(f_weights: ArrayLike) -> NDArray[np.float64]:
    """The weights as floats, after checking that they can be weights."""
    weights = as_numbers(f_weights, "f_weights")
    if weights.ndim != 1 or not len(weights) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError("f_weights must be numbers of at least 0, one for each degree from 0 to n")
    return weights


def _sensitivity(name: str, value: float) -> float:
    if not value >= 0:
        raise InputError(f"{name}={value} must be a number of at least 0")
    return float(min(value, math.inf))
