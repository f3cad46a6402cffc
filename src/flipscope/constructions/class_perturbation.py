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
    """What noise adds to the construction of random functions of the class, one each; the largest is P's estimate.

    The remainder of Thm 12 is measured, by perturbed losses, instead of the change of the trace that the paper takes
    (`flipscope.probes.perturbed.worst_trace_change`); each is the upper end of its interval.

    >>> found = class_perturbations(2, 2, 6, 1e-3, functions=2, draws=5, strings=8)
    >>> max(each.perturbation for each in found) >= 0
    True
    """
    found = []
    for stream in generators(seed, check_count("functions", functions)):
        for_function, for_strings, for_draws = stream.spawn(3)
        network = fourier_network(random_sum(length, sparsity, degree, for_function))
        asked = random_strings(for_strings, check_count("strings", strings), length)
        found.append(perturbed_loss(network, asked, sigma, draws=draws, seed=for_draws))
    return found
