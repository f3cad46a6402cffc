"""Bounds for a trained network: from its norm and trace, from draws of a posterior, or from queries alone.

trace_bound      from its norm and the trace of the Hessian: L^ + sigma^2 Tr / 2 stands for the perturbed training
                 loss. Quick, and no proof, since the Taylor series ends there.
posterior_bound  from draws of the posterior, which bound the perturbed training loss. With a loss that is cut off at
                 `largest`, all choices made from grids, and everything that the samples could have changed in the
                 divergence (`counted`), what it says is proven for independent samples.
black_box_bound  from queries alone: property testers estimate degree and sparsity, and Thm 2 for that class does
                 the rest (App. H).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.adapters.inputs import Inputs
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import chosen, constants, matching, plain_tensors
from flipscope.adapters.settled import as_settled
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_count, check_not_negative, check_positive, check_probability
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.limits import check_memory
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import Seed, generators
from flipscope.bounds.pac_bayes.function_classes import SUBGAUSSIAN, PacBayes, class_bound
from flipscope.bounds.pac_bayes.inequalities import (
    POSTERIOR_SIGMAS,
    Grids,
    Setting,
    bounded_subgaussian,
    catoni_bound,
    fewest_samples,
    mcallester_bound,
)
from flipscope.cube.estimate import Range
from flipscope.cube.testers import Sweep
from flipscope.probes.asking import asked
from flipscope.probes.fourier import Asked, first_degree, first_sparsity

INDEPENDENT = "the samples are independent draws from one distribution, and all the samples the network saw"
CENTRE = "the prior is centred at 0 or at a point that does not depend on the samples"
TAYLOR = "the perturbed training loss is its second-order term: the remainder of Thm 12 is left out"
GUESSED = "Sigma is given, and not proven"
NOTHING_ELSE = "nothing in the network but the parameters counted in the norm depends on the samples"
TESTED = "degree and sparsity are what the testers accepted first: never more than the true ones, but perhaps fewer"
_BETAS = tuple(float(2.0 ** (k / 2)) for k in range(-40, 11))  # of Catoni's bound

Fixed: TypeAlias = str | Sequence[str] | None  # patterns of names, such as "embedding.*" (as in a shell)

# ---------------------------------------------------------------- the divergence
#
# KL = ||Theta||^2 / 2 sigma^2 is for a prior that was fixed before the samples were seen. Whatever is left out of Theta
# must have been fixed then as well: a learned position that is not counted makes the bound meaningless. So all
# parameters count, frozen ones too, since it is not known when they were frozen; only the user can say what was fixed.


@dataclass(frozen=True)
class Outside:
    """The parameters, buffers and other tensors of a network that are not in the divergence, by name."""

    fixed: tuple[str, ...]  # parameters and others: declared, or constants of flipscope's own networks
    uncounted: tuple[str, ...]  # buffers and other tensors that may depend on the samples, and have no noise

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions under which the norm accounts for everything that depends on the samples."""
        if not self.fixed:
            return (NOTHING_ELSE,)
        return (NOTHING_ELSE, f"fixed before the samples were seen: {', '.join(self.fixed)}")

    @property
    def reason(self) -> str | None:
        """Why nothing can be certified; None where something can."""
        if not self.uncounted:
            return None
        return (
            f"not certified, since training may have set {', '.join(self.uncounted)} from the samples, and no Gaussian "
            "is around what is no parameter: name them in fixed if they were set before"
        )

    def as_json(self) -> dict[str, Any]:
        """Its part of the JSON document of every bound for a saved model."""
        return {"fixed": list(self.fixed), "uncounted": list(self.uncounted), "reason": self.reason}


