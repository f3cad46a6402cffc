from __future__ import annotations

import math

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.basics.resampling import (
    bootstrap_mean,
    growth,
    regression_slope,
    straight_line,
    student_mean,
    tail_exponent,
)


def test_students_interval_by_hand() -> None:
    found = student_mean([1.0, 2.0, 3.0], 0.95)  # standard deviation 1, t = 4.30265 at two degrees of freedom
    assert (found.value, found.samples) == (2.0, 3)
    assert found.high - found.value == pytest.approx(4.302652729911275 / math.sqrt(3))
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_students_interval_covers() -> None:
    stream = np.random.default_rng(0)
    found = [student_mean(stream.normal(3.0, 2.0, 6).tolist(), 0.9) for _ in range(1000)]
    covered = sum(estimate.low <= 3.0 <= estimate.high for estimate in found)
    assert 865 <= covered <= 935  # 900 with a standard deviation of 9.5


def test_the_slope_at_equal_others_covers() -> None:
    stream = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        x = np.repeat([4, 6, 8, 10, 12], 3)
        other = stream.normal(size=15)
        y = 0.3 * x + 2 * other + stream.normal(size=15)
        found = regression_slope(y, x, [other])
        assert found is not None
        hits += found.low <= 0.3 <= found.high
    assert 0.92 < hits / 400 < 0.98


def test_a_slope_needs_points_and_places() -> None:
    assert regression_slope([1.0, 2.0, 3.0], [1, 2, 3]) is None  # one degree of freedom
    assert regression_slope([1.0, 2.0, 3.0, 5.0], [2, 2, 2, 2]) is None


def test_the_bootstrap_follows_the_skew_and_the_seed() -> None:
    samples = np.random.default_rng(0).exponential(1.0, 60).tolist()
    found, again, other = (bootstrap_mean(samples, 0.9, seed) for seed in (1, 1, 2))
    student = student_mean(samples, 0.9)
    assert found == again != other
    assert found.value == student.value
    assert found.high - found.value > found.value - found.low  # of a skewed sample
    assert found.half_width == pytest.approx(student.half_width, rel=0.15)
    assert bootstrap_mean([2.0, 2.0]).half_width == 0
    for bad in ([1.0], [1.0, math.nan]):
        with pytest.raises(InputError, match="a bootstrap needs two finite numbers"):
            bootstrap_mean(bad)


def test_the_tail_exponent_covers() -> None:
    stream = np.random.default_rng(1)
    found = [tail_exponent((stream.pareto(2.5, 400) + 1).tolist(), 40, 0.9) for _ in range(1000)]
    covered = sum(estimate.low <= 2.5 <= estimate.high for estimate in found)
    assert 865 <= covered <= 935


def test_the_tail_exponent_does_not_depend_on_the_unit() -> None:
    values = (np.random.default_rng(2).pareto(3.0, 100) + 1).tolist()
    one, two = tail_exponent(values, 20), tail_exponent([1000 * value for value in values], 20)
    assert two.value == pytest.approx(one.value)


@pytest.mark.parametrize("samples", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_too_few_or_broken_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(InputError, match="Student"):
        student_mean(samples)


@pytest.mark.parametrize(
    ("samples", "largest"), [([1.0, 2.0], 2), ([1.0, 2.0, 3.0], 1), ([0.0, 1.0, 2.0], 2), ([1.0, 2.0, math.nan], 2)]
)
def test_a_tail_that_cannot_be_told_is_refused(samples: list[float], largest: int) -> None:
    with pytest.raises(InputError, match="tail"):
        tail_exponent(samples, largest)


def test_a_tail_of_one_value_is_refused() -> None:
    with pytest.raises(InputError, match="only one value"):
        tail_exponent([1.0] * 10, 3)


def test_the_line_of_least_squares_by_hand() -> None:
    slope, squares = straight_line([0, 1, 2], [0, 0, 3])  # y = 1.5 x - 0.5: off by 0.5, 1 and 0.5
    assert slope == pytest.approx(1.5)
    assert squares == pytest.approx(0.25 + 1 + 0.25)


def test_growth_is_told_from_the_better_line() -> None:
    places = (6, 8, 10, 12, 14, 16)
    exponential, rate = growth(places, [n - 1.0 for n in places])  # half of 2^n
    assert exponential
    assert rate == pytest.approx(1, abs=0.01)
    assert not growth(places, [2 * math.log2(n) for n in places])[0]
    assert growth((100, 5000), (99.0, 4999.0))[1] == pytest.approx(1)  # counts beyond floats
    assert growth(places, [None] * 6)[1] == pytest.approx(0)
