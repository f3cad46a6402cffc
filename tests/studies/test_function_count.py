from __future__ import annotations

import numpy as np
import pytest
from studies.geometry_tables import recognised
from studies.harness import smoke_run

from flipscope.lab import Claim
from flipscope.studies.geometry.function_count import STUDY, Count, rarefied


@pytest.mark.parametrize("claim", STUDY.claims)
def test_trends_are_those_beyond_eps_0(claim: Claim) -> None:
    judge = claim.judge
    assert judge(recognised({1.0: -0.3, 0.0: -0.2})).verdict == "reproduced"
    rising = judge(recognised({1.0: -0.2, 0.0: -0.3}))
    assert rising.verdict == "contradicted"
    assert rising.measured == pytest.approx(0.1, abs=0.02)
    assert judge(recognised({1.0: -0.2, 0.0: -0.2})).verdict == "undecided"  # a margin on 2^N strings alone
    assert judge(recognised({1.0: -0.3})).verdict == "undecided"
    few = judge(recognised({1.0: -0.3, 0.0: -0.2}, symbols=4))
    assert (few.verdict, few.remedy) == ("undecided", "at least 5 drawings of the symbols")


def test_constants_and_what_is_not_recognised_do_not_count() -> None:
    tables, recognised = np.array([0, 1, 6, 9, 15], np.uint64), np.array([50, 0, 1, 0, 60])
    outcome = {"tables": tables, "recognised": recognised, "near_ties": 0, "asked_again": 0}
    row = STUDY.row(Count(2, 1.0, 0, 122), outcome)
    assert (row["share_more"], row["more"], row["recognised_functions"]) == (1 / 122, 1.5, 3)
    assert row["rarefied"] is None


def test_rarefied_is_the_mean_over_subsamples() -> None:
    counts = np.array([9_000, 800, 150, 45, 5])
    draws, rng = np.repeat(np.arange(5), counts), np.random.default_rng(0)
    samples = [len(np.unique(rng.choice(draws, 1_000, replace=False))) for _ in range(1_000)]
    assert rarefied(counts, 10_000) == pytest.approx(np.mean(samples), abs=0.06)
    assert rarefied(np.array([999]), 999) is None


def test_smoke() -> None:
    rows, judgements, figures = smoke_run(STUDY)
    assert [row["length"] for row in rows] == [2] * 4 + [3] * 4 + [4] * 4
    assert {judged.verdict for _, judged in judgements} == {"undecided"}  # two drawings of the symbols
    assert all(0 < row["share_more"] < 1 and row["rarefied"] <= row["recognised_functions"] for row in rows)
    (figure,) = figures
    for panel in figure.panels:
        assert panel.categories == ["2", "3", "4"]  # whole numbers, with nothing between them
        assert {x for series in panel.series for x in series.x} == {0, 1, 2}
    assert STUDY.provenance(rows)[0].startswith("12,000 recognisers; 0 asked again")


def test_every_scale_constructs() -> None:
    found = {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales}
    assert found == {"smoke": 12, "demo": 100, "laptop": 160, "paper": 1000}
    for scale in STUDY.scales:
        ours, theirs = ([t for t in STUDY.trials(scale) if t.eps == eps] for eps in (1.0, 0.0))
        assert [(t.length, t.symbols, t.draws) for t in ours] == [(t.length, t.symbols, t.draws) for t in theirs]
