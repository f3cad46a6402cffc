"""Modules that round to float32 inside although their weights are in float64: which, and how far off they may be.

Their logits are float64 numbers that are no better than float32. What `models.rounding` cannot watch, such as a detour
through numpy, shows in the end: with perturbed weights no logit in float64 would happen to be a number of float32.
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

ROUNDINGS = 16.0  # of the largest logit, that the error may be at least
_STRINGS = 4


def type_inside(exact: GeneralEngine, strings: Bits) -> torch.dtype | None:
    """The coarsest type that the module rounds to, asked in float64; None if there is none, and it is in float64."""
    if difference(exact.model) is None:
        return None
    few = some_strings(strings, 2 * _STRINGS)
    half = len(few) // 2
    logits = exact.logits(few)
    try:
        # What the model is given is what it is: the function that makes it may use any type.
        found = coarsest_type(exact.ready(few[:half]), exact.ready(few[-half:]))
    except Exception:  # some models cannot be watched
        found = None
    if found is not None:
        return found
    if not _are_single(logits):
        return None
    # By no power of two: a model of few bits, such as a constant, would stay one of float32.
    moved = exact.perturbed(math.pi / 3 * perturbation_of(torch.float32)).logits(few)
    return torch.float32 if (moved != logits).any() and _are_single(moved) else None


def rounding_inside(exact: GeneralEngine, strings: Bits, inside: torch.dtype) -> float:
    """How far from the truth a logit may be that is rounded to this type inside.

    A few times what a perturbation of every weight by one unit in the last place does, or the conversion to float32.
    """
    logits, eps = exact.logits(strings), torch.finfo(inside).eps
    moved = largest_difference(logits, exact.perturbed(eps).logits(strings))
    coarse = largest_difference(logits, exact.converted(torch.float32).logits(strings))
    finite = float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
    found = (FACTOR * moved, FACTOR * coarse, ROUNDINGS * eps * finite)
    return max((value for value in found if np.isfinite(value)), default=0.0)


def check_answers(engine: Engine, strings: Bits, precision: str) -> None:
    """Raise InputError unless each answer is its string's own and, where float64 was asked for, is in float64."""
    engine.check_deterministic(strings)
    if precision == "float64" and isinstance(engine, GeneralEngine):
        refuse_coarse(engine, strings)


def refuse_coarse(engine: GeneralEngine, strings: Bits) -> None:
    """Raise InputError if the module, asked in float64, rounds to something coarser: for results that cannot say so."""
    if (inside := type_inside(engine, strings)) is not None:
        raise InputError(
            f"precision='float64' is not to be had of this model, which rounds to {name_of(inside)} inside: take that "
            "out, or say precision='native'"
        )


def _are_single(logits: Logits) -> bool:
    """Whether all logits are numbers of float32."""
    with np.errstate(over="ignore"):
        return bool((logits.astype(np.float32) == logits).all())
