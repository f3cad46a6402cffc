"""Theorem 6 of paper 001 at finite n, against tables of functions: the Fourier gap and the least distance."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from bounds.encoders import changes, drawn, outputs
from hypothesis import given
from hypothesis import strategies as st

from flipscope.basics.errors import InputError
from flipscope.bounds import hardness as bounds
from flipscope.cube import functions, sensitivity, spectrum
from flipscope.cube.spectrum import RealSpectrum, inverse_walsh_hadamard
from flipscope.models import hardness


def distance(f: np.ndarray, g: np.ndarray) -> float:
    return float(((f - g) ** 2).mean())


def by_definition(f: np.ndarray) -> float:
    """as_n of a table, from its flips."""
    n = len(f).bit_length() - 1
    return float((changes(f, n) ** 2).sum(axis=1).mean()) / 4


@given(st.integers(1, 7), st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 3))
def test_no_table_is_nearer_than_the_bounds_say(n: int, seed: int, mixed: float, smooth: float) -> None:
    stream = np.random.default_rng(seed)
    f = stream.choice([-1.0, 1.0], 2**n) if seed % 2 else stream.standard_normal(2**n)
    # g is near f, with its higher degrees damped: what the bounds have to fear.
    degrees = np.bitwise_count(np.arange(2**n, dtype=np.uint64)).astype(float)
    g = inverse_walsh_hadamard(RealSpectrum.of(f).coefficients / (1 + smooth * degrees))
    g = g + mixed * mixed * stream.standard_normal(2**n)
    weights, as_g = RealSpectrum.of(f).weight_by_degree(), by_definition(g)
    assert as_g == pytest.approx(RealSpectrum.of(g).average_sensitivity())
    gap, least = bounds.fourier_gap(weights, as_g), bounds.least_distance(weights, as_g)
    assert gap.value <= least + 1e-9
    assert least <= distance(f, g) + 1e-9
    if mixed == 0:
        assert least == pytest.approx(distance(f, g), abs=1e-9), "the nearest g is of this form"
    tails = [max(math.sqrt(weights[k:].sum()) - math.sqrt(as_g / k), 0.0) ** 2 for k in range(1, n + 1)]
    assert gap.value == pytest.approx(max(tails))
    assert gap.degree == 0 or tails[gap.degree - 1] == pytest.approx(gap.value)


@given(st.integers(1, 6), st.integers(0, 10**6), st.floats(0, 4), st.floats(0, 4), st.floats(0, 1))
def test_the_least_distance_is_convex_and_falls(n: int, seed: int, one: float, two: float, share: float) -> None:
    weights = np.random.default_rng(seed).exponential(size=n + 1)
    between = share * one + (1 - share) * two
    ends = [bounds.least_distance(weights, each) for each in (one, two)]
    assert bounds.least_distance(weights, between) <= share * ends[0] + (1 - share) * ends[1] + 1e-9
    assert (ends[0] - ends[1]) * (two - one) >= -1e-9


def test_known_values() -> None:
    parity = spectrum.weight_floats(functions.parity(9))
    assert bounds.least_distance(parity, 0.0) == bounds.fourier_gap(parity, 0.0).value == 1
    assert bounds.fourier_gap(parity, 0.0).degree >= 1
    assert bounds.least_distance(parity, 9.0) == bounds.fourier_gap(parity, 9.0).value == 0
    # g = a PARITY has as(g) = 9 a^2 and distance (1 - a)^2.
    assert bounds.least_distance(parity, 9 * 0.25**2) == pytest.approx(0.75**2)
    assert bounds.asymptotic_sharpness(parity) == 1
    assert bounds.asymptotic_sharpness(spectrum.weight_floats(functions.dictator(0, 9))) == pytest.approx(1 / 9)
    mean = RealSpectrum.of(np.array([sum(1 - 2 * (k >> i & 1) for i in range(9)) / 9 for k in range(512)]))
    assert bounds.asymptotic_sharpness(mean.weight_by_degree()) == pytest.approx(1 / 81)
    random = np.mean([bounds.asymptotic_sharpness(spectrum.weight_floats(functions.random(10, s))) for s in range(20)])
    assert random == pytest.approx(0.5, abs=0.01)
    assert bounds.sharpness_lower_bound(parity, 0.0, probability=0.3) == pytest.approx(0.3)
    # At as(g) = sqrt(n) the bound for PARITY goes to 1, that for MAJORITY stays 0.
    for f, limit in ((functions.parity, 1.0), (functions.majority, 0.0)):
        found = bounds.least_distance(spectrum.weight_floats(f(1001)), math.sqrt(1001))
        assert found == pytest.approx(limit, abs=0.4)
        assert (found > 0) == (limit > 0)


@pytest.mark.parametrize("n", range(3, 13))
def test_average_sensitivities_of_the_targets(n: int) -> None:
    """as_n in closed form: PARITY n, FIRST 1, MEAN 1/n, MAJORITY by its binomial."""
    odd = n - 1 + n % 2
    known = odd * math.comb(odd - 1, (odd - 1) // 2) / 2 ** (odd - 1)
    strings = 1 - 2.0 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    tables = {
        "parity": (strings.prod(axis=1), n),
        "first": (strings[:, 0], 1),
        "mean": (strings.mean(axis=1), 1 / n),
        "majority": (np.where(strings.sum(axis=1) < 0, -1.0, 1.0), known),
    }
    for table, expected in tables.values():
        assert by_definition(table) == pytest.approx(expected)
        assert RealSpectrum.of(table).average_sensitivity() == pytest.approx(expected)
    for f, expected in ((functions.parity(n), n), (functions.majority(n), known), (functions.dictator(0, n), 1)):
        assert float(sensitivity.average_sensitivity(f)) == pytest.approx(expected)


def test_the_sharpness_of_a_transformer_is_above_its_bound() -> None:
    n, draws, stream = 5, 40, np.random.default_rng(0)
    model = drawn(hardness(n, 8, 1, 2), 4, 1.0)
    f = outputs(model, n)
    weights = RealSpectrum.of(f).weight_by_degree()
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    distances, sensitivities = [], []
    for _ in range(draws):
        with torch.no_grad():
            for (name, parameter), old in zip(model.named_parameters(), kept, strict=True):
                noise = 0.1 * stream.standard_normal(tuple(parameter.shape)) * (name != "embedding.position.weight")
                parameter.copy_(old + torch.as_tensor(noise) - 0.8 * old * name.startswith("head"))
        g = outputs(model, n)
        distances.append(distance(f, g))
        sensitivities.append(by_definition(g))
        assert distances[-1] >= bounds.least_distance(weights, sensitivities[-1])
    bound = bounds.sharpness_lower_bound(weights, float(np.mean(sensitivities)))
    assert 0 < bound <= np.mean(distances)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: bounds.fourier_gap([], 1.0), "f_weights"),
        (lambda: bounds.fourier_gap([0.5, -0.5], 1.0), "f_weights"),
        (lambda: bounds.least_distance([0.5, math.nan], 1.0), "f_weights"),
        (lambda: bounds.least_distance([0.5, 0.5], -1.0), "as_g=-1.0"),
        (lambda: bounds.fourier_gap([0.5, 0.5], math.nan), "as_g=nan"),
        (lambda: bounds.sharpness_lower_bound([0.5, 0.5], 1.0, probability=2.0), "probability=2.0"),
        (lambda: bounds.asymptotic_sharpness([1.0]), "f_weights"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        call()


def test_a_constant_has_no_gap() -> None:
    assert bounds.fourier_gap([1.0], 0.0) == bounds.Gap(0.0, 0)
    assert bounds.fourier_gap([1.0, 0.0], math.inf) == bounds.Gap(0.0, 0)
    assert bounds.least_distance([1.0, 0.5], math.inf) == 0
