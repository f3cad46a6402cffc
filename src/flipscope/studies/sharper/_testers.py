"""What `fourier-testers` asks: targets, networks written down for them, and models that learned them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Floats
from flipscope.basics.seeds import generators, seed_of
from flipscope.bounds.pac_bayes import black_box_bound, class_bound
from flipscope.constructions.fourier import fourier_network, output_error
from flipscope.cube.estimate import Queries, Range
from flipscope.cube.fourier_sums import FourierSum, random_sum
from flipscope.cube.testers import Sweep, degree_mismatches
from flipscope.data.fourier import FourierData
from flipscope.flips.engine import Model
from flipscope.models.modes import eval_mode
from flipscope.models.outputs import binary_logit
from flipscope.probes.fourier import degree_test, first_degree, first_sparsity, oracle
from flipscope.studies.sharper._learned import Learning, recipe_of
from flipscope.training.recipes.sharper import converged

SAMPLES = 8_192  # of the bound that a tested class has
ROUNDING = 1e-9  # what an exact target's alternating means may be
TAIL = 1e-3  # energy outside the largest coefficients that the sparsity tester lets pass
TAILS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
TRIALS = (1, 3, 10, 30, 100, 300, 1_000)
TOLERANCE = 0.1  # of a learned model's alternating means: a fifth of the targets' standard deviation
LEARNED_TAIL = 0.04  # twice the loss at which a training ends
MARGIN = 1.0  # by which a learned model may leave the range of its target; beyond, its outputs are cut off
MOST = 64  # coefficients that are counted
RESTRICTIONS = 12
FREE = 10  # of learned models: each answer is dearer


@dataclass(frozen=True)
class Target(lab.Trial):
    """A random function of a class, asked as it is."""

    length: int
    sparsity: int
    degree: int
    seed: int
    free: int
    trials: int

    @property
    def cost(self) -> float:
        return float(self.sparsity * ((self.trials << (self.degree + 2)) + (RESTRICTIONS << self.free)))


@dataclass(frozen=True)
class Written(lab.Trial):
    """The network with mask 0 of a random function: nearly of its degree, and of none exactly."""

    length: int
    sparsity: int
    degree: int
    seed: int
    trials: int

    @property
    def cost(self) -> float:
        return 20.0 * (self.trials << (self.degree + 2))


@dataclass(frozen=True)
class Learned(Learning):
    """A model that learned a random function."""

    trials: int = 300


def _seed(trial: Target | Written | Learned) -> int:
    """One of its own for each function of each class."""
    return seed_of(trial.seed, trial.length, trial.sparsity, trial.degree)


def _range(target: FourierSum, margin: float = 0.0) -> Range:
    """Between which the values of the target lie; coefficients are positive."""
    return -margin - ROUNDING, sum(target.coefficients) + margin + ROUNDING


def _values(target: FourierSum) -> Callable[[Tensor], Floats]:
    return lambda bits: target(bits.numpy().astype(np.uint8))


def asked_target(trial: Target) -> dict[str, Any]:
    """The class that the testers find, the bound that follows, and both by how much the testers are asked."""
    for_function, for_box, for_degree, for_sparsity = generators(_seed(trial), 4)
    target = random_sum(trial.length, trial.sparsity, trial.degree, for_function)
    model, ends = _values(target), _range(target)
    try:
        box = black_box_bound(
            model,
            trial.length,
            SAMPLES,
            value_range=ends,
            tolerance=ROUNDING,
            trials=trial.trials,
            free=trial.free,
            tail=TAIL,
            max_degree=trial.degree + 2,
            restrictions=RESTRICTIONS,
            seed=for_box,
        )
    except InputError:  # nothing was accepted, or the constants: a finding, and judged as one
        box = None
    queries = Queries(oracle(model, "logit"), trial.length, ends)
    means = [degree_mismatches(queries, degree, trial.trials, for_degree) for degree in range(trial.degree + 2)]
    outside = _outside(model, trial.length, ends, trial.free, for_sparsity)
    return {
        "found_degree": box and box.degree,
        "found_sparsity": box and box.sparsity,
        "queries": box and box.queries,
        "bound": box and box.bound.bound,
        "degrees": [first_within([float(np.abs(each[:count]).max()) for each in means], ROUNDING) for count in TRIALS],
        "sparsities": [found_at(outside, tail) for tail in TAILS],
    }


def _outside(model: Model, length: int, ends: Range, free: int, seed: np.random.Generator) -> list[float]:
    """The largest energy outside the k = 0, 1, … largest coefficients of some restrictions."""
    found: Sweep = first_sparsity(
        model,
        length,
        max_sparsity=MOST,
        output="logit",
        value_range=ends,
        free=min(free, length),
        epsilon=1e-15,
        restrictions=RESTRICTIONS,
        seed=seed,
    )
    return [each.statistic for each in found.results]


def first_within(statistics: Sequence[float], limit: float) -> int | None:
    """The first whose statistic is within the limit; None if none is."""
    return next((place for place, each in enumerate(statistics) if each <= limit), None)


def found_at(outside: Sequence[float], tail: float) -> int | None:
    """The sparsity that is accepted at this tail, less 1 for the constant and at least 1; None if none is."""
    many = first_within(outside, tail)
    return None if many is None else max(1, many - 1)


def asked_written(trial: Written) -> dict[str, Any]:
    """The degree of the written-down network, with its output error for a tolerance, and with none."""
    for_function, for_degree, for_strict = generators(_seed(trial), 3)
    target = random_sum(trial.length, trial.sparsity, trial.degree, for_function)
    network, error = fourier_network(target), output_error(target)
    ends = _range(target, error)
    about: dict[str, Any] = {"output": "logit", "value_range": ends, "trials": trial.trials}
    found = first_degree(network, trial.length, max_degree=trial.degree + 1, tolerance=error, seed=for_degree, **about)
    strict = degree_test(network, trial.length, trial.degree, tolerance=ROUNDING, seed=for_strict, **about)
    return {"found_degree": found.value, "error": error, "exactly": strict.accepted, "strict": strict.statistic}


def asked_learned(trial: Learned, progress: lab.Progress) -> dict[str, Any]:
    """The largest alternating mean of each degree, and the energies outside the largest coefficients."""
    recipe = recipe_of(trial)
    trained = lab.trained(recipe, progress)
    assert isinstance(recipe.data, FourierData)
    target = recipe.data.target()
    low, high = ends = _range(target, MARGIN)

    def model(bits: Tensor) -> Tensor:
        with torch.no_grad():
            return binary_logit(trained.model(bits)).double().clamp(low, high)

    for_degree, for_sparsity, for_target = generators(_seed(trial), 3)
    with eval_mode(trained.model):
        statistics = [
            degree_test(
                model,
                trial.length,
                degree,
                output="logit",
                value_range=ends,
                tolerance=high - low,  # no alternating mean is larger: every trial is asked
                trials=trial.trials,
                seed=for_degree,
            ).statistic
            for degree in range(min(trial.degree + 2, trial.length))
        ]
        outside = _outside(model, trial.length, ends, FREE, for_sparsity)
    return {
        "learned": converged(trained),
        "epoch_loss": trained.history[-1].train_loss if trained.history else None,
        "statistics": statistics,
        "outside": outside,
        "target_outside": _outside(_values(target), trial.length, ends, FREE, for_target),
    }


def target_row(content: Mapping[str, Any], outcome: Mapping[str, Any]) -> lab.Row:
    """With the bound of the class that was found over that of the true one, by tail."""
    length, degree, true = content["length"], content["degree"], content["sparsity"]
    right = class_bound(true, degree, length, SAMPLES).bound
    found = {**content, **outcome, "kind": "target", "ratio": outcome["bound"] and outcome["bound"] / right}
    seen = outcome["found_degree"]
    ratios = [
        None if many is None or seen is None else class_bound(many, seen, length, SAMPLES).bound / right
        for many in outcome["sparsities"]
    ]
    return {**found, "ratios": ratios}


def learned_row(content: Mapping[str, Any], outcome: Mapping[str, Any]) -> lab.Row:
    """With the degree and the sparsity that are accepted at the tolerances for learned models.

    At so large a tail a target itself is found with fewer coefficients than it has: that is what is wanted of a model.
    """
    return {
        **content,
        **outcome,
        "kind": "learned",
        "found_degree": first_within(outcome["statistics"], TOLERANCE),
        "found_sparsity": found_at(outcome["outside"], LEARNED_TAIL),
        "wanted_sparsity": found_at(outcome["target_outside"], LEARNED_TAIL),
    }
