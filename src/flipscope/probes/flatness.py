"""Measures of flatness side by side, and which of them a rescaling leaves alone.

A unit with ReLU computes the same when its weights and bias are multiplied by a > 0 and what it feeds is divided by a:
(U, b, F) -> (aU, ab, F/a) (sharper paper, App. D). A measure that such a change moves says something about how the
weights are written down, not only about the function; `rescale` makes the change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from flipscope.adapters.inputs import Inputs
from flipscope.adapters.parameters import Choice
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import Seed, seed_number
from flipscope.probes.asking import Loss
from flipscope.probes.curvature import curvature
from flipscope.probes.sharpness import sharpness, worst_case

RHO, ADAPTIVE_RHO = 0.05, 0.5  # the usual radii of SAM and of ASAM
STEPS = 5  # to the worst case: where the gradient is nearly 0 the first says little, and further ones find the top
Targets: TypeAlias = Any  # an array or a tensor, one for each string


@dataclass(frozen=True)
class Flatness:
    """One measure: an `Estimate` where it is random, else a number."""

    name: str
    value: float | Estimate
    rescaled: bool  # whether (U, b, F) -> (aU, ab, F/a) moves it
    what: str

    @property
    def number(self) -> float:
        """The value without its interval."""
        return self.value.value if isinstance(self.value, Estimate) else self.value

    def as_json(self) -> dict[str, Any]:
        """What a JSON document says of it."""
        value = self.value.as_json() if isinstance(self.value, Estimate) else self.value
        return {"name": self.name, "value": value, "rescaled": self.rescaled, "what": self.what}


@checked_arguments
def flatness(
    model: Model,
    loss: Loss,
    data: tuple[Inputs, Targets],
    *,
    rho: float = RHO,
    adaptive_rho: float = ADAPTIVE_RHO,
    draws: int = 100,
    probes: int = 99,
    parameters: Choice = None,
    confidence: float = 0.95,
    seed: Seed = 0,
    forward: Callable[..., Any] | None = None,
) -> list[Flatness]:
    """The measures of flatness of a loss at a model, one row each; arguments as in `sharpness` and `curvature`.

    `rho` is the radius of the sphere of average and worst case, `adaptive_rho` that of their adaptive forms, in which
    each parameter moves in proportion to its size.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> rows = flatness(model, "mse", (torch.eye(2), torch.ones(2)), draws=10)
    >>> [row.name for row in rows if not row.rescaled]
    ['adaptive average', 'adaptive worst case', 'Fisher-Rao norm', 'Fisher-Rao norm of the model']
    """
    if not isinstance(data, tuple) or len(data) != 2:
        raise InputError("data of a table of flatness must be one pair (inputs, targets)")
    inputs, targets = data
    start = seed_number(seed)
    found = curvature(
        model,
        loss,
        data,
        what=("trace", "gauss_newton", "eigenvalues", "fisher_rao"),
        parameters=parameters,
        probes=probes,
        eigenvalues=1,
        confidence=confidence,
        seed=start,
        forward=forward,
    )
    assert found.trace is not None
    assert found.gauss_newton is not None
    assert found.eigenvalues is not None
    assert found.fisher_rao is not None
    # Sharpness is measured on outputs without a last axis of one number; a function of the caller's own may need it.
    own = _with_axis(loss, found.outputs)
    same: dict[str, Any] = {"parameters": parameters, "seed": start, "forward": forward, "loss": own}
    averages, worst = [], []
    for adaptive, radius in ((False, rho), (True, adaptive_rho)):
        moved = same | {"rho": radius, "adaptive": adaptive}
        drawn = sharpness(model, inputs, targets, measure="loss", draws=draws, confidence=confidence, **moved)
        averages.append(drawn.value)
        worst.append(worst_case(model, inputs, targets, steps=STEPS, **moved).value)
    norm = found.fisher_rao
    return [
        Flatness("average", averages[0], True, f"mean increase of the loss on the sphere of radius {rho:g}"),
        Flatness("worst case", worst[0], True, f"largest increase that {STEPS} steps of SAM found there"),
        Flatness("trace", found.trace.value, True, "of the Hessian"),
        Flatness(
            "Gauss-Newton trace", found.gauss_newton.value, True, "the trace without second derivatives of outputs"
        ),
        Flatness("largest eigenvalue", float(found.eigenvalues.top.values[0]), True, "of the Hessian"),
        Flatness(
            "adaptive average", averages[1], False, f"moves in proportion to each parameter, rho {adaptive_rho:g}"
        ),
        Flatness("adaptive worst case", worst[1], False, f"the same, by {STEPS} steps of ASAM"),
        Flatness("Fisher-Rao norm", norm.empirical, False, "sqrt of mean <theta, grad loss>^2, labels as they are"),
        Flatness("Fisher-Rao norm of the model", norm.model, False, "the same with labels as the model draws them"),
    ]


def _with_axis(loss: Loss, outputs: tuple[int, ...]) -> Loss:
    """The loss of outputs [string], where the model's own are [string, 1]."""
    if not callable(loss) or outputs != (1,):
        return loss
    return lambda found, targets: loss(found[:, None], targets)


@checked_arguments
def rescale(into: nn.Module, out_of: nn.Module, factor: float) -> None:
    """Multiply weight and bias of a linear map into units with ReLU by a factor, and divide the weight out of them.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> before = model(torch.eye(2))
    >>> rescale(model[0], model[2], 4.0)
    >>> torch.allclose(model(torch.eye(2)), before)
    True
    """
    check_positive("factor", factor)  # ReLU(ax) = a ReLU(x) only then
    for module in (into, out_of):
        if not isinstance(getattr(module, "weight", None), Tensor):
            raise InputError(f"a {type(module).__name__} has no weight to rescale: give linear maps")
    with torch.no_grad():
        for name in ("weight", "bias"):
            if isinstance(each := getattr(into, name, None), Tensor):
                each *= factor
        out_of.get_parameter("weight").div_(factor)
