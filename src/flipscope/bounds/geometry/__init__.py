"""The results of paper 000 as functions; every one can be imported from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

__all__ = [
    "MAX_SHAPE",
    "ONE_STRING_NEEDS",
    "PAPER_HOLDS_FROM",
    "Constants",
    "Count",
    "FamilyVerdict",
    "LayerConstants",
    "Summary",
    "TheoremStart",
    "Threshold",
    "Verdict",
    "blowup_bound",
    "blowup_level",
    "blowup_tail",
    "compact_tail",
    "constant_from",
    "corrected_over_printed",
    "cube_diameter",
    "examples_verdict",
    "gaussian_blowup_tail",
    "gaussian_low_variance_bound",
    "influence_bound",
    "layerwise_influence_bound",
    "lipschitz_bound",
    "log2_function_count",
    "log_influence_constant",
    "log_stable_from",
    "log_uniform_constant",
    "low_variance_bound",
    "parse_count",
    "printed_low_variance_bound",
    "stable_logit_bound",
    "summary",
    "theorem_from",
    "uniform_influence_bound",
    "verdict",
    "zeros_verdict",
]

if TYPE_CHECKING:
    from flipscope.bounds.geometry.constants import Constants, LayerConstants
    from flipscope.bounds.geometry.counts import Count, parse_count
    from flipscope.bounds.geometry.families import MAX_SHAPE, ONE_STRING_NEEDS, Threshold, Verdict, verdict
    from flipscope.bounds.geometry.given import FamilyVerdict, examples_verdict, zeros_verdict
    from flipscope.bounds.geometry.influence import (
        blowup_bound,
        constant_from,
        influence_bound,
        layerwise_influence_bound,
        log_influence_constant,
        log_uniform_constant,
        uniform_influence_bound,
    )
    from flipscope.bounds.geometry.limits import TheoremStart, compact_tail, log_stable_from, theorem_from
    from flipscope.bounds.geometry.overview import Summary, summary
    from flipscope.bounds.geometry.parameters import cube_diameter, lipschitz_bound, log2_function_count
    from flipscope.bounds.geometry.variance import (
        PAPER_HOLDS_FROM,
        blowup_level,
        blowup_tail,
        corrected_over_printed,
        gaussian_blowup_tail,
        gaussian_low_variance_bound,
        low_variance_bound,
        printed_low_variance_bound,
        stable_logit_bound,
    )

__getattr__, __dir__ = lazily(__name__)
