"""Parity with a chain of thought and in one pass: the probability of a wrong answer (Thms 7, 8 and 16).

The bound of Thm 2 set to 1/2 and solved for delta; a wrong rounding has a squared error of at least 1/4, hence the
factor 4 (Markov), and T steps may go wrong:

    delta <= 4 steps exp{-m / 8 Sigma^2 + m sigma^2 (2 G_u + P) / 4 Sigma^2 + L / 2 sigma^2}

with G_u(1, 2) and L(1, 2, T) for T steps, G_u(1, T) and L(1, T, T) for one pass. Everything is a logarithm here. The
exponent of one pass is at least T/2 times the other's: T times, by a reading of the paper, fails for G_u at T = 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.construction import gradient_bound, norm_bound, steps_norm_bound
from flipscope.bounds.pac_bayes.inequalities import check_samples, check_sigma

Way = Literal["steps", "one-pass"]
Norm = Literal["paper", "construction"]


@dataclass(frozen=True)
class ParityFailure:
    """An upper bound on the logarithm of the probability of a wrong parity; vacuous where it is not negative."""

    way: Way
    length: int
    gradient_bound: float
    norm_bound: float
    sigma: float
    log_probability: float
    vacuous: bool
    samples_needed: int

    def as_json(self) -> dict[str, Any]:
        """The fields."""
        return dict(vars(self))


@checked_arguments
def parity_failure(
    way: Way,
    length: int,
    samples: int,
    *,
    subgaussian: float = 0.01,
    sigma: float | None = None,
    perturbation: float = 0.0,
    norm: Norm = "paper",
) -> ParityFailure:
    """The bound for parity of `length` bits, learned from `samples` samples.

    By default `sigma` is the best for P = 0. norm="construction" takes the norm bound of the network of App. G instead
    of L(1, 2, T), which is smaller (`steps_norm_bound`).

    >>> round(parity_failure("steps", 20, 8192).log_probability)
    -3796761
    >>> parity_failure("steps", 20, 8192).samples_needed, parity_failure("one-pass", 20, 8192).vacuous
    (3244, True)
    """
    length = check_count("length", length, 2)
    check_samples(samples)
    check_positive("subgaussian", subgaussian)
    check_not_negative("perturbation", perturbation)
    if way not in get_args(Way):
        raise InputError(f"way={way!r} is not one of {', '.join(get_args(Way))}")
    if norm not in get_args(Norm):
        raise InputError(f"norm={norm!r} is not one of {', '.join(get_args(Norm))}")
    degree = 2 if way == "steps" else length
    gradient = float(gradient_bound(1, degree))
    size = norm_bound(1, degree, length)
    if way == "steps" and norm == "construction":
        size = steps_norm_bound(length)
    prefactor = math.log(4 * length if way == "steps" else 4)
    best = (size * subgaussian**2 / (samples * gradient)) ** 0.25
    at = best if sigma is None else check_sigma("sigma", sigma)
    trace = 2 * gradient + perturbation
    log_probability = (
        prefactor - samples / (8 * subgaussian**2) + samples * at**2 * trace / (4 * subgaussian**2) + size / (2 * at**2)
    )
    # With the best sigma and P = 0 prefactor - u^2 / 8 + sqrt(G L) u, u = sqrt(m) / Sigma, below 0 beyond a root.
    both = gradient * size
    root = 4 * (math.sqrt(both) + math.sqrt(both + prefactor / 2))
    needed = math.floor((subgaussian * root) ** 2) + 1
    return ParityFailure(way, length, gradient, size, at, log_probability, log_probability >= 0, needed)


@checked_arguments
def strict_log_failure(
    length: int, samples: int, sigma: float, *, way: Way = "steps", subgaussian: float = 0.01, perturbation: float = 0.0
) -> float:
    """The sharper form, without the step (1/2 - s)^2 >= 1/4 - s for the sharpness term s; infinite from s = 1/2 on.

    >>> strict_log_failure(20, 8192, 1e-3) <= parity_failure("steps", 20, 8192, sigma=1e-3).log_probability
    True
    """
    failure = parity_failure(way, length, samples, subgaussian=subgaussian, sigma=sigma, perturbation=perturbation)
    sharpness = sigma**2 * (2 * failure.gradient_bound + perturbation) / 2
    if sharpness >= 0.5:
        return math.inf
    prefactor = math.log(4 * length if way == "steps" else 4)
    return prefactor - samples * (0.5 - sharpness) ** 2 / (2 * subgaussian**2) + failure.norm_bound / (2 * sigma**2)
