"""The squared gradient |grad f|^2 of each string's output, in total and by parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from flipscope.adapters.inputs import Inputs, given_for
from flipscope.adapters.parameters import Choice, chosen
from flipscope.adapters.settled import Settled, as_settled
from flipscope.adapters.subject import Model
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError, blamed_on
from flipscope.figures import Figure
from flipscope.figures.panels import bars_panel
from flipscope.figures.results import Result, as_json
from flipscope.models.devices import in_float64

MAX_BARS = 24  # parameters in a picture


@dataclass(frozen=True, eq=False, repr=False)
class SquaredGradients(Result):
    """|grad f(x)|^2 of each string, and the part of it that belongs to each parameter."""

    by_name: dict[str, Float64[np.ndarray, " string"]]

    @property
    def total(self) -> Float64[np.ndarray, " string"]:
        """The sum over all parameters, for each string."""
        total: Float64[np.ndarray, " string"] = np.sum(list(self.by_name.values()), axis=0)
        return total

    @property
    def gauss_newton_trace(self) -> float:
        """2 mean |grad f|^2: the Hessian's trace of the mean squared error if the model interpolates (Thm 5)."""
        return 2 * float(self.total.mean())

    def summary(self) -> dict[str, object]:
        """Return the mean over the strings, and the parameters with the largest part of it."""
        means = self._means()
        largest = sorted(means, key=lambda name: -means[name])[:3]
        return {
            "strings": len(self.total),
            "mean squared gradient": float(self.total.mean()),
            "largest parts": ", ".join(f"{name} {means[name]:.4g}" for name in largest),
        }

    def plot(self) -> Figure:
        """Plot the mean over the strings for each parameter; of many parameters, the largest."""
        means = self._means()
        kept = set(sorted(means, key=lambda name: -means[name])[:MAX_BARS])
        panel = bars_panel({name: mean for name, mean in means.items() if name in kept}, "mean squared gradient")
        caption = "Squared gradient of the output by each parameter, mean over the strings."
        return Figure("squared-gradients", "Squared gradients", caption, [panel], columns=1)

    def as_json(self) -> dict[str, Any]:
        """Return the squared gradients of each string, in all and by parameter."""
        return super().as_json() | {"total": as_json(self.total), "gauss_newton_trace": self.gauss_newton_trace}

    def _means(self) -> dict[str, float]:
        return {name: float(values.mean()) for name, values in self.by_name.items()}


@checked_arguments
def squared_gradients(
    model: Model | Settled,
    inputs: Inputs,
    *,
    parameters: Choice = None,
) -> SquaredGradients:
    """The squared gradients of a model with one output per string, string by string.

    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> squared_gradients(model, np.array([[1.0, 1.0, 0.0]])).total.tolist()
    [2.0]
    """
    settled = as_settled(model)
    module = settled.needed_module("squared gradients are of the parameters of")
    moved = chosen(module, parameters)
    given = given_for(settled, inputs)
    found = {name: np.zeros(given.strings) for name in moved}
    with settled.measuring(), torch.enable_grad():
        for number in range(given.strings):
            with blamed_on("the model"):
                output = settled.rows(given.rows(number, number + 1).to(module), 1)
            if output.numel() != 1:
                raise InputError("the model must give one number per string for its squared gradients")
            gradients = torch.autograd.grad(output.sum(), list(moved.values()), allow_unused=True)
            for name, gradient in zip(moved, gradients, strict=True):
                if gradient is not None:
                    found[name][number] = float(in_float64(gradient).square().sum())
    return SquaredGradients(found)
