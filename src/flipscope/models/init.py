"""Initialisation: every parameter is drawn from its own named stream, the same on any machine."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float64
from torch import nn
from torch.nn.parameter import is_lazy

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_positive
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import seed_number
from flipscope.models.seeded_reset import SeededReset, reset_method

Scheme = Literal["pytorch", "uniform", "gaussian", "xavier_uniform", "xavier_normal"]
Scope = Literal["all", "weights"]
SCHEMES: tuple[Scheme, ...] = ("pytorch", "uniform", "gaussian", "xavier_uniform", "xavier_normal")

M = TypeVar("M", bound=nn.Module)


class Linear(nn.Linear):
    """PyTorch's linear map, uninitialised until `initialise` draws its parameters."""

    def reset_parameters(self) -> None:
        """Do nothing, so that PyTorch's global generator is not used."""


class Lookup(nn.Embedding):
    """PyTorch's embedding, uninitialised until `initialise` draws its parameters."""

    def reset_parameters(self) -> None:
        """Do nothing, so that PyTorch's global generator is not used."""


class Projection(Linear):
    """A linear map of attention, which PyTorch initialises differently and which may hold several heads' matrices.

    `packed`: PyTorch stores it in one matrix with its two siblings (queries, keys, values). `matrices`: the number of
    stacked matrices, each with its own Xavier fans (the full-rank heads of Eq 8).
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, packed: bool, matrices: int = 1) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.packed = packed
        self.matrices = matrices


# Modules whose distributions are defined here: those above, and PyTorch's linear map, which is treated alike.
_BY_LAW = (Linear.reset_parameters, Lookup.reset_parameters, nn.Linear.reset_parameters)


@dataclass(frozen=True)
class _Law:
    """A distribution of independent numbers: `spread` is a half-width, a standard deviation or the constant."""

    kind: Literal["uniform", "normal", "constant"]
    spread: float

    def draw(self, count: int, stream: np.random.Generator, scale: float) -> Float64[np.ndarray, " count"]:
        """Draw `count` numbers; random ones are multiplied by the scale."""
        if self.kind == "constant":
            return np.full(count, self.spread)
        spread = self.spread * scale
        return stream.uniform(-spread, spread, count) if self.kind == "uniform" else stream.normal(0, spread, count)


@checked_arguments
def initialise(
    model: M,
    scheme: Scheme = "pytorch",
    seed: int | np.random.Generator = 0,
    *,
    scope: Scope = "all",
    scale: float = 1.0,
    equal_layers: bool = False,
) -> M:
    """Draw the parameters of a model anew and return the model.

    uniform: [-1, 1]; gaussian: N(0, 1); xavier_uniform and xavier_normal: Glorot's with gain 1; pytorch: what
    PyTorch does, that is `reset_parameters` of every module, which also resets the running statistics of norms.
    It rejects a parameter that no such method fills. `scale` multiplies every drawn number.

    scope "all" draws every parameter, "weights" only the matrices; the others are 0, or 1 for the gains of layer norms.
    A vector has no Xavier fans: under these schemes "all" draws the biases of linear maps as PyTorch does and leaves
    other vectors at 0 or 1.

    Each parameter has a PCG64 stream keyed by the seed and its name, and is drawn in float64, then rounded:
    the result depends neither on the order of the parameters nor on the machine.

    With `equal_layers` the layers of a stack (an nn.ModuleList) start as copies of the first, as those of PyTorch's
    nn.TransformerEncoder do.

    >>> model = initialise(nn.Linear(2, 1), "uniform", seed=7)
    >>> bool((model.weight.abs() <= 1).all())
    True
    """
    if scheme not in SCHEMES:
        raise InputError(f"scheme={scheme!r} is not one of {', '.join(SCHEMES)}")
    if scope not in ("all", "weights"):
        raise InputError(f"scope={scope!r} is not one of all, weights")
    check_positive("scale", scale)
    number = seed_number(seed)
    for name, parameter in model.named_parameters():
        if parameter.is_meta or is_lazy(parameter):
            raise InputError(f"the parameter {name} has no memory: build the model with a seed")
    with torch.no_grad():
        if scheme == "pytorch":
            _reset(model, number, scale)
        for name, parameter in model.named_parameters():
            module, short = _owner(model, name)
            if scheme != "pytorch":
                _draw(_law(module, short, parameter, scheme, scope), name, parameter, number, scale)
            elif scope == "weights" and parameter.ndim < 2:
                _draw(_rest(module, short), name, parameter, number, scale)
        if equal_layers:
            _copy_first(model)
    return model


def _copy_first(model: nn.Module) -> None:
    """Give all layers of each stack the numbers of the first."""
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)]
    if not stacks:
        raise InputError("equal_layers=True is of a model with a stack of layers (nn.ModuleList), and it has none")
    for stack in stacks:
        first, *others = (dict(layer.named_parameters()) for layer in stack)
        for own in others:
            if {name: each.shape for name, each in own.items()} != {name: each.shape for name, each in first.items()}:
                raise InputError("equal_layers=True needs layers of one shape: say False for this model")
            for name, parameter in own.items():
                parameter.copy_(first[name])


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that has the parameter of this name, and the parameter's name in it."""
    path, _, short = name.rpartition(".")
    return model.get_submodule(path), short


