"""The results of paper 001 as functions, derived in docs/hardness-bounds.md; every one can be imported from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

__all__ = [
    "Bound",
    "Constants",
    "FlipBound",
    "Gap",
    "Measured",
    "Summary",
    "asymptotic_sharpness",
    "average_bound",
    "blowup_tail",
    "expected_bound",
    "expected_sensitivity",
    "flip_bound",
    "flip_changes",
    "fourier_gap",
    "head_change",
    "layerwise_bound",
    "least_distance",
    "log_constant",
    "log_least_blowup",
    "log_mean_square",
    "log_places",
    "log_trivial",
    "measure",
    "product_bound",
    "sensitivity_exponent",
    "sharpness_lower_bound",
    "sphere_sigma",
    "summary",
]

if TYPE_CHECKING:
    from flipscope.bounds.hardness.constants import Constants
    from flipscope.bounds.hardness.flips import (
        Bound,
        FlipBound,
        average_bound,
        flip_bound,
        head_change,
        log_constant,
        log_least_blowup,
        log_mean_square,
        log_places,
        log_trivial,
        product_bound,
    )
    from flipscope.bounds.hardness.gap import (
        Gap,
        asymptotic_sharpness,
        fourier_gap,
        least_distance,
        sharpness_lower_bound,
    )
    from flipscope.bounds.hardness.layerwise import Measured, flip_changes, layerwise_bound, measure
    from flipscope.bounds.hardness.overview import Summary, summary
    from flipscope.bounds.hardness.perturbation import (
        blowup_tail,
        expected_bound,
        expected_sensitivity,
        sensitivity_exponent,
        sphere_sigma,
    )

__getattr__, __dir__ = lazily(__name__)