def counted(model: nn.Module, fixed: Fixed = None) -> tuple[dict[str, nn.Parameter], float, Outside]:
    """The parameters in the divergence, their ||Theta||^2, and what is outside it.

    In the divergence are all parameters except those that the user declares `fixed` before the samples were seen.
    Buffers, such as the running statistics of a batch norm, and tensors that modules have as plain attributes can be
    declared fixed as well; otherwise they are `uncounted`. Each pattern must match something.

    >>> parameters, norm, outside = counted(nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)), fixed="0.*")
    >>> list(parameters), norm, outside.uncounted[0]
    (['1.weight', '1.bias'], 1.0, '1.running_mean')
    """
    declared = frozenset(() if fixed is None else matching(model, fixed, "fixed"))
    parameters = chosen(model, lambda name: name not in declared)
    buffers = [*dict(model.named_buffers()), *plain_tensors(model)]
    known_fixed = declared | constants(model)
    outside = Outside(
        tuple(name for name in (*dict(model.named_parameters()), *buffers) if name in known_fixed),
        tuple(name for name in buffers if name not in known_fixed),
    )
    return parameters, math.fsum(float(each.detach().double().square().sum()) for each in parameters.values()), outside


# ---------------------------------------------------------------- from norm and trace


@checked_arguments
def trace_bound(
    norm: float,
    trace: float,
    samples: int,
    *,
    loss: float = 0.0,
    delta: float = 0.05,
    subgaussian: float = 0.01,
    grids: Grids | None = None,
    level: float = 1.0,
) -> PacBayes:
    """The bound for a network with this ||Theta||^2 (its distance from the prior's centre, squared) and this trace.

    `trace` is that of the training loss's Hessian, `loss` the training loss. Never certified: it is an approximation.

    >>> found = trace_bound(1303.929, 2 * 15524, 1_000_000)
    >>> 0.239 < found.bound < 0.26, found.certified  # a little more than with a sigma chosen in advance
    (True, False)
    """
    check_not_negative("trace", trace)
    check_not_negative("loss", loss)
    check_positive("level", level)
    choices = Grids() if grids is None else grids
    setting = Setting(norm, samples, delta, subgaussian)
    losses = {sigma: loss + sigma**2 * trace / 2 for sigma in choices.sigmas}
    assumptions = (INDEPENDENT, CENTRE, TAYLOR, GUESSED, SUBGAUSSIAN)
    return _grid_bound("trace", setting, losses, choices, level, assumptions, gradient=trace / 2, certified=False)


@dataclass(frozen=True)
class _Choice:
    bound: float
    sigma: float
    lam: float


def _grid_bound(
    form: str,
    setting: Setting,
    losses: dict[float, float],
    choices: Grids,
    level: float,
    assumptions: tuple[str, ...],
    *,
    gradient: float | None = None,
    largest: float = math.inf,
    certified: bool,
) -> PacBayes:
    """The bound at the best choice of the grid, from the perturbed training loss at each sigma.

    It is never more than the largest loss; where it would be, its terms say by how much.
    """
    best, level = _best(setting, losses, choices), min(level, largest)
    return PacBayes(
        form,
        gradient,
        setting.norm,
        0.0,
        best.sigma,
        best.lam,
        losses[best.sigma],
        best.bound - losses[best.sigma],
        min(best.bound, largest),
        not best.bound < level,
        fewest_samples(lambda m: _best(replace(setting, samples=m), losses, choices).bound, level),
        certified,
        assumptions,
    )


def _best(setting: Setting, losses: dict[float, float], choices: Grids) -> _Choice:
    """The best choice of the grid, where each has its share of delta."""
    sigmas, multiples = np.array(list(losses)), np.array(choices.multiples)
    complexity = setting.norm / (2 * sigmas**2) + math.log(1 / setting.delta) + choices.log_choices
    root = math.sqrt(setting.samples)
    # lambda = multiple sqrt(m) / Sigma, [sigma, multiple]
    terms = (multiples / 2 + complexity[:, None] / multiples) * (setting.subgaussian / root)
    bounds = np.array(list(losses.values()))[:, None] + terms
    row, column = np.unravel_index(int(bounds.argmin()), bounds.shape)
    lam = float(multiples[column]) * root / setting.subgaussian
    return _Choice(float(bounds[row, column]), float(sigmas[row]), lam)


# ---------------------------------------------------------------- from draws of the posterior


