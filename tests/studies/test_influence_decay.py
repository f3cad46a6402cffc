from __future__ import annotations

import numpy as np
import pytest
import torch
from studies.geometry_tables import influences
from studies.harness import smoke_run

from flipscope.basics.seeds import generators, random_strings
from flipscope.lab import Claim, Rows
from flipscope.models.init import initialise
from flipscope.models.presets import recognizer
from flipscope.models.transformer import Transformer
from flipscope.studies.geometry.influence_decay import LAYERS, STUDY, WIDTH, Decay

MEAN, LARGEST, CONSTANT, BLOWUP, FREE_MEAN, FREE_LARGEST = STUDY.claims


@pytest.mark.parametrize(
    ("slope", "noise", "verdict"),
    [(-1.0, 0.01, "reproduced"), (-0.5, 0.01, "undecided"), (-1.5, 0.01, "reproduced"), (-1.0, 1.0, "undecided")],
)
def test_slope(slope: float, noise: float, verdict: str) -> None:
    assert MEAN.judged(influences(slope, noise)).verdict == verdict
    assert LARGEST.judged(influences(slope, noise)).verdict == verdict


def test_a_slower_fall_says_that_the_theorem_is_asymptotic() -> None:
    found = LARGEST.judged(influences(-0.5))
    assert found.note == "lengths up to 64; the theorem may set in at a longer length"
    assert found.remedy == "longer strings"
    assert found.measured == pytest.approx(-0.5, abs=0.02)


def test_each_part_names_its_setting() -> None:
    table, _, _ = smoke_run(STUDY)
    named = [part.quantity.partition("eps = ")[2] for part in MEAN.judged(table).parts]
    assert named == ["1, weights up to 0.1", "1, weights up to 0.25", "1, weights up to 1"]


def test_few_models_or_no_eps_decide_nothing() -> None:
    assert MEAN.judged(influences(-1.0, models=4)).verdict == "undecided"
    assert MEAN.judged(influences(-1.0, eps=0.0)).verdict == "undecided"
    assert BLOWUP.judge(influences(-1.0, eps=0.0)).verdict == "undecided"


def test_a_broken_bound_contradicts() -> None:
    assert BLOWUP.judge(influences(-1.0)).verdict == "reproduced"
    assert BLOWUP.judge(influences(-1.0, beta=4.1)).verdict == "contradicted"  # (1 + 1)^2
    assert CONSTANT.judge(influences(-1.0)).verdict == "reproduced"
    assert CONSTANT.judge(influences(-1.0, bound=1e-9)).verdict == "contradicted"


def test_a_bound_above_the_diameter_is_not_judged() -> None:
    vacuous = influences(-1.0, bound=1e9)
    assert CONSTANT.judge(vacuous).verdict == "undecided"
    assert CONSTANT.judge(Rows({**row, "largest": 1e12} for row in vacuous)).verdict == "undecided"
    mixed = CONSTANT.judge(Rows(vacuous + influences(-1.0)))
    assert mixed.verdict == "reproduced"
    assert mixed.note.startswith("0 of 36 cases")
    assert mixed.note.endswith("in 36 of 72 cases the bound says nothing")
    assert CONSTANT.judge(Rows(vacuous + influences(-1.0, models=6))).verdict == "undecided"  # 18 cases are few
    assert CONSTANT.judge(Rows(vacuous + influences(-1.0, models=1, largest=3.1))).verdict == "contradicted"


@pytest.mark.parametrize("claim", [FREE_MEAN, FREE_LARGEST], ids=["mean", "largest"])
def test_without_eps_a_slower_fall_contradicts(claim: Claim) -> None:
    assert claim.judge(influences(-1.0, eps=0.0)).verdict == "reproduced"
    assert claim.judge(influences(-0.5, eps=0.0)).verdict == "contradicted"
    assert claim.judge(influences(-1.0, 1.0, eps=0.0)).verdict == "undecided"
    assert claim.judge(influences(-1.0)).verdict == "undecided"  # rows with eps > 0 say nothing of it


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == len(STUDY.checked_trials("smoke"))
    verdicts = {claim.name: judgement.verdict for claim, judgement in judgements}
    assert [verdicts[claim.name] for claim in (CONSTANT, BLOWUP)] == ["undecided", "reproduced"]
    assert len(figures[0].panels) == 8


def test_influence_is_that_of_the_definition() -> None:
    trial = Decay(1e-2, 0.5, 9, 4, 2)
    found = trial.measure(lambda done, total: None)
    model = (
        initialise(Transformer(recognizer(WIDTH, LAYERS, eps=1e-2)), "uniform", 4, scale=0.5)
        .double()
        .requires_grad_(False)
    )
    (stream,) = generators(4, 1)
    influence = np.empty((2, 9))
    for row, string in enumerate(random_strings(stream, 2, 9)):
        base = model.states(torch.from_numpy(string[None].astype(np.int64)))[-1][0, -1]
        for position in range(9):
            flipped = string.copy()
            flipped[position] ^= 1
            state = model.states(torch.from_numpy(flipped[None].astype(np.int64)))[-1][0, -1]
            influence[row, position] = (state - base).norm().item()
    assert found["mean"] == pytest.approx(influence.mean(), rel=1e-9)
    assert found["largest"] == pytest.approx(influence.max(), rel=1e-9)
    assert influence.max(axis=1).min() < 0.999 * influence.max(), "the strings differ"


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 36 * 3,
        "laptop": 24 * 5 * 4 * 3,
        "paper": 60 * 8 * 4 * 3,
    }
