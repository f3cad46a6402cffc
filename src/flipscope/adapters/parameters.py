"""Selection of a model's parameters by name; for flipscope's transformers, without positions by default."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from flipscope.basics.errors import InputError, blamed_on
from flipscope.models.attention_network import InputVectors
from flipscope.models.devices import in_float64
from flipscope.models.fourier_network import FourierNetwork
from flipscope.models.transformer import Embedding

# Patterns such as "blocks.*" (as in a shell), a function of the name, or None for the default.
Choice: TypeAlias = str | Sequence[str] | Callable[[str], bool] | None

# Buffers that hold the vectors of positions and bits: set when a network is created, never by training.
_CONSTANTS: dict[type[nn.Module], tuple[str, ...]] = {
    FourierNetwork: ("codes",),
    InputVectors: ("symbols", "marker", "positions"),
}


def positional(model: nn.Module) -> frozenset[str]:
    """The names of the parameters of learned positions in flipscope's embeddings.

    >>> from flipscope.models import Transformer, hardness
    >>> sorted(positional(Transformer(hardness(8, width=16))))
    ['embedding.position.weight']
    """
    learned = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Embedding) and module.position is not None
        for parameter in module.position.parameters()
    }
    return frozenset(name for name, parameter in model.named_parameters() if id(parameter) in learned)


def usual(model: nn.Module, *, positions: bool = False) -> dict[str, nn.Parameter]:
    """All parameters by name, by default without learned positions; their values are not checked.

    >>> list(usual(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    left_out = frozenset() if positions else positional(model)
    return {name: parameter for name, parameter in model.named_parameters() if name not in left_out}


def constants(model: nn.Module) -> frozenset[str]:
    """The names of the buffers of flipscope's networks that training does not change.

    >>> from flipscope.models import FourierNetworkConfig
    >>> sorted(constants(FourierNetwork(FourierNetworkConfig(length=4, neurons=8))))
    ['codes']
    """
    ours = {
        id(module._buffers[name])
        for module in model.modules()
        for name in _CONSTANTS.get(type(module), ())
        if name in module._buffers
    }
    return frozenset(name for name, buffer in model.named_buffers() if id(buffer) in ours)


def plain_tensors(model: nn.Module) -> dict[str, Any]:
    """The tensors and arrays that modules have as attributes, also in lists and dicts, beside parameters and buffers.

    Modules save and move only parameters and buffers, but compute with these as well.

    >>> import torch
    >>> model = nn.Linear(2, 1)
    >>> model.scales = [torch.ones(2), model.bias]
    >>> list(plain_tensors(model))
    ['scales.0']
    """
    known = {id(each) for each in (*model.parameters(), *model.buffers())}
    found: dict[str, Any] = {}

    def visit(name: str, value: object) -> None:
        if isinstance(value, Tensor | np.ndarray):
            if id(value) not in known:
                known.add(id(value))
                found[name] = value
        elif isinstance(value, dict | list | tuple) and id(value) not in known:
            known.add(id(value))  # a list may contain itself
            for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                visit(f"{name}.{key}", each)

    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                visit(f"{prefix}.{name}" if prefix else name, value)
    return found


def first_names(model: nn.Module) -> dict[str, str]:
    """For every name of a parameter the first one of the same parameter: tied parameters have several.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> model[1].weight = model[0].weight
    >>> first_names(model)
    {'0.weight': '0.weight', '1.weight': '0.weight'}
    """
    first = {id(each): name for name, each in model.named_parameters()}
    return {name: first[id(each)] for name, each in model.named_parameters(remove_duplicate=False)}


def chosen(model: nn.Module, parameters: Choice = None) -> dict[str, nn.Parameter]:
    """The selected parameters by name; InputError if there are none, or if they are not finite.

    By default all but learned positions of flipscope's models; "*" selects all. Each pattern must match something. A
    tied parameter is chosen by any of its names and is found under the first; a function is asked about that one only.

    >>> list(chosen(nn.Linear(2, 1), "b*"))
    ['bias']
    """
    _check_module(model)
    there = dict(model.named_parameters())
    if not there:
        raise InputError(f"the {type(model).__name__} has no parameters: give a module that has some")
    found = {name: there[name] for name in _names(model, list(there), parameters)}
    if not found:
        raise InputError(f"no parameter is left of {_some(list(there))}: choose others")
    for name, parameter in found.items():
        if parameter.is_meta or is_lazy(parameter):
            raise InputError(f"the parameter {name} has a shape but no numbers: build the model with a seed")
        if parameter.is_inference():
            raise InputError(f"the parameter {name} was made in torch.inference_mode and cannot move: build it anew")
        if not parameter.is_floating_point():
            raise InputError(
                f"the parameter {name} of type {parameter.dtype} cannot move by real numbers: leave it out"
            )
    for name, parameter in there.items():
        if not (parameter.is_meta or is_lazy(parameter) or bool(parameter.detach().isfinite().all())):
            raise InputError(f"the model has NaN or infinite numbers in {name}: nothing can be measured of it")
    return found


def check_differentiable(model: nn.Module) -> None:
    """Raise InputError if the model has tensors made in inference mode, which have no gradients."""
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if each.is_inference():
            raise InputError(
                f"{name} was made in torch.inference_mode(), where nothing can be differentiated: give a "
                "copy.deepcopy of the model that is made outside of it"
            )


@contextmanager
def differentiable(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Enable gradients of these parameters within this context, even if frozen, and restore them afterwards."""
    before = [parameter.requires_grad for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter, flag in zip(parameters, before, strict=True):
            parameter.requires_grad_(flag)


def weight_norm(model: nn.Module, parameters: Choice = None, *, positions: bool = False) -> float:
    """The Euclidean norm of the parameters, without flipscope's learned positions, as in the hardness paper.

    positions=True includes them; for other modules all parameters count unless `parameters` selects some.

    >>> model = nn.Linear(2, 1)
    >>> model.weight.data[:], model.bias.data[:] = 3 / 2**0.5, 4.0
    >>> round(weight_norm(model), 5), round(weight_norm(model, "weight"), 5)
    (5.0, 3.0)
    """
    if positions and parameters is not None:
        raise InputError("positions=True goes with the usual parameters: name them in parameters instead")
    return length(chosen(model, "*" if positions else parameters).values())


def length(parameters: Iterable[nn.Parameter]) -> float:
    """The Euclidean norm of all these numbers as one vector; NaN if one of them is NaN."""
    return math.sqrt(sum(float(in_float64(each.detach()).square().sum()) for each in parameters))


def matching(model: nn.Module, patterns: str | Sequence[str], what: str) -> list[str]:
    """The names of the model's parameters, buffers and plain tensors that match, as in a shell.

    Each pattern must match something; a tied parameter is found under its first name. `what` is the argument that
    InputError names.

    >>> matching(nn.BatchNorm1d(2), ["weight", "running_*"], "fixed")
    ['weight', 'running_mean', 'running_var']
    """
    _check_module(model)
    others = [*dict(model.named_buffers()), *plain_tensors(model)]
    return _matching(first_names(model) | dict(zip(others, others, strict=True)), patterns, what)


def _check_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise InputError(f"the model must be an nn.Module, whose parameters can move, not a {type(model).__name__}")


def _names(model: nn.Module, there: list[str], parameters: Choice) -> list[str]:
    if parameters is None:
        return list(usual(model))
    if callable(parameters):
        with blamed_on("the function parameters"):
            return [name for name in there if bool(parameters(name))]
    return _matching(first_names(model), parameters, "parameters", " or a function of a name")


def _matching(there: Mapping[str, str], given: str | Sequence[str], what: str, otherwise: str = "") -> list[str]:
    patterns = [given] if isinstance(given, str) else list(given)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InputError(f"{what}={given!r} must be patterns of names{otherwise}")
        if not any(fnmatchcase(name, pattern) for name in there):
            raise InputError(f"{what}={pattern!r} matches none of {_some(list(there))}")
    found = {first for name, first in there.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}
    return [name for name in there if name in found]


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
