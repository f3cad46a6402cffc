from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from studies.harness import run

from flipscope.lab import Rows
from flipscope.studies.geometry import length_limits
from flipscope.studies.geometry.length_limits import LANGUAGES, Limit, recipe_of
from flipscope.studies.geometry.length_trained import STUDY

(LOST,) = STUDY.claims


def _table(correct: Callable[[Limit], int], seeds: int = 12) -> Rows:
    """What a run gives if a model of a trial has so many of 500 strings right."""
    trials = [Limit(*setting, 16, 500) for setting in itertools.product(LANGUAGES, (0.0, 1.0), (20, 40), range(seeds))]
    counts = [{"correct": correct(trial), "wrong": 500 - correct(trial), "undefined": 0} for trial in trials]
    return Rows(STUDY.row(trial, {**each, "epochs_used": 3}) for trial, each in zip(trials, counts, strict=True))


def test_lost_at_the_longest_length() -> None:
    lost = _table(lambda trial: 250 if trial.length == 40 else 500)
    assert LOST.judge(lost).verdict == "reproduced"
    assert LOST.judge(lost).quantity.startswith("share of models that recognise First at N = 40, eps = ")
    assert LOST.judge(lost.where(lambda row: row["seed"] < 2)).verdict == "undecided"  # too few models


def test_a_longest_length_that_is_learned_is_not_the_end() -> None:
    learned = LOST.judge(_table(lambda trial: 500 if trial.length == 40 else 250))
    assert (learned.verdict, learned.remedy) == ("undecided", "longer strings")
    assert learned.measured == 1.0
    one_eps = LOST.judge(_table(lambda trial: 500 if trial.eps == 1 else 250))
    assert (one_eps.verdict, one_eps.remedy) == ("undecided", "longer strings")  # must be lost with each eps
    assert LOST.judge(_table(lambda trial: 500 if trial.seed % 2 else 250)).verdict == "undecided"


def test_only_first_counts() -> None:
    assert LOST.judge(_table(lambda trial: 250 if trial.language == "first" else 500)).verdict == "reproduced"
    assert LOST.judge(_table(lambda trial: 500 if trial.language == "first" else 250)).verdict == "undecided"
    none = LOST.judge(_table(lambda trial: 500).where(language="parity"))
    assert (none.verdict, none.quantity) == ("undecided", "nothing was measured")


@pytest.mark.parametrize(("correct", "known"), [(495, True), (494, False)])
def test_recognised_from_a_share_on(correct: int, known: bool) -> None:
    (row,) = _table(lambda trial: correct, seeds=1).where(language="first", eps=0.0, length=20)
    assert (row["share"], row["known"]) == (correct / 500, known)


@pytest.mark.parametrize("scale", list(STUDY.scales))
def test_models_are_those_of_length_limits(scale: str) -> None:
    ours, theirs = (study.trials(scale) for study in (STUDY, length_limits.STUDY))
    assert list(STUDY.scales) == list(length_limits.STUDY.scales)
    assert [recipe_of(trial) for trial in ours] == [recipe_of(trial) for trial in theirs]


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    assert len(table) == 12
    assert {row["correct"] + row["wrong"] + row["undefined"] for row in table} == {50}
    assert {row["known"] for row in table.where(language="first")} == {True}  # at 10 and 12 bits
    assert [claim.name for claim, _ in judgements] == [LOST.name]
    assert [(figure.name, len(figure.panels)) for figure in figures] == [("length-trained", 3)]
    assert len(STUDY.provenance(table)) == 2
