"""Sums of parities with weights, f(x) = sum_t c_t chi_{S_t}(x): the targets of paper 002 (Eq 1), as text or at random.

chi_S(x) is 1 where an even number of the bits in S are 1, and 0 elsewhere. As text a set is a product of variables:
"0.6*x1x2x3 + 0.64*x3x4x5". Positions are counted from 1 there, as in all expressions, and from 0 in Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.bits import Bits
from flipscope.basics.checks import check_count, check_positions, is_finite
from flipscope.basics.errors import InputError
from flipscope.basics.seeds import Seed, generators

EXAMPLE = '"0.6*x1x2x3 + 0.64*x3x4x5"'

_TERM = re.compile(
    r"\s*(?P<sign>[-+])?\s*(?P<weight>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)?\s*\*?\s*(?P<set>(?:[xX]\d+[\s*]*)*)"
)
_VARIABLE = re.compile(r"[xX](\d+)")


@dataclass(frozen=True)
class FourierSum:
    """f(x) = sum_t c_t chi_{S_t}(x) on strings of `length` bits; chi is the indicator of even parity.

    The sets are tuples of 0-based positions, distinct and not empty; no coefficient is 0.

    >>> f = FourierSum(4, ((0, 1), (1, 2)), (0.6, 0.8))
    >>> f(np.array([[0, 0, 0, 0], [1, 0, 0, 0]], np.uint8)).tolist()
    [1.4, 0.8]
    """

    length: int
    sets: tuple[tuple[int, ...], ...]
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        length = check_count("length", self.length)
        if len(self.sets) != len(self.coefficients):
            raise InputError(
                f"there are {len(self.sets)} sets and {len(self.coefficients)} coefficients: give one of each"
            )
        if len(self.sets) == 0:
            raise InputError("a sum of parities needs at least one: give a set and its coefficient")
        sets = tuple(check_positions(each, length) for each in self.sets)
        if any(not each for each in sets):
            raise InputError("a constant has degree 0, and every set needs at least one position: leave it out")
        if len(set(sets)) != len(sets):
            twice = next(each for number, each in enumerate(sets) if each in sets[:number])
            raise InputError(f"the set {named(twice)} is there twice: add up its coefficients")
        for weight in self.coefficients:
            if not is_finite(weight):
                raise InputError(f"the coefficient {weight!r} must be a finite number")
        if not any(self.coefficients):
            raise InputError("the coefficients are all 0, so there is nothing to compute: give one that is not")
        if not all(self.coefficients):
            at = self.coefficients.index(0)
            raise InputError(f"the coefficient of {named(sets[at])} is 0: leave it out")
        object.__setattr__(self, "sets", sets)
        object.__setattr__(self, "coefficients", tuple(map(float, self.coefficients)))

    @property
    def sparsity(self) -> int:
        """omega: how many sets there are. The constant that indicators add up to is not counted."""
        return len(self.sets)

    @property
    def degree(self) -> int:
        """D: the size of the largest set."""
        return max(map(len, self.sets))

    @property
    def is_homogeneous(self) -> bool:
        """Whether all sets have one size and all coefficients are positive: the class of the paper's theorems."""
        return len({len(each) for each in self.sets}) == 1 and min(self.coefficients) > 0

    @property
    def norm(self) -> float:
        """The Euclidean norm of the coefficients; 1 in the paper's class."""
        return math.hypot(*self.coefficients)

    def indicators(self, bits: Bits) -> NDArray[np.uint8]:
        """chi_{S_t}(x) of each string, [string, set]."""
        return np.stack([1 - bits[:, list(each)].sum(axis=1, dtype=np.int64) % 2 for each in self.sets], 1).astype(
            np.uint8
        )

    def __call__(self, bits: Bits) -> NDArray[np.float64]:
        """The values on strings [string, position]."""
        if bits.ndim != 2 or bits.shape[1] != self.length:
            raise InputError(f"strings of shape {bits.shape} must be [string, {self.length}]")
        values: NDArray[np.float64] = self.indicators(bits) @ np.array(self.coefficients)
        return values

    def normalised(self) -> FourierSum:
        """The same with coefficients of norm 1."""
        return FourierSum(self.length, self.sets, tuple(weight / self.norm for weight in self.coefficients))

    def __str__(self) -> str:
        terms = [f"{weight:.17g}*{named(each)}" for each, weight in zip(self.sets, self.coefficients, strict=True)]
        return " + ".join(terms).replace("+ -", "- ")


