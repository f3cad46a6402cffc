"""Numbers of strings as expressions in the length N, compared exactly for all large N: ``parse_count("2^(N-1) - N")``.

An expression is made of N, numbers, + - * / ^, parentheses and C(N, k), the number of k-subsets for a fixed k. Its
value is kept as a sum of terms a b^N N^p with rational a, b and p. The fastest-growing term decides the sign at large
N, without rounding, and the user's text is parsed, never evaluated as code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NoReturn, TypeAlias

from lark import Lark, Token, Transformer_NonRecursive, UnexpectedInput
from lark.exceptions import VisitError

from flipscope.basics.arguments import checked_arguments
from flipscope.basics.errors import InputError
from flipscope.cube.expression import ExpressionError

MAX_TEXT = 1000  # characters
MAX_POWER = 64  # of a sum, of a number whose exponent has N, and k of C(N, k)
MAX_SHIFT = 10_000  # of c in b^(a N + c)
MAX_TERMS = 500
MAX_LENGTH = 10**15  # floats distinguish lengths up to here
_STEPS = 100_000  # lengths that are tried one by one
_LOG_INFINITE = 700.0  # ln of a number near the end of the range of floats
_HALVINGS = 60  # of an interval of logarithms: to the last bit of a float

_Key: TypeAlias = tuple[Fraction, Fraction]  # b and p of b^N N^p: their order is that of growth

_GRAMMAR = r"""
?start: sum
?sum: product | sum "+" product -> add | sum "-" product -> subtract
?product: signed | product "*" signed -> multiply | product "/" signed -> divide
?signed: power | "-" signed -> negate
?power: atom | atom ("^" | "**") signed -> raise_to
?atom: NUMBER -> number | "N"i -> length | "(" sum ")" | "C"i "(" sum "," sum ")" -> choose
NUMBER: /[0-9]+(\.[0-9]+)?/
%ignore /\s+/
"""


@dataclass(frozen=True)
class Count:
    """A sum of terms a b^N N^p, as {(b, p): a} without zeros."""

    terms: Mapping[_Key, Fraction]

    @classmethod
    def of(cls, value: Fraction | int) -> Count:
        """A number that does not depend on N."""
        return cls({(Fraction(1), Fraction(0)): Fraction(value)} if value else {})

    @classmethod
    def power(cls, exponent: Fraction) -> Count:
        """N^exponent."""
        return cls({(Fraction(1), exponent): Fraction(1)})

    def __add__(self, other: Count) -> Count:
        return _gathered([*self.terms.items(), *other.terms.items()])

    def __neg__(self) -> Count:
        return Count({key: -factor for key, factor in self.terms.items()})

    def __sub__(self, other: Count) -> Count:
        return self + -other

    def __mul__(self, other: Count) -> Count:
        pairs = ((one, two) for one in self.terms.items() for two in other.terms.items())
        return _gathered([((b * c, p + q), x * y) for ((b, p), x), ((c, q), y) in pairs])

    @property
    def constant(self) -> Fraction | None:
        """The value if it does not depend on N."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get((Fraction(1), Fraction(0))) if len(self.terms) == 1 else None

    @property
    def sign(self) -> int:
        """-1, 0 or 1: that of the value at all large N."""
        if not self.terms:
            return 0
        return 1 if self.terms[max(self.terms)] > 0 else -1

    def sign_at(self, length: int) -> int:
        """The sign at one length, computed relative to the largest term; 0 also where rounding leaves it open."""
        log_length = math.log(length)
        logs = [(factor, _log_fraction(abs(factor)) + _log(*key, log_length)) for key, factor in self.terms.items()]
        top = max((log for _, log in logs), default=0.0)
        parts = [math.copysign(math.exp(log - top), factor) for factor, log in logs]
        total = math.fsum(parts)
        unsure = 1e-12 * (1 + abs(top)) * len(parts)
        return 0 if abs(total) <= unsure else (1 if total > 0 else -1)

    def log_negative_from(self) -> float | None:
        """The logarithm of a length from which on the value certainly stays below 0; None if it does not.

        From there on every other term falls relative to the leading one, and their sum is smaller. Logarithms, since
        two powers of N that hardly differ cross at lengths of hundreds of digits.
        """
        if self.sign >= 0:
            return None
        lead = max(self.terms)
        others = [(key, factor / -self.terms[lead]) for key, factor in self.terms.items() if factor > 0]

        def settled(log_length: float) -> bool:
            falls = all(_falls(key, lead, log_length) for key, _ in others)
            return falls and sum(_ratio(key, lead, factor, log_length) for key, factor in others) < 1 - 1e-9

        low, high = 0.0, math.log(2)
        while not settled(high):
            low, high = high, 2 * high
        if high > math.log(2):
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                low, high = (low, middle) if settled(middle) else (middle, high)
        return high

    def negative_from(self) -> int | None:
        """The least N >= 2 from which on the value stays below 0; None if it does not, or only beyond MAX_LENGTH.

        Lengths are tried one by one, from `log_negative_from` downwards, at most 100,000 of them.
        """
        start = self.log_negative_from()
        if start is None or start > math.log(MAX_LENGTH):
            return None
        high = max(2, math.ceil(math.exp(start) * (1 - 1e-14)))
        for _ in range(_STEPS):
            if high == 2 or self.sign_at(high - 1) >= 0:
                break
            high -= 1
        return high


