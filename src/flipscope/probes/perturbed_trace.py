"""The trace of the Hessian of the mean squared error where the model does not fit, by signs of all parameters at once.

    tr Hess L = 2 mean |grad f|^2 + 2 mean (f - y) tr Hess f                                            (002, Thm 17)

The first part is exact, by one gradient per string. The second has residuals for its weights, and so it is small near
an interpolator, but signs of all parameters at once leave a noise that is often as large as the change of the trace:
`block_trace` leaves far less. The Hessian of f is that of the piece the parameters are on: where a neuron flips it is
not defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import Seed, generators
from flipscope.flips.engine import number_type, usual_inputs
from flipscope.models.modes import eval_mode
from flipscope.models.moving import Moving
from flipscope.models.parameters import Choice, chosen
from flipscope.probes.asking import Inputs, as_inputs

_CELLS = 1 << 23  # gradients of so many numbers are held at once


@dataclass(frozen=True)
class SplitTrace:
    """Both parts of the trace, and the standard error that random signs leave in the second."""

    gauss_newton: float  # 2 mean |grad f|^2
    residual: float  # 2 mean (f - y) tr Hess f
    error: float

    @property
    def value(self) -> float:
        """The trace."""
        return self.gauss_newton + self.residual


def split_trace(
    model: nn.Module,
    inputs: Inputs,
    targets: Float64[np.ndarray, " string"],
    *,
    probes: int = 16,
    parameters: Choice = None,
    seed: Seed = 0,
) -> SplitTrace:
    """The trace at the model as it stands, of a model with one output per string and no norms.

    `torch.func` takes the gradients: models with layer norms of PyTorch are refused (see `hessian_products`).

    >>> model = nn.Linear(2, 1, bias=False)
    >>> split_trace(model, np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros(2)).value
    5.0
    """
    if any(isinstance(module, nn.LayerNorm) for module in model.modules()):
        raise InputError("a split trace is of models without layer norms: take flipscope.curvature for this one")
    moved = chosen(model, parameters)
    (given,) = as_inputs(model, inputs)
    wanted = torch.from_numpy(np.asarray(targets, np.float64)).to(next(iter(moved.values())))
    if wanted.shape != (len(given),):
        raise InputError(f"targets of shape {tuple(wanted.shape)} must be [{len(given)}], one for each string")
    if usual_inputs(model) == "floats":
        given = given.to(number_type(model))
    (stream,) = generators(seed, 1)
    with eval_mode(model), torch.enable_grad():
        squares = _squared_gradients(model, moved, given)
        outputs = model(given).reshape(-1)
        weights = 2 * (outputs.detach() - wanted) / len(given)
        draws = np.zeros(1)
        if bool(weights.any()):
            first = torch.autograd.grad((weights * outputs).sum(), list(moved.values()), create_graph=True)
            draws = np.array([_bent(first, moved, stream) for _ in range(check_count("probes", probes, 2))])
    error = float(draws.std(ddof=1)) / len(draws) ** 0.5 if len(draws) > 1 else 0.0
    return SplitTrace(2 * float(squares.mean()), float(draws.mean()), error)


def _squared_gradients(model: nn.Module, moved: Mapping[str, nn.Parameter], given: Tensor) -> Tensor:
    """|grad f|^2 of each string, many strings at a time."""
    at = {name: each.detach() for name, each in moved.items()}

    def output(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        found: Tensor = functional_call(model, parameters, (row[None],))
        return found.sum()

    each = vmap(grad(output), in_dims=(None, 0))
    step = max(1, _CELLS // sum(one.numel() for one in at.values()))
    found = [
        torch.stack([one.flatten(1).square().sum(1) for one in each(at, rows).values()]).sum(0)
        for rows in given.split(step)
    ]
    return torch.cat(found)


def _bent(first: tuple[Tensor, ...], moved: Mapping[str, nn.Parameter], stream: np.random.Generator) -> float:
    """v' H v for random signs v, H the Hessian whose gradient is `first`."""
    signs = [
        torch.from_numpy(stream.integers(0, 2, tuple(each.shape), np.int8)).to(each) * 2 - 1 for each in moved.values()
    ]
    along = torch.stack([(one * sign).sum() for one, sign in zip(first, signs, strict=True)]).sum()
    if not along.requires_grad:  # the model is linear
        return 0.0
    second = torch.autograd.grad(along, list(moved.values()), retain_graph=True, allow_unused=True)
    return float(sum((one * sign).sum() for one, sign in zip(second, signs, strict=True) if one is not None))


@dataclass(frozen=True)
class TraceChange:
    """The largest change of the trace over some draws of noise of one size, and what it is a change of."""

    sigma: float
    base: float  # the trace without noise
    change: float  # the largest |Tr(Theta + e) - Tr(Theta)|
    largest: float  # the largest Tr(Theta + e)
    error: float  # standard error of the signs, the largest of all draws


def trace_changes(
    model: nn.Module,
    inputs: Inputs,
    sigmas: tuple[float, ...],
    *,
    draws: int = 1,
    probes: int = 16,
    seed: Seed = 0,
) -> list[TraceChange]:
    """What Gaussian noise of each size does to the trace; the target is the network's own output without noise.

    Every size has the same directions, so that changes along the sizes are those of the size.

    >>> from flipscope.constructions.fourier import fourier_network
    >>> from flipscope.cube.fourier_sums import random_sum
    >>> network = fourier_network(random_sum(6, 2, 2))
    >>> found = trace_changes(network, np.eye(6, dtype=np.uint8), (1e-4, 1e-3))
    >>> 0 < found[0].change < found[1].change
    True
    """
    count = check_count("draws", draws)
    for sigma in sigmas:
        if not 0 < sigma < np.inf:
            raise InputError(f"sigma={sigma} must be a positive number")
    for_noise, for_signs = generators(seed, 2)
    (given,) = as_inputs(model, inputs)
    with eval_mode(model), torch.no_grad():
        own = model(given).double().reshape(-1).numpy()
    base = split_trace(model, given, own).value
    found = []
    with Moving(chosen(model, None)) as moving:
        noise = [torch.from_numpy(for_noise.normal(size=moving.count)) for _ in range(count)]
        for sigma in sigmas:
            traces = []
            for each, stream in zip(noise, for_signs.spawn(count), strict=True):
                moving.to(each, sigma)
                traces.append(split_trace(model, given, own, probes=probes, seed=stream))
            values = [each.value for each in traces]
            worst = max(abs(value - base) for value in values)
            found.append(TraceChange(sigma, base, worst, max(values), max(each.error for each in traces)))
    return found
