from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from studies.harness import smoke_run

from flipscope.lab import Rows
from flipscope.studies.hardness.parity_dynamics import STUDY, Dynamics, aligned, levels

TOGETHER, FALLS, STAYS, BLOWUP = STUDY.claims
STEPS = np.arange(0, 8_001, 100)


def _curves(
    drop: int = 3_000, rise: int = 3_000, before: float = 0.05, peak: float = 1.0, end: float = 0.5
) -> dict[str, Any]:
    """A run whose loss falls at one step and whose sharpness jumps at another, and then goes to its end."""
    steps = STEPS
    later = np.clip((steps - rise) / (8_000 - rise), 0, 1)
    sharpness = np.where(steps < rise, before, peak + (end - peak) * later)
    loss = np.where(steps < drop, 0.25, 0.0001)
    blowup = np.where(steps < drop, 1.0, 3.0)
    return {"step": STEPS, "loss": loss, "sharpness": sharpness, "blowup": blowup, "norm": 20 + STEPS / 1_000}


def _table(runs: int = 8, spread: float = 0.01, **curves: Any) -> Rows:
    rows = []
    for seed in range(runs):
        found = _curves(**curves)
        found["sharpness"] = found["sharpness"] * (1 + spread * (seed % 3) * STEPS / 8_000)
        found["blowup"] = found["blowup"] ** (1 + spread * (seed % 3))
        rows.append(STUDY.row(Dynamics(12, seed, 64, 128, 8_000, 0.1, 3e-4, 100, 100), found))
    return Rows(rows)


def _verdicts(table: Rows) -> list[str]:
    return [claim.judge(table).verdict for claim in STUDY.claims]


def test_what_a_run_tells() -> None:
    found = levels(_curves(drop=3_000, rise=3_200))
    assert (found["converged"], found["lag"]) == (3_000, 150.0)
    risen = [0.05, 0.05, *(1 - 0.5 * after / 4_800 for after in (0, 100, 200, 300))]  # from 3,000 to 3,500
    assert found["before"] == pytest.approx(0.05)
    assert found["after"] == pytest.approx(np.mean(risen))
    assert found["final"] == pytest.approx(0.5 + 0.5 * 250 / 4_800)  # the mean of the last 500 steps
    assert found["risen"] == pytest.approx(1 - 0.05 / found["after"])
    assert found["left"] == found["final"] / found["after"]
    assert found["above"] == pytest.approx(found["left"] - 0.05 / found["after"])
    assert found["blowup_risen"] == pytest.approx(np.log(3))


def test_noise_is_no_fall() -> None:
    """A level that stays after convergence is below the largest of its noisy measurements, and has not fallen."""
    stream = np.random.default_rng(2)
    rows = []
    for seed in range(8):
        found = _curves(end=1.0)
        found["sharpness"] = found["sharpness"] * (1 + 0.3 * stream.normal(size=len(STEPS)))
        rows.append(STUDY.row(Dynamics(12, seed, 64, 128, 8_000, 0.1, 3e-4, 100, 100), found))
    assert FALLS.judge(Rows(rows)).verdict != "reproduced"
    peaked = _curves(end=1.0)
    peaked["sharpness"][:5] = 3.0  # a peak long before it learns
    assert levels(peaked)["left"] == pytest.approx(1.0)


def test_a_run_that_cannot_tell_says_so() -> None:
    assert levels(_curves(drop=9_000)) == {"converged": None}
    assert "left" not in levels(_curves(drop=7_200, rise=7_200))  # too few steps after
    assert "risen" in levels(_curves(drop=7_200, rise=7_200))
    assert not {"left", "risen"} & set(levels(_curves(drop=300, rise=300)))  # too few before


def test_all_as_in_the_paper() -> None:
    assert _verdicts(_table()) == ["reproduced"] * 4


def test_a_sharpness_that_is_not_a_number_rises_nowhere() -> None:
    curves = _curves(drop=300, rise=300)
    curves["sharpness"][3] = float("nan")  # near the drop, where a rise would be in favour
    assert math.isnan(levels(curves)["lag"])


