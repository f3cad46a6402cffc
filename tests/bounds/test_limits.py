"""The lengths behind "sufficiently large": against the bounds they come from, and against plain sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bounds.recognisers import build, strings
from hypothesis import given, settings
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.bounds.geometry import (
    Constants,
    Threshold,
    blowup_level,
    blowup_tail,
    compact_tail,
    lipschitz_bound,
    log_stable_from,
    low_variance_bound,
    stable_logit_bound,
    theorem_from,
    uniform_influence_bound,
)
from flipscope.bounds.geometry.limits import log_summable_from
from flipscope.bounds.geometry.overview import _tail_from, summary
from flipscope.models import Transformer, encoder, fourier, initialise


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20), st.floats(0.05, 0.95), st.floats(0.01, 3), st.sampled_from([0.003, 0.01, 0.03]))
def test_the_logit_is_stable_from_there_on_and_not_before(seed: int, zeta: float, margin: float, radius: float) -> None:
    cube = Constants.cube(build(seed, 0.0), radius)
    log = log_stable_from(cube, zeta, margin)
    if log > 100:
        return
    start = math.exp(log)
    for factor in (1.001, 2.0, 1e3, 1e9):
        assert stable_logit_bound(cube, math.ceil(factor * start), zeta) < 2 * margin * (1 + 1e-6)
    if start > 1000:
        assert stable_logit_bound(cube, math.floor(0.999 * start), zeta) >= 2 * margin * (1 - 1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(8, 40), st.integers(1, 2), st.floats(0.2, 3.0), st.floats(0.001, 0.5), st.floats(0.02, 0.98))
def test_probabilities_sum_to_less_than_the_failure(
    width: int, layers: int, radius: float, failure: float, between: float
) -> None:
    threshold = Threshold(width, layers)
    slope = threshold.exponent + 5
    if not threshold.promises_one:
        assert theorem_from(Constants.cube(build(0, 0.0, width=width, layers=layers), radius), radius, 0.1) is None
        return
    least = (3 + max(threshold.exponent, 0)) / slope
    zeta = least + between * (1 - least)
    cube = Constants.cube(build(0, 0.0, width=width, layers=layers), radius)
    log = log_summable_from(cube, radius, zeta, failure)
    if log > 25:
        return
    start = math.ceil(math.exp(log))
    total = 0.0
    for length in range(start, start + 2000):
        strings_promised = max(1, math.ceil(threshold.at(length)))
        tail = blowup_tail(width, layers, length, radius, blowup_level(length, layers, zeta), neighbours=length)
        total += strings_promised * tail
    assert total <= failure


def test_the_theorem_starts_where_both_conditions_hold() -> None:
    cube = Constants.cube(build(0, 0.0, width=16, layers=1, heads=1), 0.05)
    start = theorem_from(cube, 0.05, 0.1, 0.01)
    assert start is not None
    assert start.log_length >= log_stable_from(cube, start.zeta, 0.1)
    assert start.log_length >= log_summable_from(cube, 0.05, start.zeta, 0.01)
    # No other zeta does better.
    slope = Threshold(16, 1).exponent + 5
    for zeta in np.linspace((3 + slope - 5) / slope + 1e-3, 0.999, 50):
        other = max(log_stable_from(cube, zeta, 0.1), log_summable_from(cube, 0.05, zeta, 0.01))
        assert other >= start.log_length - 1e-6
    later = theorem_from(cube, 0.05, 0.1, 1e-9)
    assert later is not None
    assert later.log_length >= start.log_length


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.floats(0.02, 0.6), st.integers(0, 99))
def test_lemma_4_4_on_a_ball_in_its_cube(width: int, eta: float, seed: int) -> None:
    # Z uniform in the unit ball, a part of the cube [-1, 1]^D: Lem E.2 with the quotient of volumes holds there.
    log_ball = width / 2 * math.log(math.pi) - math.lgamma(width / 2 + 1)
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(4000, width))
    z *= (rng.random(4000) ** (1 / width) / np.linalg.norm(z, axis=1))[:, None]
    y = rng.uniform(-0.5, 0.5, width)
    share = float(np.mean((z + y).var(axis=1) < eta**2))
    bound = compact_tail(low_variance_bound(width, eta, 1.0), log_ball - width * math.log(2))
    assert share <= bound + 4 * math.sqrt(bound * (1 - bound) / 4000) + 1e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda: compact_tail(1.5, 0.0),
        lambda: compact_tail(0.5, 0.1),
        lambda: compact_tail(0.5, -math.inf),
        lambda: log_stable_from(Constants.of(build(0, 0.0)), 1.0, 0.1),
        lambda: log_stable_from(Constants.of(build(0, 0.0)), 0.5, 0.0),
        lambda: theorem_from(Constants.of(build(0, 0.0)), 1.0, 0.1, 1.0),
        lambda: theorem_from(Constants.of(build(0, 0.0)), 0.0, 0.1),
    ],
)
def test_bad_numbers_are_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


# ---------------------------------------------------------------- all bounds of one model


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_a_recognisers_summary_is_the_bounds_one_by_one(eps: float, scale: float) -> None:
    model = build(1, eps, width=16, layers=1, heads=1, scale=scale)
    found = summary(model, 50, strings(0, 5, 50))
    assert found.fails is None
    rows = {(row.result, row.what): row for row in found.rows}
    assert {result for result, _ in rows} == {
        "Lem 2.9", "Lem 3.1", "Lem 3.2", "Cor 3.3", "Cor 3.4", "Prop 3.5", "Lem 4.2", "Cor 4.3, Lem 4.4", "Thm 4.5",
        "Cor 4.6",
    }  # fmt: skip
    for (result, _), row in rows.items():
        if result in ("Lem 3.1", "Lem 3.2", "Cor 3.3", "Cor 3.4", "Prop 3.5") and not eps:
            assert row.says_something is False
            assert row.log_from is None
        if row.log_from is not None and row.log_from < math.log(50):
            assert row.says_something
    radius = found.as_json()["radius"]
    own, cube = Constants.of(model), Constants.cube(model, radius)
    assert rows["Lem 3.1", "C_Lip"].value == (pytest.approx(lipschitz_bound(cube)) if eps else None)
    assert rows["Cor 3.3", "influence on y^L at EOS"].value == (
        pytest.approx(uniform_influence_bound(own, 50)) if eps else None
    )
    assert all(abs(p.detach()).max() <= radius for name, p in model.named_parameters() if "embedding" not in name)


@pytest.mark.parametrize("result", ["Cor 3.3", "Cor 3.4", "Prop 3.5"])
def test_a_bound_says_something_at_the_length_from_which_it_should(result: str) -> None:
    model = build(1, 1e-1, width=32, layers=1, heads=1, scale=0.02)
    row = next(row for row in summary(model, 2, strings(0, 2, 2), radius=0.05).rows if row.result == result)
    assert row.log_from is not None
    start = row.as_json()["from_length"]
    assert start is not None
    later = max(start, 2)
    assert later <= 300
    rows = summary(model, later, strings(0, 2, later), radius=0.05).rows
    assert next(row for row in rows if row.result == result).says_something


@settings(max_examples=40, deadline=None)
@given(st.integers(8, 60), st.integers(1, 2), st.floats(0.1, 3.0), st.floats(0.5, 0.99))
def test_lemma_4_2_is_below_1_from_its_length_on(width: int, layers: int, radius: float, zeta: float) -> None:
    cube = Constants.cube(build(0, 0.0, width=width, layers=layers), radius)
    log = _tail_from(cube, radius, zeta)
    if log > 40:
        return
    for factor in (1.001, 3.0, 1e4):
        length = math.ceil(factor * math.exp(log))
        level = blowup_level(length, layers, zeta)
        assert blowup_tail(width, layers, length, radius, level, neighbours=length) < 1


def test_other_models_get_what_holds_and_why_the_rest_does_not() -> None:
    model = initialise(Transformer(encoder(8, 2, 2)), "gaussian", 1)
    found = summary(model, 10, strings(0, 3, 10))
    assert found.fails is not None
    assert "affine=True" in found.fails
    (row,) = found.rows
    assert row.says_something
    assert row.value == pytest.approx((1 + 1 / math.sqrt(1e-5)) ** 4, rel=1e-3)
    (bare,) = summary(Transformer(fourier(10)), 10, strings(0, 3, 10)).rows
    assert bare.says_something is None


def test_a_shape_without_zeta_and_one_without_strings() -> None:
    narrow = {row.result: row for row in summary(build(0, 0.0, width=3, layers=2), 10, strings(0, 2, 10)).rows}
    assert narrow["Thm 4.5"].says_something is None
    assert "no zeta" in narrow["Thm 4.5"].note
    small = {row.result: row for row in summary(build(0, 0.0, width=8, layers=2), 10, strings(0, 2, 10)).rows}
    assert small["Thm 4.5"].says_something is False
    assert "more than 3 is needed" in small["Thm 4.5"].note
