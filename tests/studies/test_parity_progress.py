from __future__ import annotations

import pytest
from studies.harness import smoke_run
from studies.traps.low_sensitivity import parity_run

from flipscope.studies.low_sensitivity.parity_progress import COINS, STUDY, progress_of


def test_smoke() -> None:
    table, judgements, figures = smoke_run(STUDY)
    assert len(table.where(noise=COINS)) == 1
    assert {judgement.verdict for _, judgement in judgements} == {"undecided"}
    assert [panel.y_label for panel in figures[0].panels][:3] == [
        "training loss",
        "test accuracy",
        "sensitivity over length",
    ]
    for row in table:
        assert len(row["step"]) == len(row["accuracy"]) == len(row["sensitivity"])
        assert all(0 <= value <= 1 for value in row["sensitivity"])


def test_what_a_run_tells() -> None:
    found = progress_of(parity_run(0))
    assert found["left"] is not None
    assert found["left"] < found["learned"]
    assert found["rise"] > 0.02
    assert found["ratio"] == pytest.approx(1, abs=0.02)
    assert abs(found["lag"]) < 0.1
    assert 0.5 < found["at_chance"] < 1
    assert len(found["waiting"]) >= 8


def test_a_run_that_stays_at_chance() -> None:
    found = progress_of(parity_run(0, learns=False))
    assert (found["left"], found["learned"]) == (None, None)
    assert "ratio" not in found
    assert found["rise"] > 0


def test_a_run_that_learns_at_once_has_no_time_at_chance() -> None:
    row = parity_run(0)
    first = next(place for place, value in enumerate(row["accuracy"]) if value >= 0.55)
    early = {name: value[first - 3 :] if isinstance(value, list) else value for name, value in row.items()}
    found = progress_of(early)
    assert "rise" not in found
    assert found["learned"] is not None


def test_laptop_trials() -> None:
    trials = STUDY.trials("laptop")
    assert [trial.seed for trial in trials if trial.noise == 0][:6] == list(range(1_000, 1_006))
    assert len({(trial.samples, trial.batch, trial.width, trial.lr) for trial in trials}) == 4
    recipe = trials[0].recipe
    assert (recipe.model.layers, recipe.model.heads) == (2, 4)
    assert recipe.data.noise == 0  # type: ignore[union-attr]
    assert trials[-1].recipe.data.noise == COINS  # type: ignore[union-attr]
