from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from studies.harness import smoke_run

from flipscope.lab import Claim, Rows
from flipscope.studies.hardness.length_generalization import STUDY, Lengths, judged_at

PLAN = {"shortest": 4, "longest": 12, "width": 64, "batch": 128, "steps": 100, "strings": 1000}
LENGTHS = [*range(4, 13), 16, 24, 32]
FAILS = [claim for claim in STUDY.claims if " fails " in claim.name]
HOLDS = [claim for claim in STUDY.claims if " does not fail " in claim.name]


def _table(accuracy: float, models: int = 6, **other: Any) -> Rows:
    """Models of every task that are right on so many strings of 24 bits, and on all others of other lengths."""
    rows = Rows()
    for kind in sorted({(trial.task, trial.positions) for trial in STUDY.trials("laptop")}):
        for seed in range(models):
            right = [round(1000 * (accuracy if length == 24 else 1.0)) for length in LENGTHS]
            shares = {"right": right, "asked": [1000] * len(LENGTHS), "accuracy": [count / 1000 for count in right]}
            about = {"lengths": LENGTHS, "kept": True, "relative": [0.001] * len(LENGTHS)}
            rows.append({**Lengths(*kind, seed, **PLAN).content(), **about, **shares, **other})
    return rows


@pytest.mark.parametrize("claim", FAILS, ids=lambda claim: claim.name)
@pytest.mark.parametrize(("accuracy", "verdict"), [(0.5, "reproduced"), (0.6, "reproduced"), (0.61, "contradicted")])
def test_failing_is_judged_at_twice_the_length(claim: Claim, accuracy: float, verdict: str) -> None:
    assert claim.judge(_table(accuracy)).verdict == verdict


@pytest.mark.parametrize("claim", HOLDS, ids=lambda claim: claim.name)
@pytest.mark.parametrize(("accuracy", "verdict"), [(1.0, "reproduced"), (0.9, "reproduced"), (0.89, "contradicted")])
def test_not_failing_is_judged_at_twice_the_length(claim: Claim, accuracy: float, verdict: str) -> None:
    judged = claim.judge(_table(accuracy))
    assert judged.verdict == verdict
    assert "at 2 times the longest length of the training, share with accuracy at least 0.9" in judged.quantity


def test_most_models_decide_and_a_single_one_does_not() -> None:
    mixed = Rows(_table(1.0, models=8) + _table(0.5, models=1))
    for claim in HOLDS:
        judged = claim.judge(mixed)
        assert judged.verdict == "reproduced"
        assert judged.note == "8 of 9 models at 24 bits, accuracy from 0.50 to 1.00"
    few = [claim.judge(_table(1.0, models=3)) for claim in HOLDS]
    assert {judged.verdict for judged in few} == {"undecided"}
    assert {judged.remedy for judged in few} == {"at least 6 models"}
    half = Rows(_table(1.0, models=5) + _table(0.5, models=5))
    assert {claim.judge(half).verdict for claim in STUDY.claims} == {"undecided"}


def test_models_that_did_not_learn_are_counted_and_say_nothing() -> None:
    lost = _table(0.5, models=2, kept=False)
    assert {claim.judge(lost).verdict for claim in STUDY.claims} == {"undecided"}
    assert HOLDS[0].judge(lost).quantity == "no models: kept models, majority, sinusoidal positions"
    both = Rows(_table(1.0) + lost)
    assert {claim.judge(both).verdict for claim in HOLDS} == {"reproduced"}
    assert "parity, learned: 6 of 8" in STUDY.provenance(both)[0]
    labels = {series.label for panel in STUDY.draw(both)[0].panels for series in panel.series}
    assert {"parity", "parity, not kept"} <= labels


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == len(STUDY.checked_trials("smoke")) == 9
    assert len(judgements) == 7
    assert len(figures[0].panels) == 4
    for row in table:
        assert row["lengths"] == [2, 3, 4, 6, 8]
        assert row["lengths"][judged_at(row)] == 6


def test_numbers_are_those_of_the_model() -> None:
    [trial] = [each for each in STUDY.trials("smoke") if (each.task, each.positions) == ("majority", "sinusoidal")]
    found = trial.measure(lambda done, total: None)
    model = trial.recipe.train().model
    bits = np.array([[index >> place & 1 for place in range(6)] for index in range(64)], np.uint8)
    with torch.no_grad():
        answers = model(torch.from_numpy(bits)).double().numpy().reshape(-1)
    wanted = bits.sum(axis=1) > 3
    place = found["lengths"].index(6)
    assert found["right"][place] == int(((answers > 0.5) == wanted).sum())
    assert found["asked"][place] == 64
    assert found["relative"][place] == pytest.approx(4 * float(((answers - wanted) ** 2).mean()), rel=1e-5)


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 9,
        "laptop": 54,
        "paper": 90,
    }
    assert {trial.seed for trial in STUDY.trials("laptop")} == set(range(1_000, 1_006))
    assert all(trial.recipe.seed == trial.seed for trial in STUDY.trials("paper")[::7])
