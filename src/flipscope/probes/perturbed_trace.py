"""The trace of the Hessian of the mean squared error for a model that does not interpolate, by parameter.

    tr Hess L = 2 mean |grad f|^2 + 2 mean (f - y) tr Hess f                                            (002, Thm 17)

The first part is exact, by one gradient per string. The second is estimated with Hutchinson's signs, one parameter at a
time: the trace has no terms between two parameters, so signs for both at once would only add noise. Each parameter gets
some signs, and the rest go to the one with the largest error. The Hessian of f is that of the smooth piece around the
parameters: at a point where a neuron flips it is not defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from flipscope.adapters.inputs import Inputs, given_for
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import Choice, chosen, differentiable
from flipscope.adapters.settled import as_settled
from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count, check_positive
from flipscope.basics.errors import InputError, blamed_on
from flipscope.basics.seeds import Seed, generators
from flipscope.models.devices import in_float64
from flipscope.models.modes import eval_mode
from flipscope.models.transformer import LayerNorm

_CELLS = 1 << 23  # most entries of gradients held at once
_AT_ONCE = 8  # signs per parameter before its error is computed, and at each extension
_ENOUGH = 0.02  # error relative to the change of the exact part below which no more signs are drawn


@dataclass(frozen=True)
class SplitTrace:
    """Both parts of the trace, and the standard error of the second due to random signs."""

    gauss_newton: float  # 2 mean |grad f|^2
    residual: float  # 2 mean (f - y) tr Hess f
    error: float

    @property
    def value(self) -> float:
        """The trace."""
        return self.gauss_newton + self.residual


@dataclass(frozen=True)
class TraceChange:
    """The largest change of the trace over draws of noise of one size, and the trace itself."""

    sigma: float
    base: float  # the trace without noise
    change: float  # the largest |Tr(Theta + e) - Tr(Theta)|
    largest: float  # the largest Tr(Theta + e)
    error: float  # standard error of the signs, the largest of all draws


@checked_arguments
def split_trace(
    model: nn.Module,
    inputs: Inputs,
    targets: Float64[np.ndarray, " string"],
    *,
    probes: int = 16,
    parameters: Choice = None,
    seed: Seed = 0,
) -> SplitTrace:
    """The trace at the model's parameters, for one output per string, with a number of signs per parameter.

    `torch.func` computes the gradients, so a model with layer norms, flipscope's or PyTorch's, is rejected.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> split_trace(model, np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros(2)).value
    5.0
    """
    given = _given(model, inputs)
    (stream,) = generators(seed, 1)
    with eval_mode(model):
        _own_outputs(model, given)
        wanted = torch.from_numpy(np.asarray(targets, np.float64))
        if wanted.shape != (len(given),):
            raise InputError(f"targets of shape {tuple(wanted.shape)} must be [{len(given)}], one for each string")
        if not bool(wanted.isfinite().all()):
            raise InputError("targets must be finite numbers: some are not")
        return _split(model, chosen(model, parameters), given, wanted, probes, stream)


@checked_arguments
def trace_changes(
    model: nn.Module,
    inputs: Inputs,
    sigmas: tuple[float, ...],
    *,
    draws: int = 1,
    probes: int = 16,
    seed: Seed = 0,
) -> list[TraceChange]:
    """The effect of Gaussian noise of each size on the trace; the target is the network's own output without noise.

    All sizes use the same directions, so differences between sizes are due to the size.

    >>> from flipscope.constructions.fourier import fourier_network
    >>> from flipscope.cube.fourier_sums import random_sum
    >>> network = fourier_network(random_sum(6, 2, 2))
    >>> found = trace_changes(network, np.eye(6, dtype=np.uint8), (1e-4, 1e-3))
    >>> 0 < found[0].change < found[1].change
    True
    """
    count = check_count("draws", draws)
    for sigma in sigmas:
        check_positive("sigma", sigma)
    for_noise, for_signs = generators(seed, 2)
    given = _given(model, inputs)
    moved = chosen(model, None)
    found = []
    with eval_mode(model):
        own = _own_outputs(model, given)
        base = _split(model, moved, given, own, probes, for_signs).value  # no residual, so no sign is drawn
        with MovableParameters(moved) as moving:
            noise = [torch.from_numpy(for_noise.normal(size=moving.count)) for _ in range(count)]
            for sigma in sigmas:
                traces = []
                for each, stream in zip(noise, for_signs.spawn(count), strict=True):
                    moving.to(each, sigma)
                    traces.append(_split(model, moved, given, own, probes, stream, base))
                values = [each.value for each in traces]
                worst = max(abs(value - base) for value in values)
                found.append(TraceChange(sigma, base, worst, max(values), max(each.error for each in traces)))
    return found


def _given(model: nn.Module, inputs: Inputs) -> Tensor:
    """The strings in the model's input type; InputError for a model with layer norms or several inputs."""
    chosen(model, None)  # checks that the module has parameters
    if any(isinstance(module, nn.LayerNorm | LayerNorm) for module in model.modules()):
        raise InputError("a split trace is of models without layer norms: take flipscope.curvature for this one")
    parts = given_for(as_settled(model), inputs).ready().positional
    if len(parts) != 1:
        raise InputError(f"a split trace is of models with one input, and {len(parts)} were given")
    return parts[0]


