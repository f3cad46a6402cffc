"""The gap of learned sums of parities, what noise adds to the construction of their class, and the bound of Thm 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import flipscope.lab as lab
from flipscope.bounds.pac_bayes import class_bound, estimated_subgaussian
from flipscope.constructions.class_perturbation import class_perturbations
from flipscope.studies.sharper._learned import Learning, recipe_of
from flipscope.training.recipes.sharper import converged, gap

DELTA, SIGMA = 0.2, 0.01  # the failure probability and the sub-Gaussian constant that the paper puts in (App. A)
LEVEL = 1.0  # a bound that is not below it is vacuous
CONSTANT = 0.25  # loss of the best constant: the variance of a sum of parity indicators whose coefficients have norm 1
Arm = Literal["classes", "long", "norm", "batch", "heads"]


@dataclass(frozen=True)
class Function(Learning):
    """A function that is learned, for its gap; `arm` is the part of the study that it belongs to."""

    arm: Arm = "classes"


@dataclass(frozen=True)
class Noise(lab.Trial):
    """What noise adds to the loss of the constructions of a class, at each standard deviation of a mesh."""

    sparsity: int
    degree: int
    length: int
    mesh: tuple[float, ...]
    functions: int
    draws: int
    strings: int

    @property
    def cost(self) -> float:
        """Against a training's."""
        return float(len(self.mesh) * self.functions * self.draws * self.length)


def measured(trial: Function | Noise, progress: lab.Progress) -> dict[str, Any]:
    """What a trial gives."""
    if isinstance(trial, Noise):
        return {"perturbation": _perturbation(trial, progress)}
    recipe = recipe_of(trial)
    trained = lab.trained(recipe, progress)
    found = gap(recipe, trained.model)
    return {
        "learned": converged(trained),
        "taken": trained.fitted.steps,
        "epoch_loss": trained.history[-1].train_loss if trained.history else None,
        "train": found.train,
        "everywhere": found.everywhere.value,
        "gap": found.value.value,
        "gap_low": found.value.low,
        "gap_high": found.value.high,
        "exact": found.exact,
        "subgaussian": estimated_subgaussian(found.errors),
    }


def _perturbation(trial: Noise, progress: lab.Progress) -> list[float]:
    """P at each sigma: the largest over random functions, as in § 2.3."""
    found = []
    for number, sigma in enumerate(trial.mesh):
        each = class_perturbations(
            trial.sparsity, trial.degree, trial.length, sigma,
            functions=trial.functions, draws=trial.draws, strings=trial.strings, seed=trial.degree,
        )  # fmt: skip
        found.append(max(one.perturbation for one in each))
        progress(number + 1, len(trial.mesh))
    return found


def with_bounds(results: Sequence[lab.Result]) -> lab.Rows:
    """A row for each function that was learned, with the bounds of its class beside it."""
    noise = {
        (trial.sparsity, trial.degree, trial.length): dict(zip(trial.mesh, outcome["perturbation"], strict=True))
        for trial, outcome in ((result.trial, result.outcome) for result in results)
        if isinstance(trial, Noise)
    }
    known: dict[tuple[int, ...], dict[str, Any]] = {}
    rows = []
    for result in results:
        trial = result.trial
        if isinstance(trial, Function):
            key = (trial.sparsity, trial.degree, trial.length, trial.samples)
            if key not in known:
                known[key] = bounds(*key, noise.get(key[:3]))
            own = _truncated(*key, subgaussian=result.outcome["subgaussian"])
            rows.append({**trial.content(), **result.outcome, **known[key], "own_bound": own})
    return lab.Rows(rows)


def bounds(
    sparsity: int, degree: int, length: int, samples: int, perturbation: dict[float, float] | None
) -> dict[str, Any]:
    """The truncated bound of a class and the semi-analytic one, where P was measured, each with its sigma."""
    found: dict[str, Any] = {"truncated": _truncated(sparsity, degree, length, samples), "semi": None, "sigma": None}
    if perturbation is not None:
        semi = class_bound(
            sparsity, degree, length, samples, delta=DELTA, subgaussian=SIGMA, form="semi-analytic",
            perturbation=perturbation,
        )  # fmt: skip
        found |= {"semi": semi.bound, "sigma": semi.sigma}
    return found


def _truncated(sparsity: int, degree: int, length: int, samples: int, subgaussian: float = SIGMA) -> float | None:
    """The bound without P; None for losses that do not vary, where there is no Sigma."""
    if not subgaussian > 0:
        return None
    return class_bound(sparsity, degree, length, samples, delta=DELTA, subgaussian=subgaussian).bound


def mesh(smallest: float, largest: float, count: int, *, log: bool) -> tuple[float, ...]:
    """Standard deviations, evenly spread or on a log scale."""
    spread = np.geomspace if log else np.linspace
    return tuple(float(f"{value:.6g}") for value in spread(smallest, largest, count))
