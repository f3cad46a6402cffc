"""PAC-Bayes inequalities, whatever the network: for sub-Gaussian losses (Thm 2, App. E.2) and for bounded ones.

Alquier: for every lambda > 0, with probability 1 - delta over m samples, for all posteriors rho at once

    E_rho L <= E_rho L^ + lambda Sigma^2 / 2m + (KL(rho | pi) + log 1/delta) / lambda

rho = N(Theta, sigma^2 I) and pi = N(0, sigma^2 I) make KL = ||Theta||^2 / 2 sigma^2, and E_rho L^ is bounded by
sigma^2 (G_u + P), P being the paper's; strictly it is sigma^2 (2 G_u + P) / 2. Where norm and gradient are bounded in
advance, lambda and sigma may be chosen freely; where they are measured on a trained network, they come from `Grids`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import SupportsIndex

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.checks import check_count, check_not_negative, check_positive, check_probability
from flipscope.basics.errors import InputError

MOST_SAMPLES = 10**100  # the range of floats ends soon after
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-60, 1e60  # squares and products of these fit into floats
MESH = tuple(float(each) for each in np.linspace(0.01, 0.00001, 20))  # of sigma, the paper's
SIGMAS = tuple(float(each) for each in np.geomspace(1e-6, 1.0, 61))
POSTERIOR_SIGMAS = tuple(float(each) for each in np.geomspace(1e-5, 0.3, 25))  # each of which costs all its draws
_LARGEST_EXPONENT = math.log(2**32 - 1)  # of t times a loss, as the paper's code has it
_POINTS = 400

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
        check_probability("delta", self.delta)
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
    optimum = minimize_scalar(
        lambda log: math.log(bound_at(setting, sharpness, math.exp(log))),
        bounds=(math.log(check_positive("low", low)), math.log(check_positive("high", high))),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return math.exp(float(optimum.x))


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


def check_samples(samples: SupportsIndex) -> int:
    """The number of samples, after checking that it is valid."""
    count = check_count("samples", samples)
    if count > MOST_SAMPLES:
        raise InputError("samples must be at most 10^100")
    return count


def check_sigma(name: str, value: float) -> float:
    """The standard deviation of a noise, after checking that bounds can be computed with it."""
    if not SMALLEST_SIGMA <= check_positive(name, value) <= LARGEST_SIGMA:
        raise InputError(f"{name}={value!r} must lie between {SMALLEST_SIGMA:g} and {LARGEST_SIGMA:g}")
    return float(value)


# ---------------------------------------------------------------- choices that depend on the data  Alquier's bound is
# for one lambda and one prior. If they are chosen after seeing the norm or the trace of a trained network, it must hold
# for all choices at once: with K of them, log(K / delta) takes the place of log(1 / delta) (a union bound).


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
        """log K: the price of the union bound."""
        return math.log(len(self.sigmas) * len(self.multiples))


# ---------------------------------------------------------------- bounded losses


@checked_arguments
def mcallester_bound(loss: float, divergence: float, samples: int, delta: float = 0.05, largest: float = 1.0) -> float:
    """E L <= E L^ + largest sqrt((KL + log(2 sqrt(m) / delta)) / 2m), for all posteriors at once.

    >>> round(mcallester_bound(0.0, 10.0, 10_000), 4)
    0.0302
    """
    check_samples(samples)
    root = math.sqrt(
        (
            check_not_negative("divergence", divergence)
            + math.log(2 * math.sqrt(samples) / check_probability("delta", delta))
        )
        / (2 * samples)
    )
    return _checked_loss(loss, largest) + largest * root


@checked_arguments
def catoni_bound(
    loss: float, divergence: float, samples: int, beta: float, delta: float = 0.05, largest: float = 1.0
) -> float:
    """E L <= largest (1 - exp(-beta E L^ / largest - (KL + log 1/delta) / m)) / (1 - exp(-beta)), beta chosen before.

    >>> round(catoni_bound(0.0, 10.0, 10_000, 0.05), 4)
    0.0266
    """
    check_samples(samples)
    check_positive("beta", beta)
    share = _checked_loss(loss, largest) / largest
    cost = (check_not_negative("divergence", divergence) + math.log(1 / check_probability("delta", delta))) / samples
    return largest * math.expm1(-beta * share - cost) / math.expm1(-beta)


def _checked_loss(loss: float, largest: float) -> float:
    check_positive("largest", largest)
    if not 0 <= loss <= largest:
        raise InputError(f"loss={loss} must lie between 0 and largest={largest}")
    return loss


# ---------------------------------------------------------------- Sigma: how heavy the tails of a loss are


@checked_arguments
def estimated_subgaussian(losses: Float[np.ndarray, " sample"]) -> float:
    """The smallest Sigma with exp(Sigma^2 t^2 / 2) >= mean of exp(t (loss - mean loss)) for all t of a grid (App. A).

    The grid reaches to log(2^32 - 1) / largest loss on either side of 0, where the limit is the variance. It is an
    estimate for the losses of one network and certifies nothing.

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
