from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from studies.harness import smoke_run
from studies.traps.images import GOOD

from flipscope.data.finding import data_in
from flipscope.figures import ImagePanel
from flipscope.lab import Rows
from flipscope.lab.data_sets import recorded
from flipscope.models.config import TransformerConfig
from flipscope.studies.low_sensitivity.image_models import FAMILIES, ORDER, SETTINGS
from flipscope.studies.low_sensitivity.vision import STUDY, Vision
from flipscope.training.recipe import Recipe


def test_smoke_is_on_digits_under_their_name() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert {row["set"] for row in table} == {"digits"}
    assert {row["moment"] for row in table} == {"start", "level", "end", "map"}
    assert all(row["paper_end"] is None for row in table.where(moment="end"))  # the paper has no digits
    checkpoints = table.where(seed=0, family="CNN", main=True)
    assert len(checkpoints) <= 6
    assert [row["level"] for row in checkpoints][1:-1] == sorted(row["level"] for row in checkpoints[1:-1])
    assert [figure.name for figure in figures] == [
        "vision", "vision-end", "vision-variance", "vision-whole", "vision-maps",
    ]  # fmt: skip
    texts = " ".join([STUDY.scales["smoke"].note, *STUDY.provenance(table)])
    assert "digits" in texts
    assert all("CIFAR" not in sentence for sentence in STUDY.provenance(table))


def test_heat_maps_are_drawn_only_where_the_images_are(tmp_path: Path) -> None:
    table, _, figures = smoke_run(STUDY)
    panels = figures[-1].panels
    assert len(panels) == 3
    assert all(isinstance(panel, ImagePanel) for panel in panels)
    absent = Rows({**row, "data": "svhn@0123456789abcdef", "set": "svhn"} for row in table)
    with data_in(tmp_path):
        assert "vision-maps" not in [figure.name for figure in STUDY.draw(absent)]
    # What is stored are shares of draws and the numbers of images, no pixels.
    row = table.where(moment="map")[0]
    assert len(row["map"]) == row["maps"] == 1
    assert set(np.round(16 * np.ravel(row["map"]), 6)) <= set(range(17))


def test_without_data_all_scales_are_of_digits() -> None:
    for scale in STUDY.scales:
        assert {trial.set for trial in STUDY.checked_trials(scale) if isinstance(trial, Vision)} == {"digits"}


STORED = {name: f"{name}@0123456789abcdef" for name in SETTINGS if name != "digits"}


def test_plans_with_data() -> None:
    with recorded(STORED):
        laptop, paper = (STUDY.trials(scale) for scale in ("laptop", "paper"))
        svhn = STUDY.checked_trials("laptop+svhn=vit-tiny,resnet-small")
        deep = STUDY.checked_trials("laptop+variants.depth=4,6")
        fashion = STUDY.checked_trials("laptop+cifar-10=none")
    assert {trial.set for trial in laptop} == {"fashion-mnist", "cifar-10"}
    assert {FAMILIES[trial.model] for trial in laptop} >= {"ViT", "CNN", "MLP", "ConvMixer", "ResNet"}
    assert {trial.set for trial in paper} == set(STORED)
    assert {trial.variant for trial in paper} == {"base", "depth", "heads", "optimiser"}
    assert {trial.set for trial in fashion if isinstance(trial, Vision)} == {"fashion-mnist"}
    assert len(svhn) == len(laptop) + 2 * 6
    assert len(deep) == len(laptop) + 2 * 6
    assert {FAMILIES[trial.model] for trial in paper} == set(ORDER)
    assert {trial.seed for trial in laptop if trial.maps} == {1_000}


def test_a_recipe_has_the_sizes_of_its_trial() -> None:
    trial = next(trial for trial in STUDY.trials("smoke") if trial.model == "vit-tiny")
    recipe = trial.recipe
    assert isinstance(recipe.model, TransformerConfig)
    assert (recipe.model.layers, recipe.model.heads) == (1, 1)
    assert recipe.data.train == 300
    assert dict(recipe.log[0].settings)["levels"] == "0.3,0.5,0.7,0.9"
    assert Recipe.from_json(recipe.as_json()) == recipe
    paper = next(trial for trial in STUDY.trials("paper") if trial.model == "vit-small")
    assert isinstance(paper.recipe.model, TransformerConfig)
    assert (paper.recipe.model.layers, paper.recipe.model.heads) == (8, 32)
    assert paper.recipe.data.train == 1_437  # all of the digits
    assert paper.recipe.protocol.optimiser == "sgd"


def test_the_papers_values_stand_beside_the_ends() -> None:
    trial = Vision("cifar-10@0123456789abcdef", "resnet-small", 0, 5, 1, 1, 1, 1, 1)
    columns = {"step": 3, "moment": "end", "level": None, "accuracy": 0.9, "loss": 0.1, "place": "",
               "sensitivity": 0.1, "half_width": 0.02}  # fmt: skip
    outcome = {name: [value] * 3 for name, value in columns.items()}
    outcome |= {"kind": ["noise", "noise", "whole"], "variance": [1.0, 4.0, 0.025], "test_accuracy": 0.5}
    assert [row["paper_end"] for row in STUDY.rows(trial, outcome)] == [0.0827, None, 0.0172]


def test_figures_of_full_tables() -> None:
    table = Rows({**row, "paper_end": None, "data": row["set"]} for row in GOOD["vision"]())
    figures = {figure.name: figure for figure in STUDY.draw(table)}
    assert set(figures) == {"vision", "vision-end", "vision-variance", "vision-whole"}
    assert len(figures["vision"].panels) == len(SETTINGS)
    reached = ", ".join(f"{level:g} by 6" for level in SETTINGS["cifar-10"].levels) + " of the models"
    assert STUDY.provenance(table)[0] == f"CIFAR-10, ConvMixer: training accuracy {reached}"
    far = Rows({**row, "accuracy": 0.5 * (row["family"] == "ViT")} for row in table)
    assert "CIFAR-10: ResNet and ViT have no level in common" in STUDY.provenance(far)


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_claims_that_a_scale_cannot_decide_are_named(scale: str) -> None:
    """Without models of their kinds, claims are left to the paper scale."""
    later = {claim.name for claim in STUDY.claims if claim.decided_from == "paper"}
    assert later >= {"the depth of a ViT does not matter", "a ViT is less sensitive than a ResNet on SVHN"}
    with recorded(STORED):
        there = {(trial.set, FAMILIES[trial.model], trial.variant) for trial in STUDY.trials(scale)}
    needed = {
        "a ViT is less sensitive than a DenseNet": ("cifar-10", "DenseNet", "base"),
        "a ViT is less sensitive than a ResNet on SVHN": ("svhn", "ResNet", "base"),
        "the depth of a ViT does not matter": ("cifar-10", "ViT", "depth"),
    }
    assert all((place in there) == (scale == "paper") for place in needed.values())
