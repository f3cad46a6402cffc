"""A7 of paper 001: the tail of the blowup under random biases and on spheres, by Monte Carlo and in its order."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from bounds.encoders import changes, cube, drawn, outputs
from scipy import stats

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import proportion_bounds
from flipscope.bounds import geometry
from flipscope.bounds import hardness as bounds
from flipscope.bounds.hardness import Constants
from flipscope.models import Transformer, hardness
from flipscope.probes.blowup import blowup


def surely(successes: int, draws: int) -> float:
    """What the probability is at least, but for a chance of one in a million."""
    return float(proportion_bounds(np.array([successes]), draws, 1e-6, "fixed")[0][0])


def shaken(model: Transformer, sigma: float, seed: int) -> Transformer:
    """The model with Gaussian numbers added to the biases before its norms."""
    moved, stream = copy.deepcopy(model), np.random.default_rng(seed)
    with torch.no_grad():
        for block in moved.blocks:
            for bias in (block.attention.output.bias, block.mlp.down.bias):
                bias += torch.from_numpy(sigma * stream.standard_normal(len(bias)))
    return moved


def test_the_tail_of_the_blowup_under_gaussian_biases() -> None:
    n, width, sigma, draws = 4, 4, 0.5, 120
    base = drawn(dataclasses.replace(hardness(n, width, 1, 1), eps=0.0), 3, 0.2, spread=0.2)
    worst = np.array([blowup(shaken(base, sigma, seed), cube(n)[5:6]).tau.max() - 1 for seed in range(draws)])
    levels = (4.0, 10.0, 30.0)
    tails = [bounds.blowup_tail(width, 2, n, sigma, level) for level in levels]
    for level, tail in zip(levels, tails, strict=True):
        assert surely(int((worst > level).sum()), draws) <= tail
    assert tails[1] < 0.5
    assert (worst > 2.0).any(), "there is a tail to bound"


@pytest.mark.parametrize("parameters", [8, 40, 400])
def test_on_a_sphere_the_gaussian_bound_holds(parameters: int) -> None:
    """The bias part of a point on a sphere, the read-out being other coordinates, near any vector y."""
    width, radius, draws = 4, 3.0, 40_000
    points = np.random.default_rng(parameters).standard_normal((draws, parameters))
    points *= radius / np.linalg.norm(points, axis=1, keepdims=True)
    sigma = bounds.sphere_sigma(radius, parameters)
    # y depends on other coordinates of the same point, which are not independent of the bias.
    for y in (np.zeros(width), points[:, -width:], 0.5 * points[:, -1:] * np.arange(width)):
        variance = (points[:, :width] + y).var(axis=1)
        for eta in (0.1 * sigma, 0.3 * sigma):
            seen = surely(int((variance < eta**2).sum()), draws)
            assert seen <= geometry.gaussian_low_variance_bound(width, eta, sigma)
    exact = stats.beta.cdf(width * (0.01 * sigma) ** 2 / radius**2, (width - 1) / 2, (parameters - width + 1) / 2)
    bound = geometry.gaussian_low_variance_bound(width, 0.01 * sigma, sigma)
    assert (0.3 if parameters < 40 else 0.8) * bound < exact <= bound


@pytest.mark.parametrize("norm", ["post", "once"])
def test_the_mean_sensitivity_under_random_biases(norm: str) -> None:
    n, width, sigma = 4, 24, 3.0
    base = drawn(dataclasses.replace(hardness(n, width, 1, 1), norm=norm), 1, 1e-3, spread=0.1)
    own = Constants.of(base, n)
    bound = bounds.expected_sensitivity(own, sigma)
    means = [(changes(outputs(shaken(base, sigma, seed), n), n) ** 2).sum() / 2**n / 4 for seed in range(20)]
    assert 0 < np.mean(means) <= bound.value
    assert bounds.log_constant(own) == pytest.approx(bounds.log_constant(Constants.of(shaken(base, sigma, 1), n)))
    assert not bound.vacuous


def test_where_the_mean_says_something() -> None:
    """A long string, a wide model, C = 1: far below the trivial bound, and of the order of the best exponent."""
    width, norms, sigma = 200, 2, 1.0
    logs = []
    for exponent in (60, 61):
        n = 10**exponent
        found = bounds.expected_bound(math.log(0.25), math.log(n), width, norms, n, sigma)
        assert not found.vacuous
        logs.append(found.log)
    best = 4 * norms / (width - 1 + 2 * norms)  # the power of n in Eq 12 with the best B
    assert (logs[1] - logs[0]) / math.log(10) == pytest.approx(best, abs=0.005)
    assert best < bounds.sensitivity_exponent(width, norms) == 8 / 199


@pytest.mark.parametrize(
    "change", [{"norm": "pre"}, {"norm": "none"}, {"final_norm": True}, {"combine": "sum", "head_size": 8}]
)
def test_a_norm_without_a_bias_before_it_is_refused(change: dict[str, Any]) -> None:
    model = Transformer(dataclasses.replace(hardness(4, 8), **change))
    with pytest.raises(InputError, match="a bias of its own before every norm"):
        bounds.expected_sensitivity(Constants.of(model, 4), 0.1)


def test_bad_input_is_refused() -> None:
    own = Constants.of(Transformer(hardness(4, 8)), 4)
    for call, match in (
        (lambda: bounds.expected_sensitivity(own, 0.0), "sigma=0.0"),
        (lambda: bounds.blowup_tail(8, 0, 4, 1.0, 2.0), "norms"),
        (lambda: bounds.blowup_tail(8, 1, 0, 1.0, 2.0), "positions"),
        (lambda: bounds.blowup_tail(8, 1, 4, 1.0, -2.0), "level="),
        (lambda: bounds.sphere_sigma(0.0, 10), "radius=0.0"),
        (lambda: bounds.sensitivity_exponent(1, 2), "width"),
        (lambda: bounds.sensitivity_exponent(4, 0), "norms"),
    ):
        with pytest.raises(InputError, match=match):
            call()
