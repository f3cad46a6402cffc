"""Everything a study imports; `lab.store` keeps results and `lab.run` runs trials, and no study imports these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

if TYPE_CHECKING:
    from flipscope.basics.progress import Progress
    from flipscope.basics.resampling import growth
    from flipscope.figures import Figure, Note, Panel, Rule, Series, histogram
    from flipscope.lab.charting import chart, charts
    from flipscope.lab.data_sets import available_sets, data_set
    from flipscope.lab.judges import (
        GroupJudge,
        Judge,
        Quotient,
        bound_holds,
        bounded_mean,
        compare_groups,
        exactly,
        for_each,
        for_every,
        larger_mean,
        log_slope,
        mean_of,
        mean_slope,
        more_often,
        mostly,
        never_exceeds,
        of_models,
        rates,
        rates_below,
        share,
        share_of,
        share_where,
        slopes,
        student_mean,
        tail_exponent,
        unless_few,
        weakest_first,
        with_fewest,
    )
    from flipscope.lab.looks import confidence, judging
    from flipscope.lab.quantities import Column, Criterion, Quantity, claim
    from flipscope.lab.rows import Row, Rows, matched
    from flipscope.lab.series import bars, estimates, line, means, points, survival
    from flipscope.lab.store.artefacts import trained
    from flipscope.lab.study import Claim, Outcome, Result, Scale, Study, Trial, deviations, scales
    from flipscope.lab.trained_trial import TrainedTrial
    from flipscope.lab.verdict import Judgement, all_of, asymptotic, at_least, at_most, between, consistent_with, never

__all__ = [
    "Claim",
    "Column",
    "Criterion",
    "Figure",
    "GroupJudge",
    "Judge",
    "Judgement",
    "Note",
    "Outcome",
    "Panel",
    "Progress",
    "Quantity",
    "Quotient",
    "Result",
    "Row",
    "Rows",
    "Rule",
    "Scale",
    "Series",
    "Study",
    "TrainedTrial",
    "Trial",
    "all_of",
    "asymptotic",
    "at_least",
    "at_most",
    "available_sets",
    "bars",
    "between",
    "bound_holds",
    "bounded_mean",
    "chart",
    "charts",
    "claim",
    "compare_groups",
    "confidence",
    "consistent_with",
    "data_set",
    "deviations",
    "estimates",
    "exactly",
    "for_each",
    "for_every",
    "growth",
    "histogram",
    "judging",
    "larger_mean",
    "line",
    "log_slope",
    "matched",
    "mean_of",
    "mean_slope",
    "means",
    "more_often",
    "mostly",
    "never",
    "never_exceeds",
    "of_models",
    "points",
    "rates",
    "rates_below",
    "scales",
    "share",
    "share_of",
    "share_where",
    "slopes",
    "student_mean",
    "survival",
    "tail_exponent",
    "trained",
    "unless_few",
    "weakest_first",
    "with_fewest",
]

__getattr__, __dir__ = lazily(__name__)
