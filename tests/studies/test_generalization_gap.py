from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import run

from flipscope.lab import Judgement, Result, Rows
from flipscope.studies.sharper._gap import Function, Noise, bounds
from flipscope.studies.sharper._gap_claims import curves, vacuous
from flipscope.studies.sharper._learned import LAPTOP, PAPER, recipe_of
from flipscope.studies.sharper.generalization_gap import STUDY
from flipscope.training.sharper_protocols import fourier_recipe

GROWS, BY_DEGREE, BY_SPARSITY, FASTER, ORDER, HOLDS, SIGMA, NORM, BATCH = STUDY.claims
SPARSITIES, DEGREES = (1, 4, 7, 10), (1, 2, 3, 4, 5)


def _row(sparsity: int, degree: int, seed: int, gap: float, *, arm: Any = "classes", **more: Any) -> dict[str, Any]:
    trial = Function(sparsity, degree, seed, 10, 512, 64, 1e-3, 100, 0.0, arm=arm)
    usual = {"learned": True, "taken": 50, "gap": gap, "subgaussian": 0.05, "semi": 0.1 * sparsity * degree**3}
    return {**trial.content(), **usual, "truncated": 0.5, "own_bound": 2.0, "level": 1.0, **more}


def _table(gap: Any, seeds: int = 3, **more: Any) -> Rows:
    """A function of each class and seed with a gap of its own, and a little noise."""
    noise = np.random.default_rng(0).normal(scale=1e-4, size=(seeds, 11, 6))
    return Rows(
        _row(sparsity, degree, seed, gap(sparsity, degree) + float(noise[seed, sparsity, degree]), **more)
        for sparsity in SPARSITIES
        for degree in DEGREES
        for seed in range(seeds)
    )


def test_smoke_gives_a_row_for_every_function_and_decides_nothing_of_the_gap() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    assert len(table) == 4 + 2 + 1  # classes, layer norms, large batches
    assert all(row["exact"] and row["gap"] == pytest.approx(row["everywhere"] - row["train"]) for row in table)
    assert all(0 < row["truncated"] <= row["semi"] for row in table)
    verdicts = {claim.name: judgement.verdict for claim, judgement in judgements}
    assert set(verdicts.values()) == {"undecided"}
    assert [figure.name for figure in figures] == ["generalization-gap", "generalization-gap-ablations"]
    assert any("functions were learned" in line for line in STUDY.provenance(table))


def test_trials_share_the_models_of_a_recipe() -> None:
    trials = [trial for trial in STUDY.trials("laptop") if isinstance(trial, Function)]
    own = next(
        trial for trial in trials if (trial.arm, trial.sparsity, trial.degree, trial.seed) == ("classes", 7, 3, 1)
    )
    assert recipe_of(own) == fourier_recipe(7, 3, 1, **LAPTOP)
    assert {trial.norm for trial in trials if trial.arm == "norm"} == {"post"}
    assert {(trial.degree, trial.batch) for trial in trials if trial.arm == "batch"} == {(5, 512)}
    assert {(trial.length, trial.sparsity) for trial in trials if trial.arm == "long"} == {(20, 1)}
    papers = [trial for trial in STUDY.trials("paper") if isinstance(trial, Function) and trial.arm == "classes"]
    assert len(papers) == 5 * 4 * 11
    assert recipe_of(papers[0]) == fourier_recipe(1, 1, 0, **PAPER)


def test_the_truncated_bound_is_the_closed_form() -> None:
    """Sigma = 0.01, T = 20, m = 8192: the table of the bound without P and delta, to its four digits."""
    for (sparsity, degree), expected in {(1, 1): 0.1398, (7, 3): 1.630, (20, 5): 5.988}.items():
        assert bounds(sparsity, degree, 20, 8_192, None)["truncated"] == pytest.approx(expected, rel=2e-3)
    assert bounds(1, 1, 20, 8_192, None)["semi"] is None


def test_perturbations_of_a_class_go_to_its_functions() -> None:
    noise = Noise(1, 1, 10, (1e-3, 1e-2), 1, 1, 1)
    function = Function(1, 1, 0, 10, 512, 64, 1e-3, 100, 0.0)
    outcome = {"learned": True, "gap": 0.01, "subgaussian": 0.05}
    table = STUDY.summarise([Result(noise, {"perturbation": [0.0, 1e6]}, 0.0), Result(function, outcome, 0.0)])
    assert len(table) == 1
    assert table[0]["sigma"] == 1e-3  # the other has a large P
    assert table[0]["own_bound"] > table[0]["truncated"]  # a larger Sigma
    assert STUDY.summarise([Result(function, outcome, 0.0)])[0]["semi"] is None


def _verdicts(table: Rows) -> list[str]:
    return [claim.judge(table).verdict for claim in (GROWS, BY_DEGREE, BY_SPARSITY, FASTER)]


