"""Detecting the number type in which a module really computes, which may be coarser than that of its weights.

A module converted to float64 does not compute in float64 if its forward pass calls `.float()`, creates tensors of
PyTorch's default type, or calls code that was not converted. So its operations are watched as they run. An operation
whose result is coarser than float64 is computed once more from the same numbers in float64, and has lost precision if
the result differs. It counts only if the result depends on the strings: a table of constants is what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_FINE = torch.finfo(torch.float64).eps
_Lost = tuple[torch.dtype, int]  # the type of a result that was rounded, and a fingerprint of it


def coarsest_type(first: Callable[[], object], second: Callable[[], object]) -> torch.dtype | None:
    """The coarsest type to which two runs on different strings round; None if they compute in float64 throughout.

    Both runs must have the same number of strings, so that they perform the same operations.
    """
    one, two = (_rounded(run) for run in (first, second))
    if len(one) == len(two):
        lost = [kind for (kind, seen), (_, other) in zip(one, two, strict=True) if seen != other]
    else:
        lost = [kind for kind, _ in (*one, *two)]
    return max(lost, key=lambda kind: torch.finfo(kind).eps, default=None)


def rounds(run: Callable[[], Any]) -> tuple[Any, bool]:
    """What a run returns, and whether anything in it was rounded to a coarser type than float64."""
    mode = _RoundingMode()
    with mode:
        out = run()
    return out, bool(mode.lost)


def _rounded(run: Callable[[], object]) -> list[_Lost]:
    mode = _RoundingMode()
    with mode:
        run()
    return mode.lost


def _coarse(tensor: object) -> bool:
    """Whether this is a tensor of floating-point numbers coarser than float64."""
    if not isinstance(tensor, Tensor) or tensor.dtype == torch.float64:
        return False
    return tensor.is_floating_point() and torch.finfo(tensor.dtype).eps > _FINE


class _RoundingMode(TorchDispatchMode):
    """Records every result that is coarser than float64 and would differ in float64."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise PyTorch loads its compiler, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lost: list[_Lost] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = (args, kwargs or {})
        before = _wide(given) if func._schema.is_mutable else None  # the operation will overwrite its input
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and not _coarse(out):
            return out
        results = tree_leaves(out)
        has_inputs = any(isinstance(part, Tensor) for part in tree_leaves(given))
        if has_inputs and any(map(_coarse, results)) and "empty" not in func._schema.name:
            exact = _again(func, before or _wide(given))
            for number, result in enumerate(results):
                if _coarse(result) and not _equal(result, exact[number] if number < len(exact) else None):
                    self.lost.append((result.dtype, hash(result.double().cpu().numpy().tobytes())))
        return out


def _wide(given: Any, whole: bool = False) -> Any:
    """Copies of all floating-point numbers in float64, of whole ones too if asked for, and float64 wherever a coarser
    type is asked for."""

    def widen(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(torch.float64, copy=True) if part.is_floating_point() or whole else part
        is_coarse = isinstance(part, torch.dtype) and part.is_floating_point and torch.finfo(part).eps > _FINE
        return torch.float64 if is_coarse else part

    return tree_map(widen, given)


def _again(func: Any, given: Any) -> list[Any]:
    """The result of the operation in float64; None if it does not accept that type."""
    floats = any(isinstance(part, Tensor) and part.is_floating_point() for part in tree_leaves(given))
    # A quotient of integers has PyTorch's default type, whatever the module's; but an index must stay an integer.
    for wide in (given,) if floats else (_wide(given, whole=True), given):
        try:
            args, kwargs = wide
            return tree_leaves(func(*args, **kwargs))
        except Exception:  # operations reject a type in many ways
            continue
    return []


def _equal(coarse: Tensor, exact: object) -> bool:
    if not isinstance(exact, Tensor) or exact.shape != coarse.shape:
        return False
    return torch.equal(coarse.double().nan_to_num(), exact.double().nan_to_num())


def name_of(dtype: torch.dtype) -> str:
    """The name of the type, without its module."""
    return str(dtype).removeprefix("torch.")
