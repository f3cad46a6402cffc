"""Products of polynomials with long non-negative integers as coefficients: how counts and weights of parts compose."""

from __future__ import annotations

from collections.abc import Mapping

from flipscope.cube.compose import NotExact

Polynomial = dict[int, int]  # degree -> coefficient, never zero

MAX_WORK = 6e9  # nanoseconds, roughly: a few seconds
_TERM_WORK = 300.0  # nanoseconds for one product and one addition of short integers
_DIGIT_BITS = 30  # Python's long integers


class Products:
    """Multiplies polynomials, and counts the work so that no composition takes minutes."""

    def __init__(self) -> None:
        self.work = 0.0

    def multiply(self, a: Mapping[int, int], b: Mapping[int, int]) -> Polynomial:
        """The product of two polynomials."""
        if not a or not b:
            return {}
        bits = (max(a.values()).bit_length(), max(b.values()).bit_length())
        width = sum(bits) + min(len(a), len(b)).bit_length()
        digits = (bits[0] // _DIGIT_BITS + 1) * (bits[1] // _DIGIT_BITS + 1)
        term_by_term = len(a) * len(b) * (_TERM_WORK + 0.8 * digits)
        # One product of two very long integers, by Karatsuba's method, and one step per coefficient to pack and unpack.
        longest = max(max(a), max(b)) * width / _DIGIT_BITS
        at_once = 8.0 * longest**1.585 + 3 * _TERM_WORK * (max(a) + max(b) + 1)
        self.work += min(term_by_term, at_once)
        if self.work > MAX_WORK:
            raise NotExact("the parts have too many different sizes to compose exactly; sample instead.")
        return _term_by_term(a, b) if term_by_term <= at_once else _at_once(a, b, -(-width // 8))


def _term_by_term(a: Mapping[int, int], b: Mapping[int, int]) -> Polynomial:
    result: Polynomial = {}
    for s, x in a.items():
        for t, y in b.items():
            result[s + t] = result.get(s + t, 0) + x * y
    return result


def _at_once(a: Mapping[int, int], b: Mapping[int, int], width: int) -> Polynomial:
    """The product of the values at 256^width, where no coefficient of the result reaches into the next."""
    size = max(a) + max(b) + 1
    raw = (_packed(a, width) * _packed(b, width)).to_bytes(size * width, "little")
    places = ((s, int.from_bytes(raw[s * width : (s + 1) * width], "little")) for s in range(size))
    return {s: coefficient for s, coefficient in places if coefficient}


def _packed(a: Mapping[int, int], width: int) -> int:
    raw = bytearray((max(a) + 1) * width)
    for s, coefficient in a.items():
        raw[s * width : (s + 1) * width] = coefficient.to_bytes(width, "little")
    return int.from_bytes(raw, "little")
