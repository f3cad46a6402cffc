from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from studies.geometry_tables import blind_prior, prior, sample
from studies.harness import smoke_run

from flipscope.cube.few_bits import all_tables, measures
from flipscope.lab import Rows
from flipscope.studies.geometry.prior_volume import SHOWN, STUDY, classes, summary

MOST, RANK, BETTER, NO_PARITY, NO_FIRST, OVER_PARITY, OVER_FIRST = STUDY.claims


def by_zero_strings(by: float, length: int) -> np.ndarray:
    return np.exp2(by * measures(all_tables(length), length).zero_strings.astype(float))


def table(by: float, lengths: tuple[int, ...] = (3,), **options: Any) -> Rows:
    """A prior that rises with K_0, or falls."""
    return prior(partial(by_zero_strings, by), lengths, **options)


def test_a_prior_of_k_0_is_told_from_its_opposite_and_from_none() -> None:
    likes, hates, alike = (table(by) for by in (1, -1, 0))
    assert [MOST.judge(rows).verdict for rows in (hates, alike)] == ["contradicted", "contradicted"]
    assert [RANK.judge(rows).verdict for rows in (likes, hates, alike)] == ["reproduced", "contradicted", "undecided"]


def test_labels_that_do_not_know_the_cube_show_nothing_however_many_are_drawn() -> None:
    # Few ones make a function probable there, and give it a large K_0.
    for draws in (2_000, 20_000):
        blind = blind_prior((3, 4, 5, 6), draws)
        verdicts = {claim.name: claim.judged(blind).verdict for claim in STUDY.claims}
        assert "reproduced" not in verdicts.values()
        found = RANK.judge(blind)
        assert len(found.parts) == 4
        assert all(abs(part.measured or 1.0) < 0.05 for part in found.parts)


def test_one_length_can_contradict() -> None:
    both = Rows(table(1) + table(-1, (4,)))
    found = RANK.judge(both)
    assert (found.verdict, found.quantity) == ("contradicted", "P(larger) - P(smaller) in K_0, N = 4, eps = 0")


def test_a_length_without_a_value_is_told_and_not_dropped() -> None:
    silent = Rows(
        {**row, "rise_zero_strings": None if row["symbols"] == 3 else row["rise_zero_strings"]} for row in table(1)
    )
    found = RANK.judge(Rows(silent + table(1, (4,))))
    assert found.verdict == "undecided"
    assert found.quantity.endswith("N = 3, eps = 0: 1 of 10 drawings of the symbols met no function to compare")


def test_few_symbols_or_draws_decide_nothing() -> None:
    few = Rows(table(1)[:4])
    assert {claim.judge(few).verdict for claim in (MOST, RANK, BETTER)} == {"undecided"}
    assert {judged.verdict for _, judged in STUDY.judge(Rows())} == {"undecided"}


def test_functions_that_are_not_met() -> None:
    rows = Rows({**row, "parity": 0, "first": 0} for row in table(1))
    assert NO_PARITY.judge(rows).verdict == "reproduced"
    assert NO_FIRST.judge(rows).verdict == "reproduced"
    met = Rows({**row, "parity": int(row["symbols"] == 0)} for row in rows)
    assert NO_PARITY.judged(met).verdict == "undecided"  # the theorem is about long strings
    assert NO_PARITY.judged(met).measured == 1 / sum(row["draws"] for row in rows)
    # A function that no prior would let so few draws with as many ones meet is no evidence.
    longer = Rows({**row, "length": 5} for row in rows)
    assert NO_PARITY.judge(longer).verdict == "undecided"
    assert "were all functions" in NO_PARITY.judge(longer).quantity
    assert "N = 3" in NO_PARITY.judge(Rows(rows + longer)).quantity
    one_sided = Rows({**row, "balanced": 0} for row in rows)
    assert NO_PARITY.judge(one_sided).verdict == "undecided"


def test_majority_against_another() -> None:
    rows = table(1)
    for claim, other in ((OVER_PARITY, "parity"), (OVER_FIRST, "first")):
        for ours, theirs, verdict in ((50, 2, "reproduced"), (2, 50, "contradicted"), (5, 5, "undecided")):
            noisy = Rows({**row, "majority": ours + row["symbols"] % 2, other: theirs} for row in rows)
            assert claim.judge(Rows({**row, other: row[other] + row["symbols"] % 2} for row in noisy)
                               if verdict == "undecided" else noisy).verdict == verdict  # fmt: skip
        assert claim.judge(Rows({**row, "majority": 0, other: 0} for row in rows)).verdict == "undecided"
        # Ten thousand draws of one drawing of the symbols are one sample, not ten thousand.
        one = Rows({**row, "majority": 10_000 * (row["symbols"] == 0), other: 1} for row in rows)
        assert claim.judge(one).verdict == "undecided"
        # Of an even number of bits Majority has fewer ones, which alone makes it more probable.
        even = Rows({**row, "length": 4, "majority": 50, other: 1} for row in rows)
        assert claim.judge(even).quantity.startswith("no functions of an odd number of bits")


def test_the_figure_counts_each_function_in_every_drawing() -> None:
    # The second function is among the most frequent of one drawing only, but was drawn in both.
    tables = np.arange(1, SHOWN + 41, dtype=np.uint64)
    many = np.full(len(tables), 1000)
    often, seldom = many.copy(), many.copy()
    often[-1], seldom[-1] = 5000, 900
    samples = [sample(4, number, 10**6, tables, counts) for number, counts in enumerate((often, seldom))]
    rows = STUDY.summarise(samples)
    drawn = {row["shown"][0]: row["shown_draws"][0] for row in rows}
    assert rows[0]["shown"] == rows[1]["shown"]
    assert [row["shown_draws"][0] for row in rows] == [5000, 900]
    assert drawn == {int(tables[-1]): 900}
    (panel,) = STUDY.draw(rows)[0].panels
    assert panel.series[0].y[0] == 5900 / (2 * 2 * 10**6)


def test_complements_are_joined_and_constants_left_out() -> None:
    found, drawn = classes(np.array([0, 1, 6, 9, 15], np.uint64), np.array([50, 3, 4, 5, 60]), 2)
    assert (found.tolist(), drawn.tolist()) == ([1, 6], [3, 9])
    row = summary(np.array([0, 1, 6, 9, 15], np.uint64), np.array([50, 3, 4, 5, 60]), 2, 0)
    assert (row["parity"], row["first"]) == (9, 0)


def test_smoke() -> None:
    rows, judgements, figures = smoke_run(STUDY)
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
