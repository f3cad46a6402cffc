"""Straight lines, and intervals for unbounded quantities, such as the mean of a few slopes, one from each model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, stdtrit  # quantiles; all of scipy.stats takes a second to import

from flipscope.basics.checks import check_confidence
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate


def student_mean(samples: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The mean with Student's interval: right for normal samples, and nearly so for means of a dozen others."""
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise InputError(f"Student's interval needs two finite numbers or more, got {list(samples)[:5]}")
    centre = float(values.mean())
    scale = power_of_two(values)
    reach = (
        float(stdtrit(len(values) - 1, (1 + check_confidence(confidence)) / 2))
        * (scale * float((values / scale).std(ddof=1)))
        / math.sqrt(len(values))
    )
    return Estimate(centre, centre - reach, centre + reach, confidence, len(values))


def power_of_two(values: NDArray[np.float64]) -> float:
    """The power of two next to the largest absolute value, 1 if that is 0: divided by it, numbers can be squared.

    The square of 1e-200 is 0 in float64, and that of 1e200 infinite. Division by a power of two does not round.
    """
    largest = float(np.abs(values).max(initial=0.0))
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0 else 1.0


def bootstrap_mean(samples: Sequence[float], confidence: float = 0.95, seed: int = 0) -> Estimate:
    """The mean with the bootstrap's interval, corrected for bias and skewness (BCa, 10,000 resamples).

    >>> found = bootstrap_mean([0.0, 0.0, 0.0, 1.0] * 10)
    >>> 0.05 < found.low < 0.2 < 0.3 < found.high < 0.45
    True
    """
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise InputError(f"a bootstrap needs two finite numbers or more, got {list(samples)[:5]}")
    centre = float(values.mean())
    check_confidence(confidence)
    if np.ptp(values) == 0:  # nothing to resample
        return Estimate(centre, centre, centre, confidence, len(values))
    from scipy import stats

    interval = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=10_000,
        batch=max(1, 2_000_000 // len(values)),
        confidence_level=confidence,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(
        centre, min(float(interval.low), centre), max(float(interval.high), centre), confidence, len(values)
    )


def straight_line(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """The slope of the line of least squares through the points, and that sum of squares."""
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    slope, start = np.polyfit(xs, ys, 1)
    return float(slope), float(np.square(ys - start - slope * xs).sum())


def regression_slope(
    y: ArrayLike, x: ArrayLike, others: Sequence[ArrayLike] = (), confidence: float = 0.95
) -> Estimate | None:
    """How much y rises with x by least squares, the `others` being equal, with Student's interval.

    None if there are fewer than two points more than coefficients, or if x does not vary by itself.

    >>> found = regression_slope([1.0, 2.1, 2.9, 4.0, 5.1], [1, 2, 3, 4, 5])
    >>> round(found.value, 3), found.low < 1 < found.high
    (1.01, True)
    """
    values, places = np.asarray(y, np.float64), np.asarray(x, np.float64)
    columns = np.column_stack([places, np.ones(len(places)), *others]).astype(np.float64)
    freedom = len(values) - columns.shape[1]
    if freedom < 2 or np.linalg.matrix_rank(columns / np.abs(columns).max(axis=0)) < columns.shape[1]:
        return None
    coefficients = np.linalg.lstsq(columns, values)[0]
    variance = float(np.square(values - columns @ coefficients).sum()) / freedom
    error = math.sqrt(variance * float(np.linalg.inv(columns.T @ columns)[0, 0]))
    reach = float(stdtrit(freedom, (1 + check_confidence(confidence)) / 2)) * error
    value = float(coefficients[0])
    return Estimate(value, value - reach, value + reach, confidence, len(values))


def growth(x: Sequence[float], log2_counts: Sequence[float | None]) -> tuple[bool, float]:
    """Whether counts grow exponentially in x rather than like a power of it, and the rate b of 2^(bx).

    The counts come as logarithms, None for a count of 0. Both laws are straight lines with two parameters for
    log2(1 + count), against x and against log2 x, so that the one with the smaller sum of squares has the smaller AIC.
    """
    # log2(1 + K) = log2(K) + log2(1 + 1/K), and K may be beyond floats.
    values = [0.0 if each is None else float(np.logaddexp2(each, 0.0)) for each in log2_counts]
    (rate, exponential), (_, power) = (straight_line(places, values) for places in (x, np.log2(x)))
    return exponential < power, rate


def tail_exponent(samples: Sequence[float], largest: int, confidence: float = 0.95) -> Estimate:
    """Hill's estimate of a in P(X > t) ~ t^-a from the `largest` samples, with the interval of an exact power law."""
    values = np.sort(np.asarray(samples, np.float64))
    if not 2 <= largest < len(values) or not values[-largest - 1] > 0 or not np.isfinite(values).all():
        raise InputError(f"a tail of {largest} needs more finite samples than that, positive ones; got {len(values)}")
    excess = float(np.log(values[-largest:] / values[-largest - 1]).sum())
    if excess == 0:
        raise InputError("the tail has only one value, so its exponent cannot be estimated")
    value = largest / excess
    # The excesses of a power law are exponential with rate a, so a * excess is Gamma(largest).
    error = (1 - check_confidence(confidence)) / 2
    low, high = (float(gammaincinv(largest, side)) / excess for side in (error, 1 - error))
    return Estimate(value, low, high, confidence, len(values))


def welch_difference(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The mean of the first group minus that of the second with Welch's interval, whatever their variances."""
    groups = [np.asarray(group, np.float64) for group in (first, second)]
    if any(group.ndim != 1 or len(group) < 2 or not np.isfinite(group).all() for group in groups):
        raise InputError(
            f"Welch's interval needs two finite numbers or more per group, got {len(first)} and {len(second)}"
        )
    parts = [float(group.var(ddof=1)) / len(group) for group in groups]
    centre, spread = float(groups[0].mean() - groups[1].mean()), sum(parts)
    reach = 0.0
    if spread:
        freedom = spread**2 / sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
        reach = float(stdtrit(freedom, (1 + check_confidence(confidence)) / 2)) * math.sqrt(spread)
    return Estimate(centre, centre - reach, centre + reach, confidence, len(first) + len(second))
