from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.sharper.generalization_gap import STUDY as GAP
from flipscope.studies.sharper.generalization_gap import Function
from flipscope.studies.sharper.low_sharpness import STUDY, Flatness, with_ratios

SHARPER, LARGER, TRACE, NORM, DOMINATED, FLATTER, SMALLER = STUDY.claims


def _rows(trace: float, norm: float, *, functions: int = 40, penalty: float = 0.0, **more: Any) -> Rows:
    """Learned networks of these traces and norms, a little spread; those written down have 1000 and 100.

    They are of twenty classes in turn.
    """
    spread = np.random.default_rng(1).uniform(0.9, 1.1, functions)
    return Rows(
        with_ratios(
            Flatness(1 + seed % 4, 1 + seed % 5, seed, 10, 512, 64, 1e-3, 100, 0.0, penalty=penalty),
            {"sparsity": 1 + seed % 4, "degree": 1 + seed % 5, "seed": seed, "length": 10, "learned": True}
            | {"gap": 0.01 * wide}
            | {"trace": trace * wide, "norm": norm * wide, "made_trace": 1000.0, "made_norm": 100.0}
            | {"trace_low": 0.9 * trace * wide, "trace_high": 1.1 * trace * wide, **more},
        )
        for seed, wide in enumerate(spread)
    )


def test_smoke_measures_both_networks_of_a_function() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == 2 + 1
    for row in table:
        assert 0 < row["made_trace"] < row["trace_bound"]  # Thm 13
        assert 0 < row["made_norm"] < row["norm_bound"]  # Thm 10
    for row in table.where(arm="classes"):
        # W_1, V_1, W_2 of width 7, v, and U, b, F of 4 (D + 1) neurons
        assert sum(row["made_weights"]) == pytest.approx(3 * 49 + 7 + 4 * (row["degree"] + 1) * 15)
        assert row["made_bottom"][0] > -1e-6 * row["made_top"][0]  # it interpolates itself: no direction goes down
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert not figures  # nothing is learned in so few steps
    assert "0 of 2 functions were learned" in STUDY.provenance(table)[0]


def test_models_are_those_of_the_gap() -> None:
    learned = [trial for trial in GAP.trials("laptop") if isinstance(trial, Function)]
    theirs = {trial.recipe.digest for trial in learned if trial.arm in ("classes", "long")}
    ours = {trial.recipe.digest for trial in STUDY.trials("laptop") if not trial.penalty}
    assert ours == theirs


def test_the_construction_is_larger() -> None:
    for claim, trace, norm in ((SHARPER, 10.0, 900.0), (LARGER, 9000.0, 10.0), (DOMINATED, 10.0, 10.0)):
        assert claim.judge(_rows(trace, norm)).verdict == "reproduced"
        assert claim.judge(_rows(9000.0, 900.0)).verdict == "contradicted"
        assert claim.judge(_rows(trace, norm, functions=5)).verdict == "undecided"
        assert claim.judge(_rows(trace, norm, learned=False)).verdict == "undecided"
    assert DOMINATED.judge(_rows(10.0, 900.0)).verdict == "contradicted"  # one of both does not suffice
    for column in ("norm", "made_norm", "trace_low", "trace_high", "made_trace"):
        odd = Rows({**row, column: float("nan")} for row in _rows(10.0, 10.0))
        assert DOMINATED.judge(odd).verdict != "reproduced"


def test_domination_is_open_where_the_interval_of_the_trace_holds_both() -> None:
    wide = _rows(10.0, 10.0, trace_high=2000.0)
    assert DOMINATED.judge(wide).verdict == "undecided"
    assert "40 of 40 functions in doubt" in DOMINATED.judge(wide).note
    assert DOMINATED.judge(_rows(10.0, 900.0, trace_high=2000.0)).verdict == "contradicted"  # by the norm alone
    assert DOMINATED.judge(_rows(1500.0, 10.0, trace_low=900.0)).verdict == "undecided"


def test_two_orders_of_magnitude() -> None:
    assert TRACE.judge(_rows(10.0, 10.0)).verdict == "reproduced"
    assert TRACE.judge(_rows(300.0, 10.0)).verdict == "contradicted"
    assert TRACE.judge(_rows(0.1, 10.0)).verdict == "contradicted"  # four of them
    assert TRACE.judge(_rows(10**1.5, 10.0)).verdict == "undecided"
    assert NORM.judge(_rows(10.0, 1.0)).verdict == "reproduced"
    assert NORM.judge(_rows(10.0, 30.0)).verdict == "contradicted"
    assert NORM.judge(_rows(10.0, 1.0, functions=2)).verdict == "undecided"


@pytest.mark.parametrize("trace", [10.0, 900.0])
def test_less_than_half_of_the_classes_decide_neither_way(trace: float) -> None:
    few = Rows({**row, "learned": row["degree"] < 3} for row in _rows(trace, 10.0))
    judged = TRACE.judge(few)
    assert (judged.verdict, judged.measured) == ("undecided", None)
    assert "8 of 20 classes have a function that was learned" in judged.quantity
    assert judged.remedy == "at least half of the classes and 3 of them, or more steps"


