"""The smoke run of a study, judged and drawn from its golden numbers."""

from __future__ import annotations

from collections.abc import Sequence

from studies.golden import smoke_results

from flipscope.figures import Figure
from flipscope.lab.rows import Rows
from flipscope.lab.study import Claim, Study
from flipscope.lab.verdict import Judgement


def smoke_run(study: Study) -> tuple[Rows, list[tuple[Claim, Judgement]], Sequence[Figure]]:
    """The table of all smoke trials, each claim's judgement, and the figures."""
    table = study.summarise(smoke_results(study))
    return table, study.judge(table), study.draw(table)
