"""What is set for a while: modes of modules, and forwards that are differentiated once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.data.batches import Examples
from flipscope.models import Transformer, hardness
from flipscope.models.modes import differentiated_once, first_derivatives
from flipscope.training.fit import fit


def _gradients(model: nn.Module, bits: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(bits).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradients_of_the_shorter_way_are_the_same(norm: str) -> None:
    config = dataclasses.replace(hardness(6, width=16), norm=norm)
    model = Transformer(config, seed=3, dtype=torch.float64)
    bits = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (9, 6), np.uint8))
    plain = _gradients(model, bits)
    with first_derivatives():
        assert differentiated_once()
        short = _gradients(model, bits)
    assert not differentiated_once()
    assert len(plain) == len(short) > 20
    for one, other in zip(plain, short, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_the_shorter_way_ends_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError), first_derivatives():
        _ = 1 / 0
    assert not differentiated_once()


@pytest.mark.parametrize("terms", [(), (lambda model, batch, outputs: 0 * outputs.mean(),)])
def test_training_takes_it_unless_a_term_may_differentiate_again(terms: Any) -> None:
    seen: list[bool] = []

    class Asked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(4, 1)

        def forward(self, bits: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                seen.append(differentiated_once())
            return self.map(bits.float())[:, 0]

    bits = np.random.default_rng(0).integers(0, 2, (20, 4), np.uint8)
    data = Examples(bits, bits[:, 0])
    fit(Asked(), data, data, learning_rate=0.1, batch=10, max_epochs=1, terms=terms)
    assert seen
    assert set(seen) == {not terms}
