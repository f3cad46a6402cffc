"""Sums of parities: their values against the definition, their text, their law, and what is refused."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.cube.fourier_sums import FourierSum, parse_sum, random_sum


@st.composite
def sums(draw: st.DrawFn) -> FourierSum:
    length = draw(st.integers(2, 6))
    every = [s for k in range(1, length + 1) for s in itertools.combinations(range(length), k)]
    sets = draw(st.lists(st.sampled_from(every), min_size=1, max_size=5, unique=True))
    weight = st.floats(-10, 10).filter(lambda value: abs(value) > 1e-6)
    return FourierSum(length, tuple(sets), tuple(draw(weight) for _ in sets))


@given(sums())
def test_values_are_those_of_the_definition(f: FourierSum) -> None:
    bits = index_bits(0, 1 << f.length, f.length)
    for row, value in zip(bits, f(bits), strict=True):
        terms = (c * (1 + (-1) ** int(sum(row[i] for i in s))) / 2 for s, c in zip(f.sets, f.coefficients, strict=True))
        assert value == pytest.approx(math.fsum(terms), abs=1e-9)


@given(sums())
def test_text_comes_back_as_it_was(f: FourierSum) -> None:
    assert parse_sum(str(f), f.length) == f


@pytest.mark.parametrize(
    ("text", "sets", "weights"),
    [
        ("0.6*x1x2x3 + 0.64*x3x4x5", ((0, 1, 2), (2, 3, 4)), (0.6, 0.64)),
        ("x2 x1", ((0, 1),), (1.0,)),
        ("-x1*x2 - 2e-3 x3", ((0, 1), (2,)), (-1.0, -0.002)),
        (" .5X10 ", ((9,),), (0.5,)),
    ],
)
def test_the_syntax(text: str, sets: tuple[tuple[int, ...], ...], weights: tuple[float, ...]) -> None:
    f = parse_sum(text)
    assert (f.sets, f.coefficients) == (sets, weights)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a sum of parities"),
        ("x1 ^ x2", "not a sum of parities"),
        ("x1 + + x2", "not a sum of parities"),
        ("x1 x2 0.3", "not a sum of parities"),
        ("0.5*x1 -", "not a sum of parities"),
        ("0.5", "degree 0"),
        ("x1 - 2", "degree 0"),
        ("x1x2x1", "names a position twice"),
        ("x0", "counted from 1"),
        ("0*x1 + 0*x2", "all 0"),
        ("0*x1 + x2", "coefficient of x1 is 0"),
        ("x1x2 + 3*x2x1", "x1x2 is there twice"),
        ("1e999*x1", "finite number"),
        ("x1 + x" + "1" * 5000, "beyond 999,999,999"),
    ],
)
def test_what_means_nothing_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_sum(text)
    assert "\n" not in str(caught.value)


def test_a_string_that_is_too_short_is_refused() -> None:
    with pytest.raises(InputError, match="at least 5"):
        parse_sum("x1x5", 4)


def test_random_sums_are_of_the_class_and_all_sets_come_up_equally_often() -> None:
    seen = dict.fromkeys(itertools.combinations(range(4), 2), 0)
    for seed in range(600):
        f = random_sum(4, 3, 2, seed)
        assert f.is_homogeneous
        assert f.norm == pytest.approx(1)
        for s in f.sets:
            seen[s] += 1
    assert all(240 < count < 360 for count in seen.values())  # 300 each, standard deviation 12
    assert random_sum(30, 7, 4, 5) == random_sum(30, 7, 4, 5) != random_sum(30, 7, 4, 6)


@pytest.mark.parametrize(("sizes", "said"), [((4, 1, 5), "no more positions"), ((4, 7, 2), "6 sets"), ((4, 1, 0), "1")])
def test_classes_without_functions_are_refused(sizes: tuple[int, int, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        random_sum(*sizes)
