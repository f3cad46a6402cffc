from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from studies.harness import smoke_run
from studies.trained import CLAIMS, check_rows, models, row, verdict

from flipscope.lab import Rows
from flipscope.studies.geometry.random_languages import STUDY


def test_failures() -> None:
    name = "random languages that are not learned: sensitivities at 0"
    low = [row("random", 0.6, {0: 0.99, 10: 0.01}, seed=seed) for seed in range(60)]
    assert verdict(name, *low) == "reproduced"
    few = CLAIMS[name].judge(Rows(low[:3]))
    assert (few.verdict, few.remedy) == ("undecided", "at least 36 models")
    high = [row("random", 0.6, {9: 1.0}, seed=seed) for seed in range(3)]  # 9 of 40, on average
    assert verdict(name, *high) == "contradicted"
    assert verdict(name, *models("parity", {0: 1.0}, count=60)) == "undecided"  # of Parity something else is said
    assert verdict(name, row("random", 1.0, {0: 1})) == "undecided"


def test_the_bias_persists_in_models_that_learned() -> None:
    name = "random languages that are learned: the bias persists"
    for sensitivity, expected in ((4, "reproduced"), (10, "undecided"), (18, "contradicted")):
        learned = [row("random", 1.0, {sensitivity: 1.0}, seed=seed) for seed in range(60)]
        assert verdict(name, *learned) == expected
    assert verdict(name, row("random", 1.0, {4: 1.0})) == "undecided"
    missing = CLAIMS[name].judge(Rows([row("random", 0.6, {0: 1}), row("first", 1.0, {1: 1})]))
    assert (missing.verdict, missing.quantity) == ("undecided", "no models: models that learned")


@pytest.mark.parametrize(("length", "sensitivity", "near"), [(40, 2, 1), (40, 3, 0), (100, 5, 1), (100, 6, 0)])
def test_near_0_is_a_part_of_the_length(length: int, sensitivity: int, near: float) -> None:
    trial = replace(STUDY.trials("laptop")[0], length=length)
    outcome = dict.fromkeys(("correct", "tested", "epochs", "steps", "stopped", "near_ties"), 1)
    found = STUDY.row(trial, {**outcome, "counts": np.full(10, sensitivity)})
    assert (found["near_share"], found["relative"]) == (near, 2 * sensitivity / length)


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    check_rows(table)
    assert [(each["language"], each["own_profile"]) for each in table] == [("random", None)] * 2
    for each in table:
        assert each["tested"] == each["train"]  # App. F.2: evaluated on the training set
        assert each["near_share"] == each["profile"][0] / 200  # of 16 bits only 0 is below 16/20
    assert len(judgements) == len(STUDY.claims)
    assert len(figures[0].panels) == 1
