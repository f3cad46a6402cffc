"""Copies of any module, to be converted or moved while the model itself stays unchanged."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from flipscope.models.devices import has_float64

M = TypeVar("M", bound=nn.Module)


def copied(module: M) -> M:
    """A deep copy, even of modules that hold tensors with a gradient history.

    Pruning and the hooks of weight and spectral norm leave such tensors, and recompute them at every call.

    >>> from torch.nn.utils import prune
    >>> copied(prune.random_unstructured(nn.Linear(4, 1), "weight", amount=2)).weight.count_nonzero().item()
    2
    """
    with _Detached():
        return copy.deepcopy(module)


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
