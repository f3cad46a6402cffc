"""Measurement of the expected perturbed loss (Thms 6 and 12).

Around a network that interpolates, E L^(Theta + e) = sigma^2 Tr / 2 + remainder, exactly. The loss is mean squared
error against the outputs of the network itself, so it interpolates by definition: with mask=0 it does not quite equal
its target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch

from flipscope.adapters.inputs import Inputs
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import Choice, chosen
from flipscope.adapters.settled import as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_confidence, check_count, check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import Seed, generators
from flipscope.models.devices import in_float64
from flipscope.probes.asking import asked
from flipscope.probes.gradients import squared_gradients


@dataclass(frozen=True)
class PerturbedLoss:
    """E L^(Theta + e) from draws of e, with a normal interval, and the second-order term for comparison."""

    value: float
    low: float
    high: float
    sigma: float
    draws: int
    trace: float  # of the Hessian at Theta: 2 mean |grad f|^2

    @property
    def second_order(self) -> float:
        """sigma^2 Tr / 2."""
        return self.sigma**2 * self.trace / 2

    @property
    def perturbation(self) -> float:
        """The P for which sigma^2 (Tr + P) / 2 is the upper end of the interval; 0 if Tr alone exceeds it."""
        return max(0.0, 2 * self.high / self.sigma**2 - self.trace)


@checked_arguments
def perturbed_loss(
    model: Model,
    inputs: Inputs,
    sigma: float,
    *,
    draws: int = 100,
    confidence: float = 0.95,
    parameters: Choice = None,
    seed: Seed = 0,
) -> PerturbedLoss:
    """The expected mean squared difference between the perturbed network and itself, e ~ N(0, sigma^2 I).

    >>> model = torch.nn.Linear(3, 1).double()
    >>> found = perturbed_loss(model, np.eye(3), 0.1, draws=200)
    >>> found.low < found.second_order < found.high  # a linear model has no remainder
    True
    """
    check_positive("sigma", sigma)
    draws = check_count("draws", draws, 2)
    z = NormalDist().inv_cdf((1 + check_confidence(confidence)) / 2)
    (stream,) = generators(seed, 1)
    losses = np.empty(draws)
    settled = as_settled(model)
    moved = MovableParameters(chosen(settled.needed_module("the perturbed loss is of the parameters of"), parameters))
    with asked(settled, inputs, None) as (asking, before), moved as moving:
        moving.check_size("sigma", sigma)
        for number in range(draws):
            moving.to(torch.from_numpy(stream.normal(size=moving.count)), sigma)
            losses[number] = float((in_float64(asking.outputs()) - in_float64(before)).square().mean())
    with np.errstate(over="ignore", invalid="ignore"):
        mean, half = float(losses.mean()), z * float(losses.std(ddof=1)) / math.sqrt(draws)
    if not math.isfinite(mean + half):
        raise InputError(f"sigma={sigma:g} makes the outputs NaN or infinite: take a smaller one")
    trace = squared_gradients(settled, inputs, parameters=parameters).gauss_newton_trace
    return PerturbedLoss(mean, mean - half, mean + half, sigma, draws, trace)
