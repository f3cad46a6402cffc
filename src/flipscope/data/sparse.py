"""Planted sparse functions: a gate of a few hidden bits among many, the probe of the sparse-variable paper."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction, checked_bits
from flipscope.data.batches import Batch, Drawn, Examples, Inputs, Labelled

GATES = ("and", "or", "majority", "parity")
MAX_RELEVANT = 16
_WHERE, _TRAIN, _VALIDATION, _FRESH = (
    0x77686572,
    0x74726169,
    0x76616C69,
    0x66726573,
)  # one random stream for each purpose


@functools.lru_cache(maxsize=64)
def gate_function(gate: str, relevant: int) -> BooleanFunction:
    """The function of `relevant` bits: "and", "or", "majority", "parity", or an expression of them, such as "x1 & ~x2".

    >>> gate_function("and", 3).table().tolist()
    [0, 0, 0, 0, 0, 0, 0, 1]
    """
    if check_count("relevant", relevant) > MAX_RELEVANT:
        raise InputError(f"relevant={relevant} must be at most {MAX_RELEVANT} bits")
    f = parse(f"{gate}({relevant})") if gate in GATES else parse(gate, relevant)
    if len(f.support) < relevant:
        raise InputError(
            f"gate={gate!r} reads {len(f.support)} of {relevant} bits: lower relevant, or give another gate"
        )
    return f


def balanced_share(gate: str, relevant: int) -> float:
    """The probability of a one in each bit at which the gate is 1 on half of all strings; the one nearest to 1/2.

    >>> round(balanced_share("and", 3) ** 3, 9), balanced_share("parity", 3)
    (0.5, 0.5)
    """
    table = gate_function(gate, relevant).table()
    ones = np.array([bin(index).count("1") for index in range(table.size)])
    counts = np.bincount(ones, weights=table, minlength=relevant + 1)

    def surplus(share: float) -> float:
        powers = share ** np.arange(relevant + 1) * (1 - share) ** np.arange(relevant, -1, -1)
        return float(counts @ powers) - 0.5

    from scipy import optimize  # half a second to import, so only when needed

    places = np.linspace(0, 1, 1_001)
    values = [surplus(float(place)) for place in places]
    roots = [float(place) for place, value in zip(places, values, strict=True) if value == 0]
    for low, high, first, second in zip(places, places[1:], values, values[1:], strict=False):
        if first * second < 0:
            roots.append(float(optimize.brentq(surplus, low, high, xtol=1e-15)))
    if not roots:
        raise InputError(f"gate={gate!r} is on the same side of one half at every share of ones: it cannot be balanced")
    return min(roots, key=lambda root: abs(root - 0.5))


@dataclass(frozen=True, kw_only=True)
class SparseData:
    """Random strings with the value of a gate on `relevant` hidden positions, which are drawn from the seed.

    `samples` strings are drawn once. A batch of that size holds all of them in every step; the rows of a smaller batch
    are drawn anew in each. With samples=None batches are fresh. Bits are 1 with probability `ones`; each training label
    is wrong with probability `noise`, those of the validation set are right.

    >>> data = SparseData(length=100, samples=64, seed=0)
    >>> data.positions().shape, data.strings().bits.shape
    ((3,), (64, 100))
    """

    inputs: ClassVar[Inputs] = "bits"
    answer: ClassVar[str] = "string"
    train: ClassVar[int | None] = None  # an epoch is a number of steps, not a pass over a set
    gate: str = "and"
    length: int
    relevant: int = 3
    samples: int | None = None
    validation: int = 10_000
    noise: float = 0.0
    ones: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        checked_bits(self.length)
        if check_count("relevant", self.relevant) > self.length:
            raise InputError(f"relevant={self.relevant} bits do not fit into length={self.length}")
        gate_function(self.gate, self.relevant)
        for name in ("samples", "validation"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, 0)
        if not (math.isfinite(self.noise) and 0 <= self.noise < 0.5):
            raise InputError(f"noise={self.noise} must be at least 0 and less than 1/2: more of it is another gate")
        if not (math.isfinite(self.ones) and 0 < self.ones < 1):
            raise InputError(f"ones={self.ones} must lie between 0 and 1, both excluded")

    @property
    def function(self) -> str:
        """What is learned, in words, for lists of models."""
        return f"{self.gate} of {self.relevant} hidden bits of {self.length}"

    def positions(self) -> np.ndarray:
        """The hidden positions, in increasing order."""
        stream = np.random.default_rng([self.seed, _WHERE])
        return np.sort(stream.choice(self.length, self.relevant, replace=False))

    def values(self, bits: Bits) -> Bits:
        """The gate's values on these strings."""
        return gate_function(self.gate, self.relevant)(np.ascontiguousarray(bits[:, self.positions()]))

    def draw_inputs(self, count: int, stream: np.random.Generator) -> Bits:
        """Random inputs like those of the training."""
        if self.ones == 0.5:
            return random_strings(stream, count, self.length)
        return (stream.random((count, self.length)) < self.ones).astype(np.uint8)

    def strings(self) -> Examples:
        """The strings that are trained on, with their labels."""
        if self.samples is None:
            raise InputError("samples=None draws fresh strings: there is no fixed set of them")
        return self._drawn(self.samples, np.random.default_rng([self.seed, _TRAIN]))

    def _drawn(self, count: int, stream: np.random.Generator) -> Examples:
        bits = self.draw_inputs(count, stream)
        labels = self.values(bits)
        return Examples(bits, labels ^ (stream.random(count) < self.noise) if self.noise else labels)

    def validation_sets(self) -> list[Labelled]:
        """The sets on which the model is evaluated after each epoch."""
        bits = self.draw_inputs(self.validation, np.random.default_rng([self.seed, _VALIDATION]))
        return [Examples(bits, self.values(bits))]

    def source(self, batch: int, steps: int, seed: int) -> Labelled | Iterable[Batch]:
        """All of the strings in every step, some of them, or fresh ones."""
        fixed = None if self.samples is None else self.strings()

        def drawn(stream: np.random.Generator) -> Batch:
            if fixed is None:
                fresh = self._drawn(batch, stream)
                return fresh.bits, fresh.labels
            if batch >= len(fixed.bits):
                return fixed.bits, fixed.labels
            rows = stream.choice(len(fixed.bits), batch, replace=False)
            return fixed.bits[rows], fixed.labels[rows]

        return Drawn(drawn, steps, np.random.default_rng([self.seed, seed, _FRESH]))
