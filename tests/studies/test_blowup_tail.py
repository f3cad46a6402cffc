from __future__ import annotations

import numpy as np
import pytest
from studies.harness import run

from flipscope.lab import Result, Rows
from flipscope.studies.geometry.blowup_tail import STUDY, Tail

EXPONENT, BOUND = STUDY.claims


def _tail(width: int, exponent: float, models: int = 10_000, layers: int = 1) -> Rows:
    largest = np.random.default_rng(width).pareto(exponent, models) + 1
    return STUDY.summarise([Result(Tail(width, layers, 0, models), {"largest": largest}, 0.0)])


def test_smoke_has_too_few_models_for_a_tail() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    assert [len(row["largest"]) for row in table] == [50, 50, 50]
    assert [judgement.verdict for _, judgement in judgements] == ["undecided", "reproduced"]
    assert [series.label for series in figures[0].panels[0].series] == ["D = 3, L = 1"]


@pytest.mark.parametrize(("exponent", "verdict"), [(4.0, "reproduced"), (3.3, "reproduced"), (1.5, "contradicted")])
def test_tail_exponent(exponent: float, verdict: str) -> None:
    assert EXPONENT.judge(_tail(4, exponent)).verdict == verdict


def test_one_shape_with_a_heavy_tail_contradicts() -> None:
    found = EXPONENT.judge(Rows(_tail(4, 4.0) + _tail(6, 1.5)))
    assert found.verdict == "contradicted"
    assert "D = 6, L = 1" in found.quantity


def test_few_models_decide_nothing() -> None:
    few = EXPONENT.judge(_tail(4, 3.0, 1000))
    assert (few.verdict, few.remedy) == ("undecided", "at least 2,000 models per shape")
    assert BOUND.judge(_tail(4, 3.0, 99)).verdict == "undecided"
    assert {judgement.verdict for _, judgement in STUDY.judge(Rows())} == {"undecided"}


def test_a_tail_above_its_bound_contradicts() -> None:
    heavy = Rows({**row, "largest": [1000.0 * value for value in row["largest"]]} for row in _tail(6, 1.0))
    assert BOUND.judge(heavy).verdict == "contradicted"
    assert BOUND.judge(_tail(4, 3.0)).verdict == "reproduced"


def test_blowups_come_from_the_seed() -> None:
    found = STUDY.measure(Tail(4, 1, 3, 5), lambda done, total: None)["largest"]
    assert found.shape == (5,)
    assert (found > 0).all()
    again = STUDY.measure(Tail(4, 1, 3, 5), lambda done, total: None)["largest"]
    assert (found == again).all()
    assert not (found == STUDY.measure(Tail(4, 1, 4, 5), lambda done, total: None)["largest"]).any()


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 3,
        "demo": 4,
        "laptop": 48,
        "paper": 4000,
    }
