"""Prop 3.2 of paper 004 and its sharper forms: against all functions of four bits, and for models and samples."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

import flipscope
from flipscope.basics.errors import InputError
from flipscope.basics.estimates import Estimate
from flipscope.bounds.noise_stability import (
    change_bound,
    degree_bound,
    model_noise_bounds,
    noise_bounds,
    portrait_noise_bounds,
)
from flipscope.cube.functions import BooleanFunction, majority, parity

RHO = 0.9


@cache
def four_bits() -> dict[str, NDArray[np.float64]]:
    """For all 65,536 functions of four bits, from the definitions: P(noise changes the value), and the exponents."""
    strings = np.arange(16)
    signs = 1.0 - 2.0 * ((np.arange(1 << 16)[:, None] >> strings) & 1)
    differing = np.bitwise_count(strings[:, None] ^ strings)
    pair = (1 / 16) * ((1 - RHO) / 2) ** differing * ((1 + RHO) / 2) ** (4 - differing)
    changed = (1 - np.einsum("fx,xy,fy->f", signs, pair, signs, optimize=True)) / 2
    flips = np.stack([signs != signs[:, strings ^ (1 << bit)] for bit in range(4)]).sum(axis=0)
    characters = 1.0 - 2.0 * (np.bitwise_count(strings[:, None] & strings) & 1)
    degrees = np.where(signs @ characters != 0, np.bitwise_count(strings), 0).max(axis=1)
    return {
        "probability": changed,
        "average": flips.mean(axis=1),
        "largest": flips.max(axis=1),
        "degree": degrees,
    }


def bound_of(exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    known = {exponent: change_bound(exponent, RHO) for exponent in np.unique(exponents).tolist()}
    return np.array([known[exponent] for exponent in exponents.tolist()])


def test_all_functions_of_four_bits() -> None:
    f = four_bits()
    probability = f["probability"]
    printed, true_degree, ours = (bound_of(each) for each in (f["largest"] ** 2, f["degree"], f["average"]))
    for bound in (printed, true_degree, ours):
        assert (probability <= bound + 1e-12).all()
    assert (ours <= true_degree + 1e-12).all()
    assert (ours <= printed + 1e-12).all()
    means = [float(each.mean()) for each in (probability, printed, true_degree, ours)]
    assert means == pytest.approx([0.092747, 0.361124, 0.164646, 0.094719], abs=5e-7)
    assert int((np.abs(probability - printed) < 1e-12).sum()) == 10
    assert int((f["degree"] > f["largest"]).sum()) == 20_336
    assert (f["degree"] <= [degree_bound(largest) for largest in f["largest"].tolist()]).all()


@settings(max_examples=60)
@given(st.integers(0, (1 << 16) - 1))
def test_the_bounds_of_a_function_are_those_of_the_definitions(table: int) -> None:
    f = four_bits()
    (found,) = noise_bounds(BooleanFunction.from_table(table, 4), [RHO])
    assert found.rho == RHO
    assert found.probability == pytest.approx(float(f["probability"][table]), abs=1e-12)
    exponents = (f["average"], f["degree"], f["largest"] ** 2)
    bounds = (found.by_average_sensitivity, found.by_degree, found.by_max_sensitivity)
    assert bounds == tuple(pytest.approx((1 - RHO ** float(each[table])) / 2, abs=1e-12) for each in exponents)


def test_majority_of_five() -> None:
    (found,) = noise_bounds(majority(5), [RHO])
    assert isinstance(found.probability, float)
    numbers = (found.probability, found.by_max_sensitivity, found.by_average_sensitivity)
    assert numbers == tuple(pytest.approx(each, abs=5e-7) for each in (0.085122, 0.306290, 0.089631))


def test_parity_reaches_the_bounds_by_average_and_by_degree() -> None:
    for found in noise_bounds(parity(7)):
        assert found.probability == pytest.approx(found.by_average_sensitivity, rel=1e-12)
        assert found.by_average_sensitivity == found.by_degree == pytest.approx((1 - found.rho**7) / 2, rel=1e-12)
        assert found.by_degree < found.by_max_sensitivity <= 0.5


def test_the_ends_of_the_range() -> None:
    assert [change_bound(exponent, 0.0) for exponent in (0, 0.5)] == [0.0, 0.5]
    assert [change_bound(exponent, 1.0) for exponent in (0, 7)] == [0.0, 0.0]
    assert change_bound(1e12, 0.5) == 0.5
    assert change_bound(2, 1 - 1e-12) == pytest.approx(1e-12, rel=1e-4)  # no digits lost by 1 - rho^t


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: change_bound(-1, 0.5), "exponent=-1 must be at least 0"),
        (lambda: change_bound(2, -0.5), "rho=-0.5 must lie between 0 and 1"),
        (lambda: noise_bounds(majority(3), [0.5, 1.5]), "rho=1.5 must lie between 0 and 1"),
        (lambda: degree_bound(-1), "max_sensitivity must be a whole number of at least 0"),
        (lambda: model_noise_bounds(nn.Linear(3, 1), 30), "all strings of n=30 bits are too many"),
    ],
)
def test_what_is_refused(call: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert said in str(caught.value)


def test_sampled_intervals_hold_the_exact_bounds() -> None:
    text, rhos = "maj(x1..x5) ^ (x6 & x7)", [0.5, 0.9]
    exact = portrait_noise_bounds(flipscope.describe(text, rhos=rhos), rhos)
    sampled = portrait_noise_bounds(flipscope.describe(text, strings=2000, rhos=rhos, confidence=0.9999), rhos)
    for truth, found in zip(exact, sampled, strict=True):
        for name in ("probability", "by_average_sensitivity", "by_max_sensitivity"):
            estimate = getattr(found, name)
            assert isinstance(estimate, Estimate)
            assert estimate.low <= getattr(truth, name) <= estimate.high, name
        assert found.by_degree is None


class Majority(nn.Module):
    def forward(self, bits: torch.Tensor) -> torch.Tensor:
        return bits.float().sum(dim=1) - bits.shape[1] / 2


def test_a_model_is_its_function() -> None:
    assert model_noise_bounds(Majority(), 7) == noise_bounds(majority(7))
    (exact,) = noise_bounds(majority(41), [RHO])
    (found,) = model_noise_bounds(Majority(), 41, [RHO], strings=400, pairs=1000, seed=3, confidence=0.999)
    for name in ("probability", "by_average_sensitivity", "by_max_sensitivity"):
        estimate = getattr(found, name)
        assert estimate.low <= getattr(exact, name) <= estimate.high, name
    assert found == model_noise_bounds(Majority(), 41, [RHO], strings=400, pairs=1000, seed=3, confidence=0.999)[0]


def test_without_a_spectrum_the_bounds_remain() -> None:
    (known,) = portrait_noise_bounds(flipscope.describe("majority(5)", rhos=[RHO]), [RHO])
    (found,) = portrait_noise_bounds(flipscope.describe("majority(5)", rhos=[0.5]), [RHO])
    assert found.probability is None
    assert found.by_average_sensitivity == known.by_average_sensitivity
    assert found.as_json()["probability"] is None
