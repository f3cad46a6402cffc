from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.lab import Judgement, Result, Rows
from flipscope.studies.sharper.generalization_gap import (
    STUDY,
    Function,
    Noise,
    class_bounds,
    curves,
    vacuous_bounds,
)
from flipscope.studies.sharper.shared import LAPTOP, PAPER
from flipscope.training.recipes.sharper import fourier_recipe

GROWS, BY_DEGREE, BY_SPARSITY, FASTER, ORDER, HOLDS, SIGMA, NORM, BATCH, HEADS = STUDY.claims
SPARSITIES, DEGREES = (1, 4, 7, 10), (1, 2, 3, 4, 5)


def _row(sparsity: int, degree: int, seed: int, gap: float, *, arm: Any = "classes", **more: Any) -> dict[str, Any]:
    trial = Function(sparsity, degree, seed, 10, 512, 64, 1e-3, 100, 0.0, arm=arm)
    usual = {"learned": True, "taken": 50, "gap": gap, "subgaussian": 0.05, "semi": 0.1 * sparsity * degree**3}
    return {**trial.content(), **usual, "truncated": 0.5, "own_bound": 2.0, **more}


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
    table, judgements, figures = smoke_run(STUDY)
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
    assert own.recipe == fourier_recipe(7, 3, 1, **LAPTOP)
    assert {trial.norm for trial in trials if trial.arm == "norm"} == {"post"}
    assert {(trial.degree, trial.batch) for trial in trials if trial.arm == "batch"} == {(5, 512)}
    assert {(trial.length, trial.sparsity) for trial in trials if trial.arm == "long"} == {(20, 1)}
    papers = [trial for trial in STUDY.trials("paper") if isinstance(trial, Function) and trial.arm == "classes"]
    assert len(papers) == 5 * 4 * 11
    assert papers[0].recipe == fourier_recipe(1, 1, 0, **PAPER)


def test_the_truncated_bound_is_the_closed_form() -> None:
    """Sigma = 0.01, T = 20, m = 8192: the table of the bound without P and delta, to its four digits."""
    for (sparsity, degree), expected in {(1, 1): 0.1398, (7, 3): 1.630, (20, 5): 5.988}.items():
        assert class_bounds(sparsity, degree, 20, 8_192, None)["truncated"] == pytest.approx(expected, rel=2e-3)
    assert class_bounds(1, 1, 20, 8_192, None)["semi"] is None


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


def _exact(gap: Any) -> Rows:
    """The same without noise."""
    return Rows({**row, "gap": gap(row["sparsity"], row["degree"])} for row in _table(gap))


def test_growth() -> None:
    assert _verdicts(_table(lambda s, d: 1e-3 * s**2 * d**2)) == ["reproduced"] * 4
    # Linear in each by itself: not super-linear, which the noise leaves open.
    assert _verdicts(_table(lambda s, d: 0.01 * (s + d))) == ["reproduced", "undecided", "undecided", "undecided"]
    saturated = _table(lambda s, d: 0.2 * (1 - np.exp(-s * d / 3)))
    assert _verdicts(saturated) == ["reproduced", "contradicted", "contradicted", "contradicted"]
    assert _verdicts(_table(lambda s, d: -0.01 * s * d)) == ["contradicted"] * 4
    assert _verdicts(_table(lambda s, d: 0.0))[0] == "undecided"


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.1, -0.3])
def test_rounding_decides_nothing(gap: float) -> None:
    assert _verdicts(_exact(lambda s, d: gap)) == ["undecided"] * 4
    assert ORDER.judge(_exact(lambda s, d: gap)).verdict == "undecided"
    assert _verdicts(_exact(lambda s, d: gap + 0.01 * (s + d))) == ["reproduced"] + ["undecided"] * 3


def test_a_gap_that_bends_upwards_while_it_falls_is_not_superlinear() -> None:
    assert BY_DEGREE.judge(_table(lambda s, d: 0.01 * (d - 6) ** 2)).verdict == "contradicted"


def test_functions_that_were_not_learned_are_on_no_curve_but_counted() -> None:
    table = _table(lambda s, d: 1e-3 * d**2)
    hard = Rows({**row, "learned": row["degree"] < 3} for row in table)
    assert not curves(hard, "degree")
    assert GROWS.judge(hard).verdict == BY_DEGREE.judge(hard).verdict == "undecided"
    most = Rows({**row, "learned": row["degree"] < 4 or row["sparsity"] < 8} for row in table)
    assert BY_DEGREE.judge(most).verdict == "reproduced"
    assert "9 curves; 54 of 60 functions learned" in BY_DEGREE.judge(most).note  # three points have no bend
    assert "12 curves" in GROWS.judge(most).note
    less = Rows({**row, "learned": row["degree"] < 4 or row["sparsity"] == 1} for row in table)
    assert GROWS.judge(less).verdict == "reproduced"
    assert BY_DEGREE.judge(less).verdict == "undecided"
    assert "too few curves: 3" in BY_DEGREE.judge(less).note


def test_a_part_of_the_classes_reproduces_nothing() -> None:
    table = _table(lambda s, d: 1e-3 * s**2 * d**2)
    one = table.where(sparsity=1)
    assert GROWS.judge(one).verdict == BY_DEGREE.judge(one).verdict == "undecided"
    assert "too few sparsities with curves: 1" in GROWS.judge(one).note
    assert "too few degrees with curves: 2" in BY_SPARSITY.judge(table.where(lambda row: row["degree"] < 3)).note
    falling = _table(lambda s, d: -1e-3 * s**2 * d**2)
    few = Rows({**row, "learned": row["sparsity"] == 1 or row["degree"] < 3} for row in falling)
    assert GROWS.judge(few).verdict == "undecided"  # nor contradicts it anything
    assert "too few curves: 3" in GROWS.judge(few).note
    two = table.where(lambda row: row["sparsity"] > 5)
    assert FASTER.judge(two).verdict == ORDER.judge(two).verdict == "undecided"


