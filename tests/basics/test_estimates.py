"""Intervals: exact against their definitions, in range, around their value, and strict about their input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import (
    Estimate,
    Validity,
    mean_from_samples,
    profile_from_counts,
    proportion_bounds,
    proportions,
)

BOTH: tuple[Validity, Validity] = ("fixed", "anytime")
validities = st.sampled_from(BOTH)
confidences = st.floats(0.01, 0.9999)


def test_json_has_exactly_the_five_fields() -> None:
    estimate = Estimate(0.5, 0.25, 0.75, 0.95, 10, "anytime", 20)
    assert estimate.as_json() == {"value": 0.5, "low": 0.25, "high": 0.75, "confidence": 0.95, "samples": 10}
    assert estimate.half_width == 0.25


def test_scaling_keeps_the_ends_in_order() -> None:
    assert Estimate(0.25, 0.0, 0.5, 0.9, 8).scaled(-2.0, 1.0) == Estimate(0.5, 0.0, 1.0, 0.9, 8)


def test_counts_of_strings_are_integers_of_any_size() -> None:
    counts = Estimate(0.5, 0.25, 1.0, 0.95, 10).as_count_json(2000)
    assert counts["value"] == 1 << 1999
    assert (counts["low"], counts["high"]) == (1 << 1998, 1 << 2000)
    third = Estimate(1 / 3, 1 / 3, 1 / 3, 0.95, 3).as_count_json(4)
    assert (third["low"], third["value"], third["high"]) == (5, 5, 6)


@pytest.mark.parametrize("ends", [(0.5, 0.6, 0.7), (0.5, 0.2, 0.4), (math.nan, 0.0, 1.0), (0.5, math.nan, 1.0)])
def test_an_estimate_outside_its_interval_is_refused(ends: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="low <= value <= high"):
        Estimate(*ends, 0.95, 10)


@given(st.integers(1, 5000), st.data(), confidences)
def test_fixed_proportions_are_clopper_pearson(trials: int, data: st.DataObject, confidence: float) -> None:
    hits = data.draw(st.integers(0, trials))
    estimate = proportions([hits], trials, confidence)[0]
    reference = stats.binomtest(hits, trials).proportion_ci(confidence, "exact")
    assert estimate.low == pytest.approx(reference.low, abs=1e-12)
    assert estimate.high == pytest.approx(reference.high, abs=1e-12)


@given(st.integers(1, 5000), st.data(), st.floats(0.5, 0.999))
def test_anytime_proportions_are_where_the_mixture_is_beaten(
    trials: int, data: st.DataObject, confidence: float
) -> None:
    hits = data.draw(st.integers(0, trials))
    estimate = proportions([hits], trials, confidence, "anytime")[0]
    mixture = stats.betabinom(trials, 0.5, 0.5).logpmf(hits)
    for end in {estimate.low, estimate.high} - {0.0, 1.0}:
        evidence = mixture - stats.binom(trials, end).logpmf(hits)
        assert evidence == pytest.approx(math.log(1 / (1 - confidence)), abs=1e-6)
    assert (estimate.low == 0) == (hits == 0)
    assert (estimate.high == 1) == (hits == trials)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), confidences, validities)
def test_proportions_contain_their_value_within_zero_and_one(
    hits: list[int], confidence: float, validity: Validity
) -> None:
    for count, estimate in zip(hits, proportions(hits, 40, confidence, validity), strict=True):
        assert 0 <= estimate.low <= estimate.value == count / 40 <= estimate.high <= 1
        assert (estimate.confidence, estimate.samples, estimate.validity) == (confidence, 40, validity)


@given(
    st.lists(st.floats(-3, 7), min_size=1, max_size=60),
    confidences,
    validities,
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_means_contain_their_value_within_the_range(
    samples: list[float], confidence: float, validity: Validity, below: float, above: float
) -> None:
    low, high = -3 - below, 7 + above
    estimate = mean_from_samples(samples, low, high, confidence, validity)
    assert low <= estimate.low <= estimate.value <= estimate.high <= high
    assert estimate.value == pytest.approx(np.mean(samples), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("validity", BOTH)
def test_more_samples_and_less_variance_make_a_mean_narrower(validity: Validity) -> None:
    rng = np.random.default_rng(0)
    coin, calm = rng.integers(0, 2, 4000).astype(float), 0.5 + 0.02 * rng.uniform(-1, 1, 4000)
    few = mean_from_samples(coin[:100], 0, 1, 0.95, validity)
    many = mean_from_samples(coin, 0, 1, 0.95, validity)
    assert many.half_width < few.half_width / 3
    assert mean_from_samples(calm, 0, 1, 0.95, validity).half_width < many.half_width / 4
    # Not much worse than Hoeffding's sqrt(log(2 / error) / 2m), which is made for such coins.
    hoeffding = math.sqrt(math.log(2 / 0.05) / 8000)
    assert many.half_width < (1.1 if validity == "fixed" else 1.7) * hoeffding


def test_an_anytime_mean_does_not_depend_on_the_order() -> None:
    samples = np.random.default_rng(1).uniform(0, 1, 300)
    forward = mean_from_samples(samples, 0, 1, validity="anytime")
    backward = mean_from_samples(samples[::-1], 0, 1, validity="anytime")
    assert forward.low == pytest.approx(backward.low, rel=1e-8)
    assert forward.high == pytest.approx(backward.high, rel=1e-8)


@given(confidences)
def test_anytime_is_wider_than_fixed_and_joint_wider_than_single(confidence: float) -> None:
    hits = np.arange(0, 51, 10)
    error = 1 - confidence
    fixed = proportion_bounds(hits, 50, error, "fixed")
    anytime = proportion_bounds(hits, 50, error, "anytime")
    assert np.all(anytime[0] <= fixed[0] + 1e-12)
    assert np.all(anytime[1] >= fixed[1] - 1e-12)
    for hit, joint in zip(hits, proportions(hits, 50, confidence), strict=True):
        single = proportions([hit], 50, confidence)[0]
        assert joint.low <= single.low
        assert single.high <= joint.high


@pytest.mark.parametrize("validity", BOTH)
def test_a_profile_is_the_histogram_of_its_counts(validity: Validity) -> None:
    shares = profile_from_counts([0, 3, 3, 1], 3, validity=validity)
    assert [share.value for share in shares] == [0.25, 0.25, 0.0, 0.5]
    assert all(share.samples == 4 for share in shares)
    assert shares == proportions([1, 1, 0, 2], 4, validity=validity)


@pytest.mark.parametrize("confidence", [1.5, 0, 1, -0.1, math.nan, True, "0.9", None])
def test_a_wrong_confidence_is_refused(confidence: float) -> None:
    for call in (
        lambda: proportions([1], 2, confidence),
        lambda: mean_from_samples([0.5], 0, 1, confidence),
        lambda: profile_from_counts([1], 2, confidence),
    ):
        with pytest.raises(InputError, match="confidence must"):
            call()


def test_wrong_samples_are_refused() -> None:
    with pytest.raises(InputError, match="samples is empty"):
        mean_from_samples([], 0, 1)
    for outside in ([0.5, 1.5], [math.nan], [-math.inf]):
        with pytest.raises(InputError, match="every sample must be a number in"):
            mean_from_samples(outside, 0, 1)
    for low, high in ((1, 1), (2, 1), (0, math.inf), (math.nan, 1)):
        with pytest.raises(InputError, match="low < high"):
            mean_from_samples([0.5], low, high)
    with pytest.raises(InputError, match="validity='always' is not one of fixed, anytime"):
        mean_from_samples([0.5], 0, 1, validity="always")  # type: ignore[arg-type]


def test_wrong_counts_are_refused() -> None:
    with pytest.raises(InputError, match="trials must be a whole number of at least 1"):
        proportions([0], 0)
    for hits in ([3], [-1], [0.5], [math.nan], [[1]]):
        with pytest.raises(InputError, match="successes must"):
            proportions(hits, 2)
    with pytest.raises(InputError, match="counts is empty"):
        profile_from_counts([], 4)
    with pytest.raises(InputError, match="counts must lie between 0 and 4"):
        profile_from_counts([5], 4)
    with pytest.raises(InputError, match="n must be a whole number"):
        profile_from_counts([0], 0)


@pytest.mark.parametrize("validity", ["fixed", "anytime"])
def test_a_weighted_mean(validity: Validity) -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 10, 400)
    samples = (rng.random(400) < weights / 10).astype(float)  # the heavier, the more often 1
    plain = mean_from_samples(samples, 0, 1, validity=validity)
    weighted = mean_from_samples(samples, 0, 1, validity=validity, weights=weights)
    assert weighted.value == pytest.approx((samples * weights).sum() / weights.sum())
    assert weighted.low < 95 / 150 < weighted.high  # E[w^2] / 10 E[w]
    assert weighted.value > plain.high
    scaled = mean_from_samples(samples, 0, 1, validity=validity, weights=3 * weights)
    assert (scaled.low, scaled.high) == pytest.approx((weighted.low, weighted.high))
    assert mean_from_samples(samples, 0, 1, validity=validity, weights=np.full(400, 7)) == plain
    for wrong in ([1.0], -weights, weights * math.nan):
        with pytest.raises(InputError, match="weights must be 400 finite numbers greater than 0"):
            mean_from_samples(samples, 0, 1, validity=validity, weights=wrong)
