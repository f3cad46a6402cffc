"""Section 3.2 of paper 004: how often noise on the bits changes the value of a function of low sensitivity.

A pair (x, x') is rho-correlated if x is uniform and every bit of x' is that of x with probability rho, and a fair coin
otherwise. With W_k the Fourier weight at degree k, the sum of k W_k is the average sensitivity as(f), and

    P(f(x) != f(x')) = sum of W_k (1 - rho^k) / 2.

Since (1 - rho^t) / 2 grows with t, and is concave in t, this is at most (1 - rho^t) / 2 for

    t = s_max(f)^2    by Huang's theorem, deg(f) <= s_max(f)^2           Prop 3.2, as printed
    t = deg(f)        no weight lies beyond the degree
    t = as(f)         Jensen's inequality over the Fourier weights       never more than either of the others

as(f) is at most s_max(f), and at most deg(f): the last bound is the best of the three. Its exponent is also the only
one that random strings can estimate, since no sample bounds the maximal sensitivity or the degree from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import Seed, generators
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.portrait import RHOS, Portrait, exact_portrait

Number = int | float | Estimate


@checked_arguments
def change_bound(exponent: float, rho: float) -> float:
    """(1 - rho^exponent) / 2 for a correlation rho from 0 to 1: with s_max(f)^2 as exponent this is Prop 3.2.

    It bounds the probability that f(x) and f(x') differ, whichever of the three exponents is given.

    >>> round(change_bound(9, 0.9), 6)  # majority of five bits: s_max = 3
    0.30629
    >>> round(change_bound(1.875, 0.9), 6)  # the same with its average sensitivity
    0.089631
    """
    rho = _checked_rho(rho)
    if not exponent >= 0:
        raise InputError(f"exponent={exponent} must be at least 0: a degree or an average sensitivity")
    if exponent == 0 or rho == 1:
        return 0.0
    return 0.5 if rho == 0 else -math.expm1(exponent * math.log(rho)) / 2


@checked_arguments
def degree_bound(max_sensitivity: int) -> int:
    """What the degree of a function is at most, s_max^2 (Huang 2019; Thm B.5 of paper 004).

    >>> degree_bound(3)
    9
    """
    return check_count("max_sensitivity", max_sensitivity, 0) ** 2


@dataclass(frozen=True)
class NoiseBounds:
    """The probability that noise changes the value, and its bounds, at one correlation rho.

    Each entry is exact or an `Estimate`, and None where its exponent is not known. An estimated bound is that of an
    estimated exponent: the true bound lies in its interval, so that its upper end is a bound with that confidence.
    """

    rho: float
    probability: float | Estimate | None  # P(f(x) != f(x'))
    by_average_sensitivity: float | Estimate
    by_degree: float | None
    by_max_sensitivity: float | Estimate  # Prop 3.2 as printed

    def as_json(self) -> dict[str, Any]:
        """The bounds as one entry of the JSON document of ``flipscope function``."""
        fields = {
            "probability": self.probability,
            "by_average_sensitivity": self.by_average_sensitivity,
            "by_degree": self.by_degree,
            "by_max_sensitivity": self.by_max_sensitivity,
        }
        return {name: each.as_json() if isinstance(each, Estimate) else each for name, each in fields.items()}


@checked_arguments
def noise_bounds(f: BooleanFunction, rhos: Sequence[float] = RHOS) -> list[NoiseBounds]:
    """The exact bounds of a function at each correlation, and the exact probability where its spectrum is in reach.

    >>> from flipscope.cube.functions import majority
    >>> (found,) = noise_bounds(majority(5), [0.9])
    >>> round(found.probability, 6), round(found.by_average_sensitivity, 6), round(found.by_max_sensitivity, 6)
    (0.085122, 0.089631, 0.30629)
    """
    for rho in rhos:
        _checked_rho(rho)
    return portrait_noise_bounds(exact_portrait(f, repr(f), rhos), rhos)


@checked_arguments
def portrait_noise_bounds(portrait: Portrait, rhos: Sequence[float] = RHOS) -> list[NoiseBounds]:
    """The bounds from the numbers of a portrait, with the probability at the correlations the portrait has.

    >>> from flipscope import describe
    >>> (found,) = portrait_noise_bounds(describe("majority(101)", strings=500), [0.9])
    >>> found.by_average_sensitivity.low < change_bound(8.04, 0.9) < found.by_average_sensitivity.high
    True
    """
    stability = portrait.noise_stability or {}
    return [
        _bounds(
            _checked_rho(rho),
            _probability(stability[rho]) if rho in stability else None,
            portrait.average_sensitivity,
            portrait.max_sensitivity,
            portrait.degree,
        )
        for rho in rhos
    ]


@checked_arguments
def model_noise_bounds(
    model: Callable[..., Any],
    n: int,
    rhos: Sequence[float] = RHOS,
    *,
    strings: int | None = None,
    pairs: int = 2_000,
    seed: Seed = 0,
    confidence: float = 0.95,
) -> list[NoiseBounds]:
    """The bounds for the sign of a model on strings of n bits: exact from all 2^n strings, or sampled.

    Without ``strings`` every string is queried (n <= 20). With it, the average sensitivity comes from so many random
    strings with all their flips, and the probability from so many ``pairs``; each interval holds by itself.

    >>> (found,) = model_noise_bounds(lambda bits: bits.sum(dim=1) - 2.5, 5, [0.9])
    >>> round(found.probability, 6), round(found.by_average_sensitivity, 6)
    (0.085122, 0.089631)
    """
    from flipscope.cube import estimate
    from flipscope.probes.fourier import oracle
    from flipscope.probes.sensitivity import sensitivity_profile, truth_table

    for rho in rhos:
        _checked_rho(rho)
    if strings is None:
        return noise_bounds(truth_table(model, n), rhos)
    pairs = check_count("pairs", pairs)
    for_profile, *for_pairs = generators(seed, 1 + len(rhos))
    profile = sensitivity_profile(model, n, strings=strings, seed=for_profile, confidence=confidence)
    seen = profile.largest_seen
    ask = oracle(model)
    return [
        _bounds(
            rho,
            _probability(estimate.noise_stability(ask, n, rho, samples=pairs, seed=stream, confidence=confidence)),
            profile.average_sensitivity,
            Estimate(seen, seen, n, confidence, profile.strings),
            None,
        )
        for rho, stream in zip(rhos, for_pairs, strict=True)
    ]


def _bounds(
    rho: float, probability: float | Estimate | None, average: Number, largest: Number, degree: int | None
) -> NoiseBounds:
    return NoiseBounds(
        rho=rho,
        probability=probability,
        by_average_sensitivity=_of_exponent(average, rho),
        by_degree=None if degree is None else change_bound(degree, rho),
        by_max_sensitivity=_of_exponent(_squared(largest), rho),
    )


def _of_exponent(exponent: Number, rho: float) -> float | Estimate:
    """The bound with an exponent that may be estimated: it grows with the exponent, so ends stay ends."""
    if not isinstance(exponent, Estimate):
        return change_bound(exponent, rho)
    value, low, high = (change_bound(end, rho) for end in (exponent.value, exponent.low, exponent.high))
    return Estimate(value, low, high, exponent.confidence, exponent.samples, exponent.validity, exponent.queries)


def _squared(largest: Number) -> Number:
    if not isinstance(largest, Estimate):
        return largest**2
    ends = (largest.value**2, largest.low**2, largest.high**2)
    return Estimate(*ends, largest.confidence, largest.samples, largest.validity, largest.queries)


def _probability(stability: float | Estimate) -> float | Estimate:
    """P(f(x) != f(x')) from the noise stability E[f(x) f(x')] in ±1 form."""
    return stability.scaled(-0.5, 0.5) if isinstance(stability, Estimate) else (1 - stability) / 2


def _checked_rho(rho: float) -> float:
    if isinstance(rho, bool) or not 0 <= rho <= 1:
        raise InputError(f"rho={rho} must lie between 0 and 1: it is the probability that noise leaves a bit alone")
    return float(rho)
