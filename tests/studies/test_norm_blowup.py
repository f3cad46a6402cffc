from __future__ import annotations

import numpy as np
from studies.hardness_rows import rows
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.hardness.norm_blowup import STILL, STUDY
from flipscope.studies.hardness.shared import OTHERS

OUT, STAY, TRADE = STUDY.claims


def table(parity: float, others: float, trade: float = -1.0, noise: float = 0.02) -> Rows:
    """Models whose log10 blowup rises by so much per bit, and with log10 norm."""
    found = rows("norm", lambda *_: 30.0, lengths=(4, 6, 8, 10), seeds=5, noise=3.0)
    stream = np.random.default_rng(3)
    for row in found:
        level = (parity if row["function"] == "parity" else others) * row["length"] + trade * np.log10(row["norm"])
        row["blowup"] = float(10 ** (level + noise * stream.normal()))
    return found


def verdicts(found: Rows) -> list[str]:
    return [claim.judge(found).verdict for claim in (OUT, STAY, TRADE)]


def test_judges() -> None:
    assert verdicts(table(0.05, 0.0)) == ["reproduced"] * 3
    assert verdicts(table(-0.02, 0.05, trade=2.0)) == ["contradicted"] * 3
    assert verdicts(table(STILL, STILL, trade=0.0, noise=0.2)) == ["undecided"] * 3


def test_one_of_the_others_can_contradict() -> None:
    found = table(0.05, 0.0)
    for row in found.where(function="mean"):
        row["blowup"] *= 10 ** (0.05 * row["length"])
    assert STAY.judge(found).verdict == "contradicted"
    assert STAY.judge(Rows(row for row in found if row["function"] != "mean")).verdict == "undecided"


def test_models_that_are_not_kept_do_not_count() -> None:
    found = Rows({**row, "kept": row["function"] != "parity"} for row in table(0.05, 0.0))
    assert verdicts(found) == ["undecided", "reproduced", "undecided"]
    assert "parity n = 4: 5 of 5" in STUDY.provenance(found)[1]
    said = Rows({**row, "lr": 1e-4, "weight_decay": 0.1} for row in found)
    assert [panel.title for panel in STUDY.draw(said)[0].panels] == [f"{name}: 20 of 20 kept" for name in OTHERS]


def test_search() -> None:
    trials = STUDY.checked_trials("laptop")
    assert (sum(t.function == "parity" for t in trials), len(trials)) == (60, 90)
    for function in OTHERS:
        assert {t.length for t in trials if t.function == function} == {4, 6, 8, 10}
    assert len({t.lr for t in trials}) == len({t.weight_decay for t in trials}) == 90
    assert all(1e-4 < t.lr < 5e-4 and 0 < t.weight_decay < 0.4 for t in trials)
    assert len(STUDY.trials("paper")) == 3_000


def test_smoke() -> None:
    found, judgements, _ = smoke_run(STUDY)
    assert len(found) == 5
    assert {judged.verdict for _, judged in judgements} == {"undecided"}
