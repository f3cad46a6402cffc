"""A sigma for each parameter of the network: what isotropic noise costs, in a closed form.

With sigma_g for group g the sharpness term is sum_g sigma_g^2 G_g and KL is sum_g L_g / 2 sigma_g^2. For any KL the
first is smallest with sigma_g^2 = c sqrt(L_g / G_g): both are then functions of S = sum_g sqrt(L_g G_g) alone, and the
problem is that of one sigma^2 = c with L = G = S. Cauchy and Schwarz: S^2 <= L G, so it is never worse than one sigma.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.optimize import minimize_scalar

from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.alquier import Setting
from flipscope.bounds.pac_bayes.checks import check_finite_positive, check_not_negative


@dataclass(frozen=True)
class GroupBound:
    """The bound with a sigma per group, and its terms."""

    sigmas: dict[str, float]
    sharpness_term: float
    norm_term: float
    bound: float


def group_bound(
    norms: Mapping[str, float],
    gradients: Mapping[str, float],
    samples: int,
    *,
    delta: float = 0.05,
    subgaussian: float = 0.01,
    largest_sigma: float = 1.0,
) -> GroupBound:
    """The best bound with a sigma per group, from the bounds of each group's squared norm and squared gradient.

    No sigma exceeds the largest, which is what a group without a gradient gets: without P nothing else would stop it.

    >>> from flipscope.bounds.pac_bayes import gradient_blocks, norm_blocks
    >>> found = group_bound(norm_blocks(10, 2, 20), gradient_blocks(10, 2), 1_000_000)
    >>> found.bound < 0.2391
    True
    """
    if set(norms) != set(gradients) or not norms:
        raise InputError("norms and gradients must be of the same groups, and of at least one")
    for name in norms:
        check_not_negative(f"the norm of {name}", norms[name])
        check_not_negative(f"the gradient of {name}", gradients[name])
    check_finite_positive("largest_sigma", largest_sigma)
    plain = Setting(0.0, samples, delta, subgaussian)  # the divergence is put in below

    def sigmas(log: float) -> dict[str, float]:
        found = {}
        for name, norm in norms.items():
            gradient = gradients[name]
            square = math.exp(log) * math.sqrt(norm / gradient) if gradient else math.inf
            found[name] = min(math.sqrt(square), largest_sigma) or largest_sigma * 1e-12
        return found

    def terms(chosen: Mapping[str, float]) -> tuple[float, float]:
        sharpness = math.fsum(chosen[name] ** 2 * gradients[name] for name in norms)
        divergence = math.fsum(norms[name] / (2 * chosen[name] ** 2) for name in norms)
        cost = divergence + math.log(1 / plain.delta)
        return sharpness, 2 * subgaussian * math.sqrt(cost / (2 * samples))

    found = minimize_scalar(
        lambda log: math.log(sum(terms(sigmas(log)))), bounds=(-60.0, 20.0), method="bounded", options={"xatol": 1e-9}
    )
    best = sigmas(float(found.x))
    sharpness, norm = terms(best)
    return GroupBound(best, sharpness, norm, sharpness + norm)
