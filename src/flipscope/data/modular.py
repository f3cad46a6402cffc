"""Addition modulo a number: all pairs (a, b) with the class a + b, some of them to train on, the others to test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples

_STREAM = 0x6D6F6475  # sets the split apart from all that comes from the same seeds


@dataclass(frozen=True, eq=False)
class ModularPairs:
    """Pairs of numbers, each once, with their sums; `mirrored` marks test pairs (a, b) with (b, a) among the training
    pairs, whose sum a model that is symmetric in its two inputs knows from there."""

    modulus: int
    train: Examples
    test: Examples
    mirrored: Bool[np.ndarray, " test"]


@checked_arguments
def modular_addition(modulus: int, share: float, seed: int = 0) -> ModularPairs:
    """All pairs of numbers below the modulus, a random share of them, rounded, in the training set.

    >>> found = modular_addition(5, 0.4)
    >>> found.train.bits.shape, found.test.bits.shape
    ((10, 2), (15, 2))
    """
    check_count("modulus", modulus, 2)
    total = modulus**2
    count = round(share * total) if 0 < share < 1 else 0
    if not 0 < count < total:
        raise InputError(f"share={share} must lie between 0 and 1 and leave pairs to train on and to test")
    pairs: Int64[np.ndarray, "pair 2"] = np.stack(np.divmod(np.arange(total, dtype=np.int64), modulus), axis=1)
    order = np.random.default_rng([check_count("seed", seed, 0), _STREAM]).permutation(total)
    ours, others = pairs[np.sort(order[:count])], pairs[np.sort(order[count:])]
    known = np.zeros((modulus, modulus), bool)
    known[ours[:, 0], ours[:, 1]] = True
    train, test = (Examples(each, each.sum(axis=1) % modulus) for each in (ours, others))
    return ModularPairs(modulus, train, test, known[others[:, 1], others[:, 0]])
