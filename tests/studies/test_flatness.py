from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from studies.harness import smoke_run
from studies.traps.images import GOOD
from torch import nn

from flipscope.lab import Rows
from flipscope.lab.data_sets import recorded
from flipscope.studies.low_sensitivity.flatness import MEASURES, STD, STUDY, flat
from flipscope.studies.low_sensitivity.robustness import STUDY as ROBUSTNESS


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert [row["kind_of_model"] for row in table] == ["ViT", "ViT + penalty", "MLP"]
    for row in table:
        assert row["test_gap"] == pytest.approx(row["train_accuracy"] - row["test_accuracy"])
        assert row["shop"] < row["shop_code"]  # more noise, more change
        assert row["paper_shop"] is None  # digits are not CIFAR-10
    assert [figure.name for figure in figures] == ["flatness", "flatness-gap"]
    assert len(figures[0].panels) == len(MEASURES)


def test_measures_of_a_linear_model() -> None:
    """With weights theta, ShOp is std sqrt(2 / pi) mean |x| for each output, and biases add one to |x|^2."""
    images = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))
    trial = replace(STUDY.trials("smoke")[0], perturbations=400)
    found = flat(trial, model, images, torch.zeros(30, dtype=torch.long))
    lengths = np.sqrt(images.square().sum(dim=(1, 2, 3)).numpy() + 1)
    assert found["shop"] == pytest.approx(10 * STD * np.sqrt(2 / np.pi) * lengths.mean(), rel=0.05)
    outputs = model(images).detach()
    size = (outputs - outputs.mean(dim=1, keepdim=True)).abs().sum(dim=1).mean()
    assert found["output_size"] == pytest.approx(float(size), rel=1e-5)
    assert found["relative_shop"] == pytest.approx(found["shop"] / found["output_size"])
    assert found["shpred"] < found["shpred_code"]


def test_models_are_those_of_robustness() -> None:
    with recorded({"cifar-10": "cifar-10@0123456789abcdef"}):
        for scale in ("laptop", "paper"):
            theirs, ours = (
                {tuple(getattr(each, name) for name in (
                    "data", "model", "seed", "train", "epochs", "every", "inputs", "tokens", "draws", "optimiser",
                    "layers", "heads", "treatment",
                )) for each in study.trials(scale)}
                for study in (ROBUSTNESS, STUDY)
            )  # fmt: skip
            assert ours == theirs


def test_the_papers_values_stand_beside_the_measured_ones() -> None:
    trial = replace(STUDY.trials("smoke")[0], data="cifar-10@0123456789abcdef", treatment="penalty")
    outcome = {"train_accuracy": 0.9, "test_accuracy": 0.5, "train_loss": 0.3, "test_loss": 1.0}
    (row,) = STUDY.rows(trial, outcome)
    assert (row["paper_shop"], row["paper_shpred"]) == (9.025, 0.3982)
    assert row["loss_gap"] == pytest.approx(0.7)


def test_figures_of_full_tables() -> None:
    sharp, gaps = STUDY.draw(GOOD["flatness"]())
    assert len(sharp.panels) == 2 * len(MEASURES)
    assert len(gaps.panels) == 2
    assert list(STUDY.draw(Rows())) == []
