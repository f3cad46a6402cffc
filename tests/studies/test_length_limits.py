from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from studies.harness import run

from flipscope.lab import Rows
from flipscope.lab.version import code_version
from flipscope.studies.geometry.length_limits import LANGUAGES, LONGER, STUDY, Limit, recipe_of
from flipscope.studies.geometry.recognised_lengths import KNOWN

CLAIMS = {claim.name: claim for claim in STUDY.claims}
Shares = Callable[[Limit, float], float]


def _table(shares: Shares, seeds: int = 3, lengths: tuple[int, ...] = (20, 40)) -> Rows:
    """What a run gives if a model of a trial has such a share right at so many times its length."""
    rows = Rows()
    for setting in itertools.product(LANGUAGES, (0.0, 1e-3, 1.0), lengths, range(seeds)):
        trial = Limit(*setting, 16, 500)
        correct = [round(500 * shares(trial, factor)) for factor in LONGER]
        none = [0] * len(LONGER)
        tested = [round(trial.length * factor) for factor in LONGER]
        outcome = {"tested": tested, "correct": correct, "wrong": [500 - each for each in correct], "undefined": none}
        rows.append(STUDY.row(trial, {**outcome, "epochs_used": 3, "log10_bound": 9.0 if trial.eps else None}))
    return rows


def _lasting(last: Callable[[Limit], float]) -> Shares:
    """Right up to so many times the length, and at chance beyond."""
    return lambda trial, factor: 1.0 if factor <= last(trial) else 0.5


def _verdict(name: str, table: Rows) -> str:
    return CLAIMS[name].judge(table).verdict


BREAKS = ["eps > 0: First breaks", "eps > 0: Majority breaks", "eps = 0: First breaks"]


@pytest.mark.parametrize("name", BREAKS)
def test_breaks(name: str) -> None:
    assert _verdict(name, _table(_lasting(lambda trial: 1.5))) == "reproduced"
    whole = CLAIMS[name].judge(_table(_lasting(lambda trial: 4)))
    assert (whole.verdict, whole.remedy) == ("undecided", "longer strings")  # no limit theorem is contradicted so
    assert "not broken at N = " in whole.note
    one = CLAIMS[name].judge(_table(_lasting(lambda trial: 4 if trial.seed == 2 and trial.length == 20 else 1.5)))
    assert one.verdict == "undecided"
    assert "not broken at N = 80" in one.note
    assert _verdict(name, _table(_lasting(lambda trial: 1.5), seeds=1, lengths=(20,))) == "undecided"
    never = CLAIMS[name].judge(_table(lambda trial, factor: 0.5))
    assert (never.verdict, never.quantity) == ("undecided", "no model recognises it")
    assert _verdict(name, _table(lambda trial, factor: KNOWN)) == "undecided"


def test_only_the_models_of_the_claim_count() -> None:
    table = _table(_lasting(lambda trial: 4 if trial.eps == 0 or trial.language == "majority" else 1.5))
    assert [_verdict(name, table) for name in BREAKS] == ["reproduced", "undecided", "undecided"]


def test_majority_against_first() -> None:
    def table(majority: float, first: float) -> Rows:
        return _table(_lasting(lambda trial: {"majority": majority, "first": first}.get(trial.language, 1)))

    name = "eps = 0: Majority lasts longer than First"
    assert _verdict(name, table(4, 1.25)) == "reproduced"
    assert _verdict(name, table(1, 2)) == "contradicted"
    assert _verdict(name, table(1.5, 1.5)) == "undecided"
    assert _verdict(name, table(1.5, 0)) == "undecided"  # First is recognised by none


def test_larger_eps() -> None:
    def table(small: float, large: float) -> Rows:
        return _table(_lasting(lambda trial: large if trial.eps == 1 else small if trial.eps else 1))

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
    assert len({recipe_of(trial).digest for trial in trials}) == len(trials) == 135
    assert {recipe_of(trial).model.eps for trial in trials} == {0.0, 1e-3, 1.0}
    assert len(code_version(STUDY)) == 64


@pytest.mark.slow
def test_smoke() -> None:
    table, judgements, figures = run(STUDY, "smoke")
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
