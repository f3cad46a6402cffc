"""What the covering theorems say of one model: a bound on its generalization gap, or a score that is none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.bounds.covering.changes import SOFTMAX
from flipscope.bounds.covering.covers import Cover
from flipscope.bounds.covering.generalization import DUDLEY, chained_bound, check_delta, log_samples_needed
from flipscope.bounds.covering.linear import Form, expm
from flipscope.bounds.covering.networks import network_cover
from flipscope.bounds.covering.norms import NetworkNorms

if TYPE_CHECKING:
    from flipscope.models.attention_network import AttentionNetwork
    from flipscope.models.transformer import Transformer

_FORMS: dict[Form, str] = {
    "rows": "Thm A.17 by Lem 4.5, largest norm of a row",
    "sums": "Thm A.17 by Lem 4.5, sum of the norms of rows",
    "best": "Thm A.17, the least of both and of the better one for each matrix",
}


@dataclass(frozen=True)
class GapBound:
    """What the gap between test and training loss cannot exceed with probability 1 - delta, by one form."""

    form: Form
    log_capacity: float  # ln ln N at eps = 1
    value: float  # what the gap cannot exceed
    trivial: float  # what it cannot exceed anyway: the range of the loss
    log_samples_needed: float | None  # ln of how many samples it takes to say something

    @property
    def vacuous(self) -> bool:
        """Whether it says no more than the range of the loss."""
        return self.value >= self.trivial

    def as_json(self) -> dict[str, Any]:
        """Its numbers for a JSON document."""
        needed = self.log_samples_needed
        return {
            "form": self.form,
            "what": _FORMS[self.form],
            "log10_capacity": self.log_capacity / math.log(10) if math.isfinite(self.log_capacity) else None,
            "gap": self.value,
            "trivial": self.trivial,
            "vacuous": self.vacuous,
            "log10_samples_needed": None if needed is None else needed / math.log(10),
        }


@dataclass(frozen=True)
class Summary:
    """What paper 003 says of a model at one length and number of training strings."""

    length: int
    samples: int
    delta: float
    broken: tuple[str, ...]  # assumptions; with any it is a score and not a bound
    norms: NetworkNorms
    bounds: tuple[GapBound, ...]

    @property
    def is_bound(self) -> bool:
        """Whether the model is of the class that the theorem speaks of."""
        return not self.broken

    @property
    def kind(self) -> str:
        """What the numbers are, in words."""
        return "bound" if self.is_bound else "norm-based score, not a bound"

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope bound covering``."""
        return {
            "kind": self.kind,
            "is_bound": self.is_bound,
            "broken_assumptions": list(self.broken),
            "length": self.length,
            "samples": self.samples,
            "delta": self.delta,
            "loss": "logistic",
            "norms": {
                "readout": self.norms.readout,
                "inputs": self.norms.radius,
                "layers": [
                    [
                        {name: getattr(head, name).spectral for name in ("score", "value", "mix")}
                        | {f"{name}_row": getattr(head, name).largest for name in ("score", "value", "mix")}
                        | {f"{name}_rows": getattr(head, name).total for name in ("score", "value", "mix")}
                        for head in heads
                    ]
                    for heads in self.norms.layers
                ],
            },
            "bounds": [bound.as_json() for bound in self.bounds],
        }


@checked_arguments
def summary(
    model: AttentionNetwork | Transformer,
    length: int,
    samples: int,
    *,
    delta: float = 0.05,
    softmax: float = SOFTMAX,
    chaining: float = DUDLEY,
) -> Summary:
    """The bound on the gap of the logistic loss, for every form of Lem 4.5, from the model's own norms.

    These were not fixed before training: they are rounded up to a grid whose classes share delta.

    >>> from flipscope.models import Transformer, encoder
    >>> found = summary(Transformer(encoder(width=16, layers=1)), 10, 1_000)
    >>> found.kind, found.bounds[0].vacuous
    ('norm-based score, not a bound', True)
    """
    from flipscope.bounds.covering.reading import broken_assumptions, norms_of

    check_count("samples", samples)
    failures = check_delta(delta)
    norms = norms_of(model, length)
    rounded, price = norms.rounded_up()
    cover = network_cover(rounded, softmax=softmax)
    bounds = tuple(
        gap_bound(cover, length, samples, form, log_failures=failures + price, chaining=chaining) for form in _FORMS
    )
    return Summary(length, samples, delta, broken_assumptions(model), norms, bounds)


@checked_arguments
def gap_bound(
    cover: Cover, length: int, samples: int, form: Form, *, log_failures: float, chaining: float = DUDLEY
) -> GapBound:
    """The bound for the logistic loss, which is 1-Lipschitz and, where |f| <= A, in a range of length A."""
    most = cover.largest

    def at(log_samples: float) -> float:
        return chained_bound(
            lambda log_eps: cover.log_size(log_eps, log_samples, length, form),
            log_samples,
            largest=most,
            loss_range=most,
            log_failures=log_failures,
            chaining=chaining,
        )

    value = min(at(math.log(check_count("samples", samples))), expm(708.0))
    capacity = cover.log_size(0.0, math.log(samples), length, form).item()
    return GapBound(form, capacity, value, most, log_samples_needed(at, most))
