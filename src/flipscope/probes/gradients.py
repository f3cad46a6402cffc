"""How much each string's output moves with the parameters: |grad f|^2, in all and by parameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError, blamed_on
from flipscope.flips.engine import number_type, usual_inputs
from flipscope.models.modes import eval_mode
from flipscope.models.parameters import Choice, chosen
from flipscope.probes.asking import Inputs, as_inputs


@dataclass(frozen=True, eq=False)
class SquaredGradients:
    """|grad f(x)|^2 of each string, and what each parameter has of it."""

    by_name: dict[str, Float64[np.ndarray, " string"]]

    @property
    def total(self) -> Float64[np.ndarray, " string"]:
        """The sum over all parameters, for each string."""
        total: Float64[np.ndarray, " string"] = np.sum(list(self.by_name.values()), axis=0)
        return total

    @property
    def gauss_newton_trace(self) -> float:
        """2 mean |grad f|^2: the Hessian's trace of the mean squared error where the model interpolates (Thm 5)."""
        return 2 * float(self.total.mean())


@checked_arguments
def squared_gradients(model: nn.Module, inputs: Inputs, *, parameters: Choice = None) -> SquaredGradients:
    """The squared gradients of a model with one output per string, string by string.

    >>> model = nn.Linear(3, 1, bias=False)
    >>> squared_gradients(model, np.array([[1.0, 1.0, 0.0]])).total.tolist()
    [2.0]
    """
    moved = chosen(model, parameters)
    (given,) = as_inputs(model, inputs)
    if usual_inputs(model) == "floats":
        given = given.to(number_type(model))
    found = {name: np.zeros(len(given)) for name in moved}
    with eval_mode(model), torch.enable_grad():
        for number, row in enumerate(given):
            with blamed_on("the model"):
                output = model(row[None])
            if not isinstance(output, Tensor) or output.numel() != 1:
                raise InputError("the model must give one number per string for its squared gradients")
            gradients = torch.autograd.grad(output.sum(), list(moved.values()), allow_unused=True)
            for name, gradient in zip(moved, gradients, strict=True):
                if gradient is not None:
                    found[name][number] = float(gradient.double().square().sum())
    return SquaredGradients(found)
