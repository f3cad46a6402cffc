from __future__ import annotations

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.bounds.geometry import blowup_tail
from flipscope.lab import Result, Rows
from flipscope.studies.geometry.blowup_tail import BOUNDS, LENGTH, SHAPES, STUDY, Tail, _level

EXPONENT, BOUND = STUDY.claims


def _tail(width: int, exponent: float, models: int = 10_000, layers: int = 1) -> Rows:
    largest = np.random.default_rng(width).pareto(exponent, models) + 1
    return STUDY.summarise([Result(Tail(width, layers, 0, models), {"largest": largest}, 0.0)])


def test_smoke_has_too_few_models_for_a_tail() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert [len(row["largest"]) for row in table] == [50, 50, 50]
    assert [judgement.verdict for _, judgement in judgements] == ["undecided", "undecided"]
    assert [series.label for series in figures[0].panels[0].series] == ["D = 3, L = 1", "D = 3, L = 1, bound"]


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


def _values(*values: float, models: int = 10_000) -> Rows:
    """As many models of each of these values."""
    largest = np.repeat(values, models // len(values))
    return STUDY.summarise([Result(Tail(4, 1, 0, models), {"largest": largest}, 0.0)])


@pytest.mark.parametrize("bound", [*BOUNDS, 0.9, 1e-3])
def test_levels_are_where_the_bound_is(bound: float) -> None:
    for width, layers in SHAPES:
        assert blowup_tail(width, layers, LENGTH, 1.0, _level((width, layers), bound)) == pytest.approx(bound)


def test_a_tail_above_its_bound_contradicts() -> None:
    heavy = Rows({**row, "largest": [1000.0 * value for value in row["largest"]]} for row in _tail(6, 1.0))
    assert BOUND.judge(heavy).verdict == "contradicted"
    assert BOUND.judge(_tail(4, 3.0)).verdict == "reproduced"


def test_too_many_models_beyond_a_level_contradict_wherever_the_others_are() -> None:
    beyond = 1.01 * _level((4, 1), 0.1)
    found = BOUND.judge(_values(1.0, 1.0, 1.0, 1.0, beyond))  # a fifth, where the bound is 0.1 and falls
    assert (found.verdict, found.measured) == ("contradicted", pytest.approx(2.0))
    assert "bound 0.1" in found.quantity
    assert BOUND.judge(_values(*[1.0] * 9, beyond)).verdict == "undecided"  # as many as the bound allows


def test_no_model_beyond_the_levels_counts_with_its_interval() -> None:
    assert BOUND.judge(_values(1.0)).verdict == "reproduced"
    few = BOUND.judge(_values(1.0, models=100))
    assert (few.verdict, few.measured) == ("undecided", 0)
    assert few.high is not None
    assert few.high > 1


def test_a_blowup_that_is_not_a_number_is_beyond_every_level() -> None:
    assert BOUND.judge(_values(1.0, 1.0, float("nan"))).verdict == "contradicted"


def test_blowups_come_from_the_seed() -> None:
    found = Tail(4, 1, 3, 5).measure(lambda done, total: None)["largest"]
    assert found.shape == (5,)
    assert (found > 0).all()
    again = Tail(4, 1, 3, 5).measure(lambda done, total: None)["largest"]
    assert (found == again).all()
    assert not (found == Tail(4, 1, 4, 5).measure(lambda done, total: None)["largest"]).any()


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 3,
        "demo": 4,
        "laptop": 48,
        "paper": 4000,
    }
