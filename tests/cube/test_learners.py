"""Learners: every large coefficient is found, nothing small is returned, and low degree is learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.basics.seeds import random_strings
from flipscope.cube import functions, spectrum
from flipscope.cube.learners import goldreich_levin, low_degree_learner


@given(st.integers(1, 9), st.integers(0, 1000), st.floats(0.2, 1.0))
@settings(max_examples=40)
def test_all_heavy_coefficients_and_no_light_ones_are_found(n: int, seed: int, threshold: float) -> None:
    f = functions.random(n, seed=seed)
    exact = {s: float(c) for s, c in spectrum.coefficients(f).items()}
    found = goldreich_levin(f, n, threshold, 0.9999, seed).coefficients
    assert {s for s, c in exact.items() if abs(c) >= threshold} <= set(found)
    for positions, estimate in found.items():
        truth = exact.get(positions, 0.0)
        assert abs(truth) >= threshold / 2
        assert estimate.low <= truth <= estimate.high


@pytest.mark.parametrize(
    ("f", "threshold"),
    [
        (functions.parity(100), 0.5),
        (functions.sparse_parity(40, 300, seed=1), 0.5),
        (functions.sparse_majority(5, 100, seed=2), 0.3),
        (functions.conjunction(2).extend(150, [3, 149]), 0.4),
        (functions.majority(101), 0.4),
        (functions.tribes(12, 3).extend(128), 0.25),
    ],
    ids=["parity", "sparse_parity", "sparse_majority", "conjunction", "majority", "tribes"],
)
def test_pruning_finds_them_among_a_hundred_bits(f: functions.BooleanFunction, threshold: float) -> None:
    told = goldreich_levin(f, f.n, threshold, 0.999, 1)
    small = len(f.support) <= 12
    exact = (
        {s: float(c) for s, c in spectrum.coefficients(f).items()}
        if small
        else {tuple(f.support): float(spectrum.coefficient(f, f.support))}
    )
    assert {s for s, c in exact.items() if abs(c) >= threshold} <= set(told.coefficients)
    for positions, estimate in told.coefficients.items():
        truth = float(spectrum.coefficient(f, positions))
        assert abs(truth) >= threshold / 2
        assert estimate.low <= truth <= estimate.high
    # Eight positions a level, which only lasts while few nodes are kept.
    assert told.queries <= 60 * math.ceil(f.n / 8) / threshold**3 * math.log(1000 * f.n)
    sizes = [abs(estimate.value) for estimate in told.coefficients.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_the_search_succeeds_as_often_as_promised() -> None:
    """Low confidence and coefficients of exactly the threshold put the constants of the search to a test."""
    f = functions.conjunction(2).extend(16)  # four coefficients of 1/2 in absolute value
    complete = sum(len(goldreich_levin(f, 16, 0.5, 0.5, seed).coefficients) == 4 for seed in range(200))
    assert complete / 200 >= 0.5


def test_the_search_is_counted_and_does_not_depend_on_the_batches() -> None:
    asked = 0
    f = functions.sparse_majority(3, 30, seed=0)

    def counting(bits: Any) -> Any:
        nonlocal asked
        asked += len(bits)
        return f(bits)

    first = goldreich_levin(counting, 30, 0.4, seed=3)
    assert first.queries == asked
    assert goldreich_levin(f, 30, 0.4, seed=3, batch_rows=1000) == first
    assert set(first.coefficients) == {s for s, c in spectrum.coefficients(f).items() if abs(c) >= 0.4}


def test_low_degree_coefficients_are_the_averages_over_the_samples() -> None:
    f = functions.random(7, seed=5)
    asked: list[Any] = []

    def recording(bits: Any) -> Any:
        asked.append(bits.copy())
        return f(bits)

    learned = low_degree_learner(recording, 7, 3, 500, seed=2)
    strings = np.concatenate(asked)
    signs, values = 1 - 2.0 * strings, 1 - 2.0 * f(strings)
    sets = [s for size in range(4) for s in combinations(range(7), size)]
    assert len(sets) == len(learned.terms)
    for row, coefficient, positions in zip(learned.terms, learned.coefficients, sets, strict=True):
        assert tuple(row[row < 7]) == positions
        assert coefficient == pytest.approx((values * signs[:, list(positions)].prod(axis=1)).mean())
    assert (learned.samples, learned.queries) == (500, 500)
    points = random_strings(np.random.default_rng(0), 40, 7)
    by_hand = sum(
        c * (1 - 2.0 * points)[:, list(s)].prod(axis=1) for s, c in zip(sets, learned.coefficients, strict=True)
    )
    assert learned.real(points) == pytest.approx(by_hand, abs=1e-5)
    assert np.array_equal(learned(points), (by_hand < 0).astype(np.uint8))


def test_low_degree_functions_are_learned() -> None:
    points = random_strings(np.random.default_rng(1), 2000, 60)
    dictator = functions.dictator(9, 60)
    assert np.array_equal(low_degree_learner(dictator, 60, 1, 2000)(points), dictator(points))
    majority = functions.majority(60)
    assert np.mean(low_degree_learner(majority, 60, 1, 20_000)(points) != majority(points)) < 0.08
    # The parity of two positions is invisible at degree 1 and plain at degree 2.
    pair = functions.sparse_parity(2, 60, seed=4)
    assert np.mean(low_degree_learner(pair, 60, 1, 4000)(points) != pair(points)) > 0.4
    learned = low_degree_learner(pair, 60, 2, 4000, prune=True)
    assert np.array_equal(learned(points), pair(points))
    assert [tuple(row[row < 60]) for row in learned.terms] == [tuple(pair.support)]


def test_all_coefficients_lie_within_the_half_width() -> None:
    f = functions.random(6, seed=3)
    exact = spectrum.coefficients(f)
    held = 0
    for seed in range(200):
        learned = low_degree_learner(f, 6, 6, 300, seed, confidence=0.8)
        truths = [float(exact.get(tuple(row[row < 6].tolist()), 0)) for row in learned.terms]
        held += bool(np.all(np.abs(learned.coefficients - truths) <= learned.half_width))
    assert held / 200 >= 0.79


def test_real_functions_of_low_degree_are_learned() -> None:
    def real(bits: Any) -> Any:
        signs = 1 - 2.0 * bits
        return 0.5 * signs[:, 0] * signs[:, 3] - 0.25 * signs[:, 2]

    learned = low_degree_learner(real, 5, 2, 4000, value_range=(-0.75, 0.75))
    points = random_strings(np.random.default_rng(0), 100, 5)
    assert np.abs(learned.real(points) - real(points)).max() < 0.2


BAD: list[tuple[str, Callable[[], Any]]] = [
    ("threshold must", lambda: goldreich_levin(functions.parity(5), 5, 0)),
    ("threshold must", lambda: goldreich_levin(functions.parity(5), 5, math.nan)),
    ("confidence must", lambda: goldreich_levin(functions.parity(5), 5, 0.5, 1.5)),
    ("raise the threshold or max_queries", lambda: goldreich_levin(functions.parity(500), 500, 0.001)),
    ("n must be", lambda: goldreich_levin(lambda bits: bits[:, 0], 0, 0.5)),
    ("returned 2;", lambda: goldreich_levin(lambda bits: bits[:, 0] * 0 + 2, 5, 0.5)),
    ("degree must be", lambda: low_degree_learner(functions.parity(5), 5, -1)),
    ("samples must be", lambda: low_degree_learner(functions.parity(5), 5, 1, 0)),
    ("choose a lower degree", lambda: low_degree_learner(functions.parity(500), 500, 3)),
    (
        "strings must have shape",
        lambda: low_degree_learner(functions.parity(5), 5, 1)(np.zeros((2, 4), np.uint8)),
    ),
    ("strings must hold only", lambda: low_degree_learner(functions.parity(5), 5, 1)(np.full((2, 5), 2, np.uint8))),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[f"{i}-{message}" for i, (message, _) in enumerate(BAD)])
def test_bad_input_is_one_clear_sentence(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