def test_curves_without_their_high_degrees_are_not_compared() -> None:
    """The same curve at every sparsity, of which only the flat part is learned at some."""
    for easy, hard in (((1, 4), (7, 10)), ((7, 10), (1, 4))):
        table = Rows(
            {**row, "learned": row["sparsity"] in easy or row["degree"] < 4} for row in _table(lambda s, d: 1e-3 * d**3)
        )
        assert set(curves(table, "degree").where(whole=False).column("sparsity")) == set(hard)
        assert FASTER.judge(table).verdict == "undecided"
        assert "curves that are whole" in FASTER.judge(table).quantity
    # One curve in three is whole: they differ, but are too few.
    table = _table(lambda s, d: 1e-3 * s**2 * d**2, seeds=9)
    few = Rows({**row, "learned": row["seed"] % 3 == 0 or row["degree"] < 5} for row in table)
    assert FASTER.judge(few).verdict == ORDER.judge(few).verdict == "undecided"
    assert "too few curves: 12" in FASTER.judge(few).note


def test_order_of_the_bound() -> None:
    assert ORDER.judge(_table(lambda s, d: 0.01 * s * d**3)).verdict == "reproduced"
    assert ORDER.judge(_table(lambda s, d: -0.01 * s * d**3)).verdict == "contradicted"
    assert ORDER.judge(_table(lambda s, d: 0.01 * (s + d), seeds=2)).verdict == "undecided"
    assert ORDER.judge(_table(lambda s, d: 0.01, semi=None)).verdict == "undecided"


def test_the_bound_holds_where_it_says_something() -> None:
    def judged(gap: float, bound: float, *, broken: int = 20, **more: Any) -> Judgement:
        """Of 20 functions so many have this gap, and the others none."""
        rows = [_row(1, 1, seed, gap if seed < broken else 0.0, semi=bound, **more) for seed in range(20)]
        return HOLDS.judge(Rows(rows))

    assert judged(0.01, 0.2).verdict == "reproduced"
    assert judged(0.22, 0.2).verdict == "contradicted"
    assert judged(0.22, 0.2, broken=1).verdict == "undecided"  # it may be broken with probability 0.2
    nan = float("nan")
    assert judged(nan, 0.2).verdict == judged(0.01, nan).verdict == "contradicted"
    assert judged(0.01, 0.4).verdict == judged(0.5, 0.4).verdict == "undecided"  # a constant is below 0.4 as well
    assert "0 learned functions of classes with a bound below 0.25; the least bound is 0.4" in judged(0, 0.4).quantity
    assert judged(0.22, 0.2, learned=False).verdict == "undecided"
    assert judged(0.22, 0.2, arm="norm").verdict == "undecided"
    assert HOLDS.judge(Rows(_row(1, 1, seed, 0.22, semi=0.2) for seed in range(9))).remedy == "more strings"


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
    assert "batches of 64: 1 learned, batches of 512: 0.083" in _batches(12, 1).note


def test_several_heads() -> None:
    def judged(one: int, four: int, functions: int = 7) -> str:
        rows = [
            _row(7, 2, seed, 0.0, arm="heads", heads=heads, learned=seed < learned)
            for heads, learned in ((1, one), (4, four))
            for seed in range(functions)
        ]
        return HEADS.judge(Rows(rows)).verdict

    assert judged(0, 7) == "reproduced"
    assert judged(7, 0) == "contradicted"
    assert judged(0, 3, 3) == judged(7, 7) == judged(0, 0) == "undecided"
    assert HEADS.judge(_table(lambda s, d: 0.0)).verdict == "undecided"


def test_what_is_vacuous_is_said() -> None:
    said = vacuous_bounds(_table(lambda s, d: 0.0))
    assert "below 1 in 4 of 20 classes" in said[0]
    assert "D = 2, sparsity 1: 0.80" in said[0]
    assert "vacuous in all" in vacuous_bounds(_table(lambda s, d: 0.0, semi=2.0))[0]


def test_figures_show_learned_functions_only() -> None:
    table = Rows({**row, "learned": row["degree"] < 5 or row["seed"] == 0} for row in _table(lambda s, d: 0.01 * d))
    bound, measured = STUDY.draw(Rows([*table, *_table(lambda s, d: 0.02, arm="norm")]))[0].panels
    assert len(bound.series) == 8  # with P and without
    assert [len(each.x) for each in measured.series] == [5] * 4
    assert measured.series[0].low is not None
    assert measured.series[0].low[4] == measured.series[0].y[4]  # of a single function: no interval


def test_steps_of_batches_and_of_heads() -> None:
    large = [_row(sparsity, 5, seed, 0.0, arm="batch", batch=512) for sparsity in (1, 4) for seed in range(3)]
    heads = [_row(7, 2, seed, 0.0, arm="heads", heads=h, learned=h > 1, taken=20 * seed) for h in (1, 4)
             for seed in range(3)]  # fmt: skip
    batches, several = STUDY.draw(Rows([*_table(lambda s, d: 0.01), *large, *heads]))[-1].panels
    assert [each.label for each in batches.series] == ["batches of 64, learned", "batches of 512, learned"]
    assert [len(each.x) for each in batches.series] == [6, 6]  # of the same sparsities
    assert [each.label for each in several.series] == ["1 head, not learned", "4 heads, learned"]
    assert [each.y for each in several.series] == [[20, 40]] * 2
    assert "2 that took no step" in STUDY.draw(Rows(heads))[-1].caption
