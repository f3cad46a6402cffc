from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from studies.harness import smoke_run
from studies.traps.images import GOOD
from torch import nn

from flipscope.basics.errors import InputError
from flipscope.data.corruptions import CORRUPTIONS, corrupt
from flipscope.data.images import load_images
from flipscope.lab import Rows
from flipscope.lab.data_sets import recorded
from flipscope.studies.low_sensitivity.robustness import (
    ALL,
    CATEGORIES,
    STUDY,
    Corrupted,
    accuracy,
    clean_and_corrupted,
)
from flipscope.studies.low_sensitivity.vision import STUDY as VISION

STORED = {"cifar-10": "cifar-10@0123456789abcdef"}


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert {row["kind_of_model"] for row in table} == {"ViT", "ViT + penalty", "ViT + augmentation", "MLP"}
    assert {row["set"] for row in table} == {"digits"}
    assert {row["kind_of_model"] for row in table.where(moment="level")} >= {"ViT", "MLP"}
    for (which, severity), own in table.where(moment="end").by("kind_of_model", "severity"):
        single = [row["accuracy"] for row in own if row["corruption"] is not None]
        assert len(single) == 4, which
        assert own.where(category=ALL)[0]["accuracy"] == pytest.approx(np.mean(single)), severity
        assert len(own.where(corruption=None)) == 5
    assert [figure.name for figure in figures] == ["robustness", "robustness-sensitivity"]
    assert len(STUDY.provenance(table)) == 4


def test_models_are_those_of_vision() -> None:
    """Plain models have the recipes of `vision`, so that they are trained once."""
    for scale in ("smoke", "laptop", "paper"):
        with recorded(STORED if scale != "smoke" else {}):
            theirs = {(each.data, each.model, each.seed): each for each in VISION.trials(scale)
                      if each.variant == "base"}  # fmt: skip
            ours = [each for each in STUDY.trials(scale) if each.treatment == "none"]
        assert ours
        for trial in ours:
            other = theirs[trial.data, trial.model, trial.seed]
            for name in ("train", "epochs", "every", "inputs", "tokens", "draws", "optimiser", "layers", "heads"):
                assert getattr(trial, name) == getattr(other, name), name
    plain = STUDY.trials("smoke")[0]
    assert plain.recipe == VISION.trials("smoke")[0].recipe
    penalty, noise = (replace(plain, treatment=each).recipe for each in ("penalty", "augmentation"))
    assert [term.name for term in penalty.protocol.terms] == ["sensitivity"]
    assert [term.name for term in noise.protocol.terms] == ["augmentation"]
    assert len({plain.recipe.digest, penalty.digest, noise.digest}) == 3


def test_what_is_tested_are_corrupted_test_images() -> None:
    trial = replace(STUDY.trials("smoke")[0], test=20, corruptions=("contrast",), severities=(2,))
    clean, corrupted = clean_and_corrupted(trial)
    digits = load_images("digits")
    expected = corrupt(digits.x_test[:20], "contrast", 2, seed=trial.seed)
    assert clean.labels.tolist() == digits.y_test[:20].tolist()
    assert torch.equal(corrupted[0][0].bits, trial.images.scaled(torch.from_numpy(np.moveaxis(expected, -1, 1).copy())))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    right = (model(clean.bits).argmax(dim=1) == clean.labels).float().mean()
    assert accuracy(model, clean) == pytest.approx(float(right))


def test_an_unknown_corruption_is_refused() -> None:
    with pytest.raises(InputError, match="frost"):
        replace(STUDY.trials("smoke")[0], corruptions=("frost",))
    assert {CORRUPTIONS[name].category for name in Corrupted("a", "b", 0, 1, 1, 1, 1, 1, 1).corruptions} == set(
        CATEGORIES
    )


def test_figures_of_full_tables() -> None:
    table = GOOD["robustness"]()
    named = Rows({**row, "corruption": row["corruption"] and "fog"} for row in table)
    found, against = STUDY.draw(named)
    assert [panel.title for panel in found.panels][:2] == ["CIFAR-10, severity 1", "CIFAR-10, severity 2"]
    assert len(against.panels) == 2 * 5
    assert list(STUDY.draw(Rows())) == []
