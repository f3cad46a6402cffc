"""Cor 4.6 of paper 000 for a family given by its K_0(N), as an expression in N or by examples at several lengths."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.checks import check_count
from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.counts import Count, parse_count
from flipscope.bounds.geometry.families import Threshold, verdict
from flipscope.cube.compose import NotExact
from flipscope.cube.expression import parse
from flipscope.cube.languages import LANGUAGES, Language, language_of
from flipscope.cube.sensitivity import zero_strings

MAX_LENGTHS = 100
_PLACE = "{n}"


@dataclass(frozen=True)
class Example:
    """A member of the family: its length, its K_0, and whether that is below the threshold N^c (Eq 36)."""

    length: int
    zero_strings: int
    below: bool

    def as_json(self) -> dict[str, Any]:
        """For the JSON document of ``flipscope verdict``."""
        return {"length": self.length, "zero_strings": self.zero_strings, "below_threshold": self.below}


@dataclass(frozen=True)
class FamilyVerdict:
    """What Cor 4.6 says of a family; ``ruled_out`` is None where examples do not settle it."""

    family: str
    width: int
    layers: int
    exponent: float
    ruled_out: bool | None
    log_from: float | None  # of the length from which on K_0(N) is below the threshold and that is below 2^N
    from_length: int | None  # that length, unless it is beyond MAX_LENGTH
    examples: tuple[Example, ...]
    note: str

    @property
    def start_text(self) -> str:
        """The length from which on the family is ruled out, as text."""
        return "-" if self.log_from is None else _length_text(self.from_length, self.log_from)

    def as_json(self) -> dict[str, Any]:
        """The JSON document of ``flipscope verdict`` for a family."""
        return {
            "family": self.family,
            "ruled_out": self.ruled_out,
            "theorem": "Cor 4.6 (000)" if self.ruled_out else None,
            "exponent": self.exponent,
            "from_length": self.from_length,
            "log10_from_length": None if self.log_from is None else self.log_from / math.log(10),
            "examples": [example.as_json() for example in self.examples],
            "note": self.note,
        }


@checked_arguments
def zeros_verdict(zeros: str, *, width: int, layers: int) -> FamilyVerdict:
    """Whether Cor 4.6 rules out a family with this number of strings of sensitivity 0 at each length N (`parse_count`).

    >>> zeros_verdict("N^2 + 1", width=64, layers=2).ruled_out, zeros_verdict("2^(N-1)", width=64, layers=2).ruled_out
    (True, False)
    >>> zeros_verdict("N^2 + 1", width=16, layers=2).ruled_out  # (D-1)/2L is 3.75, so that the threshold does not grow
    False
    """
    threshold = Threshold(width, layers)
    count = _possible(parse_count(zeros), zeros)
    ruled_out, log_start, start, note = _judged(count, threshold)
    name = f"K_0(N) = {zeros}"
    return FamilyVerdict(name, width, layers, threshold.exponent, ruled_out, log_start, start, (), note)


@checked_arguments
def examples_verdict(family: str, lengths: Sequence[int], *, width: int, layers: int) -> FamilyVerdict:
    """What Cor 4.6 says of a family given by some members, ``family`` being an expression with {n} for the length.

    K_0 of each member is counted exactly. A family of the zoo is judged by its known growth. For any other family the
    examples prove nothing at other lengths; where they lie on a polynomial of lower degree than so many points need,
    the verdict says what would follow if K_0 were that polynomial.

    >>> examples_verdict("majority({n})", [11, 21, 41], width=64, layers=2).ruled_out
    False
    >>> found = examples_verdict("maj(x1..x{n}) ^ parity({n})", [5, 7, 9], width=64, layers=2)
    >>> found.ruled_out is None, [example.zero_strings for example in found.examples]
    (True, [0, 0, 0])
    """
    threshold = Threshold(width, layers)
    examples, languages = _counted(family, lengths, threshold)
    sentences = [_examples_text(examples, threshold)]
    family_of_zoo = languages[0] if len({language.name for language in languages}) == 1 else None
    if family_of_zoo is not None and family_of_zoo.name in LANGUAGES:
        last = examples[-1].length
        text = family.replace(_PLACE, str(last))
        by_growth = verdict(parse(text), family_of_zoo, family, width=width, layers=layers)
        log_start = None if by_growth.from_length is None else math.log(by_growth.from_length)
        return FamilyVerdict(
            family, width, layers, threshold.exponent, by_growth.ruled_out, log_start, by_growth.from_length, examples,
            " ".join([by_growth.note, *sentences]),
        )  # fmt: skip
    sentences.append("Examples prove nothing of the lengths between and beyond them.")
    polynomial = _polynomial(examples)
    if polynomial is not None:
        would, log_start, start, _ = _judged(polynomial, threshold)
        from_here = "" if log_start is None else f", from {_length_text(start, log_start)} on"
        outcome = f"ruled out{from_here}" if would else "not ruled out"
        sentences.append(
            f"They lie on K_0(N) = {_written(polynomial)}: if that is K_0 at every N, the family is {outcome}."
        )
    else:
        sentences.append("They lie on no polynomial of a degree that they could refute.")
    return FamilyVerdict(family, width, layers, threshold.exponent, None, None, None, examples, " ".join(sentences))


# ---------------------------------------------------------------- an expression


def _possible(count: Count, text: str) -> Count:
    """The count, after checking that a function can have that many strings."""
    if count.sign < 0:
        raise InputError(f"K_0(N) = {text} is negative for large N: a number of strings is not")
    if (count - parse_count("2^N")).sign > 0:
        raise InputError(f"K_0(N) = {text} exceeds 2^N for large N: there are no more strings than that")
    return count


def _judged(count: Count, threshold: Threshold) -> tuple[bool, float | None, int | None, str]:
    """Whether K_0 is below the threshold at large N; ln of the length from which on, and that length; a sentence."""
    exponent = Fraction(threshold.width - 1, 2 * threshold.layers) - 5
    power = f"{float(exponent):.4g}"
    if not threshold.promises_one:
        return False, None, None, (
            f"With width {threshold.width} and {threshold.layers} layers (D-1)/2L is {float(exponent + 5):.4g}, too "
            "small for the proof to give even one string of sensitivity 0: nothing follows."
        )  # fmt: skip
    # A count below 1 is 0, and below N^c for any c that still promises one string.
    below = count - Count.of(1) if exponent <= 0 else count - Count.power(exponent)
    log_start = below.log_negative_from()
    if log_start is None:
        return False, None, None, (
            f"K_0(N) is not below the threshold N^{power} at large N, so Cor 4.6 says nothing of the family. That such "
            "a family is learnable does not follow."
        )  # fmt: skip
    start, least = below.negative_from(), threshold.from_length()
    if start is not None:
        start = max(start, least)
        log_start = math.log(start)
    return True, log_start, start, (
        f"K_0(N) is below the threshold N^{power} at large N, so almost every transformer of this shape with eps = 0 "
        f"fails to recognise the family with any margin once N is large enough; not before "
        f"{_length_text(start, log_start)}, and from where on is not known."
    )  # fmt: skip


def _length_text(length: int | None, log_length: float) -> str:
    """A length, or the power of ten that it is near."""
    return f"N = 10^{log_length / math.log(10):,.5g}" if length is None else f"N = {length}"


# ---------------------------------------------------------------- examples


def _counted(family: str, lengths: Sequence[int], threshold: Threshold) -> tuple[tuple[Example, ...], list[Language]]:
    if _PLACE not in family:
        raise InputError(f"the family {family!r} has no {_PLACE} for the length: write for example majority({_PLACE})")
    if not 2 <= len(set(lengths)) <= MAX_LENGTHS:
        raise InputError(
            f"a family is given by examples at 2 to {MAX_LENGTHS} different lengths, not {len(set(lengths))}"
        )
    examples, languages = [], []
    for length in sorted({check_count("length", length, 2) for length in lengths}):
        text = re.sub(re.escape(_PLACE), str(length), family)
        function = parse(text)
        if function.n != length:
            raise InputError(f"{text!r} has {function.n} bits, not {length}: the family must have N bits at length N")
        try:
            zeros = zero_strings(function)
        except NotExact:
            raise InputError(f"K_0 of {text!r} cannot be counted: it has no closed form and too many bits") from None
        examples.append(Example(length, zeros, _below(zeros, length, threshold)))
        languages.append(language_of(text, function))
    return tuple(examples), languages


def _below(zeros: int, length: int, threshold: Threshold) -> bool:
    """Whether K_0 < N^c, c = a / 2L, in whole numbers: K_0^(2L) < N^a."""
    if not zeros:
        return True
    double = 2 * threshold.layers
    above = threshold.width - 1 - 10 * threshold.layers
    if (
        double * zeros.bit_length() + abs(above) * length.bit_length() > 10**7
    ):  # far from equality, or too large to compute exactly
        return math.log2(zeros) * double < above * math.log2(length)
    power: int = zeros**double
    return bool(power < length**above if above >= 0 else power * length**-above < 1)


def _examples_text(examples: Sequence[Example], threshold: Threshold) -> str:
    below = [str(example.length) for example in examples if example.below]
    if not below:
        return f"K_0 is at least the threshold N^{threshold.exponent:.4g} in every example."
    where = "in every example" if len(below) == len(examples) else f"at N = {', '.join(below)}"
    return f"K_0 is below the threshold N^{threshold.exponent:.4g} {where}."


def _polynomial(examples: Sequence[Example]) -> Count | None:
    """The polynomial of least degree through the examples, if at least one of them is left to check it."""
    values = [Fraction(example.zero_strings) for example in examples]
    places = [example.length for example in examples]
    # Newton's divided differences: the polynomial has degree d if all of the order d + 1 vanish.
    lead = [values[0]]
    row = values
    for order in range(1, len(values)):
        steps = zip(row, row[1:], places, places[order:], strict=False)
        row = [(after - before) / (far - near) for before, after, near, far in steps]
        if not any(row):
            break
        lead.append(row[0])
    else:
        return None
    total, factor = Count.of(0), Count.of(1)
    for coefficient, place in zip(lead, places, strict=False):
        total = total + factor * Count.of(coefficient)
        factor = factor * (Count.power(Fraction(1)) - Count.of(place))
    return total if total.sign >= 0 else None


def _written(polynomial: Count) -> str:
    """A polynomial as text."""
    parts = []
    for (_, power), factor in sorted(polynomial.terms.items(), reverse=True):
        size = f"({abs(factor)})" if factor.denominator > 1 else str(abs(factor))
        sign = "-" if factor < 0 else "+"
        name = "" if not power else "N" if power == 1 else f"N^{power}"
        written = size if not name else name if abs(factor) == 1 else f"{size}*{name}"
        parts.append((sign, written))
    text = " ".join(f"{sign} {written}" for sign, written in parts) or "0"
    return text.removeprefix("+ ")
