from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import run

from flipscope.cube.few_bits import all_tables, measures
from flipscope.lab import Result, Rows
from flipscope.lab.version import code_version
from flipscope.studies.geometry.prior_volume import STUDY, Volume
from flipscope.studies.geometry.volumes import SHOWN, classes, summary

MOST, RANK, BETTER, NO_PARITY, NO_FIRST, OVER_PARITY, OVER_FIRST = STUDY.claims
SYMBOLS = 10


def table(weights: np.ndarray, length: int = 3, draws: int = 200_000, **columns: Any) -> Rows:
    """A table of samples whose functions have these probabilities, up to a factor."""
    rng = np.random.default_rng(0)
    rows = Rows()
    for symbols in range(SYMBOLS):
        counts = rng.multinomial(draws, weights / weights.sum())
        met = counts > 0
        outcome = {
            "tables": all_tables(length)[met],
            "counts": counts[met],
            "recognised": counts[met] // 2,
            "near_ties": 0,
            "asked_again": 0,
        }
        rows += STUDY.summarise([Result(Volume(length, 0.0, symbols, draws), outcome, 0.0)])
    return Rows({**row, **columns} for row in rows)


def by_zero_strings(sign: int, length: int = 3) -> np.ndarray:
    return np.exp2(sign * measures(all_tables(length), length).zero_strings.astype(float))


def test_a_prior_of_k_0_is_told_from_its_opposite_and_from_none() -> None:
    likes, hates, alike = (table(by_zero_strings(sign)) for sign in (1, -1, 0))
    assert [MOST.judge(rows).verdict for rows in (likes, hates, alike)] == [
        "reproduced",
        "contradicted",
        "contradicted",
    ]
    assert [RANK.judge(rows).verdict for rows in (likes, hates, alike)] == ["reproduced", "contradicted", "undecided"]


def test_one_length_can_contradict() -> None:
    both = Rows(table(by_zero_strings(1)) + table(by_zero_strings(-1, 4), 4))
    found = RANK.judge(both)
    assert (found.verdict, found.quantity) == ("contradicted", "rho of probability and K_0, N = 4, eps = 0")


def test_average_sensitivity_can_be_the_better_measure() -> None:
    average = np.exp2(-3 * measures(all_tables(3), 3).average_sensitivity)
    assert BETTER.judge(table(average)).verdict == "contradicted"
    assert BETTER.judge(table(by_zero_strings(1))).verdict == "reproduced"


def test_few_symbols_or_draws_decide_nothing() -> None:
    few = Rows(table(by_zero_strings(1))[:4])
    assert {claim.judge(few).verdict for claim in (MOST, RANK, BETTER)} == {"undecided"}
    vague = table(by_zero_strings(1), draws=30)
    assert MOST.judge(vague).verdict == "undecided"
    assert {judged.verdict for _, judged in STUDY.judge(Rows())} == {"undecided"}


def test_functions_that_are_not_met() -> None:
    rows = table(by_zero_strings(1), parity=0, first=0)
    assert NO_PARITY.judge(rows).verdict == "reproduced"
    assert NO_FIRST.judge(rows).verdict == "reproduced"
    met = Rows({**row, "parity": int(row["symbols"] == 0)} for row in rows)
    assert NO_PARITY.judge(met).verdict == "undecided"  # the theorem is about long strings
    assert NO_PARITY.judge(met).measured == 1 / (SYMBOLS * 200_000)
    # A function that no prior would let so few draws meet is no evidence.
    longer = Rows({**row, "length": 5} for row in rows)
    assert NO_PARITY.judge(longer).verdict == "undecided"
    assert "were all functions" in NO_PARITY.judge(longer).quantity
    assert "N = 3" in NO_PARITY.judge(Rows(rows + longer)).quantity


def test_majority_against_another() -> None:
    rows = table(by_zero_strings(1))
    for claim, other in ((OVER_PARITY, "parity"), (OVER_FIRST, "first")):
        for ours, theirs, verdict in ((50, 2, "reproduced"), (2, 50, "contradicted"), (5, 5, "undecided")):
            judged = claim.judge(Rows({**row, "majority": ours, other: theirs} for row in rows[:1]))
            assert judged.verdict == verdict
        assert claim.judge(Rows({**row, "majority": 0, other: 0} for row in rows)).verdict == "undecided"


def test_complements_are_joined_and_constants_left_out() -> None:
    found, drawn = classes(np.array([0, 1, 6, 9, 15], np.uint64), np.array([50, 3, 4, 5, 60]), 2)
    assert (found.tolist(), drawn.tolist()) == ([1, 6], [3, 9])
    row = summary(np.array([0, 1, 6, 9, 15], np.uint64), np.array([50, 3, 4, 5, 60]), 2)
    assert (row["parity"], row["first"]) == (9, 0)


def test_smoke() -> None:
    rows, judgements, figures = run(STUDY, "smoke")
    assert [row["length"] for row in rows] == [2] * 4 + [3] * 4 + [4] * 4
    verdicts = {claim.name: judged.verdict for claim, judged in judgements}
    assert set(verdicts.values()) <= {"undecided", "contradicted", "reproduced"}
    assert verdicts[MOST.name] == verdicts[RANK.name] == "undecided"
    assert [figure.name for figure in figures] == [
        "prior-volume",
        "prior-ranks",
        "prior-measures",
        "prior-named",
    ]
    for panel in (*figures[2].panels, *figures[3].panels):
        assert panel.categories == ["2", "3", "4"]  # whole numbers, with nothing between them
        assert {x for series in panel.series for x in series.x} <= {0, 1, 2}
    assert all(len(series.x) <= SHOWN for panel in figures[0].panels for series in panel.series)
    assert STUDY.provenance(rows)[0].startswith("24,000 recognisers; 0 asked again")


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 12,
        "demo": 100,
        "laptop": 100,
        "paper": 1000,
    }
    assert sum(t.draws for t in STUDY.trials("laptop") if (t.length, t.eps) == (4, 0.0)) == 10**7
    assert sum(t.draws for t in STUDY.trials("paper") if (t.length, t.eps) == (4, 0.0)) == 10**9


def test_compiled_loops_count_in_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from flipscope.lab import version

    before = code_version(STUDY)
    monkeypatch.setattr(version, "REVISION", version.REVISION + 1)
    version.clear_caches()
    try:
        assert code_version(STUDY) != before
    finally:
        monkeypatch.undo()
        version.clear_caches()
