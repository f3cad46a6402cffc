from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from flipscope.basics.errors import InputError
from flipscope.cube.functions import first
from flipscope.models.presets import encoder
from flipscope.models.transformer import Transformer
from flipscope.probes.perturbation import half_radius, survivors

RADII = tuple(float(radius) for radius in np.geomspace(0.003, 1.0, 12))


def test_half_radius_is_where_half_survive() -> None:
    count = 100
    survived = [100] * 5 + [75, 25] + [0] * 5
    assert half_radius(RADII, survived, count) == pytest.approx(math.sqrt(RADII[5] * RADII[6]))
    assert half_radius(RADII, [100] * 12, count) is None
    assert half_radius(RADII, [10] * 12, count) is None
    wobbling = [100] * 5 + [40, 60] + [0] * 5  # the larger cube holds the smaller one: 60 is chance
    found = half_radius(RADII, wobbling, count)
    assert found is not None
    assert RADII[4] < found < RADII[5]


def test_survivors_leave_the_model_as_it_was() -> None:
    model = Transformer(encoder(width=8, layers=1, heads=1, ffn_width=8))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert survivors(model, first(3), 0.1, 0.1, 3, np.random.default_rng(0)) == 0  # it never recognised First
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_model_survives_what_does_not_move_it() -> None:
    class Same(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(1))

        def forward(self, bits: torch.Tensor) -> torch.Tensor:
            return 2.0 * bits[:, 0] - 1.0 + self.bias

    stream = np.random.default_rng(0)
    assert survivors(Same(), first(3), 0.1, 0.5, 10, stream) == 10
    assert 0 < survivors(Same(), first(3), 0.1, 4.0, 200, stream) < 200  # of a shift in [-4, 4], those within 0.9


def test_what_is_fixed_is_not_moved() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
            for parameter in self.parameters():
                torch.nn.init.zeros_(parameter)

        def forward(self, bits: torch.Tensor) -> torch.Tensor:
            seen.append((float(self.embedding.bias), float(self.head.bias)))
            return bits[:, 0] - 0.5

    seen: list[tuple[float, float]] = []
    survivors(Sum(), first(3), 0.1, 1.0, 5, np.random.default_rng(0), fixed=["embedding"])
    embeddings, heads = zip(*seen, strict=True)
    assert set(embeddings) == {0.0}
    assert len(set(heads)) == 5
    with pytest.raises(InputError, match="fixed='body'"):
        survivors(Sum(), first(3), 0.1, 1.0, 5, np.random.default_rng(0), fixed=["body"])
