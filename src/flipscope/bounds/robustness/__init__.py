"""Which flips provably leave the sign of a two-layer transformer alone: intervals of the logits of all flips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flipscope.basics.lazy import lazily

__all__ = ["Certificate", "certified", "flip_intervals", "same_side", "supports"]

if TYPE_CHECKING:
    from flipscope.bounds.robustness.certificate import Certificate, certified, flip_intervals, same_side, supports

__getattr__, __dir__ = lazily(__name__)
