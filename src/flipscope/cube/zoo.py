"""The named functions, one entry each: how a function is made, written, explained, and how its family behaves.

Expressions, `flipscope zoo` and the languages of the theorems read this table; a new function is one more entry. Its
closed forms come with its structure: a constructor that builds symmetric leaves and gates has them already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flipscope.basics.errors import InputError
from flipscope.cube import functions
from flipscope.cube.functions import BooleanFunction, checked_bits
from flipscope.cube.structure import Symmetric, and_kernel, or_kernel, xor_kernel

Growth = Literal["none", "bounded", "exponential"]


@dataclass(frozen=True)
class Family:
    """How K_0(N), the number of strings of sensitivity 0, grows with the length, and why."""

    zero_strings: Growth
    reason: str
    at: Callable[[int], BooleanFunction] | None = None  # the function of a length; None: the entry's constructor


@dataclass(frozen=True)
class Entry:
    """One named function."""

    name: str
    meaning: str  # when it is 1
    example: str
    build: Callable[..., BooleanFunction] | None = None  # from numbers; None where the expression language does it
    required: tuple[str, ...] = ()  # names of these numbers
    optional: tuple[str, ...] = ()
    gate: Callable[[int], Symmetric] | None = None  # the gate on that many expressions
    alias: str | None = None  # a short name in expressions
    form: str | None = None  # how it is called, where it takes more than numbers by name
    family: Family | None = None

    @property
    def usage(self) -> str:
        """How it is called on numbers."""
        return f"{self.name}({self.form or ', '.join((*self.required, *self.optional))})"


def at_least(ones: int, arity: int) -> Symmetric:
    """Whether at least `ones` of the inputs are 1."""
    return Symmetric((np.arange(arity + 1) >= ones).astype(np.uint8))


def _dictator(position: int, n: int) -> BooleanFunction:
    if not 1 <= position <= checked_bits(n):
        raise InputError(f"position {position} is not one of the n = {n} bits; expected 1 to {n}.")
    return functions.dictator(position - 1, n)


def _address_at(n: int) -> BooleanFunction:
    for k in range(1, 13):
        if k + (1 << k) == n:
            return functions.address(k)
    raise InputError(f"address exists at lengths k + 2^k (3, 6, 11, 20, 37, ...); n = {n} is not one.")


_ALL_BUT_FEW = Family("exponential", "K_0 = 2^N - (N + 1)")

ZOO = (
    Entry(
        "parity",
        "the number of ones is odd",
        "parity(20)",
        functions.parity,
        ("n",),
        gate=xor_kernel,
        alias="xor",
        family=Family("none", "every flip changes the value, so K_0 = 0 at every length"),
    ),
    Entry(
        "majority",
        "more than half of the bits are 1",
        "majority(21)",
        functions.majority,
        ("n",),
        gate=lambda arity: at_least(arity // 2 + 1, arity),
        alias="maj",
        family=Family("exponential", "only nearly balanced strings are sensitive: K_0 = 2^N - O(2^N / sqrt N)"),
    ),
    Entry(
        "first",
        "the first bit is 1",
        "first(20)",
        functions.first,
        ("n",),
        family=Family("none", "flipping the first bit changes the value, so K_0 = 0"),
    ),
    Entry("dictator", "the bit at the position is 1", "dictator(3, n=20)", _dictator, ("position", "n")),
    Entry(
        "sparse_parity",
        "the parity of m random bits is odd",
        "sparse_parity(3, n=40)",
        functions.sparse_parity,
        ("m", "n"),
        ("seed",),
    ),
    Entry(
        "sparse_majority",
        "most of m random bits are 1",
        "sparse_majority(5, n=100)",
        functions.sparse_majority,
        ("m", "n"),
        ("seed",),
    ),
    Entry(
        "conjunction",
        "all bits are 1",
        "conjunction(10)",
        functions.conjunction,
        ("n",),
        gate=and_kernel,
        alias="and",
        family=_ALL_BUT_FEW,
    ),
    Entry(
        "disjunction",
        "some bit is 1",
        "disjunction(10)",
        functions.disjunction,
        ("n",),
        gate=or_kernel,
        alias="or",
        family=_ALL_BUT_FEW,
    ),
    Entry("threshold", "at least k bits are 1", "threshold(5, n=20)", functions.threshold, ("k", "n"), alias="thr"),
    Entry(
        "tribes",
        "some tribe of neighbours is all 1",
        "tribes(24)",
        functions.tribes,
        ("n",),
        ("width",),
        family=Family("exponential", "a string with two full tribes, or with every tribe two short, is not sensitive"),
    ),
    Entry(
        "address",
        "the bit that the first k bits name is 1",
        "address(3)",
        functions.address,
        ("k",),
        family=Family("none", "flipping the addressed bit changes the value, so K_0 = 0", _address_at),
    ),
    Entry(
        "random",
        "a fair coin says so, string by string",
        "random(16)",
        functions.random,
        ("n",),
        ("seed",),
        family=Family(
            "bounded", "for a uniformly random function K_0 tends to a Poisson(1) variable, at every length about 1"
        ),
    ),
    Entry(
        "random_symmetric",
        "a coin for each number of ones says so",
        "random_symmetric(20)",
        functions.random_symmetric,
        ("n",),
        ("seed",),
        family=Family("exponential", "a quarter of all numbers of ones lie inside a run of three equal values"),
    ),
    Entry(
        "random_junta",
        "a random function of m random bits is 1",
        "random_junta(5, n=100)",
        functions.random_junta,
        ("m", "n"),
        ("seed",),
    ),
    Entry("symmetric", "v_w is 1, for w ones", "symmetric(0, 1, 1, 0)", form="v0, v1, ..."),
    Entry("table", "bit i of the number is 1, for string i", "table(0x96)", form="number, n"),
)
