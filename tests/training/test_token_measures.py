"""Sensitivity at levels of training accuracy: measured once for each, also by a training that is interrupted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from flipscope.basics.errors import InputError
from flipscope.data.batches import Examples
from flipscope.data.text_data import text_data
from flipscope.probes.tokens import token_sensitivity
from flipscope.training.checkpoints import Keeper
from flipscope.training.named import Around, measurement
from flipscope.training.recipe import Recipe
from flipscope.training.recipes.low_sensitivity import image_recipe, text_recipe
from flipscope.training.targets import Aim
from flipscope.training.token_measures import Disturbances, at_levels, chosen_examples


def linear(weights: torch.Tensor) -> nn.Module:
    """Two classes, told apart by the sign of the product with these weights."""
    model = nn.Linear(len(weights), 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.stack([-weights, weights]))
    return nn.Sequential(nn.Flatten(), model)


def around(count: int = 200) -> Around:
    inputs = torch.randn(count, 4, 3, generator=torch.Generator().manual_seed(0))
    labels = (inputs.sum(dim=(1, 2)) > 0).long()
    return Around(Aim("ce"), "numbers", 12, [], lambda *_: None, lambda: Examples(inputs, labels))


def made(levels: str = "0.6,0.9", **settings: Any) -> Any:
    return at_levels(around(), levels, **settings)


GOOD, BAD = torch.ones(12), torch.tensor([1.0] * 5 + [0.0] * 7)


def test_a_level_is_measured_once() -> None:
    measure = made(inputs=100, variances="1,4", whole_variances="0.1")
    before: list[Mapping[str, float]] = []
    for weights in (-GOOD, BAD, BAD, GOOD, BAD, GOOD):
        before.append(measure(linear(weights), before))
    assert [each.get("level") for each in before] == [0.0, 0.6, None, 0.9, None, None]
    assert before[0]["accuracy"] == 0
    assert before[3]["accuracy"] == 1
    assert set(before[2]) == {"loss", "accuracy"}
    names = {"noise 1", "noise 4", "whole 0.1"}
    assert set(before[3]) == {"loss", "accuracy", "level", *names, *(f"{name} half-width" for name in names)}
    assert before[3]["noise 1"] < before[3]["noise 4"]


def test_a_model_that_jumps_over_a_level_is_measured_at_the_highest() -> None:
    found = made(inputs=50)(linear(GOOD), [{"accuracy": 0.5, "level": 0.0}])
    assert found["level"] == 0.9


def test_nothing_is_measured_after_the_last_level() -> None:
    assert made(inputs=50)(linear(GOOD), [{"accuracy": 0.95, "level": 0.9}]) == {}


def test_what_is_measured_is_token_sensitivity_on_the_chosen_training_inputs() -> None:
    examples, rows = chosen_examples(around().training(), 60, seed=3)  # type: ignore[misc]
    assert len(set(rows.tolist())) == 60
    found = made(inputs=60, seed=3, variances="2")(linear(BAD), [])
    own = token_sensitivity(linear(BAD), examples.bits, variance=2.0, tokens=1, seed=3)
    assert (found["noise 2"], found["noise 2 half-width"]) == (own.definition.value, own.definition.half_width)
    assert own.drawn.sum() == 60
    every, _ = chosen_examples(around().training(), 10_000, seed=3)  # type: ignore[misc]
    assert len(every.bits) == 200


def test_disturbances() -> None:
    images = torch.randn(40, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Identity(), linear(torch.ones(16)))
    done = Disturbances((1.0,), (0.5, 2.0), ("", "0"), replace=True, patch=2)
    found = done.measured(model, images, seed=0)
    places = [f"{kind}{place}" for place in ("", " @0") for kind in ("noise 1", "whole 0.5", "whole 2")]
    assert list(found) == [*places, "replace"]
    assert found["noise 1"].value == found["noise 1 @0"].value  # an identity: the same place, the same noise
    assert found["whole 0.5"].value < found["whole 2"].value
    assert all(each.samples == 40 for each in found.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels": "0.9,0.5"}, "increasing order"),
        ({"levels": "0.5,1.5"}, "at most 1"),
        ({"levels": "half"}, "numbers with commas"),
        ({"variances": "1;2"}, "numbers with commas"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(**settings)


def test_a_training_on_fresh_strings_has_no_training_set() -> None:
    with pytest.raises(InputError, match="fixed training set"):
        at_levels(dataclasses.replace(around(), training=None), "0.5")


def digits_recipe(log: Sequence[Any] = ()) -> Recipe:
    return image_recipe("digits", "mlp-small", 1, batch=300, epochs=6, log=log)


LOG = measurement("token_sensitivity", every=3, levels="0.2,0.3,0.4", patch=2, inputs=100)


def test_an_interrupted_training_measures_no_level_twice(tmp_path: Path) -> None:
    recipe = digits_recipe([LOG])
    whole = recipe.train()
    levels = whole.fitted.series("token_sensitivity.level")[1]
    assert levels == sorted(set(levels))
    assert len(levels) >= 3

    def stop(moment: Any) -> None:
        if moment.step == 20:
            raise RuntimeError

    path = tmp_path / "checkpoint"
    with pytest.raises(RuntimeError):
        recipe.train(keeper=Keeper(path, recipe.as_json(), seconds=0), step=stop)
    resumed = recipe.train(keeper=Keeper(path, recipe.as_json()))
    assert resumed.fitted.log == whole.fitted.log
    assert Recipe.from_json(recipe.as_json()) == recipe


def test_texts_are_measured_where_noise_can_enter() -> None:
    data = text_data("synthetic-paraphrases", train=64, test=32, length=24, vocabulary=300)
    log = measurement("token_sensitivity", every=4, levels="0.99", places="embedding", inputs=32)
    for name in ("roberta-small", "lstm-small"):
        found = text_recipe(data, name, batch=16, epochs=1, log=[log]).train().fitted.log
        assert 0 <= found[0]["token_sensitivity.noise 1 @embedding"] <= 1
        assert "token_sensitivity.level" not in found[1]
    assert np.isfinite(found[1]["token_sensitivity.accuracy"])


def test_noise_in_units_of_each_tokens_size() -> None:
    """Tokens that are scaled up, with noise in their units, change as the others do; with plain noise they do not."""
    inputs = torch.randn(200, 4, 3, generator=torch.Generator().manual_seed(2))
    model = linear(torch.ones(12))
    for normalise, alike in ((True, True), (False, False)):
        done = Disturbances((4.0,), normalise=normalise)
        small, large = (done.measured(model, scale * inputs, seed=0)["noise 4"].value for scale in (1, 100))
        assert (small == large) is alike
