from __future__ import annotations

import math

import pytest
from studies.geometry_tables import lasting, longer_strings
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.geometry.length_limits import STUDY, Limit
from flipscope.studies.geometry.recognised_lengths import KNOWN

CLAIMS = {claim.name: claim for claim in STUDY.claims}


def _verdict(name: str, table: Rows) -> str:
    return CLAIMS[name].judge(table).verdict


BREAKS = ["eps > 0: First breaks", "eps = 0: First breaks"]
MAJORITY = "eps > 0: Majority breaks earlier than at eps = 0"


@pytest.mark.parametrize("name", BREAKS)
def test_breaks(name: str) -> None:
    assert _verdict(name, lasting(lambda trial: 1.5)) == "reproduced"
    whole = CLAIMS[name].judge(lasting(lambda trial: 4))
    assert (whole.verdict, whole.remedy) == ("undecided", "longer strings")  # no limit theorem is contradicted so
    assert "not broken at N = " in whole.note
    one = CLAIMS[name].judge(lasting(lambda trial: 4 if trial.seed == 2 and trial.length == 20 else 1.5))
    assert one.verdict == "undecided"
    assert "not broken at N = 80" in one.note
    assert _verdict(name, lasting(lambda trial: 1.5, seeds=1, lengths=(20,))) == "undecided"
    never = CLAIMS[name].judge(longer_strings(lambda trial, factor: 0.5))
    assert (never.verdict, never.quantity) == ("undecided", "no model recognises it")
    assert _verdict(name, longer_strings(lambda trial, factor: KNOWN)) == "undecided"


def test_only_the_models_of_the_claim_count() -> None:
    table = lasting(lambda trial: 4 if trial.eps == 0 or trial.language == "majority" else 1.5)
    assert [_verdict(name, table) for name in BREAKS] == ["reproduced", "undecided"]
    assert _verdict(MAJORITY, table) == "undecided"


def test_majority_must_break_earlier_than_at_eps_0() -> None:
    earlier = lasting(lambda trial: 1.25 if trial.eps else 4, lengths=(20, 40, 80, 160))
    assert _verdict(MAJORITY, earlier) == "reproduced"
    alike = CLAIMS[MAJORITY].judged(lasting(lambda trial: 1.25, lengths=(20, 40, 80, 160)))
    assert (alike.verdict, "with eps = 0 less with eps > 0" in alike.quantity) == ("undecided", True)
    later = CLAIMS[MAJORITY].judged(lasting(lambda trial: 2 if trial.eps else 1.25, lengths=(20, 40, 80, 160)))
    assert (later.verdict, later.measured) == ("undecided", pytest.approx(math.log2(1.25 / 2)))
    assert "longer length" in later.note


def test_models_are_compared_with_those_trained_at_the_same_length() -> None:
    # What is trained at 20 bits lasts, what is trained at 40 does not; Majority is known at 20 only.
    def last(trial: Limit) -> float:
        return 0 if trial.language == "majority" and trial.length == 40 else 4 if trial.length == 20 else 1

    found = CLAIMS["eps = 0: Majority lasts longer than First"].judge(lasting(last, seeds=6))
    assert (found.verdict, found.measured) == ("undecided", 0.0)


def test_majority_against_first() -> None:
    def table(majority: float, first: float) -> Rows:
        return lasting(lambda trial: {"majority": majority, "first": first}.get(trial.language, 1))

    name = "eps = 0: Majority lasts longer than First"
    assert _verdict(name, table(4, 1.25)) == "reproduced"
    assert _verdict(name, table(1, 2)) == "contradicted"
    assert _verdict(name, table(1.5, 1.5)) == "undecided"
    assert _verdict(name, table(1.5, 0)) == "undecided"  # First is recognised by none


def test_larger_eps() -> None:
    def table(small: float, large: float) -> Rows:
        return lasting(lambda trial: large if trial.eps == 1 else small if trial.eps else 1)

    name = "First breaks earlier with a larger eps"
    assert _verdict(name, table(4, 1.25)) == "reproduced"
    assert _verdict(name, table(1.25, 4)) == "contradicted"
    assert _verdict(name, table(2, 2)) == "undecided"
    assert _verdict(name, table(2, 0)) == "undecided"


def test_rows() -> None:
    trial = Limit("first", 0.0, 40, 0, 16, 100)
    correct = [100, 99, 98, 100, 50]
    found = STUDY.row(trial, {"tested": [40, 50, 60, 80, 160], "correct": correct})
    assert (found["reach"], found["gain"]) == (50, pytest.approx(math.log2(1.25)))  # 60 is lost, whatever comes after
    none = STUDY.row(trial, {"tested": [40, 50, 60, 80, 160], "correct": [98, 100, 100, 100, 100]})
    assert (none["reach"], none["gain"], none["share"]) == (None, None, 0.98)


def test_models_differ_by_language_length_eps_and_seed() -> None:
    trials = [trial for trial in STUDY.checked_trials("laptop") if isinstance(trial, Limit)]
    assert len({trial.recipe.digest for trial in trials}) == len(trials) == 180
    assert {trial.recipe.model.eps for trial in trials} == {0.0, 1e-3, 1.0}
    assert min(trial.seed for trial in trials) == 1000  # none that was judged before


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table) == 12
    for row in table:
        assert row["tested"][0] == row["length"]
        for counts in zip(row["correct"], row["wrong"], row["undefined"], strict=True):
            assert sum(counts) == 50
        assert (row["log10_bound"] is None) == (row["eps"] == 0)
    assert {row["reach"] is not None for row in table.where(language="first")} == {True}  # at 10 and 12 bits
    assert len(judgements) == len(STUDY.claims)
    assert [len(figure.panels) for figure in figures] == [3]
    assert len(STUDY.provenance(table)) == 2
