from __future__ import annotations

import dataclasses

import pytest
import torch

from flipscope.basics.errors import InputError
from flipscope.data.sparse import SparseData
from flipscope.models import Transformer, mingpt
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.sparse_variables import (
    just_above,
    on_hidden_bits,
    on_training_set,
    sparse_recipe,
)
from flipscope.training.sparse_measures import marker_attention

SMALL = {"validation": 100, "width": 8, "heads": 2}


def test_every_step_has_all_strings_and_an_epoch_ten_steps() -> None:
    recipe = sparse_recipe("and", 12, 0, samples=30, steps=25, **SMALL)
    batches = list(recipe.data.source(30, 10, 0))  # type: ignore[union-attr, arg-type]
    assert len(batches) == 10
    assert all(len(bits) == 30 for bits, _ in batches)
    some = next(iter(recipe.data.source(8, 1, 0)))  # type: ignore[union-attr, arg-type]
    assert len(some[0]) == 8
    trained = recipe.train()
    assert [line.steps for line in trained.history] == [10, 20, 25]


def test_the_papers_protocol() -> None:
    recipe = sparse_recipe("and", 100, 0, samples=70)
    assert recipe.model == mingpt(100)
    assert Transformer(mingpt(100)).count_parameters() == 56_896
    protocol = recipe.protocol
    assert (protocol.clip, protocol.decay_on, protocol.max_steps, protocol.epoch_steps) == (1.0, "matrices", 1_000, 10)
    assert Recipe.from_json(recipe.as_json()) == recipe


def test_success_is_above_and_not_at_the_limit() -> None:
    assert just_above(0.99, 10_000) == 9_901 / 10_000
    assert just_above(0.99, 100) == 1.0
    for strings in (100, 1_000, 2_000, 10_000):
        limit = just_above(0.99, strings)
        assert [count / strings >= limit for count in range(strings + 1)] == [
            count > 99 * strings // 100 for count in range(strings + 1)
        ]


def test_a_training_stops_at_its_success() -> None:
    recipe = sparse_recipe("or", 4, 0, samples=16, relevant=1, steps=400, lr=0.02, **SMALL)
    fitted = recipe.train().fitted
    assert fitted.stopped == "goal"
    *before, last = fitted.history
    assert last.validation_accuracy > 0.99 >= max((line.validation_accuracy for line in before), default=0)


def test_what_is_logged() -> None:
    plain = sparse_recipe("and", 12, 0, samples=30, steps=10, **SMALL)
    recipe = dataclasses.replace(plain, log=(on_training_set(plain), on_hidden_bits(plain, strings=32)))
    assert Recipe.from_json(recipe.as_json()) == recipe
    trained, same = recipe.train(), plain.train()
    first, last = trained.fitted.log
    names = {"training_set.loss", "training_set.accuracy", "hidden_attention.mean", "hidden_attention.most"}
    assert names < set(last)
    assert last["training_set.loss"] != first["training_set.loss"]
    for one, other in zip(trained.model.parameters(), same.model.parameters(), strict=True):
        assert torch.equal(one, other)  # measuring has no say
    even = 3 / 13
    assert first["hidden_attention.mean"] == pytest.approx(even, rel=0.05)
    assert first["hidden_attention.most"] >= first["hidden_attention.mean"]


@pytest.mark.parametrize("marker", ["eos", "cls"])
def test_attention_of_the_marker_is_the_models(marker: str) -> None:
    config = dataclasses.replace(
        mingpt(5, width=8, heads=2), marker=marker, readout="first" if marker == "cls" else "last", causal=False
    )  # type: ignore[arg-type]
    model = Transformer(config, scheme="gaussian", seed=0).eval()
    bits = torch.randint(0, 2, (3, 5), dtype=torch.uint8)
    seen: list[torch.Tensor] = []
    attention = model.blocks[0].attention
    handle = attention.dropout.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))  # type: ignore[operator, union-attr]
    model(bits)
    handle.remove()  # type: ignore[union-attr]
    torch.testing.assert_close(marker_attention(model, bits), seen[0][:, :, 0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"relevant": 13}, "do not fit"),
        ({"gate": "x1 & x2"}, "reads 2 of 3"),
        ({"gate": "x1 & x9"}, "x9"),
        ({"noise": 0.5}, "noise=0.5"),
        ({"samples": 0}, "samples"),
        ({"samples": None}, "batch must be given"),
        ({"steps": 0}, "steps"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], said: str) -> None:
    settings: dict[str, object] = {"gate": "and", "length": 12, "seed": 0, "samples": 30} | changes
    with pytest.raises(InputError, match=said):
        sparse_recipe(**settings)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ones"):
        SparseData(length=5, ones=1.0)
