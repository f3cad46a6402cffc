"""Portraits: exact ones against the definitions, sampled ones against the exact, and their JSON."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.cube.compose import NotExact
from flipscope.cube.expression import parse
from flipscope.cube.functions import BooleanFunction, majority, parity, random, random_symmetric
from flipscope.cube.portrait import (
    DEFAULT_CELLS,
    DEFAULT_STRINGS,
    RHOS,
    default_strings,
    exact_portrait,
    sampled_portrait,
)


@settings(max_examples=60)
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 2 ** (2**n) - 1))))
def test_exact_portraits_agree_with_the_definitions(drawn: tuple[int, int]) -> None:
    n, table = drawn
    found = exact_portrait(BooleanFunction.from_table(table, n), "f", rhos=(0.3,))
    values = [(table >> i) & 1 for i in range(2**n)]
    flips = [[values[i] != values[i ^ (1 << j)] for j in range(n)] for i in range(2**n)]
    sensitivities = [sum(row) for row in flips]
    assert found.exact
    assert list(found.profile) == [sensitivities.count(s) for s in range(n + 1)]
    assert found.average_sensitivity == sum(sensitivities) / 2**n
    assert (found.max_sensitivity, found.min_sensitivity) == (max(sensitivities), min(sensitivities))
    assert list(found.influences) == [sum(row[j] for row in flips) / 2**n for j in range(n)]
    assert found.ones_share == sum(values) / 2**n
    coefficients = {
        chosen: sum((-1) ** (values[i] + (i & chosen).bit_count()) for i in range(2**n)) / 2**n
        for chosen in range(2**n)
    }
    nonzero = [chosen for chosen, value in coefficients.items() if value]
    assert found.degree == max(chosen.bit_count() for chosen in nonzero)
    assert found.sparsity == len(nonzero)
    weights = [sum(c**2 for s, c in coefficients.items() if s.bit_count() == d) for d in range(n + 1)]
    assert found.weight_by_degree == pytest.approx(weights)
    stability = sum(0.3**d * weight for d, weight in enumerate(weights))
    assert found.noise_stability == {0.3: pytest.approx(stability)}


def test_only_relevant_positions_count() -> None:
    found = exact_portrait(parse("x3 ^ x5", 8), "f")
    assert found.relevant == 2
    assert list(found.influences) == [0, 0, 1, 0, 1, 0, 0, 0]


def test_a_spectrum_out_of_reach_is_noted() -> None:
    found = exact_portrait(random_symmetric(4000), "random_symmetric(4000)")
    assert found.exact
    assert sum(count for count in found.profile if isinstance(count, int)) == 2**4000
    assert found.degree is found.sparsity is found.weight_by_degree is found.noise_stability is None
    assert found.notes[0].startswith("No spectrum: ")


def test_no_exact_sensitivity_is_an_error() -> None:
    with pytest.raises(NotExact, match="30 bits"):
        exact_portrait(random(31), "random(31)")


@pytest.mark.parametrize("rho", [1.01, -2.0, math.nan, math.inf])
def test_correlations_are_checked_even_without_a_spectrum(rho: float) -> None:
    for f in (parity(3), random_symmetric(4000)):
        with pytest.raises(InputError, match="between -1 and 1; rho = "):
            exact_portrait(f, "f", (0.5, rho))
    with pytest.raises(InputError, match="between -1 and 1"):
        sampled_portrait(parity(3), "f", 10, rhos=(rho,))


def test_sampled_portraits_hold_the_exact_values() -> None:
    f = parse("maj(x1..x5) ^ (x6 & x7)")
    exact = exact_portrait(f, "f")
    found = sampled_portrait(f, "f", 5000, seed=3, confidence=0.9999)
    assert not found.exact

    def holds(estimate: object, truth: object) -> bool:
        assert isinstance(estimate, Estimate)
        assert isinstance(truth, int | float)
        assert (estimate.confidence, estimate.samples) == (0.9999, 5000)
        return estimate.low <= truth <= estimate.high

    shares = [count / 2**7 for count in exact.profile if isinstance(count, int)]
    assert all(map(holds, found.profile, shares))
    assert all(map(holds, found.influences, exact.influences))
    for name in ("average_sensitivity", "max_sensitivity", "min_sensitivity", "ones_share"):
        assert holds(getattr(found, name), getattr(exact, name)), name
    assert found.noise_stability is not None
    assert exact.noise_stability is not None
    assert set(found.noise_stability) == set(RHOS)
    assert all(holds(found.noise_stability[rho], exact.noise_stability[rho]) for rho in RHOS)


def test_what_was_seen_bounds_the_extremes_from_one_side() -> None:
    found = sampled_portrait(majority(9), "f", 50)
    assert isinstance(found.max_sensitivity, Estimate)
    assert isinstance(found.min_sensitivity, Estimate)
    assert (found.max_sensitivity.low, found.max_sensitivity.high) == (5, 9)
    assert (found.min_sensitivity.low, found.min_sensitivity.high) == (0, 0)


def test_samples_are_seeded() -> None:
    f = random(40)
    first, again, other = (sampled_portrait(f, "f", 100, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.influences != other.influences


@pytest.mark.parametrize(("n", "strings"), [(1, 2000), (100, 2000), (990, 2000), (3000, 222), (10_000, 19)])
def test_default_strings_take_seconds_at_any_length(n: int, strings: int) -> None:
    assert default_strings(n) == strings
    assert strings * n * (n + 1) <= DEFAULT_CELLS
    assert strings <= DEFAULT_STRINGS


def test_the_default_number_of_strings_is_used() -> None:
    found = sampled_portrait(parity(5), "f")
    assert isinstance(found.average_sensitivity, Estimate)
    assert found.average_sensitivity.samples == DEFAULT_STRINGS


@pytest.mark.parametrize(("strings", "seed", "confidence"), [(0, 0, 0.95), (10, -1, 0.95), (10, 0, 1.5)])
def test_bad_numbers_are_refused(strings: int, seed: int, confidence: float) -> None:
    with pytest.raises(InputError):
        sampled_portrait(parity(3), "f", strings, seed=seed, confidence=confidence)


def test_json_of_an_exact_portrait_keeps_every_digit() -> None:
    found = exact_portrait(majority(301), "majority(301)")
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert document["profile"] == list(found.profile)
    assert document["profile"][0] == 2**301 - 2 * math.comb(301, 150)
    assert document["sparsity"] == 2**300
    assert document["noise_stability"] == {str(rho): value for rho, value in (found.noise_stability or {}).items()}


def test_json_of_a_sampled_profile_counts_strings() -> None:
    found = sampled_portrait(random(80), "f", 100)
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    for entry, estimate in zip(document["profile"], found.profile, strict=True):
        assert isinstance(estimate, Estimate)
        assert all(type(entry[key]) is int for key in ("value", "low", "high"))
        assert entry["value"] == round(Fraction(estimate.value) * 2**80)
        assert entry["low"] <= Fraction(estimate.low) * 2**80 < entry["low"] + 1
        assert entry["high"] - 1 < Fraction(estimate.high) * 2**80 <= entry["high"]


def test_the_same_answer_from_every_way_to_build() -> None:
    table = [int(sum(bits) > 2) for bits in product((0, 1), repeat=5)]
    ways = [majority(5), BooleanFunction.from_table(table), parse("maj(x1..x5)"), parse("thr(3, x1..x5)")]
    documents = [exact_portrait(f, "f").as_json() for f in ways]
    assert all(document == documents[0] for document in documents)
