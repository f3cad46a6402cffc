"""Detecting modules that round to float32 inside although their weights are in float64, and bounding the error.

Their logits are float64 numbers with the precision of float32. Operations that `adapters.rounding` cannot watch,
such as a detour through numpy, show in the result: with perturbed weights, no float64 logit would be a float32 number.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from flipscope.adapters.deterministic import FACTOR, largest_difference, perturbation_of, some_strings
from flipscope.adapters.rounding import coarsest_type, name_of, rounds
from flipscope.adapters.settled import Bits, Logits, Settled
from flipscope.basics.errors import InputError

ROUNDINGS = 16.0  # least error bound, in roundings of the largest logit
_STRINGS = 8


def exact_logits(exact: Settled, strings: Bits) -> tuple[Logits, torch.dtype | None]:
    """The logits of a module in float64, and the coarsest type to which it rounds inside; None if to none."""
    if exact.is_known:
        return exact.logits(strings), None
    exact.prepare(strings)
    given = exact.encode(strings)  # not watched: the function that creates the input may use any type
    try:
        raw, coarse = rounds(lambda: exact.call(given))
    except Exception:  # some models cannot be watched
        raw, coarse = exact.run(strings), False
    logits = exact.decided(raw, len(strings), strings.shape[1])
    if coarse:
        few = some_strings(strings, _STRINGS)
        half = len(few) // 2
        first, last = exact.encode(few[:half]), exact.encode(few[-half:])
        found = coarsest_type(lambda: exact.call(first), lambda: exact.call(last))
        if found is not None:
            return logits, found
    if not _are_single(logits):
        return logits, None
    # Not a power of two: a weight with few bits, such as a constant, would remain a float32 number.
    with exact.perturbed(math.pi / 3 * perturbation_of(torch.float32)) as other:
        moved = other.logits(strings)
    return logits, torch.float32 if (moved != logits).any() and _are_single(moved) else None


def rounding_inside(exact: Settled, strings: Bits, inside: torch.dtype) -> float:
    """The error bound of a logit that is rounded to this type inside.

    A few times the effect of perturbing every weight by one unit in the last place, or of converting to float32.
    """
    logits, eps = exact.logits(strings), torch.finfo(inside).eps
    with exact.perturbed(eps) as other:
        moved = largest_difference(logits, other.logits(strings))
    coarse = largest_difference(logits, exact.converted(torch.float32).logits(strings))
    finite = float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
    found = (FACTOR * moved, FACTOR * coarse, ROUNDINGS * eps * finite)
    return max((value for value in found if np.isfinite(value)), default=0.0)


def refuse_coarse(settled: Settled, strings: Bits) -> None:
    """Raise InputError if float64 is wanted of a module that rounds to a coarser type, for results that cannot tell."""
    if settled.subject.precision != "float64" or settled.module is None:
        return
    if (inside := exact_logits(settled, some_strings(strings, _STRINGS))[1]) is not None:
        raise InputError(
            f"precision='float64' is not to be had of this model, which rounds to {name_of(inside)} inside: take that "
            "out, or say precision='native'"
        )


def _are_single(logits: Logits) -> bool:
    """Whether all logits are float32 numbers."""
    with np.errstate(over="ignore"):
        return bool((logits.astype(np.float32) == logits).all())
