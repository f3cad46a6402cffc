"""The capacity results of paper 003 as functions, all of them here by name; each file says what it derives anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

__all__ = [
    "Cover",
    "GapBound",
    "HeadNorms",
    "LayerChange",
    "MatrixNorms",
    "NetworkNorms",
    "Summary",
    "attention_change",
    "attention_cover",
    "broken_assumptions",
    "chained_bound",
    "gap_bound",
    "generalization_bound",
    "head_change",
    "heads_cover",
    "input_factor",
    "layer_change",
    "layer_factor",
    "linear_cover",
    "log_amplifications",
    "log_samples_needed",
    "matrix_cover",
    "network_cover",
    "norms_of",
    "rademacher_bound",
    "readout_change",
    "simple_capacity",
    "softmax_change",
    "split_error",
    "summary",
]

if TYPE_CHECKING:
    from flipscope.bounds.covering.changes import (
        LayerChange,
        attention_change,
        head_change,
        input_factor,
        layer_change,
        log_amplifications,
        readout_change,
        softmax_change,
    )
    from flipscope.bounds.covering.covers import Cover
    from flipscope.bounds.covering.generalization import (
        chained_bound,
        generalization_bound,
        log_samples_needed,
        rademacher_bound,
    )
    from flipscope.bounds.covering.heads import attention_cover, heads_cover
    from flipscope.bounds.covering.linear import linear_cover, matrix_cover, split_error
    from flipscope.bounds.covering.networks import layer_factor, network_cover, simple_capacity
    from flipscope.bounds.covering.norms import HeadNorms, MatrixNorms, NetworkNorms
    from flipscope.bounds.covering.overview import GapBound, Summary, gap_bound, summary
    from flipscope.bounds.covering.reading import broken_assumptions, norms_of

__getattr__, __dir__ = lazily(__name__)