@checked_arguments
def parse_count(text: str) -> Count:
    """The expression for a number of strings, as a sum of terms a b^N N^p.

    >>> difference = parse_count("C(N, 2) + 100") - parse_count("N^(5/2)")
    >>> difference.sign, difference.negative_from()  # below 0 at all large N, and from 7 on
    (-1, 7)
    """
    if len(text) > MAX_TEXT:
        raise InputError(f"the expression in N has {len(text):,} characters: write it with at most {MAX_TEXT:,}")
    try:
        tree = _parser().parse(text)
        count: Count = _Builder(text).transform(tree)
    except UnexpectedInput as error:
        token = getattr(error, "token", None)
        ended = isinstance(token, Token) and token.type == "$END"
        at = len(text) if ended else min(getattr(error, "pos_in_stream", None) or 0, len(text))
        raise ExpressionError(
            "this is no expression in N; expected one like 2^(N-1) or N^2 + 1, from N, numbers, + - * / ^ ( ) and "
            "C(N, k).",
            text,
            at,
        ) from None
    except VisitError as error:
        raise error.orig_exc from None
    return count


# ---------------------------------------------------------------- parsing


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True)


class _Builder(Transformer_NonRecursive[Token, Any]):
    """Turns the syntax tree into terms, leaves first: a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        super().__init__(visit_tokens=False)
        self.text = text

    def fail(self, problem: str) -> NoReturn:
        raise InputError(f"{self.text!r} cannot be compared for all N: {problem}")

    def number(self, children: list[Token]) -> Count:
        if len(children[0]) > 100:
            self.fail("a number has more than 100 digits")
        return Count.of(Fraction(str(children[0])))

    def length(self, children: list[Token]) -> Count:
        return Count.power(Fraction(1))

    def add(self, children: list[Count]) -> Count:
        return self.checked(children[0] + children[1])

    def subtract(self, children: list[Count]) -> Count:
        return self.checked(children[0] - children[1])

    def multiply(self, children: list[Count]) -> Count:
        if len(children[0].terms) * len(children[1].terms) > MAX_TERMS**2:
            self.fail(f"it has more than {MAX_TERMS} terms")
        return self.checked(children[0] * children[1])

    def negate(self, children: list[Count]) -> Count:
        return -children[0]

    def divide(self, children: list[Count]) -> Count:
        return self.checked(children[0] * self.inverse(children[1]))

    def raise_to(self, children: list[Count]) -> Count:
        base, exponent = children
        power = exponent.constant
        if power is None:
            return self.exponential(base, exponent)
        if power.denominator == 1 and abs(power) <= MAX_POWER:
            result = Count.of(1)
            for _ in range(abs(int(power))):
                result = self.checked(result * base)
            return result if power >= 0 else self.inverse(result)
        if list(base.terms.values()) == [1] and next(iter(base.terms))[0] == 1 and abs(power) <= MAX_SHIFT:
            return Count.power(next(iter(base.terms))[1] * power)
        self.fail(f"the power {power} is not a whole number up to {MAX_POWER}, nor one of N alone")

    def exponential(self, base: Count, exponent: Count) -> Count:
        """b^(a N + c)."""
        slope = exponent.terms.get((Fraction(1), Fraction(1)), Fraction(0))
        shift = (exponent - Count.of(slope) * Count.power(Fraction(1))).constant
        value = base.constant
        if shift is None or value is None or value <= 0:
            self.fail("an exponent with N needs a positive number below it, and the form a*N + c")
        if slope.denominator > 1 or shift.denominator > 1 or abs(slope) > MAX_POWER or abs(shift) > MAX_SHIFT:
            self.fail(f"in the exponent a*N + c whole numbers are needed, a up to {MAX_POWER} and c up to {MAX_SHIFT}")
        if max(value.numerator, value.denominator) > 10**6:
            self.fail("a number with N in its exponent is at most a million")
        return Count({(value ** int(slope), Fraction(0)): value ** int(shift)})

    def choose(self, children: list[Count]) -> Count:
        above, below = children[0], children[1].constant
        if below is None or below.denominator > 1 or not 0 <= below <= MAX_POWER:
            self.fail(f"k of C(N, k) must be a whole number from 0 to {MAX_POWER}")
        result = Count.of(1)
        for i in range(int(below)):
            result = self.checked(result * (above - Count.of(i)) * Count.of(Fraction(1, i + 1)))
        return result

    def inverse(self, count: Count) -> Count:
        if len(count.terms) != 1:
            self.fail("it divides by 0" if not count.terms else "it divides by a sum")
        ((base, power), factor), *_ = count.terms.items()
        return Count({(1 / base, -power): 1 / factor})

    def checked(self, count: Count) -> Count:
        if len(count.terms) > MAX_TERMS:
            self.fail(f"it has more than {MAX_TERMS} terms")
        largest = max((max(abs(n.numerator), n.denominator) for n in _numbers(count)), default=0)
        if largest.bit_length() > 1 << 16:
            self.fail("its numbers are too large")
        return count


def _numbers(count: Count) -> list[Fraction]:
    return [number for (base, power), factor in count.terms.items() for number in (base, power, factor)]


def _gathered(terms: list[tuple[_Key, Fraction]]) -> Count:
    factors: dict[_Key, Fraction] = {}
    for key, factor in terms:
        factors[key] = factors.get(key, Fraction(0)) + factor
    return Count({key: factor for key, factor in factors.items() if factor})


# ---------------------------------------------------------------- terms in logarithms


def _log_fraction(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _log(base: Fraction, power: Fraction, log_length: float) -> float:
    """The natural logarithm of b^N N^p, N by its logarithm."""
    return _growth(base, log_length) + float(power) * log_length


def _growth(base: Fraction, log_length: float) -> float:
    """The natural logarithm of b^N; infinite where N is beyond floats."""
    if base == 1:
        return 0.0
    length = math.exp(log_length) if log_length < _LOG_INFINITE else math.inf
    return length * _log_fraction(base)


def _falls(key: _Key, lead: _Key, log_length: float) -> bool:
    """Whether b^N N^p over the leading term falls from this length on."""
    base, power = key[0] / lead[0], key[1] - lead[1]
    return power < 0 if base == 1 else -_growth(base, log_length) >= float(power)


def _ratio(key: _Key, lead: _Key, factor: Fraction, log_length: float) -> float:
    exponent = _log_fraction(factor) + _log(key[0] / lead[0], key[1] - lead[1], log_length)
    return math.exp(min(exponent, _LOG_INFINITE))
