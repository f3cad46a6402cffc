"""Squared gradients and perturbed losses, against what can be worked out otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.constructions.fourier import fourier_network
from flipscope.cube.fourier_sums import random_sum
from flipscope.models import Transformer, encoder
from flipscope.probes.gradients import squared_gradients
from flipscope.probes.perturbed import perturbed_loss

STRINGS = index_bits(0, 64, 6)


def exact_trace(model: nn.Module, bits: Tensor, targets: Tensor) -> float:
    """Of the Hessian of the mean squared error, column by column."""
    names = [name for name, _ in model.named_parameters()]
    shapes = [each.shape for each in model.parameters()]
    flat = torch.cat([each.detach().reshape(-1) for each in model.parameters()])

    def loss(numbers: Tensor) -> Tensor:
        parts = numbers.split([shape.numel() for shape in shapes])
        given = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return (torch.func.functional_call(model, given, (bits,)) - targets).square().mean()

    flat.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(flat), flat, create_graph=True)
    columns = (torch.autograd.grad(entry, flat, retain_graph=True)[0] for entry in gradient)
    return sum(float(column[number]) for number, column in enumerate(columns))


def test_they_are_those_of_autograd() -> None:
    model = Transformer(encoder(width=8, layers=1), seed=1)
    bits = np.random.default_rng(0).integers(0, 2, (5, 7)).astype(np.uint8)
    found = squared_gradients(model, bits)
    for number, row in enumerate(torch.from_numpy(bits)):
        model.zero_grad()
        model(row[None]).sum().backward()
        for name, parameter in model.named_parameters():
            expected = 0.0 if parameter.grad is None else float(parameter.grad.square().sum())
            assert found.by_name[name][number] == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_the_trace_at_an_interpolator_is_twice_their_mean() -> None:
    network = fourier_network(random_sum(5, 2, 2, seed=3))
    bits = torch.from_numpy(index_bits(0, 8, 5)).double()
    exact = exact_trace(network, bits, network(bits).detach())
    assert squared_gradients(network, bits).gauss_newton_trace == pytest.approx(exact, rel=1e-9)


def test_a_model_with_several_outputs_is_refused() -> None:
    with pytest.raises(InputError, match="one number per string"):
        squared_gradients(nn.Linear(3, 2), np.eye(3))


@pytest.mark.parametrize("sigma", [1e-3, 3e-3])
def test_theorem_12_by_monte_carlo(sigma: float) -> None:
    network = fourier_network(random_sum(6, 2, 2, seed=3))
    found = perturbed_loss(network, STRINGS, sigma, draws=150, confidence=0.99)
    assert found.low < found.second_order < found.high
    assert (found.high - found.low) / found.value < 0.6
    assert found.perturbation < found.trace


class Product(nn.Module):
    """a b x: with noise its squared error is (a^2 + b^2) s^2 + s^4 on average, the last being the remainder."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.3], dtype=torch.float64))
        self.b = nn.Parameter(torch.tensor([-0.5], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.a * self.b * x).squeeze(-1)


def test_the_interval_covers_the_truth_remainder_and_all() -> None:
    sigma, truth, hits = 0.5, 0.34 * 0.25 + 0.0625, 0
    for seed in range(30):
        found = perturbed_loss(Product(), np.ones((1, 1)), sigma, draws=200, seed=seed)
        hits += found.low <= truth <= found.high
        assert found.second_order == pytest.approx(0.34 * 0.25)
    assert hits >= 24  # of 28 expected, where a mean of so many is nearly normal
