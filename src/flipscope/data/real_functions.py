"""Real-valued functions of bits, given as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32

from flipscope.basics.bits import Bits
from flipscope.basics.errors import InputError
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction, checked_bits

_WEIGHTED = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\*\s*(.+?)\s*", re.DOTALL)
_PLUS = re.compile(r"(?<![eE*+])\+")  # not the sign of an exponent or of a weight


def is_real(text: str) -> bool:
    """Whether the text is that of a real-valued function, not a Boolean expression."""
    return text.strip() == "mean" or "*" in text


@dataclass(frozen=True)
class RealFunction:
    """A real-valued function of n bits: "mean", or a sum of Boolean expressions with weights.

    >>> RealFunction("mean", 4)(np.array([[1, 0, 1, 1]], np.uint8)).tolist()
    [0.75]
    >>> RealFunction("0.5 * (x1 ^ x2) + 2 * x3", 3)(np.array([[1, 0, 1], [1, 1, 0]], np.uint8)).tolist()
    [2.5, 0.0]
    """

    text: str
    n: int
    _terms: Sequence[tuple[float, BooleanFunction]] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        checked_bits(self.n)
        if self.text.strip() != "mean":
            object.__setattr__(self, "_terms", [self._term(part) for part in _PLUS.split(self.text)])

    def _term(self, part: str) -> tuple[float, BooleanFunction]:
        match = _WEIGHTED.fullmatch(part)
        if match is None:
            raise InputError(
                f"{self.text!r} is no real-valued function: "
                'give "mean" or a weighted sum such as "0.6 * (x1 ^ x2) + 0.8 * x3"'
            )
        return float(match[1]), parse(match[2], self.n)

    def __call__(self, bits: Bits) -> Float32[np.ndarray, " string"]:
        """Its values on strings [string, position]."""
        if not self._terms:
            return np.asarray(bits.mean(axis=1, dtype=np.float64), np.float32)
        total = np.zeros(len(bits))
        for weight, f in self._terms:
            total += weight * f(bits)
        return np.asarray(total, np.float32)
