"""Modules in evaluation mode for a while, each left as it was: some may be frozen in a mode of their own.

And forwards that are differentiated once only, which may take shorter ways.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import nn
from torch.autograd import forward_ad

_first_only: ContextVar[bool] = ContextVar("first_only", default=False)


@contextlib.contextmanager
def first_derivatives() -> Iterator[None]:
    """Forwards inside are differentiated at most once, as a training does."""
    before = _first_only.set(True)
    try:
        yield
    finally:
        _first_only.reset(before)


def differentiated_once() -> bool:
    """Whether no second derivatives will be asked for."""
    return _first_only.get()


def only_numbers() -> bool:
    """Whether tensors are their numbers and no more: no other precision is asked for, nor forward derivatives."""
    return not torch.is_autocast_enabled("cpu") and getattr(forward_ad, "_current_level", -1) < 0


@contextlib.contextmanager
def dense_gradients(model: nn.Module) -> Iterator[None]:
    """Embeddings with sparse=True have dense gradients inside: the same numbers, which can be differentiated again."""
    sparse = [module for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    flags = [module.sparse for module in sparse]
    try:
        for module in sparse:
            module.sparse = False
        yield
    finally:
        for module, flag in zip(sparse, flags, strict=True):
            module.sparse = flag


@contextlib.contextmanager
def modes_kept(model: object) -> Iterator[None]:
    """Whatever happens inside, each module of the model has the mode of before afterwards."""
    modes = [(module, module.training) for module in _with_modes(model)]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def eval_mode(model: object, *, own: bool = False) -> Iterator[None]:
    """The model in evaluation mode, each of its modules as before afterwards.

    Only the flags are set, for a train() of the model's own may do more than can be undone, and a probe asks often.
    With own=True the model's eval() and train() are called, once each, as around any validation.
    """
    if not isinstance(model, nn.Module):
        yield
        return
    was_training = getattr(model, "training", False)
    with modes_kept(model):
        if own:
            model.eval()
        else:
            for module in _with_modes(model):
                module.training = False
        try:
            yield
        finally:
            if own:
                model.train(was_training)


def _with_modes(model: object) -> list[nn.Module]:
    """The modules that have a mode: `torch.jit.freeze` leaves none."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return [module for module in modules if hasattr(module, "training")]
