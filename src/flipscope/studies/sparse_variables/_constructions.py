"""One construction of the study `sparse-constructions`: the function, the basis, and what is measured of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64
from torch import nn

import flipscope.lab as lab
from flipscope.basics.errors import InputError
from flipscope.constructions.sparse_variables.build import EXACT, construct
from flipscope.constructions.sparse_variables.functions import SparseFunction, patterns
from flipscope.models.attention_network_config import InputMapping

TILT = 0.1  # Delta of the tilted basis
ALL_BITS = 12  # up to which all strings are asked besides
LARGEST = 6  # relevant bits
NORMS = ("W_Q", "W_K", "W_V", "W_C", "P", "W_1", "W_2", "w")
Basis = Literal["orthonormal", "random", "tilted"]


@dataclass(frozen=True)
class Built(lab.Trial):
    """A construction: of a random function of so many bits, with one head or one per bit."""

    mapping: InputMapping
    single: bool  # one head
    symmetric: bool
    sparsity: int
    length: int
    basis: Basis
    printed: bool  # with the paper's formulas, as they are
    seed: int


def measured(trial: Built) -> lab.Outcome:
    """Its certified error, its answers, its norms; or why there is none."""
    f = some_function(trial)
    basis = tilted(f, TILT) if trial.basis == "tilted" else trial.basis
    try:
        built = construct(
            f,
            trial.mapping,
            heads=1 if trial.single else trial.sparsity,
            basis=basis,
            seed=trial.seed,
            general=not trial.symmetric,
            as_printed=trial.printed,
        )
    except InputError as error:
        return {"refused": str(error)}
    answer = built.answer_error()
    out: dict[str, Any] = {
        "lemma": built.lemma,
        "route": built.route,
        "gamma": built.gamma,
        "R": built.heads.scale,
        "gap": built.heads.gap,
        "coherence": built.heads.coherence,
        "error": built.error,
        "limit": built.gamma / 4,
        "answer_error": answer,
        "exact_limit": EXACT,
        **{f"ratio {norm.name}": norm.actual / norm.promised for norm in built.norms},
        # Prop 4.7 promises orders of these only, O(poly(s)) and O(2^s poly(s)): they are kept as measured.
        **{f"frobenius W_{number}": _frobenius(layer) for number, layer in enumerate(built.model.mlp, 1)},
    }
    if trial.length <= ALL_BITS:
        found = built.enumerate()
        worst = float(np.max([found.answer_error or 0, answer or 0]))  # NaN, where one of them is
        out |= {"difference": abs(found.error - built.error), "answer_error": worst}
    return out


def _frobenius(layer: nn.Module) -> float:
    """The Frobenius norm of a layer's matrix with its bias."""
    return math.sqrt(sum(float(each.detach().square().sum()) for each in layer.parameters()))


def some_function(trial: Built) -> SparseFunction:
    """A random function of random bits that is not constant."""
    stream = np.random.default_rng([trial.seed, trial.sparsity, trial.length])
    s = trial.sparsity
    positions = tuple(sorted(stream.choice(trial.length, s, replace=False).tolist()))
    values = np.zeros(1 << s, np.uint8)
    while values.min() == values.max():
        drawn = stream.integers(0, 2, s + 1 if trial.symmetric else 1 << s)
        values = (drawn[patterns(s).sum(axis=1)] if trial.symmetric else drawn).astype(np.uint8)
    return SparseFunction(trial.length, positions, values)


def tilted(f: SparseFunction, delta: float) -> Float64[np.ndarray, "position width"]:
    """Unit vectors that are orthogonal but for the relevant ones, whose products are -Delta, of the first two +Delta.

    Their sum, which is the printed key, gives them different logits.
    """
    s = f.sparsity
    gram = np.full((s, s), -delta)
    np.fill_diagonal(gram, 1)
    gram[:2, :2] = abs(gram[:2, :2])
    vectors = np.eye(f.length)
    vectors[np.ix_(f.positions, f.positions)] = np.linalg.cholesky(gram)
    return vectors