def _own_outputs(model: nn.Module, given: Tensor) -> Tensor:
    """The model's outputs, in float64; InputError unless they are one finite number per string."""
    with torch.no_grad(), blamed_on("the model"):
        outputs = model(given)
    if not isinstance(outputs, Tensor) or outputs.numel() != len(given):
        raise InputError("the model must give one number per string for a split trace")
    if not bool(outputs.isfinite().all()):
        raise InputError("the model gives NaN or infinite outputs on these strings: check the weights and the inputs")
    return in_float64(outputs).reshape(-1)


def _split(
    model: nn.Module,
    moved: Mapping[str, nn.Parameter],
    given: Tensor,
    wanted: Tensor,
    probes: int,
    stream: np.random.Generator,
    base: float | None = None,
) -> SplitTrace:
    """Both parts; given a trace for comparison (`base`), only as many signs as the change requires."""
    check_count("probes", probes, 2)
    with torch.enable_grad(), differentiable(list(moved.values())):
        exact = 2 * float(in_float64(_squared_gradients(model, moved, given)).mean())
        outputs = model(given).reshape(-1)
        weights = 2 * (outputs.detach() - wanted.to(outputs)) / len(given)
        if not bool(weights.any()):
            return SplitTrace(exact, 0.0, 0.0)
        first = torch.autograd.grad(
            (weights * outputs).sum(), list(moved.values()), create_graph=True, allow_unused=True
        )
        enough = 0.0 if base is None else _ENOUGH * abs(exact - base)
        residual, error = _residual(list(zip(moved.values(), first, strict=True)), probes, enough, stream)
    return SplitTrace(exact, residual, error)


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


def _residual(
    blocks: list[tuple[nn.Parameter, Tensor | None]], probes: int, enough: float, stream: np.random.Generator
) -> tuple[float, float]:
    """The sum of the blocks' traces and its standard error: signs are spent on the largest errors."""
    bent = [(each, one) for each, one in blocks if one is not None and one.requires_grad]
    left, step = probes * len(bent), min(_AT_ONCE, probes)
    draws: list[list[float]] = [[] for _ in bent]
    errors = np.full(len(bent), np.inf)
    while left > 0 and float(np.sqrt((errors**2).sum())) > enough:
        place = int(errors.argmax())
        draws[place] += [_bend(*bent[place], stream) for _ in range(step)]
        errors[place] = np.std(draws[place], ddof=1) / len(draws[place]) ** 0.5
        left -= step
    return float(sum(np.mean(each) for each in draws)), float(np.sqrt((errors**2).sum()))


def _bend(parameter: nn.Parameter, first: Tensor, stream: np.random.Generator) -> float:
    """v' H v for random signs v of one parameter, H the Hessian whose gradient is `first`."""
    signs = torch.from_numpy(stream.integers(0, 2, tuple(parameter.shape), np.int8)).to(parameter) * 2 - 1
    (second,) = torch.autograd.grad((first * signs).sum(), [parameter], retain_graph=True, allow_unused=True)
    return 0.0 if second is None else float((second * signs).sum())
