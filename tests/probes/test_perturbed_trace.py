from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import flipscope
from flipscope.adapters.movable_parameters import MovableParameters
from flipscope.adapters.parameters import chosen
from flipscope.basics.errors import InputError
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import random_sum
from flipscope.models.presets import encoder
from flipscope.models.transformer import Transformer
from flipscope.probes.gradients import squared_gradients
from flipscope.probes.perturbed_trace import split_trace, trace_changes

STRINGS = np.random.default_rng(0).integers(0, 2, (6, 5), np.uint8)


def small() -> nn.Module:
    return fourier_network(random_sum(5, 2, 2))


def test_it_is_the_trace_of_the_hessian() -> None:
    network, targets = small(), np.linspace(0.0, 1.0, len(STRINGS))
    exact = flipscope.curvature(network, "mse", (STRINGS, targets), what="trace", method="exact").trace
    found = split_trace(network, STRINGS, targets, probes=50)
    assert exact is not None
    assert 0 < abs(found.value - exact.value.value) < 4 * found.error < 0.1 * exact.value.value


def test_at_an_interpolator_there_is_no_noise() -> None:
    network = small()
    with torch.no_grad():
        own = network(torch.from_numpy(STRINGS)).numpy()
    found = split_trace(network, STRINGS, own)
    assert (found.residual, found.error) == (0.0, 0.0)
    assert found.value == pytest.approx(squared_gradients(network, STRINGS).gauss_newton_trace, rel=1e-12)


def test_changes_are_those_of_moved_parameters() -> None:
    network = small()
    before = {name: each.clone() for name, each in network.state_dict().items()}
    (one,) = trace_changes(network, STRINGS, (1e-3,), probes=64, seed=3)
    worst, least = trace_changes(network, STRINGS, (1e-3, 1e-5), draws=4, probes=8, seed=3)
    assert all(torch.equal(before[name], each) for name, each in network.state_dict().items())
    assert least.change < worst.change
    assert worst.base == least.base == one.base
    stream, _ = np.random.default_rng(3).spawn(2)
    with torch.no_grad():
        own = network(torch.from_numpy(STRINGS)).numpy()
    with MovableParameters(chosen(network, None)) as moving:
        moving.to(torch.from_numpy(stream.normal(size=moving.count)), 1e-3)
        exact = flipscope.curvature(network, "mse", (STRINGS, own), what="trace", method="exact").trace
    assert exact is not None
    assert abs(abs(exact.value.value - one.base) - one.change) < 4 * one.error


def test_signs_leave_little_of_the_change_open() -> None:
    strings = np.random.default_rng(1).integers(0, 2, (50, 20), np.uint8)
    (found,) = trace_changes(fourier_network(random_sum(20, 7, 3)), strings, (1e-3,), probes=32)
    assert 0 < found.error < 0.1 * found.change


def test_numbers_of_any_type_and_frozen_parameters() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1))
    model[0].bias.requires_grad_(False)
    (found,) = trace_changes(model, STRINGS, (0.1,))
    assert found.change > 0
    assert not model[0].bias.requires_grad
    exact = flipscope.curvature(model, "mse", (STRINGS, np.ones((6, 1))), what="trace", method="exact").trace
    trace = split_trace(model, STRINGS, np.ones(6), probes=100)
    assert exact is not None
    assert abs(trace.value - exact.value.value) < 4 * trace.error + 1e-5


def test_bad_input() -> None:
    network = small()
    two = nn.Linear(5, 2)
    wild = nn.Linear(5, 1)
    wild.weight.data.fill_(3e38)
    normed = nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 1))
    ours = Transformer(encoder(width=8, layers=1, heads=1, ffn_width=8))
    for model, strings, targets, said in (
        (network, STRINGS, np.zeros(2), "one for each string"),
        (network, STRINGS, np.full(6, np.nan), "finite"),
        (normed, STRINGS, np.zeros(6), "layer norms"),
        (ours, STRINGS, np.zeros(6), "layer norms"),
        (two, STRINGS, np.zeros(6), "one number per string"),
        (two, STRINGS[:1], np.zeros(1), "one number per string"),
        (network, (STRINGS, STRINGS), np.zeros(6), "one input"),
        (wild, STRINGS, np.zeros(6), "infinite outputs"),
    ):
        with pytest.raises(InputError, match=said):
            split_trace(model, strings, targets)  # type: ignore[arg-type]
    for sigmas, probes, said in (((0.0,), 4, "sigma"), ((1e-3,), 1, "probes")):
        with pytest.raises(InputError, match=said):
            trace_changes(network, STRINGS, sigmas, probes=probes)
    with pytest.raises(InputError, match="one number per string"):
        trace_changes(two, STRINGS, (0.1,))
