"""Checks that a model is a function of one string: deterministic, and independent of the rest of the batch.

Rounding complicates the check: a matrix product rounds differently for another number of strings, and a chaotic model
amplifies this to any size. But for the same number of strings, and at the same place in the batch, the sums of a string
do not depend on the other strings. So each string is evaluated among others and among copies of itself, and the two
outputs are compared. A model may still depend on the place or the number of strings. This shows in a comparison with
the string evaluated alone, and for a module it is judged in float64, by the effect of perturbing every weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.models.copies import converted, copied
from flipscope.models.rounding import coarsest_type

Bits: TypeAlias = NDArray[np.uint8]
Answers: TypeAlias = NDArray[np.floating]  # [string, number]
Ask: TypeAlias = Callable[[NDArray[Any]], Answers]

ORDERS = 64.0  # roundings by which two orders of summation may differ
FACTOR = 8.0  # a difference this many times larger than the effect of rounding is not rounding
CREDIBLE = 0.01  # relative difference up to which rounding is plausible
STRINGS = 8  # strings evaluated together
PERTURBATION = 2.0**9  # perturbation of every weight, in roundings, that represents the rounding of all sums
_SINGLE = float(np.finfo(np.float32).eps)


def check_deterministic(
    model: object, asking: Callable[[Any], Ask], strings: Bits, batch: int, eps: float | None = None
) -> None:
    """Raise InputError unless the model's output for a string is reproducible and independent of other strings.

    ``asking(model)`` returns a function that evaluates the model, or a copy of it in float64; ``batch`` is the largest
    batch size, and ``eps`` the rounding unit of its numbers, if the outputs' type does not tell.
    """
    check_together(model, asking, some_strings(strings, max(2, min(batch, STRINGS))), batch, eps)


def check_together(
    model: object, asking: Callable[[Any], Ask], few: NDArray[Any], batch: int, eps: float | None = None
) -> None:
    """Raise InputError unless the model's outputs for these few inputs are reproducible and independent of each other.

    ``few`` holds strings, or what else ``asking(model)`` evaluates, one in each row.
    """
    ask = asking(model)
    try:
        first = ask(few)
    except Exception:
        if batch > 1:
            raise
        few = few[:1]  # the model takes one string at a time, so no other string can matter
        first = ask(few)
    size, eps = float(np.abs(first).max(initial=0.0)), float(np.finfo(first.dtype).eps) if eps is None else eps
    moved = largest_difference(first, ask(few))
    # Accelerators may sum in another order each time; only such differences are allowed.
    if moved > ORDERS * eps * size:
        raise InputError(
            f"the model gave outputs that differ by {moved:.2g} for the same inputs: switch off dropout and other "
            "randomness, then measure again"
        )
    if len(few) == 1:
        return
    found = _together(ask, few, first)
    if isinstance(model, nn.Module):
        room = ORDERS * eps * size
        if found.others > FACTOR * found.alone + room:
            _refuse(found.others)
        if max(found.others, found.place) <= room or _is_rounding(model, asking, few):
            return
    # For other callables the effect of rounding is unknown: only a small difference for a single string is accepted.
    room = ORDERS * max(eps, _SINGLE) * size
    if found.others > FACTOR * min(found.alone, CREDIBLE * size) + room:
        _refuse(found.others)


def largest_difference(first: Answers, second: Answers) -> float:
    """The largest distance of two outputs; equal infinities have distance 0."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return float(np.where(first == second, 0.0, distance).max(initial=0.0))


def perturbed(module: nn.Module, amount: float) -> nn.Module:
    """A copy with every parameter moved up or down by this share of itself."""
    moved = copied(module)
    stream = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in moved.parameters():
            if not (parameter.is_floating_point() or parameter.is_complex()):
                continue
            # One sign per row, column and so on is as good as one per number, and cheap to draw.
            move = _signs((), stream).to(parameter)
            for size in parameter.shape:
                move = move[..., None] * _signs((size,), stream).to(parameter)
            parameter.add_(move * parameter, alpha=amount)
    return moved


def _signs(shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    return 2 * torch.randint(0, 2, shape, generator=stream, device="cpu") - 1


def perturbation_of(dtype: torch.dtype) -> float:
    """The perturbation that represents the rounding of this type: at least a hundred times its effect."""
    return min(PERTURBATION * torch.finfo(dtype).eps / 2, 2.0**-6)


@dataclass(frozen=True)
class _Together:
    """The changes of a string's output: with other strings, alone instead of first, alone instead of anywhere."""

    others: float
    alone: float
    place: float


def _together(ask: Ask, few: NDArray[Any], first: Answers) -> _Together:
    last = len(few) - 1
    backwards = ask(few[::-1])
    others = alone = place = 0.0
    for row in sorted({0, last // 2, last}):
        copies = ask(np.repeat(few[row : row + 1], len(few), axis=0))
        for answers, where in ((first, row), (backwards, last - row)):
            others = max(others, largest_difference(answers[where], copies[where]))
        try:
            itself = ask(few[row : row + 1])
        except Exception:  # some models reject a single string
            continue
        alone = max(alone, largest_difference(itself, copies[:1]))
        place = max(place, largest_difference(np.broadcast_to(itself, copies.shape), copies))
    return _Together(others, alone, place)


def _is_rounding(model: nn.Module, asking: Callable[[Any], Ask], few: NDArray[Any]) -> bool:
    """Whether rounding explains the differences, judged in float64; False if the module cannot be converted.

    InputError if it does not.
    """
    try:
        wide = converted(model, torch.float64)
        ask = asking(wide)
        first = ask(few)
    except Exception:
        return False
    half = len(few) // 2
    inner = coarsest_type(lambda: ask(few[:half]), lambda: ask(few[-half:])) or torch.float64
    rounding = largest_difference(first, asking(perturbed(wide, perturbation_of(inner)))(few))
    room = FACTOR * rounding + ORDERS * torch.finfo(inner).eps * float(np.abs(first).max(initial=0.0))
    found = _together(ask, few, first)
    if (moved := max(found.others, found.place)) > room:
        _refuse(moved)
    return True


def _refuse(moved: float) -> None:
    raise InputError(
        f"the model's output for an input moves by {moved:.2g} with the other inputs of its batch: take "
        "statistics over the batch and the like out of it, such as batch normalisation in training mode"
    )


def some_strings(strings: Bits, most: int) -> Bits:
    """Up to this many different strings, spread over all; if all are equal, one and its first flip."""
    spread = strings[np.unique(np.linspace(0, len(strings) - 1, STRINGS * most).astype(np.int64))]
    found = np.stack([*{string.tobytes(): string for string in spread}.values()])
    if len(found) == 1 and found.size:
        found = np.concatenate([found, found])
        found[1, 0] ^= 1
    return found[np.unique(np.linspace(0, len(found) - 1, most).astype(np.int64))]
