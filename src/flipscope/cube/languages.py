"""Languages: families of Boolean functions, one a length, and how many strings of sensitivity 0 they have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from flipscope.basics.errors import InputError
from flipscope.cube import functions
from flipscope.cube.compose import NotExact
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import zero_strings
from flipscope.cube.structure import Leaf, Symmetric

Growth = Literal["none", "bounded", "exponential"]


@dataclass(frozen=True)
class Language:
    """A family f_1, f_2, ... and how K_0(N), its number of strings of sensitivity 0, grows, and why."""

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
    """The family that an expression stands for: one of the zoo by its name, or f itself inside more bits."""
    call = re.fullmatch(r"\s*([a-z_]+)\s*\([^()]*\)\s*", text.lower())
    name = call.group(1) if call else ""
    if name in LANGUAGES and f.support and _fills(LANGUAGES[name], f):
        return LANGUAGES[name]
    node = f.node if len(f.support) == f.n else None
    if name == "threshold" and isinstance(node, Leaf) and isinstance(node.kernel, Symmetric):
        k = int(node.kernel.values.argmax())  # the least number of ones that suffices
        return Language(
            f"threshold {k}",
            lambda n: functions.threshold(k, n),
            "exponential",
            f"only strings with {k - 1} or {k} ones are sensitive, all others make up K_0",
        )
    try:
        least = zero_strings(f)
    except NotExact:
        raise InputError(
            f"the family of {text!r} is not known: it is not one of the zoo, and K_0 of {f.n} bits without a "
            "closed form cannot be counted."
        ) from None
    if least:
        reason = f"K_0 = {_share(least, f.n)} of all strings at every length: the added bits are ignored"
        return Language(text, f.extend, "exponential", reason)
    return Language(text, f.extend, "none", "every string is sensitive to some bit, so K_0 = 0 at every length")


def _fills(language: Language, f: BooleanFunction) -> bool:
    """Whether f reads the positions that the language's function of as many bits reads."""
    try:
        return language.at(f.n).support == f.support
    except InputError:  # the language has no function of this length
        return False


def _share(count: int, n: int) -> str:
    share = count / (1 << n)
    return f"{share:.3g}" if share else f"2^{math.log2(count) - n:.0f}"  # the rest is beyond floats
