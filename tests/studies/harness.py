"""Runs a study here and now, without store or workers."""

from __future__ import annotations

from collections.abc import Sequence

from flipscope.lab.figures import Figure
from flipscope.lab.rows import Rows
from flipscope.lab.study import Claim, Result, Study
from flipscope.lab.verdict import Judgement


def run(study: Study, scale: str) -> tuple[Rows, list[tuple[Claim, Judgement]], Sequence[Figure]]:
    """The table of all trials of a scale, each claim's judgement, and the figures; every progress report is checked."""
    results = [Result(trial, study.measure(trial, _check_progress), 0.0) for trial in study.checked_trials(scale)]
    table = study.summarise(results)
    return table, study.judge(table), study.draw(table)


def _check_progress(done: int, total: int) -> None:
    assert 0 <= done <= total, f"progress of {done} in {total}"
