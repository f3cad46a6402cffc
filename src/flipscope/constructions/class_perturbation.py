"""The empirical perturbation term of a class: the worst of several random functions (§ 2.3 of paper 002)."""

from __future__ import annotations

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.seeds import Seed, generators, random_strings
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import random_sum
from flipscope.probes.perturbed import PerturbedLoss, perturbed_loss


@checked_arguments
def class_perturbations(
    sparsity: int,
    degree: int,
    length: int,
    sigma: float,
    *,
    functions: int = 10,
    draws: int = 50,
    strings: int = 200,
    seed: Seed = 0,
) -> list[PerturbedLoss]:
    """The perturbed losses of constructions of random functions of the class; the largest `perturbation` estimates P.

    It is the remainder of Thm 12, measured by perturbed losses, at the upper end of its interval. The paper takes the
    change of the trace instead (`flipscope.probes.perturbed_trace.trace_changes`).

    >>> losses = class_perturbations(2, 2, 6, 1e-3, functions=2, draws=5, strings=8)
    >>> max(each.perturbation for each in losses) >= 0
    True
    """
    losses = []
    for stream in generators(seed, check_count("functions", functions)):
        for_function, for_strings, for_draws = stream.spawn(3)
        network = fourier_network(random_sum(length, sparsity, degree, for_function))
        inputs = random_strings(for_strings, check_count("strings", strings), length)
        losses.append(perturbed_loss(network, inputs, sigma, draws=draws, seed=for_draws))
    return losses
