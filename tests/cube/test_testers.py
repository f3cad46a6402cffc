"""Property testers: they never reject what they promise to accept, and find what is far."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.cube import functions, spectrum
from flipscope.cube.estimate import Queries
from flipscope.cube.testers import (
    TestResult,
    degree_mismatches,
    dictator_test,
    first_accepted_degree,
    first_accepted_sparsity,
    fourier_sparsity_test,
    junta_test,
    linearity_test,
    low_degree_test,
    survival_probability,
)

Oracle = Callable[[Any], Any]


def polynomial(degree: int, sparsity: int, n: int, seed: int) -> tuple[Oracle, tuple[float, float]]:
    """A real function with ``sparsity`` equal coefficients, all of exactly this degree, and its range."""
    rng = np.random.default_rng(seed)
    sets: set[tuple[int, ...]] = set()
    while len(sets) < sparsity:
        sets.add(tuple(sorted(rng.permutation(n)[:degree].tolist())))
    terms, scale = np.array(sorted(sets)), 1 / math.sqrt(sparsity)
    bound = math.sqrt(sparsity) * (1 + 1e-9)
    return lambda bits: (1 - 2.0 * bits)[:, terms].prod(axis=2).sum(axis=1) * scale, (-bound, bound)


def majority(bits: Any) -> Any:
    return (2 * bits.sum(axis=1, dtype=np.int64) > bits.shape[1]).astype(np.uint8)


def parity(bits: Any) -> Any:
    return bits.sum(axis=1, dtype=np.int64) & 1


# ---------------------------------------------------------------- low degree


def test_survival_probabilities_have_the_published_values() -> None:
    told = [survival_probability(degree + 1, degree) for degree in range(5)]
    assert told == pytest.approx([0.5, 0.2222, 0.0938, 0.0384, 0.0154], abs=5e-5)
    assert told == pytest.approx([math.factorial(d + 1) / (d + 2) ** (d + 1) for d in range(5)])


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(("size", "degree"), [(0, 0), (1, 0), (3, 1), (4, 2), (5, 1), (3, 3)])
def test_survival_is_the_share_of_assignments_with_odd_groups(size: int, degree: int, frozen: bool) -> None:
    groups = degree + 1 + int(frozen)
    odd = sum(
        all(member.count(group) % 2 == 1 for group in range(degree + 1))
        for member in product(range(groups), repeat=size)
    )
    assert survival_probability(size, degree, frozen=frozen) == float(Fraction(odd, groups**size))


@given(st.integers(0, 7), st.integers(0, 40))
def test_survival_does_not_fall_with_the_size(degree: int, more: int) -> None:
    """The number of trials relies on it: the smallest set above the degree is the hardest to see."""
    size = degree + 1 + more
    here, next_one = survival_probability(size, degree), survival_probability(size + 1, degree)
    assert here <= next_one * (1 + 1e-12)
    assert survival_probability(degree, degree) == 0
    assert next_one <= 2.0 ** -(degree + 1) * (1 + 1e-12) or degree == 0


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_the_mean_square_mismatch_is_the_sum_of_surviving_weights(degree: int) -> None:
    f = functions.random(6, seed=1)
    weights = [float(w) for w in spectrum.weight_by_degree(f)]
    truth = sum(weight * survival_probability(size, degree) for size, weight in enumerate(weights))
    means = degree_mismatches(Queries(f, 6), degree, 20_000, np.random.default_rng(0))
    assert np.mean(means**2) == pytest.approx(truth, abs=5 * np.std(means**2) / math.sqrt(20_000))


@given(st.integers(1, 7), st.integers(0, 200))
@settings(max_examples=60)
def test_a_function_of_the_degree_is_never_rejected(n: int, seed: int) -> None:
    f = functions.random(n, seed=seed)
    degree = spectrum.degree(f)
    assert low_degree_test(f, n, degree, trials=50, seed=seed).accepted
    swept = first_accepted_degree(f, n, trials=50, seed=seed).value
    assert swept is not None
    assert swept <= degree


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
def test_sweeping_finds_exactly_the_degree(degree: int) -> None:
    for sparsity in (1, 7, 20):
        for seed in range(3):
            oracle, ends = polynomial(degree, sparsity, 20, seed)
            trials = {1: 60, 2: 120, 3: 250}.get(degree - 1, 500)
            swept = first_accepted_degree(oracle, 20, trials=trials, value_range=ends, seed=seed)
            assert swept.value == degree
            assert [result.accepted for result in swept.results] == [False] * degree + [True]
            assert swept.queries == sum(result.queries for result in swept.results)


@pytest.mark.parametrize(("size", "degree"), [(2, 0), (4, 2), (3, 1), (6, 4), (4, 0)])
def test_the_frozen_group_is_essential(size: int, degree: int) -> None:
    """Without it a parity of 4 positions passes as degree 2; with it it is seen."""
    oracle = functions.sparse_parity(size, 20, seed=3)
    assert survival_probability(size, degree, frozen=False) == 0
    means = degree_mismatches(Queries(oracle, 20), degree, 400, np.random.default_rng(0), frozen=False)
    assert np.abs(means).max() < 1e-12
    assert np.abs(degree_mismatches(Queries(oracle, 20), degree, 400, np.random.default_rng(0))).max() > 0.5
    assert not low_degree_test(oracle, 20, degree).accepted


def test_far_functions_are_rejected_as_often_as_promised() -> None:
    """The hardest case for the trial count: weight epsilon exactly on sets of degree + 1 positions."""

    def rarely_quadratic(bits: Any) -> Any:
        """XOR of x1 & x2 is not linear: weight 1/4 at degree 2, 3/4 below."""
        return bits[:, 0] & bits[:, 1]

    rejected = sum(
        not low_degree_test(rarely_quadratic, 12, 1, epsilon=0.25, confidence=0.8, seed=seed).accepted
        for seed in range(400)
    )
    assert rejected / 400 >= 0.8 - 0.01


def test_degree_tests_are_counted_and_reproducible() -> None:
    result = low_degree_test(parity, 8, 7, trials=10)
    again = [low_degree_test(parity, 8, 7, trials=10, batch_rows=rows) for rows in (1, 100)]
    assert again == [result, result]
    accepted = low_degree_test(functions.dictator(0, 30), 30, 1, trials=77)
    assert accepted.accepted
    assert accepted.queries == 77 * 4
    trials = math.ceil(math.log(0.05) / math.log(1 - 0.1 * 2 / 9))
    assert low_degree_test(functions.dictator(0, 30), 30, 1).queries == 4 * trials
    assert low_degree_test(parity, 5, 5).queries == 0


def test_a_sweep_that_would_cost_too_much_ends_without_a_value() -> None:
    swept = first_accepted_degree(parity, 60, max_queries=200_000)
    assert swept.value is None
    assert swept.queries <= 200_000
    assert "raise max_queries" in swept.note
    assert first_accepted_degree(parity, 20, max_degree=2).value is None


# ---------------------------------------------------------------- sparsity


@given(st.integers(1, 7), st.integers(0, 200), st.integers(1, 7))
@settings(max_examples=60)
def test_a_sparse_function_is_never_rejected(n: int, seed: int, free: int) -> None:
    f = functions.random(n, seed=seed)
    sparsity = spectrum.sparsity(f)
    assert fourier_sparsity_test(f, n, sparsity, free=free, seed=seed).accepted
    swept = first_accepted_sparsity(f, n, free=free, epsilon=1e-12, seed=seed).value
    assert swept is not None
    assert swept <= sparsity
    if free >= n:
        assert swept == sparsity


def test_first_accepted_sparsity_wilts_below_the_truth() -> None:
    """More free positions, fewer collisions: closer to the truth, from below."""
    means = {}
    for free in (8, 10):
        for sparsity in (1, 7, 20):
            values = []
            for degree in range(1, 6):
                for seed in range(3):
                    oracle, ends = polynomial(degree, sparsity, 20, seed)
                    options: dict[str, Any] = {"restrictions": 12, "value_range": ends, "seed": seed}
                    value = first_accepted_sparsity(oracle, 20, free=free, **options).value
                    assert value is not None
                    assert value <= sparsity
                    values.append(value)
            means[free, sparsity] = np.mean(values)
    assert means[8, 1] == means[10, 1] == 1
    assert means[8, 7] == pytest.approx(6.2, abs=0.6)
    assert means[8, 20] == pytest.approx(13.9, abs=1.2)
    assert means[10, 20] == pytest.approx(15.6, abs=1.5)
    assert means[8, 20] < means[10, 20] < 20


def test_sparsity_tests_are_counted_and_agree_with_the_sweep() -> None:
    oracle, ends = polynomial(2, 14, 20, 0)
    swept = first_accepted_sparsity(oracle, 20, free=6, value_range=ends, seed=4)
    assert swept.value is not None
    assert swept.queries == 11 * 64  # the least m with 0.75^m <= 0.05
    options: dict[str, Any] = {"free": 6, "value_range": ends, "seed": 4}
    for sparsity in (swept.value - 1, swept.value):
        single = fourier_sparsity_test(oracle, 20, sparsity, **options)
        assert single.accepted == (sparsity == swept.value)
        assert single.queries == 11 * 64
        assert single.statistic == swept.results[sparsity].statistic
        assert fourier_sparsity_test(oracle, 20, sparsity, batch_rows=7, **options) == single
    assert first_accepted_sparsity(oracle, 20, max_sparsity=2, **options).value is None


# ---------------------------------------------------------------- linear, dictator, junta


@given(st.integers(1, 40), st.data())
@settings(max_examples=40)
def test_parities_are_linear(n: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    mask = np.array(chosen, np.int64)
    result = linearity_test(lambda bits: bits @ mask & 1, n, seed=data.draw(st.integers(0, 999)))
    assert result.accepted
    assert result.statistic == 0
    assert result.queries == 3 * math.ceil(math.log(0.05) / math.log(0.9))


def test_functions_far_from_parities_are_rejected_as_often_as_promised() -> None:
    # AND of two bits differs from every parity on a quarter of the strings or more.
    results = [
        linearity_test(lambda bits: bits[:, 0] & bits[:, 1], 9, epsilon=0.25, confidence=0.8, seed=seed)
        for seed in range(400)
    ]
    assert np.mean([not result.accepted for result in results]) >= 0.8 - 0.01
    assert not linearity_test(majority, 100).accepted
    assert not linearity_test(lambda bits: 1 - parity(bits), 100).accepted


def test_dictators_and_only_dictators_pass() -> None:
    rights = [dictator_test(lambda bits: bits[:, 7], 40, confidence=0.9, seed=seed).accepted for seed in range(200)]
    assert np.mean(rights) >= 0.89
    wrong: dict[str, Oracle] = {
        "constant 0": lambda bits: 0 * bits[:, 0],
        "constant 1": lambda bits: 0 * bits[:, 0] + 1,
        "negated": lambda bits: 1 - bits[:, 7],
        "parity of 2": lambda bits: bits[:, 3] ^ bits[:, 5],
        "parity of 3": lambda bits: bits[:, 3] ^ bits[:, 5] ^ bits[:, 6],
        "majority": majority,
        "and": lambda bits: bits[:, 0] & bits[:, 1],
        "half a dictator": lambda bits: np.where(bits[:, 0] == 0, bits[:, 7], 1 - bits[:, 9]),
    }
    for name, oracle in wrong.items():
        accepted = [dictator_test(oracle, 40, confidence=0.9, seed=seed).accepted for seed in range(60)]
        assert np.mean(accepted) <= 0.11, name


def test_the_dictator_statistic_is_the_noisy_sum_of_cubes() -> None:
    f = functions.random(5, seed=8)
    truth = sum(float(c) ** 3 * 0.8 ** len(s) for s, c in spectrum.coefficients(f).items() if len(s) % 2 == 1)
    told = [dictator_test(f, 5, seed=seed) for seed in range(30)]
    samples = told[0].queries // 3 * 30
    assert np.mean([result.statistic for result in told]) == pytest.approx(truth, abs=4 / math.sqrt(samples))


@given(st.integers(1, 5), st.integers(0, 500))
@settings(max_examples=40)
def test_juntas_are_never_rejected_and_what_is_found_matters(size: int, seed: int) -> None:
    f = functions.random_junta(size, 50, seed=seed)
    result = junta_test(f, 50, size, seed=seed)
    assert result.accepted
    assert set(result.witness) <= set(f.support)
    assert result.statistic == len(result.witness)


def test_functions_far_from_juntas_are_rejected_with_proof() -> None:
    f = functions.sparse_majority(5, 200, seed=2)
    rejected = junta_test(f, 200, 4, epsilon=0.1)
    assert not rejected.accepted
    assert rejected.witness == tuple(sorted(f.support))
    assert junta_test(f, 200, 5).accepted
    assert not junta_test(parity, 1000, 20).accepted
    assert len(junta_test(majority, 101, 7).witness) == 8
    # Majority of 3 differs from every function of 2 positions on 1/4 of the strings.
    told = [junta_test(majority, 3, 2, epsilon=0.25, confidence=0.8, seed=seed).accepted for seed in range(400)]
    assert np.mean(told) <= 0.21


def test_junta_queries_grow_with_the_logarithm_of_n() -> None:
    costs = [junta_test(functions.sparse_parity(3, n, seed=0), n, 3).queries for n in (16, 4096)]
    assert costs[1] <= costs[0] + 3 * 8 + 64
    assert junta_test(parity, 6, 6).queries == 0


@pytest.mark.parametrize("confidence", [5e-324, 1e-20])
def test_the_smallest_confidence_takes_one_trial(confidence: float) -> None:
    tests = (
        linearity_test(parity, 5, confidence=confidence),
        dictator_test(parity, 5, confidence=confidence),
        low_degree_test(parity, 5, 3, confidence=confidence),
        fourier_sparsity_test(parity, 5, 1, confidence=confidence),
        junta_test(parity, 5, 1, confidence=confidence),
    )
    assert all(test.queries > 0 for test in tests)


BAD: list[tuple[str, Callable[[], Any]]] = [
    ("degree must be", lambda: low_degree_test(parity, 5, -1)),
    ("n must be", lambda: low_degree_test(parity, 0, 1)),
    ("n must be", lambda: first_accepted_degree(parity, 0)),
    ("epsilon must", lambda: low_degree_test(parity, 5, 1, epsilon=0)),
    ("epsilon must", lambda: linearity_test(parity, 5, epsilon=math.nan)),
    ("confidence must", lambda: junta_test(parity, 5, 1, confidence=1.5)),
    ("confidence must", lambda: fourier_sparsity_test(parity, 5, 1, confidence=1)),
    ("trials must be", lambda: low_degree_test(parity, 5, 1, trials=0)),
    ("tolerance=-1 must be", lambda: low_degree_test(parity, 5, 1, tolerance=-1)),
    ("tolerance 1 hides", lambda: low_degree_test(parity, 5, 1, tolerance=1)),
    ("raise max_queries", lambda: low_degree_test(parity, 100, 12)),
    ("takes 2^91 queries per trial", lambda: low_degree_test(parity, 100, 90)),
    ("sparsity must be", lambda: fourier_sparsity_test(parity, 5, -1)),
    ("free must be", lambda: fourier_sparsity_test(parity, 5, 1, free=0)),
    ("at most 20 positions", lambda: fourier_sparsity_test(parity, 50, 1, free=21)),
    ("raise max_queries", lambda: fourier_sparsity_test(parity, 50, 1, max_queries=100)),
    ("share must", lambda: fourier_sparsity_test(parity, 5, 1, share=0)),
    ("restrictions must be", lambda: fourier_sparsity_test(parity, 5, 1, restrictions=0)),
    ("max_sparsity must be", lambda: first_accepted_sparsity(parity, 5, max_sparsity=-1)),
    ("noise must", lambda: dictator_test(parity, 5, noise=0.5)),
    ("size must be", lambda: junta_test(parity, 5, -1)),
    ("returned 2;", lambda: linearity_test(lambda bits: bits[:, 0] * 0 + 2, 5)),
    ("returned NaN", lambda: low_degree_test(lambda bits: np.full(len(bits), np.nan), 5, 1)),
    ("array of shape", lambda: junta_test(lambda bits: bits, 5, 1)),
    ("outside the value_range", lambda: low_degree_test(lambda b: b[:, 0] + 9.0, 5, 1, value_range=(0, 1))),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[f"{i}-{message}" for i, (message, _) in enumerate(BAD)])
def test_bad_input_is_one_clear_sentence(message: str, call: Callable[[], TestResult]) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
