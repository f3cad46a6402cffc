"""Further terms of the loss that a recipe may name (`flipscope.training.named`).

Each is a function of the training that it is part of (`Around`) and of settings of its own, and returns the term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from flipscope.adapters.disturbing import patches
from flipscope.adapters.parameters import usual
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.registry import Registry
from flipscope.models.devices import twice_differentiable
from flipscope.models.fast_logits import logits_for
from flipscope.training.fit import Term
from flipscope.training.low_sensitivity import NoiseAugmentation, SensitivityPenalty
from flipscope.training.named import Around


def norm(around: Around, positions: bool = False) -> Term:
    """The Euclidean norm of the parameters, without those of learned positions unless asked for."""

    def term(model: nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        return torch.stack([p.square().sum() for p in usual(model, positions=positions).values()]).sum().sqrt()

    return term


def trace(around: Around, of: str = "hessian", probes: int = 1, positions: bool = False) -> Term:
    """The trace of the Hessian of the loss, or of its Gauss-Newton part, by fresh random signs at every step.

    With weight decay or the norm beside it this is the low-sharpness learner (sharper paper, Def 1). Unbiased for any
    number of probes. The Gauss-Newton part needs no third derivatives, and where the loss is 0 it is the whole trace.
    """
    if of not in ("hessian", "gauss_newton"):
        raise InputError(f"of={of!r} of the term trace is not one of hessian, gauss_newton")
    check_count("probes", probes)

    def term(model: nn.Module, batch: tuple[Tensor, Tensor], outputs: Tensor) -> Tensor:
        inputs, targets = batch
        parameters = [p for p in usual(model, positions=positions).values() if p.requires_grad]
        # A forward of its own: that of the training goes through fused attention, which has no second derivative.
        with sdpa_kernel(SDPBackend.MATH), twice_differentiable(model):
            fresh = logits_for(model)(inputs)
        loss = around.aim.total(fresh, targets) / len(inputs)
        one = _hessian_form if of == "hessian" else _gauss_newton_form
        return torch.stack([one(loss, fresh, parameters) for _ in range(probes)]).mean()

    return term


def sensitivity(
    around: Around, variance: float = 1.0, how: str = "mix", patch: int | None = None, at: str | None = None
) -> Term:
    """The penalty on sensitivity to tokens (`flipscope.training.low_sensitivity`), mixed with the loss or added to it.

    Tokens are patches of so many pixels a side, or positions of the input or of the output of the module `at`.
    """
    mask = None if patch is None else patches(patch)
    return SensitivityPenalty(variance=variance, strength=1.0, how=how, feature_mask=mask, at=at)  # type: ignore[arg-type]


def augmentation(around: Around, variance: float = 0.1, how: str = "mix", at: str | None = None) -> Term:
    """The loss on inputs with noise on all tokens: with how="mix" and strength 1 these replace the inputs."""

    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        return around.aim.total(outputs, targets) / len(outputs)

    return NoiseAugmentation(variance=variance, strength=1.0, how=how, at=at, criterion=criterion)  # type: ignore[arg-type]


def _hessian_form(loss: Tensor, outputs: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """v' H v for random signs v."""
    first = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True)
    v = [_signs(parameter) for parameter in parameters]
    along = torch.stack([(g * each).sum() for g, each in zip(first, v, strict=True)]).sum()
    second = torch.autograd.grad(along, parameters, create_graph=True, allow_unused=True, materialize_grads=True)
    return torch.stack([(hv * each).sum() for hv, each in zip(second, v, strict=True)]).sum()


def _gauss_newton_form(loss: Tensor, outputs: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """(J' u) . (J' H_out u) for random signs u of the outputs."""
    u = _signs(outputs)
    slope = torch.autograd.grad(loss, outputs, create_graph=True)[0]
    bent = torch.autograd.grad(slope, outputs, u, create_graph=True)[0]
    pulled = [
        torch.autograd.grad(outputs, parameters, each, create_graph=True, allow_unused=True, materialize_grads=True)
        for each in (u, bent)
    ]
    return torch.stack([(a * b).sum() for a, b in zip(*pulled, strict=True)]).sum()


def _signs(like: Tensor) -> Tensor:
    """Random signs from PyTorch's generator of the CPU, whose state a training keeps with its own."""
    return torch.randint_like(like, 2, device="cpu").mul_(2).sub_(1).detach().to(like.device)


TERMS: Registry[Callable[..., Any]] = Registry(
    "term of the loss",
    {"norm": norm, "trace": trace, "sensitivity": sensitivity, "augmentation": augmentation},
    extensible=True,
)
