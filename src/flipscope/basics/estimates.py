"""Confidence intervals that hold at every sample size: no normal approximation anywhere.

Two validities. A "fixed" interval covers the truth with the stated confidence when the number of samples was
chosen before looking. An "anytime" interval does so at every sample size at once, hence also when sampling
stops because of what was seen. Proportions: Clopper-Pearson (fixed) and the beta-binomial mixture (anytime).
Means of bounded samples: the capital of a gambler who bets against each candidate mean (Waudby-Smith and
Ramdas, "Estimating means of bounded random variables by betting", 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_array, as_numbers
from flipscope.basics.checks import check_confidence, check_count, check_validity
from flipscope.basics.errors import InputError

Validity: TypeAlias = Literal["fixed", "anytime"]
Floats: TypeAlias = NDArray[np.float64]

# A fixed-size bet never risks more than this share of the capital on one sample.
_LARGEST_STAKE = 0.9
# Shares of the capital that the anytime gambler stakes, and how the capital is split between them: bold bets
# win when the samples hardly vary, timid ones when they vary a lot; 2^-15 is timid enough for more than 10^8
# samples.
_STAKES = np.minimum(0.5 ** np.arange(16.0), 0.98)
_STAKE_LOG_WEIGHTS = -np.log(np.arange(1.0, 17.0)) - math.log(math.fsum(1 / k for k in range(1, 17)))
_ITERATIONS = 50
_BLOCK = 1 << 14  # distinct sample values handled at once


@dataclass(frozen=True)
class Estimate:
    """A sampled value with its interval: ``low <= truth <= high`` with probability at least ``confidence``.

    ``samples`` is the number of samples behind it and ``queries`` what they cost (0 where nothing was
    queried).
    """

    value: float
    low: float
    high: float
    confidence: float
    samples: int
    validity: Validity = "fixed"
    queries: int = 0

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise InputError(f"an estimate needs low <= value <= high, got {self.low}, {self.value}, {self.high}")

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2

    def scaled(self, factor: float, offset: float = 0.0) -> Estimate:
        """The estimate of ``factor * truth + offset``."""
        ends = sorted((factor * self.low + offset, factor * self.high + offset))
        # Rounding must not push the value out of its own interval.
        value = min(max(factor * self.value + offset, ends[0]), ends[1])
        return Estimate(value, ends[0], ends[1], self.confidence, self.samples, self.validity, self.queries)

    def as_json(self) -> dict[str, float | int]:
        """The five fields that stand for an estimated quantity in every JSON document."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "samples": self.samples,
        }

    def as_count_json(self, n: int) -> dict[str, float | int]:
        """The same for a share of the 2^n strings, given as numbers of strings: integers of any size."""
        total = 1 << n
        return {
            "value": round(Fraction(self.value) * total),
            "low": math.floor(Fraction(self.low) * total),
            "high": math.ceil(Fraction(self.high) * total),
            "confidence": self.confidence,
            "samples": self.samples,
        }


@checked_arguments
def proportions(
    successes: ArrayLike,
    trials: int,
    confidence: float = 0.95,
    validity: Validity = "fixed",
    queries: int = 0,
) -> list[Estimate]:
    """Estimates of several probabilities from one sample, whose intervals hold together.

    ``successes[k]`` is how often event ``k`` happened in ``trials`` trials; the events may depend on each
    other.
    """
    trials = check_count("trials", trials)
    confidence = check_confidence(confidence)
    counts = _whole_numbers("successes", successes, trials)
    # Bonferroni: each of the intervals gets an equal part of the allowed error.
    low, high = proportion_bounds(counts, trials, (1 - confidence) / max(1, counts.size), validity)
    return [
        Estimate(int(count) / trials, float(a), float(b), confidence, trials, validity, queries)
        for count, a, b in zip(counts, low, high, strict=True)
    ]


@checked_arguments
def profile_from_counts(
    counts: ArrayLike, n: int, confidence: float = 0.95, validity: Validity = "fixed", queries: int = 0
) -> list[Estimate]:
    """Estimates of the shares K_0 / 2^n, ..., K_n / 2^n from the sensitivity of each sampled string.

    ``counts`` has one sensitivity (0..n) per uniformly drawn string; the n + 1 intervals hold together.
    """
    n = check_count("n", n)
    sensitivities = _whole_numbers("counts", counts, n)
    if sensitivities.size == 0:
        raise InputError("counts is empty: give the sensitivity of at least one string")
    histogram = np.bincount(sensitivities, minlength=n + 1)
    return proportions(histogram, sensitivities.size, confidence, validity, queries)


