"""Languages: the declared growth of K_0 against exact counts, and which family an expression stands for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.cube import functions
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction
from flipscope.cube.languages import LANGUAGES, Language, language_of
from flipscope.cube.sensitivity import zero_strings

LENGTHS = {"address": (3, 6, 11, 20), "random": (4, 7, 10, 13)}


def lengths(language: Language) -> tuple[int, ...]:
    return LENGTHS.get(language.name, (24, 48, 96, 192))


# ---------------------------------------------------------------- growth


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=lambda language: language.name)
def test_the_declared_growth_is_true(language: Language) -> None:
    counts = {n: zero_strings(language.at(n)) for n in lengths(language)}
    if language.zero_strings == "none":
        assert set(counts.values()) == {0}
    elif language.zero_strings == "bounded":
        assert max(counts.values()) <= 6
    else:
        assert language.zero_strings == "exponential"
        assert all(count >= 2 ** (0.75 * n) for n, count in counts.items())


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=lambda language: language.name)
def test_every_language_has_functions_of_its_lengths(language: Language) -> None:
    for n in lengths(language):
        assert language.at(n).n == n


def test_random_functions_have_one_string_of_sensitivity_0_on_average() -> None:
    counts = [zero_strings(functions.random(9, seed)) for seed in range(400)]
    # Poisson(1): standard error 1/20.
    assert abs(sum(counts) / 400 - 1) < 0.2
    assert abs(counts.count(0) / 400 - math.exp(-1)) < 0.1


@pytest.mark.parametrize("n", [5, 20, 101, 1000])
def test_the_reasons_are_true(n: int) -> None:
    assert zero_strings(functions.conjunction(n)) == 2**n - (n + 1)
    assert zero_strings(functions.disjunction(n)) == 2**n - (n + 1)
    sensitive = 1 - zero_strings(functions.majority(n)) / 2**n
    assert 1 / math.sqrt(n) < sensitive < 2 / math.sqrt(n)


def test_address_has_few_lengths() -> None:
    with pytest.raises(InputError, match=r"k \+ 2\^k .* n = 7 is not one"):
        LANGUAGES["address"].at(7)


# ---------------------------------------------------------------- from an expression to a family


@pytest.mark.parametrize(
    "text",
    [
        "parity(10)",
        "majority(10)",
        " Majority ( 10 ) ",
        "majority(x1..x9)",
        "first(10)",
        "conjunction(10)",
        "disjunction(x1, x2, x3)",
        "tribes(24)",
        "tribes(24, width=4)",
        "address(3)",
        "random(12, seed=5)",
        "random(100)",
        "random_symmetric(10)",
    ],
)
def test_a_call_of_a_zoo_function_stands_for_its_family(text: str) -> None:
    name = text.lower().partition("(")[0].strip()
    assert language_of(text, parse(text)) is LANGUAGES[name]


@pytest.mark.parametrize(
    ("text", "n", "growth"),
    [
        ("x1 ^ x2", None, "none"),
        ("x1 & x2", None, "exponential"),
        ("maj(x1..x5)", None, "exponential"),
        ("~parity(5)", None, "none"),
        ("sparse_parity(3, n=40)", None, "none"),
        ("sparse_majority(3, n=40)", None, "exponential"),
        ("dictator(3, n=40)", None, "none"),
        ("random(5)", 40, "exponential"),  # five bits inside forty: not a random function of forty
        ("majority(1)", 40, "none"),
        ("parity(3)", 40, "none"),
        ("address(2)", 40, "none"),
        ("threshold(2, n=5)", 40, "exponential"),
        ("1", 5, "exponential"),
    ],
)
def test_anything_else_stands_for_itself_inside_more_bits(text: str, n: int | None, growth: str) -> None:
    f = parse(text, n)
    language = language_of(text, f)
    assert (language.name, language.zero_strings) == (text, growth)
    for more in (1, 2, 5):
        assert language.at(f.n + more) == f.extend(f.n + more)
        assert zero_strings(language.at(f.n + more)) == zero_strings(f) << more
    assert (zero_strings(f) == 0) == (growth == "none")


def test_a_threshold_keeps_its_number_of_ones() -> None:
    language = language_of("threshold(3, n=20)", parse("threshold(3, n=20)"))
    assert language.name == "threshold 3"
    for n in (10, 20, 80):
        assert language.at(n) == functions.threshold(3, n)
        assert zero_strings(language.at(n)) == 2**n - math.comb(n, 2) - math.comb(n, 3)
    assert "2 or 3 ones" in language.reason


@pytest.mark.parametrize("text", ["threshold(0, n=20)", "threshold(21, n=20)"])
def test_a_constant_threshold_is_a_constant(text: str) -> None:
    assert language_of(text, parse(text)).name == text


def test_a_share_too_small_for_a_float_is_told_as_a_power() -> None:
    values = (np.arange(2001) + 1) % 2
    values[0] = 0  # parity, but for the string of zeros, which alone has sensitivity 0
    f = BooleanFunction.symmetric(values)
    assert zero_strings(f) == 1
    language = language_of("f", f)
    assert language.zero_strings == "exponential"
    assert "K_0 = 2^-2000 of all strings" in language.reason


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(InputError, match=r"the family of 'random\(40\) \^ x1' is not known"):
        language_of("random(40) ^ x1", parse("random(40) ^ x1"))
