"""A sigma for each parameter of the network: what isotropic noise costs, in a closed form.

With sigma_g for group g the sharpness term is sum_g sigma_g^2 G_g and KL is sum_g L_g / 2 sigma_g^2. For any KL the
first is smallest with sigma_g^2 = c sqrt(L_g / G_g): both are then functions of S = sum_g sqrt(L_g G_g) alone, and the
problem is that of one sigma^2 = c with L = G = S. Cauchy and Schwarz: S^2 <= L G, so it is never worse than one sigma.

The sharpness term is of second order, and holds only while no neuron of the network flips. A group without a gradient,
such as the first layer's attention, costs nothing to second order however large its sigma, though the network it
belongs to is soon destroyed: so no sigma may exceed the threshold of Lemma 22.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.optimize import minimize_scalar

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.alquier import Setting
from flipscope.bounds.pac_bayes.norms import NormBlocks
from flipscope.bounds.pac_bayes.perturbation import flip_threshold


@dataclass(frozen=True)
class GroupBound:
    """The bound with a sigma per group, and its terms."""

    sigmas: dict[str, float]
    largest_sigma: float  # that a group may have
    sharpness_term: float
    norm_term: float
    bound: float


@checked_arguments
def group_bound(
    norms: Mapping[str, float],
    gradients: Mapping[str, float],
    samples: int,
    *,
    delta: float = 0.05,
    subgaussian: float = 0.01,
    largest_sigma: float | None = None,
) -> GroupBound:
    """The best bound with a sigma per group, from the bounds of each group's squared norm and squared gradient.

    No sigma exceeds the largest, which is what a group without a gradient gets. For the norms of `norm_blocks` that is
    the `flip_threshold` of their class, beyond which the bound is not true; for norms of another network it must be
    given.

    >>> from flipscope.bounds.pac_bayes import gradient_blocks, norm_blocks
    >>> found = group_bound(norm_blocks(10, 2, 20), gradient_blocks(10, 2), 1_000_000)
    >>> round(found.bound, 3), round(found.sigmas["value"], 5)  # 0.174 with one sigma below the threshold
    (0.162, 0.00238)
    """
    if set(norms) != set(gradients) or not norms:
        raise InputError("norms and gradients must be of the same groups, and of at least one")
    for name in norms:
        check_not_negative(f"the norm of {name}", norms[name])
        check_not_negative(f"the gradient of {name}", gradients[name])
    limit = _flip_limit(norms) if largest_sigma is None else check_positive("largest_sigma", largest_sigma)
    plain = Setting(0.0, samples, delta, subgaussian)  # the divergence is put in below

    def sigmas(log: float) -> dict[str, float]:
        found = {}
        for name, norm in norms.items():
            gradient = gradients[name]
            square = math.exp(log) * math.sqrt(norm / gradient) if gradient else math.inf
            found[name] = min(math.sqrt(square), limit) or limit * 1e-12
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
    return GroupBound(best, limit, sharpness, norm, sharpness + norm)


def _flip_limit(norms: Mapping[str, float]) -> float:
    """The largest sigma at which no neuron flips in networks of the class that the norms are of."""
    if not isinstance(norms, NormBlocks):
        raise InputError("where neurons of a network with these norms flip is not known: give largest_sigma")
    limit = flip_threshold(norms.degree, norms.length)
    if not limit:
        raise InputError(
            f"degree={norms.degree} and length={norms.length} leave the MLP no plateau, so that neurons flip at every "
            "sigma: give longer strings"
        )
    return limit
