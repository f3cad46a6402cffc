from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.lab import Result, Rows
from flipscope.studies.geometry.random_functions import POISSON, STUDY, Functions

(CLAIM,) = STUDY.claims


def _table(law: Sequence[float], of: int, bits: int = 16) -> Rows:
    """So many functions, whose counts have this law as nearly as whole numbers can."""
    ends = np.rint(np.cumsum(law) / np.sum(law) * of).astype(int)
    zeros = np.repeat(np.arange(len(law)), np.diff(ends, prepend=0))
    return STUDY.summarise([Result(Functions(bits, 0, of), {"zeros": zeros}, 0.0)])


def test_smoke_draws_functions_too_short_for_the_limit() -> None:
    table, judgements, figures = smoke_run(STUDY)
    (row,) = table
    assert sum(row["histogram"]) == row["count"] == STUDY.scales["smoke"].settings["functions"]
    ((_, judgement),) = judgements
    assert (judgement.verdict, judgement.remedy) == ("undecided", "functions of 12 bits or more")
    assert [series.label for series in figures[0].panels[0].series] == ["8 bits", "Poisson(1)"]


def test_random_functions_are_those_of_the_cube() -> None:
    found, again = (Functions(8, block, 300).measure(lambda done, total: None)["zeros"] for block in (3, 4))
    assert len(found) == 300
    assert found.tolist() != again.tolist()
    assert abs(found.mean() - 1) < 5 / math.sqrt(300)  # the expected number is 1 at every n
    assert sum(POISSON) == pytest.approx(1, abs=1e-3)


def test_claim() -> None:
    assert CLAIM.judge(_table(POISSON, 4000)).verdict == "reproduced"
    assert CLAIM.judge(_table(POISSON, 50)).verdict == "undecided"
    # The longest functions count, and none that are too short.
    assert CLAIM.judge(Rows(_table(POISSON, 4000) + _table([1.0], 4000, bits=8))).verdict == "reproduced"
    assert CLAIM.judge(_table(POISSON, 4000, bits=8)).verdict == "undecided"


NONE = math.exp(-1)
WRONG = {
    "never two": [NONE, 1 - NONE],
    "geometric": [NONE * (1 - NONE) ** k for k in range(40)],
    "one or three": [NONE, (1 - NONE) / 2, 0, (1 - NONE) / 2],
    "a longer tail": [NONE, POISSON[1], POISSON[2], POISSON[3], 0.009, 0.0, 0.0, 0.0, 0.01],
}


@pytest.mark.parametrize("law", WRONG)
def test_a_wrong_shape_contradicts_though_as_many_functions_have_some(law: str) -> None:
    table = _table(WRONG[law], 4000)
    assert table[0]["histogram"][0] == round(4000 * NONE)
    assert CLAIM.judge(table).verdict == "contradicted"


def test_other_means_contradict() -> None:
    for mean in (0.9, 1.1):
        law = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(10)]
        assert CLAIM.judge(_table(law, 4000)).verdict == "contradicted"


def test_the_interval_and_the_test_are_wrong_as_seldom_as_they_say() -> None:
    stream, wrong = np.random.default_rng(0), 0
    for _ in range(300):
        zeros = stream.poisson(1, 2000)
        table = STUDY.summarise([Result(Functions(16, 0, 2000), {"zeros": zeros}, 0.0)])
        wrong += CLAIM.judge(table).verdict == "contradicted"
    assert wrong <= 20  # of 300, where 7.5 are expected and 20 are met once in ten thousand runs


def test_scales_construct() -> None:
    for scale in STUDY.scales:
        plan = STUDY.scales[scale].settings
        trials = STUDY.checked_trials(scale)
        assert sum(trial.content()["count"] for trial in trials) == plan["functions"] * len(plan["bits"])
