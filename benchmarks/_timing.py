"""Timing for the benchmarks: the sides take turns, so that noise of the machine hits them alike.

In its turn a side runs three times and the fastest counts, so that each is measured with its own data in the cache.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(sides: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Median over the turns of each side's wall seconds, after one round to warm up."""
    for run in sides.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            seconds[name].append(min(_timed(run) for _ in range(3)))
    return {name: statistics.median(times) for name, times in seconds.items()}


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds of readable length."""
    return f"{1e3 * seconds:.3g} ms"
