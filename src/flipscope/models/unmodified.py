"""Whether a transformer computes what our code knows: exactly what its configuration says, and nothing else.

The fast path, the bounds and the quick logits of training read weights instead of calling the model.
What they say holds for the module that `Transformer(config)` builds. A hook, a subclass, a parametrisation or a module
put in another's place would pass unseen, so that everything which reads weights asks here first.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from flipscope.models.config import TransformerConfig
from flipscope.models.init import Linear, Lookup, Projection
from flipscope.models.transformer import MLP, Attention, Block, Embedding, LayerNorm, Transformer

# What a module may have of its own without any change to what it computes.
_FREE = ("training", "_parameters", "_modules", "_is_full_backward_hook")
_TYPES = (
    *(Transformer, Embedding, Block, Attention, MLP, LayerNorm, Linear, Lookup, Projection, TransformerConfig),
    *(nn.ModuleList, nn.Dropout, nn.Identity),
)


def difference(model: object) -> str | None:
    """In what the model differs from the transformer of its configuration; None where it computes just that.

    Types, names and shapes, settings, hooks and methods are compared with those of a transformer built anew. Numbers,
    their type, the mode and attributes that no method reads are the model's own business.
    """
    own = own_difference(model)
    if own is not None or not isinstance(model, Transformer):
        return own
    return _first_difference(model, _built(model.config), "")


def own_difference(model: object) -> str | None:
    """The same of the outermost module alone, for what calls the modules inside and needs to know no more of them."""
    if type(model) is not Transformer:
        return f"the model is a {type(model).__name__}, not flipscope's Transformer itself"
    if type(model.config) is not TransformerConfig:
        return f"the model's config is a {type(model.config).__name__}"
    for kind, methods in _METHODS.items():
        if replaced := sorted(name for name in _differing(methods, _methods(kind)) if _matters(kind, name)):
            return f"{kind.__name__}.{replaced[0]} has been replaced"
    if nn.modules.module._has_any_global_hook():
        return "hooks are registered for all modules"
    return _own(model, _built(model.config), "")


def _methods(kind: type) -> dict[str, Any]:
    """The methods and properties that a class defines itself."""
    kinds = (property, classmethod, staticmethod)
    return {name: value for name, value in vars(kind).items() if callable(value) or isinstance(value, kinds)}


# As they were on import: a method replaced later changes what a plain forward computes, but not what we read.
_METHODS = {kind: _methods(kind) for some in _TYPES for kind in some.__mro__[:-1]}


def _differing(first: dict[str, Any], second: dict[str, Any]) -> set[str]:
    """The names that do not stand for the same object."""
    return {name for name in first.keys() | second.keys() if first.get(name) is not second.get(name)}


def _matters(kind: type, name: str) -> bool:
    """Whether a method that differs can change what is computed: one of before, or one that hides an inherited one.

    A method of a new name is nobody's call: importing `transformers` adds one to every module.
    """
    return name in _METHODS[kind] or any(name in vars(base) for base in kind.__mro__[1:]) or name.startswith("__")


@functools.lru_cache(maxsize=16)
def _built(config: TransformerConfig) -> Transformer:
    """The transformer of the configuration, without numbers; only to be looked at."""
    return Transformer(config, seed=None)


def _first_difference(module: nn.Module | None, built: nn.Module, name: str) -> str | None:
    """The first difference in the module or, in order, in one of those inside it."""
    if (own := _own(module, built, name)) is not None or module is None:
        return own
    for short, inner in built._modules.items():
        found = _first_difference(module._modules[short], inner, f"{name}.{short}".strip("."))  # type: ignore[arg-type]
        if found is not None:
            return found
    return None


def _own(module: nn.Module | None, built: nn.Module, name: str) -> str | None:
    """In what a module differs from the one that was built, those inside it left aside."""
    what = f"the model's {name}" if name else "the model"
    if type(module) is not type(built):
        return f"{what} is a {type(module).__name__} instead of a {type(built).__name__}"
    mine, theirs = vars(module), vars(built)
    # A list of modules is gone through in this order.
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
    """The shape of each parameter; what is not a plain one, such as a tensor class that computes, has none."""
    shapes: dict[str, object] = {}
    for name, parameter in module._parameters.items():
        plain = type(parameter) is nn.Parameter and parameter.is_floating_point()
        shapes[name] = tuple(parameter.shape) if plain and parameter is not None else type(parameter)
    return shapes


def _same(mine: object, theirs: object) -> bool:
    return type(mine) is type(theirs) and not isinstance(mine, Tensor) and bool(mine == theirs)


def on_cpu(model: nn.Module) -> bool:
    """Whether all parameters are in the memory of the processor."""
    return all(parameter.device == torch.device("cpu") for parameter in model.parameters())