def test_a_larger_trace_is_told_by_its_interval() -> None:
    assert SHARPER.judge(_rows(900.0, 10.0, trace_low=0.0, trace_high=1800.0)).verdict == "undecided"
    assert SHARPER.judge(_rows(1100.0, 10.0, trace_low=0.0, trace_high=2200.0)).verdict == "undecided"


def test_an_estimated_trace_below_zero_has_no_order_of_magnitude() -> None:
    rows = _rows(-1.0, 10.0)
    assert rows[0]["trace_ratio"] is None
    assert TRACE.judge(rows).verdict == "undecided"
    assert SHARPER.judge(rows).verdict == "reproduced"
    assert STUDY.draw(rows)


def test_traces_without_a_logarithm_are_not_dropped_in_silence() -> None:
    """The flattest networks are those whose estimates fall below 0: without them the others would decide."""
    flat, others = _rows(-1.0, 10.0, functions=3), _rows(10.0, 10.0)
    judged = TRACE.judge(Rows([*flat, *others]))
    assert (judged.verdict, judged.note, judged.remedy) == (
        "undecided", "3 of 43 traces are not positive", "more products",
    )  # fmt: skip
    assert NORM.judge(Rows([*_rows(-1.0, 1.0, functions=3), *_rows(10.0, 1.0)])).verdict == "reproduced"
    plain = _rows(100.0, 10.0, functions=9)
    other = [
        {**row, "trace": -1.0 if row["seed"] < 3 else 2 * row["trace"] * (1 + row["seed"] / 100)}
        for row in _rows(100.0, 10.0, functions=9, penalty=1e-4)
    ]
    judged = FLATTER.judge(Rows([*plain, *other]))
    assert (judged.verdict, judged.note) == ("undecided", "3 of 18 traces are not positive")
    for first, second in ((1.0, float("nan")), (float("nan"), 1.0)):
        odd = [
            {**row, "trace": row["trace"] * (factor if row["seed"] < 3 else good * (1 + row["seed"] / 100))}
            for rows, factor, good in (
                (plain, first, 1.0),
                (_rows(100.0, 10.0, functions=9, penalty=1e-4), second, 0.5),
            )
            for row in rows
        ]
        judged = FLATTER.judge(Rows(odd))
        assert (judged.verdict, judged.note) == ("undecided", "3 of 18 traces are not positive")


def test_the_learner_that_avoids_sharpness() -> None:
    plain = _rows(100.0, 10.0, functions=6)
    for factor, expected in ((0.5, "reproduced"), (2.0, "contradicted")):
        noise = np.random.default_rng(2).uniform(0.95, 1.05, 6)
        other = Rows(
            {**row, "trace": row["trace"] * factor * w, "gap": row["gap"] * factor * w}
            for row, w in zip(_rows(100.0, 10.0, functions=6, penalty=1e-4), noise, strict=True)
        )
        assert FLATTER.judge(Rows([*plain, *other])).verdict == expected
        assert SMALLER.judge(Rows([*plain, *other])).verdict == expected
    same = _rows(100.0, 10.0, functions=6, penalty=1e-4)
    assert FLATTER.judge(Rows([*plain, *same])).verdict == "undecided"
    assert SMALLER.judge(plain).verdict == "undecided"
    assert [figure.name for figure in STUDY.draw(Rows([*plain, *same]))] == ["low-sharpness", "low-sharpness-learner"]


def test_figures_show_every_length_and_say_what_a_log_scale_cannot() -> None:
    table = Rows([*_rows(10.0, 10.0), *({**row, "length": 20} for row in _rows(-1.0, 10.0, functions=4))])
    short, long = STUDY.draw(table)
    assert (short.name, long.name) == ("low-sharpness", "low-sharpness-20")
    assert "T = 20" in long.caption
    assert "4 of 4 estimated traces are not positive" in long.caption
    assert "not positive" not in short.caption
    penalised = [{**row, "trace": -1.0} if row["seed"] < 2 else row for row in _rows(5.0, 10.0, penalty=1e-4)]
    learner = STUDY.draw(Rows([*_rows(10.0, 10.0), *penalised]))[-1]
    assert "2 of 80 estimated traces" in learner.caption
    assert [len(each.x) for each in learner.panels[0].series] == [40, 38]
    assert [len(each.x) for each in learner.panels[1].series] == [40, 40]


def test_spectra_are_counts_from_the_largest_eigenvalue_on() -> None:
    ends = {"nodes": [1.0, 3.0, -0.1], "weights": [2.0, 1.0, 97.0], "made_nodes": [5.0, 2.0, 1e-9]}
    rows = _rows(10.0, 10.0, functions=2, **ends, made_weights=[1.0, 1.0, 48.0])
    spectra = STUDY.draw(rows)[1]
    assert spectra.name == "low-sharpness-spectra"
    learned, written = spectra.panels[0].series
    assert (learned.x, learned.y) == ([3.0, 1.0], [1.0, 3.0])
    assert (written.x, written.y) == ([5.0, 2.0], [1.0, 2.0])
