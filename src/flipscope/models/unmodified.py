"""Checks that a transformer computes exactly what its configuration says.

The fast path, the bounds and the fast logits of training read weights instead of calling the model. Their results are
valid for the module that `Transformer(config)` builds. They would not notice a hook, a subclass, a parametrisation or a
replaced module, so all code that reads weights performs this check first.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from flipscope.models.config import TransformerConfig
from flipscope.models.transformer import Transformer

# Attributes that a module may have without changing what it computes.
_FREE = ("training", "_parameters", "_modules", "_is_full_backward_hook")


def difference(model: object) -> str | None:
    """How the model differs from the transformer of its configuration; None if it computes exactly that.

    Types, names and shapes, settings, hooks and methods set on a module are compared with those of a new transformer.
    Parameter values, their type, the mode and attributes that no method reads may differ.
    """
    own = own_difference(model)
    if own is not None or not isinstance(model, Transformer):
        return own
    return _first_difference(model, _built(model.config), "")


def own_difference(model: object) -> str | None:
    """The same for the outermost module alone, for code that calls the modules inside."""
    if type(model) is not Transformer:
        return f"the model is a {type(model).__name__}, not flipscope's Transformer itself"
    if type(model.config) is not TransformerConfig:
        return f"the model's config is a {type(model.config).__name__}"
    if nn.modules.module._has_any_global_hook():
        return "hooks are registered for all modules"
    return _own(model, _built(model.config), "")


@functools.lru_cache(maxsize=16)
def _built(config: TransformerConfig) -> Transformer:
    """The transformer of the configuration without data, for comparison only."""
    return Transformer(config, seed=None)


def _first_difference(module: nn.Module | None, built: nn.Module, name: str) -> str | None:
    """The first difference in the module or, in order, in its submodules."""
    if (own := _own(module, built, name)) is not None or module is None:
        return own
    for short, inner in built._modules.items():
        found = _first_difference(module._modules[short], inner, f"{name}.{short}".strip("."))  # type: ignore[arg-type]
        if found is not None:
            return found
    return None


def _own(module: nn.Module | None, built: nn.Module, name: str) -> str | None:
    """How a module differs from the newly built one, apart from its submodules."""
    what = f"the model's {name}" if name else "the model"
    if type(module) is not type(built):
        return f"{what} is a {type(module).__name__} instead of a {type(built).__name__}"
    mine, theirs = vars(module), vars(built)
    # A list of modules is iterated in this order.
    if [*module._modules] != [*built._modules]:
        return f"{what} has other modules inside"
    shapes, expected = (_shapes(one) for one in (module, built))
    if shapes != expected:
        wrong = sorted(key for key in shapes.keys() | expected.keys() if shapes.get(key) != expected.get(key))
        return f"{what} has another parameter {wrong[0]}"
    for key, value in theirs.items():
        if key not in _FREE and not (key in mine and _same(mine[key], value)):
            return f"{what} has {key.strip('_').replace('_', ' ')} of its own"
    for key in mine:
        if key not in theirs and hasattr(type(module), key):
            return f"{what} has {key} of its own"
    return None


def _shapes(module: nn.Module) -> dict[str, object]:
    """The shape of each parameter; a special tensor class, which may compute, has none."""
    shapes: dict[str, object] = {}
    for name, parameter in module._parameters.items():
        plain = type(parameter) is nn.Parameter and parameter.is_floating_point()
        shapes[name] = tuple(parameter.shape) if plain and parameter is not None else type(parameter)
    return shapes


def _same(mine: object, theirs: object) -> bool:
    return type(mine) is type(theirs) and not isinstance(mine, Tensor) and bool(mine == theirs)


def on_cpu(model: nn.Module) -> bool:
    """Whether all parameters are on the CPU."""
    return all(parameter.device == torch.device("cpu") for parameter in model.parameters())