@checked_arguments
def mean_from_samples(
    samples: ArrayLike,
    low: float,
    high: float,
    confidence: float = 0.95,
    validity: Validity = "fixed",
    queries: int = 0,
    weights: ArrayLike | None = None,
) -> Estimate:
    """Estimate of the mean of independent samples that lie in [low, high].

    A fixed interval depends on the order of the samples (early ones set the bets on later ones), an anytime
    one does not. With ``weights``, numbers greater than 0 that are drawn together with the samples, the mean is
    the weighted one, E[weight * sample] / E[weight].
    """
    confidence = check_confidence(confidence)
    check_validity(validity)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"the range of the samples must be finite with low < high, got low={low}, high={high}")
    values = as_numbers(samples, "samples").ravel()
    if values.size == 0:
        raise InputError("samples is empty: give at least one sample")
    if not bool(np.all((values >= low) & (values <= high))):
        raise InputError(f"every sample must be a number in [{low}, {high}]; widen the range or check the samples")
    unit = (values - low) / (high - low)
    shares = _shares_of_largest(weights, values.size)
    bound = _lower_bound_fixed if validity == "fixed" else _lower_bound_anytime
    log_capital = math.log(2 / (1 - confidence))  # two one-sided bets share the allowed error
    # Samples that all lie at one end leave nothing to win by betting against a mean closer to it.
    lower = low + (high - low) * (bound(unit, shares, log_capital) if unit.any() else 0.0)
    upper = high - (high - low) * (bound(1 - unit, shares, log_capital) if (unit < 1).any() else 0.0)
    mean = min(max(float(values.mean() if shares is None else np.average(values, weights=shares)), low), high)
    # Widening never harms validity, and a reader expects the value inside.
    return Estimate(mean, min(lower, mean), max(upper, mean), confidence, values.size, validity, queries)


def proportion_bounds(
    successes: NDArray[Any], trials: int | NDArray[Any], error: float, validity: Validity
) -> tuple[Floats, Floats]:
    """Lower and upper bounds of success probabilities, each pair wrong with probability at most ``error``."""
    check_validity(validity)
    hits = np.asarray(successes, dtype=np.float64)
    total = np.broadcast_to(np.asarray(trials, dtype=np.float64), hits.shape)
    ends = _clopper_pearson if validity == "fixed" else _beta_binomial
    low, high = ends(hits, total, error)
    share = hits / total
    return np.minimum(low, share), np.maximum(high, share)


def _whole_numbers(name: str, values: ArrayLike, largest: int) -> NDArray[np.int64]:
    array = as_array(values, name)
    if array.ndim != 1:
        raise InputError(f"{name} must be one row of whole numbers, not an array of shape {array.shape}")
    whole = array.dtype.kind in "iub" or (array.dtype.kind == "f" and bool(np.all(array == np.rint(array))))
    if not whole:
        raise InputError(f"{name} must be whole numbers from 0 to {largest}")
    if array.size and not (array.min() >= 0 and array.max() <= largest):
        raise InputError(f"{name} must lie between 0 and {largest}, got {array.min()} to {array.max()}")
    return array.astype(np.int64)


def _clopper_pearson(hits: Floats, total: Floats, error: float) -> tuple[Floats, Floats]:
    from scipy.special import betainccinv, betaincinv  # a quarter of a second to import, so only when needed

    inside = np.maximum(hits, 1.0)
    low = np.where(hits > 0, betaincinv(inside, total - inside + 1, error / 2), 0.0)
    inside = np.minimum(hits, total - 1)
    high = np.where(hits < total, betainccinv(inside + 1, total - inside, error / 2), 1.0)
    return low, high


