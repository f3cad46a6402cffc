"""Sigma: how heavy the tails of a loss are, estimated from validation losses or certified for bounded ones."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_not_negative
from flipscope.basics.errors import InputError

_LARGEST_EXPONENT = math.log(2**32 - 1)  # of t times a loss, as the paper's code has it
_POINTS = 400


@checked_arguments
def estimated_subgaussian(losses: Float[np.ndarray, " sample"]) -> float:
    """The smallest Sigma with exp(Sigma^2 t^2 / 2) >= mean of exp(t (loss - mean loss)) for all t of a grid (App. A).

    The grid reaches to log(2^32 - 1) / largest loss on either side of 0, where the limit is the variance. It is an
    estimate, for the losses of one network: nothing is certified by it.

    >>> round(estimated_subgaussian(np.array([0.0, 0.02] * 500)), 4)  # two values, as far apart as Hoeffding allows
    0.01
    """
    values = np.asarray(losses, np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise InputError("losses must be a list of two or more finite numbers, one per validation string")
    centred = values - values.mean()
    largest = float(np.abs(values).max())
    if largest == 0 or not centred.any():
        return 0.0
    best = float(centred.var())
    for t in np.linspace(-1, 1, 2 * _POINTS + 1) * _LARGEST_EXPONENT / largest:
        if t:
            best = max(best, 2 * (float(logsumexp(t * centred)) - math.log(len(values))) / t**2)
    return math.sqrt(best)


@checked_arguments
def bounded_subgaussian(largest: float, smallest: float = 0.0) -> float:
    """Hoeffding's lemma: a loss between these is sub-Gaussian with Sigma = (largest - smallest) / 2 (Remark 4).

    >>> bounded_subgaussian(1.0)
    0.5
    """
    check_not_negative("largest - smallest", largest - smallest)
    return (largest - smallest) / 2
