"""Temporary evaluation mode, which restores each module's own mode, since some may be frozen in another mode.

Also contexts for forward passes that are differentiated only once and may use faster kernels.
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
    """Forward passes within this context are differentiated at most once, as in training."""
    before = _first_only.set(True)
    try:
        yield
    finally:
        _first_only.reset(before)


def differentiated_once() -> bool:
    """Whether no second derivatives are needed."""
    return _first_only.get()


def only_numbers() -> bool:
    """Whether neither autocast nor forward derivatives are active."""
    return not torch.is_autocast_enabled("cpu") and getattr(forward_ad, "_current_level", -1) < 0


@contextlib.contextmanager
def dense_gradients(model: nn.Module) -> Iterator[None]:
    """Within this context, embeddings with sparse=True have dense gradients, which can be differentiated again."""
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
    """Restore the mode of each module of the model after the context."""
    modes = [(module, module.training) for module in _with_modes(model)]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def eval_mode(model: object, *, own: bool = False) -> Iterator[None]:
    """Set the model to evaluation mode within this context, and restore each module's mode afterwards.

    Only the flags are set, since a model's own train() may have irreversible effects, and probes use this often. With
    own=True the model's eval() and train() are called once each, as for a validation.
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
    """The modules that have a mode; `torch.jit.freeze` removes it."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return [module for module in modules if hasattr(module, "training")]
