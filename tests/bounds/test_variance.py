"""Lem E.2, Lem 4.2 and Cor 4.3 of paper 000 by Monte Carlo and by integrals known in closed form."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from bounds.recognisers import build, changes, strings
from hypothesis import given
from hypothesis import strategies as st
from repetitions import repeated
from scipy import stats

from flipscope.basics.errors import InputError
from flipscope.basics.estimates import proportion_bounds
from flipscope.bounds import geometry
from flipscope.bounds.geometry.constants import Constants
from flipscope.probes.blowup import neighbourhood


def low_variance(width: int, eta: float, rho: float, y: np.ndarray, draws: int, seed: int) -> int:
    """In how many of so many draws of Z the variance of y + Z is less than eta^2."""
    z = np.random.default_rng(seed).uniform(-rho, rho, (draws, width))
    return int(((y + z).var(axis=1) < eta**2).sum())


def surely(successes: int, draws: int) -> float:
    """What the probability is at least, but for a chance of one in a million."""
    return float(proportion_bounds(np.array([successes]), draws, 1e-6, "fixed")[0][0])


@pytest.mark.parametrize("width", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
def test_small_variance_is_as_rare_as_the_bound_says(width: int, shift: float) -> None:
    draws = 200_000
    for rho in (0.5, 2.0):
        y = shift * np.random.default_rng(width).uniform(-rho, rho, width)
        for share in (0.05, 0.2, 0.5):
            eta = share * rho
            low = surely(low_variance(width, eta, rho, y, draws, width), draws)
            assert low <= geometry.low_variance_bound(width, eta, rho)
            if width >= geometry.PAPER_HOLDS_FROM:
                assert low <= geometry.printed_low_variance_bound(width, eta, rho)


@pytest.mark.parametrize(("width", "share"), [(2, 0.01), (3, 0.02), (4, 0.06), (5, 0.1)])
def test_the_bound_is_reached_as_eta_goes_to_0(width: int, share: float) -> None:
    draws = 2_000_000
    seen = low_variance(width, share, 1.0, np.zeros(width), draws, 1)
    assert seen / draws > 0.8 * geometry.low_variance_bound(width, share, 1.0)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_the_printed_lemma_is_false_at_width_2(share: float) -> None:
    # |Z1 - Z2| < 2 eta has probability 1 - (1 - eta / rho)^2 for Z uniform in the square.
    exact = 1 - (1 - share) ** 2
    assert exact > geometry.printed_low_variance_bound(2, share, 1.0)
    assert exact <= geometry.low_variance_bound(2, share, 1.0) == pytest.approx(2 * share)


def test_the_printed_lemma_is_false_at_width_3() -> None:
    draws, eta = 2_000_000, 0.03
    low = surely(low_variance(3, eta, 1.0, np.zeros(3), draws, 2), draws)
    assert low > geometry.printed_low_variance_bound(3, eta, 1.0)


def test_from_which_width_the_printed_lemma_holds() -> None:
    quotients = [
        geometry.low_variance_bound(d, 1e-3, 1.0) / geometry.printed_low_variance_bound(d, 1e-3, 1.0)
        for d in range(2, 30)
    ]
    assert quotients[:4] == pytest.approx([math.sqrt(2), math.sqrt(3) * math.pi / 4, math.pi / 3, 0.68968], rel=1e-4)
    assert [d for d, quotient in enumerate(quotients, 2) if quotient > 1] == [2, 3, 4]
    assert quotients == sorted(quotients, reverse=True)
    assert geometry.PAPER_HOLDS_FROM == 5


@given(st.integers(2, 60), st.floats(1e-4, 1e-2), st.floats(0.5, 5.0))
def test_how_far_the_corrected_bound_is_from_the_printed_one(width: int, eta: float, rho: float) -> None:
    printed = math.log(math.sqrt(width) * eta / rho) * (width - 1)
    if -600 < printed < -1:  # neither is rounded to a probability
        factor = geometry.corrected_over_printed(width)
        assert geometry.low_variance_bound(width, eta, rho) == pytest.approx(factor * math.exp(printed), rel=1e-9)


def test_probabilities_stay_probabilities() -> None:
    bounds = geometry.low_variance_bound, geometry.printed_low_variance_bound, geometry.gaussian_low_variance_bound
    for bound in bounds:
        assert bound(3, 10.0, 1.0) == 1
        assert 0 < bound(2000, 1e-3, 1.0) < 1e-300, "too small for a float, but a bound must not be 0"


# ---------------------------------------------------------------- Lem E.8


@given(st.integers(2, 20), st.floats(1e-3, 2.0), st.floats(0.05, 5.0), st.floats(0.0, 4.0))
def test_the_gaussian_bound_is_above_the_exact_probability(width: int, eta: float, sigma: float, shift: float) -> None:
    # ||P(y + Z)||^2 / sigma^2 is chi-square with D - 1 degrees of freedom, off centre by ||P y||^2 / sigma^2.
    radius = width * (eta / sigma) ** 2
    exact = stats.ncx2.cdf(radius, width - 1, shift) if shift else stats.chi2.cdf(radius, width - 1)
    bound = geometry.gaussian_low_variance_bound(width, eta, sigma)
    assert exact <= bound * (1 + 1e-9)
    if not shift and radius < 1e-4 and bound > 1e-200:
        assert exact >= 0.99 * bound, "it is reached as eta goes to 0"


@pytest.mark.parametrize("width", [2, 3, 5, 8])
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_small_gaussian_variance_is_as_rare_as_the_bound_says(width: int, shift: float) -> None:
    draws, sigma = 200_000, 0.7
    stream = np.random.default_rng(width)
    vectors = stream.normal(0, sigma, (draws, width)) + shift * stream.uniform(-1, 1, width)
    seen = 0
    for eta in (0.05, 0.15, 0.3):
        hits = int((vectors.var(axis=1) < eta**2).sum())
        bound = geometry.gaussian_low_variance_bound(width, eta, sigma)
        assert surely(hits, draws) <= bound
        seen += hits > 0.3 * bound * draws > 10
    assert seen, "somewhere the bound is near what happens"


def test_the_gaussian_tail_of_the_blowup() -> None:
    draws, length, sigma, width = repeated(150, 60), 6, 1.0, 3
    x = strings(0, 1, length)
    worst = np.array(
        [neighbourhood(shaken(s, sigma, width, gaussian=True), x, range(3)).tau.max() - 1 for s in range(draws)]
    )
    bounds = {
        level: geometry.gaussian_blowup_tail(width, 2, length, sigma, level, neighbours=3)
        for level in (8.0, 20.0, 60.0)
    }
    for level, bound in bounds.items():
        assert surely(int((worst > level).sum()), draws) <= bound
    assert bounds[60.0] < 0.1
    assert (worst > 2.0).any(), "there is a tail to bound"


def test_the_gaussian_tail_counts_every_place_and_has_the_order_of_lem_e8() -> None:
    one = geometry.gaussian_low_variance_bound(6, 1e-3, 0.5)
    assert geometry.gaussian_blowup_tail(6, 3, 9, 0.5, 1e3, neighbours=4) == pytest.approx(3 * 5 * 10 * one)
    width, layers, zeta, far = 20, 2, 0.9, 10**60
    tails = [
        geometry.gaussian_blowup_tail(width, layers, length, 1 / math.sqrt(width), far_level, neighbours=3)
        for length in (far, 2 * far)
        for far_level in [geometry.blowup_level(length, layers, zeta)]
    ]
    assert math.log2(tails[1] / tails[0]) == pytest.approx(1 - (width - 1) * zeta / (2 * layers), rel=1e-6)


# ---------------------------------------------------------------- Lem 4.2


def shaken(seed: int, rho: float, width: int, *, gaussian: bool = False) -> torch.nn.Module:
    """A recogniser at eps = 0 with nothing but its last biases moved at random."""
    model = copy.deepcopy(build(0, 0.0, width=width, layers=2, heads=1))
    stream = np.random.default_rng(seed)
    with torch.no_grad():
        for block in model.blocks:
            moved = stream.normal(0, rho, width) if gaussian else stream.uniform(-rho, rho, width)
            block.mlp.down.bias += torch.from_numpy(moved)
    return model


@pytest.mark.parametrize("width", [3, 4])
def test_the_tail_of_the_blowup(width: int) -> None:
    draws, length, rho = repeated(150, 60), 6, 2.0
    x = strings(0, 1, length)
    worst = np.array([neighbourhood(shaken(seed, rho, width), x, range(3)).tau.max() - 1 for seed in range(draws)])
    informative = 0
    for level in (2.0, 8.0, 20.0, 60.0, 200.0):
        bound = geometry.blowup_tail(width, 2, length, rho, level, neighbours=3)
        low = surely(int((worst > level).sum()), draws)
        assert low <= bound
        informative += bound < 1
    assert informative >= 2
    assert (worst > 2.0).any(), "there is a tail to bound"


def test_the_tail_counts_every_place() -> None:
    one = geometry.low_variance_bound(6, 1e-3, 0.5)
    assert geometry.blowup_tail(6, 3, 9, 0.5, 1e3) == pytest.approx(3 * 10 * one)
    assert geometry.blowup_tail(6, 3, 9, 0.5, 1e3, neighbours=4) == pytest.approx(3 * 5 * 10 * one)
    assert geometry.blowup_tail(6, 3, 9, 0.5, 1e-3) == 1


@pytest.mark.parametrize(("width", "layers", "zeta"), [(20, 2, 0.9), (33, 4, 0.6)])
def test_the_tail_has_the_order_of_eq_29(width: int, layers: int, zeta: float) -> None:
    def tail(length: int, k: int) -> float:
        level = geometry.blowup_level(length, layers, zeta)
        return geometry.blowup_tail(width, layers, length, 1.0, level, neighbours=k)

    order = 1 - (width - 1) * zeta / (2 * layers)
    far = 10**60
    assert math.log2(tail(2 * far, 3) / tail(far, 3)) == pytest.approx(order, rel=1e-6)
    assert tail(far, 7) == pytest.approx(2 * tail(far, 3))


# ---------------------------------------------------------------- Cor 4.3


def test_where_the_blowup_is_below_the_level_the_output_is_stable() -> None:
    length, zeta, rho, held = 16, 0.9, 0.1, 0
    base = build(0, 0.0, width=8, layers=1, heads=1, scale=0.2)
    with torch.no_grad():
        base.blocks[0].mlp.down.bias.copy_(torch.linspace(-2, 2, 8))
    bound = geometry.stable_logit_bound(Constants.of(base).perturbed(rho), length, zeta)
    level = geometry.blowup_level(length, 1, zeta)
    x = strings(0, 1, length)
    for seed in range(30):
        model = copy.deepcopy(base)
        stream = np.random.default_rng(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if not name.startswith("embedding."):
                    parameter += torch.from_numpy(stream.uniform(-rho, rho, tuple(parameter.shape)))
        if (neighbourhood(model, x).tau <= 1 + level).all():
            held += 1
            head = model.head.weight.detach().norm()
            assert float(head) * changes(model, x[0])[:, -1].max() <= bound
    assert held >= 20


def test_the_stable_bound_has_the_order_of_eq_33() -> None:
    constants = Constants.cube(build(0, 0.0, scale=0.1), 0.01)
    far, zeta = 10**40, 0.8
    once, twice = (geometry.stable_logit_bound(constants, length, zeta) for length in (far, 2 * far))
    assert math.log2(twice / once) == pytest.approx(zeta - 1, abs=1e-3)
    beta = (1 + geometry.blowup_level(50, 2, zeta)) ** 2
    expected = constants.readout * math.exp(geometry.log_influence_constant(constants)) * beta**2 / 50
    assert geometry.stable_logit_bound(constants, 50, zeta) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: geometry.low_variance_bound(1, 0.1, 1.0), "width"),
        (lambda: geometry.low_variance_bound(4, 0.0, 1.0), "eta="),
        (lambda: geometry.printed_low_variance_bound(4, 0.1, -1.0), "rho="),
        (lambda: geometry.printed_low_variance_bound(4, math.nan, 1.0), "eta="),
        (lambda: geometry.gaussian_low_variance_bound(4, 0.1, 0.0), "sigma="),
        (lambda: geometry.gaussian_blowup_tail(4, 1, 9, 1.0, -2.0), "level="),
        (lambda: geometry.corrected_over_printed(1), "width"),
        (lambda: geometry.blowup_tail(4, 0, 9, 1.0, 2.0), "layers"),
        (lambda: geometry.blowup_tail(4, 1, 0, 1.0, 2.0), "length"),
        (lambda: geometry.blowup_tail(4, 1, 9, 1.0, 0.0), "level="),
        (lambda: geometry.blowup_tail(4, 1, 9, 1.0, 2.0, neighbours=-1), "neighbours"),
        (lambda: geometry.blowup_level(9, 1, 1.0), "zeta="),
        (lambda: geometry.blowup_level(9, 1, math.nan), "zeta="),
    ],
)
def test_bad_input(call: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        call()  # type: ignore[operator]
