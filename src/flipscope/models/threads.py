"""Compiled loops on several threads, if PyTorch may use several."""

from __future__ import annotations

from collections.abc import Callable

import torch

from flipscope.native.compiled import in_parallel


def on_cores(work: Callable[[int, int], None], size: int) -> None:
    """Call work(first, last) on pieces of range(size), on every core unless PyTorch may use only one."""
    if torch.get_num_threads() == 1:
        work(0, size)
    else:
        in_parallel(work, size, 1)
