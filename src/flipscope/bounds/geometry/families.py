"""Paper 000: which families of Boolean functions almost no transformer recognises (Thm 4.5, Cor 4.6, section 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flipscope.basics.arguments import check_fields, checked_arguments
from flipscope.basics.errors import InputError
from flipscope.cube.compose import NotExact
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.languages import Language
from flipscope.cube.sensitivity import min_sensitivity, zero_strings

# The statement of Thm 4.5 is weaker by powers of N than its proof: with k = N, Eq 122 requires only
# K(N) = O(N^((D-1)/2L - 3 - s)), s > 0. "At least one string" therefore follows once (D-1)/2L exceeds this.
ONE_STRING_NEEDS = 3
MAX_SHAPE = 10**9  # of width and layers: beyond every transformer, and safe in floats


@dataclass(frozen=True)
class Threshold:
    """N^c, c = (D-1)/2L - 5: almost every transformer has at least this many strings of sensitivity 0 (Thm 4.5).

    It also has N^(c+1)/(k+1) strings of sensitivity at most N - k.

    >>> Threshold(32, 2).at(16), Threshold(32, 2).at(16, k=7)
    (2048.0, 4096.0)
    """

    width: int
    layers: int

    def __post_init__(self) -> None:
        check_fields(self)
        if not 2 <= self.width <= MAX_SHAPE:
            raise InputError(f"the width must be between 2 and {MAX_SHAPE}; {self.width} is not.")
        if not 1 <= self.layers <= MAX_SHAPE:
            raise InputError(f"the number of layers must be between 1 and {MAX_SHAPE}; {self.layers} is not.")

    @property
    def exponent(self) -> float:
        """c = (D-1)/2L - 5 of Eq 36."""
        return (self.width - 1) / (2 * self.layers) - 5

    @property
    def promises_one(self) -> bool:
        """Whether the proof gives at least one string of sensitivity 0 for all large N."""
        return self.exponent + 5 > ONE_STRING_NEEDS

    def log2_at(self, length: int, k: int | None = None) -> float:
        """log2 of the threshold at this length, for strings of sensitivity 0 or, given k, of at most N - k.

        For k = N the two are not quite the same: N^(c+1)/(N+1) is less than the N^c of Eq 36.
        """
        if k is None:
            return self.exponent * math.log2(length)
        if not 0 <= k <= length:
            raise InputError(f"k={k} must be between 0 and the length, {length}.")
        return (self.exponent + 1) * math.log2(length) - math.log2(k + 1)

    def at(self, length: int, k: int | None = None) -> float:
        """The threshold at this length (infinite beyond the range of floats)."""
        return math.inf if (power := self.log2_at(length, k)) > 1023 else 2.0**power

    def is_void_at(self, length: int) -> bool:
        """Whether N^c >= 2^N: no function has that many strings, so nothing follows at this length."""
        power = length.bit_length() - 1
        if length == 1 << power:  # equality occurs at powers of two only, and is decided in integers
            return (self.width - 1 - 10 * self.layers) * power >= 2 * self.layers * length
        return self.log2_at(length) > length

    def from_length(self) -> int:
        """The least N >= 2 from which on the threshold stays below 2^N, so that the bound says something."""
        if self.exponent <= 0:
            return 2
        # N - c log2 N falls until N = c / ln 2 and rises from there on: find where it last is not positive.
        turn = max(2, math.floor(self.exponent / math.log(2)))
        void = [n for n in (turn, turn + 1) if self.is_void_at(n)]
        if not void:
            return 2
        low, high = void[-1], 2 * void[-1]
        while self.is_void_at(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.is_void_at(middle) else (low, middle)
        return high


@dataclass(frozen=True)
class Verdict:
    """What Cor 4.6 says of a family, and of its member at one length."""

    function: str
    length: int
    width: int
    layers: int
    ruled_out: bool
    theorem: str | None
    threshold: float
    zero_strings: int | None
    from_length: int | None
    note: str

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope verdict``; a threshold beyond the range of floats is null."""
        return {
            "function": self.function,
            "ruled_out": self.ruled_out,
            "theorem": self.theorem,
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "zero_strings": self.zero_strings,
            "from_length": self.from_length,
            "note": self.note,
        }


