"""Languages: families of Boolean functions, one for every length, and how many of their strings have sensitivity 0."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from flipscope.cube import functions
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import zero_strings
from flipscope.cube.structure import Leaf, Symmetric
from flipscope.errors import InputError

Growth = Literal["none", "bounded", "exponential"]


@dataclass(frozen=True)
class Language:
    """A family f_1, f_2, ... and the growth of K_0(N), its number of sensitivity-0 strings, with the reason."""

    name: str
    at: Callable[[int], BooleanFunction]
    zero_strings: Growth
    reason: str


def _address_at(n: int) -> BooleanFunction:
    for k in range(1, 13):
        if k + (1 << k) == n:
            return functions.address(k)
    raise InputError(f"address exists at lengths k + 2^k (3, 6, 11, 20, 37, ...); n = {n} is not one.")


_ALL_SENSITIVE = "every flip changes the value, so K_0 = 0 at every length"

LANGUAGES: dict[str, Language] = {
    language.name: language
    for language in (
        Language("parity", functions.parity, "none", _ALL_SENSITIVE),
        Language("first", functions.first, "none", "flipping the first bit changes the value, so K_0 = 0"),
        Language(
            "majority",
            functions.majority,
            "exponential",
            "only nearly balanced strings are sensitive: K_0 = 2^N - O(2^N / sqrt N)",
        ),
        Language("conjunction", functions.conjunction, "exponential", "K_0 = 2^N - (N + 1)"),
        Language("disjunction", functions.disjunction, "exponential", "K_0 = 2^N - (N + 1)"),
        Language(
            "tribes",
            functions.tribes,
            "exponential",
            "a string with two full tribes, or with every tribe two short, is not sensitive",
        ),
        Language("address", _address_at, "none", "flipping the addressed bit changes the value, so K_0 = 0"),
        Language(
            "random",
            functions.random,
            "bounded",
            "for a uniformly random function K_0 tends to a Poisson(1) variable, at every length about 1",
        ),
        Language(
            "random_symmetric",
            functions.random_symmetric,
            "exponential",
            "a quarter of all numbers of ones lie inside a run of three equal values",
        ),
    )
}


def language_of(text: str, f: BooleanFunction) -> Language:
    """The family that an expression stands for: a zoo family by its name, or f itself inside more and more bits."""
    name = re.fullmatch(r"\s*([a-z_]+)\s*\((?:[^()]*)\)\s*", text.lower())
    if name and name.group(1) in LANGUAGES and len(f.support) > 1:
        return LANGUAGES[name.group(1)]
    if name and name.group(1) == "threshold" and isinstance(f.node, Leaf) and isinstance(f.node.kernel, Symmetric):
        k = int(f.node.kernel.values.argmax())
        return Language(
            f"threshold {k}",
            lambda n: functions.threshold(k, n),
            "exponential",
            "only strings with k - 1 or k ones are sensitive, all others make up K_0",
        )
    least = zero_strings(f)
    if least:
        reason = f"K_0 = {_share(least, f.n)} of all strings at every length: the added bits are ignored"
        return Language(text, f.extend, "exponential", reason)
    return Language(text, f.extend, "none", "every string is sensitive to some bit, so K_0 = 0 at every length")


def _share(count: int, n: int) -> str:
    return f"{count / (1 << n):.3g}"