@dataclass(frozen=True)
class PosteriorBound:
    """Alquier's bound from draws of the posterior, and those of McAllester and Catoni, each at the same delta."""

    alquier: PacBayes
    mcallester: float
    catoni: float
    draws: int
    training_loss: float  # of the network itself, cut off
    outside: Outside  # the parameters and buffers that are not in the divergence

    def as_json(self) -> dict[str, Any]:
        """What `flipscope bound pac-bayes MODEL --json` prints."""
        others = {"mcallester": self.mcallester, "catoni": self.catoni}
        further = {**others, "draws": self.draws, "training_loss": self.training_loss}
        return self.alquier.as_json() | further | self.outside.as_json()


@checked_arguments
def posterior_bound(
    model: nn.Module,
    inputs: Inputs,
    targets: Float[np.ndarray, " sample"] | Float[Tensor, " sample"],
    *,
    largest: float = 1.0,
    delta: float = 0.05,
    draws: int = 100,
    grids: Grids | None = None,
    fixed: Fixed = None,
    seed: Seed = 0,
    level: float | None = None,
    progress: Progress | None = None,
) -> PosteriorBound:
    """A bound on the expected squared error, cut off at `largest`, of the network with noise of the best sigma.

    A third of delta is for the draws, whose mean is known only up to an interval, the rest for the bound. The inputs
    are what the network was trained on. All its parameters have noise and are in the divergence, but for those that
    patterns of names declare `fixed` before the samples were seen: the result names them, and is true only if they
    were. Buffers of modules that are not flipscope's own, such as the running statistics of a batch norm, and tensors
    that are plain attributes leave it without a certificate unless they are declared fixed too. No bound is more than
    the largest loss; it is vacuous if it is not below `level`, by default the largest loss.
    """
    check_positive("largest", largest)
    check_probability("delta", delta)
    draws = check_count("draws", draws, 2)
    choices = Grids(sigmas=POSTERIOR_SIGMAS) if grids is None else grids
    check_memory(8 * len(choices.sigmas) * draws, f"the losses of {draws:,} draws", "give fewer")
    limit = largest if level is None else check_positive("level", level)
    moved, norm, outside = counted(model, fixed)
    training_loss, means = _perturbed_losses(
        model, inputs, targets, largest, choices.sigmas, draws, moved, seed, progress
    )
    share = delta / 3 / len(choices.sigmas)
    # Only one side of the interval is used, hence twice the error.
    losses = {
        sigma: min(mean_from_samples(values, 0.0, largest, 1 - 2 * share, "fixed").high, largest)
        for sigma, values in means.items()
    }
    samples = len(np.asarray(targets))
    setting = Setting(norm, samples, 2 * delta / 3, bounded_subgaussian(largest))
    cut_off = f"the loss is the squared error, cut off at {largest:g}, of the network with noise"
    assumptions = (INDEPENDENT, CENTRE, *outside.assumptions, cut_off)
    alquier = _grid_bound(
        "posterior", setting, losses, choices, limit, assumptions, largest=largest, certified=not outside.uncounted
    )
    kept = setting.delta / len(losses)
    kl = {sigma: norm / (2 * sigma**2) for sigma in losses}
    mcallester = min(mcallester_bound(losses[s], kl[s], samples, kept, largest) for s in losses)
    catoni = min(
        catoni_bound(losses[s], kl[s], samples, beta, kept / len(_BETAS), largest) for s in losses for beta in _BETAS
    )
    others = (min(mcallester, largest), min(catoni, largest))
    return PosteriorBound(alquier, *others, draws, training_loss, outside)


