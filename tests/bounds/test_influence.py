"""Lem 2.9, Lem 3.2, Cor 3.3 and Cor 3.4 of paper 000 against random recognisers, and how close they come."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from bounds.recognisers import EPS, build, changes, many, strings

from flipscope.basics.errors import InputError
from flipscope.bounds import geometry
from flipscope.bounds.geometry.constants import Constants
from flipscope.models import LayerNorm, Transformer, recognizer
from flipscope.probes.blowup import blowup, neighbourhood

ROUNDING = 1e-12


@pytest.mark.parametrize("eps", EPS)
def test_no_flip_changes_more_than_the_bounds_allow(eps: float) -> None:
    tried = 0
    for seed, model in enumerate(many(eps)):
        constants = Constants.of(model)
        for length in (1, 13):
            x = strings(seed, 1, length)[0]
            found = changes(model, x)
            near = neighbourhood(model, x[None])
            flipped = np.eye(length, length + 1, dtype=bool)  # [n, m]
            own, other = found[flipped], np.where(flipped, 0.0, found).max(axis=1)
            taus = np.broadcast_to(near.tau[0, :1], near.tau[0, 1:].shape), near.tau[0, 1:]
            betas = near.beta[0, 0], near.beta[0, 1:]
            for same, actual in ((True, own), (False, other)):
                layerwise = geometry.layerwise_influence_bound(constants, length, *taus, same=same)
                product = geometry.influence_bound(constants, length, *betas, same=same)
                uniform = geometry.uniform_influence_bound(constants, length, same=same)
                assert (actual <= layerwise + ROUNDING).all()
                assert (layerwise <= product * (1 + 1e-9) + ROUNDING).all(), "Eq 19 is the weaker form"
                assert (layerwise <= uniform * (1 + 1e-9)).all(), "no string is worse than the worst"
                tried += length
    assert tried > 500


@pytest.mark.parametrize("eps", EPS)
def test_the_bound_is_not_far_off_for_small_weights(eps: float) -> None:
    # At the flipped position the residual carries the change, and the bound is of the right size there.
    for seed in range(10):
        model = build(seed, eps, scale=0.03)
        x = strings(seed, 1, 30)[0]
        near = neighbourhood(model, x[None])
        own = changes(model, x)[np.arange(30), np.arange(30)]
        taus = np.broadcast_to(near.tau[0, :1], near.tau[0, 1:].shape), near.tau[0, 1:]
        bound = geometry.layerwise_influence_bound(Constants.of(model), 30, *taus, same=True)
        assert (own > 0.2 * bound).any()
        assert own.max() < bound.max() < 1.5 * Constants.of(model).diameter


def test_elsewhere_the_bound_is_reached_up_to_a_small_factor() -> None:
    # One layer, no scores: attention is the mean, V = W1 = W2 = 1, and every hidden unit is open. Then the change at
    # EOS is gap / (N + 1) before the norm, for which z is known, while the bound has g = 1 / (N + 1) as well.
    model = build(0, 1e-3, width=8, layers=1, heads=1)
    block = model.blocks[0]
    with torch.no_grad():
        block.attention.key.weight.zero_()
        block.attention.value.weight.copy_(torch.eye(8))
        block.mlp.up.weight.copy_(torch.eye(8))
        block.mlp.down.weight.copy_(torch.eye(8))
        block.mlp.up.bias.fill_(100.0)
    x = strings(1, 1, 50)[0]
    near = neighbourhood(model, x[None])
    taus = np.broadcast_to(near.tau[0, :1], near.tau[0, 1:].shape), near.tau[0, 1:]
    bound = geometry.layerwise_influence_bound(Constants.of(model), 50, *taus)
    eos = changes(model, x)[:, -1]
    assert (eos <= bound).all()
    assert (eos > 0.2 * bound).all()


@pytest.mark.parametrize("eps", EPS)
def test_the_layer_norm_stretches_by_the_harmonic_mean_at_most(eps: float) -> None:
    generator = np.random.default_rng(5)
    norm = LayerNorm(4, eps, affine=False)
    size = 10.0 ** generator.uniform(-3, 3, (100_000, 2, 1))
    d = torch.from_numpy(generator.normal(size=(100_000, 2, 4)) * size)
    d[::2, 1] = d[::2, 0] + 1e-4 * d[::2, 1]
    d[1::3, 1] = -d[1::3, 0]
    with torch.no_grad():
        y, z = norm(d), norm.normalizer(d)
    centred = d - d.mean(dim=-1, keepdim=True)
    change, before = ((v[:, 0] - v[:, 1]).norm(dim=-1) for v in (y, centred))
    allowed = 2 / (1 / z[:, 0] + 1 / z[:, 1]) * before
    assert bool((change <= allowed * (1 + 1e-9) + 1e-9).all())
    assert float((change / allowed)[allowed > 1e-6].max()) > 0.999, "and it gets there"
    tau = 1 + z
    assert bool((allowed <= tau[:, 0] * tau[:, 1] / 4 * before * (1 + 1e-9)).all())


# ---------------------------------------------------------------- in N


@pytest.mark.parametrize("eps", [1e-3, 1.0])
def test_the_uniform_bound_falls_like_one_over_n(eps: float) -> None:
    for layers in (1, 2, 4):
        constants = Constants.of(build(2, eps, layers=layers, scale=0.2))
        large = 10**9
        halved = geometry.uniform_influence_bound(constants, 2 * large)
        once = geometry.uniform_influence_bound(constants, large)
        assert halved / once == pytest.approx(1 / 2, rel=1e-3)
        limit = math.exp(geometry.log_uniform_constant(constants))
        assert large * once * constants.readout <= limit * (1 + 1e-12)
        assert large * once * constants.readout == pytest.approx(limit, rel=1e-3), "Eq 46 has the limit as its constant"
        own = [geometry.uniform_influence_bound(constants, n, same=True) for n in (large, 2 * large)]
        assert own[1] == pytest.approx(own[0], rel=1e-3), "at the flipped position it does not fall"


def test_the_real_influence_falls_like_one_over_n() -> None:
    model = build(3, 1e-3, scale=0.5)
    lengths = (32, 64, 128, 256)
    typical = [changes(model, strings(n, 1, n)[0], step=n // 32)[:, -1].mean() for n in lengths]
    slope = np.polyfit(np.log(lengths), np.log(typical), 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)


def test_without_eps_nothing_uniform_is_known() -> None:
    constants = Constants.of(build(0, 0.0))
    assert geometry.uniform_influence_bound(constants, 100) == math.inf
    assert geometry.log_uniform_constant(constants) == math.inf
    assert geometry.constant_from(constants, 0.1) == math.inf


@pytest.mark.parametrize("eps", [1e-3, 1.0])
def test_from_some_length_on_a_recogniser_is_constant(eps: float) -> None:
    seen = 0
    for seed in range(12):
        model = build(seed, eps, scale=0.05)
        constants = Constants.of(model)
        widest = constants.readout * geometry.uniform_influence_bound(constants, 16)
        for margin in (widest / 100, widest, 10 * widest):
            start = geometry.constant_from(constants, margin)
            assert start == math.floor(start) >= 1
            limit = math.exp(geometry.log_uniform_constant(constants))
            assert limit / start < 2 * margin * (1 + 1e-9)
            assert start == 1 or limit / (start - 1) >= 2 * margin * (1 - 1e-9)
            if start <= 60:
                seen += 1
                length = int(start)
                x = strings(seed, 1, length)[0]
                assert constants.readout * changes(model, x)[:, -1].max() < 2 * margin
    assert seen >= 10


def test_a_larger_margin_is_constant_sooner() -> None:
    constants = Constants.of(build(1, 1e-3, scale=0.4))
    starts = [geometry.constant_from(constants, margin) for margin in (0.01, 0.1, 1.0, 10.0)]
    assert starts == sorted(starts, reverse=True)
    assert starts[0] == pytest.approx(10 * starts[1], rel=1e-3)


def test_weights_of_ordinary_size_give_a_finite_logarithm() -> None:
    constants = Constants.of(build(0, 1e-5, width=32, layers=3, heads=4, scheme="gaussian"))
    assert 1000 < geometry.log_influence_constant(constants) < math.inf
    assert geometry.influence_bound(constants, 100, 2.0, 2.0) == math.inf
    assert geometry.uniform_influence_bound(constants, 100) < math.inf, "attention weights are at most 1"
    assert geometry.constant_from(constants, 0.1) == math.inf


# ---------------------------------------------------------------- Lem 3.2


@pytest.mark.parametrize("eps", EPS)
def test_the_blowup_bound_is_that_of_the_probe(eps: float) -> None:
    for seed, layers in enumerate((1, 2, 3)):
        model = build(seed, eps, layers=layers)
        found = blowup(model, strings(seed, 5, 12))
        assert geometry.blowup_bound(layers, eps) == pytest.approx(found.bound)
        assert (found.beta <= geometry.blowup_bound(layers, eps)).all()


def test_the_blowup_bound() -> None:
    assert geometry.blowup_bound(3, 0.25) == 27
    assert geometry.blowup_bound(10**6, 1e-3) == geometry.blowup_bound(1, 0) == math.inf
    for eps in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="eps="):
            geometry.blowup_bound(1, eps)
    with pytest.raises(InputError, match="layers"):
        geometry.blowup_bound(0, 1.0)


# ---------------------------------------------------------------- corners and bad input


def test_bits_with_the_same_vector_have_no_influence() -> None:
    model = build(0, 0.0)
    with torch.no_grad():
        model.embedding.symbol.weight[1] = model.embedding.symbol.weight[0]
    constants = Constants.of(model)
    tau = [math.inf, 2.0]
    assert geometry.layerwise_influence_bound(constants, 5, tau, tau, same=True) == 0
    assert geometry.influence_bound(constants, 5, 2.0, 2.0, same=True) == 0


def test_heads_without_values_spread_nothing() -> None:
    model = build(0, 0.0, layers=1)
    with torch.no_grad():
        model.blocks[0].attention.value.weight.zero_()
    constants = Constants.of(model)
    assert geometry.layerwise_influence_bound(constants, 5, [math.inf], [math.inf]) == 0
    assert geometry.layerwise_influence_bound(constants, 5, [math.inf], [math.inf], same=True) == math.inf
    assert geometry.influence_bound(constants, 5, 1.0, 1.0) == pytest.approx(constants.gap / 20)


def test_bad_input() -> None:
    constants = Constants.of(build(0, 1.0))
    with pytest.raises(InputError, match="length"):
        geometry.uniform_influence_bound(constants, 0)
    with pytest.raises(InputError, match="beta_flipped must be at least 1"):
        geometry.influence_bound(constants, 5, 1.0, [1.0, 0.5])
    with pytest.raises(InputError, match="beta must be at least 1"):
        geometry.influence_bound(constants, 5, math.nan, 1.0)
    with pytest.raises(InputError, match="2 layers as its last axis"):
        geometry.layerwise_influence_bound(constants, 5, [1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="2 layers as its last axis"):
        geometry.layerwise_influence_bound(constants, 5, 1.0, [1.0, 2.0])
    for margin in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="margin="):
            geometry.constant_from(constants, margin)


def test_a_model_that_has_no_readout_weights() -> None:
    model = Transformer(recognizer(4, 1, eps=1.0), dtype=torch.float64)
    with torch.no_grad():
        model.head.weight.fill_(3.0)  # the same for all coordinates: it reads the mean, which is 0
    constants = Constants.of(model)
    assert constants.readout == pytest.approx(0, abs=1e-12)
    assert geometry.constant_from(constants, 1e-3) == 1
