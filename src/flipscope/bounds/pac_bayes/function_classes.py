"""Thm 2 for all functions of one sparsity and degree: three forms of the bound, and one with a sigma per parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from scipy.optimize import minimize_scalar

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_not_negative, check_positive
from flipscope.basics.errors import InputError
from flipscope.bounds.pac_bayes.construction import (
    NormBlocks,
    check_class,
    flip_threshold,
    gradient_bound,
    gradient_sum,
    norm_bound,
    perturbation_term,
)
from flipscope.bounds.pac_bayes.inequalities import (
    Setting,
    bound_at,
    closed_sigma,
    fewest_samples,
    mesh_sigma,
    scipy_sigma,
)

Form: TypeAlias = Literal["truncated", "semi-analytic", "analytic"]
Added: TypeAlias = "float | Mapping[float, float] | Callable[[float], float]"  # P: one number, by sigma, or a function

DOMINATED = (
    "the learned network has training loss 0, and its norm and its expected perturbed trace are at most the "
    "construction's (Remark 3)"
)
SUBGAUSSIAN = "the loss is sub-Gaussian with the given Sigma, for every network the posterior draws"
TRUNCATED = "P, what a perturbation adds to the trace, is left out"
MEASURED = "P is an estimate from random functions of the class"
SMALL = "terms of second order in sigma are left out of P, and no neuron flips"


@dataclass(frozen=True)
class PacBayes:
    """A bound on the expected loss of the perturbed network, and its terms.

    `vacuous` means that it is not below the level, by default 1. The best constant predictor has a loss of 1/4 on the
    paper's targets, so that a bound above 0.25 is no better than that.
    """

    form: str
    gradient_bound: float | None  # None where none is used
    norm_bound: float
    perturbation: float  # P at sigma
    sigma: float
    lam: float
    sharpness_term: float
    norm_term: float
    bound: float
    vacuous: bool
    samples_needed: int | None
    certified: bool
    assumptions: tuple[str, ...]
    sigma_limit: float | None = None  # beyond which neurons may flip, and the Taylor series of Thm 12 says little

    def as_json(self) -> dict[str, Any]:
        """What `flipscope bound pac-bayes --json` prints."""
        return {
            "form": self.form,
            "gradient_bound": self.gradient_bound,
            "norm_bound": self.norm_bound,
            "perturbation": self.perturbation,
            "sigma": self.sigma,
            "sigma_limit": self.sigma_limit,
            "lambda": self.lam,
            "sharpness_term": self.sharpness_term,
            "norm_term": self.norm_term,
            "bound": self.bound,
            "vacuous": self.vacuous,
            "samples_needed": self.samples_needed,
            "certified": self.certified,
            "assumptions": list(self.assumptions),
        }


@checked_arguments
def class_bound(
    sparsity: int,
    degree: int,
    length: int,
    samples: int,
    *,
    delta: float = 0.05,
    subgaussian: float = 0.01,
    form: Form = "truncated",
    perturbation: Added | None = None,
    tight: bool = False,
    mend: bool = False,
    strict: bool = False,
    sigma: float | None = None,
    level: float = 1.0,
) -> PacBayes:
    """Thm 2 for functions of this sparsity and degree.

    form          "truncated" leaves P out, "semi-analytic" takes the `perturbation` that was measured: a number,
                  numbers by sigma, or a function; "analytic" takes Thm 17's
    tight         `gradient_sum` in the place of G_u
    mend, strict  see `perturbation_term`; strict also halves P, as (2 G_u + P) / 2 says
    sigma         instead of the best: in closed form where P does not depend on it, among those that P is known at,
                  else by SciPy

    >>> found = class_bound(10, 2, 20, 1_000_000)
    >>> round(found.bound, 4), found.vacuous, found.samples_needed
    (0.2391, False, 13664)
    """
    check_class(sparsity, degree, length)
    check_positive("level", level)
    if form not in get_args(Form):
        raise InputError(f"form={form!r} is not one of {', '.join(get_args(Form))}")
    if (perturbation is not None) != (form == "semi-analytic"):
        raise InputError(f"perturbation is for form='semi-analytic', which needs it: form={form!r} was given")
    gradient = gradient_sum(sparsity, degree) if tight else gradient_bound(sparsity, degree)
    setting = Setting(norm_bound(sparsity, degree, length), samples, delta, subgaussian)
    share = 0.5 if strict else 1.0

    def added(at: float) -> float:
        if form == "analytic":
            return perturbation_term(at, sparsity, degree, length, mend=mend, strict=strict).value
        return 0.0 if perturbation is None else added_at(perturbation, at)

    def sharpness(at: float) -> float:
        return at**2 * (gradient + share * added(at))

    def best(given: Setting) -> float:
        if form == "truncated":
            return closed_sigma(given, gradient)
        if isinstance(perturbation, Mapping):
            return mesh_sigma(given, sharpness, tuple(perturbation))
        if perturbation is not None and not callable(perturbation):
            return closed_sigma(given, gradient + share * perturbation)
        return scipy_sigma(given, sharpness)

    at = best(setting) if sigma is None else sigma
    needed = fewest_samples(lambda m: _with(setting, m, sharpness, best), level)
    bound = bound_at(setting, sharpness, at)
    assumptions = [DOMINATED, SUBGAUSSIAN]
    assumptions += {"truncated": [TRUNCATED], "semi-analytic": [MEASURED], "analytic": [SMALL]}[form]
    limit = flip_threshold(degree, length)
    if at > limit:
        assumptions.append(
            f"neurons do not flip, although sigma is beyond {limit:.2g}: Lemma 22 does not promise it, and P and the "
            "Taylor series of Thm 12 are not valid if they do"
        )
    return PacBayes(
        form,
        gradient,
        setting.norm,
        added(at),
        at,
        setting.best_lambda(at),
        sharpness(at),
        setting.norm_term(at),
        bound,
        not bound < level,
        needed,
        False,
        tuple(assumptions),
        limit,
    )


def _with(
    setting: Setting, samples: int, sharpness: Callable[[float], float], best: Callable[[Setting], float]
) -> float:
    given = replace(setting, samples=samples)
    return bound_at(given, sharpness, best(given))


def added_at(perturbation: Added, sigma: float) -> float:
    """P at a sigma, from a number, numbers by sigma, or a function."""
    if isinstance(perturbation, Mapping):
        if sigma not in perturbation:
            raise InputError(f"perturbation has no value for sigma={sigma:g}: give one of those it has")
        return check_not_negative("perturbation", perturbation[sigma])
    return check_not_negative("perturbation", perturbation(sigma) if callable(perturbation) else perturbation)


# ---------------------------------------------------------------- a sigma for each parameter
#
# What isotropic noise costs, in a closed form. With sigma_g for group g the sharpness term is sum_g sigma_g^2 G_g and
# KL is sum_g L_g / 2 sigma_g^2. For any KL the first is smallest with sigma_g^2 = c sqrt(L_g / G_g): both are then
# functions of S = sum_g sqrt(L_g G_g) alone, and the problem is that of one sigma^2 = c with L = G = S. Cauchy and
# Schwarz: S^2 <= L G, so it is never worse than one sigma.
#
# The sharpness term is of second order, and holds only while no neuron of the network flips. A group without a
# gradient, such as the first layer's attention, costs nothing to second order however large its sigma, though the
# network it belongs to is soon destroyed: so no sigma may exceed the threshold of Lemma 22.


@dataclass(frozen=True)
class GroupBound:
    """The bound with a sigma per group, and its terms."""

    sigmas: dict[str, float]
    largest_sigma: float  # the largest sigma that is allowed
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
        chosen = {}
        for name, norm in norms.items():
            gradient = gradients[name]
            square = math.exp(log) * math.sqrt(norm / gradient) if gradient else math.inf
            chosen[name] = min(math.sqrt(square), limit) or limit * 1e-12
        return chosen

    def terms(chosen: Mapping[str, float]) -> tuple[float, float]:
        sharpness = math.fsum(chosen[name] ** 2 * gradients[name] for name in norms)
        divergence = math.fsum(norms[name] / (2 * chosen[name] ** 2) for name in norms)
        cost = divergence + math.log(1 / plain.delta)
        return sharpness, 2 * subgaussian * math.sqrt(cost / (2 * samples))

    optimum = minimize_scalar(
        lambda log: math.log(sum(terms(sigmas(log)))), bounds=(-60.0, 20.0), method="bounded", options={"xatol": 1e-9}
    )
    best = sigmas(float(optimum.x))
    sharpness, norm = terms(best)
    return GroupBound(best, limit, sharpness, norm, sharpness + norm)


def _flip_limit(norms: Mapping[str, float]) -> float:
    """The largest sigma at which no neuron flips in networks of the class that the norms are of."""
    if not isinstance(norms, NormBlocks):
        raise InputError(
            "the sigma at which neurons of a network with these norms flip is not known: give largest_sigma"
        )
    limit = flip_threshold(norms.degree, norms.length)
    if not limit:
        raise InputError(
            f"degree={norms.degree} and length={norms.length} leave the MLP no plateau, so that neurons flip at every "
            "sigma: give longer strings"
        )
    return limit
