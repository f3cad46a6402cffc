"""Detecting modules that round to float32 inside although their weights are in float64, and bounding the error.

Their logits are float64 numbers with the precision of float32. Operations that `models.rounding` cannot watch, such as
a detour through numpy, show in the result: with perturbed weights, no float64 logit would happen to be a float32 one.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from flipscope.basics.errors import InputError
from flipscope.flips.engine import Bits, Engine, GeneralEngine, Logits
from flipscope.models.deterministic import FACTOR, largest_difference, perturbation_of, some_strings
from flipscope.models.rounding import coarsest_type, name_of
from flipscope.models.unmodified import difference

ROUNDINGS = 16.0  # least error bound, in roundings of the largest logit
_STRINGS = 4


def type_inside(exact: GeneralEngine, strings: Bits) -> torch.dtype | None:
    """The coarsest type to which the module rounds when evaluated in float64; None if it computes in float64."""
    if difference(exact.model) is None:
        return None
    few = some_strings(strings, 2 * _STRINGS)
    half = len(few) // 2
    logits = exact.logits(few)
    try:
        # The model's input is not examined: the function that creates it may use any type.
        found = coarsest_type(exact.ready(few[:half]), exact.ready(few[-half:]))
    except Exception:  # some models cannot be watched
        found = None
    if found is not None:
        return found
    if not _are_single(logits):
        return None
    # Not a power of two: a weight with few bits, such as a constant, would remain a float32 number.
    moved = exact.perturbed(math.pi / 3 * perturbation_of(torch.float32)).logits(few)
    return torch.float32 if (moved != logits).any() and _are_single(moved) else None


def rounding_inside(exact: GeneralEngine, strings: Bits, inside: torch.dtype) -> float:
    """The error bound of a logit that is rounded to this type inside.

    A few times the effect of perturbing every weight by one unit in the last place, or of converting to float32.
    """
    logits, eps = exact.logits(strings), torch.finfo(inside).eps
    moved = largest_difference(logits, exact.perturbed(eps).logits(strings))
    coarse = largest_difference(logits, exact.converted(torch.float32).logits(strings))
    finite = float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
    found = (FACTOR * moved, FACTOR * coarse, ROUNDINGS * eps * finite)
    return max((value for value in found if np.isfinite(value)), default=0.0)


def check_answers(engine: Engine, strings: Bits, precision: str) -> None:
    """Raise InputError unless each answer depends on its string only and, if requested, is computed in float64."""
    engine.check_deterministic(strings)
    if precision == "float64" and isinstance(engine, GeneralEngine):
        refuse_coarse(engine, strings)


def refuse_coarse(engine: GeneralEngine, strings: Bits) -> None:
    """Raise InputError if the module rounds to a coarser type in float64, for results that cannot report it."""
    if (inside := type_inside(engine, strings)) is not None:
        raise InputError(
            f"precision='float64' is not to be had of this model, which rounds to {name_of(inside)} inside: take that "
            "out, or say precision='native'"
        )


def _are_single(logits: Logits) -> bool:
    """Whether all logits are float32 numbers."""
    with np.errstate(over="ignore"):
        return bool((logits.astype(np.float32) == logits).all())
