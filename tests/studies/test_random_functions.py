from __future__ import annotations

import math

import numpy as np
import pytest
from studies.harness import run

from flipscope.lab import Result, Rows
from flipscope.studies.geometry.random_functions import POISSON, STUDY, Functions

(CLAIM,) = STUDY.claims


def _table(having: int, of: int, bits: int = 16) -> Rows:
    zeros = np.array([1] * having + [0] * (of - having))
    return STUDY.summarise([Result(Functions(bits, 0, of), {"zeros": zeros}, 0.0)])


def test_smoke_draws_functions_too_short_for_the_limit() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    (row,) = table
    assert sum(row["histogram"]) == row["count"] == STUDY.scales["smoke"].settings["functions"]
    assert row["having"] == row["count"] - row["histogram"][0]
    ((_, judgement),) = judgements
    assert (judgement.verdict, judgement.remedy) == ("undecided", "functions of 12 bits or more")
    assert [series.label for series in figures[0].panels[0].series] == ["8 bits", "Poisson(1)"]


def test_random_functions_are_those_of_the_cube() -> None:
    found, again = (STUDY.measure(Functions(8, block, 300), lambda done, total: None)["zeros"] for block in (3, 4))
    assert len(found) == 300
    assert found.tolist() != again.tolist()
    assert abs(found.mean() - 1) < 5 / math.sqrt(300)  # the expected number is 1 at every n
    assert sum(POISSON) == pytest.approx(1, abs=1e-3)


def test_claim() -> None:
    assert CLAIM.judge(_table(1264, 2000)).verdict == "reproduced"
    assert CLAIM.judge(_table(1100, 2000)).verdict == "contradicted"
    assert CLAIM.judge(_table(32, 50)).verdict == "undecided"
    # The longest functions count, and none that are too short.
    assert CLAIM.judge(Rows(_table(1264, 2000) + _table(0, 2000, bits=8))).verdict == "reproduced"
    assert CLAIM.judge(_table(1264, 2000, bits=8)).verdict == "undecided"


def test_scales_construct() -> None:
    for scale in STUDY.scales:
        plan = STUDY.scales[scale].settings
        trials = STUDY.checked_trials(scale)
        assert sum(trial.content()["count"] for trial in trials) == plan["functions"] * len(plan["bits"])
