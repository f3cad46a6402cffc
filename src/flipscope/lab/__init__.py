"""What a study needs, in one place; how it is stored and run is in the modules below, which no study imports."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flipscope.cube.blocks import Progress
    from flipscope.lab.artefacts import trained
    from flipscope.lab.figures import Figure, Note, Panel, Rule, Series, histogram
    from flipscope.lab.judges import (
        Quotient,
        asymptotic,
        bound_holds,
        compare_groups,
        for_each,
        log_slope,
        never_exceeds,
        rates,
        rates_below,
        share,
        share_of,
        slopes,
        unless_few,
        weakest_first,
        with_fewest,
    )
    from flipscope.lab.resample import straight_line, student_mean, tail_exponent
    from flipscope.lab.rows import Row, Rows, matched
    from flipscope.lab.series import bars, estimates, line, lines, means, survival
    from flipscope.lab.study import Claim, Deviation, Outcome, Result, Scale, Study, Trial, scales
    from flipscope.lab.verdict import Judgement, all_of, at_least, at_most, between, consistent_with, never

_HOMES = {
    "artefacts": ("trained",),
    "figures": ("Figure", "Note", "Panel", "Rule", "Series", "histogram"),
    "judges": (
        "Quotient",
        "asymptotic",
        "bound_holds",
        "compare_groups",
        "for_each",
        "log_slope",
        "never_exceeds",
        "rates",
        "rates_below",
        "share",
        "share_of",
        "slopes",
        "unless_few",
        "weakest_first",
        "with_fewest",
    ),
    "resample": ("straight_line", "student_mean", "tail_exponent"),
    "rows": ("Row", "Rows", "matched"),
    "series": ("bars", "estimates", "line", "lines", "means", "survival"),
    "study": ("Claim", "Deviation", "Outcome", "Progress", "Result", "Scale", "Study", "Trial", "scales"),
    "verdict": ("Judgement", "all_of", "at_least", "at_most", "between", "consistent_with", "never"),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Claim",
    "Deviation",
    "Figure",
    "Judgement",
    "Note",
    "Outcome",
    "Panel",
    "Progress",
    "Quotient",
    "Result",
    "Row",
    "Rows",
    "Rule",
    "Scale",
    "Series",
    "Study",
    "Trial",
    "all_of",
    "asymptotic",
    "at_least",
    "at_most",
    "bars",
    "between",
    "bound_holds",
    "compare_groups",
    "consistent_with",
    "estimates",
    "for_each",
    "histogram",
    "line",
    "lines",
    "log_slope",
    "matched",
    "means",
    "never",
    "never_exceeds",
    "rates",
    "rates_below",
    "scales",
    "share",
    "share_of",
    "slopes",
    "straight_line",
    "student_mean",
    "survival",
    "tail_exponent",
    "trained",
    "unless_few",
    "weakest_first",
    "with_fewest",
]


def __getattr__(name: str) -> Any:
    """Fetch a name on first use: what only reads a store need not load statistics."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
