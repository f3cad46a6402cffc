"""Tables of the hardness studies, as runs would give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flipscope.lab import Row, Rows
from flipscope.studies.hardness.shared import FUNCTIONS


def rows(
    column: str,
    level: Callable[[str, int], float],
    *,
    lengths: Sequence[int] = (4, 6, 8, 10, 12),
    functions: Sequence[str] = FUNCTIONS,
    seeds: int = 3,
    noise: float = 0.02,
    width: int = 128,
    kept: bool = True,
) -> Rows:
    """Models whose column has this level, and some noise."""
    stream = np.random.default_rng(1)
    usual: Row = {"width": width, "kept": kept, "error": 1e-4, "norm": 30.0, "blowup": 1.2, "sharpness": 0.2}
    return Rows(
        {**usual, "function": name, "length": n, "seed": seed, column: level(name, n) + noise * stream.normal()}
        for name in functions
        for n in lengths
        for seed in range(seeds)
    )
