from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.bits import index_bits
from flipscope.basics.errors import InputError
from flipscope.data.fourier import FourierData
from flipscope.models import Transformer, TransformerConfig
from flipscope.training.recipe import Recipe, Trained
from flipscope.training.recipes.hardness import hardness_recipe
from flipscope.training.recipes.sharper import converged, fourier_recipe, gap

DATA = FourierData(length=8, sparsity=3, degree=2, train=64, seed=1)


def test_the_papers_protocol() -> None:
    recipe = fourier_recipe(7, 3, 0)
    assert Recipe.from_json(recipe.as_json()) == recipe
    assert isinstance(recipe.model, TransformerConfig)
    assert (recipe.model.width, recipe.model.dropout, recipe.model.norm) == (51, 0.1, "none")
    assert Transformer(recipe.model).count_parameters() == 28_983  # 6 * 51^2 + 52 * 128 + 129 * 51 + 3 * 30 + 52
    protocol = recipe.protocol
    assert (protocol.optimiser, protocol.weight_decay, protocol.goal_loss, protocol.batch) == ("adamw", 1e-4, 0.02, 256)
    changed = fourier_recipe(7, 3, 0, norm="post", penalty=1e-3)
    assert isinstance(changed.model, TransformerConfig)
    assert changed.model.norm == "post"
    assert changed.protocol.terms[0].name == "trace"
    assert changed.data == recipe.data
    several = fourier_recipe(7, 3, 0, heads=4)
    assert Transformer(several.model).count_parameters() == 28_983 + 3 * 6 * 51**2  # type: ignore[arg-type]


def test_every_function_starts_from_weights_of_its_own() -> None:
    def start(recipe: Recipe) -> Tensor:
        assert isinstance(recipe.model, TransformerConfig)
        return nn.utils.parameters_to_vector(Transformer(recipe.model, seed=recipe.seed).parameters())

    first, other, changed = (
        start(fourier_recipe(*place, length=10, lr=lr))
        for place, lr in (((1, 1, 0), 2e-3), ((10, 5, 0), 2e-3), ((1, 1, 0), 1e-3))
    )
    assert not torch.equal(first, other)
    assert torch.equal(first, changed)
    places = itertools.product(((1, 1, 0), (10, 5, 0), (1, 5, 0), (1, 1, 1)), (10, 20))
    assert len({fourier_recipe(*place, length=length).seed for place, length in places}) == 8


def test_a_training_ends_when_an_epoch_is_good() -> None:
    def short(steps: int) -> Trained:
        return fourier_recipe(1, 1, 0, length=5, samples=32, batch=16, dropout=0.0, lr=5e-3, steps=steps).train()

    learned = short(400)
    assert converged(learned)
    assert learned.history[-1].train_loss < 0.02 <= learned.history[-2].train_loss
    assert not converged(short(3))


class _Right(nn.Module):
    """The target itself, and 1/2 more where the first bit is 1."""

    def forward(self, bits: Tensor) -> Tensor:
        return torch.from_numpy(DATA.values(bits.numpy())) + bits[:, 0] / 2


def test_the_gap_is_exact_where_all_strings_can_be_asked() -> None:
    recipe = fourier_recipe(3, 2, 1, length=8, samples=64)
    found = gap(recipe, _Right())
    assert found.exact
    assert found.everywhere.value == pytest.approx(0.125, abs=1e-6)
    assert found.train == pytest.approx(float(DATA.strings().bits[:, 0].mean()) / 4, abs=1e-6)
    assert found.value.value == pytest.approx(0.125 - found.train, abs=1e-6)
    np.testing.assert_allclose(found.errors, index_bits(0, 256, 8)[:, 0] / 4, atol=1e-6)
    sampled = gap(recipe, _Right(), strings=200)
    assert not sampled.exact
    assert sampled.everywhere.low < 0.125 < sampled.everywhere.high


def test_bad_input() -> None:
    with pytest.raises(InputError, match="sparsity=11 is too large"):
        fourier_recipe(11, 1, 0, length=10)
    with pytest.raises(InputError, match="degree=9 is more than"):
        fourier_recipe(1, 9, 0, length=8)
    with pytest.raises(InputError, match="at least 0"):
        fourier_recipe(1, 1, -1)
    for penalty in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"penalty={penalty} must be"):
            fourier_recipe(1, 1, 0, penalty=penalty)
    with pytest.raises(InputError, match="a fixed set"):
        gap(hardness_recipe("parity", 4, 0), _Right())
    with pytest.raises(InputError, match="a fixed set"):
        gap(fourier_recipe(1, 1, 0, samples=None), _Right())
