"""The attention heads of Lemmas B.2, B.3 and B.4, and one head for any function; matrices, targets and promised norms.

Positions are encoded by vectors v_t. With an orthonormal basis everything is as in the paper, except for its errors.
With any other basis the printed sum of the v_i is replaced by dual vectors, so that all relevant positions have exactly
the intended logits, and R follows from the measured gap to the others, not from a bound on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables.bases import Matrix, coherence, dual_vectors
from flipscope.constructions.sparse_variables.functions import patterns
from flipscope.constructions.sparse_variables.promises import Promise, Route, bag_promises, positional_promises
from flipscope.models.attention_network_config import FixedVectors, InputMapping

Vector = Float64[np.ndarray, " _"]


@dataclass(frozen=True, eq=False)
class Heads:
    """Everything before the MLP."""

    query: list[Matrix]  # [width, k] per head
    key: list[Matrix]
    value: list[Matrix]
    mix: list[Matrix]  # [k, width]
    vectors: FixedVectors
    target: Float64[np.ndarray, "pattern number"]  # g, which the heads approximate
    spacing: float  # by which g is monotone or injective
    bound: float  # B: the largest |g|
    scale: float  # R, the largest of the heads
    gap: float  # between the logits of relevant and other positions, in units of R; the smallest of the heads
    coherence: float  # Delta
    promises: dict[str, Promise] = field(default_factory=dict)


def usual_gamma(route: Route, sparsity: int) -> float:
    """The gamma that an MLP needs: the spacing of the target, but at most 1."""
    return min(1.0, spacing_of(route, sparsity))


def spacing_of(route: Route, sparsity: int) -> float:
    """The smallest distance between two values of the target."""
    spacings: dict[Route, float] = {
        "mean": 2 / sparsity,
        "select": 2.0,
        "powers": 2 / (2**sparsity - 1),
        "bag": 1 / sparsity,
        "bag-vector": 1 / sparsity,
        "bag-select": 1.0,
    }
    return spacings[route]


def positional_heads(
    route: Route,
    mapping: InputMapping,
    positions: tuple[int, ...],
    vectors: FixedVectors,
    gamma: float,
    as_printed: bool,
) -> Heads:
    """Heads for bits that are added to positions (Lemmas B.2 and B.3)."""
    s, length = len(positions), len(vectors.positions)
    needed = math.log(8 * length / gamma)
    delta = 0.0 if mapping == "trainable" else coherence(vectors.positions)
    shares = 2.0 ** np.arange(s) / (2**s - 1) if route == "powers" else np.full(s, 1 / s)
    extra = np.arange(s) * math.log(2) if route == "powers" else np.zeros(s)  # of the logits, beyond R
    printed = as_printed and _printed_scale(needed, s, delta)
    if mapping == "trainable":
        vectors, keys = _chosen_positions(route, positions, vectors, 1 + extra / needed)
        scaled_keys = [(key, needed, 1.0) for key in keys]
    elif route == "select":
        scaled_keys = [_selected(vectors.positions, place, needed) for place in positions]
    elif printed:
        scaled_keys = [(vectors.positions[list(positions)].sum(axis=0), 1.0, 1.0)]
    else:
        scaled_keys = [_mixed(vectors.positions, positions, needed, extra)]
    if printed:
        scaled_keys = [(key, printed, gap) for key, _, gap in scaled_keys]
    sign = -1 if as_printed else 1  # the printed g decreases in the number of ones
    signs = sign * (2.0 * patterns(s) - 1)
    value = sign * (vectors.symbols[1] - vectors.symbols[0])
    size, wide = (2 if as_printed and route == "select" and mapping == "deterministic" else 1), len(vectors.marker)
    heads = len(scaled_keys)
    scale, gap = max(each[1] for each in scaled_keys), min(each[2] for each in scaled_keys)
    return Heads(
        query=[np.outer(scale * vectors.marker, np.eye(size)[0]) for _, scale, _ in scaled_keys],
        key=[np.outer(key, np.eye(size)[0]) for key, _, _ in scaled_keys],
        value=[np.outer(value, np.eye(size)[-1])] * heads,  # printed: e_2, so that W_V W_C = 0
        mix=[np.outer(np.eye(size)[0], np.eye(wide)[h]) for h in range(heads)],
        vectors=vectors,
        target=signs if route == "select" else (signs @ shares)[:, None],
        spacing=spacing_of(route, s),
        bound=1.0,
        scale=scale,
        gap=gap,
        coherence=delta,
        promises=positional_promises(
            route, mapping, needed, delta, scale, vectors.positions[list(positions)], 1 + extra / needed
        ),
    )


def bag_heads(route: Route, positions: tuple[int, ...], vectors: FixedVectors, gamma: float, as_printed: bool) -> Heads:
    """Heads for bits that multiply their positions (Lemma B.4)."""
    s, (length, wide) = len(positions), vectors.positions.shape
    delta = coherence(vectors.positions)
    relevant, marker = vectors.positions[list(positions)], vectors.marker
    groups: list[tuple[int, ...]] = [positions]
    values: list[Matrix] = [relevant if as_printed else dual_vectors(relevant)]
    if route == "bag-select":
        groups, values = [(place,) for place in positions], list(relevant[:, None])
    scaled_keys = []
    for group, value in zip(groups, values, strict=True):
        largest = float(abs(vectors.positions @ (value.sum(axis=0) if route == "bag" else value.T)).max())
        needed = math.log(8 * length * max(len(group), largest) / gamma)
        if as_printed:
            room = gamma - s * delta
            if room <= 0:
                raise InputError(f"the printed Lemma B.4 is for gamma above s Delta = {s * delta:.4g}, not {gamma:g}")
            needed = math.log(8 * length * len(group) * (1 + delta) / room)
            scaled_keys.append((value.sum(axis=0), _printed_scale(needed, s, delta), 1.0))
        elif route == "bag-select":
            scaled_keys.append(_selected(vectors.positions, group[0], needed))
        else:
            scaled_keys.append(_mixed(vectors.positions, group, needed, np.zeros(len(group))))
    size = len(groups[0])
    ones = patterns(s).astype(np.float64)
    target = (ones - 1) / (ones + 1 if route == "bag-select" else ones.sum(axis=1, keepdims=True) + 1)
    mixes = [np.eye(size, wide)]
    if route == "bag":
        target, mixes = target.sum(axis=1, keepdims=True), [np.outer(np.ones(size), np.eye(wide)[0])]
    elif route == "bag-select":
        mixes = [np.eye(wide)[[h]] for h in range(s)]
    scale, gap = max(each[1] for each in scaled_keys), min(each[2] for each in scaled_keys)
    return Heads(
        query=[np.outer(scale * marker, np.eye(size)[0]) for _, scale, _ in scaled_keys],
        key=[np.outer(key + marker, np.eye(size)[0]) for key, _, _ in scaled_keys],
        value=[(value - marker).T for value in values],
        mix=mixes,
        vectors=vectors,
        target=target,
        spacing=spacing_of(route, s),
        bound=float(s) if route == "bag" else 1.0,
        scale=scale,
        gap=gap,
        coherence=delta,
        promises=bag_promises(route, length, gamma, delta, scale, relevant),
    )


def _mixed(vectors: Matrix, group: tuple[int, ...], needed: float, extra: Vector) -> tuple[Vector, float, float]:
    """A key whose logits at the group are R + extra, the R that puts all others `needed` below R, and the gap.

    u_0 . v_i = 1 and u_1 . v_i = extra_i; others have R u_0 . v_j + u_1 . v_j, and [CLS] has 0.
    """
    dual = dual_vectors(vectors[list(group)])
    level, slope = dual.sum(axis=0), extra @ dual
    others = np.delete(np.arange(len(vectors)), group)
    gaps, offsets = 1 - vectors[others] @ level, vectors[others] @ slope
    gap = min(1.0, float(gaps.min(initial=1.0)))
    if gap <= 1e-12:
        worst = int(others[int(gaps.argmin())])
        raise InputError(
            f"the logit of position {worst + 1} is not below those of the relevant ones (gap {gap:.3g}): "
            "give a basis nearer to orthogonal, or one head per bit"
        )
    scale = max(needed, float(((needed + offsets) / gaps).max(initial=needed)))
    return level + slope / scale, scale, gap


def _selected(vectors: Matrix, place: int, needed: float) -> tuple[Vector, float, float]:
    """A key for one position alone: its own vector, with which every other unit vector has a smaller product."""
    others = np.delete(vectors, place, axis=0) @ vectors[place]
    gap = 1 - max(0.0, float(others.max(initial=0.0)))
    if gap <= 1e-12:
        raise InputError(f"position {place + 1} has the vector of another: give a basis of different vectors")
    return vectors[place], needed / gap, gap


def _printed_scale(needed: float, s: int, delta: float) -> float:
    if s * delta >= 1:
        raise InputError(f"the printed lemma is for Delta below 1/s = {1 / s:.4g}, and the basis has {delta:.4g}")
    return needed / (1 - s * delta)


def _chosen_positions(
    route: Route, positions: tuple[int, ...], vectors: FixedVectors, lengths: Vector
) -> tuple[FixedVectors, list[Vector]]:
    """Trained positions (Lemma B.3): one vector for all relevant bits, or one for each; and the keys of the heads."""
    width = len(vectors.marker)
    keys = list(np.eye(width)[: len(positions) if route == "select" else 1])
    chosen = np.zeros_like(vectors.positions)
    for place, position in enumerate(positions):
        chosen[position] = keys[place] if route == "select" else lengths[place] * keys[0]
    return FixedVectors(vectors.symbols, chosen, vectors.marker), keys
