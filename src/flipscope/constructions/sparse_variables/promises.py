"""Bounds on the norms of heads: the paper's, and where these are wrong, bounds that follow from Delta.

Delta is the largest absolute product of two different vectors. If (2s - 1) Delta < 1, all bounds follow from it: the
Gram matrix of the relevant vectors has an inverse whose rows sum to at most 1/(1 - (s-1) Delta), so that a dual
vector's product with any other vector is at most Delta times that, and the gap at least (1 - (2s-1) Delta)/(1 - (s-1)
Delta). For larger Delta the measured gap of the basis is used instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from flipscope.constructions.sparse_variables.bases import Matrix
from flipscope.models.attention_network_config import InputMapping

# mean, select: B.2, B.3. powers: ours. bag, bag-vector: B.4. bag-select: B.4 for each bit by itself.
Route = Literal["mean", "select", "powers", "bag", "bag-vector", "bag-select"]


@dataclass(frozen=True)
class Promise:
    """A bound on a norm: the proven one, and the one that the paper prints, None where it has none."""

    bound: float
    printed: float | None


def positional_promises(
    route: Route,
    mapping: InputMapping,
    needed: float,
    delta: float,
    scale: float,
    relevant: Matrix,
    levels: Float64[np.ndarray, " relevant"],
) -> dict[str, Promise]:
    """Norms of Lemmas B.2 and B.3, and of one head for any function, whose logits are R times the levels at most.

    `needed` is by how much the logits of relevant positions must be above the others, `scale` the R that was used.
    """
    s, paper = len(levels), route != "powers"
    printed = needed / (1 - s * delta) if paper and s * delta < 1 else None
    if route == "select":
        bound = needed / (1 - delta)
    else:
        bound = _scale_bound(needed, s, delta, scale, offset=needed * float((levels - 1).sum()))
    keys = Promise(1.0, 1.0 if paper else None)
    if mapping == "deterministic" and route != "select":
        keys = Promise(_key_bound(relevant, levels, delta), float(s) if paper else None)
    promises = {"W_Q": Promise(bound, printed), "W_K": keys, "W_V": Promise(2.0, 2.0), "W_C": Promise(1.0, 1.0)}
    if mapping == "trainable":
        promises["P"] = Promise(float(levels.sum()), float(s) if paper else None)
    return promises


def bag_promises(
    route: Route, length: int, gamma: float, delta: float, scale: float, relevant: Matrix
) -> dict[str, Promise]:
    """Norms of Lemma B.4, whose printed assumptions are Delta < 1/s and gamma > s Delta."""
    s = len(relevant)
    if route == "bag-select":
        single = math.log(8 * length / gamma) / (1 - delta)
        bounds = {"W_Q": single, "W_K": math.sqrt(2), "W_V": math.sqrt(2), "W_C": 1.0}
        return {name: Promise(bound, None) for name, bound in bounds.items()}
    holds = s * delta < min(1, gamma)
    printed = math.log(8 * length * s * (1 + delta) / (gamma - s * delta)) / (1 - s * delta) if holds else None
    # Where the bound on the gap is positive, values at other positions are below 1, and s is the largest.
    bound = _scale_bound(math.log(8 * length * s / gamma), s, delta, scale)
    least = _least_eigenvalue(relevant, delta)
    return {
        "W_Q": Promise(bound, printed),
        "W_K": Promise(max(s + 1.0, math.hypot(_key_bound(relevant, np.ones(s), delta), 1)), s + 1.0),
        "W_V": Promise(max(2.0 * s, math.sqrt(s / least + s)), 2.0 * s),
        "W_C": Promise(float(s), float(s)),
    }


def _scale_bound(needed: float, s: int, delta: float, scale: float, offset: float = 0.0) -> float:
    """An upper bound on R where Delta is small enough for a bound on the gap; otherwise the R that was used.

    `offset` is the sum of the excesses of the relevant positions' logits over R.
    """
    rest = 1 - (s - 1) * delta
    gap = (1 - (2 * s - 1) * delta) / rest if rest > 0 else 0.0
    return (needed + offset * delta / rest) / gap if gap > 0 else scale


def _key_bound(relevant: Matrix, levels: Float64[np.ndarray, " relevant"], delta: float) -> float:
    """|u| for u . v_i = level_i: at most |levels|/sqrt(1 - (s-1) Delta), or by the smallest eigenvalue where larger."""
    return max(float(len(relevant)), float(np.linalg.norm(levels)) / math.sqrt(_least_eigenvalue(relevant, delta)))


def _least_eigenvalue(relevant: Matrix, delta: float) -> float:
    """The least eigenvalue of the relevant vectors' Gram matrix: Gershgorin's bound if positive, else the value."""
    bound = 1 - (len(relevant) - 1) * delta
    return bound if bound > 0 else float(np.linalg.eigvalsh(relevant @ relevant.T)[0])
