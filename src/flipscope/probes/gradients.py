"""How much each string's output moves with the parameters: |grad f|^2, in all and by parameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
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


def squared_gradients(
    model: nn.Module, inputs: Inputs, *, parameters: Choice = None, batch: int = 64
) -> SquaredGradients:
    """The squared gradients of a model with one output per string, string by string.

    >>> model = nn.Linear(3, 1, bias=False)
    >>> squared_gradients(model, np.array([[1.0, 1.0, 0.0]])).total.tolist()
    [2.0]
    """
    moved = chosen(model, parameters)
    (given,) = as_inputs(model, inputs)
    check_count("batch", batch)
    if not given.is_floating_point():
        given = given.to(next(model.parameters()).dtype) if not _looks_up(model) else given
    elif not _looks_up(model):
        given = given.to(next(model.parameters()).dtype)
    fixed = {name: each.detach() for name, each in model.named_parameters() if name not in moved}
    fixed |= dict(model.named_buffers())

    def output(numbers: dict[str, Tensor], row: Tensor) -> Tensor:
        found = torch.func.functional_call(model, {**fixed, **numbers}, (row[None],))
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise InputError("the model must give one number per string for its squared gradients")
        return found.reshape(())

    each_row = torch.func.vmap(torch.func.grad(output), in_dims=(None, 0))
    numbers = {name: each.detach() for name, each in moved.items()}
    parts: dict[str, list[Tensor]] = {name: [] for name in numbers}
    with eval_mode(model):
        for start in range(0, len(given), batch):
            for name, gradient in each_row(numbers, given[start : start + batch]).items():
                parts[name].append(gradient.double().square().flatten(1).sum(dim=1))
    return SquaredGradients({name: torch.cat(rows).cpu().numpy() for name, rows in parts.items()})


def _looks_up(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Embedding) for module in model.modules())
