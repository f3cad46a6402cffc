"""Families by their K_0(N): expressions against exact arithmetic at each length, and what is no expression."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repetitions import repeated

from flipscope.basics.errors import InputError
from flipscope.bounds.geometry.counts import Count, parse_count
from flipscope.bounds.geometry.families import Threshold
from flipscope.bounds.geometry.given import examples_verdict, zeros_verdict
from flipscope.cube.expression import parse
from flipscope.cube.sensitivity import zero_strings


def value(count: Count, length: int) -> Fraction:
    """The value at one length, whole powers only."""
    assert all(power.denominator == 1 for _, power in count.terms)
    parts = (a * b**length * Fraction(length) ** int(p) for (b, p), a in count.terms.items())
    return sum(parts, Fraction(0))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2^(N-1)", lambda n: Fraction(2) ** (n - 1)),
        ("N^2 + 1", lambda n: Fraction(n**2 + 1)),
        ("C(N, 3)", lambda n: Fraction(math.comb(n, 3))),
        ("2 ** N - 2*C(N,1) - 2", lambda n: Fraction(2**n - 2 * n - 2)),
        ("(N + 1)^2 * 3^(2*N + 1) / (2*N)", lambda n: Fraction((n + 1) ** 2 * 3 ** (2 * n + 1), 2 * n)),
        ("-(1 - N)", lambda n: Fraction(n - 1)),
        ("-2^2 + N - -1.5", lambda n: Fraction(n) - Fraction(5, 2)),
        ("(1/2)^N * 4^N", lambda n: Fraction(2) ** n),
        ("2^N - 2^N", lambda n: Fraction(0)),
        ("n^-1", lambda n: Fraction(1, n)),
    ],
)
def test_an_expression_has_its_value_at_every_length(text: str, same: object) -> None:
    for length in (1, 2, 3, 7, 30):
        assert value(parse_count(text), length) == same(length)  # type: ignore[operator]


numbers = st.fractions(min_value=-50, max_value=50, max_denominator=6)
terms = st.dictionaries(
    st.tuples(
        st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2)]), st.integers(-3, 6).map(Fraction)
    ),
    numbers.filter(bool),
    max_size=5,
)


@settings(max_examples=repeated(150, 50), deadline=None)
@given(terms, terms)
def test_arithmetic_and_the_sign_in_the_end(one: dict[object, Fraction], two: dict[object, Fraction]) -> None:
    a, b = Count(one), Count(two)  # type: ignore[arg-type]
    for length in (2, 5):
        assert value(a + b, length) == value(a, length) + value(b, length)
        assert value(a - b, length) == value(a, length) - value(b, length)
        assert value(a * b, length) == value(a, length) * value(b, length)
    far = value(a, 3000)
    assert a.sign == (far > 0) - (far < 0)
    start = a.negative_from()
    assert (start is not None) == (a.sign < 0)
    if start is not None:
        assert all(value(a, length) < 0 for length in {start, start + 1, start + 7, 2 * start, 10 * start})
        # and no length is given away, but where rounding cannot tell
        if start > 2:
            scale = sum(abs(x) * c**start * Fraction(start) ** int(p) for (c, p), x in a.terms.items())
            assert value(a, start - 1) > -scale / 10**6 or a.sign_at(start - 1) >= 0


@pytest.mark.parametrize(
    "text",
    ["", "N +", "foo(N)", "N^^2", "((((N", "2N", "N; import os", "__import__('os')", "2^(N/2)", "2^(N^2)", "N^N", "1/0",
     "1/(N-1)", "N^65 * (N+1)^65", "(N+1)^(1/2)", "C(N, N)", "C(N, 1.5)", "(-2)^N", "9" * 200, "N" * 2000,
     "(1+N+N^10+N^100+N^1000)^9", "1000000^(64*N)" + "*1000000^(64*N)" * 60, "-N", "3^N", "2^N + 1"],
)  # fmt: skip
def test_what_is_no_number_of_strings_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError):
        zeros_verdict(text, width=64, layers=2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(8, 130), st.integers(1, 4))
def test_a_polynomial_is_ruled_out_if_it_is_below_the_threshold_in_the_end(
    coefficients: list[int], width: int, layers: int
) -> None:
    text = " + ".join(f"{a}*N^{power}" for power, a in enumerate(coefficients))
    found = zeros_verdict(text, width=width, layers=layers)
    threshold = Threshold(width, layers)
    far = 10**60
    count = sum(a * far**power for power, a in enumerate(coefficients))
    double = 2 * layers
    above = width - 1 - 10 * layers
    below = count**double < far**above if above > 0 else count == 0
    assert found.ruled_out == (below and threshold.promises_one)
    if found.ruled_out:
        assert found.from_length is not None
        for length in (found.from_length, 3 * found.from_length):
            assert not threshold.is_void_at(length)
            here = sum(a * length**power for power, a in enumerate(coefficients))
            assert here**double < length**above if above > 0 else here == 0


def test_the_corollarys_edge() -> None:
    # (D-1)/2L - 5 = 2 exactly: K_0 = N^2 is not below N^2, N^2 - 1 is.
    shape = {"width": 29, "layers": 2}
    assert zeros_verdict("N^2", **shape).ruled_out is False
    assert zeros_verdict("N^2 - 1", **shape).ruled_out is True
    assert zeros_verdict("N^2 + 1", **shape).ruled_out is False
    # (D-1)/2L = 3: corollaries are printed for all D and L, the proof needs more than 3.
    assert zeros_verdict("0", width=13, layers=2).ruled_out is False
    assert "nothing follows" in zeros_verdict("0", width=13, layers=2).note
    assert zeros_verdict("0", width=14, layers=2).ruled_out is True
    assert zeros_verdict("1", width=14, layers=2).ruled_out is False


@pytest.mark.parametrize(
    ("zeros", "width", "layers", "digits"),
    [
        ("10^7*N^2", 338, 24, 336),  # c = 2 + 1/48, so that N^c passes 10^7 N^2 at 10^(7 * 48)
        ("10^7*N^2 + (1/2)^N", 338, 24, 336),
        ("10^7*N^2", 140_000_002, 10_000_000, 1.4e8),
    ],
)
def test_powers_that_hardly_differ_cross_at_lengths_beyond_floats(
    zeros: str, width: int, layers: int, digits: float
) -> None:
    found = zeros_verdict(zeros, width=width, layers=layers)
    assert (found.ruled_out, found.from_length) == (True, None)
    assert found.as_json()["log10_from_length"] == pytest.approx(digits)
    assert found.start_text in (f"N = 10^{digits:.0f}", f"N = 10^{digits:.5g}")
    assert f"not before {found.start_text}," in found.note


def test_examples_are_counted_and_prove_nothing_beyond() -> None:
    found = examples_verdict("thr(2, x1..x{n})", [5, 9, 7], width=64, layers=2)
    assert [example.length for example in found.examples] == [5, 7, 9]
    for example in found.examples:
        assert example.zero_strings == zero_strings(parse(f"thr(2, x1..x{example.length})"))
        assert example.below == (example.zero_strings < example.length**10.75)
    assert found.ruled_out is None
    assert found.from_length is None
    assert examples_verdict("parity({n})", [4, 9], width=64, layers=2).ruled_out is True
    assert examples_verdict("majority({n})", [11, 21, 41], width=64, layers=2).ruled_out is False


def test_examples_on_a_polynomial_say_what_would_follow() -> None:
    # Parity of all bits but constant where all are equal, and their neighbours: few strings of sensitivity 0.
    found = examples_verdict("maj(x1..x{n}) ^ parity({n})", [5, 7, 9], width=64, layers=2)
    assert "K_0(N) = 0" in found.note
    assert "ruled out, from N = 65 on" in found.note
    assert found.ruled_out is None


@pytest.mark.parametrize(
    ("family", "lengths", "message"),
    [
        ("majority(9)", [5, 7], "has no {n}"),
        ("majority({n})", [5], "2 to 100 different lengths"),
        ("majority({n}) ^ x50", [5, 7], "has 50 bits, not 5"),
        ("random({n})", [5, 60], "cannot be counted"),
        ("majority({n})", [0, 5], "length"),
    ],
)
def test_families_that_are_none(family: str, lengths: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("{", r"\{")):
        examples_verdict(family, lengths, width=64, layers=2)