def _beta_binomial(hits: Floats, total: Floats, error: float) -> tuple[Floats, Floats]:
    """Ends of {p: mixture likelihood < likelihood at p / error}; valid at every time by Ville's inequality.

    The mixture over p is Beta(1/2, 1/2). In the log-odds of p the log-likelihood is concave and lies below
    its two asymptotes, so Newton's method, started where these reach the level, stays outside the interval.
    """
    from scipy.special import betaln, expit

    level = betaln(hits + 0.5, total - hits + 0.5) - math.log(math.pi) + math.log(error)
    misses = total - hits
    # Without hits there is no lower end, without misses no upper one; 1 keeps those entries harmless.
    odds = np.stack((level / np.maximum(hits, 1), -level / np.maximum(misses, 1)))
    for _ in range(_ITERATIONS):
        excess = hits * odds - total * np.logaddexp(0, odds) - level
        slope = hits - total * expit(odds)
        step = np.divide(excess, slope, out=np.zeros_like(odds), where=slope != 0)
        odds -= step
        if bool(np.all(np.abs(step) <= 1e-12 * (1 + np.abs(odds)))):
            break
    low, high = expit(odds)
    return np.where(hits > 0, low, 0.0), np.where(misses > 0, high, 1.0)


def _shares_of_largest(weights: ArrayLike | None, size: int) -> Floats | None:
    """The weights as shares of the largest, None if all are equal.

    The gambler wins share * (sample - mean) at a stake of 1, which is 0 on average for the true weighted mean and never
    costs more than a bet without weights does.
    """
    if weights is None:
        return None
    values = as_numbers(weights, "weights").ravel().astype(np.float64)
    if values.size != size or not bool(np.all((values > 0) & np.isfinite(values))):
        raise InputError(f"weights must be {size} finite numbers greater than 0, one for each sample")
    return None if bool(np.all(values == values[0])) else values / values.max()


def _lower_bound_fixed(unit: Floats, shares: Floats | None, log_capital: float) -> float:
    """Lower bound of the mean of samples in [0, 1], by bets that are set for this number of samples.

    Bet t may use only the samples before t; its size is the one that would be best if their variance were the
    true one. For a smaller candidate mean the capital is larger, so the excluded means are an interval.
    """
    size = unit.size
    times = np.arange(1.0, size + 1)
    if shares is None:
        means = (0.5 + np.cumsum(unit)) / (times + 1)
        variances = (0.25 + np.cumsum((unit - means) ** 2)) / (times + 1)
    else:
        means = (0.5 + np.cumsum(shares * unit)) / (np.cumsum(shares) + 1)
        variances = (0.25 + np.cumsum((shares * (unit - means)) ** 2)) / (times + 1)
    before = np.concatenate(([0.25], variances[:-1]))
    bets = np.sqrt(2 * log_capital / (size * before))

    def capital(mean: float) -> float:
        stakes = np.minimum(bets, _LARGEST_STAKE / mean)
        # The best moment so far counts: capital that was ever reached excludes the mean (Ville).
        gains = stakes * (unit - mean) if shares is None else stakes * shares * (unit - mean)
        return float(np.cumsum(np.log1p(gains)).max())

    return _largest_excluded(capital, log_capital)


def _lower_bound_anytime(unit: Floats, shares: Floats | None, log_capital: float) -> float:
    """Lower bound of the mean of samples in [0, 1] at every time, by a mixture of constant stakes."""
    if shares is None:
        values, counts = np.unique(unit, return_counts=True)
        part_of = np.ones_like(values)
    else:
        pairs, counts = np.unique(np.stack([unit, shares]), axis=1, return_counts=True)
        values, part_of = pairs

    def capital(mean: float) -> float:
        log_capitals = _STAKE_LOG_WEIGHTS.copy()
        for start in range(0, values.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            log_capitals += np.log1p(np.outer(_STAKES, part_of[part] * (values[part] / mean - 1))) @ counts[part]
        largest = float(log_capitals.max())
        return largest + math.log(np.exp(log_capitals - largest).sum())

    return _largest_excluded(capital, log_capital)


def _largest_excluded(capital: Callable[[float], float], log_capital: float) -> float:
    """The largest mean against which the gambler wins, rounded down; ``capital`` falls as the mean grows.

    False position with the Illinois rule: an end that stays twice in a row counts for half.
    """
    low, high = 0.0, 1.0
    surplus, deficit = math.inf, log_capital - capital(1.0)
    stayed = 0
    for _ in range(_ITERATIONS):
        share = surplus / (surplus + deficit) if surplus < math.inf else 0.5
        middle = low + (high - low) * share
        excess = capital(middle) - log_capital
        if excess >= 0:
            low, surplus = middle, excess
            deficit = deficit / 2 if stayed == 1 else deficit
            stayed = 1
        else:
            high, deficit = middle, -excess
            surplus = surplus / 2 if stayed == -1 else surplus
            stayed = -1
        if 0 <= excess <= 1e-9 or high - low <= 1e-9 * high:
            break
    return low
