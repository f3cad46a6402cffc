from __future__ import annotations

import pytest
from studies.geometry_tables import trained_anew
from studies.harness import smoke_run

from flipscope.studies.geometry import length_limits
from flipscope.studies.geometry.length_trained import STUDY

(LOST,) = STUDY.claims


def test_lost_at_the_longest_length() -> None:
    lost = trained_anew(lambda trial: 250 if trial.length == 40 else 500)
    assert LOST.judge(lost).verdict == "reproduced"
    assert LOST.judge(lost).quantity == "share of models that recognise First at N = 40, all eps"
    assert LOST.judge(lost.where(lambda row: row["seed"] < 1)).verdict == "undecided"  # too few models
    assert LOST.judge(trained_anew(lambda trial: 500 if trial.length == 40 else 250)).verdict == "contradicted"
    assert LOST.judge(trained_anew(lambda trial: 500 if trial.seed % 2 else 250)).verdict == "undecided"


def test_the_laptop_scale_can_reach_a_verdict() -> None:
    plan = STUDY.scales["laptop"].settings
    for correct, verdict in ((0, "reproduced"), (500, "contradicted")):
        table = trained_anew(lambda trial, correct=correct: correct, seeds=plan["seeds"], eps=plan["eps"])
        assert LOST.judged(table).verdict == verdict


def test_only_first_counts() -> None:
    assert LOST.judge(trained_anew(lambda trial: 250 if trial.language == "first" else 500)).verdict == "reproduced"
    assert LOST.judge(trained_anew(lambda trial: 500 if trial.language == "first" else 250)).verdict == "contradicted"
    none = LOST.judge(trained_anew(lambda trial: 500).where(language="parity"))
    assert (none.verdict, none.quantity) == ("undecided", "nothing was measured")


@pytest.mark.parametrize(("correct", "known"), [(495, True), (494, False)])
def test_recognised_from_a_share_on(correct: int, known: bool) -> None:
    (row,) = trained_anew(lambda trial: correct, seeds=1).where(language="first", eps=0.0, length=20)
    assert (row["share"], row["known"]) == (correct / 500, known)


@pytest.mark.parametrize("scale", list(STUDY.scales))
def test_models_are_those_of_length_limits(scale: str) -> None:
    ours, theirs = (study.trials(scale) for study in (STUDY, length_limits.STUDY))
    assert list(STUDY.scales) == list(length_limits.STUDY.scales)
    assert [trial.recipe for trial in ours] == [trial.recipe for trial in theirs]


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == 12
    assert {row["correct"] + row["wrong"] + row["undefined"] for row in table} == {50}
    assert {row["known"] for row in table.where(language="first")} == {True}  # at 10 and 12 bits
    assert [claim.name for claim, _ in judgements] == [LOST.name]
    assert [(figure.name, len(figure.panels)) for figure in figures] == [("length-trained", 3)]
    assert len(STUDY.provenance(table)) == 2