@checked_arguments
def verdict(f: BooleanFunction, language: Language, name: str, *, width: int, layers: int) -> Verdict:
    """Whether Cor 4.6 rules the family out, from which length on, and what follows at the length of f."""
    threshold = Threshold(width, layers)
    few = language.zero_strings in ("none", "bounded")
    bites = threshold.promises_one and (language.zero_strings == "none" or threshold.exponent > 0)
    ruled_out = few and bites
    try:
        zeros: int | None = zero_strings(f)
    except NotExact:
        zeros = 0 if language.zero_strings == "none" else None
    from_length = threshold.from_length() if ruled_out else None
    return Verdict(
        function=name,
        length=f.n,
        width=width,
        layers=layers,
        ruled_out=ruled_out,
        theorem="Cor 4.6 (000)" if ruled_out else None,
        threshold=threshold.at(f.n),
        zero_strings=zeros,
        from_length=from_length,
        note=" ".join(_sentences(f, language, threshold, few, ruled_out)),
    )


def _sentences(f: BooleanFunction, language: Language, threshold: Threshold, few: bool, ruled_out: bool) -> list[str]:
    exponent = f"{threshold.exponent:.4g}"
    sentences = [f"The family {language.name}: {language.reason}."]
    if few and not threshold.promises_one:
        sentences.append(
            f"With width {threshold.width} and {threshold.layers} layers (D-1)/2L is "
            f"{threshold.exponent + 5:.4g}, too small for the proof to give even one string of sensitivity "
            "0: nothing follows."
        )
    elif few and not ruled_out:
        sentences.append(f"The threshold N^{exponent} does not grow, so it does not exceed K_0: nothing follows.")
    elif not f.support:
        sentences.append("A constant is recognised by the bias of the read-out alone, so no theorem rules it out.")
    elif not ruled_out:
        sentences.append(
            f"K_0 grows faster than the threshold N^{exponent}, so no theorem on eps = 0 rules the family out; that "
            "such a family is learnable is only conjectured (Conj 5.5, for Majority)."
        )
    else:
        if named := _corollary(f, language):
            sentences.append(f"This is {named}.")
        sentences.append(
            f"Almost every transformer of this shape has at least N^{exponent} strings of sensitivity 0 once "
            "N is large enough, so it fails to recognise the family with any margin; how large is not known, "
            f"only that the bound cannot bite before N = {threshold.from_length()}."
        )
    if f.support and not ruled_out:
        sentences.append(
            "With eps > 0 in its layer norms a transformer computes constants from some length on (Cor 3.4)."
        )
    if threshold.is_void_at(f.n):
        sentences.append(f"At N = {f.n} the threshold is at least 2^N: nothing follows at this length.")
    elif ruled_out and threshold.exponent <= 0:
        sentences.append(
            "The exponent is not positive: the theorem then only says that there is at least one such string."
        )
    return sentences


def _corollary(f: BooleanFunction, language: Language) -> str | None:
    """The place in section 5 that names the family; the paper's parity is the complement of ours, equally sensitive."""
    if language.name == "parity":
        return "Cor 5.1, on Parity"
    if language.name == "first":
        return "Cor 5.4, on First, a dictator (Cor 5.3)"
    if len(f.support) == 1:
        return "Cor 5.3, on dictators"
    if language.zero_strings != "none" or language.name == "address":
        return None
    try:
        # Only a parity of m bits, or its complement, is sensitive to all of them at every string.
        m = min_sensitivity(f)
    except NotExact:
        return None
    return f"Cor 5.2, on m-sparse parities, with m = {m}" if m == len(f.support) else None
