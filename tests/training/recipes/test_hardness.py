"""The hardness paper's trainings as recipes, the final evaluation and the rule by which a model is kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from flipscope.basics.errors import InputError
from flipscope.data.tables import TableData, random_table
from flipscope.models import hardness
from flipscope.models.seq2seq_config import Seq2SeqConfig
from flipscope.models.transformer import Transformer
from flipscope.training.named import measurement
from flipscope.training.recipes.hardness import (
    final,
    hardness_protocol,
    hardness_recipe,
    kept_below,
    lengths_recipe,
    longer_lengths,
    scratchpad_recipe,
    table_recipe,
    written,
)


class Known(nn.Module):
    """A function of bits, and so much beside it."""

    def __init__(self, function: Any, beside: float = 0.0) -> None:
        super().__init__()
        self.function, self.beside = function, beside

    def forward(self, bits: Tensor) -> Tensor:
        out: Tensor = self.function(bits.float()) + self.beside
        return out


def parity(bits: Tensor) -> Tensor:
    return bits.sum(dim=1) % 2


def test_the_papers_protocol() -> None:
    recipe = hardness_recipe("parity", 30, 7)
    protocol = recipe.protocol
    found = (protocol.batch, protocol.learning_rate, protocol.optimiser, protocol.weight_decay, protocol.max_steps)
    assert found == (1_024, 3e-4, "adamw", 0.1, 10_000)
    assert (protocol.loss, protocol.labels, protocol.restore, protocol.decay_on) == ("mse", "bits", "last", "all")
    assert protocol.decay_after is protocol.stop_after is protocol.goal is protocol.clip is None
    assert recipe.data.train is None
    assert Transformer(recipe.model, seed=None).count_parameters(positions=False) == 199_425  # type: ignore[arg-type]
    assert recipe.seed == recipe.data.seed == 7


@pytest.mark.parametrize("function", ["parity", "majority", "first", "mean", "maj(x1..x3) ^ x4", "0.5 * x1 + 2 * x2"])
def test_the_same_recipe_has_the_same_name(function: str) -> None:
    one, two = hardness_recipe(function, 6, 1), hardness_recipe(function, 6, 1)
    assert one == two
    assert one.digest == two.digest != hardness_recipe(function, 6, 2).digest


def test_recipes_keep_their_names() -> None:
    # If one changes, its stored models are trained again.
    assert hardness_recipe("parity", 10, 0).digest[:16] == "1ad7970085426f2d"
    assert hardness_recipe("mean", 10, 0).digest[:16] == "08c3674ac90cdc3b"
    assert scratchpad_recipe(16, 0).digest[:16] == "dfe95ddc31f5dd66"
    logged = hardness_recipe("parity", 10, 0, log=[measurement("norm", 50)])
    assert logged.digest[:16] == "a630b3dd191331e2"


def test_a_recipe_learns_and_is_kept() -> None:
    for function in ("first", "mean"):
        recipe = hardness_recipe(function, 4, 0, width=16, batch=16, steps=300, lr=3e-3)
        trained = recipe.train()
        assert trained.fitted.stopped == "steps"
        found = final(recipe, trained.model)
        assert found.exact
        assert found.kept
        assert found.error.value < found.limit
        assert (found.accuracy is None) == (function == "mean")


def test_the_rule() -> None:
    assert kept_below("first(9)", 9) == 0.001
    assert kept_below("mean", 10) == pytest.approx(0.0001)
    recipe = hardness_recipe("parity", 8, 0)
    for beside, kept in ((0.03, True), (0.032, False)):
        found = final(recipe, Known(parity, beside))
        assert found.error.value == pytest.approx(beside**2, rel=1e-5)
        assert found.kept is kept
        assert found.accuracy is not None
        assert found.accuracy.value == 1
    wrong = final(recipe, Known(lambda bits: 1 - parity(bits)))
    assert wrong.accuracy is not None
    assert (wrong.accuracy.value, wrong.error.value) == (0, 1)
    mean = hardness_recipe("mean", 8, 0)
    ideal = Known(lambda bits: bits.mean(dim=1))
    assert final(mean, ideal).kept
    # The squared error of a constant is the variance 1 / 4n: 250 times the limit, as for a balanced function.
    flat = final(mean, Known(lambda bits: torch.full((len(bits),), 0.5)))
    assert flat.error.value == pytest.approx(1 / 32)
    assert flat.error.value / flat.limit == pytest.approx(250)
    assert not final(recipe, Known(lambda bits: bits[:, 0] * np.nan)).kept


def test_fresh_strings_where_the_cube_is_large() -> None:
    recipe = hardness_recipe("parity", 30, 0)
    half = Known(lambda bits: torch.full((len(bits),), 0.6))
    found = final(recipe, half, strings=4_000, seed=1)
    assert not found.exact
    assert found.error.low <= 0.5 * (0.36 + 0.16) <= found.error.high
    assert found.accuracy is not None
    assert found.accuracy.low < 0.5 < found.accuracy.high
    assert found == final(recipe, half, strings=4_000, seed=1)
    assert found != final(recipe, half, strings=4_000, seed=2)


def test_other_lengths() -> None:
    recipe = lengths_recipe("parity", 12, 0, width=8)
    assert final(recipe, Known(parity), length=32, strings=500).kept
    assert longer_lengths(12, (4 / 3, 2, 8 / 3)) == [16, 24, 32]
    with pytest.raises(InputError, match="length=9 is not that"):
        final(hardness_recipe("parity", 8, 0), Known(parity), length=9)


def test_tables() -> None:
    data = TableData(table=random_table(6, 1), length=6, subset=30)
    recipe = table_recipe(data, 0, width=8)
    table = torch.tensor(data.values(), dtype=torch.float32)
    known = Known(lambda bits: table[(bits.long() @ (1 << torch.arange(6)))])
    assert final(recipe, known).error.value == 0
    assert final(recipe, known).accuracy == final(recipe, Known(known.function, 0.01)).accuracy


def test_lengths_beyond_the_trained_ones_have_positions() -> None:
    for positions in ("sinusoidal", "learned"):
        recipe = lengths_recipe("majority", 6, 0, factors=(2,), positions=positions, width=8, batch=16, steps=4)  # type: ignore[arg-type]
        trained = recipe.train()
        assert trained.model(torch.zeros(3, 12, dtype=torch.uint8)).shape == (3,)
        assert final(recipe, trained.model, length=12, strings=50).length == 12
    with pytest.raises(InputError, match="at least 1"):
        lengths_recipe("majority", 6, 0, factors=(0.5,))


def test_a_scratchpad_learns_to_write() -> None:
    recipe = scratchpad_recipe(3, 0, batch=16, steps=300, lr=3e-3)
    assert isinstance(recipe.model, Seq2SeqConfig)
    trained = recipe.train()
    found = written(recipe, trained.model, strings=200)
    assert found.kept
    assert found.tokens.value == found.answers.value == 1
    start = written(recipe, recipe.model.network(), strings=200)
    assert not start.kept
    assert start.tokens.high < 0.9
    longer = scratchpad_recipe(4, 0, shortest=2, longest=6)
    assert longer.model.length == 6  # type: ignore[union-attr]
    assert written(longer, longer.model.network(), length=6, strings=20).length == 6  # type: ignore[union-attr]
    with pytest.raises(InputError, match="writes no scratchpad"):
        written(hardness_recipe("parity", 4, 0), Transformer(hardness(4, 8)))


def test_further_fields_of_the_protocol() -> None:
    assert hardness_protocol(steps=10, clip=1.0).clip == 1.0
    assert hardness_protocol(steps=10).epoch_steps == 10
    other = dataclasses.replace(hardness(5, 8), norm="pre")
    assert hardness_recipe("parity", 5, 0, model=other, goal_loss=0.01).protocol.goal_loss == 0.01
