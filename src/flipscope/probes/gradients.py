"""How much each string's output moves with the parameters: |grad f|^2, in all and by parameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError, blamed_on
from flipscope.models.devices import Device, in_float64
from flipscope.models.encoding import Encoding
from flipscope.models.modes import eval_mode
from flipscope.models.parameters import Choice, chosen
from flipscope.models.subject import Model, as_subject
from flipscope.probes.asking import Inputs, given_for


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
def squared_gradients(
    model: Model,
    inputs: Inputs,
    *,
    parameters: Choice = None,
    encoding: Encoding = "auto",
    device: Device | None = None,
) -> SquaredGradients:
    """The squared gradients of a model with one output per string, string by string.

    >>> model = torch.nn.Linear(3, 1, bias=False)
    >>> squared_gradients(model, np.array([[1.0, 1.0, 0.0]])).total.tolist()
    [2.0]
    """
    subject = as_subject(model, encoding, device=device)
    module = subject.needed_module("squared gradients are of the parameters of")
    moved = chosen(module, parameters)
    given = given_for(subject, inputs)
    found = {name: np.zeros(given.strings) for name in moved}
    with subject.kept(), eval_mode(module), torch.enable_grad():
        for number in range(given.strings):
            with blamed_on("the model"):
                output = subject.rows(given.rows(number, number + 1).to(module), 1)
            if output.numel() != 1:
                raise InputError("the model must give one number per string for its squared gradients")
            gradients = torch.autograd.grad(output.sum(), list(moved.values()), allow_unused=True)
            for name, gradient in zip(moved, gradients, strict=True):
                if gradient is not None:
                    found[name][number] = float(in_float64(gradient).square().sum())
    return SquaredGradients(found)