def test_growth() -> None:
    assert _verdicts(_table(lambda s, d: 1e-3 * s**2 * d**2)) == ["reproduced"] * 4
    # Linear in each by itself: not super-linear, which the noise leaves open.
    assert _verdicts(_table(lambda s, d: 0.01 * (s + d)))[::3] == ["reproduced", "undecided"]
    saturated = _table(lambda s, d: 0.2 * (1 - np.exp(-s * d / 3)))
    assert _verdicts(saturated) == ["reproduced", "contradicted", "contradicted", "contradicted"]
    assert _verdicts(_table(lambda s, d: -0.01 * s * d)) == ["contradicted"] * 4
    assert _verdicts(_table(lambda s, d: 0.0))[0] == "undecided"


def test_a_gap_that_bends_upwards_while_it_falls_is_not_superlinear() -> None:
    assert BY_DEGREE.judge(_table(lambda s, d: 0.01 * (d - 6) ** 2)).verdict == "contradicted"


def test_functions_that_were_not_learned_are_on_no_curve_but_counted() -> None:
    table = _table(lambda s, d: 1e-3 * d**2)
    hard = Rows({**row, "learned": row["degree"] < 3} for row in table)
    assert not curves(hard, "degree")
    assert GROWS.judge(hard).verdict == BY_DEGREE.judge(hard).verdict == "undecided"
    partly = Rows({**row, "learned": row["degree"] < 4 or row["sparsity"] == 1} for row in table)
    assert BY_DEGREE.judge(partly).verdict == "reproduced"
    assert "3 curves; 42 of 60 functions learned" in BY_DEGREE.judge(partly).note  # three points have no bend
    assert "12 curves" in GROWS.judge(partly).note


def test_order_of_the_bound() -> None:
    assert ORDER.judge(_table(lambda s, d: 0.01 * s * d**3)).verdict == "reproduced"
    assert ORDER.judge(_table(lambda s, d: -0.01 * s * d**3)).verdict == "contradicted"
    assert ORDER.judge(_table(lambda s, d: 0.01 * (s + d), seeds=2)).verdict == "undecided"
    assert ORDER.judge(_table(lambda s, d: 0.01, semi=None)).verdict == "undecided"


def test_the_bound_holds_where_it_says_something() -> None:
    def table(gap: float, bound: float) -> Judgement:
        return HOLDS.judge(Rows(_row(1, 1, seed, gap, semi=bound) for seed in range(12)))

    assert table(0.01, 0.4).verdict == "reproduced"
    assert table(0.5, 0.4).verdict == "contradicted"
    assert table(0.01, 1.5).verdict == "undecided"  # vacuous
    assert HOLDS.judge(Rows([_row(1, 1, 0, 0.01, semi=0.4)])).verdict == "undecided"
    assert HOLDS.judge(Rows([_row(1, 1, 0, 0.5, semi=0.4)])).verdict == "contradicted"
    assert (
        HOLDS.judge(Rows(_row(1, 1, seed, 0.5, semi=0.4, learned=False) for seed in range(12))).verdict == "undecided"
    )


@pytest.mark.parametrize(("sigma", "models", "expected"), [(0.05, 60, "reproduced"), (0.3, 60, "contradicted"),
                                                           (0.05, 5, "undecided")])  # fmt: skip
def test_sigma(sigma: float, models: int, expected: str) -> None:
    assert SIGMA.judge(Rows(_row(1, 1, seed, 0.0, subgaussian=sigma) for seed in range(models))).verdict == expected


def test_layer_norms() -> None:
    for sign, expected in ((1, "reproduced"), (-1, "contradicted")):
        assert NORM.judge(_table(lambda s, d, sign=sign: sign * 0.01 * d, arm="norm")).verdict == expected
    assert NORM.judge(_table(lambda s, d: 0.01 * d)).verdict == "undecided"  # of the others


def _batches(small: int, large: int) -> Judgement:
    rows = [
        _row(sparsity, 5, seed, 0.0, arm=arm, learned=3 * place + seed < learned, batch=batch)
        for arm, learned, batch in (("classes", small, 64), ("batch", large, 512))
        for place, sparsity in enumerate(SPARSITIES)
        for seed in range(3)
    ]
    return BATCH.judge(Rows([*rows, *(_row(1, 1, seed, 0.0) for seed in range(9))]))


def test_large_batches() -> None:
    assert _batches(12, 1).verdict == "reproduced"
    assert _batches(1, 12).verdict == "contradicted"
    assert _batches(12, 12).verdict == _batches(0, 0).verdict == _batches(12, 9).verdict == "undecided"
    assert "batches of 64: 1 learned" in _batches(12, 1).note


def test_what_is_vacuous_is_said() -> None:
    said = vacuous(_table(lambda s, d: 0.0))
    assert "below 1 in 4 of 20 classes" in said[0]
    assert "D = 2, sparsity 1: 0.80" in said[0]
    assert "vacuous in all" in vacuous(_table(lambda s, d: 0.0, semi=2.0))[0]


def test_figures_show_learned_functions_only() -> None:
    table = Rows({**row, "learned": row["degree"] < 5 or row["seed"] == 0} for row in _table(lambda s, d: 0.01 * d))
    bound, measured = STUDY.draw(Rows([*table, *_table(lambda s, d: 0.02, arm="norm")]))[0].panels
    assert len(bound.series) == 8  # with P and without
    assert [len(each.x) for each in measured.series] == [5] * 4
    assert measured.series[0].low is not None
    assert measured.series[0].low[4] == measured.series[0].y[4]  # of a single function: no interval
