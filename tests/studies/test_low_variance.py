from __future__ import annotations

import math
from typing import Any

import pytest
from studies.harness import run

from flipscope.lab import Rows
from flipscope.studies.geometry.low_variance import STUDY, Variance

PRINTED, CORRECTED = STUDY.claims


def _variance(width: int, ratio: float, hits: int, samples: int = 10_000) -> dict[str, Any]:
    trial = Variance(width, ratio, 1.0, "zero", 0, samples)
    return STUDY.row(trial, {"eta": ratio / math.sqrt(width), "hits": hits})


def test_smoke_measures_what_the_lemma_says() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    verdicts = {claim.name: judgement.verdict for claim, judgement in judgements}
    assert verdicts["printed bound on small variance"] == "contradicted"  # at D = 2, where it is off by sqrt(2)
    assert verdicts["corrected bound on small variance"] == "reproduced"
    assert len(table) == len(STUDY.checked_trials("smoke"))
    assert [len(figure.panels[0].series) for figure in figures] == [4]


def test_a_probability_is_counted_right() -> None:
    # D = 2: the variance of (a, b) is (a - b)^2 / 4, so P(variance < eta^2) = P(|a - b| < 2 eta) for a, b in [-1, 1].
    trial = Variance(2, 0.5, 1.0, "zero", 0, 200_000)
    found = STUDY.measure(trial, lambda done, total: None)
    eta = 0.5 / math.sqrt(2)
    assert found["eta"] == pytest.approx(eta)
    assert found["hits"] / 200_000 == pytest.approx(1 - (1 - eta) ** 2, abs=0.005)


@pytest.mark.parametrize(
    ("hits", "verdict"), [(1000, "reproduced"), (5000, "reproduced"), (5050, "reproduced"), (5600, "contradicted")]
)
def test_only_an_interval_above_the_bound_breaks_it(hits: int, verdict: str) -> None:
    others = [_variance(width, 0.5, 0) for width in range(3, 10)]
    assert PRINTED.judge(Rows([_variance(2, 0.5, hits), *others])).verdict == verdict  # the printed bound is 0.5


def test_one_broken_setting_is_enough_and_is_named() -> None:
    found = PRINTED.judge(Rows([_variance(8, 0.95, 0), _variance(3, 0.5, 3400)]))
    assert found.verdict == "contradicted"
    assert "broken at D = 3" in found.note
    others = [_variance(width, 0.5, 0) for width in range(4, 11)]
    assert CORRECTED.judge(Rows([_variance(3, 0.5, 3400), *others])).verdict == "reproduced"  # its bound is 0.34


def test_few_settings_show_no_bound_to_hold() -> None:
    assert CORRECTED.judge(Rows(_variance(width, 0.5, 0) for width in range(3, 10))).verdict == "undecided"
    assert CORRECTED.judge(Rows(_variance(width, 0.5, 0) for width in range(3, 11))).verdict == "reproduced"


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 32,
        "demo": 96,
        "laptop": 128,
        "paper": 144,
    }
