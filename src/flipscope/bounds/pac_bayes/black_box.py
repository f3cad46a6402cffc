"""From queries alone to a bound: property testers say degree and sparsity, Thm 2 does the rest (App. H)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import Seed, generators
from flipscope.bounds.pac_bayes.forms import PacBayes, class_bound
from flipscope.cube.estimate import Range
from flipscope.cube.testers import Sweep
from flipscope.probes.fourier import Subject, first_degree, first_sparsity

TESTED = "degree and sparsity are what the testers accepted first: never more than the true ones, but perhaps fewer"


@dataclass(frozen=True)
class BlackBox:
    """What the testers found, and the bound for that class."""

    degree: int
    sparsity: int
    queries: int
    bound: PacBayes

    def as_json(self) -> dict[str, Any]:
        """The bound with what was found."""
        return self.bound.as_json() | {"degree": self.degree, "sparsity": self.sparsity, "queries": self.queries}


@checked_arguments
def black_box_bound(
    model: Subject,
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
    """The truncated bound for the class that the testers find a model of real values in.

    value_range  that its outputs never leave; networks without a norm have no known one
    tolerance    of the degree tester: a network that computes a function only nearly is of no low degree exactly
    trials       of it, instead of as many as its guarantee takes: a large tolerance has no guarantee
    indicators   the target is a sum of indicators, whose constant is one coefficient more in the usual spectrum
    restrictions of the sparsity tester, instead of as many as its guarantee takes
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
        output="logit",
        value_range=value_range,
        epsilon=epsilon,
        trials=trials,
        seed=for_degree,
        **extra,  # type: ignore[arg-type]
    )
    found = _value(degree, "degree")
    if found == 0:
        raise InputError("the model is constant as far as its queries say, so that it has no class: degree 0")
    sparsity = first_sparsity(
        model,
        length,
        output="logit",
        value_range=value_range,
        free=min(free, length),
        epsilon=tail,
        restrictions=restrictions,
        seed=for_sparsity,
    )
    many = max(1, _value(sparsity, "sparsity") - int(indicators))
    bound = class_bound(many, found, length, samples, delta=delta, subgaussian=subgaussian)
    told = PacBayes(**{**vars(bound), "assumptions": (*bound.assumptions, TESTED)})
    return BlackBox(found, many, degree.queries + sparsity.queries, told)


def _value(sweep: Sweep, what: str) -> int:
    if sweep.value is None:
        raise InputError(f"the testers found no {what} for the model: {sweep.note}")
    return sweep.value
