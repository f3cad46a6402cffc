"""Cor 4.6 of paper 000: the threshold against plain integer arithmetic, and the verdict on every family."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.bounds import geometry
from flipscope.bounds.geometry import MAX_SHAPE, Threshold, Verdict, verdict
from flipscope.cube.expression import parse
from flipscope.cube.languages import language_of

VOID = "nothing follows at this length"


def judged(text: str, width: int = 64, layers: int = 2, n: int | None = None) -> Verdict:
    f = parse(text, n)
    return verdict(f, language_of(text, f), text, width=width, layers=layers)


def reaches_all_strings(width: int, layers: int, length: int) -> bool:
    """N^c >= 2^N with c = (D - 1 - 10 L) / 2L, in integers: both sides to the power 2L."""
    power = width - 1 - 10 * layers
    return power > 0 and length**power >= 1 << (2 * layers * length)


# ---------------------------------------------------------------- the threshold


@given(width=st.integers(2, 5000), layers=st.integers(1, 60), length=st.integers(2, 5000))
def test_the_exponent_and_the_threshold(width: int, layers: int, length: int) -> None:
    threshold = Threshold(width, layers)
    exponent = Fraction(width - 1, 2 * layers) - 5
    assert threshold.exponent == pytest.approx(float(exponent), abs=1e-12)
    assert (threshold.exponent > 0) == (exponent > 0)
    assert threshold.promises_one == (Fraction(width - 1, 2 * layers) > 3)
    logarithm = float(exponent) * math.log2(length)
    assert threshold.log2_at(length) == pytest.approx(logarithm, rel=1e-12)
    assert threshold.at(length) == (math.inf if logarithm > 1023 else pytest.approx(2**logarithm, rel=1e-9))


@given(width=st.integers(2, 5000), layers=st.integers(1, 60), length=st.integers(2, 5000), part=st.floats(0, 1))
def test_the_threshold_of_strings_of_sensitivity_at_most_n_less_k(
    width: int, layers: int, length: int, part: float
) -> None:
    threshold, k = Threshold(width, layers), round(part * length)
    logarithm = ((width - 1) / (2 * layers) - 4) * math.log2(length) - math.log2(k + 1)
    assert threshold.log2_at(length, k) == pytest.approx(logarithm, rel=1e-9, abs=1e-9)
    assert threshold.at(length, k) == (math.inf if logarithm > 1023 else pytest.approx(2**logarithm, rel=1e-6))
    # Fewer strings are promised the more flips must not matter; and for k = N a little less than Eq 36 prints.
    assert threshold.log2_at(length, k) >= threshold.log2_at(length, length)
    assert threshold.log2_at(length) - threshold.log2_at(length, length) == pytest.approx(math.log2(1 + 1 / length))
    for wrong in (-1, length + 1):
        with pytest.raises(InputError, match=f"k={wrong} must be"):
            threshold.log2_at(length, wrong)


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5, 8])
def test_from_length_by_scanning(layers: int) -> None:
    for width in [*range(2, 40), *range(40, 130, 6), 200, 257, 301]:
        void = [n for n in range(1, 2200) if reaches_all_strings(width, layers, n)]
        assert len(void) == 0 or void[-1] < 2100, "the scan must see the end"
        threshold = Threshold(width, layers)
        assert threshold.from_length() == max([2, *(n + 1 for n in void)]), (width, layers)
        assert [n for n in range(1, 400) if threshold.is_void_at(n)] == [n for n in void if n < 400]


@pytest.mark.parametrize("power", [1, 2, 3, 5, 6, 7, 9, 10])
def test_equality_is_decided_in_integers(power: int) -> None:
    # c = 2^k / k makes N^c = 2^N at N = 2^k, where rounding could go either way.
    layers, length = 3 * power, 1 << power
    width = 1 + 10 * layers + 2 * layers * length // power
    assert (width - 1 - 10 * layers) * power == 2 * layers * length
    assert Threshold(width, layers).is_void_at(length)
    assert not Threshold(width - 1, layers).is_void_at(length)


@pytest.mark.parametrize(
    ("width", "layers"), [(1, 1), (0, 1), (-3, 1), (64, 0), (64, -1), (MAX_SHAPE + 1, 1), (64, MAX_SHAPE + 1)]
)
def test_impossible_shapes(width: int, layers: int) -> None:
    with pytest.raises(InputError, match="must be between"):
        Threshold(width, layers)


def test_the_largest_shape_has_an_answer() -> None:
    assert Threshold(MAX_SHAPE, 1).from_length() > MAX_SHAPE
    assert Threshold(MAX_SHAPE, MAX_SHAPE).from_length() == 2


# ---------------------------------------------------------------- the verdict

RULED_OUT = [
    "parity(100)",
    "first(100)",
    "dictator(7, n=100)",
    "sparse_parity(3, n=100)",
    "sparse_majority(1, n=100)",
    "address(3)",
    "address(5)",
    "random(12)",
    "random(1000)",
    "xor(x1..x50)",
    "x1 ^ maj(x2..x4)",
    "~parity(30)",
]
NOT_RULED_OUT = [
    "majority(101)",
    "majority(100)",
    "sparse_majority(2, n=100)",
    "sparse_majority(5, n=100)",
    "conjunction(40)",
    "disjunction(40)",
    "tribes(40)",
    "threshold(3, n=40)",
    "random_symmetric(60)",
    "random_junta(4, n=100, seed=1)",  # one that has such strings: a random junta of four bits need not
    "maj(x1..x9)",
    "x1 & x2",
]


@pytest.mark.parametrize("text", RULED_OUT)
def test_families_with_few_strings_of_sensitivity_0(text: str) -> None:
    found = judged(text)
    assert found.ruled_out
    assert found.theorem == "Cor 4.6 (000)"
    assert found.from_length == Threshold(64, 2).from_length() == 65
    assert "cannot bite before N = 65" in found.note


@pytest.mark.parametrize("text", NOT_RULED_OUT)
def test_families_with_many_strings_of_sensitivity_0(text: str) -> None:
    found = judged(text)
    assert not found.ruled_out
    assert found.theorem is found.from_length is None
    assert "only conjectured (Conj 5.5" in found.note


@pytest.mark.parametrize("text", ["0", "1"])
def test_constants_are_not_ruled_out(text: str) -> None:
    found = judged(text, n=20)
    assert not found.ruled_out
    assert found.zero_strings == 2**20


@pytest.mark.parametrize(
    ("width", "layers", "parity", "random"),
    [
        (64, 2, True, True),
        (22, 2, True, True),  # c = 1/4
        (21, 2, True, False),  # c = 0: one string for certain, but no more than a random function has
        (25, 3, True, False),  # c = -1, (D-1)/2L = 4
        (14, 2, True, False),  # (D-1)/2L = 3.25
        (13, 2, False, False),  # (D-1)/2L = 3
        (2, 5, False, False),
    ],
)
def test_narrow_transformers(width: int, layers: int, parity: bool, random: bool) -> None:
    assert judged("parity(50)", width, layers).ruled_out is parity
    assert judged("random(12)", width, layers).ruled_out is random
    assert judged("majority(51)", width, layers).ruled_out is False
    if not parity:
        assert "nothing follows." in judged("parity(50)", width, layers).note
    elif not random:
        assert "at least one such string" in judged("parity(50)", width, layers).note
        assert "does not grow" in judged("random(12)", width, layers).note


@pytest.mark.parametrize(("width", "layers"), [(64, 2), (32, 1), (43, 2), (47, 3), (21, 2), (13, 2)])
@pytest.mark.parametrize("name", ["parity", "majority"])
def test_nothing_follows_where_the_threshold_reaches_2_to_the_n(name: str, width: int, layers: int) -> None:
    for n in range(2, 120):
        found = judged(f"{name}({n})", width, layers)
        assert (VOID in found.note) == reaches_all_strings(width, layers, n), n
        if VOID in found.note:
            assert found.threshold >= 2**n * (1 - 1e-9)


def test_the_number_of_strings_is_exact_where_known() -> None:
    assert judged("majority(101)").zero_strings == 2**101 - 2 * math.comb(101, 50)
    assert judged("address(5)").zero_strings == 0, "known by the family, though no table of 37 bits is made"
    assert judged("random(1000)").zero_strings is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("parity(100)", "Cor 5.1,"),
        ("sparse_parity(3, n=100)", "Cor 5.2, on m-sparse parities, with m = 3."),
        ("~parity(30)", "Cor 5.2, on m-sparse parities, with m = 30."),
        ("xor(x1..x50)", "with m = 50."),
        ("dictator(7, n=100)", "Cor 5.3,"),
        ("sparse_majority(1, n=100)", "Cor 5.3,"),
        ("~x4", "Cor 5.3,"),
        ("first(100)", "Cor 5.4,"),
        ("x1 ^ maj(x2..x4)", None),
        ("address(3)", None),
        ("random(12)", None),
        ("random(1000)", None),
        ("majority(101)", None),
        ("x1 & x2", None),
    ],
)
def test_section_5_is_named_where_it_names_the_family(text: str, named: str | None) -> None:
    note = judged(text).note
    assert (named in note) if named else ("This is Cor" not in note)


def test_section_5_says_nothing_where_its_condition_fails() -> None:
    assert "Cor 5" not in judged("parity(100)", 13, 2).note


def test_what_is_said_of_eps_above_0() -> None:
    for text in ("majority(101)", "x1 & x2"):
        assert "Cor 3.4" in judged(text).note
    assert "Cor 3.4" in judged("parity(50)", 13, 2).note, "nothing follows for eps = 0"
    assert "Cor 3.4" not in judged("1", n=20).note, "constants are recognised"
    assert "conjectured" not in judged("1", n=20).note


def test_the_named_results_are_all_here() -> None:
    for name in geometry.__all__:
        assert hasattr(geometry, name)
    code = "import sys, flipscope.bounds.geometry; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "False\n", "a verdict does not load torch"


def test_as_json() -> None:
    found = judged("parity(100)").as_json()
    assert list(found) == ["function", "ruled_out", "theorem", "threshold", "zero_strings", "from_length", "note"]
    assert found["threshold"] == pytest.approx(100**10.75)
    assert judged("parity(100)", MAX_SHAPE, 1).as_json()["threshold"] is None
