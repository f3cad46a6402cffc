"""The PAC-Bayes bounds of paper 002 as functions; every one can be imported from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

__all__ = [
    "BlackBox",
    "Grids",
    "GroupBound",
    "Outside",
    "PacBayes",
    "ParityFailure",
    "Perturbation",
    "PosteriorBound",
    "Setting",
    "black_box_bound",
    "bound_at",
    "bounded_subgaussian",
    "catoni_bound",
    "class_bound",
    "closed_bound",
    "closed_sigma",
    "counted",
    "edelman_bound",
    "edelman_cover",
    "edelman_template",
    "estimated_subgaussian",
    "fewest_samples",
    "flip_threshold",
    "gradient_blocks",
    "gradient_bound",
    "gradient_sum",
    "group_bound",
    "mcallester_bound",
    "mesh_sigma",
    "norm_blocks",
    "norm_bound",
    "older_norm",
    "parity_failure",
    "perturbation_term",
    "posterior_bound",
    "scipy_sigma",
    "steps_norm_bound",
    "strict_log_failure",
    "trace_bound",
]

if TYPE_CHECKING:
    from flipscope.bounds.pac_bayes.construction import (
        Perturbation,
        flip_threshold,
        gradient_blocks,
        gradient_bound,
        gradient_sum,
        norm_blocks,
        norm_bound,
        older_norm,
        perturbation_term,
        steps_norm_bound,
    )
    from flipscope.bounds.pac_bayes.function_classes import GroupBound, PacBayes, class_bound, group_bound
    from flipscope.bounds.pac_bayes.inequalities import (
        Grids,
        Setting,
        bound_at,
        bounded_subgaussian,
        catoni_bound,
        closed_bound,
        closed_sigma,
        estimated_subgaussian,
        fewest_samples,
        mcallester_bound,
        mesh_sigma,
        scipy_sigma,
    )
    from flipscope.bounds.pac_bayes.norm_based import edelman_bound, edelman_cover, edelman_template
    from flipscope.bounds.pac_bayes.parity import ParityFailure, parity_failure, strict_log_failure
    from flipscope.bounds.pac_bayes.trained import (
        BlackBox,
        Outside,
        PosteriorBound,
        black_box_bound,
        counted,
        posterior_bound,
        trace_bound,
    )

__getattr__, __dir__ = lazily(__name__)
