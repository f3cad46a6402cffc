"""Bounds for a network that somebody trained: its own norm and trace, or its own perturbed losses, go in.

`trace_bound` puts L^ + sigma^2 Tr / 2 in the place of the perturbed training loss: quick, and no proof, since the
Taylor series ends there. `posterior_bound` draws from the posterior and bounds the perturbed training loss by the
draws; with a loss that is cut off at `largest`, all choices made from grids, and everything that the samples could have
changed in the divergence (`counted`), what it says is proven for independent samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.bits import as_numbers
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import mean_from_samples
from flipscope.basics.limits import check_memory
from flipscope.basics.progress import Progress
from flipscope.basics.seeds import Seed, generators
from flipscope.bounds.pac_bayes.alquier import Setting, fewest_samples
from flipscope.bounds.pac_bayes.bounded import catoni_bound, mcallester_bound
from flipscope.bounds.pac_bayes.checks import check_delta, check_finite_positive, check_not_negative
from flipscope.bounds.pac_bayes.divergence import Fixed, Outside, counted
from flipscope.bounds.pac_bayes.forms import SUBGAUSSIAN, PacBayes
from flipscope.bounds.pac_bayes.grids import POSTERIOR_SIGMAS, Grids
from flipscope.bounds.pac_bayes.subgaussian import bounded_subgaussian
from flipscope.models.movable_parameters import MovableParameters
from flipscope.probes.asking import Inputs, asked

INDEPENDENT = "the samples are independent draws from one distribution, and all the samples the network saw"
CENTRE = "the prior is centred at 0 or at a point that does not depend on the samples"
TAYLOR = "the perturbed training loss is its second-order term: the remainder of Thm 12 is left out"
GUESSED = "Sigma is given, and not proven"
_BETAS = tuple(float(2.0 ** (k / 2)) for k in range(-40, 11))  # of Catoni's bound


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
    check_finite_positive("level", level)
    choices = Grids() if grids is None else grids
    setting = Setting(norm, samples, delta, subgaussian)
    losses = {sigma: loss + sigma**2 * trace / 2 for sigma in choices.sigmas}
    found = _best(setting, losses, choices)
    needed = fewest_samples(lambda m: _best(replace(setting, samples=m), losses, choices).bound, level)
    return PacBayes(
        "trace",
        trace / 2,
        norm,
        0.0,
        found.sigma,
        found.lam,
        losses[found.sigma],
        found.bound - losses[found.sigma],
        found.bound,
        not found.bound < level,
        needed,
        False,
        (INDEPENDENT, CENTRE, TAYLOR, GUESSED, SUBGAUSSIAN),
    )


@dataclass(frozen=True)
class _Choice:
    bound: float
    sigma: float
    lam: float


def _best(setting: Setting, losses: dict[float, float], choices: Grids) -> _Choice:
    """The best of the grid, each choice having its share of delta."""
    sigmas, multiples = np.array(list(losses)), np.array(choices.multiples)
    complexity = setting.norm / (2 * sigmas**2) + math.log(1 / setting.delta) + choices.log_choices
    root = math.sqrt(setting.samples)
    # lambda = multiple sqrt(m) / Sigma, [sigma, multiple]
    terms = (multiples / 2 + complexity[:, None] / multiples) * (setting.subgaussian / root)
    bounds = np.array(list(losses.values()))[:, None] + terms
    row, column = np.unravel_index(int(bounds.argmin()), bounds.shape)
    lam = float(multiples[column]) * root / setting.subgaussian
    return _Choice(float(bounds[row, column]), float(sigmas[row]), lam)


@dataclass(frozen=True)
class PosteriorBound:
    """Alquier's bound from draws of the posterior, and those of McAllester and Catoni, each at the same delta."""

    alquier: PacBayes
    mcallester: float
    catoni: float
    draws: int
    training_loss: float  # of the network itself, cut off
    outside: Outside  # what is not in the divergence

    def as_json(self) -> dict[str, Any]:
        """What `flipscope bound pac-bayes MODEL --json` prints."""
        others = {"mcallester": self.mcallester, "catoni": self.catoni}
        told = {**others, "draws": self.draws, "training_loss": self.training_loss}
        return self.alquier.as_json() | told | self.outside.as_json()


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
    were. Buffers of modules that are not flipscope's own, such as the running statistics of a batch norm, leave it
    without a certificate unless they are declared fixed too. Vacuous is what is not below `level`, the largest loss by
    default.
    """
    check_finite_positive("largest", largest)
    check_delta(delta)
    draws = check_count("draws", draws, 2)
    choices = Grids(sigmas=POSTERIOR_SIGMAS) if grids is None else grids
    check_memory(8 * len(choices.sigmas) * draws, f"the losses of {draws:,} draws", "give fewer")
    limit = largest if level is None else check_finite_positive("level", level)
    moved, norm, outside = counted(model, fixed)
    own, means = _perturbed_losses(model, inputs, targets, largest, choices.sigmas, draws, moved, seed, progress)
    share = delta / 3 / len(choices.sigmas)
    # One side of an interval with twice the error is all that is used of it.
    losses = {
        sigma: min(mean_from_samples(values, 0.0, largest, 1 - 2 * share, "fixed").high, largest)
        for sigma, values in means.items()
    }
    samples = len(np.asarray(targets))
    setting = Setting(norm, samples, 2 * delta / 3, bounded_subgaussian(largest))
    found = _best(setting, losses, choices)
    alquier = PacBayes(
        "posterior",
        None,
        norm,
        0.0,
        found.sigma,
        found.lam,
        losses[found.sigma],
        found.bound - losses[found.sigma],
        found.bound,
        not found.bound < limit,
        fewest_samples(lambda m: _best(replace(setting, samples=m), losses, choices).bound, limit),
        not outside.uncounted,
        (
            INDEPENDENT,
            CENTRE,
            *outside.assumptions,
            f"the loss is the squared error, cut off at {largest:g}, of the network with noise",
        ),
    )
    kept = setting.delta / len(losses)
    kl = {sigma: norm / (2 * sigma**2) for sigma in losses}
    mcallester = min(mcallester_bound(losses[s], kl[s], samples, kept, largest) for s in losses)
    catoni = min(
        catoni_bound(losses[s], kl[s], samples, beta, kept / len(_BETAS), largest) for s in losses for beta in _BETAS
    )
    return PosteriorBound(alquier, mcallester, catoni, draws, own, outside)


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
    wanted = torch.as_tensor(as_numbers(targets, "targets"))
    streams = generators(seed, len(sigmas))
    with asked(model, inputs, None, None) as (asking, before), MovableParameters(moved) as moving:
        if before.shape != wanted.shape:
            raise InputError(
                f"targets of shape {tuple(wanted.shape)} must be one for each of the {len(before)} outputs"
            )

        def mean(outputs: Tensor) -> float:
            squares = (outputs.double().cpu() - wanted).square()
            return float(squares.nan_to_num(largest, largest, largest).clamp(max=largest).mean())

        own = mean(before)
        found: dict[float, Float[np.ndarray, " draw"]] = {}
        for sigma, stream in zip(sigmas, streams, strict=True):
            values = np.empty(draws)
            for number in range(draws):
                moving.to(torch.from_numpy(stream.normal(size=moving.count)), sigma)
                values[number] = mean(asking.outputs())
                if progress is not None:
                    progress(len(found) * draws + number + 1, len(sigmas) * draws)
            found[sigma] = values
    return own, found
