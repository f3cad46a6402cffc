"""The capacity results of paper 003 as functions, all importable from here; each file says what it derives anew."""

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
    from flipscope.bounds.covering.attention import (
        LayerChange,
        attention_change,
        attention_cover,
        head_change,
        heads_cover,
        input_factor,
        layer_change,
        layer_factor,
        log_amplifications,
        network_cover,
        readout_change,
        simple_capacity,
        softmax_change,
    )
    from flipscope.bounds.covering.covers import Cover, linear_cover, matrix_cover, split_error
    from flipscope.bounds.covering.generalization import (
        GapBound,
        chained_bound,
        gap_bound,
        generalization_bound,
        log_samples_needed,
        rademacher_bound,
    )
    from flipscope.bounds.covering.norms import HeadNorms, MatrixNorms, NetworkNorms
    from flipscope.bounds.covering.overview import Summary, broken_assumptions, norms_of, summary

__getattr__, __dir__ = lazily(__name__)