def _perturbed_losses(
    model: nn.Module,
    inputs: Inputs,
    targets: Float[np.ndarray, " sample"] | Float[Tensor, " sample"],
    largest: float,
    sigmas: tuple[float, ...],
    draws: int,
    moved: dict[str, nn.Parameter],
    seed: Seed,
    progress: Progress | None,
) -> tuple[float, dict[float, Float[np.ndarray, " draw"]]]:
    """The training loss, and for each sigma that of every draw; squared errors are cut off one by one."""
    wanted = torch.as_tensor(as_numbers(targets, "targets"), device="cpu")
    if not bool(wanted.isfinite().all()):
        raise InputError("targets have NaN or infinite numbers, from which no output has a distance: leave these out")
    streams = generators(seed, len(sigmas))
    with asked(as_settled(model), inputs, None) as (asking, before), MovableParameters(moved) as moving:
        if before.shape != wanted.shape:
            raise InputError(
                f"targets of shape {tuple(wanted.shape)} must be one for each of the {len(before)} outputs"
            )

        def mean(outputs: Tensor) -> float:
            squares = (outputs.double().cpu() - wanted).square()
            return float(squares.nan_to_num(largest, largest, largest).clamp(max=largest).mean())

        training_loss = mean(before)
        by_sigma: dict[float, Float[np.ndarray, " draw"]] = {}
        for sigma, stream in zip(sigmas, streams, strict=True):
            values = np.empty(draws)
            for number in range(draws):
                moving.to(torch.from_numpy(stream.normal(size=moving.count)), sigma)
                values[number] = mean(asking.outputs())
                if progress is not None:
                    progress(len(by_sigma) * draws + number + 1, len(sigmas) * draws)
            by_sigma[sigma] = values
    return training_loss, by_sigma


# ---------------------------------------------------------------- from queries alone


@dataclass(frozen=True)
class BlackBox:
    """What the testers found, and the bound for that class."""

    degree: int
    sparsity: int
    queries: int
    bound: PacBayes

    def as_json(self) -> dict[str, Any]:
        """The bound, with the degree and sparsity that the testers found."""
        return self.bound.as_json() | {"degree": self.degree, "sparsity": self.sparsity, "queries": self.queries}


@checked_arguments
def black_box_bound(
    model: Asked,
    length: int,
    samples: int,
    *,
    value_range: Range,
    tolerance: float | None = None,
    trials: int | None = None,
    indicators: bool = True,
    free: int = 10,
    epsilon: float = 0.1,
    tail: float = 1e-3,
    delta: float = 0.05,
    subgaussian: float = 0.01,
    max_degree: int | None = None,
    restrictions: int | None = None,
    seed: Seed = 0,
) -> BlackBox:
    """The truncated bound for the class to which, by the testers, a real-valued model belongs.

    value_range  a range that its outputs never leave; for networks without a norm none is known
    tolerance    of the degree tester: a network that computes a function only approximately has no exact low degree
    trials       of the degree tester, instead of the number that its guarantee needs
    indicators   the target is a sum of indicators, whose constant is one coefficient more in the usual spectrum
    restrictions of the sparsity tester, instead of the number that its guarantee needs
    epsilon      the weight above the degree that is far, `tail` the energy outside the largest coefficients

    >>> from flipscope.cube.fourier_sums import random_sum
    >>> f = random_sum(12, 3, 2)
    >>> found = black_box_bound(lambda bits: f(bits.numpy().astype("uint8")), 12, 10**6, value_range=(0.0, 2.0))
    >>> found.degree, found.sparsity
    (2, 3)
    """
    for_degree, for_sparsity = generators(seed, 2)
    extra = {} if tolerance is None else {"tolerance": tolerance}
    degree = first_degree(
        model,
        length,
        max_degree=max_degree,
        values="logit",
        value_range=value_range,
        epsilon=epsilon,
        trials=trials,
        seed=for_degree,
        **extra,  # type: ignore[arg-type]
    )
    degree_found = _value(degree, "degree")
    if degree_found == 0:
        raise InputError("every query returned the same value: a constant model has degree 0 and belongs to no class")
    sparsity = first_sparsity(
        model,
        length,
        values="logit",
        value_range=value_range,
        free=min(free, length),
        epsilon=tail,
        restrictions=restrictions,
        seed=for_sparsity,
    )
    many = max(1, _value(sparsity, "sparsity") - int(indicators))
    bound = class_bound(many, degree_found, length, samples, delta=delta, subgaussian=subgaussian)
    with_assumption = PacBayes(**{**vars(bound), "assumptions": (*bound.assumptions, TESTED)})
    return BlackBox(degree_found, many, degree.queries + sparsity.queries, with_assumption)


def _value(sweep: Sweep, what: str) -> int:
    if sweep.value is None:
        raise InputError(f"the testers found no {what} for the model: {sweep.note}")
    return sweep.value
