"""Pairs of models by seed and training accuracy, from made-up tables and a small training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flipscope.basics.errors import InputError
from flipscope.lab import Row, Rows
from flipscope.studies.low_sensitivity.shared import (
    COLUMNS,
    checkpoint_columns,
    checkpoint_rows,
    end_columns,
    end_gap,
    gap,
    gap_change,
    if_present,
    joined,
    paired,
    paired_ends,
    sensitivity_map,
    watched,
)
from flipscope.training.recipes.low_sensitivity import image_recipe
from flipscope.training.token_measures import Disturbances, chosen_examples

CNN, VIT = {"model": "cnn"}, {"model": "vit"}


def checkpoint(model: str, seed: int, level: float | None, sensitivity: float, **other: Any) -> Row:
    moment = "end" if level is None else "level"
    return {"model": model, "seed": seed, "moment": moment, "level": level, "accuracy": (level or 0.95) + 0.01,
            "sensitivity": sensitivity, "kind": "noise", **other}  # fmt: skip


def test_models_are_compared_at_common_levels_only() -> None:
    rows = Rows(
        [
            checkpoint("cnn", 1, 0.5, 0.5),
            checkpoint("cnn", 1, 0.8, 0.3),
            checkpoint("cnn", 1, 0.9, 0.2),
            checkpoint("vit", 1, 0.8, 0.1),
            checkpoint("vit", 1, 0.9, 0.1, accuracy=0.99),  # jumped far beyond the level
            checkpoint("cnn", 2, 0.5, 0.5),
            checkpoint("vit", 2, 0.8, 0.1),
            checkpoint("vit", 3, 0.8, 0.0),
            checkpoint("cnn", 3, 0.8, 0.0),
            {**checkpoint("cnn", 4, None, 0.9), "moment": "start"},
            {**checkpoint("vit", 4, None, 0.1), "moment": "start"},
        ]
    )
    found = paired(rows, CNN, VIT)
    assert [(row["seed"], row["levels"]) for row in found] == [(1, [0.8]), (3, [0.8])]
    assert found[0]["gap"] == pytest.approx(0.2)
    assert found[0]["relative"] == pytest.approx(0.5)
    assert (found[1]["gap"], found[1]["relative"]) == (0, 0)
    assert paired(rows, CNN, VIT, near=0.1)[0]["levels"] == [0.8, 0.9]


def test_a_selection_of_several_models_is_an_error() -> None:
    rows = Rows(checkpoint("cnn", 1, 0.8, 0.3, kind=kind) for kind in ("noise", "whole"))
    with pytest.raises(ValueError, match="one kind of model"):
        paired(rows, CNN, VIT)


def test_ends_are_paired_by_seed() -> None:
    rows = Rows(checkpoint(model, seed, None, share) for model, seed, share in (
        ("cnn", 1, 0.3), ("cnn", 2, 0.5), ("vit", 2, 0.1), ("vit", 3, 0.2)))  # fmt: skip
    assert [(row["seed"], row["gap"]) for row in paired_ends(rows, CNN, VIT)] == [(2, 0.4)]


def test_ends_can_be_matched_by_training_accuracy() -> None:
    accuracies = {("cnn", 1): 0.99, ("vit", 1): 0.97, ("cnn", 2): 0.99, ("vit", 2): 0.9}
    rows = Rows(checkpoint(model, seed, None, 0.3, accuracy=0.7, learned=learned)  # on other inputs, all alike
                for (model, seed), learned in accuracies.items())  # fmt: skip
    assert [row["seed"] for row in paired_ends(rows, CNN, VIT)] == [1, 2]
    assert [row["seed"] for row in paired_ends(rows, CNN, VIT, accuracy="learned")] == [1]
    assert "paired by seed and training accuracy" in (end_gap("", CNN, VIT, accuracy="learned") > 0).text


def models(cnn: float, vit: float, whole: float = 0.0, seeds: int = 5, level: float | None = 0.8) -> Rows:
    """Models of several seeds: the CNN less the ViT has this sensitivity to noise, and its share `whole` of it."""
    found = Rows()
    for seed in range(seeds):
        noise = 0.01 * np.sin(3 * seed)
        for model, share in (("cnn", cnn), ("vit", vit)):
            own = share + noise + (0.005 * np.cos(seed) if model == "cnn" else 0)
            found.append(checkpoint(model, seed, level, own))
            found.append(checkpoint(model, seed, level, own * whole, kind="whole"))
    return found


NOISE, WHOLE = {"kind": "noise"}, {"kind": "whole"}


def test_gaps_are_judged_over_seeds() -> None:
    larger = gap("CNN less ViT", CNN | NOISE, VIT | NOISE) > 0
    assert "paired by seed and training accuracy" in larger.text
    assert larger(models(0.3, 0.1)).verdict == "reproduced"
    assert larger(models(0.1, 0.3)).verdict == "contradicted"
    assert larger(models(0.1, 0.1)).verdict == "undecided"
    assert larger(models(0.3, 0.1, seeds=2)).verdict == "undecided"
    assert larger(models(0.3, 0.1, level=None)).verdict == "undecided"  # ends are not matched
    assert (end_gap("at the end", CNN | NOISE, VIT | NOISE) > 0)(models(0.3, 0.1, level=None)).verdict == "reproduced"


def test_gaps_under_two_disturbances_are_compared_by_seed() -> None:
    larger = gap_change("with noise on a token less on all", CNN, VIT, NOISE, WHOLE) > 0
    assert larger(models(0.3, 0.1, whole=0.5)).verdict == "reproduced"
    assert larger(models(0.3, 0.1, whole=1.5)).verdict == "contradicted"
    relative = gap_change("relative", CNN, VIT, NOISE, WHOLE, part="relative") > 0
    assert relative(models(0.3, 0.1, whole=0.5)).verdict != "reproduced"  # the same share of either


def test_checkpoints_of_a_training() -> None:
    log = watched((0.3, 0.5, 0.7), 5, variances=(1.0, 4.0), whole_variances=(0.1,), patch=2, inputs=80, seed=7)
    recipe = image_recipe("digits", "mlp-small", 7, batch=300, epochs=6, log=[log])
    trained = recipe.train()
    known, _ = chosen_examples(recipe.data.training_set(), 80, 7)  # type: ignore[union-attr]
    done = Disturbances((1.0, 4.0), (0.1,), patch=2)
    end = end_columns(trained.model, known, done, step=trained.fitted.steps, seed=7)
    rows = Rows(checkpoint_rows(joined(checkpoint_columns(trained.fitted.log), end), {"model": "mlp", "seed": 7}))
    assert set(rows[0]) == {"model", "seed", *COLUMNS}
    assert [row["moment"] for row in rows.where(kind="whole")][:2] == ["start", "level"]
    assert len(rows.where(moment="end")) == 3
    assert rows[-1]["step"] == 30
    for level, own in rows.where(moment="level").by("level"):
        assert len(own) == 3
        assert all(row["accuracy"] >= level for row in own)
    losses = [row["loss"] for row in rows.where(kind="whole")]
    assert losses == sorted(losses, reverse=True)
    last = rows.where(kind="noise", variance=4.0, moment="end")[0]
    assert last["half_width"] > 0
    # The log's checkpoints and the end are measured alike.
    again = checkpoint_columns([{"step": 30, **{f"token_sensitivity.{name}": value for name, value in (
        log.made(_around(recipe))(trained.model, [{"level": 0.0}])).items()}}])  # fmt: skip
    assert again["sensitivity"] == end["sensitivity"]
    shares = sensitivity_map(trained.model, known.bits[:2], variance=4.0, draws=3, seed=7, feature_mask=_patches())
    assert shares.shape == (2, 16)
    assert set((3 * shares).round(9).ravel()) <= {0, 1, 2, 3}


def _patches() -> Any:
    from flipscope.adapters.disturbing import patches

    return patches(2)


def _around(recipe: Any) -> Any:
    from flipscope.training.named import Around

    return Around(recipe.protocol.aim, "numbers", 64, [], recipe.data.draw_inputs, recipe.data.training_set)


def test_figures_are_left_out_where_data_are_absent() -> None:
    def absent() -> None:
        raise InputError("not here")

    assert if_present(absent) is None
    assert if_present(lambda: 3) == 3