def _draw(law: _Law, name: str, parameter: nn.Parameter, seed: int, scale: float) -> None:
    """Fill the parameter from its own stream."""
    values = law.draw(parameter.numel(), _stream(seed, name), scale)
    parameter.copy_(torch.from_numpy(values).view_as(parameter))


def _reset(model: nn.Module, seed: int, scale: float) -> None:
    """Fill every parameter as PyTorch does: each module first, then the modules around it."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    drawing = SeededReset(model, lambda name: _stream(seed, name))
    # From last to first, so that submodules come before their parents, and tied parameters follow their first owner.
    for path, module in reversed(list(model.named_modules())):
        if getattr(type(module), "reset_parameters", None) in _BY_LAW:
            for short, parameter in module.named_parameters(recurse=False):
                name = f"{path}.{short}" if path else short
                if short in ("weight", "bias") and names[id(parameter)] == name:
                    _draw(_pytorch_law(module, parameter) or _rest(module, short), name, parameter, seed, scale)
                    drawing.filled.add(name)
        elif reset := reset_method(module):
            drawing.run(path, reset)
    for name, parameter in model.named_parameters():
        if name not in drawing.filled:
            raise InputError(
                f"scheme='pytorch' does not know how the parameter {name} starts: give its module "
                f"({type(_owner(model, name)[0]).__name__}) a method reset_parameters, or take another scheme"
            )
        if name in drawing.drawn:
            parameter.mul_(scale)


def _rest(module: nn.Module, short: str) -> _Law:
    """The constant of a parameter that is not drawn."""
    # A layer norm is recognised by its eps, so that PyTorch's own norms in other models are included.
    return _Law("constant", 1.0 if short == "weight" and hasattr(module, "eps") else 0.0)


def _law(module: nn.Module, short: str, parameter: nn.Parameter, scheme: Scheme, scope: Scope) -> _Law:
    """The distribution of the parameter called `short` of this module under any scheme but PyTorch's."""
    is_matrix = parameter.ndim >= 2
    if scope == "weights" and not is_matrix:
        return _rest(module, short)
    if scheme == "uniform":
        return _Law("uniform", 1.0)
    if scheme == "gaussian":
        return _Law("normal", 1.0)
    if not is_matrix:
        return _pytorch_law(module, parameter) or _rest(module, short)
    fan_in, fan_out = _fans(module, parameter)
    if scheme == "xavier_uniform":
        return _Law("uniform", math.sqrt(6 / (fan_in + fan_out)))
    return _Law("normal", math.sqrt(2 / (fan_in + fan_out)))


def _pytorch_law(module: nn.Module, parameter: nn.Parameter) -> _Law | None:
    """PyTorch's distribution of this parameter of a linear map or an embedding, or None if it draws nothing."""
    if isinstance(module, Projection):
        if parameter is module.bias:
            return None
        if module.packed:  # nn.MultiheadAttention: Xavier on the three matrices stacked
            return _Law("uniform", math.sqrt(6 / (module.in_features + 3 * module.out_features)))
    if isinstance(module, nn.Linear):
        return _Law("uniform", 1 / math.sqrt(module.in_features))
    return _Law("normal", 1.0) if isinstance(module, Lookup) else None


def _fans(module: nn.Module, parameter: nn.Parameter) -> tuple[int, int]:
    """Glorot's fan in and fan out: inputs and outputs of the matrix, times the kernel's size."""
    kernel = math.prod(parameter.shape[2:])
    fan_out = parameter.shape[0] * kernel
    if isinstance(module, Projection):
        fan_out //= module.matrices
    return parameter.shape[1] * kernel, fan_out


def _stream(seed: int, name: str) -> np.random.Generator:
    """The random stream of the parameter of this name."""
    key = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype="<u4")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key.tolist())))
