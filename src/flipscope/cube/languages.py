"""Languages: families of Boolean functions, one per length, and how many strings of sensitivity 0 they have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.cube import functions
from flipscope.cube.compose import NotExact
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.sensitivity import zero_strings
from flipscope.cube.structure import Leaf, Symmetric
from flipscope.cube.zoo import ZOO, Growth


@dataclass(frozen=True)
class Language:
    """A family f_1, f_2, ... and how K_0(N), its number of strings of sensitivity 0, grows, and why."""

    name: str
    at: Callable[[int], BooleanFunction]
    zero_strings: Growth
    reason: str


LANGUAGES: dict[str, Language] = {
    entry.name: Language(entry.name, at, entry.family.zero_strings, entry.family.reason)
    for entry in ZOO
    if entry.family is not None and (at := entry.family.at or entry.build) is not None
}


@checked_arguments
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
