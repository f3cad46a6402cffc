"""Choices that may depend on the data: lambda and sigma from grids, paid for by a union bound.

Alquier's bound is for one lambda and one prior. Who looks at the norm or the trace of a trained network before choosing
has to have it for all choices at once: with K of them, log(K / delta) in the place of log(1 / delta).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flipscope.basics.checks import check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.checks import check_sigma

SIGMAS = tuple(float(each) for each in np.geomspace(1e-6, 1.0, 61))
POSTERIOR_SIGMAS = tuple(float(each) for each in np.geomspace(1e-5, 0.3, 25))  # each of which costs all its draws


@dataclass(frozen=True)
class Grids:
    """The sigmas, and the lambdas as multiples of sqrt(m) / Sigma; both are fixed before the data are seen.

    >>> Grids(sigmas=(0.1, 0.01), multiples=(1.0,)).log_choices == math.log(2)
    True
    """

    sigmas: tuple[float, ...] = SIGMAS
    multiples: tuple[float, ...] = field(default=tuple(float(2.0 ** (k / 2)) for k in range(-4, 61)))

    def __post_init__(self) -> None:
        for name in ("sigmas", "multiples"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise InputError(f"{name} must be one or more different numbers")
            for value in values:
                (check_sigma if name == "sigmas" else check_positive)(name, value)

    @property
    def log_choices(self) -> float:
        """log K: what the union costs."""
        return math.log(len(self.sigmas) * len(self.multiples))
