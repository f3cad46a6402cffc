"""Intervals for what has no bounds: the mean of a few slopes or exponents, one from each model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from flipscope.cube.intervals import Estimate, check_confidence
from flipscope.errors import InputError


def student_mean(samples: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The mean with Student's interval: right for normal samples, and nearly so for means of a dozen others."""
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise InputError(f"Student's interval needs two finite numbers or more, got {list(samples)[:5]}")
    centre = float(values.mean())
    reach = (
        float(stats.t.ppf((1 + check_confidence(confidence)) / 2, len(values) - 1))
        * float(values.std(ddof=1))
        / math.sqrt(len(values))
    )
    return Estimate(centre, centre - reach, centre + reach, confidence, len(values))


def tail_exponent(samples: Sequence[float], largest: int, confidence: float = 0.95) -> Estimate:
    """Hill's estimate of a in P(X > t) ~ t^-a from the `largest` samples, with the interval of an exact power law."""
    values = np.sort(np.asarray(samples, np.float64))
    if not 2 <= largest < len(values) or not values[-largest - 1] > 0 or not np.isfinite(values).all():
        raise InputError(f"a tail of {largest} needs more finite samples than that, positive ones; got {len(values)}")
    excess = float(np.log(values[-largest:] / values[-largest - 1]).sum())
    if excess == 0:
        raise InputError("the tail has one value only: its exponent cannot be told")
    value = largest / excess
    # The excesses of a power law are exponential with rate a, so a * excess is Gamma(largest).
    error = (1 - check_confidence(confidence)) / 2
    low, high = (float(stats.gamma.ppf(side, largest)) / excess for side in (error, 1 - error))
    return Estimate(value, low, high, confidence, len(values))
