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
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from flipscope.adapters.copies import converted, moved_by
from flipscope.adapters.rounding import coarsest_type
from flipscope.basics.errors import InputError

if TYPE_CHECKING:
    from flipscope.adapters.settled import Settled

Bits: TypeAlias = NDArray[np.uint8]
Answers: TypeAlias = NDArray[np.floating]  # [string, number]
Ask: TypeAlias = Callable[[NDArray[Any]], Answers]

ORDERS = 64.0  # roundings by which two orders of summation may differ
FACTOR = 8.0  # a difference this many times larger than the effect of rounding is not rounding
CREDIBLE = 0.01  # relative difference up to which rounding is plausible
STRINGS, COPIES = 8, 5  # strings evaluated together, and copies of one of them
PERTURBATION = 2.0**9  # perturbation of every weight, in roundings, that represents the rounding of all sums
_SINGLE = float(np.finfo(np.float32).eps)


def trial_rows(strings: Bits, batch: int | None) -> tuple[Bits, int]:
    """A few strings for a trial call, and the number of copies of one of them for the second call.

    Neither number is the length of the strings, so that the axis of strings is told from that of positions.
    """
    length, most = strings.shape[1], STRINGS if batch is None else min(STRINGS, batch)
    counts = [count for count in range(most, 0, -1) if count != length] or [1]
    if counts[0] == 1 < most:
        counts = [most, 1]  # of two strings of two bits nothing else can be told
    few = some_strings(strings, counts[0])
    again = next((count for count in counts[1:] if count <= COPIES), counts[-1])
    return few[np.arange(counts[0]) % len(few)], again


def check_alike(
    settled: Settled, few: Bits, first: Answers, row: int, second: Answers, ask: Ask | None = None
) -> float:
    """Raise InputError unless outputs of ``few`` strings and of copies of one ``row`` agree; their largest difference.

    The row is one below the middle, which a maximum or a median over the batch would move, too. Only if the two calls
    differ by more than the order of summation explains, further calls find out why.
    """
    if np.isnan(first).any() or np.isnan(second).any():
        return 0.0  # counted and refused by the measurement
    module = settled.module
    eps = float(np.finfo(first.dtype if settled.dtype is None else _numpy_type(settled.dtype)).eps)
    size, apart = float(np.abs(first).max(initial=0.0)), largest_difference(first[row : row + 1], second)
    if apart > ORDERS * (eps if module is not None else max(eps, _SINGLE)) * size:

        def asking(model: Any) -> Ask:
            if ask is not None and model is module:
                return ask
            other = settled if model is module else settled.like(model)
            return lambda some: other.rows(other.run(some), len(some)).flatten(1).detach().cpu().numpy().copy()

        check_together(module, asking, few, eps)
    return apart


def check_together(model: object, asking: Callable[[Any], Ask], few: NDArray[Any], eps: float | None = None) -> None:
    """Raise InputError unless the model's outputs for these few inputs are reproducible and independent of each other.

    ``few`` holds strings, or what else ``asking(model)`` evaluates, one in each row.
    """
    ask = asking(model)
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
    with moved_by(wide, perturbation_of(inner)):
        rounding = largest_difference(first, ask(few))
    room = FACTOR * rounding + ORDERS * torch.finfo(inner).eps * float(np.abs(first).max(initial=0.0))
    found = _together(ask, few, first)
    if (moved := max(found.others, found.place)) > room:
        _refuse(moved)
    return True


def _refuse(moved: float) -> None:
    raise InputError(
        f"the model's output for an input moves by {moved:.2g} with the other inputs of its batch: take statistics "
        "over the batch out of it, such as batch normalisation in training mode or dynamically quantised layers, or "
        "ask one string at a time by flipscope.Subject(model, batch=1)"
    )


def _numpy_type(dtype: torch.dtype) -> Any:
    """The type of numpy with the rounding of this one; bfloat16's is coarser than any."""
    return {torch.float64: np.float64, torch.float32: np.float32}.get(dtype, np.float16)


def some_strings(strings: Bits, most: int) -> Bits:
    """Up to this many different strings, spread over all; if there are fewer, with flips of the first."""
    found = {string.tobytes(): string for string in strings[:: max(1, len(strings) // (STRINGS * most))]}
    if len(found) < most:
        flips = strings[0] ^ np.eye(most, strings.shape[1], dtype=np.uint8)
        found |= {string.tobytes(): string for string in flips}
    distinct = np.stack([*found.values()])
    return distinct[:: max(1, len(distinct) // most)][:most]
