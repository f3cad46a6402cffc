"""Copies of any module, to be converted or moved while the model itself stays unchanged."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flipscope.models.devices import has_float64

_SIGNS = np.array([-1.0, 1.0])
_EMPTY = (dict, OrderedDict, set)

M = TypeVar("M", bound=nn.Module)


def copied(module: M) -> M:
    """A deep copy, even of modules that hold tensors with a gradient history.

    Pruning and the hooks of weight and spectral norm leave such tensors, and recompute them at every call.

    >>> from torch.nn.utils import prune
    >>> copied(prune.random_unstructured(nn.Linear(4, 1), "weight", amount=2)).weight.count_nonzero().item()
    2
    """
    # Most of what a module holds are empty dictionaries of hooks, which deepcopy handles slowly.
    memo: dict[int, Any] = {}
    for inner in module.modules():
        for value in vars(inner).values():
            if type(value) in _EMPTY and not value:
                memo[id(value)] = type(value)()
    with _Detached():
        return copy.deepcopy(module, memo)


def converted(module: M, dtype: torch.dtype) -> M:
    """A copy with its numbers in this type, complex ones in the complex type of the same precision.

    PyTorch's ``to`` would drop imaginary parts. For float64 the copy is on the CPU if the module's device has none.

    >>> converted(nn.Linear(2, 1), torch.float64).weight.dtype
    torch.float64
    """

    narrow = dtype == torch.float64 and any(not has_float64(tensor.device) for tensor in module.parameters())

    def convert(tensor: Tensor) -> Tensor:
        tensor = tensor.cpu() if narrow else tensor
        if tensor.is_complex():
            return tensor.to(dtype.to_complex())
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    found: M = copied(module)._apply(convert)  # type: ignore[no-untyped-call]
    return found


@contextlib.contextmanager
def moved_by(module: nn.Module, amount: float) -> Iterator[None]:
    """Every parameter moved up or down by up to this share of itself within this context, and moved back afterwards.

    >>> layer = nn.Linear(2, 1)
    >>> before = layer.weight.tolist()
    >>> with moved_by(layer, 0.5):
    ...     layer.weight.tolist() == before
    False
    >>> layer.weight.tolist() == before
    True
    """
    moved = [each for each in module.parameters() if each.is_floating_point() or each.is_complex()]
    own = [each.data for each in moved]
    # One sign per row, column and so on is as good as one per number, and cheap to draw.
    sizes = [size for each in moved for size in each.shape]
    stream = np.random.default_rng(0)
    signs = iter(torch.from_numpy(stream.choice(_SIGNS, sum(sizes))).split(sizes))
    # No two parameters move by the same share, so that those of which the difference is taken do not cancel.
    shares = stream.uniform(0.5, 1.0, len(moved)) * stream.choice(_SIGNS, len(moved))
    try:
        for parameter, share in zip(moved, shares.tolist(), strict=True):
            move = parameter.new_ones(())
            for _ in parameter.shape:
                move = move[..., None] * next(signs).to(parameter)
            parameter.data = torch.addcmul(parameter.data, parameter.data, move, value=amount * share)
        yield
    finally:
        for parameter, data in zip(moved, own, strict=True):
            parameter.data = data


class _Detached(TorchFunctionMode):
    """Within this context, computed tensors, which PyTorch refuses to copy, are copied without their history."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            memo[id(tensor)] = tensor.detach().clone()
            return memo[id(tensor)]
        return function(*args, **(kwargs or {}))
