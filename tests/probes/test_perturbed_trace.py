from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import flipscope
from flipscope.basics.errors import InputError
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import random_sum
from flipscope.models.moving import Moving
from flipscope.models.parameters import chosen
from flipscope.probes.gradients import squared_gradients
from flipscope.probes.perturbed_trace import split_trace, trace_changes

STRINGS = np.random.default_rng(0).integers(0, 2, (6, 5), np.uint8)


def test_it_is_the_trace_of_the_hessian() -> None:
    network = fourier_network(random_sum(5, 2, 2))
    targets = np.linspace(0.0, 1.0, len(STRINGS))
    exact = flipscope.curvature(network, "mse", (STRINGS, targets), what="trace", method="exact")
    found = split_trace(network, STRINGS, targets, probes=400)
    assert exact.trace is not None
    assert abs(found.value - exact.trace.value.value) < 4 * found.error < 0.1 * exact.trace.value.value


def test_at_an_interpolator_there_is_no_noise() -> None:
    network = fourier_network(random_sum(5, 2, 2))
    with torch.no_grad():
        own = network(torch.from_numpy(STRINGS)).numpy()
    found = split_trace(network, STRINGS, own)
    assert (found.residual, found.error) == (0.0, 0.0)
    assert found.value == pytest.approx(squared_gradients(network, STRINGS).gauss_newton_trace, rel=1e-12)


def test_changes_are_those_of_moved_parameters() -> None:
    network = fourier_network(random_sum(5, 2, 2))
    before = {name: each.clone() for name, each in network.state_dict().items()}
    (one,) = trace_changes(network, STRINGS, (1e-3,), draws=1, probes=200, seed=3)
    worst, small = trace_changes(network, STRINGS, (1e-3, 1e-5), draws=4, probes=8, seed=3)
    assert all(torch.equal(before[name], each) for name, each in network.state_dict().items())
    assert small.change < worst.change
    assert worst.base == small.base == one.base
    stream, _ = np.random.default_rng(3).spawn(2)
    with torch.no_grad():
        own = network(torch.from_numpy(STRINGS)).numpy()
    with Moving(chosen(network, None)) as moving:
        moving.to(torch.from_numpy(stream.normal(size=moving.count)), 1e-3)
        exact = flipscope.curvature(network, "mse", (STRINGS, own), what="trace", method="exact")
    assert exact.trace is not None
    assert abs(abs(exact.trace.value.value - one.base) - one.change) < 4 * one.error


def test_bad_input() -> None:
    network = fourier_network(random_sum(5, 2, 2))
    with pytest.raises(InputError, match="one for each string"):
        split_trace(network, STRINGS, np.zeros(2))
    with pytest.raises(InputError, match="layer norms"):
        split_trace(nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 1)), STRINGS, np.zeros(6))
    with pytest.raises(InputError, match="sigma"):
        trace_changes(network, STRINGS, (0.0,))