def named(positions: Sequence[int]) -> str:
    """The set as text, x1x3 for the 0-based positions 0 and 2."""
    return "".join(f"x{position + 1}" for position in positions)


@checked_arguments
def parse_sum(text: str, length: int | None = None) -> FourierSum:
    """The sum that the text describes, on strings of `length` bits (default: up to the last variable).

    A term is a coefficient, 1 where there is none, and a product of variables; `*` and spaces between them are free.

    >>> f = parse_sum("0.6*x1x2x3 - 0.8 x3 x4 x5")
    >>> f.sets, f.coefficients, f.length
    (((0, 1, 2), (2, 3, 4)), (0.6, -0.8), 5)
    """
    sets: list[tuple[int, ...]] = []
    weights: list[float] = []
    place = 0
    while text[place:].strip() or not sets:
        match = _TERM.match(text, place)
        assert match is not None  # the pattern matches the empty string, too
        variables = [int(each) for each in _VARIABLE.findall(match["set"]) if len(each) < 10]
        follows = text[match.end() :].strip()[:1]
        if match.end() == place or (sets and not match["sign"]) or follows not in ("", "+", "-"):
            raise InputError(f"{text!r} is not a sum of parities: write for example {EXAMPLE}")
        if len(variables) < len(_VARIABLE.findall(match["set"])):
            raise InputError(f"{text!r} names a position beyond 999,999,999: name smaller ones")
        if not variables:
            if match["weight"] is None:
                raise InputError(f"{text!r} is not a sum of parities: write for example {EXAMPLE}")
            raise InputError(f"the term {match[0].strip()} of {text!r} has degree 0: leave the constant out")
        if 0 in variables:
            raise InputError(f"x0 does not exist in {text!r}: positions are counted from 1")
        if len(set(variables)) != len(variables):
            raise InputError(f"the term {match[0].strip()} of {text!r} names a position twice: name each once")
        weights.append(float((match["sign"] or "") + (match["weight"] or "1")))
        sets.append(tuple(each - 1 for each in variables))
        place = match.end()
    used = 1 + max(max(each) for each in sets)
    if length is not None and check_count("length", length) < used:
        raise InputError(f"length={length} is too short for {text!r}, which names x{used}: give at least {used}")
    return FourierSum(used if length is None else length, tuple(sets), tuple(weights))


@checked_arguments
def random_sum(length: int, sparsity: int, degree: int, seed: Seed = 0) -> FourierSum:
    """A target as the paper draws it: distinct sets of one size, coefficients |N(0, 1)| divided by their norm.

    >>> f = random_sum(20, 7, 3)
    >>> f.sparsity, f.degree, round(f.norm, 12)
    (7, 3, 1.0)
    """
    length, sparsity, degree = (
        check_count(name, value) for name, value in (("length", length), ("sparsity", sparsity), ("degree", degree))
    )
    if degree > length:
        raise InputError(f"degree={degree} is more than length={length}: a set has no more positions than there are")
    many = math.comb(length, degree)
    if sparsity > many:
        raise InputError(f"sparsity={sparsity} is too large: there are {many} sets of {degree} in {length} positions")
    for_sets, for_weights = generators(seed, 2)
    chosen: dict[tuple[int, ...], None] = {}
    if many <= 4 * sparsity:  # few sets are left over: a permutation of all, as the paper does
        ranks = for_sets.permutation(many)[:sparsity]
        chosen = {_set_of_rank(int(rank), degree): None for rank in ranks}
    while len(chosen) < sparsity:  # the same distribution, without listing all sets
        chosen[tuple(sorted(int(each) for each in for_sets.choice(length, degree, replace=False)))] = None
    weights = np.abs(for_weights.normal(size=sparsity))
    weights /= np.linalg.norm(weights)
    return FourierSum(length, tuple(chosen), tuple(map(float, weights)))


def _set_of_rank(rank: int, size: int) -> tuple[int, ...]:
    """The set with this number when sets are ordered by their largest position, then the next."""
    members = []
    for k in range(size, 0, -1):
        top = k - 1
        while math.comb(top + 1, k) <= rank:
            top += 1
        rank -= math.comb(top, k)
        members.append(top)
    return tuple(reversed(members))