def test_a_rise_elsewhere_contradicts() -> None:
    assert TOGETHER.judge(_table(rise=5_000)).verdict == "contradicted"
    assert TOGETHER.judge(_table(before=0.8)).verdict == "contradicted"  # at the right time, but by little
    half = Rows([*_table(4), *_table(4, rise=5_000)])
    assert TOGETHER.judge(half).verdict == "undecided"
    assert TOGETHER.judge(_table(3)).verdict == "undecided"


def test_what_comes_after() -> None:
    assert FALLS.judge(_table(end=1.0)).verdict == "contradicted"
    assert STAYS.judge(_table(end=0.0, before=0.0)).verdict == "contradicted"
    assert STAYS.judge(_table(end=0.2, before=0.3)).verdict == "contradicted"  # not 0, but below what it was before
    mixed = Rows([*_table(4, end=1.0), *_table(4, end=0.75)])
    assert FALLS.judge(mixed).verdict == "undecided"
    still = Rows({**row, "blowup_risen": 0.0} for row in _table())
    assert BLOWUP.judge(still).verdict == "undecided"  # nothing rises
    low = Rows([*_table(4, end=0.0), *_table(4, end=0.25)])
    assert STAYS.judge(low).verdict == "undecided"
    for claim in (FALLS, STAYS, BLOWUP):
        assert claim.judge(_table(4)).verdict == "undecided"
        assert claim.judge(_table(drop=9_000)).verdict == "undecided"


def test_blowup() -> None:
    fewer = Rows({**row, "blowup_risen": -row["blowup_risen"] - 0.01 * row["seed"]} for row in _table())
    assert BLOWUP.judge(fewer).verdict == "contradicted"
    mixed = Rows({**row, "blowup_risen": (-1) ** row["seed"]} for row in _table())
    assert BLOWUP.judge(mixed).verdict == "undecided"


def test_other_weight_decays_are_not_judged() -> None:
    others = Rows({**row, "weight_decay": 0.0} for row in _table(rise=5_000))
    assert _verdicts(Rows([*_table(), *others])) == ["reproduced"] * 4
    assert set(_verdicts(others)) == {"undecided"}


def test_runs_are_aligned_and_counted() -> None:
    table = Rows([*_table(2), *_table(2, drop=4_000, rise=4_000), *_table(1, drop=9_000)])
    rows = aligned(table, "loss")
    assert {row["value"] for row in rows if row["after"] < 0} == {0.25}
    assert {row["value"] for row in rows if row["after"] >= 0} == {0.0001}
    assert (min(rows.column("after")), max(rows.column("after"))) == (-4_000, 5_000)  # half of the runs are enough
    assert STUDY.provenance(table)[0].startswith("4 of 5 runs converged")
    curves, path = STUDY.draw(table)
    assert [panel.y_label for panel in curves.panels] == ["loss", "sharpness", "blowup", "weight norm"]
    assert list(path.panels[0].series[0].values or ())[:2] == [0, 100]
    assert list(STUDY.draw(_table(2, drop=9_000))) == []


def test_the_laptop_recipe() -> None:
    trial = STUDY.trials("laptop")[0]
    assert [each.seed for each in STUDY.trials("laptop")] == list(range(1_000, 1_008))
    recipe = trial.recipe
    assert [each.name for each in recipe.log] == ["validation", "sharpness", "blowup", "norm"]
    assert dict(recipe.log[1].settings)["draws"] == 100
    assert (recipe.protocol.batch, recipe.protocol.max_steps, recipe.model.width) == (128, 8_000, 64)


def test_smoke() -> None:
    table, judgements, _ = smoke_run(STUDY)
    assert [row["seed"] for row in table] == [0, 1]
    for row in table:
        assert row["step"] == list(range(0, 61, 10))
        assert all(len(row[name]) == 7 for name in ("loss", "sharpness", "blowup", "norm"))
        assert min(row["sharpness"] + row["blowup"]) > 0
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
