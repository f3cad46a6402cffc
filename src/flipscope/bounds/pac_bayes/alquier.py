"""The PAC-Bayes bound of Alquier for sub-Gaussian losses, with Gaussians around a network (Thm 2, App. E.2).

For every lambda > 0, with probability 1 - delta over m samples, for all posteriors rho at once

    E_rho L <= E_rho L^ + lambda Sigma^2 / 2m + (KL(rho | pi) + log 1/delta) / lambda

rho = N(Theta, sigma^2 I) and pi = N(0, sigma^2 I) make KL = ||Theta||^2 / 2 sigma^2, and E_rho L^ is bounded by
sigma^2 (G_u + P), P being the paper's; strictly it is sigma^2 (2 G_u + P) / 2. Where norm and gradient are bounded in
advance, lambda and sigma may be chosen freely.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.checks import check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.checks import MOST_SAMPLES, check_delta, check_samples, check_sigma

MESH = tuple(float(each) for each in np.linspace(0.01, 0.00001, 20))  # of sigma, the paper's

Sharpness = Callable[[float], float]  # the sharpness term at a sigma


@dataclass(frozen=True)
class Setting:
    """What a bound is for: ||Theta||^2 or a bound on it, m, delta and Sigma."""

    norm: float
    samples: int
    delta: float
    subgaussian: float

    def __post_init__(self) -> None:
        check_fields(self)
        check_not_negative("norm", self.norm)
        check_samples(self.samples)
        check_delta(self.delta)
        check_positive("subgaussian", self.subgaussian)

    def complexity(self, sigma: float) -> float:
        """KL + log 1/delta at this sigma."""
        return self.norm / (2 * sigma**2) + math.log(1 / self.delta)

    def best_lambda(self, sigma: float) -> float:
        """lambda* = sqrt(2m (KL + log 1/delta)) / Sigma."""
        return math.sqrt(2 * self.samples * self.complexity(sigma)) / self.subgaussian

    def norm_term(self, sigma: float) -> float:
        """2 sqrt(Sigma^2 (KL + log 1/delta) / 2m): both terms of lambda, at lambda*."""
        return 2 * self.subgaussian * math.sqrt(self.complexity(sigma) / (2 * self.samples))

    def norm_term_at(self, sigma: float, lam: float) -> float:
        """lambda Sigma^2 / 2m + (KL + log 1/delta) / lambda, at any lambda."""
        return lam * self.subgaussian**2 / (2 * self.samples) + self.complexity(sigma) / lam


@checked_arguments
def closed_sigma(setting: Setting, gradient: float) -> float:
    """sigma* = (Sigma^2 L / 4 m G^2)^(1/6): the best without P and log 1/delta; sharpness is then half the norm term.

    >>> round(closed_sigma(Setting(1303.9294, 1_000_000, 0.05, 0.01), 15524) * 1e3, 4)
    2.2657
    """
    check_positive("gradient", gradient)
    check_positive("norm", setting.norm)
    return float((setting.subgaussian**2 * setting.norm / (4 * setting.samples * gradient**2)) ** (1 / 6))


@checked_arguments
def closed_bound(setting: Setting, gradient: float) -> float:
    """B* = 3 (G Sigma^2 L / 4m)^(1/3): the bound at sigma*, without P and log 1/delta.

    >>> round(closed_bound(Setting(1303.9294, 1_000_000, 0.05, 0.01), 15524), 4)
    0.2391
    """
    return 3 * float(np.cbrt(gradient * setting.subgaussian**2 * setting.norm / (4 * setting.samples)))


@checked_arguments
def bound_at(setting: Setting, sharpness: Sharpness, sigma: float) -> float:
    """The bound at this sigma, with the best lambda."""
    check_sigma("sigma", sigma)
    return sharpness(sigma) + setting.norm_term(sigma)


@checked_arguments
def mesh_sigma(setting: Setting, sharpness: Sharpness, mesh: tuple[float, ...] = MESH) -> float:
    """The best sigma of a mesh, as the semi-analytic bound takes it."""
    if not mesh:
        raise InputError("a mesh needs at least one sigma")
    return min(mesh, key=lambda sigma: bound_at(setting, sharpness, sigma))


@checked_arguments
def scipy_sigma(setting: Setting, sharpness: Sharpness, low: float = 1e-12, high: float = 10.0) -> float:
    """The best sigma between these, by SciPy's bounded search over log sigma.

    The paper starts SciPy's BFGS at 1e-3; a bounded search needs no start.
    """
    found = minimize_scalar(
        lambda log: math.log(bound_at(setting, sharpness, math.exp(log))),
        bounds=(math.log(check_positive("low", low)), math.log(check_positive("high", high))),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return math.exp(float(found.x))


@checked_arguments
def fewest_samples(bound: Callable[[int], float], level: float = 1.0) -> int | None:
    """The smallest number of samples with which a bound that falls with it is below the level; None beyond 10^100.

    >>> fewest_samples(lambda m: 10 / m)
    11
    """
    check_positive("level", level)
    high = 1
    while not bound(high) < level:
        if high >= MOST_SAMPLES:
            return None
        high = min(2 * high, MOST_SAMPLES)
    low = high // 2  # not below the level there, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) < level else (middle, high)
    return high
