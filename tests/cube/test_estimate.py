"""Estimators: right on known functions, reproducible, exact in their accounts, strict about their input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.basics.seeds import random_strings
from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.estimate import (
    Queries,
    average_sensitivity,
    estimate_function,
    fourier_coefficient,
    influences,
    noise_sensitivity,
    noise_stability,
    profile,
)

ESTIMATORS: dict[str, Callable[..., Any]] = {
    "average": average_sensitivity,
    "profile": profile,
    "influences": influences,
    "stability": lambda oracle, n, **kw: noise_stability(oracle, n, 0.5, **kw),
    "sensitivity": lambda oracle, n, **kw: noise_sensitivity(oracle, n, 0.1, **kw),
    "coefficient": lambda oracle, n, **kw: fourier_coefficient(oracle, n, [0], **kw),
}
EACH = {
    "average": lambda n: 2,
    "profile": lambda n: n + 1,
    "influences": lambda n: n + 1,
    "stability": lambda n: 2,
    "sensitivity": lambda n: 2,
    "coefficient": lambda n: 1,
}


def majority(bits: Any) -> Any:
    return (2 * bits.sum(axis=1, dtype=np.int64) > bits.shape[1]).astype(np.uint8)


def parity(bits: Any) -> Any:
    return bits.sum(axis=1, dtype=np.int64) & 1


def as_list(result: Any) -> list[Estimate]:
    return result if isinstance(result, list) else [result]


def holds(estimate: Estimate, truth: float) -> bool:
    return estimate.low <= truth <= estimate.high


@pytest.mark.parametrize(
    "f",
    [
        functions.majority(101),
        functions.parity(1000),
        functions.sparse_majority(5, 100),
        functions.dictator(7, 300),
        functions.conjunction(3).extend(64),
    ],
    ids=["majority", "parity", "sparse_majority", "dictator", "conjunction"],
)
def test_estimates_agree_with_the_exact_answers(f: functions.BooleanFunction) -> None:
    n, sure = f.n, 0.999999
    told = estimate_function(f, n, 200, 3, sure, rhos=(0.5, -0.3))
    exact = sensitivity.profile(f)
    assert holds(told.average_sensitivity, float(sensitivity.average_sensitivity(f)))
    assert holds(average_sensitivity(f, n, samples=2000, confidence=sure), float(sensitivity.average_sensitivity(f)))
    assert all(holds(share, count / (1 << n)) for share, count in zip(told.profile, exact, strict=True))
    assert profile(f, n, samples=50, confidence=sure)[0].half_width < 0.5
    assert holds(told.zero_share, exact[0] / (1 << n))
    pairs = zip(told.influences, sensitivity.influences(f), strict=True)
    assert all(holds(estimate, float(truth)) for estimate, truth in pairs)
    assert holds(told.mean, sensitivity.count_ones(f) / (1 << n))
    for rho, estimate in told.noise_stability.items():
        assert holds(estimate, spectrum.noise_stability(f, rho))
        assert holds(noise_stability(f, n, rho, samples=2000, confidence=sure), spectrum.noise_stability(f, rho))
    assert sensitivity.min_sensitivity(f) <= told.min_observed_sensitivity
    assert told.min_observed_sensitivity <= told.max_observed_sensitivity <= sensitivity.max_sensitivity(f)
    for positions in ((), (f.support[0],), tuple(f.support)):
        estimate = fourier_coefficient(f, n, positions, samples=2000, confidence=sure)
        assert holds(estimate, float(spectrum.coefficient(f, positions)))


@given(st.integers(1, 7), st.data())
@settings(max_examples=40)
def test_the_combined_estimate_is_what_its_strings_say(n: int, data: st.DataObject) -> None:
    """With the sampled strings recorded, every point value is the plain average over them."""
    table = np.array(data.draw(st.lists(st.integers(0, 1), min_size=1 << n, max_size=1 << n)), np.uint8)
    place = 1 << np.arange(n)
    asked: list[Any] = []

    def oracle(bits: Any) -> Any:
        asked.append(bits.copy())
        return table[bits @ place]

    told = estimate_function(oracle, n, 30, data.draw(st.integers(0, 10**6)))
    rows = np.concatenate(asked).reshape(30, n + 1, n)
    assert np.array_equal(rows[:, 1:] ^ rows[:, :1], np.broadcast_to(np.eye(n, dtype=np.uint8), (30, n, n)))
    index = rows[:, 0] @ place
    changes = np.stack([table[index ^ (1 << i)] != table[index] for i in range(n)], axis=1)
    counts = changes.sum(axis=1)
    assert [share.value * 30 for share in told.profile] == pytest.approx(np.bincount(counts, minlength=n + 1))
    assert [estimate.value for estimate in told.influences] == pytest.approx(changes.mean(axis=0))
    assert told.average_sensitivity.value == pytest.approx(counts.mean())
    assert (told.min_observed_sensitivity, told.max_observed_sensitivity) == (counts.min(), counts.max())
    assert told.mean.value == pytest.approx(table[index].mean())
    assert told.zero_share.value == told.profile[0].value
    assert told.zero_share.half_width <= told.profile[0].half_width


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_seed_decides_and_the_batches_do_not(name: str) -> None:
    estimator = ESTIMATORS[name]
    results = [estimator(majority, 9, samples=333, seed=5, batch_rows=rows) for rows in (1, 7, 100, 1 << 16)]
    assert all(result == results[0] for result in results)
    assert estimator(majority, 9, samples=333, seed=6) != results[0]
    generators = [estimator(majority, 9, samples=333, seed=np.random.default_rng(5)) for _ in range(2)]
    assert generators[0] == generators[1]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_stopping_at_a_precision_does_not_depend_on_the_batches(name: str) -> None:
    results = [ESTIMATORS[name](majority, 9, precision=0.2, seed=2, batch_rows=rows) for rows in (13, 4096)]
    assert results[0] == results[1]


def test_the_combined_estimate_does_not_depend_on_the_batches() -> None:
    results = [estimate_function(majority, 21, 77, 1, rhos=(0.9, 0.1), batch_rows=rows) for rows in (1, 50, 4096)]
    assert results[0] == results[1] == results[2]
    assert results[0].queries == 77 * 24


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 200])
def test_strings_are_the_same_however_they_are_drawn(n: int) -> None:
    at_once = random_strings(np.random.default_rng(0), 50, n)
    rng = np.random.default_rng(0)
    assert np.array_equal(at_once, np.concatenate([random_strings(rng, size, n) for size in (1, 3, 46)]))
    assert abs(random_strings(rng, 4000, n).mean() - 0.5) < 0.05
    assert at_once.dtype == np.uint8
    assert len(np.unique(at_once[:, 0])) == 2


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("n", [1, 6])
def test_queries_and_batches_are_counted_exactly(name: str, n: int) -> None:
    sizes: list[int] = []

    def counting(bits: Any) -> Any:
        assert bits.shape[1:] == (n,)
        assert bits.dtype == np.uint8
        sizes.append(len(bits))
        return bits[:, 0]

    for estimate in as_list(ESTIMATORS[name](counting, n, samples=41, batch_rows=10)):
        assert estimate.queries == sum(sizes) == 41 * EACH[name](n)
        assert (estimate.samples, estimate.validity) == (41, "fixed")
    assert max(sizes) <= 10


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_precision_is_reached_or_the_budget_is_kept(name: str) -> None:
    for precision in (0.3, 0.1):
        told = as_list(ESTIMATORS[name](majority, 5, precision=precision, seed=1))
        assert max(estimate.half_width for estimate in told) <= precision
        assert {estimate.validity for estimate in told} == {"anytime"}
    told = as_list(ESTIMATORS[name](majority, 5, precision=1e-6, max_queries=1000))
    assert told[0].queries == 1000 // EACH[name](5) * EACH[name](5)
    assert max(estimate.half_width for estimate in told) > 1e-6


def test_stopping_uses_no_more_than_it_needs() -> None:
    loose = average_sensitivity(majority, 51, precision=1.0)
    tight = average_sensitivity(majority, 51, precision=0.25)
    assert loose.samples < tight.samples < 30 * loose.samples


def test_noise_sensitivity_stops_where_stability_does() -> None:
    told = noise_sensitivity(majority, 9, 0.1, precision=0.05)
    twice = noise_stability(majority, 9, 0.8, precision=0.1)
    assert told == twice.scaled(-0.5, 0.5)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_progress_ends_at_the_total(name: str) -> None:
    seen: list[tuple[int, int]] = []
    ESTIMATORS[name](parity, 4, samples=100, batch_rows=16, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (100, 100)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_noise_goes_to_its_limits() -> None:
    assert noise_stability(parity, 9, 1.0, samples=200).value == 1
    assert noise_stability(parity, 9, -1.0, samples=200).value == -1
    assert noise_sensitivity(parity, 9, 0.0, samples=200).value == 0
    assert noise_sensitivity(parity, 9, 1.0, samples=200).value == 1


def test_real_values_have_real_sensitivity() -> None:
    """The mean of the signs has as(f) = 1/n and coefficients 1/n; signs behave like the Boolean function."""

    def mean(bits: Any) -> Any:
        return (1 - 2.0 * bits).mean(axis=1)

    def sign(bits: Any) -> Any:
        return 1 - 2.0 * majority(bits)

    told = average_sensitivity(mean, 10, value_range=(-1, 1), samples=500)
    assert told.value == pytest.approx(1 / 10)
    assert holds(told, 1 / 10)
    assert told.queries == 1000
    stability = noise_stability(mean, 10, 0.5, value_range=(-1, 1), samples=4000, confidence=0.9999)
    assert holds(stability, 0.05)
    assert holds(fourier_coefficient(mean, 10, [3], value_range=(-1, 1), samples=4000, confidence=0.9999), 0.1)
    offset = fourier_coefficient(lambda bits: 5 + mean(bits), 10, [], value_range=(4, 6), precision=0.05)
    assert holds(offset, 5)
    assert offset.half_width <= 0.05
    boolean = average_sensitivity(majority, 11, samples=700)
    real = average_sensitivity(sign, 11, value_range=(-1, 1), samples=700)
    assert real.value == pytest.approx(boolean.value)
    assert boolean.half_width <= real.half_width


def test_batches_stay_small_for_long_strings() -> None:
    largest = 0

    def first(bits: Any) -> Any:
        nonlocal largest
        largest = max(largest, bits.nbytes)
        return bits[:, 0]

    told = estimate_function(first, 5000, 2)
    assert told.average_sensitivity.value == 1
    assert told.queries == 2 * 5001
    assert largest <= 1 << 24


BAD: list[tuple[str, Callable[[], Any]]] = [
    ("samples must be", lambda: average_sensitivity(majority, 5, samples=0)),
    ("samples must be", lambda: profile(majority, 5, samples=-3)),
    ("samples must be", lambda: influences(majority, 5, samples=2.5)),  # type: ignore[arg-type]
    ("strings must be", lambda: estimate_function(majority, 5, 0)),
    ("strings must be", lambda: estimate_function(majority, 5, True)),
    *[
        ("confidence must", lambda c=c: average_sensitivity(majority, 5, confidence=c))  # type: ignore[misc]
        for c in (1.5, 0, 1, -1, math.nan)
    ],
    *[
        ("confidence must", lambda c=c: estimate_function(majority, 5, 10, 0, c))  # type: ignore[misc]
        for c in (1.5, 0, 1, math.nan)
    ],
    ("n must be", lambda: average_sensitivity(majority, 0)),
    ("n must be", lambda: estimate_function(majority, -2)),
    ("n must be", lambda: profile(majority, 2.0)),  # type: ignore[arg-type]
    *[("rho is", lambda r=r: noise_stability(majority, 5, r)) for r in (1.1, -1.1, math.nan)],  # type: ignore[misc]
    ("rho is", lambda: estimate_function(majority, 5, rhos=[2.0])),
    *[("delta is", lambda d=d: noise_sensitivity(majority, 5, d)) for d in (1.1, -0.1, math.nan)],  # type: ignore[misc]
    ("precision=0 must", lambda: average_sensitivity(majority, 5, precision=0)),
    ("precision=nan must", lambda: average_sensitivity(majority, 5, precision=math.nan)),
    ("not both", lambda: average_sensitivity(majority, 5, precision=0.1, samples=5)),
    ('needs validity="anytime"', lambda: average_sensitivity(majority, 5, precision=0.1, validity="fixed")),
    ("already takes 6 queries", lambda: profile(majority, 5, precision=0.1, max_queries=5)),
    ("validity='sometimes' is not one of", lambda: profile(majority, 5, validity="sometimes")),  # type: ignore[arg-type]
    ("max_queries must be", lambda: profile(majority, 5, max_queries=0)),
    ("batch_rows must be", lambda: profile(majority, 5, batch_rows=0)),
    ("seed must be", lambda: average_sensitivity(majority, 5, seed=-1)),
    ("seed must be", lambda: average_sensitivity(majority, 5, seed="now")),  # type: ignore[arg-type]
    ("position 5 does not exist", lambda: fourier_coefficient(majority, 5, [5])),
    ("positions must be distinct", lambda: fourier_coefficient(majority, 5, [1, 1])),
    ("position must be", lambda: fourier_coefficient(majority, 5, [-1])),
    ("value_range must be", lambda: average_sensitivity(majority, 5, value_range=(1, 1))),
    ("has 7 bits but n is 5", lambda: average_sensitivity(functions.majority(7), 5)),
    ("must be callable", lambda: average_sensitivity(3, 5)),  # type: ignore[arg-type]
    ("returned 2; a Boolean", lambda: average_sensitivity(lambda bits: bits[:, 0] + 2 - bits[:, 0], 5)),
    ("returned 0.5; a Boolean", lambda: average_sensitivity(lambda bits: bits[:, 0] / 2 + 0.5, 5)),
    ("returned -1; a Boolean", lambda: profile(lambda bits: 0 * bits[:, 0].astype(int) - 1, 5)),
    ("returned NaN", lambda: profile(lambda bits: np.full(len(bits), np.nan), 5)),
    ("returned NaN", lambda: average_sensitivity(lambda b: np.full(len(b), np.nan), 5, value_range=(0, 1))),
    ("outside the value_range", lambda: average_sensitivity(lambda b: b[:, 0] * 2.0, 5, value_range=(0, 1))),
    ("returned an array of shape", lambda: influences(lambda bits: bits, 5)),
    ("returned an array of shape", lambda: influences(lambda bits: bits[:1, 0], 5)),
    ("returned an array of shape", lambda: influences(lambda bits: None, 5)),
    ("must return numbers", lambda: influences(lambda bits: np.full(len(bits), "1"), 5)),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[f"{i}-{message}" for i, (message, _) in enumerate(BAD)])
def test_bad_input_is_one_clear_sentence(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown keyword 'sample'"):
        average_sensitivity(majority, 5, sample=3)  # type: ignore[call-arg]


def test_changes_are_found_by_definition() -> None:
    queries = Queries(functions.random(6, seed=4), 6, batch_rows=5)
    strings = random_strings(np.random.default_rng(0), 9, 6)
    values, changes = queries.changes(strings)
    f = functions.random(6, seed=4)
    assert np.array_equal(values, f(strings))
    for row, string in enumerate(strings):
        for i in range(6):
            flipped = string.copy()
            flipped[i] ^= 1
            assert changes[row, i] == (f(flipped) != f(string))
    assert queries.asked == 9 * 7
