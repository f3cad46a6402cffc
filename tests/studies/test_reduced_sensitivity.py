from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from studies.harness import run

from flipscope.lab import Claim, Rows
from flipscope.studies.hardness._relearned import Learned, rows_of
from flipscope.studies.hardness.reduced_sensitivity import STUDY
from flipscope.training.sets import TableData

PLAN: dict[str, Any] = {"again": 0, "length": 10, "width": 64, "batch": 128, "first": 10, "steps": 10, "lr": 1e-3}
TARGET, RANDOM, FLATTER, KNOWN, DEGREE, FEWER, FEWER_SHARP, FEWER_DEGREE = STUDY.claims
BESIDE = (RANDOM, FLATTER, KNOWN, DEGREE)
SIZES = (FEWER, FEWER_SHARP, FEWER_DEGREE)


def _table(step: float, noise: float = 0.01, pairs: int = 4, **other: Any) -> Rows:
    """Everything rises by a step from size to size, and on to random completions and to the function itself."""
    rows = Rows()
    kinds = ((0, 128, "learned"), (1, 256, "learned"), (2, 512, "learned"), (3, 256, "random"))
    for target in range(pairs):
        for seed in range(2):
            for place, size, kind in kinds:
                value = 1 + step * place + noise * np.sin(7 * target + 3 * seed + 5 * place)
                numbers = dict.fromkeys(("sensitivity", "sharpness", "sharpness_known", "high"), value)
                about = {"fitted": True, "kept": True, "target_sensitivity": 1 + 3 * step, "weights": [0.1] * 11}
                rows.append({**Learned(target, seed, size, kind, **PLAN).content(), **numbers, **about, **other})
    return rows


@pytest.mark.parametrize("claim", STUDY.claims, ids=lambda claim: claim.name)
def test_each_claim_can_come_out_in_every_way(claim: Claim) -> None:
    assert claim.judge(_table(0.5)).verdict == "reproduced"
    assert claim.judge(_table(-0.5)).verdict == "contradicted"
    assert claim.judge(_table(0.0, noise=0.5)).verdict == "undecided"
    assert claim.judge(_table(0.0, noise=0.0)).verdict == "undecided"
    assert claim.judge(_table(0.5, pairs=1)).verdict == "undecided"  # two pairs


def test_differences_are_within_a_target_and_seed() -> None:
    """Targets that differ by much more than learned and random functions do."""
    table = Rows({**row, "sensitivity": row["sensitivity"] + 100 * row["target"]} for row in _table(0.1, noise=0.01))
    assert RANDOM.judge(table).verdict == "reproduced"
    assert RANDOM.judge(table).measured == pytest.approx(0.2, abs=0.02)


def test_a_table_that_was_trained_on_five_times_counts_once() -> None:
    table = Rows({**row, "again": again} for row in _table(0.1, noise=0.1) for again in range(5))
    for claim in STUDY.claims:
        once, often = claim.judge(_table(0.1, noise=0.1)), claim.judge(table)
        assert (once.low, once.high) == pytest.approx((often.low, often.high))


def test_runs_that_do_not_fit_are_counted_and_say_nothing() -> None:
    wrong = Rows({**row, "target": row["target"] + 50, "sensitivity": 0.0} for row in _table(-9.0))
    unfit = Rows({**row, "fitted": False, "kept": False} for row in wrong)
    table = Rows(_table(0.5) + unfit)
    assert {claim.judge(table).verdict for claim in STUDY.claims} == {"reproduced"}
    assert "learned, 128 rows: of 16 runs 8 fit the known rows, and 8 of these" in STUDY.provenance(table)[1]
    second = Rows({**row, "kept": row["kind"] == "learned"} for row in _table(0.5))
    verdicts = {claim.name: claim.judge(second).verdict for claim in STUDY.claims}
    assert [verdicts[claim.name] for claim in BESIDE] == ["reproduced", "undecided", "undecided", "reproduced"]
    assert [verdicts[claim.name] for claim in SIZES] == ["reproduced"] * 3


def test_smoke() -> None:
    table, judgements, figures = run(STUDY, "smoke")
    assert len(table) == len(STUDY.checked_trials("smoke")) == 9
    assert len(judgements) == len(STUDY.claims)
    assert len(figures) == 3
    for row in table:
        labels = TableData(table=row["table"], length=4).values()
        flips = [labels != labels[np.arange(16) ^ (1 << place)] for place in range(4)]
        assert row["sensitivity"] == pytest.approx(np.mean(np.sum(flips, axis=0)))
        known = rows_of(Learned(**{name: row[name] for name in Learned.__dataclass_fields__}))
        assert row["wrong_known"] == (labels != known.values())[known.rows()].sum()
        assert row["fitted"] == (row["wrong_known"] == 0)
        assert row["kept"] == (row["fitted"] and row["wrong"] == 0)  # 0.99 of 16 rows are all
        assert (row["sharpness"] is None) == (not row["fitted"])
    assert {row["wrong_known"] for row in table.where(kind="random")} == {0}


def test_targets_and_seeds_know_rows_of_their_own() -> None:
    trials = [Learned(target, seed, 64, "learned", **PLAN) for target in range(2) for seed in range(2)]
    assert len({tuple(rows_of(trial).rows()) for trial in trials}) == 4
    larger = rows_of(Learned(0, 0, 128, "learned", **PLAN))
    assert larger.rows()[:64].tolist() == rows_of(trials[0]).rows().tolist(), "larger sets hold the smaller ones"


def test_every_scale_constructs() -> None:
    assert {scale: len(STUDY.checked_trials(scale)) for scale in STUDY.scales} == {
        "smoke": 9,
        "laptop": 32,
        "paper": 2000,
    }
